//! Congestion control from outside the crate: the trait that an algorithm implements, the news that
//! it gets, and the variables that it sets.
//!
//! ```text
//!   loss recovery ──► ssthresh, on_state, on_event, undo_cwnd ┐               ┌─► Window
//!   an ACK ──► on_acked, on_path, then grow                   ├─► algorithm ──┤
//!   after an ACK ──► pacing_rate                              ┘               └─► State
//! ```
//!
//! An algorithm sizes the congestion window, as a module of Linux's `tcp_congestion_ops` does. Loss
//! recovery (RFC 6675, 8985, 6937) and timers stay with the engine. An algorithm has a name, is
//! registered in the settings ([`Config::register_congestion`](crate::Config::register_congestion))
//! before the stack starts, and is then chosen like a built-in one.
//!
//! ```
//! use tcp::congestion_control::{
//!     AckSample, CongestionControl, OutsideAlgorithm, SenderView, State, Window,
//! };
//! use tcp::{Config, CongestionAlgorithm};
//!
//! /// The window of RFC 5681: slow start, then a segment per window, half of it on loss.
//! struct Classic;
//!
//! impl CongestionControl for Classic {
//!     fn ssthresh(&self, _: &mut State, _: &SenderView, window: &Window) -> u32 {
//!         window.cwnd() / 2
//!     }
//!
//!     fn grow(&self, _: &mut State, _: &SenderView, window: &mut Window, ack: &AckSample) {
//!         let mut acked = ack.acked;
//!         if window.in_slow_start() {
//!             acked = window.slow_start(acked);
//!         }
//!         if acked > 0 {
//!             window.grow_linearly(window.cwnd(), acked);
//!         }
//!     }
//! }
//!
//! static CLASSIC: OutsideAlgorithm = OutsideAlgorithm::new("classic", &Classic);
//!
//! let mut config = Config::default();
//! config.congestion = config.register_congestion(&CLASSIC)?;
//! assert_eq!(config.congestion_named("classic"), Some(CongestionAlgorithm::Outside(&CLASSIC)));
//! # Ok::<(), tcp::congestion_control::RegisterError>(())
//! ```
//!
//! Results are brought within bounds, whatever the algorithm returns: see [`Window`] and each
//! method. A method runs in the turn of a stack, so it must neither wait nor panic. A panic unwinds
//! through the call that turned the stack, which is unusable afterwards.

mod outside;
mod sender;
mod window;

pub use outside::{OutsideAlgorithm, OutsideAlgorithms, RegisterError};
pub use sender::{AckSample, CaState, Event, PathReport, SenderView};
pub use window::{SSTHRESH_INFINITE, Window};

/// Number of 32-bit words that an algorithm keeps for each connection.
pub const STATE_WORDS: usize = 18;

/// The words that an algorithm keeps for one connection, stored in the connection; all 0 before
/// [`begin`](CongestionControl::begin). The more words are 0, the less space an idle connection
/// takes.
pub type State = [u32; STATE_WORDS];

/// A congestion control algorithm. The value holds its parameters and serves all connections of all
/// stacks; [`State`] holds its knowledge of one connection.
///
/// The engine calls the methods in this order for an ACK with news: `on_acked`, then loss recovery
/// acts (`ssthresh`, `on_state`, `on_event`), then `on_path`, then `grow` or a step of PRR
/// (RFC 6937), then `pacing_rate`. Windows are in segments of [`SenderView::mss`] bytes.
///
/// The [module](self) has an example.
pub trait CongestionControl: Send + Sync + 'static {
    /// A connection begins with this algorithm, or changes to it. If the handshake is not complete
    /// yet, `begin` is called again when it is.
    fn begin(&self, _state: &mut State, _at: &SenderView, _window: &mut Window) {}

    /// Congestion was detected, by loss or ECN. Returns the new slow-start threshold in segments
    /// (RFC 5681 section 3.1, equation 4), to which the window then shrinks.
    ///
    /// A result below 2 counts as 2, and one above the window as the window (but at least 2).
    fn ssthresh(&self, state: &mut State, at: &SenderView, window: &Window) -> u32;

    /// Grows the window: `ack.acked` segments were acknowledged and the window was the limit (RFC
    /// 7661). Not called while the window is being reduced.
    fn grow(&self, state: &mut State, at: &SenderView, window: &mut Window, ack: &AckSample);

    /// The window to go back to when a reduction proves unnecessary, in segments. 0 counts as 1.
    fn undo_cwnd(&self, _state: &mut State, window: &Window) -> u32 {
        window.cwnd().max(window.prior_cwnd())
    }

    /// Takes every ACK with news, before loss recovery acts on it.
    fn on_acked(&self, _: &mut State, _at: &SenderView, _window: &mut Window, _ack: &AckSample) {}

    /// Takes every ACK after loss recovery has acted on it: rate, round trip and losses of the
    /// path.
    fn on_path(&self, _: &mut State, _at: &SenderView, _window: &mut Window, _path: &PathReport) {}

    /// Loss recovery enters `next`.
    fn on_state(&self, _: &mut State, _at: &SenderView, _window: &mut Window, _next: CaState) {}

    /// Takes another event of the sender.
    fn on_event(&self, _: &mut State, _at: &SenderView, _window: &mut Window, _event: Event) {}

    /// The pacing rate in bytes per second. `None`: 2 or 1.2 windows a round trip, as for a
    /// built-in algorithm. `srtt_us` is the smoothed round trip, 0 before there is one.
    ///
    /// Connections keep to the rate if [`paces`](Self::paces), the settings or `SO_MAX_PACING_RATE`
    /// say so. 0 counts as `None`. A rate below
    /// [`OUTSIDE_PACING_RATE_MIN`](crate::limits::OUTSIDE_PACING_RATE_MIN) (64 KiB per second)
    /// counts as that rate. The engine asks after each ACK.
    fn pacing_rate(
        &self,
        _state: &mut State,
        _at: &SenderView,
        _window: &Window,
        _srtt_us: u32,
    ) -> Option<u64> {
        None
    }

    /// True if connections keep to the pacing rate whatever the settings say, from the choice of
    /// this algorithm on.
    fn paces(&self) -> bool {
        false
    }

    /// True if connections negotiate ECN whatever the settings say (RFC 3168), as for DCTCP.
    fn wants_ecn(&self) -> bool {
        false
    }
}
