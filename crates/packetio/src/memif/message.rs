//! Messages of the control channel: bytes ⇄ values.
//!
//! Each message is one packet of exactly 128 bytes on a UNIX SOCK_SEQPACKET socket. Fields are
//! packed without padding, in the host's byte order, because both ends are on one host. Unused
//! bytes are zero. Both handshakes use the module.
//!
//! ```text
//! server                         client
//!   HELLO ───────────────────────▶        versions, most regions and rings (as largest index)
//!   ◀─────────────────────── INIT         version, interface id, mode, secret
//!   ◀───────────────── ADD_REGION         index, size               + memfd
//!   ◀─────────────────── ADD_RING         direction, index, place   + eventfd
//!   ◀──────────────────── CONNECT         (each of these four: answered by ACK, but CONNECT by)
//!   CONNECTED ───────────────────▶
//!   ◀──────────────── DISCONNECT ─▶       code, reason
//! ```

use crate::text::Text;

/// Bytes of every message.
pub const MESSAGE_LEN: usize = 128;
/// Version 2.0 of the protocol.
pub const VERSION: u16 = 0x0200;
/// Interface mode: Ethernet frames.
pub const MODE_ETHERNET: u8 = 0;
/// Flag of ADD_RING: frames go from client to server.
pub const RING_FLAG_CLIENT_TO_SERVER: u16 = 1;

const NAME_LEN: usize = 32;
const SECRET_LEN: usize = 24;
const REASON_LEN: usize = 96;

const TYPE_ACK: u16 = 1;
const TYPE_HELLO: u16 = 2;
const TYPE_INIT: u16 = 3;
const TYPE_ADD_REGION: u16 = 4;
const TYPE_ADD_RING: u16 = 5;
const TYPE_CONNECT: u16 = 6;
const TYPE_CONNECTED: u16 = 7;
const TYPE_DISCONNECT: u16 = 8;

/// The properties of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Name of the server program.
    pub name: Text<NAME_LEN>,
    /// Lowest version that the server speaks.
    pub version_min: u16,
    /// Highest version that the server speaks.
    pub version_max: u16,
    /// Largest region index.
    pub region_index_max: u16,
    /// Largest index of a server-to-client ring.
    pub server_to_client_index_max: u16,
    /// Largest index of a client-to-server ring.
    pub client_to_server_index_max: u16,
    /// Log2 of the most slots in a ring.
    pub ring_slots_log2_max: u8,
}

/// The interface that a client wants, and the client's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    /// Version of the protocol to use.
    pub version: u16,
    /// Id of the interface.
    pub id: u32,
    /// Mode: [`MODE_ETHERNET`], or one that we do not support.
    pub mode: u8,
    /// Shared secret; empty if there is none.
    pub secret: Text<SECRET_LEN>,
    /// Name of the client program.
    pub name: Text<NAME_LEN>,
}

/// A ring within a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddRing {
    /// [`RING_FLAG_CLIENT_TO_SERVER`] or 0.
    pub flags: u16,
    /// Index among the rings of its direction.
    pub index: u16,
    /// Index of the region that holds the ring.
    pub region: u16,
    /// Bytes from the region's start to the ring's header.
    pub offset: u32,
    /// Log2 of the number of slots.
    pub slots_log2: u8,
    /// Bytes of private metadata per buffer.
    pub private_header_bytes: u16,
}

/// A message of the control channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The last message was accepted.
    Ack,
    /// The server's first message.
    Hello(Hello),
    /// The client's first message.
    Init(Init),
    /// A memory region; its descriptor accompanies the message.
    AddRegion {
        /// Index of the region.
        index: u16,
        /// Size of the region, bytes.
        size: u64,
    },
    /// A ring; the descriptor of its interrupt accompanies the message.
    AddRing(AddRing),
    /// Everything has been announced.
    Connect {
        /// The client's name of the interface.
        interface: Text<NAME_LEN>,
    },
    /// The connection is established.
    Connected {
        /// The server's name of the interface.
        interface: Text<NAME_LEN>,
    },
    /// The end of the connection.
    Disconnect {
        /// An error code; 0: none.
        code: u32,
        /// The reason, as text for people.
        reason: Text<REASON_LEN>,
    },
}

/// The reason why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The length is not 128 bytes.
    #[error("Invalid message size")]
    Length,
    /// Version 2 has no such message type.
    #[error("Unknown message type")]
    Type,
    /// The number of descriptors is wrong for the message.
    #[error("Unexpected descriptors")]
    Descriptors,
}

impl Message {
    /// Makes a DISCONNECT with `reason`.
    pub fn disconnect(reason: &str) -> Self {
        Self::Disconnect {
            code: 0,
            reason: Text::new(reason),
        }
    }

    /// True if a descriptor accompanies the message.
    pub fn takes_descriptor(&self) -> bool {
        matches!(self, Self::AddRegion { .. } | Self::AddRing(_))
    }

