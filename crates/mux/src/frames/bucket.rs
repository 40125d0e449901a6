//! The token bucket of `--rate`, with the rule of `check_rate` in `bpf/mux_check.h`.
//!
//! Owns the tokens of one device. Called for each frame that has passed all other checks.

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// A token bucket whose tokens are bytes.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// Rate in bytes per second; 0: no limit.
    rate: u64,
    burst: u64,
    tokens: u64,
    at_ns: u64,
}

impl Bucket {
    /// A full bucket of `burst` bytes.
    pub fn new(rate: u64, burst: u64) -> Self {
        Self {
            rate,
            burst,
            tokens: burst,
            at_ns: 0,
        }
    }

    /// Takes `bytes` tokens; false: there are fewer.
    pub fn take(&mut self, bytes: u64, now_ns: u64) -> bool {
        if self.rate == 0 {
            return true;
        }
        let past_ns = now_ns.saturating_sub(self.at_ns).min(SECOND_NS);
        let earned = past_ns / 1000 * self.rate / (SECOND_NS / 1000);
        if earned > 0 {
            self.tokens = (self.tokens + earned).min(self.burst);
            self.at_ns = now_ns;
        }
        let has = self.tokens >= bytes;
        if has {
            self.tokens -= bytes;
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
}
