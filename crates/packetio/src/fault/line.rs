//! One direction of a faulty wire, sans-IO: frames enter at a time and leave when they are due. It
//! knows neither port nor clock.
//!
//! The line owns its slots and its random numbers. [`Fault`](super::Fault) and the
//! [`bridge`](crate::bridge) use it.
//!
//! A frame passes in this order: queue limit and rate (serialisation), loss, duplication,
//! corruption, reordering, delay. Jitter keeps the order, as a queue on the path would. A reordered
//! frame is held until a few later ones have passed it, or for a short time. Each frame draws the
//! same number of random values, so changing one probability does not affect the other faults.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::buffer_unsafe::{FrameBuf, carve};
use crate::frame_unsafe::RxChecksum;
use crate::limits::{
    FAULT_HELD_MAX, FAULT_OVERTAKEN_MAX, FAULT_QUEUE_BYTES_MIN, FAULT_QUEUE_NS_DEFAULT,
};
use crate::port::PortCounters;

use super::ratio::{Random, Ratio, below, mix};

/// First byte that corruption may change: a changed MAC address would be loss, not corruption.
const CORRUPT_FROM: usize = 14;

/// Longest time that a reordered frame is held, ns.
const HOLD_NS_MAX: u64 = 10_000_000;

/// Frame size that is assumed when slots are computed from bytes.
const FRAME_BYTES_TYPICAL: u64 = 512;

/// Faults in one direction; the default is a perfect wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineOptions {
    /// Probability that a frame is lost.
    pub loss: Ratio,
    /// Probability that a frame arrives twice.
    pub duplicate: Ratio,
    /// Probability that up to [`FAULT_OVERTAKEN_MAX`] later frames overtake a frame.
    pub reorder: Ratio,
    /// Probability that one bit behind the Ethernet header is flipped.
    pub corrupt: Ratio,
    /// Delay of every frame, ns.
    pub delay_ns: u64,
    /// Largest additional delay, ns; uniformly distributed from 0.
    pub jitter_ns: u64,
    /// Rate in bits per second, counted over frames without FCS, preamble and gap; 0: no limit.
    pub rate_bits: u64,
    /// Most bytes that may queue for the rate; further frames are dropped. 0:
    /// [`FAULT_QUEUE_NS_DEFAULT`] worth of the rate.
    pub limit_bytes: u64,
}

impl LineOptions {
    /// The queue's limit in bytes.
    fn queue_bytes(&self) -> u64 {
        match self.limit_bytes {
            0 => (scale(self.rate_bits, FAULT_QUEUE_NS_DEFAULT)).max(FAULT_QUEUE_BYTES_MIN),
            bytes => bytes,
        }
    }

    /// Approximate number of frames under way at the full rate.
    pub(super) fn frames_under_way(&self) -> usize {
        if self.rate_bits == 0 {
            return 0;
        }
        let flying = scale(self.rate_bits, self.delay_ns.saturating_add(self.jitter_ns));
        (flying.saturating_add(self.queue_bytes()) / FRAME_BYTES_TYPICAL) as usize
    }
}

/// Bytes that `bits` per second carry in `ns`.
fn scale(bits: u64, ns: u64) -> u64 {
    let bytes = u128::from(bits) * u128::from(ns) / 8_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Counts of faults in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounters {
    /// Frames that entered the line.
    pub offered: u64,
    /// Frames that left the line, duplicates included.
    pub passed: u64,
    /// Frames dropped by `loss`.
    pub lost: u64,
    /// Frames sent twice.
    pub duplicated: u64,
    /// Frames held so that later ones overtake them.
    pub reordered: u64,
    /// Frames corrupted.
    pub corrupted: u64,
    /// Frames dropped because the queue for the rate was full.
    pub queue_full: u64,
    /// Frames dropped or not duplicated because all slots were under way.
    pub no_slot: u64,
    /// Frames dropped because they are longer than a slot.
    pub too_long: u64,
}

/// Names of a port's counters for its receive line, in the order of `export`.
pub(super) const RX_NAMES: [&str; 7] = [
    "fault_rx_lost",
    "fault_rx_duplicated",
    "fault_rx_reordered",
    "fault_rx_corrupted",
    "fault_rx_dropped_queue_full",
    "fault_rx_dropped_no_slot",
    "fault_rx_dropped_too_long",
];

/// Names of a port's counters for its transmit line, in the order of `export`.
pub(super) const TX_NAMES: [&str; 7] = [
    "fault_tx_lost",
    "fault_tx_duplicated",
    "fault_tx_reordered",
    "fault_tx_corrupted",
    "fault_tx_dropped_queue_full",
    "fault_tx_dropped_no_slot",
    "fault_tx_dropped_too_long",
];

impl LineCounters {
    pub(super) fn export(&self, names: &[&'static str; 7], into: &mut PortCounters) {
        let values = [
            self.lost,
            self.duplicated,
            self.reordered,
            self.corrupted,
            self.queue_full,
            self.no_slot,
            self.too_long,
        ];
        for (name, value) in names.iter().zip(values) {
            into.push(name, value);
        }
    }
}

/// A frame under way.
#[derive(Debug)]
struct Flying {
    due_ns: u64,
    order: u64,
    buf: FrameBuf,
}

impl Ord for Flying {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due_ns, self.order).cmp(&(other.due_ns, other.order))
    }
}

