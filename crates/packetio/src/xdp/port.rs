//! One queue of an interface: an AF_XDP socket, its UMEM and its four rings, as a [`Port`].
//!
//! A receiving chunk goes round fill ring, kernel, RX ring, caller. A sending chunk goes round free
//! list, caller, TX ring, kernel, completion ring. Each kind has no more chunks than its rings have
//! slots, so no ring ever overflows. A caller without a free chunk is pushed back and loses no
//! frame. While the caller does not receive, frames of a filling RX ring move to the port's own
//! store, and their chunks receive again. [`XdpInterface`](super::XdpInterface) makes the port.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::frame_store_unsafe::FrameStore;
use super::interface::Shared;
use super::options::XdpMode;
use super::rings_unsafe::{Consumer, Desc, Producer};
use super::umem_unsafe::Umem;
use crate::frame_unsafe::{RxFrame, TxFrame};
use crate::limits::{
    XDP_BATCH_MAX, XDP_LINK_CHECK_NS, XDP_LOOK_NS, XDP_STATISTICS_INTERVAL, XDP_TX_HEADROOM_BYTES,
    XDP_TX_KICK_FRAMES, XDP_TX_KICKS_SPARE, XDP_TX_RETRY_NS, XDP_TX_SLOTS,
};
use crate::port::{Capabilities, Port, PortCounters, PortError};
use crate::wait::monotonic_ns;

mod counters;
mod long_frames;
mod open;
mod passed;

use counters::Counters;
use long_frames::{Assembled, LongFrames};
pub use open::bare;
pub use passed::Memory;
pub(crate) use passed::PassedMemory;

/// Length of an Ethernet header, bytes; anything shorter is not a frame.
const FRAME_BYTES_MIN: usize = 14;

/// Flag `XDP_PKT_CONTD`: the frame continues in the next descriptor.
const CONTINUED: u32 = 1;

/// One queue of an interface driven by AF_XDP.
#[derive(Debug)]
pub struct XdpPort {
    // The socket is dropped first, so that the kernel uses neither rings nor UMEM any more.
    socket: OwnedFd,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    rx: Consumer<Desc>,
    tx: Producer<Desc>,
    umem: Umem,
    /// The frames that are lent to the caller.
    rx_frames: Vec<RxFrame>,
    /// Chunks of the lent frames, which go back to the fill ring.
    rx_chunks: Vec<u64>,
    /// Frames that were taken out of the RX ring before the caller asked for them.
    early: FrameStore,
    /// Number of frames in the RX ring from which on they are moved to the store.
    drain_at: u32,
    /// Frames longer than a chunk, in generic mode; `None` in native mode.
    long: Option<Box<LongFrames>>,
    /// Sending chunks that are free.
    tx_free: Vec<u64>,
    /// Slots granted to the caller; `reserved_chunks` holds their chunks.
    reserved: Vec<TxFrame>,
    reserved_chunks: Vec<u64>,
    /// Longest frame to send, bytes.
    frame_bytes_max: u32,
    capabilities: Capabilities,
    queue: u32,
    zerocopy: bool,
    /// True if the last kick left frames in the TX ring.
    tx_pending: bool,
    /// True if the interface is gone.
    gone: bool,
    /// Time to look for what no descriptor announces, ns; 0 while no thread sleeps.
    wake_at_ns: u64,
    receives: u32,
    /// Time at which `prepare_wait` last asked the kernel for counters and errors, ns.
    looked_at_ns: u64,
    /// Process that opened the port.
    pid: u32,
    counters: Counters,
    /// The interface; `None` if a service made the socket and owns program and maps.
    interface: Option<Arc<Shared>>,
}

impl XdpPort {
    /// The AF_XDP socket, for the map of the caller's own program.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// True if the driver reads and writes our memory itself.
    pub fn is_zerocopy(&self) -> bool {
        self.zerocopy
    }

    /// Mode of the interface's program: `Native` or `Generic`. Over the socket of a service it is
    /// `Native`.
    pub fn mode(&self) -> XdpMode {
        self.interface
            .as_ref()
            .map_or(XdpMode::Native, |interface| interface.mode)
    }

    /// Announces a bulk lane for packets of up to `segment_bytes_max` bytes.
    pub(super) fn announce_bulk(&mut self, segment_bytes_max: usize) {
        self.capabilities.segment_bytes_max = segment_bytes_max;
    }

