//! RFC 5961 section 10: the stack-wide limit on challenge ACKs. Placeholder: written by its owner.

use crate::config::Config;

/// Limits challenge ACKs per stack.
#[derive(Clone, Debug, Default)]
pub struct ChallengeLimiter {
    second: u64,
    sent: u32,
}

impl ChallengeLimiter {
    /// A limiter whose quota is randomised from `seed`.
    #[must_use]
    pub fn new(_seed: u64) -> Self {
        Self::default()
    }

    /// Whether one more challenge ACK may leave now; counts it if so.
    pub fn allow(&mut self, now_ns: u64, config: &Config) -> bool {
        let second = now_ns / crate::SECOND_NS;
        if second != self.second {
            self.second = second;
            self.sent = 0;
        }
        self.sent += 1;
        self.sent <= config.challenge_acks_per_second_max
    }
}
