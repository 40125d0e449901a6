//! A bad wire: any port with seeded loss, duplication, reordering, corruption, delay, jitter and a
//! rate, each direction on its own.
//!
//! Owns the frames that are under way (preallocated, at open). Made by [`open`](crate::open::open)
//! from keys like `loss=0.01,delay=5ms`, by the simulator with its own clock, and by tests. The
//! same seed, times and frames give the same trace.
//!
//! ```text
//!             ┌─ Fault ───────────────────────────┐
//! receive() ◄─┤ lent ◄── rx Line ◄── copied       │◄─ inner.receive()
//! send()    ──┤ slots ─► tx Line ──► copied       ├─► inner.reserve(), send()
//!             └───────────────────────────────────┘
//! ```

use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;

use crate::buffer_unsafe::{RxBatch, TxBatch};
use crate::frame_unsafe::{RxFrame, TxFrame};
use crate::limits::{FAULT_SLOTS_DEFAULT, FAULT_SLOTS_MAX, FRAME_HEADER_MAX};
use crate::offload::complete_partial;
use crate::port::{Capabilities, ChecksumPolicy, Port, PortCounters, PortError};
use crate::wait::monotonic_ns;

mod line;
mod ratio;

pub use line::{Line, LineCounters, LineOptions};
pub use ratio::{Random, Ratio};

/// The faults of a port's frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultOptions {
    /// Where the dice start.
    pub seed: u64,
    /// Faults of frames on their way in.
    pub rx: LineOptions,
    /// Faults of frames on their way out.
    pub tx: LineOptions,
    /// Frames under way at most, per direction; beyond it: a drop on the way in, back-pressure on
    /// the way out. `None`: enough for the delay at the rate.
    pub slots: Option<usize>,
}

impl Default for FaultOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            rx: LineOptions::default(),
            tx: LineOptions::default(),
            slots: None,
        }
    }
}

impl FaultOptions {
    /// Frame slots for one direction.
    pub(crate) fn slots_of(&self, line: &LineOptions) -> usize {
        self.slots
            .unwrap_or_else(|| FAULT_SLOTS_DEFAULT.max(line.frames_under_way()))
            .clamp(1, FAULT_SLOTS_MAX)
    }
}

/// Where a [`Fault`] takes the time from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`.
    Monotonic,
    /// The time that the caller set last, in ns; for simulation.
    Manual(u64),
}

impl Clock {
    /// Now, ns.
    #[inline]
    pub fn now_ns(self) -> u64 {
        match self {
            Self::Monotonic => monotonic_ns(),
            Self::Manual(ns) => ns,
        }
    }
}

/// A port behind a bad wire.
#[derive(Debug)]
pub struct Fault<P> {
    inner: P,
    capabilities: Capabilities,
    clock: Clock,
    rx: Line,
    tx: Line,
    lent: RxBatch,
    granted: TxBatch,
    /// Frames are due, and the inner port had no room for them.
    tx_blocked: bool,
    /// Partial checksums are finished before frames are damaged.
    completes: bool,
    /// Frames handed up, and their bytes.
    rx_frames: u64,
    rx_bytes: u64,
}

impl<P: Port> Fault<P> {
    /// Puts `inner` behind a bad wire, on the monotonic clock.
    pub fn new(inner: P, options: &FaultOptions) -> Self {
        Self::with_clock(inner, options, Clock::Monotonic)
    }

    /// Puts `inner` behind a bad wire, on a clock of the caller's choice.
    pub fn with_clock(inner: P, options: &FaultOptions, clock: Clock) -> Self {
        let mut capabilities = inner.capabilities().clone();
        capabilities.tx_checksum_offload = false;
        capabilities.segment_bytes_max = 0;
        // A checksum that nobody finished, or that nobody looks at, would not show what was
        // damaged.
        let damages = options.rx.corrupt != Ratio::ZERO;
        let completes = damages && capabilities.rx_checksum == ChecksumPolicy::AcceptPartial;
        if damages {
            capabilities.rx_checksum = ChecksumPolicy::Verify;
        }
        let bytes = capabilities.mtu + FRAME_HEADER_MAX;
        let batch = capabilities.batch_max;
        let seed = options.seed;
        Self {
            rx: Line::new(&options.rx, seed, options.slots_of(&options.rx), bytes),
            tx: Line::new(&options.tx, !seed, options.slots_of(&options.tx), bytes),
            lent: RxBatch::new(batch),
            granted: TxBatch::new(batch),
            tx_blocked: false,
            completes,
            rx_frames: 0,
            rx_bytes: 0,
            inner,
            capabilities,
            clock,
        }
    }

