//! A connection's congestion control: the window, the algorithm that moves it, and how far it was used.

use super::usage::Usage;
use super::{AckSample, Algorithm, CongestionAlgorithm, CongestionControl, Event, Moment, Window};
use crate::config::Config;
use crate::pack::{Packing, Usual};

/// What a connection owns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Congestion {
    /// The window, in segments.
    pub window: Window,
    /// Who moves it.
    pub algorithm: Algorithm,
    /// How far it was used.
    pub usage: Usage,
}

impl Congestion {
    /// Before the first segment.
    pub fn new(at: &Moment<'_>, choice: CongestionAlgorithm, cwnd: u32) -> Self {
        let mut window = Window::new(cwnd);
        Congestion {
            algorithm: Algorithm::new(choice, at, &mut window),
            window,
            usage: Usage::new(at.nxt, at.now_ns),
        }
    }

    pub fn pack(&mut self, p: &mut impl Packing, usual: &Usual) {
        let Congestion {
            window,
            algorithm,
            usage,
        } = self;
        window.pack(p);
        algorithm.pack(p, usual);
        usage.pack(p, usual);
    }

    /// Another algorithm takes over; the window stays.
    pub fn choose(&mut self, at: &Moment<'_>, choice: CongestionAlgorithm) {
        self.window.prior_ssthresh = 0;
        self.algorithm = Algorithm::new(choice, at, &mut self.window);
    }

    /// Initial window in segments (RFC 6928), or one when the handshake lost more than one SYN (its section 2).
    pub fn initial_window(config: &Config, handshake_lost: bool) -> u32 {
        if handshake_lost {
            1
        } else {
            u32::from(config.initial_window_segments.max(1))
        }
    }

    /// The algorithm wants to know when a flight begins.
    #[inline]
    pub fn heeds_start(&self) -> bool {
        match &self.algorithm {
            Algorithm::Cubic(cubic) => cubic.has_epoch(),
            Algorithm::NewReno(_) | Algorithm::Dctcp(_) => false,
            Algorithm::Bbr(_) => true,
        }
    }

    /// An ACK with news that leaves the window to the algorithm: it is told, and the window grows.
    #[inline]
    pub fn on_progress(&mut self, at: &Moment<'_>, ack: &AckSample) {
        self.algorithm.on_acked(at, &mut self.window, ack);
        self.grow(at, ack);
    }

    /// Segments were acknowledged while the window was not being reduced: it grows if it was in use (RFC 5681 3.1, RFC 7661).
    #[inline]
    pub fn grow(&mut self, at: &Moment<'_>, ack: &AckSample) {
        if self.usage.is_limiting(&self.window) {
            self.algorithm.grow(at, &mut self.window, ack);
        }
        self.usage.stamp_ns = at.now_ns;
    }

    /// The connection was idle for `idle_ns`: the window halves for each timeout passed, down to
    /// the initial one (RFC 5681 4.1, in Linux's softer form).
    pub fn on_idle(&mut self, at: &Moment<'_>, idle_ns: u64, rto_ns: u64) {
        self.algorithm
            .on_event(at, &mut self.window, Event::CwndRestart);
        let initial = Self::initial_window(at.config, false);
        let floor = initial.min(self.window.cwnd);
        self.window.ssthresh = self.current_ssthresh();
        let mut left = idle_ns;
        while left > rto_ns && self.window.cwnd > floor {
            self.window.cwnd /= 2;
            left -= rto_ns.max(1);
        }
        self.window.cwnd = self.window.cwnd.max(floor);
        self.usage.restart(at.now_ns);
    }

    /// The threshold that remembers a window which is given up without loss; not while it is being reduced.
    pub fn current_ssthresh(&self) -> u32 {
        let cwnd = self.window.cwnd;
        self.window.ssthresh.max(cwnd / 2 + cwnd / 4)
    }
}

#[cfg(test)]
mod tests;
