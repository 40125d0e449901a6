//! Congestion control: how much may be in flight, counted in segments as Linux counts.
//!
//! ```text
//!   loss recovery (Open, Disorder, CWR, Recovery, Loss) ──► ssthresh, on_state, on_event, undo_cwnd
//!   an ACK with news ──► on_acked, then grow if the window was the limit ──► Window
//! ```
//!
//! [`CongestionControl`] is the interface of an algorithm, in the shape of Linux's
//! `tcp_congestion_ops`; each algorithm has a file under `congestion/`. [`Algorithm`] holds the one
//! that a connection has chosen. [`Window`] holds the variables that they move. BBR moves the
//! window by a model of the path (`by_model`). The callers track the state and whether the window
//! was used; an algorithm computes only its size.

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
mod usage;
mod window;

#[cfg(test)]
#[path = "../tests/harness/sender_model.rs"]
mod model;

pub(crate) use crate::config::CongestionAlgorithm;
pub(crate) use crate::recovery::CaState;
pub use bbr::BbrInfo;
pub(crate) use control::Congestion;
pub use dctcp::DctcpInfo;
pub(crate) use window::{SSTHRESH_INFINITE, Window};

/// An event of the sender that is no ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// First transmission when nothing was in flight, `idle_ns` after the last one.
    TxStart {
        idle_ns: u64,
        /// The application was the limit before.
        app_limited: bool,
    },
    /// The window restarts after an idle period (RFC 5681 4.1).
    CwndRestart,
    /// Fast recovery or CWR is complete; the window equals its threshold.
    CompleteCwr,
    /// A timeout.
    Loss,
}

/// The sender at the time of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment<'a> {
    /// Settings of the stack.
    pub config: &'a Config,
    /// The time of this turn.
    pub now_ns: u64,
    /// SND.UNA, after this ACK.
    pub una: SeqNumber,
    /// SND.NXT
    pub nxt: SeqNumber,
    /// Segments delivered on this connection, this ACK's included.
    pub delivered: u32,
    /// Those of `delivered` whose ACK carried ECE.
    pub delivered_ce: u32,
    /// Segments ever presumed lost.
    pub lost: u32,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// When something was last delivered.
    pub delivered_ns: u64,
    /// Bytes per second at which a paced sender would send now; 0 = not known yet.
    pub pacing_rate: u64,
    /// Segments leave at that rate, not in bursts.
    pub paced: bool,
}

impl<'a> Moment<'a> {
    /// Nothing was sent yet.
    pub fn at_start(config: &'a Config, now_ns: u64, iss: SeqNumber) -> Self {
        Moment {
            config,
            now_ns,
            una: iss,
            nxt: iss,
            delivered: 0,
            delivered_ce: 0,
            lost: 0,
            mss: 0,
            delivered_ns: now_ns,
            pacing_rate: 0,
            paced: false,
        }
    }
}

/// The facts that one ACK carried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckSample {
    /// Segments newly delivered, cumulatively or selectively.
    pub acked: u32,
    /// Round trip of the latest segment that this ACK acknowledged; none if that is ambiguous
    /// (Karn).
    pub rtt_ns: Option<u64>,
}

