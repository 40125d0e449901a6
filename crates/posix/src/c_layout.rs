//! C's structures (x86-64 and AArch64 Linux) as bytes, to and from the types of this crate. For the
//! crates that export C calls.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use rustix::io::Errno;

use crate::number;
use crate::request::{Address, ControlMessage, EpollEvent, PollFd};

/// A piece of the caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Address of the first byte.
    pub address: usize,
    /// Length in bytes, or in elements of an array.
    pub len: usize,
}

/// A `struct msghdr` as the caller passed it. The memory that its pointers name was not read.
#[derive(Clone, Copy, Debug)]
pub struct MessageHeader {
    /// The peer's address (`msg_name`).
    pub name: Piece,
    /// An array of `struct iovec`; `len` counts these.
    pub pieces: Piece,
    /// The control messages (`msg_control`).
    pub control: Piece,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn word(bytes: &[u8], at: usize) -> usize {
    array(bytes, at).map_or(0, usize::from_ne_bytes)
}

fn int(bytes: &[u8], at: usize) -> i32 {
    array(bytes, at).map_or(0, i32::from_ne_bytes)
}

/// Reads a `struct sockaddr` of any family.
pub fn to_address(bytes: &[u8]) -> Address {
    let Some(family) = array(bytes, 0).map(u16::from_ne_bytes) else {
        return Address::Short;
    };
    let port = array(bytes, 2).map_or(0, u16::from_be_bytes);
    match i32::from(family) {
        number::AF_UNSPEC => Address::Unspec,
        _ if bytes.len() < SOCKADDR_IN_LEN => Address::Short,
        number::AF_INET => {
            let address: [u8; 4] = array(bytes, 4).unwrap_or_default();
            Address::Inet((IpAddr::from(address), port).into())
        }
        number::AF_INET6 if bytes.len() >= SOCKADDR_IN6_LEN_MIN => {
            let address: [u8; 16] = array(bytes, 8).unwrap_or_default();
            let flow = array(bytes, 4).map_or(0, u32::from_be_bytes);
            let scope = array(bytes, 24).map_or(0, u32::from_ne_bytes);
            let address = SocketAddrV6::new(Ipv6Addr::from(address), port, flow, scope);
            Address::Inet(SocketAddr::V6(address))
        }
        _ => Address::Family(family),
    }
}

/// Like [`to_address`], for `bind`, where `AF_UNSPEC` with IPv4's unspecified address means IPv4.
pub fn to_bound_address(bytes: &[u8]) -> Address {
    match to_address(bytes) {
        Address::Unspec if array(bytes, 4) == Some([0; 4]) && bytes.len() >= SOCKADDR_IN_LEN => {
            let port = array(bytes, 2).map_or(0, u16::from_be_bytes);
            Address::Inet((Ipv4Addr::UNSPECIFIED, port).into())
        }
        Address::Unspec if bytes.len() < SOCKADDR_IN_LEN => Address::Short,
        address => address,
    }
}

/// Writes a `struct sockaddr_in` or `sockaddr_in6`.
pub fn from_address(address: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SOCKADDR_IN6_LEN);
    match address {
        SocketAddr::V4(v4) => {
            bytes.extend((number::AF_INET as u16).to_ne_bytes());
            bytes.extend(v4.port().to_be_bytes());
            bytes.extend(v4.ip().octets());
            bytes.resize(SOCKADDR_IN_LEN, 0);
        }
        SocketAddr::V6(v6) => {
            bytes.extend((number::AF_INET6 as u16).to_ne_bytes());
            bytes.extend(v6.port().to_be_bytes());
            bytes.extend(v6.flowinfo().to_be_bytes());
            bytes.extend(v6.ip().octets());
            bytes.extend(v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}

/// Reads an array of `struct iovec`.
pub fn to_pieces(bytes: &[u8]) -> Vec<Piece> {
    let piece = |entry: &[u8]| Piece {
        address: word(entry, 0),
        len: word(entry, 8),
    };
    bytes.chunks_exact(IOVEC_LEN).map(piece).collect()
}

/// The sum of the pieces' lengths.
///
/// # Errors
/// `EINVAL` above the largest value that a call can return.
pub fn total(pieces: &[Piece]) -> Result<usize, Errno> {
    let sum = pieces
        .iter()
        .try_fold(0_usize, |sum, piece| sum.checked_add(piece.len));
    sum.filter(|&sum| sum <= isize::MAX as usize)
        .ok_or(Errno::INVAL)
}

/// Reads a `struct msghdr`.
pub fn to_message_header(bytes: &[u8]) -> MessageHeader {
    MessageHeader {
        name: Piece {
            address: word(bytes, 0),
            len: int(bytes, 8) as u32 as usize,
        },
        pieces: Piece {
            address: word(bytes, 16),
            len: word(bytes, 24),
        },
        control: Piece {
            address: word(bytes, 32),
            len: word(bytes, 40),
        },
    }
}

/// Offsets in a `struct msghdr` of the fields that a call writes: the lengths of name and control
/// messages, and the flags.
pub const MSG_NAMELEN_AT: usize = 8;
/// See [`MSG_NAMELEN_AT`].
pub const MSG_CONTROLLEN_AT: usize = 40;
/// See [`MSG_NAMELEN_AT`].
pub const MSG_FLAGS_AT: usize = 48;

/// Reads a buffer of `struct cmsghdr` with their data.
///
/// # Errors
/// `EINVAL` for a message that is longer than the buffer.
pub fn to_control(mut bytes: &[u8]) -> Result<Vec<ControlMessage>, Errno> {
    let mut messages = Vec::new();
    while bytes.len() >= CMSGHDR_LEN {
        let len = word(bytes, 0);
        let data = bytes.get(CMSGHDR_LEN..len).ok_or(Errno::INVAL)?;
        messages.push(ControlMessage {
            level: int(bytes, 8),
            kind: int(bytes, 12),
            data: data.to_vec(),
        });
        bytes = bytes.get(len.next_multiple_of(8)..).unwrap_or_default();
    }
    Ok(messages)
}

/// Writes a buffer of `struct cmsghdr` with their data, and leaves out what exceeds `room` bytes.
pub fn from_control(messages: &[ControlMessage], room: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    for message in messages {
        let len = CMSGHDR_LEN + message.data.len();
        let at = bytes.len().next_multiple_of(8);
        if at + len > room {
            break;
        }
        bytes.resize(at, 0);
        bytes.extend(len.to_ne_bytes());
        bytes.extend(message.level.to_ne_bytes());
        bytes.extend(message.kind.to_ne_bytes());
        bytes.extend(&message.data);
        let padded = bytes.len().next_multiple_of(8).min(room);
        bytes.resize(padded, 0);
    }
    bytes
}

/// Reads an array of `struct pollfd`.
pub fn to_poll_fds(bytes: &[u8]) -> Vec<PollFd> {
    let entry = |entry: &[u8]| PollFd {
        fd: int(entry, 0),
        events: array(entry, 4).map_or(0, i16::from_ne_bytes),
        revents: 0,
    };
    bytes.chunks_exact(POLLFD_LEN).map(entry).collect()
}

/// Writes an array of `struct pollfd`.
pub fn from_poll_fds(fds: &[PollFd]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(fds.len() * POLLFD_LEN);
    for fd in fds {
        bytes.extend(fd.fd.to_ne_bytes());
        bytes.extend(fd.events.to_ne_bytes());
        bytes.extend(fd.revents.to_ne_bytes());
    }
    bytes
}

/// Reads a `struct epoll_event`.
pub fn to_epoll_event(bytes: &[u8]) -> EpollEvent {
    EpollEvent {
        events: int(bytes, 0) as u32,
        data: array(bytes, EPOLL_DATA_AT).map_or(0, u64::from_ne_bytes),
    }
}

/// Writes an array of `struct epoll_event`.
pub fn from_epoll_events(events: &[EpollEvent]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(events.len() * EPOLL_EVENT_LEN);
    for event in events {
        bytes.extend(event.events.to_ne_bytes());
        bytes.resize(bytes.len() + EPOLL_DATA_AT - 4, 0);
        bytes.extend(event.data.to_ne_bytes());
    }
    bytes
}

/// `sizeof(struct iovec)`
pub const IOVEC_LEN: usize = size_of::<libc::iovec>();
/// `sizeof(struct msghdr)`
pub const MSGHDR_LEN: usize = size_of::<libc::msghdr>();
/// `sizeof(struct pollfd)`
pub const POLLFD_LEN: usize = size_of::<libc::pollfd>();
/// `sizeof(struct epoll_event)`, which is packed on x86-64 only.
pub const EPOLL_EVENT_LEN: usize = size_of::<libc::epoll_event>();
const EPOLL_DATA_AT: usize = EPOLL_EVENT_LEN - 8;
const CMSGHDR_LEN: usize = size_of::<libc::cmsghdr>();
const SOCKADDR_IN_LEN: usize = size_of::<libc::sockaddr_in>();
const SOCKADDR_IN6_LEN: usize = size_of::<libc::sockaddr_in6>();
/// Least length of a `struct sockaddr_in6`, without `sin6_scope_id`, as in Linux.
const SOCKADDR_IN6_LEN_MIN: usize = 24;
/// Length of the longest address that is read: `sizeof(struct sockaddr_storage)`.
pub const SOCKADDR_LEN_MAX: usize = 128;

const _: () = assert!(IOVEC_LEN == 16 && MSGHDR_LEN == 56 && POLLFD_LEN == 8 && CMSGHDR_LEN == 16);

#[cfg(test)]
mod tests;
