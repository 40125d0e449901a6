//! Frames that leave: which connection sends next and how much, and how its segments become frames
//! in the driver's own buffers.

pub(crate) mod ack_trains;
pub(crate) mod large_out;
mod local_out;
pub(crate) mod packet_out;
pub(crate) mod tcp_out;

use packetio::Capabilities;
use packetio::local_queue::LocalQueue;

use crate::limits::TX_FRAMES_AHEAD_MIN;
use crate::network::layer::Network;
use crate::schedule::Schedule;

/// The state of the stages that send frames by one port.
pub(crate) struct Departures {
    port: u8,
    /// The port computes checksums.
    offload: bool,
    /// Largest IP packet that the port cuts into segments, bytes; 0: it cuts none.
    segment_bytes_max: u32,
    /// The same, of a port that takes such packets by a lane of their own; else 0.
    bulk_bytes_max: u32,
    /// True if this turn visited so many connections that the nearest cache has lost the first of
    /// them.
    pub is_crowded: bool,
    /// Slots that the next batch reserves.
    frames_ahead: usize,
    /// Longest frame that is built, bytes.
    frame_bytes: usize,
    /// The kind of segment that came first in the last small batch.
    tx_next: usize,
}

impl Departures {
    /// The index of the port.
    #[inline]
    pub fn port(&self) -> u8 {
        self.port
    }

    pub fn new(index: u8, port: &Capabilities) -> Self {
        let segment_bytes_max = match port.segment_bytes_max > port.mtu {
            true => port.segment_bytes_max as u32,
            false => 0,
        };
        Self {
            port: index,
            offload: port.tx_checksum_offload,
            segment_bytes_max,
            // Cutting segments includes making their checksums, which such a port does in one lane.
            bulk_bytes_max: match port.tx_checksum_offload {
                true => 0,
                false => segment_bytes_max,
            },
            is_crowded: false,
            frames_ahead: TX_FRAMES_AHEAD_MIN,
            frame_bytes: LocalQueue::frame_bytes(port),
            tx_next: 0,
        }
    }
}

/// Something is ready to leave by `port`, ACK trains apart.
pub(crate) fn has_output(network: &Network, schedule: &Schedule, port: u8) -> bool {
    schedule.has_output(port) || network.has_frames(port)
}
