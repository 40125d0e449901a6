//! What passes between an application and its stack, apart from the bytes: jobs and control requests one way, events and accepted connections the other.
//!
//! ```text
//!   application                                             stack
//!   jobs      ── socket id ─────────────────────────────▶   job_queue   (the block's request bits say what)
//!   controls  ── listen, connect, option ───────────────▶   job_queue
//!   events    ◀──────────────────────────── socket id ──   event_queue (the block's state word and cursors say what)
//!   accepted  ◀──────────── one queue per listener ──────   listeners
//!   sockets   ◀──────── free socket ids, refilled ───────   sockets
//!   magazine  ◀──────── free send chunks, refilled ──────   ring::chunk
//! ```
//!
//! A socket stands in `jobs` and in `events` at most once. So the job queue, as long as there are sockets, can never be full, and close cannot
//! fail. In `events` there may also stand ids of sockets that the application closed before it looked: that queue is twice as long, and what
//! finds no room comes with a later turn. Both are hints: who takes one out looks at the socket's block for the truth.
//!
//! The same queues serve both ways of turning the crank; inline, both ends are on one thread.

use std::net::SocketAddr;

use ring::chunk::Magazine;
use ring::doorbell::{AppBell, StackBell};
use ring::memory::Memory;
use ring::socket_block::SocketId;
use ring::spsc::{Consumer, Producer};
use tcp::connection::Keepalive;

use crate::counters::Counters;
use crate::neighbours::NeighbourCounters;
use crate::stack::Usage;

/// The application's end of a context.
pub struct AppSide {
    /// The memory file with the sockets' blocks and chunks.
    pub memory: Memory,
    /// Sockets whose request bits changed.
    pub jobs: Producer<SocketId>,
    /// Requests with arguments. Bounded: who finds it full turns the crank or waits.
    pub controls: Producer<Control>,
    /// Sockets whose state or cursors changed.
    pub events: Consumer<SocketId>,
    /// Socket ids for `listen` and `connect`.
    pub sockets: Consumer<SocketId>,
    /// Chunks for what the application writes.
    pub magazine: Magazine,
    /// Wakes the stack.
    pub stack_bell: StackBell,
    /// Wakes the application.
    pub app_bell: AppBell,
}

/// A request that carries arguments: rare, so a queue of its own keeps the jobs small.
pub enum Control {
    /// Accept connections. Answered in the socket's state word: listening, or failed with an errno.
    Listen(Listen),
    /// Open a connection. Answered likewise: connected, or failed with an errno.
    Connect(Connect),
    /// Change an option of a connection.
    Option(SocketId, SocketOption),
    /// Say what was counted and what is held.
    Report(Producer<Report>),
}

/// The answer to [`Control::Report`].
#[derive(Clone, Debug)]
pub struct Report {
    /// The stack's counters.
    pub stack: Counters,
    /// TCP's counters.
    pub tcp: tcp::Counters,
    /// The port's counters.
    pub port: packetio::PortCounters,
    /// The neighbour cache's counters.
    pub neighbours: NeighbourCounters,
    /// What is held.
    pub usage: Usage,
}

/// Arguments of [`Control::Listen`].
pub struct Listen {
    /// The listener's own socket.
    pub socket: SocketId,
    /// Where: one of our addresses or unspecified (all of that family).
    pub local: SocketAddr,
    /// Where accepted connections go. Its capacity is the backlog.
    pub accepted: Producer<Accepted>,
    /// Options that accepted connections begin with.
    pub options: Vec<SocketOption>,
}

/// Arguments of [`Control::Connect`].
#[derive(Debug)]
pub struct Connect {
    /// The socket to be connected.
    pub socket: SocketId,
    /// Local address and port; `None`, unspecified or port 0: the stack chooses.
    pub local: Option<SocketAddr>,
    /// The peer.
    pub remote: SocketAddr,
    /// Options set before the connection opens.
    pub options: Vec<SocketOption>,
}

/// A connection that a listener accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its socket.
    pub socket: SocketId,
    /// The peer.
    pub remote: SocketAddr,
    /// Our end.
    pub local: SocketAddr,
}

/// An option of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOption {
    /// `TCP_NODELAY`.
    NoDelay(bool),
    /// `TCP_CORK`.
    Cork(bool),
    /// `SO_KEEPALIVE` with its three times: idle and interval in ns, number of probes. `None`: off.
    KeepAlive(Option<Keepalive>),
    /// `TCP_USER_TIMEOUT` in ns; 0: the default rule of retries.
    UserTimeout(u64),
}
