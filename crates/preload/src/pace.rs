//! Whether the calling thread is soon back in its wait when it has news, judged by its last ones.
//!
//! While it is awake nobody sleeps on the wire, which saves a wake-up of another thread. If it
//! stays away, the others' frames wait. So a thread that stays away for long in one of three cases
//! or more is not waited for. A thread that is only preempted from time to time is.

use std::cell::Cell;

use crate::limits::{ABSENCE_NS_MAX, DEPUTY_TICK_NS};

/// Points of a long absence; a short one takes one point back.
const LONG: u32 = 2;
/// Most points, and those from which on a thread is not waited for.
const POINTS_MAX: u32 = 8;
const POINTS_SLOW: u32 = 4;

thread_local! {
    /// Time of the thread's last news that it has not come back from, ns; 0: none.
    static TOLD_NS: Cell<u64> = const { Cell::new(0) };
    static POINTS: Cell<u32> = const { Cell::new(0) };
    /// The longest short absence, ns.
    static SHORT_NS_MAX: Cell<u64> = const { Cell::new(ABSENCE_NS_MAX) };
}

/// Notes the number of sockets that a wait of this thread reported.
pub fn told_of(sockets: usize) {
    match sockets {
        0 => {}
        1 => SHORT_NS_MAX.set(ABSENCE_NS_MAX),
        _ => SHORT_NS_MAX.set(DEPUTY_TICK_NS),
    }
}

/// Notes that a wait of this thread has ended with news.
pub fn told(now_ns: u64) {
    TOLD_NS.set(now_ns);
}

/// Notes that this thread is back in its wait.
pub fn is_back(now_ns: u64) {
    let told_ns = TOLD_NS.replace(0);
    if told_ns == 0 {
        return;
    }
    let points = POINTS.get();
    POINTS.set(match now_ns.saturating_sub(told_ns) > SHORT_NS_MAX.get() {
        true => (points + LONG).min(POINTS_MAX),
        false => points.saturating_sub(1),
    });
}

/// True if this thread is soon back when it has news.
pub fn is_quick() -> bool {
    POINTS.get() < POINTS_SLOW
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_NS: u64 = ABSENCE_NS_MAX;

    fn stays_away(ns: u64) {
        told(1_000);
        is_back(1_000 + ns);
    }

    #[test]
    fn thread_that_stays_away_each_time_is_not_waited_for() {
        stays_away(MAX_NS + 1);
        assert!(is_quick(), "once is no habit");
        stays_away(MAX_NS + 1);
        assert!(!is_quick());
        (0..100).for_each(|_| stays_away(MAX_NS + 1));
        (0..4).for_each(|_| stays_away(MAX_NS));
        assert!(!is_quick());
        stays_away(MAX_NS);
        assert!(is_quick());
    }

    #[test]
    fn thread_that_is_preempted_at_times_is_waited_for() {
        for _ in 0..100 {
            stays_away(10 * MAX_NS);
            assert!(is_quick());
            (0..3).for_each(|_| stays_away(MAX_NS));
        }
    }
}