    /// Reads the kernel's own counters now, by two system calls. Otherwise `counters()` shows them
    /// as of the last sleep, or of a few thousand `receive` calls ago.
    pub fn refresh_counters(&mut self) {
        self.counters
            .refresh(&self.socket, self.interface.as_deref());
        self.counters.look_at_interface();
    }

    /// Refreshes the kernel's counters, and from time to time the interface's.
    fn look_at_counters(&mut self) {
        self.counters
            .refresh(&self.socket, self.interface.as_deref());
        self.counters.look_at_interface_if_due();
    }

    /// Takes back the chunks of sent frames.
    fn reclaim(&mut self) {
        let n = self.completion.available(XDP_TX_SLOTS);
        if n == 0 {
            return;
        }
        for _ in 0..n {
            let addr = self.completion.take();
            match self.umem.tx_chunk(addr) {
                // The kernel may return no more chunks than there are.
                Some(chunk) if self.tx_free.len() < XDP_TX_SLOTS as usize => {
                    self.tx_free.push(chunk);
                }
                _ => self.counters.bad_descriptor += 1,
            }
        }
        self.completion.release();
    }

    /// Gives back the slots that were reserved and not sent.
    fn unreserve(&mut self) {
        self.reserved.clear();
        self.tx_free.append(&mut self.reserved_chunks);
    }

    /// Moves frames in the first `n` reserved slots to the TX ring; returns their number.
    fn enqueue(&mut self, n: usize) -> usize {
        let mut frames = 0;
        for (slot, &chunk) in self.reserved.iter().zip(&self.reserved_chunks).take(n) {
            let len = slot.len();
            if len < FRAME_BYTES_MIN || self.tx.free(1) == 0 {
                self.counters.tx_runt += u64::from(len > 0);
                self.tx_free.push(chunk);
                continue;
            }
            self.tx.put(Desc {
                addr: chunk + u64::from(XDP_TX_HEADROOM_BYTES),
                len: len as u32,
                options: 0,
            });
            frames += 1;
            self.counters.tx_bytes += len as u64;
        }
        let rest = self.reserved_chunks.get(n..).unwrap_or_default();
        self.tx_free.extend_from_slice(rest);
        self.reserved.clear();
        self.reserved_chunks.clear();
        self.counters.tx_frames += frames as u64;
        self.tx.publish();
        frames
    }

    /// Makes the kernel send the frames in the TX ring, if it asks for a wake-up.
    ///
    /// In copy mode each call sends a limited number of frames on the caller's time, and reports
    /// more by an error. When the budget is spent or a call moves nothing, the next kick continues.
    fn kick(&mut self) -> Result<(), PortError> {
        let mut left = self.tx.pending() as usize;
        self.tx_pending = left > 0;
        if left == 0 || !self.tx.needs_wakeup() {
            self.tx_pending = false; // the driver is at it
            return Ok(());
        }
        let mut kicks = left / XDP_TX_KICK_FRAMES + XDP_TX_KICKS_SPARE;
        while left > 0 && kicks > 0 {
            kicks -= 1;
            let result = send(&self.socket, &[], SendFlags::DONTWAIT);
            let before = left;
            left = self.tx.pending() as usize;
            match result {
                Ok(_) if self.zerocopy => left = 0,
                Ok(_) => {}
                Err(Errno::BUSY) if left < before => {
                    // The interface refused one frame, which is lost; another kick sends the
                    // others.
                    self.counters.tx_refused += 1;
                    kicks += 1;
                    continue;
                }
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {}
                Err(errno) => return Err(self.kick_failed(errno)),
            }
            if left == before {
                break;
            }
        }
        self.tx_pending = left > 0;
        Ok(())
    }

    /// Takes a part of a frame that is longer than a chunk. True: it was the last part, and pieces
    /// are ready to be lent.
    #[cold]
    fn take_part(&mut self, desc: Desc) -> bool {
        let part = self.umem.rx_frame(desc.addr, desc.len);
        self.counters.bad_descriptor += u64::from(part.is_none());
        let Some(long) = &mut self.long else {
            // This mode did not ask for frames in parts, so the kernel should send none.
            self.counters.rx_too_long += 1;
            return false;
        };
        if desc.options & CONTINUED != 0 {
            long.push(part.as_ref());
            return false;
        }
        match long.finish(part.as_ref()) {
            Assembled::Cut => {
                self.counters.rx_cut += 1;
                true
            }
            Assembled::Dropped => {
                self.counters.rx_too_long += 1;
                false
            }
        }
    }

