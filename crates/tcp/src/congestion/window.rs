//! The congestion window in segments, and the two ways in which nearly every algorithm moves it.
//!
//! Owned by the connection; moved by the algorithm while it grows and by loss recovery while it
//! shrinks.

use crate::config::Config;
use crate::limits::CWND_SEGMENTS_MAX;
use crate::pack::Packing;

/// No loss yet: slow start has no end (Linux shows it as 0x7fffffff in `tcp_info`).
pub(crate) const SSTHRESH_INFINITE: u32 = u32::MAX;

/// The congestion window and its companion variables, in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Segments that may be in flight.
    pub(super) cwnd: u32,
    /// Segments acknowledged towards the next step of linear growth.
    pub(super) cwnd_cnt: u32,
    /// Slow start below, congestion avoidance from here on.
    pub(super) ssthresh: u32,
    /// `cwnd` before the current reduction, to undo it; 0 = none.
    pub(super) prior_cwnd: u32,
    /// `ssthresh` before the current reduction; 0 = nothing to undo.
    pub(super) prior_ssthresh: u32,
}

impl Window {
    /// The window before the first loss.
    pub fn new(cwnd: u32) -> Self {
        Window {
            cwnd: cwnd.clamp(1, CWND_SEGMENTS_MAX),
            cwnd_cnt: 0,
            ssthresh: SSTHRESH_INFINITE,
            prior_cwnd: 0,
            prior_ssthresh: 0,
        }
    }

    pub fn pack(&mut self, p: &mut impl Packing) {
        let Window {
            cwnd,
            cwnd_cnt,
            ssthresh,
            prior_cwnd,
            prior_ssthresh,
        } = self;
        p.u32(cwnd, 10);
        p.u32(cwnd_cnt, 0);
        p.u32(ssthresh, SSTHRESH_INFINITE);
        p.u32(prior_cwnd, 0);
        p.u32(prior_ssthresh, 0);
    }

    /// Initial window in segments (RFC 6928), or one when the handshake lost more than one SYN (its
    /// section 2).
    pub fn initial(config: &Config, handshake_lost: bool) -> u32 {
        if handshake_lost {
            1
        } else {
            u32::from(config.initial_window_segments.max(1))
        }
    }

    /// Segments that may be in flight.
    #[inline(always)]
    pub fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// The window at which slow start ends.
    #[inline(always)]
    pub fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    /// Below the threshold.
    #[inline]
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Slow start (RFC 5681 3.1 with byte counting, in segments): a segment for each one
    /// acknowledged, up to the threshold. Returns the acknowledged segments that are left for
    /// linear growth.
    #[inline]
    pub fn slow_start(&mut self, acked: u32) -> u32 {
        let cwnd = self.cwnd.saturating_add(acked).min(self.ssthresh);
        let left = acked - (cwnd - self.cwnd).min(acked);
        self.cwnd = cwnd.min(CWND_SEGMENTS_MAX);
        left
    }

    /// Linear growth: one segment for every `every` acknowledged.
    #[inline]
    pub fn grow_linearly(&mut self, every: u32, acked: u32) {
        let every = every.max(1);
        // Segments that were gathered under a larger `every` count as one step.
        if self.cwnd_cnt >= every {
            self.cwnd_cnt = 0;
            self.cwnd += 1;
        }
        self.cwnd_cnt = self.cwnd_cnt.saturating_add(acked);
        if self.cwnd_cnt >= every {
            let steps = self.cwnd_cnt / every;
            self.cwnd_cnt -= steps * every;
            self.cwnd = self.cwnd.saturating_add(steps);
        }
        self.cwnd = self.cwnd.min(CWND_SEGMENTS_MAX);
    }
}

#[cfg(test)]
mod tests;
