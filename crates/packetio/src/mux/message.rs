//! The messages between an application and `mill mux`: bytes ⇄ values.
//!
//! Owns nothing. Each message is one packet of exactly [`MESSAGE_LEN`] bytes on a UNIX
//! SOCK_SEQPACKET socket: version, type, then the fields of the type without padding, then zeros. A
//! value has one encoding: bytes that decode encode to the same bytes again. At most one descriptor
//! rides along, and only with the types that say so. Called by the service and by the `mux` port.
//!
//! ```text
//! application                         service
//!   Hello ───────────────────────────────▶   name, contexts; or Join, with the family's socket
//!   ◀─────────────────────────── Welcome     number, MAC, MTU, checksum policy
//!   ◀──────────────────────────── Change …   addresses, routes, link; Change::Complete ends the list
//!   Memory ──────────────────────────────▶   one per context, with the sealed memory file; or
//!   PortAsk ─────────────────────────────▶   without one, as Welcome says
//!   ◀──────────────────────────── Ledger     with the memory for the list of its connections
//!   ◀────────────────────────────── Port     with the bound AF_XDP socket, or a memif channel
//!   BulkAsk ─────────────────────────────▶   a context that has its port wants a bulk lane, too
//!   ◀───────────────────── Bulk, Refused     with the TAP of the lane
//!   Claim, Release, Lease, Return, Resolve ▶   each with a request number
//!   ◀────── Granted, Refused, Leased, NextHop     with the same number
//!   ◀──────────── Change, Revoke, Stopping     at any time
//!   Move ────────────────────────────────▶   with a file that holds an unaccepted connection
//!   ◀──────────────────────────────── Move   to another process of the application
//!   Granted, Refused ─────────────────────▶   its answer, which the first process gets, too
//!
//! after the service was restarted
//!   Hello ───────────────────────────────▶
//!   ◀─────────── Welcome, Change::Complete
//!   Recover ─────────────────────────────▶   one per context, with the socket that Port brought
//!   ◀────────────────── Granted or Refused
//!   ◀────────────────────────────── Port     once more, where it is a memif channel
//!   Claim, Lease, Resolve ─────────────────▶   once more
//!
//! a person's `mill mux status`
//!   Query ───────────────────────────────▶
//!   ◀──────────────────────────── Answer     with a file that holds JSON
//! ```

use std::net::{IpAddr, SocketAddr};

pub use super::field::{MESSAGE_LEN, MessageError, VERSION};
use super::field::{Reader, Writer};
pub use crate::host::{Change, Route};
use crate::port::{ChecksumPolicy, MacAddr};
use crate::text::Text;
pub use crate::xdp::Memory;

/// The context of a claim by a process that holds a place, and does not listen there yet.
pub const HOLD: u16 = u16::MAX;
/// Bytes of a program's name.
pub const NAME_LEN: usize = 32;
/// Bytes of an interface's name, with the terminating zero.
pub const INTERFACE_LEN: usize = 16;
/// IP protocol number of TCP, the only protocol that can be claimed.
pub const PROTOCOL_TCP: u8 = 6;

/// The application's first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The program's name, for `mill mux status`.
    pub name: Text<NAME_LEN>,
    /// Contexts of the application, each with a queue of its own.
    pub contexts: u16,
}

/// The answer to [`Hello`]: the application's number and what the NIC is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The application's number. A restarted service is told it by [`Message::Recover`].
    pub application: u16,
    /// The NIC's MAC address: the source of every frame.
    pub mac: MacAddr,
    /// The NIC's MTU in bytes.
    pub mtu: u32,
    /// The duty of the application about checksums of received frames.
    pub rx_checksum: ChecksumPolicy,
    /// Whether the link is up.
    pub link_is_up: bool,
    /// The NIC's index.
    pub ifindex: u32,
    /// The NIC's name.
    pub interface: Text<INTERFACE_LEN>,
    /// Most connections that a ledger may hold.
    pub ledger_entries_max: u32,
    /// The kind of the service's virtual ports: whether contexts send [`Message::Memory`] or
    /// [`Message::PortAsk`].
    pub kind: PortKind,
}

/// The kind of a virtual port, and so of the socket that rides along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// A bound AF_XDP socket over the memory that the application has sent.
    Xdp,
    /// The client's end of a memif control channel (`path=memif`).
    Memif,
}

/// The socket of one context; it rides along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualPort {
    /// The context, from 0.
    pub context: u16,
    /// The socket's `SO_COOKIE`.
    pub cookie: u64,
    /// The socket's kind.
    pub kind: PortKind,
}

/// A 3-tuple. An unspecified address stands for all addresses of the NIC, of its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    /// IP protocol: [`PROTOCOL_TCP`].
    pub protocol: u8,
    /// Local address, or unspecified for all of them.
    pub address: IpAddr,
    /// Local port.
    pub port: u16,
}

/// A request about one 3-tuple and one context that listens on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The application's number for the request.
    pub request: u32,
    /// The context that listens; [`HOLD`]: none, SYNs wait.
    pub context: u16,
    /// The tuple that is claimed or released.
    pub tuple: Tuple,
}

/// A block of local ports that belongs to one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The application's number for the request.
    pub request: u32,
    /// The context.
    pub context: u16,
    /// First port; 0 in a request, since the service chooses.
    pub first: u16,
    /// How many ports.
    pub ports: u16,
}

/// A connection that moves to another process of the application: it was not accepted before its
/// listener was closed. A sealed memory file with it rides along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The number for the request, of the end that sends this message.
    pub request: u32,
    /// The context that has the connection; to the other process: the one that gets it.
    pub context: u16,
    /// The place at which it was to be accepted.
    pub tuple: Tuple,
    /// This host's address of the connection; the place has its port.
    pub local: IpAddr,
    /// The peer's end, of the same family.
    pub remote: SocketAddr,
    /// Bytes of the file.
    pub bytes: u32,
}

