//! Messages between an application and `mill mux`: bytes ⇄ values.
//!
//! Each message is one packet of exactly [`MESSAGE_LEN`] bytes on a UNIX SOCK_SEQPACKET socket:
//! version, type, the fields of the type without padding, then zeros. A value has one encoding:
//! valid bytes encode to themselves. At most one descriptor accompanies a message, and only certain
//! types have one. The service and the `mux` port use the module.
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
//!   Seek ────────────────────────────────▶   connections wait too long; passed on and answered
//!   Accepts ─────────────────────────────▶   the process accepts now
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

/// Context in the claim of a process that holds an address without listening there yet.
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
    /// Number of contexts of the application, each with its own queue.
    pub contexts: u16,
}

/// The answer to [`Hello`]: the application's number and the properties of the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The application's number, which it tells a restarted service in [`Message::Recover`].
    pub application: u16,
    /// MAC address of the NIC, which is the source of every frame.
    pub mac: MacAddr,
    /// The NIC's MTU in bytes.
    pub mtu: u32,
    /// How the application must treat checksums of received frames.
    pub rx_checksum: ChecksumPolicy,
    /// True if the link is up.
    pub link_is_up: bool,
    /// Interface index of the NIC.
    pub ifindex: u32,
    /// The NIC's name.
    pub interface: Text<INTERFACE_LEN>,
    /// Most connections that a ledger may hold.
    pub ledger_entries_max: u32,
    /// The kind of the service's virtual ports: it decides whether contexts send
    /// [`Message::Memory`] or [`Message::PortAsk`].
    pub kind: PortKind,
}

/// The kind of a virtual port, and of the socket that accompanies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// A bound AF_XDP socket over the memory that the application has sent.
    Xdp,
    /// The client's end of a memif control channel (`path=memif`).
    Memif,
}

/// The socket of one context, which accompanies the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualPort {
    /// Number of the context, from 0.
    pub context: u16,
    /// The socket's `SO_COOKIE`.
    pub cookie: u64,
    /// The socket's kind.
    pub kind: PortKind,
}

/// A 3-tuple. An unspecified address covers all addresses of the NIC of its family.
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
    /// The context that listens; [`HOLD`]: none yet, so SYNs wait.
    pub context: u16,
    /// The tuple that is claimed or released.
    pub tuple: Tuple,
}

/// A block of local ports that belongs to one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The application's number for the request.
    pub request: u32,
    /// Number of the context.
    pub context: u16,
    /// First port; 0 in a request, since the service chooses.
    pub first: u16,
    /// Number of ports.
    pub ports: u16,
}

/// A connection that moves to another process of the application, because its listener closed
/// before it was accepted. A sealed memory file accompanies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Number of the request, chosen by the sender of this message.
    pub request: u32,
    /// The context that has the connection; in the message to the other process, the one that gets
    /// it.
    pub context: u16,
    /// The address at which the connection was to be accepted.
    pub tuple: Tuple,
    /// This host's address of the connection; its port is that of `tuple`.
    pub local: IpAddr,
    /// The peer's end, of the same family.
    pub remote: SocketAddr,
    /// Bytes of the memory file.
    pub bytes: u32,
}

/// The question whether a call of another process of the application waits for a connection. The
/// answer is [`Message::Granted`] or [`Message::Refused`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seek {
    /// Number of the request, chosen by the sender of this message.
    pub request: u32,
    /// The context whose connections wait; in the message to the other process, the one that is
    /// asked.
    pub context: u16,
    /// The address at which they wait.
    pub tuple: Tuple,
    /// The first process has accepted connections there.
    pub accepts: bool,
    /// They have waited for so long that a process may answer yes that accepts and is busy.
    pub is_urgent: bool,
}

/// A question of the command `mill mux` to a running service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// Applications with pid, uid, ports, contexts, packets and drops.
    Status,
    /// All claims and leases.
    Ports,
    /// Counters of drops by reason.
    Drops,
    /// A test of every hop of the data path. Only root and the service's own user may ask.
    Check,
    /// Ends the service and removes what it built. Only root and the service's own user may ask.
    Stop,
}

