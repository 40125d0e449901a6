//! Linux's timer granularity, for comparisons: the time at which a timer fires that was armed for
//! an instant.
//!
//! A timer of our stack fires when it is due. Linux's timers fire with a tick of the clock, of
//! which there are 250 a second. Longer timers are coarser (`kernel/time/timer.c`): above a quarter
//! of a second they fire with every eighth tick, above two seconds with every 64th. Under this
//! clock our stack behaves as if it had Linux's timers. `cargo xtask script --compare` uses it to
//! recognise differences that only timers cause.

const MILLISECOND_NS: u64 = 1_000_000;
const TICK_NS: u64 = 4 * MILLISECOND_NS;
/// Waits below this are exact, as with high-resolution timers: pacing, and the delay of compressed
/// SACKs.
const EXACT_NS_MAX: u64 = 2 * MILLISECOND_NS;
/// Ticks that a timer may run in the finest level of the wheel. Each level covers eight times as
/// many, in steps eight times as large.
const LEVEL_TICKS: u64 = 63;

/// The clock's ticks, and the timer that runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticks {
    /// Time of the first tick.
    phase_ns: u64,
    deadline_ns: u64,
    fires_ns: u64,
}

impl Ticks {
    pub(super) fn new(phase_ms: u16) -> Ticks {
        Ticks {
            phase_ns: u64::from(phase_ms) * MILLISECOND_NS,
            deadline_ns: 0,
            fires_ns: 0,
        }
    }

    /// The time at which a timer fires that is due at `deadline_ns`. It counts as armed when this
    /// is first asked.
    pub(super) fn fires_ns(&mut self, deadline_ns: u64, now_ns: u64) -> u64 {
        if deadline_ns != self.deadline_ns {
            self.deadline_ns = deadline_ns;
            self.fires_ns = self.coarse_ns(deadline_ns, now_ns);
        }
        self.fires_ns
    }

    /// The firing time of a timer armed now: past its whole ticks, at the next step of its level.
    fn coarse_ns(&self, deadline_ns: u64, now_ns: u64) -> u64 {
        let wait_ns = deadline_ns.saturating_sub(now_ns);
        if wait_ns < EXACT_NS_MAX {
            return deadline_ns;
        }
        let mut step_ns = TICK_NS;
        while wait_ns >= LEVEL_TICKS * step_ns {
            step_ns *= 8;
        }
        let ticks = now_ns.saturating_sub(self.phase_ns) / TICK_NS + wait_ns.div_ceil(TICK_NS);
        (ticks * TICK_NS / step_ns + 1) * step_ns + self.phase_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_with_a_tick_and_long_ones_with_few() {
        let fires_ms = |deadline_ms: u64| {
            let fires_ns = Ticks::new(1).fires_ns(deadline_ms * MILLISECOND_NS, 0);
            fires_ns / MILLISECOND_NS
        };
        assert_eq!(fires_ms(1), 1);
        assert_eq!(fires_ms(10), 17);
        assert_eq!(fires_ms(248), 253);
        assert_eq!(fires_ms(300), 321);
        assert_eq!(fires_ms(2500), 2561);
    }

    #[test]
    fn timer_that_runs_keeps_its_tick() {
        let mut ticks = Ticks::new(0);
        let deadline_ns = 300 * MILLISECOND_NS;
        let fires_ns = ticks.fires_ns(deadline_ns, 0);
        assert_eq!(ticks.fires_ns(deadline_ns, 299 * MILLISECOND_NS), fires_ns);
    }
}
