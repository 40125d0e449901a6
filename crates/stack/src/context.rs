//! Queues between an application and its stack: jobs and control requests one way, events and
//! accepted connections the other. Payload passes through shared memory.
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
//! A socket is in `jobs` and in `events` at most once. `jobs` has a slot per socket, so it is never
//! full and close cannot fail. `events` may also hold ids that the application closed before
//! reading their event. It is therefore twice as long, and an event without room comes in a later
//! turn. Both queues carry hints: the reader looks at the socket's block for the truth.
//!
//! Jobs and control requests are applied in the order of sending, although they use two queues: a
//! request carries the position of the job that follows it.
//!
//! The same queues serve a stack on a thread of its own and an inline one, which the application's
//! thread runs.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ring::chunk::Magazine;
use ring::doorbell::StackBell;
use ring::huge_pages::PagesHeld;
use ring::memory::Memory;
use ring::socket_block::{Name, SocketId};
use ring::spsc::{Consumer, Producer};
use rustix::io::Errno;
use wire::Addr;

pub use crate::accept_rings::{AcceptCall, AcceptRings, Accepted};
use crate::activity::Activity;
use crate::counters::Counters;
pub use crate::header_fields::DontFragment;
use crate::network::neighbours::NeighbourCounters;
use crate::rules::RuleCounts;
use crate::rules::judge::Judge;
pub use crate::socket_option::{SocketOption, StampKinds};
pub use crate::source_pool::SourcePool;
use crate::stage_clock::StageCycles;

/// The application's end of a context. Memory, magazine and sockets of different contexts must not
/// be mixed ([`ring::byte_ring`], "One file").
pub struct AppSide {
    /// The memory file with the sockets' blocks and chunks.
    pub memory: Memory,
    /// Sockets whose request bits changed.
    pub jobs: Producer<SocketId>,
    /// Requests with arguments; [`control`](Self::control) fills the queue.
    pub(crate) controls: Producer<Placed>,
    /// Sockets whose state or cursors changed.
    pub events: Consumer<SocketId>,
    /// Free socket ids that the application may use for `listen` and `connect`.
    pub sockets: Consumer<SocketId>,
    /// Chunks for the application's writes.
    pub magazine: Magazine,
    /// Wakes the stack.
    pub stack_bell: StackBell,
}

impl AppSide {
    /// Sends a request with arguments. It is applied after all jobs sent so far and before later
    /// ones. If the queue is full, the caller turns the crank or waits, and tries again.
    ///
    /// # Errors
    /// The request, if there is no room.
    // The error returns the whole request so that the caller can send it again.
    #[allow(clippy::result_large_err)]
    pub fn control(&mut self, control: Control) -> Result<(), Control> {
        let jobs_end = self.jobs.position();
        self.controls
            .push(Placed { control, jobs_end })
            .map_err(|refused| refused.control)
    }
}

/// A control request with its position among the jobs.
pub(crate) struct Placed {
    pub control: Control,
    /// Position of the first job sent after the request.
    pub jobs_end: u32,
}

/// A request with arguments. Such requests are rare, so a queue of their own keeps the jobs small.
pub enum Control {
    /// Accept connections. The socket's state word tells the outcome: listening, or failed with an
    /// errno.
    Listen(Listen),
    /// Open a connection. The socket's state word tells the outcome: connected, or failed with an
    /// errno.
    Connect(Connect),
    /// `listen` on a listener: another backlog.
    Backlog(Backlog),
    /// Take a local address and port.
    Bind(Bind),
    /// Change an option of a connection, or of a listener's future connections.
    Option(SocketId, SocketOption),
    /// Report the state of a connection.
    Info(InfoQuery),
    /// Return time stamps of sent and received bytes.
    Stamps(StampQuery),
    /// Return the ICMP error that a live connection remembers, and forget it.
    SoftError(SoftErrorQuery),
    /// Return the ICMP error that ended an attempt to connect, and forget it.
    IcmpNote(IcmpNoteQuery),
    /// Return the headers of the SYN that made a connection, and forget them.
    SavedSyn(SavedSynQuery),
    /// Report counters and the use of tables.
    Report(Producer<Report>),
    /// Tell how much data a Fast Open to a destination could carry (RFC 7413).
    FastOpenQuery(FastOpenQuery),
    /// Replace the settings of TCP from now on, like `sysctl`. Existing connections keep the values
    /// that they copied.
    Settings(Box<tcp::Config>),
    /// Add an address with its subnet's prefix, as on a running interface. An address that is
    /// present already, or that no host can have, is ignored.
    Address(crate::network::addresses::IpCidr),
    /// Replace the packet rules; `None` removes them. The next frame meets the new set, with
    /// counters at zero. Existing connections continue.
    Rules(Option<Box<Judge>>),
    /// Take the source addresses and ports of connections to one destination from this pool, if the
    /// application names neither. `None`: the stack chooses, as for any other destination.
    Sources(Option<SourcePool>),
    /// Forget what connections have learned about Fast Open with each peer, like `ip tcp_metrics
    /// flush`.
    ForgetPeers,
}