/// A message between application and service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The application's first message.
    Hello(Hello),
    /// The first message of a process that may be one of several of its application. A socket
    /// accompanies it: processes that send the same one belong together.
    Join(Hello),
    /// The service's answer to the first message.
    Welcome(Welcome),
    /// Memory of a context; its file accompanies the message.
    Memory(Memory),
    /// Request for the virtual port of a context without AF_XDP memory, where ports are memif
    /// channels.
    PortAsk {
        /// Number of the context, from 0.
        context: u16,
        /// Number of connections for the context's ledger; 0: no ledger.
        ledger_entries: u32,
    },
    /// The socket of a context, which accompanies the message.
    Port(VirtualPort),
    /// A claim of a 3-tuple.
    Claim(Claim),
    /// A claim that holds an address. The process's kernel socket accompanies it, which is bound
    /// there and reserves the address in the kernel.
    Bound(Claim),
    /// The request with this number is granted.
    Granted {
        /// The application's number for the request.
        request: u32,
    },
    /// The request with this number is refused.
    Refused {
        /// The application's number for the request; 0 if it has none.
        request: u32,
        /// The reason, as an errno of Linux.
        errno: u16,
    },
    /// The end of a claim.
    Release(Claim),
    /// Request for local ports.
    Lease(Lease),
    /// Local ports for a context.
    Leased(Lease),
    /// Local ports that the application gives back.
    Return(Lease),
    /// Request for the MAC address of a next hop.
    Resolve {
        /// The application's number for the request.
        request: u32,
        /// The next hop.
        address: IpAddr,
    },
    /// Answer to [`Message::Resolve`]. Frames to the next hop may be sent from now on.
    NextHop {
        /// The application's number for the request.
        request: u32,
        /// The next hop.
        address: IpAddr,
        /// MAC address of the next hop.
        mac: MacAddr,
    },
    /// A change of the NIC.
    Change(Change),
    /// A connection for another process; its memory file accompanies the message.
    Move(Move),
    /// The question for a process that accepts connections which wait too long.
    Seek(Seek),
    /// Notice that a context has accepted its first connection at a 3-tuple, after another process
    /// was found for a connection that waited there. There is no answer; the request is 0.
    Accepts(Claim),
    /// Memory for the list of a context's connections, which accompanies the message. The service
    /// makes and keeps it, so that the list survives the application's death.
    Ledger {
        /// Number of the context, from 0.
        context: u16,
        /// Bytes of the list.
        bytes: u64,
    },
    /// Request for the bulk lane of a context that has its virtual port.
    BulkAsk {
        /// The application's number for the request.
        request: u32,
        /// Number of the context, from 0.
        context: u16,
    },
    /// The bulk lane of a context: a TAP with a virtio header, for writing. Its descriptor
    /// accompanies the message.
    Bulk {
        /// The application's number for the request.
        request: u32,
    },
    /// A context that outlived the service. The socket from [`Message::Port`] accompanies the
    /// message.
    Recover {
        /// The application's number for the request.
        request: u32,
        /// The application's number from [`Welcome`].
        application: u16,
        /// Number of the context.
        context: u16,
    },
    /// Notice that a context has no flow between these ends and no longer listens at the first: the
    /// flow's next SYN goes to another context. There is no answer.
    Forget {
        /// Number of the context.
        context: u16,
        /// This host's end.
        local: SocketAddr,
        /// The peer's end.
        remote: SocketAddr,
    },
    /// A 3-tuple was revoked.
    Revoke {
        /// The revoked 3-tuple.
        tuple: Tuple,
        /// The reason, as an errno of Linux.
        errno: u16,
    },
    /// The service ends.
    Stopping {
        /// True if the data path stays, so that connections continue and a new service can take
        /// over.
        stays: bool,
    },
    /// A question of the command `mill mux`.
    Query {
        /// The asker's number for the question.
        request: u32,
        /// The question.
        query: Query,
    },
    /// The answer to a question, as JSON in a file that accompanies the message.
    Answer {
        /// The asker's number for the question.
        request: u32,
        /// Bytes of the file.
        bytes: u64,
    },
}

mod layout;

impl Message {
    /// True if exactly one descriptor accompanies the message; all others have none.
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

    /// Encodes the message.
    pub fn encode(&self) -> [u8; MESSAGE_LEN] {
        let mut writer = Writer::new();
        writer.u16(VERSION);
        writer.u16(self.number());
        layout::write(self, &mut writer);
        writer.finish()
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// The length or version is wrong, the type is unknown, or a field has an impossible value.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let bytes: &[u8; MESSAGE_LEN] = bytes.try_into().map_err(|_| MessageError::Length)?;
        let mut reader = Reader::new(bytes);
        let version = reader.u16();
        if version != VERSION {
            return Err(MessageError::Version(version));
        }
        let number = reader.u16();
        let message = layout::read(number, &mut reader)?;
        // Comparing with the only valid encoding checks padding, unused address bytes and flags.
        match message.encode() == *bytes {
            true => Ok(message),
            false => Err(MessageError::Padding),
        }
    }
}

#[cfg(test)]
mod tests;
