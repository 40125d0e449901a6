//! The sample of the path that one ACK gives to an algorithm that learns from every ACK. The
//! connection fills it in; BBR reads it, and an algorithm from outside gets a report of it.

use super::CaState;
use crate::recovery::rate::RateSample;

/// The path as one ACK shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathSample {
    /// The delivery rate that the ACK sampled.
    pub rate: RateSample,
    /// Segments that the ACK delivered, and segments found lost with it.
    pub delivered: u32,
    pub lost: u32,
    /// Segments in flight before the ACK, and now.
    pub prior_in_flight: u32,
    pub in_flight: u32,
    /// Round trip of the latest segment that the ACK acknowledged.
    pub rtt_us: Option<u32>,
    /// Least round trip of the last minutes; `u32::MAX`: none measured.
    pub rtt_us_min: u32,
    /// The receiver probably delayed the ACK.
    pub maybe_delayed: bool,
    /// The state of loss recovery now.
    pub state: CaState,
    /// Time at which the next burst may leave.
    pub departure_ns: u64,
}
