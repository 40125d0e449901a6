//! The calls: one variant per call, with its arguments as plain values.

use std::net::SocketAddr;

use crate::number::{IP_RECVERR, IPV6_RECVERR, SOL_IP, SOL_IPV6};

/// A socket's address as the caller gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// `AF_INET` or `AF_INET6`.
    Inet(SocketAddr),
    /// `AF_UNSPEC`: `connect` to it dissolves the association.
    Unspec,
    /// Any other family; refused.
    Family(u16),
    /// Shorter than the structure of its family.
    Short,
}

/// A control message of `sendmsg` or `recvmsg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlMessage {
    /// `cmsg_level`
    pub level: i32,
    /// `cmsg_type`
    pub kind: i32,
    /// The data, in Linux's layout.
    pub data: Vec<u8>,
}

/// An entry of `poll`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollFd {
    /// The descriptor; negative ones are ignored.
    pub fd: i32,
    /// `POLLIN` and so on.
    pub events: i16,
    /// The events found; written by `poll`.
    pub revents: i16,
}

/// An event of epoll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpollEvent {
    /// `EPOLLIN` and so on.
    pub events: u32,
    /// Data of the caller, returned unchanged.
    pub data: u64,
}

/// A call with its arguments. Numbers are those of [`number`](crate::number).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are the parameters of the man pages.
pub enum Request {
    Socket {
        domain: i32,
        kind: i32,
        protocol: i32,
    },
    Bind {
        fd: i32,
        address: Address,
    },
    Listen {
        fd: i32,
        backlog: i32,
    },
    /// `accept`, and `accept4` with flags. [`Reply::Address`](crate::Reply) returns the peer's
    /// address.
    Accept {
        fd: i32,
        flags: i32,
    },
    Connect {
        fd: i32,
        address: Address,
    },
    /// `read` and `readv`. `len`: total room in bytes.
    Read {
        fd: i32,
        len: usize,
    },
    /// `recv` and `recvfrom`.
    Recv {
        fd: i32,
        len: usize,
        flags: i32,
    },
    /// `recvmsg`. `len`: room for bytes; `control_len`: room for control messages, in bytes of C's
    /// layout.
    Recvmsg {
        fd: i32,
        len: usize,
        control_len: usize,
        flags: i32,
    },
    /// `write` and `writev`.
    Write {
        fd: i32,
        bytes: Vec<u8>,
    },
    /// `send`, `sendto`, `sendmsg`.
    Send {
        fd: i32,
        bytes: Vec<u8>,
        flags: i32,
        to: Option<Address>,
        control: Vec<ControlMessage>,
    },
    Fcntl {
        fd: i32,
        command: i32,
        argument: i32,
    },
    /// `ioctl`. `argument`: the integer that the third parameter points to, if the request reads
    /// one. [`Reply::Int`](crate::Reply) returns the answer.
    Ioctl {
        fd: i32,
        request: u64,
        argument: i32,
    },
    Close {
        fd: i32,
    },
    Dup {
        fd: i32,
    },
    Dup2 {
        fd: i32,
        to: i32,
    },
    Dup3 {
        fd: i32,
        to: i32,
        flags: i32,
    },
    Shutdown {
        fd: i32,
        how: i32,
    },
    /// `getsockopt`. `len`: room in bytes. [`Reply::Bytes`](crate::Reply) returns the value.
    Getsockopt {
        fd: i32,
        level: i32,
        name: i32,
        len: usize,
    },
    /// `setsockopt`. `value`: bytes in Linux's layout, see [`layout`](crate::layout).
    Setsockopt {
        fd: i32,
        level: i32,
        name: i32,
        value: Vec<u8>,
    },
    Getsockname {
        fd: i32,
    },
    Getpeername {
        fd: i32,
    },
    Poll {
        fds: Vec<PollFd>,
        timeout_ms: i32,
    },
    EpollCreate {
        flags: i32,
    },
    EpollCtl {
        epfd: i32,
        op: i32,
        fd: i32,
        event: EpollEvent,
    },
    EpollWait {
        epfd: i32,
        max_events: i32,
        timeout_ms: i32,
    },
}

impl Request {
    /// The descriptor that a call waits on, if the call may wait.
    pub(crate) fn waiting_fd(&self) -> Option<i32> {
        match *self {
            Self::Accept { fd, .. }
            | Self::Connect { fd, .. }
            | Self::Read { fd, .. }
            | Self::Recv { fd, .. }
            | Self::Recvmsg { fd, .. }
            | Self::Write { fd, .. }
            | Self::Send { fd, .. }
            | Self::EpollWait { epfd: fd, .. } => Some(fd),
            _ => None,
        }
    }

    /// The same call on another descriptor. For calls that may wait only.
    pub(crate) fn on(&self, other: i32) -> Self {
        let mut request = self.clone();
        match &mut request {
            Self::Accept { fd, .. }
            | Self::Connect { fd, .. }
            | Self::Read { fd, .. }
            | Self::Recv { fd, .. }
            | Self::Recvmsg { fd, .. }
            | Self::Write { fd, .. }
            | Self::Send { fd, .. }
            | Self::EpollWait { epfd: fd, .. } => *fd = other,
            _ => {}
        }
        request
    }

    /// The descriptor whose state the call changes in a way that concerns calls which wait on it.
    /// Bytes and connections that come and go do not count.
    pub(crate) fn changed_fd(&self) -> Option<i32> {
        match *self {
            Self::Connect { fd, .. }
            | Self::Listen { fd, .. }
            | Self::Shutdown { fd, .. }
            | Self::Setsockopt { fd, .. } => Some(fd),
            _ => None,
        }
    }
}

impl ControlMessage {
    /// A `struct sock_extended_err` as a message of the socket's family, followed by an empty
    /// address.
    pub(crate) fn extended_error(is_v6: bool, mut data: Vec<u8>) -> Self {
        let (level, kind, address_len) = match is_v6 {
            true => (SOL_IPV6, IPV6_RECVERR, 28),
            false => (SOL_IP, IP_RECVERR, 16),
        };
        data.resize(data.len() + address_len, 0);
        Self { level, kind, data }
    }
}