    /// Encodes the message.
    pub fn encode(&self) -> [u8; MESSAGE_LEN] {
        let mut w = Writer {
            bytes: [0; MESSAGE_LEN],
            at: 0,
        };
        match self {
            Self::Ack => w.u16(TYPE_ACK),
            Self::Hello(hello) => hello.encode(&mut w),
            Self::Init(init) => init.encode(&mut w),
            Self::AddRegion { index, size } => {
                w.u16(TYPE_ADD_REGION);
                w.u16(*index);
                w.put(&size.to_ne_bytes());
            }
            Self::AddRing(ring) => ring.encode(&mut w),
            Self::Connect { interface } => {
                w.u16(TYPE_CONNECT);
                w.put(&interface.0);
            }
            Self::Connected { interface } => {
                w.u16(TYPE_CONNECTED);
                w.put(&interface.0);
            }
            Self::Disconnect { code, reason } => {
                w.u16(TYPE_DISCONNECT);
                w.put(&code.to_ne_bytes());
                w.put(&reason.0);
            }
        }
        w.bytes
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// The length is wrong or the type is unknown.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let bytes: &[u8; MESSAGE_LEN] = bytes.try_into().map_err(|_| MessageError::Length)?;
        let mut r = Reader { bytes, at: 0 };
        Ok(match r.u16() {
            TYPE_ACK => Self::Ack,
            TYPE_HELLO => Self::Hello(Hello::decode(&mut r)),
            TYPE_INIT => Self::Init(Init::decode(&mut r)),
            TYPE_ADD_REGION => Self::AddRegion {
                index: r.u16(),
                size: u64::from_ne_bytes(r.take()),
            },
            TYPE_ADD_RING => Self::AddRing(AddRing::decode(&mut r)),
            TYPE_CONNECT => Self::Connect {
                interface: Text(r.take()),
            },
            TYPE_CONNECTED => Self::Connected {
                interface: Text(r.take()),
            },
            TYPE_DISCONNECT => Self::Disconnect {
                code: r.u32(),
                reason: Text(r.take()),
            },
            _ => return Err(MessageError::Type),
        })
    }
}

impl Hello {
    fn encode(&self, w: &mut Writer) {
        w.u16(TYPE_HELLO);
        w.put(&self.name.0);
        w.u16(self.version_min);
        w.u16(self.version_max);
        w.u16(self.region_index_max);
        w.u16(self.server_to_client_index_max);
        w.u16(self.client_to_server_index_max);
        w.put(&[self.ring_slots_log2_max]);
    }

    fn decode(r: &mut Reader<'_>) -> Self {
        Self {
            name: Text(r.take()),
            version_min: r.u16(),
            version_max: r.u16(),
            region_index_max: r.u16(),
            server_to_client_index_max: r.u16(),
            client_to_server_index_max: r.u16(),
            ring_slots_log2_max: r.u8(),
        }
    }
}

impl Init {
    fn encode(&self, w: &mut Writer) {
        w.u16(TYPE_INIT);
        w.u16(self.version);
        w.put(&self.id.to_ne_bytes());
        w.put(&[self.mode]);
        w.put(&self.secret.0);
        w.put(&self.name.0);
    }

    fn decode(r: &mut Reader<'_>) -> Self {
        Self {
            version: r.u16(),
            id: r.u32(),
            mode: r.u8(),
            secret: Text(r.take()),
            name: Text(r.take()),
        }
    }
}

impl AddRing {
    fn encode(&self, w: &mut Writer) {
        w.u16(TYPE_ADD_RING);
        w.u16(self.flags);
        w.u16(self.index);
        w.u16(self.region);
        w.put(&self.offset.to_ne_bytes());
        w.put(&[self.slots_log2]);
        w.u16(self.private_header_bytes);
    }

    fn decode(r: &mut Reader<'_>) -> Self {
        Self {
            flags: r.u16(),
            index: r.u16(),
            region: r.u16(),
            offset: r.u32(),
            slots_log2: r.u8(),
            private_header_bytes: r.u16(),
        }
    }
}

/// Appends fields. The longest message (DISCONNECT, 102 bytes) always fits.
struct Writer {
    bytes: [u8; MESSAGE_LEN],
    at: usize,
}

impl Writer {
    fn put(&mut self, field: &[u8]) {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
    }

    fn u16(&mut self, value: u16) {
        self.put(&value.to_ne_bytes());
    }
}

/// Reads fields in order. The longest message always fits.
struct Reader<'a> {
    bytes: &'a [u8; MESSAGE_LEN],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        field
    }

    fn u8(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }
}

const _: () = assert!(
    2 + 4 + REASON_LEN <= MESSAGE_LEN && 2 + 2 + 4 + 1 + SECRET_LEN + NAME_LEN <= MESSAGE_LEN
);

#[cfg(test)]
mod tests;
