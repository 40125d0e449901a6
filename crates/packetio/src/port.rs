//! The one trait of packet I/O, and the plain values that go with it.
//!
//! Owns nothing. Implemented by every backend and wrapper of this crate; called by the stack, the
//! bridge and the simulator.
//!
//! A turn of a caller looks like this:
//!
//! ```text
//! receive() -> &[RxFrame]   read them in place, copy what must stay
//! release()                 give the batch back to the driver
//! reserve(n) -> &[TxFrame]  write frames in place, set_len() each
//! send(m)                   the first m leave, in order; flush
//! prepare_wait() … sleep on poll_fds() until deadline_ns() … finish_wait()
//! ```

use std::any::Any;
use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;
use rustix::io::Errno;
pub use wire::ethernet::MacAddr;

use crate::counter_list::port_counter;

use crate::frame_unsafe::{RxFrame, TxFrame};
pub use crate::host::Host;
use crate::limits::NAMED_COUNTERS_MAX;

/// The duty of the receiver of a port's frames about transport checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumPolicy {
    /// Every checksum is checked, unless the frame itself says
    /// [`RxChecksum::Verified`](crate::RxChecksum).
    #[default]
    Verify,
    /// As `Verify`, but a field that holds just the pseudo-header sum is right too: a local kernel
    /// peer leaves it so for an offload that never happens (veth).
    AcceptPartial,
    /// Nothing is checked: the wire is memory of this host.
    Trust,
}

/// The properties of a port; constant while the port is open.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// The address to use as the source of frames.
    pub mac: MacAddr,
    /// Largest IP packet in bytes; a frame may be 14 bytes (18 with a VLAN tag) longer.
    pub mtu: usize,
    /// How to treat transport checksums of received frames.
    pub rx_checksum: ChecksumPolicy,
    /// [`TxFrame::set_checksum_offload`] is honoured.
    pub tx_checksum_offload: bool,
    /// Largest IP packet, in bytes, that the port cuts into TCP segments
    /// ([`TxFrame::set_segment_bytes`]). 0: it cuts none. Its transmit slots hold such a packet, or
    /// change to memory that does ([`TxFrame::take_bulk_lane`]); slots of one reservation hold
    /// equally much ([`TxFrame::capacity_max`]), which may be less than this at times. A port that
    /// honours no checksum offload takes such packets by a bulk lane only. Nothing orders that lane
    /// and the other one.
    pub segment_bytes_max: usize,
    /// Largest batch that `receive` returns or `reserve` grants, in frames.
    pub batch_max: usize,
    /// The wire's name, for messages and metrics: `tap:mill0`.
    pub name: String,
    /// Which of the wire's queues this port drives.
    pub queue: usize,
}

/// Why a batch could not be moved. Back-pressure is not an error: it is an empty or a short slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The other end went away; frames will flow again if it comes back. The port stays usable.
    #[error("the peer is disconnected")]
    Disconnected,
    /// The interface is gone for good; open again.
    #[error("the interface is gone")]
    Gone,
    /// A system call failed in a way that the port cannot mend.
    #[error("{call}: {errno}")]
    Io {
        /// The system call.
        call: &'static str,
        /// Its error.
        errno: Errno,
    },
}

/// A copy of a port's counters: the four totals, and named ones (every drop has a name).
///
/// A plain value without a heap, so that a stack may publish it often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames handed up by `receive`.
    pub rx_frames: u64,
    /// Bytes handed up by `receive`, Ethernet header included.
    pub rx_bytes: u64,
    /// Frames that left by `send`.
    pub tx_frames: u64,
    /// Bytes that left by `send`, Ethernet header included.
    pub tx_bytes: u64,
    named: [(&'static str, u64); NAMED_COUNTERS_MAX],
    named_len: usize,
}

impl Default for PortCounters {
    fn default() -> Self {
        Self {
            rx_frames: 0,
            rx_bytes: 0,
            tx_frames: 0,
            tx_bytes: 0,
            named: [("", 0); NAMED_COUNTERS_MAX],
            named_len: 0,
        }
    }
}

impl PortCounters {
    /// Adds a named counter, such as `tap_tx_dropped_full`; beyond the limit it is left out.
    pub fn push(&mut self, name: &'static str, value: u64) {
        debug_assert!(self.named_len < NAMED_COUNTERS_MAX);
        debug_assert!(
            port_counter(name).is_some(),
            "{name} is not in counter_list.rs"
        );
        let Some(slot) = self.named.get_mut(self.named_len) else {
            return;
        };
        *slot = (name, value);
        self.named_len += 1;
    }

    /// Adds another port's counters. Counters of one name are summed.
    pub fn merge(&mut self, other: &Self) {
        self.rx_frames += other.rx_frames;
        self.rx_bytes += other.rx_bytes;
        self.tx_frames += other.tx_frames;
        self.tx_bytes += other.tx_bytes;
        for &(name, value) in other.named() {
            let mut held = self.named[..self.named_len].iter_mut();
            match held.find(|(held, _)| *held == name) {
                Some((_, sum)) => *sum += value,
                None if self.named_len < NAMED_COUNTERS_MAX => self.push(name, value),
                None => {}
            }
        }
    }

    /// The named counters, in the order in which they were added.
    pub fn named(&self) -> &[(&'static str, u64)] {
        &self.named[..self.named_len]
    }

    /// The value of a named counter; `None` if the port has none of that name.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.named()
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| *v)
    }
}

