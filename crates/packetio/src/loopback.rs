//! A wire within one process: two ends, preallocated frame slots, no system call while both ends
//! are awake.
//!
//! Owns the slots; a slot is passed to the other end through one queue and comes back through
//! another. Used by tests, by random worlds, and between two runtimes of one process. Both ends may
//! be on one thread, in lock-step: each end receives with its next call what the other one sent. Or
//! each end has a thread of its own.
//!
//! ```text
//!  free ─ reserve() ─► granted ─ send() ─► [queue] ─ receive() ─► lent
//!   ▲                                                              │
//!   └──────────────────── [queue of empties] ◄──── release() ──────┘
//! ```

use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};

use ring::doorbell::StackBell;
use ring::spsc::{Consumer, Producer, queue};
use rustix::event::PollFlags;

use crate::buffer_unsafe::{FrameBuf, RxBatch, TxBatch, carve};
use crate::frame_unsafe::{RxFrame, TxFrame};
use crate::limits::{
    FRAME_HEADER_MAX, LOOPBACK_BATCH_MAX, LOOPBACK_NAMES_MAX, LOOPBACK_SLOTS_DEFAULT,
};
use crate::mac::local_mac;
use crate::open_error::OpenError;
use crate::port::{Capabilities, ChecksumPolicy, MacAddr, Port, PortCounters, PortError};

/// `loopback[:NAME][,mtu=N][,batch=N][,mac=..]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopbackOptions {
    /// Two ports opened by the same name in one process are the two ends. Without a name a port
    /// hears itself.
    pub name: String,
    /// This end's address; made up if absent. In a [`pair`] it is the first end's.
    pub mac: Option<MacAddr>,
    /// Bytes of IP.
    pub mtu: usize,
    /// Frame slots per direction.
    pub slots: usize,
    /// Frames that one batch holds at most, in either direction.
    pub batch: usize,
}

impl Default for LoopbackOptions {
    fn default() -> Self {
        Self {
            name: String::new(),
            mac: None,
            mtu: 1500,
            slots: LOOPBACK_SLOTS_DEFAULT,
            batch: LOOPBACK_BATCH_MAX,
        }
    }
}

/// One end.
pub struct Loopback {
    capabilities: Capabilities,
    /// Frames that this end sends.
    outbox: Outbox,
    /// Frames that this end receives.
    inbox: Inbox,
    /// Slots of ours that are empty and here.
    free: Vec<FrameBuf>,
    lent: RxBatch,
    granted: TxBatch,
    /// The other end is gone, and `receive` has said so.
    told: bool,
    totals: PortCounters,
}

/// The sender's side of one direction.
struct Outbox {
    frames: Producer<FrameBuf>,
    empties: Consumer<FrameBuf>,
    /// Rung when a frame was sent. Behind `frames`, so that it rings last when an end is dropped.
    arrival: Farewell,
    /// Heard when a slot came back.
    room: StackBell,
    /// `room` is armed.
    wants_room: bool,
}

/// A bell that rings a last time when its ringer goes, so that a sleeping peer finds out.
struct Farewell(StackBell);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.ring();
    }
}

/// The receiver's side of one direction.
struct Inbox {
    frames: Consumer<FrameBuf>,
    empties: Producer<FrameBuf>,
    /// Heard when a frame was sent.
    arrival: StackBell,
    /// Rung when a slot went back.
    room: StackBell,
}

fn direction(slots: usize) -> Result<(Outbox, Inbox), OpenError> {
    let bell = || StackBell::new().map_err(|e| OpenError::io("loopback", "eventfd", e));
    let (arrival, room) = (bell()?, bell()?);
    let (to, from) = queue(slots.next_power_of_two());
    let (give_back, come_back) = queue(slots.next_power_of_two());
    let outbox = Outbox {
        frames: to,
        empties: come_back,
        arrival: Farewell(arrival.clone()),
        room: room.clone(),
        wants_room: false,
    };
    let inbox = Inbox {
        frames: from,
        empties: give_back,
        arrival,
        room,
    };
    Ok((outbox, inbox))
}

/// Two ends of one wire.
///
/// # Errors
/// When the process is out of descriptors.
pub fn pair(options: &LoopbackOptions) -> Result<(Loopback, Loopback), OpenError> {
    let (a_out, b_in) = direction(options.slots)?;
    let (b_out, a_in) = direction(options.slots)?;
    let second = LoopbackOptions {
        mac: None,
        ..options.clone()
    };
    Ok((
        Loopback::new(options, "a", a_out, a_in),
        Loopback::new(&second, "b", b_out, b_in),
    ))
}

/// A port that hears what it sends.
///
/// # Errors
/// When the process is out of descriptors.
pub fn echo(options: &LoopbackOptions) -> Result<Loopback, OpenError> {
    let (outbox, inbox) = direction(options.slots)?;
    Ok(Loopback::new(options, "echo", outbox, inbox))
}

/// Ends that wait for their other end to be opened: (name, queue, end).
static WAITING: Mutex<Vec<(String, usize, Loopback)>> = Mutex::new(Vec::new());

/// Opens an end by name: the first call makes the wire, the second gets its other end. Without a
/// name: [`echo`].
///
/// # Errors
/// Too many names wait, or the process is out of descriptors.
pub fn open(options: &LoopbackOptions, queue: usize) -> Result<Loopback, OpenError> {
    let mut end = if options.name.is_empty() {
        echo(options)?
    } else {
        open_named(options, queue)?
    };
    end.capabilities.queue = queue;
    if let Some(mac) = options.mac {
        end.capabilities.mac = mac;
    }
    Ok(end)
}

