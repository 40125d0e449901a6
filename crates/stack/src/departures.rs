//! Transmit path: which connection sends next and how much, and how its segments become frames in
//! the driver's own buffers.

pub(crate) mod ack_trains;
pub(crate) mod large_out;
mod local_out;
mod open_frame;
pub(crate) mod packet_out;
pub(crate) mod tcp_out;

use packetio::local_queue::LocalQueue;
use packetio::{Capabilities, TxFrame};
use wire::ethernet;

use crate::engine::Engine;
use crate::limits::TX_FRAMES_AHEAD_MIN;

/// How readily a port has taken the frames of recent turns.
#[derive(Clone, Copy)]
pub(crate) struct PortAcceptance {
    /// Time at which the port last took a frame, ns.
    pub took_ns: u64,
    /// Turns since then in which the port had no room.
    pub refusals: u32,
    /// Time of the first of these turns, ns.
    refuses_since_ns: u64,
}

/// The state of the stages that send frames by one port.
pub(crate) struct Departures {
    port: u8,
    acceptance: PortAcceptance,
    /// True if the port computes checksums.
    offload: bool,
    /// Largest IP packet that the port cuts into segments, bytes; 0: it cuts none. Valid for the
    /// current batch, whose slots may be shorter than the port's limit.
    segment_bytes_max: u32,
    /// The port's own limit for packets that it cuts, bytes; 0 if it takes them only by the bulk
    /// lane.
    port_segment_bytes_max: u32,
    /// Largest IP packet that the port takes by its bulk lane and cuts, bytes; 0 without such a
    /// lane.
    bulk_bytes_max: u32,
    /// True if this turn visited so many connections that the nearest cache has lost the first of
    /// them.
    pub is_crowded: bool,
    /// Number of slots that the next batch reserves.
    frames_ahead: usize,
    /// Length of the longest frame that the stack builds, bytes.
    frame_bytes: usize,
    /// The kind of segment that the last small batch began with.
    tx_next: usize,
}

impl Departures {
    /// The index of the port.
    #[inline]
    pub fn port(&self) -> u8 {
        self.port
    }

    /// How readily the port has taken the frames of recent turns.
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
            port_segment_bytes_max: match port.tx_checksum_offload {
                true => segment_bytes_max,
                false => 0,
            },
            // A port without checksum offload cuts packets, and makes their checksums, only in its
            // bulk lane.
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

    /// Sets the largest packet by the slots of this batch: the port may have run out of large
    /// buffers.
    #[cold]
    #[inline(never)]
    fn fit_segments(&mut self, frame: &TxFrame) {
        let room = frame.capacity_max().saturating_sub(ethernet::HEADER_LEN);
        self.segment_bytes_max = self.port_segment_bytes_max.min(room as u32);
    }

    /// True if something is ready to leave by this port, ACK trains not counted.
    #[inline]
    pub fn has_output(&self, engine: &Engine) -> bool {
        let view = engine.view();
        view.schedule.has_output(self.port) || view.network.has_frames(self.port)
    }
}
