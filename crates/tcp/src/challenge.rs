//! Limits on the ACKs that invalid segments earn (RFC 5961 sections 5 and 10).
//!
//! Two limits stand in a row. [`AckGate`], one per connection, stops ACK loops and is the one that works in practice.
//! [`ChallengeLimiter`], one per stack, lent to every call through `Cx`, bounds what all connections together cost.
//!
//! A limit that everybody shares can be read by anybody: who spends the known quota on his own connection sees by the
//! last ACK that stays away whether a guess about somebody else's was right (CVE-2016-5696). So neither the quota nor the
//! length of the period is known outside: both are drawn anew for each period, from a keyed hash, between one half and
//! one and a half of their mean.

use wire::siphash::siphash24_words;

use crate::SECOND_NS;
use crate::config::Config;

#[cfg(test)]
mod tests;

/// Limits the challenge ACKs of one stack to `Config::challenge_acks_per_second_max` on average; `u32::MAX` is no limit.
#[derive(Clone, Debug, Default)]
pub struct ChallengeLimiter {
    key: [u64; 2],
    period: u64,
    period_ends_ns: u64,
    left: u64,
}

impl ChallengeLimiter {
    /// A limiter whose quota is randomised from `seed`, which nobody outside may know.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            key: [seed, seed.rotate_left(32) ^ 0x6368_616c_6c65_6e67],
            ..Self::default()
        }
    }

    /// Whether one more challenge ACK may leave now; counts it if so.
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

/// When a connection last answered an invalid segment: lets one answer pass per interval. Four bytes, for compact entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckGate {
    /// Milliseconds of the last answer, never 0; 0 is "never". Wraps after 49 days, where one answer may be withheld.
    last_ms: u32,
}

impl AckGate {
    /// Whether `interval_ns` has passed since the last answer; if so, this is the next.
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
