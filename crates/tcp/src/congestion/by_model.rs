//! A connection whose algorithm models the path: window, pacing rate and marks follow the model, and what else moves a
//! window (growth, PRR, decay, restart after idleness) keeps away.
//!
//! Called by `recovery` and `output` where they would move the window themselves. For all other algorithms each call
//! costs a look at which one it is.

use super::bbr::Bbr;
use super::{Algorithm, CaState};
use crate::recovery::rate::RateSample;

/// What one ACK told of the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathSample {
    /// The delivery rate that it sampled.
    pub rate: RateSample,
    /// Segments that it delivered, and that were found lost with it.
    pub delivered: u32,
    pub lost: u32,
    /// Segments in flight before it, and now.
    pub prior_in_flight: u32,
    pub in_flight: u32,
    /// Round trip of the latest segment that it acknowledged.
    pub rtt_us: Option<u32>,
    /// It was probably delayed by the receiver.
    pub maybe_delayed: bool,
    /// The state of loss recovery now.
    pub state: CaState,
    /// When the next burst may leave.
    pub departure_ns: u64,
}

impl Algorithm {
    /// The algorithm, if it models the path.
    #[inline]
    pub fn model(&mut self) -> Option<&mut Bbr> {
        match self {
            Algorithm::Bbr(bbr) => Some(bbr),
            _ => None,
        }
    }

    /// It models the path.
    #[inline]
    pub fn is_model(&self) -> bool {
        matches!(self, Algorithm::Bbr(_))
    }
}
