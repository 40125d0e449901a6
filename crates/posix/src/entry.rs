//! An open file description: the socket or other file, and everything that was set on it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use millstream::{IcmpNote, SocketInfo, TcpListener, TcpSocket, TcpStream};
use rustix::io::Errno;

mod epoll;
mod timestamping;
mod zero_copy;

pub(crate) use epoll::{Epoll, Key, Watch, Watched};
pub(crate) use timestamping::{Format, Timestamping};
pub(crate) use zero_copy::ZeroCopy;

/// An open file description: its file, and everything that was set on it.
pub(crate) struct Entry {
    pub file: File,
    /// Descriptors and waiting calls that refer to it.
    pub references: u32,
    /// Calls that wait and name the description itself ([`holding`](crate::files::holding)).
    pub waits: u32,
    pub is_v6: bool,
    /// How often a call has changed it in a way that others who wait on it have to see.
    pub changes: u64,
    /// `O_NONBLOCK`
    pub nonblocking: bool,
    /// Flags of `F_SETFL` that are only kept.
    pub kept_flags: i32,
    /// How many notices were ever put into its error queue, modulo 2^32.
    pub notices: Cell<u32>,
    /// ICMP errors that ended attempts to connect, in the error queue.
    pub icmp_notes: RefCell<VecDeque<IcmpNote>>,
    /// The error that the next call returns for a connection that was dissolved.
    pub error: Cell<Option<Errno>>,
    /// `SO_ZEROCOPY` and what came of it.
    pub zero_copy: ZeroCopy,
    /// `SO_TIMESTAMPING` and what came of it.
    pub timestamping: Timestamping,
    /// Reading was shut although there is no connection: reads find the end.
    pub read_shut: Cell<bool>,
    /// Values of options that are remembered and obeyed by nothing, by level and name.
    pub option_values: RefCell<BTreeMap<(i32, i32), i32>>,
    /// `SO_COOKIE`
    pub cookie: u64,
    /// `SO_SELECT_ERR_QUEUE`
    pub error_queue_is_urgent: Cell<bool>,
}

impl Entry {
    /// The option to be told of errors was turned off: Linux empties the error queue of them.
    pub fn forget_errors(&self, on: bool) {
        if let File::Stream(stream) = &self.file
            && !on
        {
            // The errors are dropped unread.
            let _ = stream.tcp.take_icmp_note();
        }
        if !on {
            self.icmp_notes.borrow_mut().clear();
        }
    }

    /// A description that nothing was set on yet.
    pub fn of(file: File, is_v6: bool) -> Self {
        Self {
            file,
            references: 0,
            waits: 0,
            changes: 0,
            is_v6,
            nonblocking: false,
            kept_flags: 0,
            notices: 0.into(),
            icmp_notes: RefCell::default(),
            error: None.into(),
            zero_copy: ZeroCopy::default(),
            timestamping: Timestamping::default(),
            read_shut: false.into(),
            option_values: RefCell::default(),
            cookie: 0,
            error_queue_is_urgent: false.into(),
        }
    }
}

pub(crate) enum File {
    /// Neither connected nor listening.
    Idle(TcpSocket),
    /// Connects with the first bytes (`TCP_FASTOPEN_CONNECT`).
    Deferred(TcpSocket, SocketAddr),
    Listener(TcpListener),
    Stream(Stream),
    Epoll(Epoll),
    /// One of the kernel's own.
    Kernel(OwnedFd),
    /// A socket that could not be made anew after its connection had failed: there was no memory
    /// for it.
    Lost,
}

/// A connection, or an attempt at one.
pub(crate) struct Stream {
    pub tcp: TcpStream,
    pub attempt: Attempt,
}

impl Stream {
    /// The stack's view of the connection; `None` if it is gone.
    pub fn info(&self) -> Result<Option<Box<SocketInfo>>, Errno> {
        self.tcp.options().info().map_err(|error| errno(&error))
    }
}

/// The answer to another `connect`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// None has told of the outcome yet.
    UnderWay,
    /// The outcome was returned, or the caller shut the connection and so knows it.
    Over,
    /// The socket was shut before it had a connection, or after it had lost the connection. Linux
    /// answers `EINVAL` from then on.
    Shut,
}

/// The number in an error of Millstream's.
#[must_use]
pub fn errno(error: &io::Error) -> Errno {
    if let Some(number) = error.raw_os_error() {
        return Errno::from_raw_os_error(number);
    }
    match error.kind() {
        io::ErrorKind::WouldBlock => Errno::AGAIN,
        io::ErrorKind::TimedOut => Errno::TIMEDOUT,
        _ => Errno::IO,
    }
}
