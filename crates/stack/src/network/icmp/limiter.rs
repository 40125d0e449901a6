//! The token bucket of `icmp`, with a blurred edge.
//!
//! An outsider who drains and watches an exact bucket learns whether we sent something to another
//! host. Each refill therefore withholds a few tokens; their number depends on a keyed hash.

use wire::siphash::siphash13_words;

const SECOND_NS: u64 = 1_000_000_000;
/// Upper bound, exclusive, of the tokens that a refill withholds.
const BLUR: u64 = 3;

/// A bucket that lets `per_second` packets pass on average and `burst` at once.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    per_second: u64,
    burst: u64,
    tokens: u64,
    filled_ns: u64,
    seed: u64,
    refills: u64,
}

impl Bucket {
    pub(super) fn new(per_second: u32, burst: u32, seed: u64) -> Bucket {
        Bucket {
            per_second: u64::from(per_second.max(1)),
            burst: u64::from(burst),
            tokens: u64::from(burst),
            filled_ns: 0,
            seed,
            refills: 0,
        }
    }

    /// True if one more packet may pass; takes a token for it.
    pub(super) fn take(&mut self, now_ns: u64) -> bool {
        let new = self.tokens_since(now_ns);
        if new > 0 {
            self.refill(new);
        }
        if self.tokens == 0 {
            return false;
        }
        self.tokens -= 1;
        true
    }

    /// Tokens due since the last refill. Time too short for a token is kept for the next refill.
    fn tokens_since(&mut self, now_ns: u64) -> u64 {
        let elapsed_ns = now_ns.saturating_sub(self.filled_ns);
        if elapsed_ns >= SECOND_NS {
            self.filled_ns = now_ns;
            return self.per_second;
        }
        let new = elapsed_ns * self.per_second / SECOND_NS;
        self.filled_ns += new * SECOND_NS / self.per_second;
        new
    }

    fn refill(&mut self, new: u64) {
        self.refills = self.refills.wrapping_add(1);
        let full = (self.tokens + new).min(self.burst);
        let withheld = if full < self.burst {
            0
        } else {
            siphash13_words([self.seed, self.refills], &[]) % BLUR
        };
        self.tokens = full - withheld.min(full);
    }
}
