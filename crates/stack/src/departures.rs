//! Frames that leave: which connection sends next and how much, and how its segments become frames
//! in the driver's own buffers.

pub(crate) mod ack_trains;
pub(crate) mod large_out;
mod local_out;
pub(crate) mod packet_out;
pub(crate) mod tcp_out;

use packetio::Capabilities;
use packetio::local_queue::LocalQueue;

use crate::engine::Engine;
use crate::limits::TX_FRAMES_AHEAD_MIN;

/// A port's acceptance of the last turns' frames.
#[derive(Clone, Copy)]
pub(crate) struct PortAcceptance {
    /// When it last took a frame.
    pub took_ns: u64,
    /// Turns since in which it had no room.
    pub refusals: u32,
    /// When the first of them was.
    refuses_since_ns: u64,
}

/// The state of the stages that send frames by one port.
pub(crate) struct Departures {
    port: u8,
    acceptance: PortAcceptance,
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

    /// The port's acceptance of the last turns' frames.
    #[inline]
    pub fn acceptance(&self) -> &PortAcceptance {
        &self.acceptance
    }

    pub fn new(index: u8, port: &Capabilities, now_ns: u64) -> Self {
        let segment_bytes_max = match port.segment_bytes_max > port.mtu {
            true => port.segment_bytes_max as u32,
            false => 0,
        };
        Self {
            port: index,
            acceptance: PortAcceptance {
                took_ns: now_ns,
                refusals: 0,
                refuses_since_ns: 0,
            },
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

    /// Something is ready to leave by this port, ACK trains apart.
    #[inline]
    pub fn has_output(&self, engine: &Engine) -> bool {
        let view = engine.view();
        view.schedule.has_output(self.port) || view.network.has_frames(self.port)
    }
}