    #[cold]
    fn lend_pieces(&mut self) -> &[RxFrame] {
        let Some(long) = &mut self.long else {
            return &[];
        };
        let pieces = long.lend();
        self.counters.rx_frames += pieces.len() as u64;
        self.counters.rx_bytes += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        pieces
    }

    /// Moves frames from the RX ring to the store, before the ring overflows while the caller sends
    /// or works.
    #[cold]
    fn take_early(&mut self) {
        let n = self.rx.available(u32::MAX);
        let mut moved = 0;
        for _ in 0..n {
            let desc = self.rx.peek();
            let in_parts = self.long.as_ref().is_some_and(|long| long.is_assembling());
            if in_parts || desc.options & CONTINUED != 0 {
                break; // `receive` puts it together
            }
            match self.umem.rx_frame(desc.addr, desc.len) {
                Some(frame) if !self.early.push(&frame) => {
                    self.counters.rx_store_full += 1;
                    break;
                }
                Some(_) => moved += 1,
                None => self.counters.bad_descriptor += 1,
            }
            self.rx.take();
            // There is room for every chunk; a chunk that the kernel invented is discarded.
            if let Some(chunk) = self.umem.rx_chunk(desc.addr)
                && self.fill.free(1) > 0
            {
                self.fill.put(chunk);
            }
        }
        self.counters.rx_early += moved;
        self.rx.release();
        self.publish_fill();
    }

    /// Publishes the chunks that were put into the fill ring.
    fn publish_fill(&mut self) {
        self.fill.publish();
        if self.fill.needs_wakeup() {
            // A driver that ran dry waits for this call. Its errors cannot be handled.
            let _ = recv(&self.socket, &mut [0u8; 0], RecvFlags::DONTWAIT);
        }
    }

    /// Lends frames from the store, which are older than those in the ring.
    #[cold]
    fn lend_early(&mut self) -> &[RxFrame] {
        self.drain();
        let frames = self.early.lend();
        self.counters.rx_frames += frames.len() as u64;
        self.counters.rx_bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        frames
    }

    #[cold]
    fn kick_failed(&mut self, errno: Errno) -> PortError {
        match errno {
            // The interface is down: frames stay in the ring and leave when it is up again.
            Errno::NETDOWN => PortError::Disconnected,
            Errno::NXIO | Errno::NODEV | Errno::BADF => {
                self.gone = true;
                PortError::Gone
            }
            errno => PortError::Io {
                call: "sendto",
                errno,
            },
        }
    }

    /// Reads the error that an interface leaves on its sockets when it goes away. `poll` does not
    /// show it, because the sockets are no longer bound.
    fn look_for_error(&mut self) {
        let error = sockopt::socket_error(&self.socket);
        if let Ok(Err(Errno::NETDOWN | Errno::NODEV | Errno::NXIO)) = error {
            self.gone = true;
        }
    }

    #[cold]
    fn kick_again(&mut self) -> Result<(), PortError> {
        if self.gone {
            return Err(PortError::Gone);
        }
        match self.kick() {
            // Receiving continues while the interface does not send.
            Err(PortError::Gone) => Err(PortError::Gone),
            _ => Ok(()),
        }
    }
}

