//! Frames that leave: which connection sends next and how much, and how its segments become frames
//! in the driver's own buffers.

pub(crate) mod ack_trains;
pub(crate) mod packet_out;
pub(crate) mod tcp_out;

use crate::limits::TX_FRAMES_AHEAD_MIN;

/// The state of the stages that send frames.
pub(crate) struct Departures {
    /// The port computes checksums.
    offload: bool,
    /// This turn saw so many connections that the nearest cache has lost the first of them.
    pub is_crowded: bool,
    /// Slots that the next batch reserves.
    frames_ahead: usize,
    /// Which kind of segment came first in the last small batch.
    tx_next: usize,
}

impl Departures {
    pub fn new(offload: bool) -> Self {
        Self {
            offload,
            is_crowded: false,
            frames_ahead: TX_FRAMES_AHEAD_MIN,
            tx_next: 0,
        }
    }
}
