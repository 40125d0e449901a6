//! The former interface, in bytes; its callers are being moved to the one in segments.
//!
//! [`CongestionControl`] is the interface that an algorithm implements (a file each under `congestion/`);
//! [`Congestion`] is what the connection owns: the threshold, the test whether the window was really
//! used, and the algorithm chosen. The window itself, `snd.cwnd`, stands in the hot line.

use wire::SeqNumber;

use crate::config::Config;
use crate::limits::CWND_MAX;

mod newreno;

/// What an algorithm sees and moves.
pub(crate) struct Window<'a> {
    /// Congestion window in bytes.
    pub cwnd: &'a mut u32,
    /// Slow-start threshold in bytes.
    pub ssthresh: u32,
    /// Segment size in bytes.
    pub mss: u32,
}

/// A congestion control algorithm.
pub(crate) trait CongestionControl {
    /// `acked` new bytes were acknowledged outside recovery, and the window was in use: grow it.
    fn on_ack(&mut self, window: Window<'_>, acked: u32);
    /// A loss was detected with `flight` bytes outstanding: the new slow-start threshold.
    fn ssthresh_after_loss(&mut self, flight: u32, mss: u32) -> u32;
    /// The window was set from outside (loss, idleness): forget partial growth.
    fn on_reset(&mut self);
}

/// The algorithms that can be chosen.
#[derive(Clone, Debug)]
enum Algorithm {
    NewReno(newreno::NewReno),
}

impl CongestionControl for Algorithm {
    fn on_ack(&mut self, window: Window<'_>, acked: u32) {
        match self {
            Algorithm::NewReno(state) => state.on_ack(window, acked),
        }
    }

    fn ssthresh_after_loss(&mut self, flight: u32, mss: u32) -> u32 {
        match self {
            Algorithm::NewReno(state) => state.ssthresh_after_loss(flight, mss),
        }
    }

    fn on_reset(&mut self) {
        match self {
            Algorithm::NewReno(state) => state.on_reset(),
        }
    }
}

/// A connection's congestion state, beside `snd.cwnd`.
#[derive(Clone, Debug)]
pub(crate) struct Congestion {
    /// Slow-start threshold in bytes; `u32::MAX` = unlimited.
    pub ssthresh: u32,
    /// Most bytes in flight since `usage_end` was set.
    flight_max: u32,
    /// The measurement of `flight_max` ends when this is acknowledged.
    usage_end: SeqNumber,
    /// The window, not the application or the peer, was the limit.
    limited: bool,
    algorithm: Algorithm,
}

impl Congestion {
    /// Before the first loss.
    pub fn new(iss: SeqNumber) -> Self {
        Congestion {
            ssthresh: u32::MAX,
            flight_max: 0,
            usage_end: iss,
            limited: false,
            algorithm: Algorithm::NewReno(newreno::NewReno::default()),
        }
    }

    /// Initial window (RFC 6928), or one segment when the handshake lost more than one SYN (its section 2).
    pub fn initial_window(config: &Config, mss: u16, handshake_lost: bool) -> u32 {
        let segments = if handshake_lost {
            1
        } else {
            u32::from(config.initial_window_segments.max(1))
        };
        (segments * u32::from(mss)).min(CWND_MAX)
    }

    /// New bytes were acknowledged outside recovery.
    pub fn on_ack(&mut self, cwnd: &mut u32, mss: u32, acked: u32) {
        // RFC 5681 3.1 and RFC 7661: a window that is not used does not grow.
        let slow_start = *cwnd < self.ssthresh;
        let in_use = self.limited || (slow_start && *cwnd < self.flight_max.saturating_mul(2));
        if !in_use {
            return;
        }
        let window = Window {
            cwnd,
            ssthresh: self.ssthresh,
            mss,
        };
        self.algorithm.on_ack(window, acked);
    }

    /// Loss was detected by duplicates: threshold and window of fast recovery (RFC 5681 3.2).
    pub fn on_loss(&mut self, cwnd: &mut u32, mss: u32, flight: u32) {
        self.ssthresh = self.algorithm.ssthresh_after_loss(flight, mss);
        *cwnd = self.ssthresh;
        self.algorithm.on_reset();
    }

    /// Fast recovery is complete (RFC 6582 3.2 step 3, the second option).
    pub fn on_recovered(&mut self, cwnd: &mut u32) {
        *cwnd = self.ssthresh;
    }

    /// Timeout: one segment (RFC 5681 3.1). The threshold falls only with the first one in a row.
    pub fn on_timeout(&mut self, cwnd: &mut u32, mss: u32, flight: u32, first: bool) {
        if first {
            self.ssthresh = self.algorithm.ssthresh_after_loss(flight, mss);
        }
        *cwnd = mss;
        self.algorithm.on_reset();
    }

    /// The connection was idle for `idle_ns`: the window halves for each timeout passed, down to
    /// the initial one (RFC 5681 4.1, in Linux's softer form).
    pub fn on_idle(&mut self, cwnd: &mut u32, initial: u32, idle_ns: u64, rto_ns: u64) {
        let floor = initial.min(*cwnd);
        self.ssthresh = self.current_ssthresh(*cwnd);
        let mut left = idle_ns;
        while left > rto_ns && *cwnd > floor {
            *cwnd /= 2;
            left -= rto_ns.max(1);
        }
        *cwnd = (*cwnd).max(floor);
        self.limited = false;
        self.algorithm.on_reset();
    }

    /// Sending stopped with `flight` bytes out; `limited` = the congestion window stopped it.
    pub fn on_flight(&mut self, una: SeqNumber, nxt: SeqNumber, flight: u32, limited: bool) {
        let over = una.ge(self.usage_end);
        if over || limited || (!self.limited && flight > self.flight_max) {
            self.limited = limited;
            self.flight_max = flight;
            self.usage_end = nxt;
        }
    }

    /// The segment size changed: the window keeps its number of segments.
    pub fn on_mss(cwnd: &mut u32, old: u16, new: u16) {
        let segments = (*cwnd / u32::from(old.max(1))).max(1);
        *cwnd = segments.saturating_mul(u32::from(new)).min(CWND_MAX);
    }

    /// The threshold that remembers a window which is given up without loss.
    fn current_ssthresh(&self, cwnd: u32) -> u32 {
        if self.ssthresh == u32::MAX {
            return u32::MAX;
        }
        self.ssthresh.max(cwnd / 4 * 3)
    }
}

#[cfg(test)]
mod tests;
