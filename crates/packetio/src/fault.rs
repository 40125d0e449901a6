//! A faulty wire: any port with seeded loss, duplication, reordering, corruption, delay, jitter and
//! rate limit, separately in each direction.
//!
//! The wrapper owns the frames under way, in memory allocated at open. [`open`](crate::open::open)
//! makes it from keys like `loss=0.01,delay=5ms`; the simulator uses it with its own clock, and
//! tests directly. Equal seeds, times and frames give equal traces.
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

/// The faults of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultOptions {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Faults of received frames.
    pub rx: LineOptions,
    /// Faults of sent frames.
    pub tx: LineOptions,
    /// Most frames under way per direction. At the limit received frames are dropped, and sending
    /// meets back-pressure. `None`: enough for the delay at the rate.
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
    /// Number of frame slots for one direction.
    pub(crate) fn slots_of(&self, line: &LineOptions) -> usize {
        self.slots
            .unwrap_or_else(|| FAULT_SLOTS_DEFAULT.max(line.frames_under_way()))
            .clamp(1, FAULT_SLOTS_MAX)
    }
}

/// The source of a [`Fault`]'s time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`.
    Monotonic,
    /// The time that the caller set last, ns; for simulations.
    Manual(u64),
}

impl Clock {
    /// The present time, ns.
    #[inline]
    pub fn now_ns(self) -> u64 {
        match self {
            Self::Monotonic => monotonic_ns(),
            Self::Manual(ns) => ns,
        }
    }
}

/// A port behind a faulty wire.
#[derive(Debug)]
pub struct Fault<P> {
    inner: P,
    capabilities: Capabilities,
    clock: Clock,
    rx: Line,
    tx: Line,
    lent: RxBatch,
    granted: TxBatch,
    /// True if frames are due but the inner port has no room.
    tx_blocked: bool,
    /// True if partial checksums are completed before frames are corrupted.
    completes: bool,
    /// Number of frames delivered to the caller; `rx_bytes` holds their bytes.
    rx_frames: u64,
    rx_bytes: u64,
}

impl<P: Port> Fault<P> {
    /// Puts `inner` behind a faulty wire, on the monotonic clock.
    pub fn new(inner: P, options: &FaultOptions) -> Self {
        Self::with_clock(inner, options, Clock::Monotonic)
    }

    /// Puts `inner` behind a faulty wire, on the given clock.
    pub fn with_clock(inner: P, options: &FaultOptions, clock: Clock) -> Self {
        let mut capabilities = inner.capabilities().clone();
        capabilities.tx_checksum_offload = false;
        capabilities.segment_bytes_max = 0;
        // Corruption must be detectable: partial checksums would hide it, and so would a policy
        // that does not verify.
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

    /// Sets the time of a manual clock.
    pub fn set_now_ns(&mut self, now_ns: u64) {
        self.clock = Clock::Manual(now_ns);
    }

    /// Sends due frames as far as the inner port has room.
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

    /// Moves one batch from the inner port into the line.
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
        // The caller's next `receive` reports a failure of the inner port again. A disconnected
        // port is also noticed by `receive`, so the caller may sleep.
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
        // The inner port itself counts the frames that it sent.
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
