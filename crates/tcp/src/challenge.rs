//! Limits on the ACKs that answer invalid segments (RFC 5961 sections 5 and 10).
//!
//! Two limits apply in turn. [`AckGate`], one per connection, stops ACK loops; in practice it is
//! the limit that takes effect. [`ChallengeLimiter`], one per stack and lent to every call through
//! `Cx`, bounds the ACKs of all connections together.
//!
//! A shared limit leaks information. An attacker may use up a known quota on a connection of his
//! own. Whether the last ACK is missing then tells him if a guess about another connection was
//! right (CVE-2016-5696). So neither the quota nor the length of the period is known outside: a
//! keyed hash draws both anew for each period, between one half and one and a half of their mean.

use wire::siphash::siphash24_words;

use crate::SECOND_NS;
use crate::config::Config;

#[cfg(test)]
mod tests;

/// Limits the challenge ACKs of one stack to `Config::challenge_acks_per_second_max` on average;
/// `u32::MAX` is no limit.
#[derive(Clone, Debug, Default)]
pub struct ChallengeLimiter {
    key: [u64; 2],
    period: u64,
    period_ends_ns: u64,
    left: u64,
}

impl ChallengeLimiter {
    /// A limiter whose quota is randomised from `seed`. The seed must stay secret.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            key: [seed, seed.rotate_left(32) ^ 0x6368_616c_6c65_6e67],
            ..Self::default()
        }
    }

    /// True if one more challenge ACK may leave now. The ACK is counted.
    pub fn allow(&mut self, now_ns: u64, config: &Config) -> bool {
        if config.challenge_acks_per_second_max == u32::MAX {
            return true;
        }
        if now_ns >= self.period_ends_ns {
            self.begin_period(now_ns, u64::from(config.challenge_acks_per_second_max));
        }
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        true
    }

    #[cold]
    fn begin_period(&mut self, now_ns: u64, per_second: u64) {
        self.period = self.period.wrapping_add(1);
        let random = siphash24_words(self.key, &[self.period]);
        let length_ns = SECOND_NS / 2 + (random >> 32) % SECOND_NS;
        let mean = per_second * length_ns / SECOND_NS;
        self.left = mean / 2 + (random & 0xffff_ffff) % (mean + 1);
        self.period_ends_ns = now_ns + length_ns;
    }
}

/// Time at which a connection last answered an invalid segment, which lets one answer pass per
/// interval. Four bytes, so that it fits into compact entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckGate {
    /// Time of the last answer in milliseconds, never 0; 0 means "never". After 49 days the clock
    /// wraps, and one answer may be withheld.
    last_ms: u32,
}

impl AckGate {
    /// True if `interval_ns` has passed since the last answer; the interval then starts again.
    pub fn allow(&mut self, now_ns: u64, interval_ns: u64) -> bool {
        let now_ms = (now_ns / crate::MILLISECOND_NS) as u32;
        let since_ns = u64::from(now_ms.wrapping_sub(self.last_ms)) * crate::MILLISECOND_NS;
        if self.last_ms != 0 && since_ns < interval_ns {
            return false;
        }
        self.last_ms = now_ms.max(1);
        true
    }
}