impl Control {
    /// The connection that the request concerns. `None` for requests that change what a socket is,
    /// such as `Listen`.
    pub(crate) fn asked_of(&self) -> Option<SocketId> {
        match self {
            Self::Option(socket, _) => Some(*socket),
            Self::Info(query) => Some(query.socket),
            Self::Stamps(query) => Some(query.socket),
            Self::SoftError(query) => Some(query.socket),
            Self::IcmpNote(query) => Some(query.socket),
            Self::SavedSyn(query) => Some(query.socket),
            _ => None,
        }
    }
}

/// Arguments of [`Control::FastOpenQuery`]. `sendto` with `MSG_FASTOPEN` and `connect` under
/// `TCP_FASTOPEN_CONNECT` need the answer before they return.
pub struct FastOpenQuery {
    /// The unconnected socket; an event on it announces the answer.
    pub socket: SocketId,
    /// The peer of the connection.
    pub remote: SocketAddr,
    /// `TCP_MAXSEG` of the socket; 0: not set.
    pub mss_max: u16,
    /// `TCP_FASTOPEN_NO_COOKIE` of the socket.
    pub no_cookie: bool,
    /// The queue for the answer, with room for one.
    pub answer: Producer<FastOpenAnswer>,
}

/// The answer to [`Control::FastOpenQuery`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpenAnswer {
    /// True if a cookie is at hand or none is needed. The SYN may then carry data, so `connect` may
    /// be deferred until the first write. Otherwise the SYN asks for a cookie, and data follows the
    /// handshake.
    pub has_cookie: bool,
    /// Most payload bytes that the SYN can carry; 0 without a cookie.
    pub syn_bytes_max: u32,
}

