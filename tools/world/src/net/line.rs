//! One direction of a link: first queue and rate, then faults, then delay.
//!
//! Each frame takes the same number of throws, whatever its fate, so that switching off one fault
//! leaves the others unchanged. Lateness has its own dice. With `--off late` a world is therefore
//! what it was before lateness existed.

use crate::plan::LinePlan;
use crate::queue::Flying;
use crate::random::Random;

use super::packet;

/// Offset of the first byte that may be corrupted. A wrong hardware address would be a loss
/// instead.
const CORRUPT_FROM: usize = 14;

/// See the module's documentation.
pub(super) struct Line {
    plan: LinePlan,
    heal_ns: u64,
    dice: Random,
    /// Dice for the lateness of each frame.
    lateness: Random,
    /// Time in ns at which the last queued frame has left.
    free_ns: u64,
    /// Arrival in ns of the last frame that was not held back.
    last_due_ns: u64,
    is_bad: bool,
}

impl Line {
    pub fn new(plan: LinePlan, heal_ns: u64, [dice, lateness]: [Random; 2]) -> Self {
        Self {
            plan,
            heal_ns,
            dice,
            lateness,
            free_ns: 0,
            last_due_ns: 0,
            is_bad: false,
        }
    }

    /// Calls `deliver` for each arrival of the frame, with its time in ns. There may be none, or
    /// two.
    pub fn carry(&mut self, now_ns: u64, mut frame: Flying, mut deliver: impl FnMut(u64, Flying)) {
        let fate = Fate::throw(&mut self.dice, &self.plan);
        let late_ns = self.lateness.below(self.plan.late_ns_max + 1);
        let Some(left_ns) = self.queue(now_ns, &mut frame) else {
            return;
        };
        let is_ill = now_ns < self.heal_ns;
        let dark = |(from, to): &(u64, u64)| (*from..*to).contains(&now_ns);
        if is_ill && (self.is_lost(&fate) || self.plan.blackholes.iter().any(dark)) {
            return;
        }
        let base_ns = left_ns + self.plan.delay_ns + late_ns;
        let due_ns = if is_ill && fate.reordered {
            base_ns + self.plan.reorder_ns
        } else {
            self.last_due_ns = self.last_due_ns.max(base_ns + fate.jitter_ns);
            self.last_due_ns
        };
        if is_ill && fate.duplicated {
            let copy = Flying {
                bytes: frame.bytes.clone(),
                forged: frame.forged,
                damaged: frame.damaged,
            };
            deliver(due_ns + fate.jitter_ns, copy);
        }
        if is_ill && fate.corrupted && !frame.damaged && !packet::is_arp(&frame.bytes) {
            frame.damaged = true;
            packet::flip_bit(&mut frame.bytes, CORRUPT_FROM, fate.bit);
        }
        deliver(due_ns, frame);
    }

    /// The time in ns at which the frame leaves the queue; `None`: it found no room.
    fn queue(&mut self, now_ns: u64, frame: &mut Flying) -> Option<u64> {
        let rate = self.plan.rate_bits;
        if rate == 0 {
            return Some(now_ns);
        }
        let waits_ns = self.free_ns.saturating_sub(now_ns);
        let waiting_bytes = (u128::from(waits_ns) * u128::from(rate) / 8_000_000_000) as u64;
        if waiting_bytes > self.plan.queue_bytes {
            return None;
        }
        if self.plan.mark_bytes > 0 && waiting_bytes > self.plan.mark_bytes {
            packet::mark_congestion(&mut frame.bytes);
        }
        let takes_ns = frame.bytes.len() as u64 * 8_000_000_000 / rate;
        self.free_ns = self.free_ns.max(now_ns) + takes_ns;
        Some(self.free_ns)
    }

    fn is_lost(&mut self, fate: &Fate) -> bool {
        let mut lost = fate.lost;
        if let Some(burst) = self.plan.burst {
            let turns = if self.is_bad {
                burst.end_ppm
            } else {
                burst.begin_ppm
            };
            self.is_bad ^= fate.burst_turns < turns;
            lost |= self.is_bad && fate.burst_loses < burst.loss_ppm;
        }
        lost
    }
}

/// Results of the throws for a frame.
struct Fate {
    lost: bool,
    burst_turns: u32,
    burst_loses: u32,
    duplicated: bool,
    corrupted: bool,
    bit: u64,
    reordered: bool,
    jitter_ns: u64,
}

impl Fate {
    fn throw(dice: &mut Random, plan: &LinePlan) -> Self {
        Self {
            lost: dice.chance_ppm(plan.loss_ppm),
            burst_turns: dice.below(1_000_000) as u32,
            burst_loses: dice.below(1_000_000) as u32,
            duplicated: dice.chance_ppm(plan.duplicate_ppm),
            corrupted: dice.chance_ppm(plan.corrupt_ppm),
            bit: dice.word(),
            reordered: dice.chance_ppm(plan.reorder_ppm),
            jitter_ns: dice.below(plan.jitter_ns + 1),
        }
    }
}
