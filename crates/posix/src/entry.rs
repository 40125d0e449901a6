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

/// An open file description.
pub(crate) struct Entry {
    pub file: File,
    /// Number of descriptors and waiting calls that refer to the description.
    pub references: u32,
    /// Number of waiting calls that name the description itself
    /// ([`holding`](crate::files::holding)).
    pub waits: u32,
    pub is_v6: bool,
    /// Number of calls that changed it in a way that concerns calls which wait on it.
    pub changes: u64,
    /// `O_NONBLOCK`
    pub nonblocking: bool,
    /// Flags of `F_SETFL` that are remembered but have no effect.
    pub kept_flags: i32,
    /// Number of notices ever put into the error queue, modulo 2^32.
    pub notices: Cell<u32>,
    /// ICMP errors that ended attempts to connect, in the error queue.
    pub icmp_notes: RefCell<VecDeque<IcmpNote>>,
    /// The error that the next call returns for a connection that was dissolved.
    pub error: Cell<Option<Errno>>,
    /// `SO_ZEROCOPY`, and the sends that it covers.
    pub zero_copy: ZeroCopy,
    /// `SO_TIMESTAMPING` and its relatives, and the stamps that wait.
    pub timestamping: Timestamping,
    /// Reading was shut without a connection, so reads return the end.
    pub read_shut: Cell<bool>,
    /// Values of options without effect, by level and name.
    pub option_values: RefCell<BTreeMap<(i32, i32), i32>>,
    /// `SO_COOKIE`
    pub cookie: u64,
    /// `SO_SELECT_ERR_QUEUE`
    pub error_queue_is_urgent: Cell<bool>,
}

impl Entry {
    /// Empties the error queue of errors when the option that asks for them is turned off, as Linux
    /// does.
    pub fn forget_errors(&self, on: bool) {
        if let File::Stream(stream) = &self.file
            && !on
        {
            // Dropping the soft error is the purpose of taking it.
            let _ = stream.tcp.take_icmp_note();
        }
        if !on {
            self.icmp_notes.borrow_mut().clear();
        }
    }

    /// A description with nothing set on it.
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
    /// A socket that is neither connected nor listening.
    Idle(TcpSocket),
    /// A socket that connects with its first write (`TCP_FASTOPEN_CONNECT`).
    Deferred(TcpSocket, SocketAddr),
    Listener(TcpListener),
    Stream(Stream),
    Epoll(Epoll),
    /// A kernel descriptor.
    Kernel(OwnedFd),
    /// A socket that lost its connection and for which no new socket could be made: `ENOBUFS`.
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

/// The state that decides the answer to another `connect`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// No call has returned the outcome yet.
    UnderWay,
    /// The outcome was returned, or the caller shut the connection, which shows that it knows.
    Over,
    /// The socket was shut before it had a connection, or after it had lost it. `connect` then
    /// fails with `EINVAL`, as in Linux.
    Shut,
}

/// The errno of an error of Millstream's.
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
