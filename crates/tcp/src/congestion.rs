//! Congestion control: the number of segments that may be in flight, counted as in Linux.
//!
//! ```text
//!   loss recovery (Open, Disorder, CWR, Recovery, Loss) ──► ssthresh, on_state, on_event, undo_cwnd
//!   an ACK with news ──► on_acked, then grow if the window was the limit ──► Window
//! ```
//!
//! [`WindowControl`] is the interface of an algorithm, in the shape of Linux's
//! `tcp_congestion_ops`; each algorithm has a file under `congestion/`. [`Algorithm`] holds the one
//! that a connection has chosen. [`Window`] holds the variables that algorithms change. BBR sets
//! the window by a model of the path (`by_model`). `outside` calls an algorithm that implements the
//! public trait of `congestion_control`. The callers track the state of loss recovery and whether
//! the window was used; an algorithm computes only the window's size.

use core::ops::Deref;

use wire::SeqNumber;

use crate::config::Config;
use crate::pack::{Packing, Usual};

mod bbr;
pub(crate) mod by_model;
mod control;
mod cubic;
mod dctcp;
mod hystart;
mod hystart_plus;
mod newreno;
mod outside;
mod usage;

#[cfg(test)]
#[path = "../tests/harness/sender_model.rs"]
mod model;

pub(crate) use crate::config::CongestionAlgorithm;
pub(crate) use crate::congestion_control::{
    AckSample, CaState, Event, SSTHRESH_INFINITE, SenderView, Window,
};
pub use bbr::BbrInfo;
pub(crate) use control::Congestion;
pub use dctcp::DctcpInfo;

/// Initial window in segments (RFC 6928); one segment if the handshake lost more than one SYN (RFC
/// 6928 section 2).
pub(crate) fn initial_window(config: &Config, handshake_lost: bool) -> u32 {
    if handshake_lost {
        1
    } else {
        u32::from(config.initial_window_segments.max(1))
    }
}

/// The sender at the time of a call, for algorithms within the crate, which also see the settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment<'a> {
    /// Settings of the stack.
    pub config: &'a Config,
    /// The sender, as algorithms from outside see it too.
    pub sender: SenderView,
}

impl<'a> Moment<'a> {
    /// The sender before anything was sent. `delivered`: the count with which the connection
    /// begins.
    pub fn at_start(config: &'a Config, now_ns: u64, iss: SeqNumber, delivered: u32) -> Self {
        let sender = SenderView {
            una: iss,
            nxt: iss,
            delivered,
            ..SenderView::new(now_ns, 0)
        };
        Moment { config, sender }
    }
}

impl Deref for Moment<'_> {
    type Target = SenderView;

    #[inline(always)]
    fn deref(&self) -> &SenderView {
        &self.sender
    }
}

