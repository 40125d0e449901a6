//! The packets between a reader and the agent: a header of 16 bytes, then a body.
//!
//! ```text
//!  0 version  2 kind  4 request  8 slot  10 errno  12 body bytes
//! ```
//!
//! Numbers are in the machine's byte order, because both ends run on it. An answer carries the
//! number and kind of its request. A kind from [`kind::CONTEXT_FIRST`] on goes to the context at
//! `slot`.

use rustix::io::Errno;

/// Version of the packet format. It changes whenever this module changes.
pub const VERSION: u16 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 16;

/// The kinds of requests.
pub mod kind {
    /// Hand over the statistics file. The answer brings its descriptor.
    pub const STATISTICS: u16 = 1;
    /// The first kind that a context answers.
    pub const CONTEXT_FIRST: u16 = 16;
    /// Copy all values to the statistics file now. The answer is empty.
    pub const PUBLISH: u16 = 16;
    /// The first kind that belongs to `mill ss` and `mill capture`.
    pub const TOOLS_FIRST: u16 = 32;
    /// Give the next flows of a walk (`stack::survey::request`).
    pub const LIST: u16 = 32;
    /// End a flow that a walk gave.
    pub const KILL: u16 = 33;
    /// Give the story of a connection that a walk gave (`stack::survey::story`).
    pub const STORY: u16 = 40;
    /// Give the counts of the next packet rules (`stack::rules::counts`).
    pub const RULES: u16 = 41;
    /// Log frames for a while, and hand over the log. The body holds the bytes to keep of each
    /// frame (4 bytes), the port's number and a filter (`packetio::frame_filter::encode`).
    pub const CAPTURE: u16 = 34;
}

/// The header of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// One of [`kind`].
    pub kind: u16,
    /// The reader's number for the request.
    pub request: u32,
    /// The context, by the index of its vector in the statistics file.
    pub slot: u16,
    /// 0, or the errno that explains why there is no answer.
    pub errno: u16,
    /// Bytes behind the header.
    pub body_bytes: u32,
}

impl Header {
    /// The header in the form in which it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&VERSION.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.kind.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.request.to_ne_bytes());
        bytes[8..10].copy_from_slice(&self.slot.to_ne_bytes());
        bytes[10..12].copy_from_slice(&self.errno.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.body_bytes.to_ne_bytes());
        bytes
    }

    /// Splits a packet into header and body. The body may have at most `body_bytes_max` bytes.
    ///
    /// # Errors
    /// `PROTO` for another version; `MSGSIZE` for a length that is too large or not the packet's.
    pub fn decode(packet: &[u8], body_bytes_max: usize) -> Result<(Self, &[u8]), Errno> {
        let (head, body) = packet
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(Errno::MSGSIZE)?;
        let half = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if half(0) != VERSION {
            return Err(Errno::PROTO);
        }
        let header = Self {
            kind: half(2),
            request: word(4),
            slot: half(8),
            errno: half(10),
            body_bytes: word(12),
        };
        if header.body_bytes as usize != body.len() || body.len() > body_bytes_max {
            return Err(Errno::MSGSIZE);
        }
        Ok((header, body))
    }
}
