//! Spinning: how long a stack without work looks for work before it sleeps.
//!
//! Falling asleep and being woken costs two context switches here and two at the other side, far
//! more than a round trip between cores that are awake. So a stack without work looks for more for
//! a while. If that is in vain, it looks ever more rarely: nothing arrives, or the sender needs
//! this core. Idle stacks, and stacks that share a core, thus sleep at once. Both cranks call the
//! module once per turn, and so do the threads of `mill mux` that move frames.

/// Most idle spells in a row without looking, after looking in vain. The cost of one look is spread
/// over as many sleeps.
const SKIPPED_MAX: u32 = 256;

/// The spinning of one thread.
///
/// ```
/// use packetio::spin::Spin;
///
/// let mut spin = Spin::new(50_000);
/// spin.worked(1_000_000);
/// // Something may come soon after there was work; later it is time to sleep.
/// assert!(spin.looks_on(1_010_000));
/// assert!(!spin.looks_on(1_060_000));
/// ```
#[derive(Debug)]
pub struct Spin {
    /// Longest time to look before a sleep, ns; 0: never look.
    ns_max: u64,
    /// Time of the last work, ns.
    busy_ns: u64,
    /// True while an idle spell lasts; `looks` below tells whether it is spent looking.
    is_idle: bool,
    is_looking: bool,
    /// Number of spells still to pass without looking.
    skip: u32,
    /// Number of spells without looking after the last look in vain.
    skipped: u32,
    /// Time since when the thread has only looked, ns; `None` while the application works.
    since_ns: Option<u64>,
    /// Time spent looking so far, ns.
    looked_ns: u64,
}

impl Spin {
    /// Makes a spinner that looks for at most `ns_max` ns; 0: never.
    pub fn new(ns_max: u64) -> Self {
        Self {
            ns_max,
            busy_ns: 0,
            is_idle: false,
            is_looking: false,
            skip: 0,
            skipped: 0,
            since_ns: None,
            looked_ns: 0,
        }
    }

    /// Time spent looking so far, ns.
    pub fn looked_ns(&self) -> u64 {
        self.looked_ns
    }

    /// Notes that the application runs its own code: this time is not spent looking.
    #[inline]
    pub fn left(&mut self) {
        self.since_ns = None;
    }

    /// Notes a turn with work.
    #[inline]
    pub fn worked(&mut self, now_ns: u64) {
        self.busy_ns = now_ns;
        if !self.is_idle {
            return;
        }
        self.is_idle = false;
        if self.is_looking {
            (self.is_looking, self.skipped) = (false, 0);
            self.looked_until(now_ns);
        } else {
            self.skip = self.skip.saturating_sub(1);
        }
    }

    /// Notes a turn without work. True: turn again at once; false: sleep.
    #[inline]
    pub fn looks_on(&mut self, now_ns: u64) -> bool {
        self.is_idle = true;
        if self.skip > 0 || self.ns_max == 0 {
            return false;
        }
        self.looked_until(now_ns);
        if now_ns.saturating_sub(self.busy_ns) < self.ns_max {
            self.is_looking = true;
            self.since_ns = Some(now_ns);
            return true;
        }
        if self.is_looking {
            self.is_looking = false;
            self.skipped = (self.skipped * 2).clamp(1, SKIPPED_MAX);
            self.skip = self.skipped;
        }
        false
    }

    #[inline]
    fn looked_until(&mut self, now_ns: u64) {
        if let Some(since_ns) = self.since_ns.take() {
            self.looked_ns += now_ns.saturating_sub(since_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 1_000;

    /// Plays an idle spell of `pause_ns`; returns the time spent looking.
    fn spell(spin: &mut Spin, now_ns: &mut u64, pause_ns: u64) -> u64 {
        spin.worked(*now_ns);
        let from_ns = *now_ns;
        let mut looked_ns = 0;
        while *now_ns < from_ns + pause_ns {
            if !spin.looks_on(*now_ns) {
                *now_ns = from_ns + pause_ns;
                break;
            }
            *now_ns += 10;
            looked_ns += 10;
        }
        looked_ns
    }

    #[test]
    fn looking_finds_what_comes_soon_and_never_sleeps() {
        let (mut spin, mut now_ns) = (Spin::new(MAX), 1 << 40);
        for _ in 0..1_000 {
            assert_eq!(spell(&mut spin, &mut now_ns, MAX / 2), MAX / 2);
        }
        spin.worked(now_ns);
        assert_eq!(spin.looked_ns(), 1_000 * MAX / 2);
    }

    #[test]
    fn looking_in_vain_grows_rare() {
        let (mut spin, mut now_ns) = (Spin::new(MAX), 1 << 40);
        let looked_ns: u64 = (0..10_000)
            .map(|_| spell(&mut spin, &mut now_ns, 100 * MAX))
            .sum();
        assert!(looked_ns < 60 * MAX, "{looked_ns}");
    }

    #[test]
    fn looking_begins_again_when_work_comes_faster() {
        let (mut spin, mut now_ns) = (Spin::new(MAX), 1 << 40);
        for _ in 0..10_000 {
            spell(&mut spin, &mut now_ns, 100 * MAX);
        }
        for _ in 0..=SKIPPED_MAX {
            spell(&mut spin, &mut now_ns, MAX / 2);
        }
        assert_eq!(spell(&mut spin, &mut now_ns, MAX / 2), MAX / 2);
    }

    #[test]
    fn what_the_application_does_between_two_looks_is_not_looking() {
        let mut spin = Spin::new(MAX);
        spin.worked(0);
        assert!(spin.looks_on(10));
        assert!(spin.looks_on(20));
        // Work that was ready before is handed to the application, which then returns.
        spin.left();
        assert!(spin.looks_on(500));
        spin.left();
        spin.worked(900);
        assert_eq!(spin.looked_ns(), 10);
    }

    #[test]
    fn zero_looks_never() {
        let (mut spin, mut now_ns) = (Spin::new(0), 1 << 40);
        assert_eq!(spell(&mut spin, &mut now_ns, 10), 0);
    }
}