/// A congestion control algorithm, as the connection calls it.
pub(crate) trait WindowControl {
    /// Congestion was detected: the new slow-start threshold, in segments.
    fn ssthresh(&mut self, at: &Moment<'_>, window: &Window) -> u32;

    /// Grows the window: `ack.acked` segments were acknowledged and the window was in use. Not
    /// called during a reduction.
    fn grow(&mut self, at: &Moment<'_>, window: &mut Window, ack: &AckSample);

    /// The window to go back to when a reduction proves unnecessary.
    fn undo_cwnd(&mut self, _config: &Config, window: &Window) -> u32 {
        window.cwnd.max(window.prior_cwnd)
    }

    /// Takes every ACK with news, before loss recovery acts on it.
    fn on_acked(&mut self, _at: &Moment<'_>, _window: &mut Window, _ack: &AckSample) {}

    /// Loss recovery enters `state`.
    fn on_state(&mut self, _at: &Moment<'_>, _window: &mut Window, _state: CaState) {}

    /// Takes another event of the sender.
    fn on_event(&mut self, _at: &Moment<'_>, _window: &mut Window, _event: Event) {}
}

/// The algorithm that a connection has chosen, and its state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Algorithm {
    /// RFC 5681 and RFC 6582.
    NewReno(newreno::NewReno),
    /// RFC 9438.
    Cubic(cubic::Cubic),
    /// RFC 8257.
    Dctcp(dctcp::Dctcp),
    /// BBR, which follows a model of the path.
    Bbr(bbr::Bbr),
    /// An algorithm from outside the crate.
    Outside(outside::Outside),
}

// BBR's model is the largest. `outside::Outside` uses as many words as fit into its size.
const _: () = assert!(size_of::<Algorithm>() == size_of::<bbr::Bbr>());

/// The variants of [`Algorithm`], without their state.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Cubic,
    NewReno,
    Dctcp,
    Bbr,
    Outside,
}

impl Algorithm {
    /// Starts the chosen algorithm, or the default one if the settings do not know the choice. The
    /// algorithm may set the first threshold of `window`.
    pub fn new(choice: CongestionAlgorithm, at: &Moment<'_>, window: &mut Window) -> Self {
        match choice {
            CongestionAlgorithm::NewReno => Algorithm::NewReno(newreno::NewReno),
            CongestionAlgorithm::Cubic => Algorithm::Cubic(cubic::Cubic::new(at, window)),
            CongestionAlgorithm::Dctcp => Algorithm::Dctcp(dctcp::Dctcp::new(at)),
            CongestionAlgorithm::Bbr => Algorithm::Bbr(bbr::Bbr::new(at, window)),
            CongestionAlgorithm::Outside(algorithm) => outside::Outside::new(algorithm, at, window)
                .map_or_else(
                    || Algorithm::Cubic(cubic::Cubic::new(at, window)),
                    Algorithm::Outside,
                ),
        }
    }
}

impl Algorithm {
    /// Packs the state. A connection whose algorithm models the path is not packed, because the
    /// model is as large as all other state together.
    pub fn pack(&mut self, p: &mut impl Packing, usual: &Usual) {
        let mut kind = self.kind();
        p.one_of(
            &mut kind,
            &[Kind::Cubic, Kind::NewReno, Kind::Dctcp, Kind::Outside],
        );
        match kind {
            Kind::Cubic => cubic::Cubic::pack_in(self, p, usual),
            Kind::NewReno => *self = Algorithm::NewReno(newreno::NewReno),
            Kind::Dctcp => dctcp::Dctcp::pack_in(self, p, usual),
            Kind::Outside => outside::Outside::pack_in(self, p),
            Kind::Bbr => {}
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Algorithm::NewReno(_) => Kind::NewReno,
            Algorithm::Cubic(_) => Kind::Cubic,
            Algorithm::Dctcp(_) => Kind::Dctcp,
            Algorithm::Bbr(_) => Kind::Bbr,
            Algorithm::Outside(_) => Kind::Outside,
        }
    }

    /// The name of the algorithm in use.
    pub fn choice(&self, config: &Config) -> CongestionAlgorithm {
        match self {
            Algorithm::NewReno(_) => CongestionAlgorithm::NewReno,
            Algorithm::Cubic(_) => CongestionAlgorithm::Cubic,
            Algorithm::Dctcp(_) => CongestionAlgorithm::Dctcp,
            Algorithm::Bbr(_) => CongestionAlgorithm::Bbr,
            Algorithm::Outside(outside) => outside.choice(config),
        }
    }
}

/// Calls the same method on whichever variant is in use.
macro_rules! each {
    ($algorithm:expr, $state:ident => $call:expr) => {
        match $algorithm {
            Algorithm::NewReno($state) => $call,
            Algorithm::Cubic($state) => $call,
            Algorithm::Dctcp($state) => $call,
            Algorithm::Bbr($state) => $call,
            Algorithm::Outside($state) => $call,
        }
    };
}

impl Algorithm {
    /// The model, if the algorithm models the path.
    #[inline]
    pub fn model(&mut self) -> Option<&mut bbr::Bbr> {
        match self {
            Algorithm::Bbr(bbr) => Some(bbr),
            _ => None,
        }
    }

    /// The state of an algorithm from outside, if one is in use.
    pub fn outside(&mut self) -> Option<&mut outside::Outside> {
        match self {
            Algorithm::Outside(outside) => Some(outside),
            _ => None,
        }
    }

    /// True if the algorithm learns from every ACK and may set the pacing rate.
    #[inline]
    pub fn learns(&self) -> bool {
        matches!(self, Algorithm::Bbr(_) | Algorithm::Outside(_))
    }

    /// True if the algorithm models the path.
    #[inline]
    pub fn is_model(&self) -> bool {
        matches!(self, Algorithm::Bbr(_))
    }
}

impl WindowControl for Algorithm {
    fn ssthresh(&mut self, at: &Moment<'_>, window: &Window) -> u32 {
        each!(self, state => state.ssthresh(at, window))
    }

    fn grow(&mut self, at: &Moment<'_>, window: &mut Window, ack: &AckSample) {
        each!(self, state => state.grow(at, window, ack))
    }

    fn undo_cwnd(&mut self, config: &Config, window: &Window) -> u32 {
        each!(self, state => state.undo_cwnd(config, window))
    }

    #[inline]
    fn on_acked(&mut self, at: &Moment<'_>, window: &mut Window, ack: &AckSample) {
        each!(self, state => state.on_acked(at, window, ack))
    }

    fn on_state(&mut self, at: &Moment<'_>, window: &mut Window, state: CaState) {
        each!(self, algorithm => algorithm.on_state(at, window, state))
    }

    fn on_event(&mut self, at: &Moment<'_>, window: &mut Window, event: Event) {
        each!(self, state => state.on_event(at, window, event))
    }
}