impl Port for XdpPort {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.release();
        if self.tx_pending || self.gone {
            self.kick_again()?;
        }
        self.receives = self.receives.wrapping_add(1);
        if self.receives.is_multiple_of(XDP_STATISTICS_INTERVAL) {
            self.look_at_counters();
        }
        if self.long.as_ref().is_some_and(|long| long.is_ready()) {
            return Ok(self.lend_pieces());
        }
        if !self.early.is_empty() {
            return Ok(self.lend_early());
        }
        let n = self.rx.available(XDP_BATCH_MAX as u32);
        if n == 0 {
            return Ok(&[]);
        }
        let mut in_parts = self.long.as_ref().is_some_and(|long| long.is_assembling());
        for _ in 0..n {
            let desc = self.rx.take();
            if let Some(chunk) = self.umem.rx_chunk(desc.addr) {
                self.rx_chunks.push(chunk);
            }
            if in_parts || desc.options & CONTINUED != 0 {
                in_parts = desc.options & CONTINUED != 0;
                if self.take_part(desc) {
                    break; // its pieces come after what stands before it
                }
                continue;
            }
            match self.umem.rx_frame(desc.addr, desc.len) {
                Some(frame) => {
                    self.rx_frames.push(frame);
                    self.counters.rx_bytes += u64::from(desc.len);
                }
                None => self.counters.bad_descriptor += 1,
            }
        }
        self.rx.release();
        self.counters.rx_frames += self.rx_frames.len() as u64;
        if self.rx_frames.is_empty() {
            return Ok(self.lend_pieces());
        }
        Ok(&self.rx_frames)
    }

    fn release(&mut self) {
        if let Some(long) = &mut self.long {
            long.release();
        }
        self.early.release();
        if self.rx_chunks.is_empty() {
            return;
        }
        self.rx_frames.clear();
        let room = self.fill.free(self.rx_chunks.len() as u32) as usize;
        // There is room for all chunks; those that the kernel invented are discarded.
        for chunk in self.rx_chunks.drain(..).take(room) {
            self.fill.put(chunk);
        }
        self.publish_fill();
    }

    fn drain(&mut self) {
        if self.rx.available(self.drain_at) >= self.drain_at {
            self.take_early();
        }
    }

    fn waiting(&mut self) -> usize {
        self.early.len() + self.rx.available(u32::MAX) as usize
    }

    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        self.unreserve();
        let wanted = n.min(XDP_BATCH_MAX);
        if self.tx_free.len() < wanted {
            self.reclaim();
        }
        let n = wanted.min(self.tx_free.len());
        self.counters.tx_pushed_back += u64::from(n < wanted);
        for _ in 0..n {
            let Some(chunk) = self.tx_free.pop() else {
                break;
            };
            // Always `Some`, because the free list holds only sending chunks.
            if let Some(slot) = self.umem.tx_frame(chunk, self.frame_bytes_max) {
                self.reserved.push(slot);
                self.reserved_chunks.push(chunk);
            }
        }
        &self.reserved
    }

    fn reserved(&self) -> &[TxFrame] {
        &self.reserved
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        let frames = self.enqueue(n.min(self.reserved.len()));
        if frames == 0 && !self.tx_pending {
            return Ok(());
        }
        let kicked = self.kick();
        // A peer on this host may have answered within the call.
        self.drain();
        kicked
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        self.release();
        self.early.give_back();
        let now_ns = monotonic_ns();
        if now_ns.wrapping_sub(self.looked_at_ns) >= XDP_LOOK_NS {
            self.looked_at_ns = now_ns;
            self.look_at_counters();
            self.look_for_error();
        }
        if self.tx_pending {
            let _ = self.kick_again(); // `receive` reports what it says
        }
        let ready = self.long.as_ref().is_some_and(|long| long.is_ready());
        if self.gone || ready || !self.early.is_empty() || self.rx.available(1) > 0 {
            return true;
        }
        if want_tx {
            self.reclaim();
            if !self.tx_free.is_empty() {
                return true;
            }
        }
        // No descriptor announces completed frames, a device that has room again, or an interface
        // that goes away.
        let sleep_ns = match self.tx_pending || want_tx {
            true => XDP_TX_RETRY_NS,
            false => XDP_LINK_CHECK_NS,
        };
        self.wake_at_ns = now_ns + sleep_ns;
        false
    }

    fn finish_wait(&mut self) {
        self.wake_at_ns = 0;
    }

    fn poll_fds<'a>(&'a self, _want_tx: bool, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        // POLLOUT tells only of the TX ring, not of room to send; see `deadline_ns`.
        fds(self.socket.as_fd(), PollFlags::IN);
    }

    fn deadline_ns(&self) -> Option<u64> {
        (self.wake_at_ns != 0).then_some(self.wake_at_ns)
    }

    fn counters(&self) -> PortCounters {
        self.counters.report()
    }
}

impl Drop for XdpPort {
    fn drop(&mut self) {
        // A forked child closes its copies of the descriptors; the map is the parent's.
        if let Some(interface) = &self.interface
            && self.pid == std::process::id()
        {
            interface.loaded.clear_socket(self.queue);
        }
    }
}
