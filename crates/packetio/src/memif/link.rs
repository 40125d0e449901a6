//! A connection that is up: its regions and, for each queue, the two rings seen from our side.
//!
//! Made by the handshakes, held by the control object and by every port that uses it, so that the
//! memory stays mapped until the last of them lets go.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::limits::FRAME_BYTES_MAX;
use super::region_unsafe::{Region, Window};
use super::ring_unsafe::RingMemory;

/// A change of the link, as one look at the control channel found it.
#[derive(Debug)]
pub enum Change {
    /// A connection came up.
    Up(Link),
    /// The connection went down, for this reason.
    Down(String),
    /// The connection did not come up, for this reason.
    Refused(String),
}

/// The buffers of a ring that we own as client: slot `i` has the one at `offset + i * stride` of
/// region 0, always.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Offset of slot 0's buffer.
    pub offset: u32,
    /// Bytes from one buffer to the next.
    pub stride: u32,
    /// Usable bytes of each.
    pub bytes: u32,
}

impl Buffers {
    /// Offset of the buffer of `slot`.
    #[inline]
    pub fn at(&self, slot: u16) -> u32 {
        self.offset + u32::from(slot) * self.stride
    }
}

/// One ring of a queue.
#[derive(Clone, Debug)]
pub struct RingEnd {
    /// The ring.
    pub ring: RingMemory,
    /// Its interrupt: an eventfd that the sender writes and the receiver reads.
    pub bell: Arc<OwnedFd>,
    /// As client, our buffers; as server, `None`: buffers are where the descriptors say.
    pub buffers: Option<Buffers>,
}

/// The rings of one queue, as far as the peer has them.
#[derive(Clone, Debug, Default)]
pub struct QueuePair {
    /// Where we receive.
    pub rx: Option<RingEnd>,
    /// Where we send.
    pub tx: Option<RingEnd>,
}

/// A connection that is up.
#[derive(Debug)]
pub struct Link {
    /// The regions, by index.
    pub regions: Arc<[Arc<Region>]>,
    /// The rings, by queue.
    pub queues: Box<[QueuePair]>,
    /// The peer's name for itself, printable.
    pub peer: String,
}

impl Link {
    /// The bounds of all regions.
    pub fn window(&self) -> Window {
        Window::new(&self.regions)
    }
}

/// A deed of the peer that no honest peer does. The connection ends with this reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lie {
    /// A cursor ran past what was lent.
    #[error("Invalid ring cursor")]
    Cursor,
    /// A transmit buffer is empty or not within its region.
    #[error("Invalid buffer descriptor")]
    Buffer,
}

/// Counters of a port; every drop has one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Frames handed up.
    pub rx_frames: u64,
    /// Bytes handed up.
    pub rx_bytes: u64,
    /// Frames handed to the peer.
    pub tx_frames: u64,
    /// Bytes handed to the peer.
    pub tx_bytes: u64,
    /// Received frames that were put together from a chain.
    pub rx_chained: u64,
    /// Received chains dropped: unfinished, too long, or with a bad part.
    pub rx_dropped_chain: u64,
    /// Received descriptors dropped: no bytes, too many, or not within their region.
    pub rx_dropped_descriptor: u64,
    /// Frames to send that were dropped since no buffer held them.
    pub tx_dropped_no_buffer: u64,
    /// Frames to send that were dropped since the connection had just gone.
    pub tx_dropped_disconnected: u64,
    /// Frames sent through the staging buffer.
    pub tx_staged: u64,
    /// Bells rung for a sleeping peer.
    pub tx_bells: u64,
    /// Connections that came up.
    pub connects: u64,
    /// Connections that went down.
    pub disconnects: u64,
    /// Connections that we ended since the peer lied.
    pub peer_lies: u64,
}

const _: () = assert!(FRAME_BYTES_MAX <= u32::MAX as usize);