impl PartialOrd for Flying {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Flying {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Flying {}

/// A frame held until later ones overtake it.
#[derive(Debug)]
struct Held {
    expires_ns: u64,
    overtakers: u32,
    buf: FrameBuf,
}

/// One direction of a faulty wire.
#[derive(Debug)]
pub struct Line {
    options: LineOptions,
    queue_bytes_max: u64,
    random: Random,
    pool: Vec<FrameBuf>,
    flying: BinaryHeap<Reverse<Flying>>,
    held: VecDeque<Held>,
    /// Time until which the transmitter is busy, ns.
    busy_until_ns: u64,
    /// Earliest time for the next frame, ns, because jitter keeps the order.
    last_due_ns: u64,
    order: u64,
    counters: LineCounters,
}

impl Line {
    /// Makes a line for at most `slots` frames of up to `frame_bytes` bytes under way.
    pub fn new(options: &LineOptions, seed: u64, slots: usize, frame_bytes: usize) -> Self {
        Self {
            options: *options,
            queue_bytes_max: options.queue_bytes(),
            random: Random::new(seed),
            pool: carve(slots, frame_bytes),
            flying: BinaryHeap::with_capacity(slots),
            held: VecDeque::with_capacity(FAULT_HELD_MAX),
            busy_until_ns: 0,
            last_due_ns: 0,
            order: 0,
            counters: LineCounters::default(),
        }
    }

    /// Takes an empty slot, to be filled and offered; `None`: all are under way.
    #[inline]
    pub fn take_slot(&mut self) -> Option<FrameBuf> {
        self.pool.pop()
    }

    /// Takes a slot back.
    #[inline]
    pub fn give_slot(&mut self, buf: FrameBuf) {
        self.pool.push(buf);
    }

    /// True if all slots are under way.
    #[inline]
    pub fn is_exhausted(&self) -> bool {
        self.pool.is_empty()
    }

    /// Counts a frame that found no slot.
    pub fn count_no_slot(&mut self) {
        self.counters.no_slot += 1;
    }

    /// Counts a frame that did not fit a slot.
    pub fn count_too_long(&mut self) {
        self.counters.too_long += 1;
    }

    /// Counts of faults so far.
    pub fn counters(&self) -> LineCounters {
        self.counters
    }

    /// Lets a frame enter at `now_ns`.
    pub fn offer(&mut self, now_ns: u64, mut buf: FrameBuf) {
        self.counters.offered += 1;
        let [loss, twice, damage, overtaken, late] = std::array::from_fn(|_| self.random.throw());
        let Some(departs_ns) = self.serialise(now_ns, buf.len()) else {
            self.counters.queue_full += 1;
            return self.give_slot(buf);
        };
        if self.options.loss.hit(loss) {
            self.counters.lost += 1;
            return self.give_slot(buf);
        }
        let jitter = below(late, self.options.jitter_ns.saturating_add(1));
        let due_ns = departs_ns
            .saturating_add(self.options.delay_ns)
            .saturating_add(jitter)
            .max(self.last_due_ns);
        self.last_due_ns = due_ns;
        let copy = self.duplicate(twice, &buf);
        if self.options.corrupt.hit(damage) {
            self.corrupt(damage, &mut buf);
        }
        if self.options.reorder.hit(overtaken) && self.held.len() < FAULT_HELD_MAX {
            self.counters.reordered += 1;
            self.held.push_back(Held {
                expires_ns: due_ns.saturating_add(HOLD_NS_MAX),
                overtakers: 1 + below(mix(overtaken), FAULT_OVERTAKEN_MAX.into()) as u32,
                buf,
            });
        } else {
            self.fly(due_ns, buf);
            self.overtake(due_ns);
        }
        if let Some(copy) = copy {
            self.fly(due_ns, copy);
        }
    }