fn open_named(options: &LoopbackOptions, queue: usize) -> Result<Loopback, OpenError> {
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    let here = waiting
        .iter()
        .position(|(name, q, _)| *name == options.name && *q == queue);
    if let Some(here) = here {
        return Ok(waiting.swap_remove(here).2);
    }
    if waiting.len() >= LOOPBACK_NAMES_MAX {
        let wire = format!("loopback:{}", options.name);
        return Err(OpenError::refused(
            wire,
            "too many loopbacks wait for their other end",
        ));
    }
    let (a, b) = pair(options)?;
    waiting.push((options.name.clone(), queue, b));
    Ok(a)
}

impl Loopback {
    fn new(options: &LoopbackOptions, end: &str, outbox: Outbox, inbox: Inbox) -> Self {
        let name = match options.name.as_str() {
            "" => format!("loopback({end})"),
            name => format!("loopback:{name}({end})"),
        };
        let capabilities = Capabilities {
            mac: options.mac.unwrap_or_else(|| local_mac(&name)),
            mtu: options.mtu,
            rx_checksum: ChecksumPolicy::Verify,
            tx_checksum_offload: false,
            segment_bytes_max: 0,
            batch_max: options.batch,
            name,
            queue: 0,
        };
        Self {
            capabilities,
            outbox,
            inbox,
            free: carve(options.slots, options.mtu + FRAME_HEADER_MAX),
            lent: RxBatch::new(options.batch),
            granted: TxBatch::new(options.batch),
            told: false,
            totals: PortCounters::default(),
        }
    }

    /// Sets how this end is to treat checksums; `Trust` saves the sums where both ends are trusted.
    #[must_use]
    pub fn with_checksum_policy(mut self, policy: ChecksumPolicy) -> Self {
        self.capabilities.rx_checksum = policy;
        self
    }

    /// The other end has sent something that nobody has received.
    pub(crate) fn has_frames(&mut self) -> bool {
        !self.inbox.frames.is_empty()
    }

    /// The other end is gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.inbox.frames.is_abandoned()
    }

    /// As `receive`: `max` frames at most.
    pub(crate) fn receive_some(&mut self, max: usize) -> Result<&[RxFrame], PortError> {
        let max = max.min(self.capabilities.batch_max);
        self.release();
        let (lent, frames) = (&mut self.lent, &mut self.inbox.frames);
        let (mut n, mut bytes) = (0, 0);
        lent.extend_with(|end| {
            n = frames.pop_batch(max, |buf| {
                bytes += buf.len() as u64;
                end.push(buf);
            });
        });
        self.totals.rx_bytes += bytes;
        self.totals.rx_frames += n as u64;
        if n == 0 && self.inbox.frames.is_abandoned() && self.inbox.frames.is_empty() {
            self.told = true;
            return Err(PortError::Disconnected);
        }
        Ok(self.lent.frames())
    }

    /// Slots that came back are free again.
    fn collect(&mut self) {
        let free = &mut self.free;
        self.outbox
            .empties
            .pop_batch(usize::MAX, |buf| free.push(buf));
    }
}

impl Port for Loopback {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.receive_some(self.capabilities.batch_max)
    }

    fn release(&mut self) {
        if self.lent.is_empty() {
            return;
        }
        let mut bufs = self.lent.drain();
        self.inbox.empties.push_batch(&mut bufs);
        debug_assert!(bufs.next().is_none(), "as many places as slots");
        drop(bufs);
        self.inbox.room.ring();
    }

    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        let n = n.min(self.capabilities.batch_max);
        if self.granted.len() + self.free.len() < n {
            self.collect();
        }
        let missing = n.saturating_sub(self.granted.len());
        let from = self.free.len().saturating_sub(missing);
        self.granted.extend(self.free.drain(from..));
        self.granted.frames(n)
    }

    fn reserved(&self) -> &[TxFrame] {
        self.granted.written()
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        let (free, totals) = (&mut self.free, &mut self.totals);
        let mut written = self.granted.drain_first(n).filter_map(|buf| {
            if buf.is_empty() {
                free.push(buf);
                return None;
            }
            totals.tx_bytes += buf.len() as u64;
            Some(buf)
        });
        let sent = self.outbox.frames.push_batch(&mut written) as u64;
        debug_assert!(written.next().is_none(), "as many places as slots");
        drop(written);
        if sent > 0 {
            self.totals.tx_frames += sent;
            self.outbox.arrival.0.ring();
        }
        Ok(())
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        self.inbox.arrival.prepare_sleep();
        if want_tx {
            self.outbox.room.prepare_sleep();
            self.outbox.wants_room = true;
            self.collect();
        }
        let has_room = !self.free.is_empty() || !self.granted.is_empty();
        // A peer that left before the sleep was announced has rung in vain.
        let has_news = !self.told && self.inbox.frames.is_abandoned();
        has_news || !self.inbox.frames.is_empty() || (want_tx && has_room)
    }

    fn finish_wait(&mut self) {
        self.inbox.arrival.cancel_sleep();
        if std::mem::take(&mut self.outbox.wants_room) {
            self.outbox.room.cancel_sleep();
        }
    }

    fn poll_fds<'a>(&'a self, want_tx: bool, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        fds(self.inbox.arrival.fd(), PollFlags::IN);
        if want_tx {
            fds(self.outbox.room.fd(), PollFlags::IN);
        }
    }

    fn counters(&self) -> PortCounters {
        self.totals
    }
}

#[cfg(test)]
mod tests;