/// A congestion control algorithm.
pub(crate) trait CongestionControl {
    /// Congestion was detected: the new slow-start threshold, in segments.
    fn ssthresh(&mut self, at: &Moment<'_>, window: &Window) -> u32;

    /// Grows the window: `ack.acked` segments were acknowledged and the window was in use. Not
    /// called during a reduction.
    fn grow(&mut self, at: &Moment<'_>, window: &mut Window, ack: &AckSample);

    /// The window to go back to when a reduction proves unnecessary.
    fn undo_cwnd(&mut self, window: &Window) -> u32 {
        window.cwnd.max(window.prior_cwnd)
    }

    /// Every ACK with news, before loss recovery acts on it.
    fn on_acked(&mut self, _at: &Moment<'_>, _window: &mut Window, _ack: &AckSample) {}

    /// Loss recovery enters `state`.
    fn on_state(&mut self, _at: &Moment<'_>, _window: &mut Window, _state: CaState) {}

    /// Something else happened.
    fn on_event(&mut self, _at: &Moment<'_>, _window: &mut Window, _event: Event) {}
}

/// The algorithm that a connection has chosen, and its state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Algorithm {
    /// RFC 5681 and 6582.
    NewReno(newreno::NewReno),
    /// RFC 9438.
    Cubic(cubic::Cubic),
    /// RFC 8257.
    Dctcp(dctcp::Dctcp),
    /// BBR.
    Bbr(bbr::Bbr),
}

impl Algorithm {
    /// Starts the algorithm of this name. It may set the first threshold of `window`.
    pub fn new(choice: CongestionAlgorithm, at: &Moment<'_>, window: &mut Window) -> Self {
        match choice {
            CongestionAlgorithm::NewReno => Algorithm::NewReno(newreno::NewReno),
            CongestionAlgorithm::Cubic => Algorithm::Cubic(cubic::Cubic::new(at, window)),
            CongestionAlgorithm::Dctcp => Algorithm::Dctcp(dctcp::Dctcp::new(at)),
            CongestionAlgorithm::Bbr => Algorithm::Bbr(bbr::Bbr::new(at, window)),
        }
    }
}

impl Algorithm {
    /// A connection whose algorithm models the path is not packed: the model is as large as
    /// everything else together.
    pub fn pack(&mut self, p: &mut impl Packing, usual: &Usual) {
        let mut choice = self.choice();
        p.one_of(
            &mut choice,
            &[
                CongestionAlgorithm::Cubic,
                CongestionAlgorithm::NewReno,
                CongestionAlgorithm::Dctcp,
            ],
        );
        match choice {
            CongestionAlgorithm::Cubic => cubic::Cubic::pack_in(self, p, usual),
            CongestionAlgorithm::NewReno => *self = Algorithm::NewReno(newreno::NewReno),
            CongestionAlgorithm::Dctcp => dctcp::Dctcp::pack_in(self, p, usual),
            CongestionAlgorithm::Bbr => {}
        }
    }

    /// The name of the algorithm in use.
    pub fn choice(&self) -> CongestionAlgorithm {
        match self {
            Algorithm::NewReno(_) => CongestionAlgorithm::NewReno,
            Algorithm::Cubic(_) => CongestionAlgorithm::Cubic,
            Algorithm::Dctcp(_) => CongestionAlgorithm::Dctcp,
            Algorithm::Bbr(_) => CongestionAlgorithm::Bbr,
        }
    }
}

/// Calls the same method of whichever algorithm it is.
macro_rules! each {
    ($algorithm:expr, $state:ident => $call:expr) => {
        match $algorithm {
            Algorithm::NewReno($state) => $call,
            Algorithm::Cubic($state) => $call,
            Algorithm::Dctcp($state) => $call,
            Algorithm::Bbr($state) => $call,
        }
    };
}

impl Algorithm {
    /// The algorithm, if it models the path.
    #[inline]
    pub fn model(&mut self) -> Option<&mut bbr::Bbr> {
        match self {
            Algorithm::Bbr(bbr) => Some(bbr),
            _ => None,
        }
    }

    /// True if the algorithm models the path.
    #[inline]
    pub fn is_model(&self) -> bool {
        matches!(self, Algorithm::Bbr(_))
    }
}

impl CongestionControl for Algorithm {
    fn ssthresh(&mut self, at: &Moment<'_>, window: &Window) -> u32 {
        each!(self, state => state.ssthresh(at, window))
    }

    fn grow(&mut self, at: &Moment<'_>, window: &mut Window, ack: &AckSample) {
        each!(self, state => state.grow(at, window, ack))
    }

    fn undo_cwnd(&mut self, window: &Window) -> u32 {
        each!(self, state => state.undo_cwnd(window))
    }

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
