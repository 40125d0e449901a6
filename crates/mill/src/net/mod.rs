//! The transport under `serve` and `get`: Millstream's sockets, or the kernel's for comparison.
//!
//! [`Net`] is the small interface that both need; it is based on readiness and never blocks. The
//! code above is compiled once for each transport and uses no other sockets. All readiness is
//! level-triggered.

pub mod kernel;
pub mod millstream;
pub mod options;

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The readiness that a registration asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Bytes, a connection, or the end can be read.
    Read,
    /// There is room for bytes, or a connect has ended.
    Write,
}

/// A registration that is ready, or has failed; a read or write will return the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token of the registration.
    pub token: usize,
}

/// Sockets and readiness of one thread.
pub trait Net {
    /// A listening socket.
    type Listener;
    /// A connection.
    type Stream;
    /// A set of registrations.
    type Poll;

    /// CPU time spent looking for work so far, in ns.
    fn looked_ns(&self) -> u64 {
        0
    }
    /// A new, empty set.
    fn poll(&self) -> io::Result<Self::Poll>;
    /// Binds and listens.
    fn listen(&self, address: SocketAddr, backlog: usize) -> io::Result<Self::Listener>;
    /// The next connection, or `WouldBlock`.
    fn accept(&self, listener: &Self::Listener) -> io::Result<(Self::Stream, SocketAddr)>;
    /// Begins to connect. The stream becomes writable when it is connected or has failed.
    fn connect(&self, address: SocketAddr) -> io::Result<Self::Stream>;
    /// The reason why a connection failed, if it did.
    fn take_error(&self, stream: &Self::Stream) -> io::Result<Option<io::Error>>;
    /// Reads available bytes; 0 is the peer's end, `WouldBlock` means none yet.
    fn read(&self, stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes as much as there is room for, or `WouldBlock`.
    fn write(&self, stream: &mut Self::Stream, bytes: &[u8]) -> io::Result<usize>;
    /// Writes like [`write`](Self::write), with more to follow at once: a partial segment may wait
    /// for it.
    fn write_more(&self, stream: &mut Self::Stream, bytes: &[u8]) -> io::Result<usize>;
    /// Closes the sending direction; reading continues.
    fn shutdown_write(&self, stream: &Self::Stream) -> io::Result<()>;
    /// Resets the connection, so that the peer does not take the bytes so far for everything.
    fn abort(&self, stream: Self::Stream);

    /// Fixes the receive window at `bytes`, in a buffer larger than that. ACKs then depend on
    /// segments, not on how fast the reader reads.
    fn hold_window(&self, _stream: &Self::Stream, _bytes: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Watches a listener for connections.
    fn register_listener(
        &self,
        poll: &mut Self::Poll,
        listener: &Self::Listener,
        token: usize,
    ) -> io::Result<()>;
    /// Stops watching a listener.
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
    /// Changes the readiness that a stream is watched for.
    fn reregister(
        &self,
        poll: &mut Self::Poll,
        stream: &Self::Stream,
        token: usize,
        interest: Interest,
    ) -> io::Result<()>;
    /// Watches a kernel descriptor for input.
    fn register_fd(
        &self,
        poll: &mut Self::Poll,
        fd: BorrowedFd<'_>,
        token: usize,
    ) -> io::Result<()>;
    /// Waits for readiness and replaces the contents of `ready`. An interrupted wait returns none.
    fn wait(
        &self,
        poll: &mut Self::Poll,
        ready: &mut Vec<Ready>,
        timeout: Option<Duration>,
    ) -> io::Result<()>;

    /// The stack's counters other than zero, for reports.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