    /// Time at which the last bit has left, ns; `None`: the queue is full.
    fn serialise(&mut self, now_ns: u64, bytes: usize) -> Option<u64> {
        let rate = self.options.rate_bits;
        if rate == 0 {
            return Some(now_ns);
        }
        let backlog_ns = self.busy_until_ns.saturating_sub(now_ns);
        if backlog_ns > 0
            && scale(rate, backlog_ns).saturating_add(bytes as u64) > self.queue_bytes_max
        {
            return None;
        }
        let took_ns = (bytes as u128 * 8_000_000_000).div_ceil(u128::from(rate));
        let took_ns = u64::try_from(took_ns).unwrap_or(u64::MAX);
        self.busy_until_ns = self.busy_until_ns.max(now_ns).saturating_add(took_ns);
        Some(self.busy_until_ns)
    }

    fn duplicate(&mut self, thrown: u64, buf: &FrameBuf) -> Option<FrameBuf> {
        if !self.options.duplicate.hit(thrown) {
            return None;
        }
        let Some(mut copy) = self.take_slot() else {
            self.counters.no_slot += 1;
            return None;
        };
        copy.copy_bytes(buf.bytes());
        copy.checksum = buf.checksum;
        self.counters.duplicated += 1;
        Some(copy)
    }

    fn corrupt(&mut self, thrown: u64, buf: &mut FrameBuf) {
        let len = buf.len();
        if len <= CORRUPT_FROM {
            return;
        }
        let bit = below(mix(thrown), ((len - CORRUPT_FROM) * 8) as u64) as usize;
        buf.space()[CORRUPT_FROM + bit / 8] ^= 1 << (bit % 8);
        buf.checksum = RxChecksum::Unknown;
        self.counters.corrupted += 1;
    }

    fn fly(&mut self, due_ns: u64, buf: FrameBuf) {
        self.order += 1;
        self.flying.push(Reverse(Flying {
            due_ns,
            order: self.order,
            buf,
        }));
    }

    /// Counts that a frame due at `due_ns` has passed the held ones. Those passed often enough
    /// follow it.
    fn overtake(&mut self, due_ns: u64) {
        for i in (0..self.held.len()).rev() {
            self.held[i].overtakers -= 1;
            if self.held[i].overtakers == 0
                && let Some(held) = self.held.remove(i)
            {
                self.fly(due_ns, held.buf);
            }
        }
    }

    /// Releases held frames that were not overtaken in time.
    fn expire(&mut self, now_ns: u64) {
        while self.held.front().is_some_and(|h| h.expires_ns <= now_ns) {
            if let Some(held) = self.held.pop_front() {
                self.fly(held.expires_ns, held.buf);
            }
        }
    }

    /// The next frame that is due at `now_ns`; the caller gives its slot back.
    #[inline]
    pub fn pop_due(&mut self, now_ns: u64) -> Option<FrameBuf> {
        if !self.held.is_empty() {
            self.expire(now_ns);
        }
        if self.flying.peek()?.0.due_ns > now_ns {
            return None;
        }
        self.counters.passed += 1;
        self.flying.pop().map(|Reverse(f)| f.buf)
    }

    /// True if a frame is due.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.next_due_ns().is_some_and(|due| due <= now_ns)
    }

    /// Number of slots to reserve for due frames: at least 1 if any is due, at most `max`.
    pub fn due_count(&mut self, now_ns: u64, max: usize) -> usize {
        if !self.is_due(now_ns) {
            return 0;
        }
        (self.flying.len() + self.held.len()).min(max)
    }

    /// Time at which the next frame is due, ns; `None`: none is under way.
    pub fn next_due_ns(&self) -> Option<u64> {
        let flying = self.flying.peek().map(|f| f.0.due_ns);
        let held = self.held.front().map(|h| h.expires_ns);
        [flying, held].into_iter().flatten().min()
    }

    /// Number of frames under way.
    pub fn len(&self) -> usize {
        self.flying.len() + self.held.len()
    }

    /// True if no frame is under way.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