/// The values of one port, in a [`Report`].
#[derive(Clone, Debug)]
pub struct PortReport {
    /// The port's name, such as `xdp:eth1`.
    pub name: String,
    /// The port's own counters.
    pub counters: packetio::PortCounters,
    /// Frames of this port that the stack dropped, by counter name.
    pub drops: Vec<(&'static str, u64)>,
}

/// The answer to [`Control::Report`].
#[derive(Clone, Debug)]
pub struct Report {
    /// The stack's counters.
    pub stack: Counters,
    /// TCP's counters.
    pub tcp: tcp::Counters,
    /// The counters of all ports together.
    pub port: packetio::PortCounters,
    /// Each port's own values, the first port's first.
    pub ports: Vec<PortReport>,
    /// The neighbour cache's counters.
    pub neighbours: NeighbourCounters,
    /// The counts of each packet rule, in the order of the rules.
    pub rules: Vec<RuleCounts>,
    /// Use of the stack's tables and pools.
    pub usage: Usage,
    /// The pages under the stack's tables and memory file.
    pub pages: PagesHeld,
    /// The cycles of each stage, with the feature `stage-cycles`.
    pub stages: StageCycles,
    /// The use of the stack's time, and the sizes of its batches.
    pub activity: Activity,
}

/// Arguments of [`Control::Bind`].
pub struct Bind {
    /// The socket, neither connected nor listening.
    pub socket: SocketId,
    /// The local address, one of ours or unspecified. With port 0 the stack chooses a port.
    pub local: SocketAddr,
    /// True if `IPV6_V6ONLY` is off: an unspecified IPv6 address covers IPv4 too.
    pub dual: bool,
    /// `SO_REUSEADDR`
    pub reuse_addr: bool,
    /// `SO_REUSEPORT`
    pub reuse_port: bool,
    /// `IP_FREEBIND`: an address that is not ours will do.
    pub free: bool,
    /// True if this socket replaces one that was bound to the same address. Sockets and accepted
    /// connections that shared the address may keep sharing it.
    pub again: bool,
    /// The queue for the answer: the address with its port, or the error.
    pub answer: Producer<Result<SocketAddr, Errno>>,
}

/// Arguments of [`Control::Info`].
pub struct InfoQuery {
    /// The socket.
    pub socket: SocketId,
    /// The queue for the answer: `None` for a socket without a connection.
    pub answer: Producer<Option<Box<SocketInfo>>>,
}

/// Arguments of [`Control::SoftError`].
pub struct SoftErrorQuery {
    /// The socket.
    pub socket: SocketId,
    /// The queue for the answer: an errno, or 0 if there is no error.
    pub answer: Producer<u16>,
}

/// Arguments of [`Control::IcmpNote`].
pub struct IcmpNoteQuery {
    /// The socket.
    pub socket: SocketId,
    /// The queue for the answer.
    pub answer: Producer<Option<IcmpNote>>,
}

/// An ICMP error that ended an attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpNote {
    /// The errno with which `connect` failed.
    pub errno: u16,
    /// ICMP's type.
    pub kind: u8,
    /// ICMP's code.
    pub code: u8,
    /// The pointer of a parameter problem: the position of the header field that was not
    /// understood; 0 in other errors (`ee_info`).
    pub info: u32,
    /// The sender of the message.
    pub sender: IpAddr,
    /// The quoted segment, from its TCP header on: the first `quoted_len` bytes.
    pub quoted: [u8; IcmpNote::QUOTED_BYTES_MAX],
    /// Valid bytes of `quoted`.
    pub quoted_len: usize,
}

impl IcmpNote {
    /// Most bytes of a quoted SYN that are kept: all options and a little data. The remainder is
    /// cut off.
    pub const QUOTED_BYTES_MAX: usize = 64;
}

/// Arguments of [`Control::SavedSyn`].
pub struct SavedSynQuery {
    /// The socket.
    pub socket: SocketId,
    /// Room for headers in the caller's buffer, bytes. Longer headers stay saved.
    pub room: usize,
    /// The queue for the answer: the headers, or nothing if none are saved. `Err`: their length, if
    /// `room` is too small.
    pub answer: Producer<Result<Vec<u8>, usize>>,
}

/// Arguments of [`Control::Stamps`].
pub struct StampQuery {
    /// The socket.
    pub socket: SocketId,
    /// Position after the last byte that the application has read.
    pub read: u32,
    /// The queue for the answer.
    pub answer: Producer<StampAnswer>,
}

/// The answer to [`Control::Stamps`].
#[derive(Clone, Debug, Default)]
pub struct StampAnswer {
    /// Stamps of sent bytes, in the order in which they were made.
    pub sent: Vec<TxStamp>,
    /// Arrival time of the last byte read, ns; `None` unless stamps were requested before it
    /// arrived.
    pub arrived_ns: Option<u64>,
}

/// A time stamp of a written byte (`SO_TIMESTAMPING`).
#[derive(Clone, Debug)]
pub struct TxStamp {
    /// The event: one of [`StampKinds`].
    pub kind: StampKinds,
    /// Position after the byte in the sent stream, modulo 2^32.
    pub position: u32,
    /// Time of the event, ns by the stack's clock.
    pub at_ns: u64,
    /// The connection's state at that time, if the application asked for it.
    pub stats: Option<Box<StampStats>>,
}

/// A connection at the time of a stamp (`SOF_TIMESTAMPING_OPT_STATS`).
#[derive(Clone, Debug)]
pub struct StampStats {
    /// TCP's part of the state.
    pub tcp: tcp::Info,
    /// Bytes in the send buffer.
    pub send_buffered: u32,
    /// Time at which the byte was last sent, ns.
    pub sent_ns: u64,
}