/// One queue of a packet wire: batches in, batches out, and how to sleep.
///
/// A port belongs to one thread at a time. No call blocks. Frames are Ethernet frames without FCS.
pub trait Port {
    /// The properties of this port.
    fn capabilities(&self) -> &Capabilities;

    /// The next batch, at most `batch_max` frames; empty if nothing is there.
    ///
    /// The frames stay lent until the next `receive` or `release`; a call while a batch is out
    /// releases that batch first.
    ///
    /// # Errors
    /// [`PortError`] if the wire failed; counters and a later call remain valid.
    fn receive(&mut self) -> Result<&[RxFrame], PortError>;

    /// Gives the last batch back to the driver; a no-op without one.
    fn release(&mut self);

    /// Makes room for frames that arrive while the caller does something else for long. They may
    /// move from the driver's ring to memory of the port's own, and come out of `receive` in their
    /// order. A batch that is lent stays lent.
    fn drain(&mut self) {}

    /// Frames that have arrived and that `receive` has not lent yet, where a full ring loses what
    /// comes next; 0 where peers are held back instead, or where nobody knows.
    fn waiting(&mut self) -> usize {
        0
    }

    /// The caller takes frames in which the wire merged several TCP segments
    /// ([`RxFrame::segment_bytes`]), and transport checksums that the sender left to a card
    /// ([`RxChecksum::Verified`](crate::RxChecksum) with a field that says otherwise). Without this
    /// call every frame is what a wire may carry. `true`: the port may lend such frames.
    fn accept_merged(&mut self) -> bool {
        false
    }

    /// Up to `n` transmit slots to be written in place; fewer or none is back-pressure, which
    /// `send(0)` may end.
    ///
    /// Each has length 0 until `set_len`. Slots reserved and not sent return with the next `send`
    /// or `reserve`. The slice is shared and the frames write through `&self`: with `&mut` two
    /// ports' frames could be swapped and outlive their memory.
    ///
    /// A port with a bulk lane grants only slots that can
    /// [change to it](TxFrame::take_bulk_lane).
    fn reserve(&mut self, n: usize) -> &[TxFrame];

    /// The slots of the last `reserve` as they were written, until the next `send` or `reserve`:
    /// for a wrapper that looks at what is about to leave.
    fn reserved(&self) -> &[TxFrame];

    /// The first `n` of the reserved slots leave, in order; the rest return. Flushes to the wire.
    ///
    /// A frame of length 0 is skipped. `send(0)` flushes what an earlier call left behind.
    ///
    /// # Errors
    /// [`PortError`] if the wire failed; the frames are then dropped and counted.
    fn send(&mut self, n: usize) -> Result<(), PortError>;

    /// Enables wake-ups, for the caller wants to sleep: on frames that arrive, with `want_tx` also
    /// on room to send.
    ///
    /// `true` means that work is there already: do not sleep. Always followed by `finish_wait`.
    fn prepare_wait(&mut self, want_tx: bool) -> bool;

    /// The sleep is over: wake-ups off, doorbells drained.
    fn finish_wait(&mut self);

    /// Names the descriptors to sleep on, and for which events.
    fn poll_fds<'a>(&'a self, want_tx: bool, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags));

    /// When the port itself has something to do, on the clock of `CLOCK_MONOTONIC` in ns: a delayed
    /// frame is due, a peer is to be tried again. `None`: only its descriptors wake it.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }

    /// Totals and named counters since open.
    fn counters(&self) -> PortCounters;

    /// The host that knows this port's addresses, routes and next hops; `None` where the caller
    /// asks the link itself.
    fn host(&mut self) -> Option<&mut dyn Host> {
        None
    }

    /// A thread of this process moves the port's frames, and it ran last on the CPU of the calling
    /// thread. A caller that polls and finds nothing yields to that thread, which cannot run
    /// otherwise.
    fn mover_shares_cpu(&self) -> bool {
        false
    }

    /// This very port, if its owner put it around another one at run time and looks for it behind
    /// `dyn Port` ([`capture_port`](crate::capture_port)).
    fn wrapper(&mut self) -> Option<&mut dyn Any> {
        None
    }
}

impl<P: Port + ?Sized> Port for Box<P> {
    crate::forward_port!(self => (**self); capabilities receive release drain waiting
        accept_merged reserve reserved send prepare_wait finish_wait poll_fds deadline_ns
        counters host mover_shares_cpu wrapper);
}
