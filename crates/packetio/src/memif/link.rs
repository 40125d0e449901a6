//! An established connection: its regions and, for each queue, both rings from our side.
//!
//! The handshakes make it. The control object and every port that uses it hold it, so the memory
//! stays mapped until the last one lets go.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::limits::FRAME_BYTES_MAX;
use super::region_unsafe::{Region, Window};
use super::ring_unsafe::RingMemory;

/// A change of the connection that reading the control channel found.
#[derive(Debug)]
pub enum Change {
    /// A connection was established.
    Up(Link),
    /// The connection ended, for this reason.
    Down(String),
    /// A connection attempt failed, for this reason.
    Refused(String),
}

/// The buffers of a ring that we own as client: slot `i` always has the one at `offset + i *
/// stride` of region 0.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Offset of slot 0's buffer.
    pub offset: u32,
    /// Bytes from one buffer to the next.
    pub stride: u32,
    /// Usable bytes of each buffer.
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
    /// Eventfd of the ring's interrupt: the sender writes it and the receiver reads it.
    pub bell: Arc<OwnedFd>,
    /// Our buffers as client. `None` as server: the descriptors name the buffers.
    pub buffers: Option<Buffers>,
}

/// Both rings of one queue; a ring that the peer lacks is `None`.
#[derive(Clone, Debug, Default)]
pub struct QueuePair {
    /// The ring on which we receive.
    pub rx: Option<RingEnd>,
    /// The ring on which we send.
    pub tx: Option<RingEnd>,
}

/// An established connection.
#[derive(Debug)]
pub struct Link {
    /// The mapped regions, by index.
    pub regions: Arc<[Arc<Region>]>,
    /// The queues, by index.
    pub queues: Box<[QueuePair]>,
    /// The peer's name for itself, with printable characters only.
    pub peer: String,
}

impl Link {
    /// The bounds of all regions, for checks of descriptors.
    pub fn window(&self) -> Window {
        Window::new(&self.regions)
    }
}

/// An action that no honest peer takes. The connection ends with this reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolViolation {
    /// A cursor ran past the slots lent.
    #[error("Invalid ring cursor")]
    Cursor,
    /// A transmit buffer is empty or exceeds its region.
    #[error("Invalid buffer descriptor")]
    Buffer,
}

/// Counters of a port; every kind of drop has one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Frames delivered to the caller.
    pub rx_frames: u64,
    /// Bytes delivered to the caller.
    pub rx_bytes: u64,
    /// Frames handed to the peer.
    pub tx_frames: u64,
    /// Bytes handed to the peer.
    pub tx_bytes: u64,
    /// Received frames that were assembled from a chain.
    pub rx_chained: u64,
    /// Received chains dropped: unfinished, too long, or with an invalid part.
    pub rx_dropped_chain: u64,
    /// Received descriptors dropped: empty, too long, or outside of their region.
    pub rx_dropped_descriptor: u64,
    /// Sent frames dropped because no buffer could hold them.
    pub tx_dropped_no_buffer: u64,
    /// Sent frames dropped because the connection had just ended.
    pub tx_dropped_disconnected: u64,
    /// Frames sent through the staging buffer.
    pub tx_staged: u64,
    /// Bells rung for a sleeping peer.
    pub tx_bells: u64,
    /// Connections that came up.
    pub connects: u64,
    /// Connections that went down.
    pub disconnects: u64,
    /// Connections that we ended because the peer lied.
    pub peer_lies: u64,
}

const _: () = assert!(FRAME_BYTES_MAX <= u32::MAX as usize);
