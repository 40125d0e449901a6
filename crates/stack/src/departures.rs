//! Frames that leave: which connection sends next and how much, and how its segments become frames
//! in the driver's own buffers.

pub(crate) mod ack_trains;
pub(crate) mod large_out;
pub(crate) mod packet_out;
pub(crate) mod tcp_out;

use packetio::Capabilities;

use crate::limits::TX_FRAMES_AHEAD_MIN;

/// The state of the stages that send frames by one port.
pub(crate) struct Departures {
    port: u8,
    /// The port computes checksums.
    offload: bool,
    /// Largest IP packet that the port cuts into segments, bytes; 0: it cuts none.
    segment_bytes_max: u32,
    /// True if this turn visited so many connections that the nearest cache has lost the first of
    /// them.
    pub is_crowded: bool,
    /// Slots that the next batch reserves.
    frames_ahead: usize,
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
        // A port that cuts segments makes their checksums.
        let cuts = port.tx_checksum_offload && port.segment_bytes_max > port.mtu;
        Self {
            port: index,
            offload: port.tx_checksum_offload,
            segment_bytes_max: if cuts {
                port.segment_bytes_max as u32
            } else {
                0
            },
            is_crowded: false,
            frames_ahead: TX_FRAMES_AHEAD_MIN,
            tx_next: 0,
        }
    }
}
