//! Congestion window validation. A window that does not limit the sender says nothing about the
//! path. Such a window does not grow, and it decays while it stays unused (RFC 5681 3.1, RFC 2861,
//! RFC 7661; as in Linux).

use wire::SeqNumber;

use super::Window;
use crate::pack::{Packing, Usual};

/// The recent use of the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usage {
    /// Time at which the window was last in full use, or was set.
    pub(super) stamp_ns: u64,
    /// Most segments in flight in the round that `round_end` closes.
    flight_max: u32,
    /// Most segments in flight since `stamp_ns`, while the window was not the limit.
    used: u32,
    /// The round of `flight_max` ends when this number is acknowledged.
    round_end: SeqNumber,
    /// In this round the window was the limit, not the application or the peer.
    limited: bool,
}

impl Usage {
    /// The state before anything is sent.
    pub fn new(nxt: SeqNumber, now_ns: u64) -> Self {
        Usage {
            stamp_ns: now_ns,
            flight_max: 0,
            used: 0,
            round_end: nxt,
            limited: false,
        }
    }

    pub fn pack(&mut self, p: &mut impl Packing, usual: &Usual) {
        let Usage {
            stamp_ns,
            flight_max,
            used,
            round_end,
            limited,
        } = self;
        p.u64(stamp_ns, usual.now_ns);
        p.u32(flight_max, 0);
        p.u32(used, 0);
        p.seq(round_end, usual.una);
        p.bool(limited);
    }

    /// Notes that sending stopped with `flight` segments in flight; `limited`: the congestion
    /// window stopped it.
    #[inline]
    pub fn on_flight(&mut self, una: SeqNumber, nxt: SeqNumber, flight: u32, limited: bool) {
        let over = una.ge(self.round_end);
        if over || limited || (!self.limited && flight > self.flight_max) {
            self.limited = limited;
            self.flight_max = flight;
            self.round_end = nxt;
        }
    }

    /// True if the window limits the sender. In slow start it does so if half of it is used,
    /// because it may double.
    #[inline]
    pub fn is_limiting(&self, window: &Window) -> bool {
        self.limited || (window.in_slow_start() && window.cwnd < self.flight_max.saturating_mul(2))
    }

    /// Notes whether the window is in full use now. True if it was not for `rto_ns`, so it should
    /// decay.
    #[inline]
    pub fn is_unused_for(
        &mut self,
        window: &Window,
        flight: u32,
        now_ns: u64,
        rto_ns: u64,
    ) -> bool {
        if self.is_limiting(window) {
            self.used = 0;
            self.stamp_ns = now_ns;
            return false;
        }
        self.used = self.used.max(flight);
        now_ns.saturating_sub(self.stamp_ns) >= rto_ns
    }

    /// Takes back half of the unused window, after a timeout during which it was not the limit (RFC
    /// 2861 3). `initial`: the initial window; `remembered`: the threshold that remembers the
    /// former window.
    pub fn decay(&mut self, window: &mut Window, initial: u32, remembered: u32, now_ns: u64) {
        let used = self.used.max(initial);
        if used < window.cwnd {
            window.ssthresh = remembered;
            window.cwnd = (window.cwnd + used) / 2;
        }
        self.restart(now_ns);
    }

    /// Begins anew, after the window was set.
    pub fn restart(&mut self, now_ns: u64) {
        self.used = 0;
        self.stamp_ns = now_ns;
    }
}

#[cfg(test)]
mod tests;