/// A question of `mill mux` to a service that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// Applications with pid, uid, ports, contexts, packets and drops.
    Status,
    /// Every claim and lease.
    Ports,
    /// Counters of drops by reason.
    Drops,
    /// A test of every hop of the data path. Only root and the service's own user may ask.
    Check,
    /// End the service and remove what it built. Only root and the service's own user may.
    Stop,
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The application's first message.
    Hello(Hello),
    /// The first message of a process that may be one of several of its application. A socket
    /// rides along: those that send the same one belong together.
    Join(Hello),
    /// The service's answer.
    Welcome(Welcome),
    /// Memory of a context; the file rides along.
    Memory(Memory),
    /// A request for the virtual port of a context that brings no memory for AF_XDP, where ports
    /// are memif channels.
    PortAsk {
        /// The context, from 0.
        context: u16,
        /// Connections that the context's ledger is to hold; 0: no ledger.
        ledger_entries: u32,
    },
    /// The socket of a context; it rides along.
    Port(VirtualPort),
    /// A claim of a 3-tuple.
    Claim(Claim),
    /// A claim that holds a place. A socket of the kernel's rides along: the process's own one,
    /// which is bound there and keeps the place in the kernel.
    Bound(Claim),
    /// The request with this number is granted.
    Granted {
        /// The application's number for the request.
        request: u32,
    },
    /// The request with this number is refused.
    Refused {
        /// The application's number for the request; 0 for what has none.
        request: u32,
        /// Why, as an errno of Linux.
        errno: u16,
    },
    /// A claim ends.
    Release(Claim),
    /// A request for local ports.
    Lease(Lease),
    /// Local ports for a context.
    Leased(Lease),
    /// Local ports that the application has no use for.
    Return(Lease),
    /// A request for the MAC address of a next hop.
    Resolve {
        /// The application's number for the request.
        request: u32,
        /// The next hop.
        address: IpAddr,
    },
    /// The answer to [`Message::Resolve`]. Frames to the next hop pass from now on.
    NextHop {
        /// The application's number for the request.
        request: u32,
        /// The next hop.
        address: IpAddr,
        /// Its MAC address.
        mac: MacAddr,
    },
    /// Something about the NIC changed.
    Change(Change),
    /// A connection for another process; the file with it rides along.
    Move(Move),
    /// Memory for the list of a context's connections; it rides along. The service makes and keeps
    /// it, so that the list survives if both ends die.
    Ledger {
        /// The context, from 0.
        context: u16,
        /// Bytes of the list.
        bytes: u64,
    },
    /// A request for the bulk lane of a context that has its virtual port.
    BulkAsk {
        /// The application's number for the request.
        request: u32,
        /// The context, from 0.
        context: u16,
    },
    /// The bulk lane of a context: a TAP with a virtio header, to be written to; its descriptor
    /// rides along.
    Bulk {
        /// The application's number for the request.
        request: u32,
    },
    /// A context that outlived the service; the socket that [`Message::Port`] brought rides along.
    Recover {
        /// The application's number for the request.
        request: u32,
        /// The number that [`Welcome`] named.
        application: u16,
        /// The context.
        context: u16,
    },
    /// A context knows no flow between these ends, and listens at the first of them no more: the
    /// flow's next SYN is for another context. Nothing answers.
    Forget {
        /// The context.
        context: u16,
        /// This host's end.
        local: SocketAddr,
        /// The peer's end.
        remote: SocketAddr,
    },
    /// A 3-tuple was taken away.
    Revoke {
        /// Which.
        tuple: Tuple,
        /// Why, as an errno of Linux.
        errno: u16,
    },
    /// The service ends.
    Stopping {
        /// Whether the data path stays, so that connections go on and a new service can take over.
        stays: bool,
    },
    /// A question of a person's.
    Query {
        /// The asker's number for it.
        request: u32,
        /// The question.
        query: Query,
    },
    /// The answer, as JSON in a file that rides along.
    Answer {
        /// The asker's number for the question.
        request: u32,
        /// Bytes of the file.
        bytes: u64,
    },
}

mod layout;

impl Message {
    /// Whether exactly one descriptor belongs to the message; no other message has any.
    pub fn takes_descriptor(&self) -> bool {
        matches!(
            self,
            Self::Join(_)
                | Self::Memory(_)
                | Self::Port(_)
                | Self::Ledger { .. }
                | Self::Bulk { .. }
                | Self::Recover { .. }
                | Self::Answer { .. }
                | Self::Move(_)
                | Self::Bound(_)
        )
    }

    /// The bytes of the message.
    pub fn encode(&self) -> [u8; MESSAGE_LEN] {
        let mut writer = Writer::new();
        writer.u16(VERSION);
        writer.u16(self.number());
        layout::write(self, &mut writer);
        writer.finish()
    }

    /// The message in `bytes`.
    ///
    /// # Errors
    /// A wrong length or version, an unknown type, a value that a field cannot have.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let bytes: &[u8; MESSAGE_LEN] = bytes.try_into().map_err(|_| MessageError::Length)?;
        let mut reader = Reader::new(bytes);
        let version = reader.u16();
        if version != VERSION {
            return Err(MessageError::Version(version));
        }
        let number = reader.u16();
        let message = layout::read(number, &mut reader)?;
        // Comparing with the one encoding covers padding, unused octets of an address and flags.
        match message.encode() == *bytes {
            true => Ok(message),
            false => Err(MessageError::Padding),
        }
    }
}

#[cfg(test)]
mod tests;
