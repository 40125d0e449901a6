//! The token bucket of `--rate`: the rule of `check_rate` in `bpf/mux_check.h`.
//!
//! Owns the bucket of one device. Called for each frame that has passed all other checks.

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// The bucket is kept as the time up to which the rate is used up: no rounding is lost between two
/// frames, however close they are.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// Rate in bytes per second; 0: no limit.
    rate: u64,
    /// The time in which the rate fills the bucket, in ns.
    full_ns: i64,
    used_ns: i64,
}

impl Bucket {
    /// A full bucket of `burst` bytes.
    pub fn new(rate: u64, burst: u64) -> Self {
        Self {
            rate,
            full_ns: burst
                .saturating_mul(SECOND_NS)
                .checked_div(rate)
                .map_or(0, u64::cast_signed),
            used_ns: i64::MIN,
        }
    }

    /// Takes `bytes` out; false: there are fewer. More than the bucket holds are taken from a full
    /// one, and those that follow wait for it.
    pub fn take(&mut self, bytes: u64, now_ns: u64) -> bool {
        if self.rate == 0 {
            return true;
        }
        let now_ns = now_ns.cast_signed();
        let cost_ns = (bytes * SECOND_NS).div_ceil(self.rate).cast_signed();
        let used_ns = self.used_ns.max(now_ns - self.full_ns);
        let has = used_ns + cost_ns.min(self.full_ns) <= now_ns;
        if has {
            self.used_ns = used_ns + cost_ns;
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_without_a_rate_never_ends() {
        let mut bucket = Bucket::new(0, 0);
        assert!((0..100).all(|_| bucket.take(1 << 40, 0)));
    }

    #[test]
    fn bucket_that_is_empty_fills_by_the_rate_up_to_the_burst() {
        let mut bucket = Bucket::new(1_000_000, 3000);
        assert!(bucket.take(3000, SECOND_NS));
        assert!(!bucket.take(1, SECOND_NS));
        // One byte per microsecond.
        assert!(bucket.take(1000, SECOND_NS + 1_000_000));
        assert!(!bucket.take(1000, SECOND_NS + 1_500_000));
        assert!(bucket.take(3000, 9 * SECOND_NS));
        assert!(!bucket.take(1, 9 * SECOND_NS));
    }

    #[test]
    fn packet_that_costs_more_than_a_full_bucket_is_paid_for_by_the_next() {
        let mut bucket = Bucket::new(1_000_000, 3000);
        assert!(bucket.take(5000, SECOND_NS));
        assert!(!bucket.take(1, SECOND_NS + 2_000_000));
        assert!(bucket.take(1, SECOND_NS + 2_001_000));
        assert!(!bucket.take(5000, SECOND_NS + 4_000_000), "not full yet");
    }
    /// Bytes that pass in a second, if somebody has 3,000 more every `gap_ns`.
    fn achieved(rate: u64, gap_ns: usize) -> u64 {
        let mut bucket = Bucket::new(rate, 128 * 1024);
        while bucket.take(3000, SECOND_NS) {}
        let times = (SECOND_NS..2 * SECOND_NS).step_by(gap_ns);
        times.filter(|now| bucket.take(3000, *now)).count() as u64 * 3000
    }

    #[test]
    fn sender_that_always_has_more_gets_its_rate_at_every_gap() {
        for rate in [999_999, 300_000_000, 1_500_000_000] {
            for gap_ns in [700, 1001, 1500, 1999] {
                let bytes = achieved(rate, gap_ns);
                let share = bytes as f64 / rate as f64;
                assert!((0.99..1.01).contains(&share), "{rate} {gap_ns} {share}");
            }
        }
    }
}
