//! The transport under `serve` and `get`: Millstream's sockets, or the kernel's for comparison.
//!
//! [`Net`] is the little that both need, readiness-based and never blocking; the code above is
//! compiled once for each and has no other way to a socket. All readiness is level-triggered.

pub mod kernel;
pub mod millstream;
pub mod options;

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The readiness that a registration waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Bytes, a connection or the end can be taken.
    Read,
    /// There is room for bytes, or a connect has ended.
    Write,
}

/// One registration is ready, or has failed and a read or write will say how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token that the registration was given.
    pub token: usize,
}

/// Sockets and readiness of one thread.
pub trait Net {
    /// A bound socket that accepts.
    type Listener;
    /// A connection.
    type Stream;
    /// A set of registrations.
    type Poll;

    /// CPU time that was spent looking for something to do so far, ns.
    fn looked_ns(&self) -> u64 {
        0
    }
    /// A new, empty set.
    fn poll(&self) -> io::Result<Self::Poll>;
    /// Binds and listens.
    fn listen(&self, address: SocketAddr, backlog: usize) -> io::Result<Self::Listener>;
    /// The next connection, or `WouldBlock`.
    fn accept(&self, listener: &Self::Listener) -> io::Result<(Self::Stream, SocketAddr)>;
    /// Starts to connect; the stream is writable when it is done or has failed.
    fn connect(&self, address: SocketAddr) -> io::Result<Self::Stream>;
    /// Why a connection failed, if it did.
    fn take_error(&self, stream: &Self::Stream) -> io::Result<Option<io::Error>>;
    /// Reads what is there; 0 is the peer's end, `WouldBlock` nothing yet.
    fn read(&self, stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes what there is room for, or `WouldBlock`.
    fn write(&self, stream: &mut Self::Stream, bytes: &[u8]) -> io::Result<usize>;
    /// Sends the end of what we write; reading goes on.
    fn shutdown_write(&self, stream: &Self::Stream) -> io::Result<()>;
    /// Closes with a reset: the peer must not take what it got for the whole.
    fn abort(&self, stream: Self::Stream);

    /// Holds the receive window at `bytes`, in a buffer that it does not fill, so that ACKs fall
    /// due by segments and not by what the reader takes.
    fn hold_window(&self, _stream: &Self::Stream, _bytes: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Watches a listener for connections to accept.
    fn register_listener(
        &self,
        poll: &mut Self::Poll,
        listener: &Self::Listener,
        token: usize,
    ) -> io::Result<()>;
    /// Watches it no longer.
    fn deregister_listener(
        &self,
        poll: &mut Self::Poll,
        listener: &Self::Listener,
    ) -> io::Result<()>;
    /// Watches a stream.
    fn register(
        &self,
        poll: &mut Self::Poll,
        stream: &Self::Stream,
        token: usize,
        interest: Interest,
    ) -> io::Result<()>;
    /// Watches a registered stream for something else.
    fn reregister(
        &self,
        poll: &mut Self::Poll,
        stream: &Self::Stream,
        token: usize,
        interest: Interest,
    ) -> io::Result<()>;
    /// A kernel descriptor that becomes readable.
    fn register_fd(
        &self,
        poll: &mut Self::Poll,
        fd: BorrowedFd<'_>,
        token: usize,
    ) -> io::Result<()>;
    /// Waits for readiness and replaces what `ready` held. An interrupted wait is an empty one.
    fn wait(
        &self,
        poll: &mut Self::Poll,
        ready: &mut Vec<Ready>,
        timeout: Option<Duration>,
    ) -> io::Result<()>;

    /// The stack's counters, without the zeros: for a report, not for a program to act on.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