/// The state of a connection.
#[derive(Clone, Debug)]
pub struct SocketInfo {
    /// TCP's part of the state.
    pub tcp: tcp::Info,
    /// Our end.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// Bytes in the send buffer, sent and unsent.
    pub send_buffered: u32,
    /// Bytes that the send buffer may hold.
    pub send_buffer_max: u32,
    /// Unread bytes in the receive buffer.
    pub unread: u32,
    /// Bytes that the receive buffer may hold.
    pub recv_buffer_max: u32,
    /// Path MTU to the peer as currently known, bytes.
    pub path_mtu: u32,
}

/// Arguments of [`Control::Listen`].
pub struct Listen {
    /// The listener's own socket.
    pub socket: SocketId,
    /// The local address: one of ours, or unspecified for all of its family.
    pub local: SocketAddr,
    /// The queue for accepted connections, with room for one more than the backlog.
    pub accepted: Producer<Accepted>,
    /// The application's end of that queue.
    pub rings: Arc<AcceptRings>,
    /// The backlog as in `listen`. As in Linux, one more connection may wait to be accepted, and as
    /// many handshakes may be in progress before SYNs are answered with cookies.
    pub backlog: u32,
    /// Options of the accepted connections.
    pub options: Vec<SocketOption>,
    /// The queue for the outcome; `None`: only the socket's state word tells it.
    pub answer: Option<Answer>,
}

/// Arguments of [`Control::Backlog`].
pub struct Backlog {
    /// The listener's socket.
    pub socket: SocketId,
    /// The new [`Listen::backlog`].
    pub backlog: u32,
    /// A longer queue for future accepted connections, if the old one is too short for the new
    /// backlog. Its other end is in [`Listen::rings`].
    pub longer: Option<Producer<Accepted>>,
}

/// Arguments of [`Control::Connect`].
pub struct Connect {
    /// The socket to be connected.
    pub socket: SocketId,
    /// Local address and port; `None`, unspecified or port 0: the stack chooses.
    pub local: Option<SocketAddr>,
    /// The peer.
    pub remote: SocketAddr,
    /// Options set before the connection opens.
    pub options: Vec<SocketOption>,
    /// Open the connection by Fast Open (RFC 7413). The SYN asks for a cookie or, if one is known,
    /// carries up to [`FastOpenAnswer::syn_bytes_max`] bytes written so far.
    pub fast_open: bool,
    /// The queue that tells whether the open could begin; on failure the socket is unchanged.
    /// `None`: the state word tells every failure.
    pub answer: Option<Answer>,
}

/// A queue for one answer.
pub type Answer = Producer<Result<(), Errno>>;

/// The use of a stack's tables and pools at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Sockets in use: connections, listeners, and sockets that the application still holds after
    /// their connection has ended.
    pub sockets: usize,
    /// Quiet sockets that are packed, counted in `sockets` too.
    pub dormant: usize,
    /// Blocks that hold packed sockets.
    pub packed_blocks: usize,
    /// Handshakes in progress.
    pub half_open: usize,
    /// Compact entries: connections in TIME_WAIT, and closed ones in FIN_WAIT_2.
    pub time_wait: usize,
    /// Entries in FIN_WAIT_2, counted in `time_wait` too.
    pub fin_wait_2: usize,
    /// Flows in the table: the sum of connections, handshakes and entries.
    pub flows: usize,
    /// Small chunks that streams hold.
    pub small_chunks: u32,
    /// Large chunks that streams hold.
    pub large_chunks: u32,
    /// Records of segments in flight.
    pub segment_records: usize,
    /// Blocks that hold the ranges of segments received out of order.
    pub range_blocks: usize,
}

/// Address and port of a flow's end, in the form of the socket's block.
pub(crate) fn name_of(address: Addr, port: u16) -> Name {
    Name {
        address: *address.octets(),
        port,
    }
}

/// Address and port of a flow's end, in the form of `std`.
pub(crate) fn socket_addr(address: Addr, port: u16) -> SocketAddr {
    SocketAddr::new(address.to_ip(), port)
}
