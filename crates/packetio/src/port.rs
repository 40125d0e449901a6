//! The central trait of packet I/O, and its plain values.
//!
//! Every backend and wrapper of this crate implements it; the stack, the bridge and the simulator
//! call it.
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

/// How the receiver of a port's frames must treat transport checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumPolicy {
    /// Every checksum is verified, except in frames marked
    /// [`RxChecksum::Verified`](crate::RxChecksum).
    #[default]
    Verify,
    /// Like `Verify`, but a field with only the pseudo-header sum is right too. A local kernel peer
    /// sends that when it leaves the checksum to hardware that does not exist (veth).
    AcceptPartial,
    /// No checksum is verified: the wire is memory of this host.
    Trust,
}

/// The properties of a port, which are constant while it is open.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// Source MAC address for frames.
    pub mac: MacAddr,
    /// Largest IP packet in bytes; a frame may be 14 bytes (18 with a VLAN tag) longer.
    pub mtu: usize,
    /// How to treat transport checksums of received frames.
    pub rx_checksum: ChecksumPolicy,
    /// True if the port performs [`TxFrame::set_checksum_offload`].
    pub tx_checksum_offload: bool,
    /// Largest IP packet that the port cuts into TCP segments ([`TxFrame::set_segment_bytes`]),
    /// bytes; 0: it cuts none. Its transmit slots hold such a packet, or change to memory that does
    /// ([`TxFrame::take_bulk_lane`]). Slots of one reservation have the same capacity
    /// ([`TxFrame::capacity_max`]), which may at times be less. A port without checksum offload
    /// takes such packets only by a bulk lane, which is not ordered with the other lane.
    pub segment_bytes_max: usize,
    /// Largest batch that `receive` returns or `reserve` grants, in frames.
    pub batch_max: usize,
    /// Name of the wire for messages and metrics, such as `tap:mill0`.
    pub name: String,
    /// Index of the wire's queue that this port uses.
    pub queue: usize,
}

/// The reason why a batch could not be moved. Back-pressure is no error: it is an empty or short
/// slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The other end went away. The port stays usable, and frames flow again if the other end comes
    /// back.
    #[error("the peer is disconnected")]
    Disconnected,
    /// The interface is gone for good; the port must be opened again.
    #[error("the interface is gone")]
    Gone,
    /// A system call failed in a way that the port cannot repair.
    #[error("{call}: {errno}")]
    Io {
        /// Name of the system call.
        call: &'static str,
        /// Error of the system call.
        errno: Errno,
    },
}

/// A copy of a port's counters: four totals, and named counters, which include every drop.
///
/// It needs no heap, so a stack can publish it often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames delivered by `receive`.
    pub rx_frames: u64,
    /// Bytes delivered by `receive`, Ethernet headers included.
    pub rx_bytes: u64,
    /// Frames sent by `send`.
    pub tx_frames: u64,
    /// Bytes sent by `send`, Ethernet headers included.
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
    /// Adds a named counter, such as `tap_tx_dropped_full`. Beyond the limit it is left out.
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

    /// Adds another port's counters. Counters with the same name are summed.
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

    /// The value of a named counter; `None`: the port has no such counter.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.named()
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| *v)
    }
}

/// One queue of a packet wire: receiving and sending batches, and sleeping.
///
/// A port belongs to one thread at a time. No call blocks. Frames are Ethernet frames without FCS.
pub trait Port {
    /// The properties of this port.
    fn capabilities(&self) -> &Capabilities;

    /// Receives the next batch of at most `batch_max` frames; empty if there are none.
    ///
    /// The frames are lent until the next `receive` or `release`. A call while a batch is lent
    /// releases that batch first.
    ///
    /// # Errors
    /// [`PortError`] if the wire failed. Counters and later calls remain valid.
    fn receive(&mut self) -> Result<&[RxFrame], PortError>;

    /// Gives the last batch back to the driver; without one it does nothing.
    fn release(&mut self);

    /// Makes room for arriving frames before the caller does something else for long. The port may
    /// move frames from the driver's ring to its own memory; `receive` returns them in order. A
    /// lent batch stays lent.
    fn drain(&mut self) {}

    /// Number of frames that have arrived and were not lent, if a full ring loses further ones. 0
    /// if peers are held back instead, or if the number is unknown.
    fn waiting(&mut self) -> usize {
        0
    }

    /// Accepts frames in which the wire merged several TCP segments ([`RxFrame::segment_bytes`]),
    /// and transport checksums that the sender left to a card (marked
    /// [`RxChecksum::Verified`](crate::RxChecksum), whatever the field holds). Without this call
    /// every frame is one that a wire may carry. True: the port may lend such frames.
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

    /// The slots of the last `reserve` as written so far, until the next `send` or `reserve`. For
    /// wrappers that look at what is about to leave.
    fn reserved(&self) -> &[TxFrame];

    /// Sends the first `n` reserved slots in order and flushes to the wire; the other slots return.
    ///
    /// Slots of length 0 are skipped. `send(0)` flushes what an earlier call left behind.
    ///
    /// # Errors
    /// [`PortError`] if the wire failed; the frames are dropped and counted.
    fn send(&mut self, n: usize) -> Result<(), PortError>;

    /// Enables wake-ups before a sleep: for arriving frames, and with `want_tx` for room to send.
    ///
    /// True: there is work already, so the caller must not sleep. `finish_wait` must always follow.
    fn prepare_wait(&mut self, want_tx: bool) -> bool;

    /// Disables wake-ups after a sleep and resets the bells.
    fn finish_wait(&mut self);

    /// Passes the descriptors to sleep on to `fds`, with the events to wait for.
    fn poll_fds<'a>(&'a self, want_tx: bool, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags));

    /// Time of `CLOCK_MONOTONIC` at which the port itself has something to do, ns: a delayed frame
    /// is due, or a peer is tried again. `None`: only its descriptors wake it.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }

    /// Totals and named counters since the port was opened.
    fn counters(&self) -> PortCounters;

    /// The host that provides this port's addresses, routes and next hops; `None`: the caller uses
    /// ARP and ND itself.
    fn host(&mut self) -> Option<&mut dyn Host> {
        None
    }

    /// True if a thread of this process moves the port's frames and last ran on the CPU of the
    /// calling thread. A caller that polls in vain should then yield, because that thread cannot
    /// run otherwise.
    fn mover_shares_cpu(&self) -> bool {
        false
    }

    /// This port, if it is a wrapper that its owner added at run time and looks for behind `dyn
    /// Port` ([`capture_port`](crate::capture_port)).
    fn wrapper(&mut self) -> Option<&mut dyn Any> {
        None
    }
}

impl<P: Port + ?Sized> Port for Box<P> {
    crate::forward_port!(self => (**self); capabilities receive release drain waiting
        accept_merged reserve reserved send prepare_wait finish_wait poll_fds deadline_ns
        counters host mover_shares_cpu wrapper);
}