    /// Sets the time and with it the manual clock.
    pub fn set_now_ns(&mut self, now_ns: u64) {
        self.clock = Clock::Manual(now_ns);
    }

    /// Sends what is due, as far as the inner port has room.
    fn pump_tx(&mut self, now_ns: u64) -> Result<(), PortError> {
        self.tx_blocked = false;
        loop {
            let due = self.tx.due_count(now_ns, self.capabilities.batch_max);
            if due == 0 {
                return Ok(());
            }
            let slots = self.inner.reserve(due);
            if slots.is_empty() {
                self.tx_blocked = true;
                return self.inner.send(0);
            }
            let mut filled = 0;
            for slot in slots {
                let Some(buf) = self.tx.pop_due(now_ns) else {
                    break;
                };
                slot.set_len(slot.write(0, buf.bytes()));
                self.tx.give_slot(buf);
                filled += 1;
            }
            self.inner.send(filled)?;
        }
    }

    /// Takes one batch from the inner port into the line.
    fn pump_rx(&mut self, now_ns: u64) -> Result<(), PortError> {
        for frame in self.inner.receive()? {
            let Some(mut buf) = self.rx.take_slot() else {
                self.rx.count_no_slot();
                continue;
            };
            if !buf.copy_frame(frame) {
                self.rx.count_too_long();
                self.rx.give_slot(buf);
                continue;
            }
            if self.completes {
                complete_partial(buf.bytes_mut());
            }
            self.rx.offer(now_ns, buf);
        }
        self.inner.release();
        Ok(())
    }
}

impl<P: Port> Port for Fault<P> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.release();
        let now_ns = self.clock.now_ns();
        let pumped = self.pump_tx(now_ns).and_then(|()| self.pump_rx(now_ns));
        while self.lent.len() < self.capabilities.batch_max {
            let Some(buf) = self.rx.pop_due(now_ns) else {
                break;
            };
            self.rx_frames += 1;
            self.rx_bytes += buf.len() as u64;
            self.lent.push(buf);
        }
        if self.lent.is_empty() {
            pumped?;
        }
        Ok(self.lent.frames())
    }

    fn release(&mut self) {
        for buf in self.lent.drain() {
            self.rx.give_slot(buf);
        }
    }

    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        let n = n.min(self.capabilities.batch_max);
        while self.granted.len() < n {
            let Some(buf) = self.tx.take_slot() else {
                break;
            };
            self.granted.push(buf);
        }
        self.granted.frames(n)
    }

    fn reserved(&self) -> &[TxFrame] {
        self.granted.written()
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        let now_ns = self.clock.now_ns();
        for (i, buf) in self.granted.drain().enumerate() {
            if i < n && !buf.is_empty() {
                self.tx.offer(now_ns, buf);
            } else {
                self.tx.give_slot(buf);
            }
        }
        self.pump_tx(now_ns)
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        let now_ns = self.clock.now_ns();
        // A failure of the inner port shows again at the caller's next `receive`.
        // One that only waits for its peer is woken by that, so the caller may sleep.
        let pumped = self.pump_tx(now_ns);
        let failed = pumped.is_err_and(|error| error != PortError::Disconnected);
        let ready = self
            .inner
            .prepare_wait(self.tx_blocked || (want_tx && self.tx.is_exhausted()));
        ready || failed || self.rx.is_due(now_ns) || (want_tx && !self.tx.is_exhausted())
    }

    fn poll_fds<'a>(&'a self, _want_tx: bool, fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        self.inner.poll_fds(self.tx_blocked, fds);
    }

    fn deadline_ns(&self) -> Option<u64> {
        let tx = if self.tx_blocked {
            None
        } else {
            self.tx.next_due_ns()
        };
        let own = [self.rx.next_due_ns(), tx, self.inner.deadline_ns()];
        own.into_iter().flatten().min()
    }

    fn counters(&self) -> PortCounters {
        // The inner port counts the frames that left.
        let mut all = self.inner.counters();
        all.rx_frames = self.rx_frames;
        all.rx_bytes = self.rx_bytes;
        self.rx.counters().export(&line::RX_NAMES, &mut all);
        self.tx.counters().export(&line::TX_NAMES, &mut all);
        all
    }

    crate::forward_port!(self => self.inner; drain waiting finish_wait host);
}

#[cfg(test)]
mod tests;
