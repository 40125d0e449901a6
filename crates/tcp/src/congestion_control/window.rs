//! The congestion window in segments, and the two ways in which nearly every algorithm grows it.
//!
//! Owned by the connection. The algorithm grows the window, loss recovery shrinks it. Every method
//! keeps it within bounds, so an algorithm from outside may ask for anything.

use crate::limits::{CWND_SEGMENTS_MAX, SSTHRESH_SEGMENTS_MIN};
use crate::pack::Packing;

/// Threshold before the first loss: slow start has no end (Linux shows it as 0x7fffffff in
/// `tcp_info`).
pub const SSTHRESH_INFINITE: u32 = u32::MAX;

/// The congestion window and its companion variables, in segments.
///
/// ```
/// use tcp::congestion_control::Window;
/// let mut window = Window::new(10);
/// window.set_ssthresh(12);
/// assert_eq!(window.slow_start(5), 3);
/// window.grow_linearly(12, 12);
/// assert_eq!(window.cwnd(), 13);
/// window.set_cwnd(0);
/// assert_eq!(window.cwnd(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Segments that may be in flight.
    pub(crate) cwnd: u32,
    /// Segments acknowledged towards the next step of linear growth.
    pub(crate) cwnd_cnt: u32,
    /// Threshold: slow start below it, congestion avoidance from it on.
    pub(crate) ssthresh: u32,
    /// `cwnd` before the current reduction, to undo it; 0 = none.
    pub(crate) prior_cwnd: u32,
    /// `ssthresh` before the current reduction; 0 = nothing to undo.
    pub(crate) prior_ssthresh: u32,
}

impl Window {
    /// The window before the first loss; 1 to [`CWND_SEGMENTS_MAX`] segments.
    #[must_use]
    pub fn new(cwnd: u32) -> Self {
        Window {
            cwnd: cwnd.clamp(1, CWND_SEGMENTS_MAX),
            cwnd_cnt: 0,
            ssthresh: SSTHRESH_INFINITE,
            prior_cwnd: 0,
            prior_ssthresh: 0,
        }
    }

    pub(crate) fn pack(&mut self, p: &mut impl Packing) {
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

    /// Segments that may be in flight.
    #[inline(always)]
    #[must_use]
    pub fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// The window at which slow start ends; [`SSTHRESH_INFINITE`] before the first loss.
    #[inline(always)]
    #[must_use]
    pub fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    /// The window before the current reduction, or before the last timeout; 0: none.
    #[must_use]
    pub fn prior_cwnd(&self) -> u32 {
        self.prior_cwnd
    }

    /// Sets the window; 1 to [`CWND_SEGMENTS_MAX`] segments.
    pub fn set_cwnd(&mut self, segments: u32) {
        self.cwnd = segments.clamp(1, CWND_SEGMENTS_MAX);
    }

    /// Sets the threshold, at least [`SSTHRESH_SEGMENTS_MIN`] segments.
    pub fn set_ssthresh(&mut self, segments: u32) {
        self.ssthresh = segments.max(SSTHRESH_SEGMENTS_MIN);
    }

    /// True below the threshold.
    #[inline]
    #[must_use]
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Slow start (RFC 5681 3.1 with byte counting, in segments): one segment for each segment
    /// acknowledged, up to the threshold. Returns the acknowledged segments that are left for
    /// linear growth: all of them at or above the threshold.
    #[inline]
    pub fn slow_start(&mut self, acked: u32) -> u32 {
        let end = self.ssthresh.max(self.cwnd);
        let cwnd = self.cwnd.saturating_add(acked).min(end);
        let left = acked - (cwnd - self.cwnd).min(acked);
        self.cwnd = cwnd.min(CWND_SEGMENTS_MAX);
        left
    }

    /// Linear growth: one segment for every `every` segments acknowledged; 0 counts as 1.
    #[inline]
    pub fn grow_linearly(&mut self, every: u32, acked: u32) {
        let every = every.max(1);
        // Segments gathered under a larger `every` count as one step only.
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
