//! The rate limit of a rule: a token bucket in the stack's time, used by `judge`.
//!
//! The bucket stores credit in units of 1/10⁹ packet instead of tokens. Whole numbers then lose
//! nothing at any rate.

const SECOND_NS: u64 = 1_000_000_000;

/// A bucket that lets `per_second` packets pass on average and `burst` at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenBucket {
    /// Credit gained per ns, which is the number of packets per second. A packet costs
    /// [`SECOND_NS`].
    per_second: u64,
    credit_max: u64,
    credit: u64,
    filled_ns: u64,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(per_second: u32, burst: u32, now_ns: u64) -> Self {
        let credit_max = u64::from(burst) * SECOND_NS;
        Self {
            per_second: u64::from(per_second),
            credit_max,
            credit: credit_max,
            filled_ns: now_ns,
        }
    }

    /// True if one more packet may pass; its cost is then deducted.
    pub fn take(&mut self, now_ns: u64) -> bool {
        let elapsed_ns = now_ns.saturating_sub(self.filled_ns);
        self.filled_ns = now_ns.max(self.filled_ns);
        let earned = elapsed_ns.saturating_mul(self.per_second);
        self.credit = self.credit.saturating_add(earned).min(self.credit_max);
        match self.credit.checked_sub(SECOND_NS) {
            Some(rest) => {
                self.credit = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_bucket_gives_its_burst_and_then_the_rate() {
        let mut bucket = TokenBucket::new(3, 2, 5);
        let mut passed_at = |ns| bucket.take(5 + ns);
        assert_eq!([0, 0, 0].map(&mut passed_at), [true, true, false]);
        // Each packet takes a third of a second, and no ns is lost.
        assert_eq!(
            [333_333_333, 333_333_334].map(&mut passed_at),
            [false, true]
        );
        let more = [666_666_666, 666_666_667, SECOND_NS - 1, SECOND_NS].map(&mut passed_at);
        assert_eq!(more, [false, true, false, true]);
    }

    #[test]
    fn time_of_rest_fills_no_more_than_the_burst() {
        let mut bucket = TokenBucket::new(u32::MAX, u32::MAX, 0);
        assert!(bucket.take(u64::MAX));
        let mut bucket = TokenBucket::new(10, 3, 0);
        let passed = (0..10).filter(|_| bucket.take(3_600 * SECOND_NS)).count();
        assert_eq!(passed, 3);
        assert!(!bucket.take(0), "time that runs backwards fills nothing");
    }
}
