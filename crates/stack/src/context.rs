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
//! A socket stands in `jobs` and in `events` at most once. The job queue has as many slots as there
//! are sockets, so it is never full and close cannot fail. `events` may also hold ids of sockets
//! that the application closed before it looked. So that queue is twice as long, and an event
//! without room comes in a later turn. Both are hints: their reader looks at the socket's block for
//! the truth.
//!
//! Jobs and control requests are applied in the order in which they were sent, though they lie in
//! two queues: a request knows which jobs it follows.
//!
//! The same queues serve both ways of turning the crank; inline, both ends are on one thread.

use std::net::{IpAddr, SocketAddr};

use ring::chunk::Magazine;
use ring::doorbell::StackBell;
use ring::huge_pages::PagesHeld;
use ring::memory::Memory;
use ring::socket_block::{Name, SocketId};
use ring::spsc::{Consumer, Producer};
use rustix::io::Errno;
use wire::Addr;

use crate::activity::Activity;
use crate::counters::Counters;
pub use crate::header_fields::DontFragment;
use crate::network::neighbours::NeighbourCounters;
use crate::rules::RuleCounts;
use crate::rules::judge::Judge;
pub use crate::socket_option::{SocketOption, StampKinds};
pub use crate::source_pool::SourcePool;
use crate::stage_clock::StageCycles;

/// The application's end of a context. Memory, magazine and sockets belong together and are not to
/// be mixed with another context's ([`ring::byte_ring`], "One file").
pub struct AppSide {
    /// The memory file with the sockets' blocks and chunks.
    pub memory: Memory,
    /// Sockets whose request bits changed.
    pub jobs: Producer<SocketId>,
    /// Requests with arguments, for [`control`](Self::control) to put in.
    pub(crate) controls: Producer<Placed>,
    /// Sockets whose state or cursors changed.
    pub events: Consumer<SocketId>,
    /// Socket ids for `listen` and `connect`.
    pub sockets: Consumer<SocketId>,
    /// Chunks for the application's writes.
    pub magazine: Magazine,
    /// Wakes the stack.
    pub stack_bell: StackBell,
}

impl AppSide {
    /// Sends a request with arguments, to be applied after all jobs so far and before those to
    /// come. The queue is bounded: who gets it back turns the crank or waits.
    ///
    /// # Errors
    /// The request, if there is no room.
    // A caller that is refused sends the same request again.
    #[allow(clippy::result_large_err)]
    pub fn control(&mut self, control: Control) -> Result<(), Control> {
        let jobs_end = self.jobs.position();
        self.controls
            .push(Placed { control, jobs_end })
            .map_err(|refused| refused.control)
    }
}

/// A control request and its position among the jobs.
pub(crate) struct Placed {
    pub control: Control,
    /// The position of the first job that comes after it.
    pub jobs_end: u32,
}

/// A request with arguments. Such requests are rare, so a queue of their own keeps the jobs small.
pub enum Control {
    /// Accept connections. Answered in the socket's state word: listening, or failed with an errno.
    Listen(Listen),
    /// Opens a connection. Answered likewise: connected, or failed with an errno.
    Connect(Connect),
    /// `listen` on a listener: another backlog.
    Backlog(Backlog),
    /// Take a local address and port.
    Bind(Bind),
    /// Change an option of a connection, or of a listener for those to come.
    Option(SocketId, SocketOption),
    /// Reports the state of a connection.
    Info(InfoQuery),
    /// Hand out time stamps.
    Stamps(StampQuery),
    /// Tell what an ICMP error said, once.
    SoftError(SoftErrorQuery),
    /// Tell of the ICMP error that ended an attempt to connect, once.
    IcmpNote(IcmpNoteQuery),
    /// Hand out the headers of the SYN that made a connection, once.
    SavedSyn(SavedSynQuery),
    /// Reports counters and the use of tables.
    Report(Producer<Report>),
    /// Say what a Fast Open to a destination could carry (RFC 7413).
    FastOpenQuery(FastOpenQuery),
    /// Replaces the settings of TCP from now on, as an operator does by `sysctl`. Existing
    /// connections keep the values that they copied.
    Settings(Box<tcp::Config>),
    /// Adds an address with the prefix of its subnet, as an operator does on a running interface.
    /// An address that is present already, or that no host can have, changes nothing.
    Address(crate::network::addresses::IpCidr),
    /// Replaces the packet rules, `None`: by none. The next frame meets the new set, with counters
    /// at zero. Connections that exist go on.
    Rules(Option<Box<Judge>>),
    /// Connections to the pool's destination that name neither address nor port leave from the
    /// pool. `None`: from where the stack chooses, as to any other destination.
    Sources(Option<SourcePool>),
    /// Forget what connections have taught of Fast Open with each peer: what an operator would have
    /// forgotten by `ip tcp_metrics flush`.
    ForgetPeers,
}

impl Control {
    /// The connection that it asks something of, or for; none of what makes a socket something
    /// else.
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

/// Arguments of [`Control::FastOpenQuery`]: what `sendto` with `MSG_FASTOPEN`, or `connect` under
/// `TCP_FASTOPEN_CONNECT`, has to know before it answers its caller.
pub struct FastOpenQuery {
    /// The socket, not connected yet: its events tell that the answer is there.
    pub socket: SocketId,
    /// The peer of the connection.
    pub remote: SocketAddr,
    /// `TCP_MAXSEG` of the socket; 0: not set.
    pub mss_max: u16,
    /// `TCP_FASTOPEN_NO_COOKIE` of the socket.
    pub no_cookie: bool,
    /// The queue for the answer: room for one is enough.
    pub answer: Producer<FastOpenAnswer>,
}

/// The answer to [`Control::FastOpenQuery`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpenAnswer {
    /// True if a cookie is at hand, or none is needed: the SYN may carry data, so `connect` may be
    /// put off until there is some. Otherwise the SYN asks for a cookie, and data follows the
    /// handshake.
    pub has_cookie: bool,
    /// Bytes that the SYN takes at most; 0 without a cookie.
    pub syn_bytes_max: u32,
}

/// The values of one port, in a [`Report`].
#[derive(Clone, Debug)]
pub struct PortReport {
    /// The port's name, such as `xdp:eth1`.
    pub name: String,
    /// The port's own counters.
    pub counters: packetio::PortCounters,
    /// Frames of this port that the stack dropped, by the name of their counter.
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
    /// `IPV6_V6ONLY` is off: unspecified IPv6 stands for IPv4 too.
    pub dual: bool,
    /// `SO_REUSEADDR`
    pub reuse_addr: bool,
    /// `SO_REUSEPORT`
    pub reuse_port: bool,
    /// `IP_FREEBIND`: an address that is not ours will do.
    pub free: bool,
    /// Another socket was bound there until now, and became this one. What shared the place with
    /// it shares it on: connections that it accepted, and other sockets.
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
    /// The queue for the answer: an error number, 0 if there is nothing to tell.
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
    /// The error number that `connect` failed with.
    pub errno: u16,
    /// ICMP's type.
    pub kind: u8,
    /// ICMP's code.
    pub code: u8,
    /// Position of a header that was not understood; the word behind ICMPv6's checksum.
    pub info: u32,
    /// The sender of the message.
    pub sender: IpAddr,
    /// The segment that it quotes, from its TCP header on: the first `quoted_len` bytes.
    pub quoted: [u8; IcmpNote::QUOTED_BYTES_MAX],
    /// Bytes of `quoted` that count.
    pub quoted_len: usize,
}

impl IcmpNote {
    /// Bytes of a SYN that are quoted: all options, and a little of its data. The remainder is cut
    /// off.
    pub const QUOTED_BYTES_MAX: usize = 64;
}

/// Arguments of [`Control::SavedSyn`].
pub struct SavedSynQuery {
    /// The socket.
    pub socket: SocketId,
    /// Bytes that the asker has room for: headers that are longer stay.
    pub room: usize,
    /// The queue for the answer: the headers, empty if there are none; `Err` with their length if
    /// there is no room for them.
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
    /// Stamps of bytes that were sent, in the order in which they were made.
    pub sent: Vec<TxStamp>,
    /// When the byte that was read last arrived, if that was asked for before it did.
    pub arrived_ns: Option<u64>,
}

/// When something became of a byte that was written (`SO_TIMESTAMPING`).
#[derive(Clone, Debug)]
pub struct TxStamp {
    /// The event: one of [`StampKinds`].
    pub kind: StampKinds,
    /// The writer's position after the byte, modulo 2^32.
    pub position: u32,
    /// When, by the stack's clock.
    pub at_ns: u64,
    /// The connection's state at that time, if asked for.
    pub stats: Option<Box<StampStats>>,
}

/// A connection at the time of a stamp (`SOF_TIMESTAMPING_OPT_STATS`).
#[derive(Clone, Debug)]
pub struct StampStats {
    /// TCP's part.
    pub tcp: tcp::Info,
    /// Bytes in the send buffer.
    pub send_buffered: u32,
    /// When the byte was sent last.
    pub sent_ns: u64,
}

/// The state of a connection.
#[derive(Clone, Debug)]
pub struct SocketInfo {
    /// TCP's part.
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
    /// Path MTU to the peer, as far as known.
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
    /// The backlog, as `listen` takes it. As in Linux, one more connection than that may wait to be
    /// accepted, and that many handshakes may be in progress before SYNs are answered with cookies.
    pub backlog: u32,
    /// Options that accepted connections begin with.
    pub options: Vec<SocketOption>,
    /// The queue for the outcome; `None`: the socket's state word tells it.
    pub answer: Option<Answer>,
}

/// Arguments of [`Control::Backlog`].
pub struct Backlog {
    /// The listener's socket.
    pub socket: SocketId,
    /// The new [`Listen::backlog`].
    pub backlog: u32,
    /// The queue for accepted connections from now on, if there was not room enough.
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
    /// Open it fast (RFC 7413): the SYN asks for a cookie or, if one is at hand, carries as many of
    /// the bytes written so far as [`FastOpenAnswer::syn_bytes_max`] says.
    pub fast_open: bool,
    /// The queue that is told whether the open could begin; a failure then leaves the socket as it
    /// was. `None`: the state word tells a failure, like a later one.
    pub answer: Option<Answer>,
}

/// A slot for one answer to one question.
pub type Answer = Producer<Result<(), Errno>>;

/// A connection that a listener accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The connection's socket.
    pub socket: SocketId,
    /// The peer.
    pub remote: SocketAddr,
    /// Our end.
    pub local: SocketAddr,
}

/// The use of a stack's tables and pools at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Connections, listeners, and sockets whose connection has ended while the application holds
    /// them.
    pub sockets: usize,
    /// Quiet sockets that are packed, counted in `sockets` too.
    pub dormant: usize,
    /// Blocks that packed ones take.
    pub packed_blocks: usize,
    /// Handshakes in progress.
    pub half_open: usize,
    /// Entries of connections in TIME_WAIT, and of closed ones in FIN_WAIT_2.
    pub time_wait: usize,
    /// Entries in FIN_WAIT_2, counted in `time_wait` too.
    pub fin_wait_2: usize,
    /// Flows in the table: the sum of connections, handshakes and entries.
    pub flows: usize,
    /// Small chunks in streams.
    pub small_chunks: u32,
    /// Large chunks in streams.
    pub large_chunks: u32,
    /// Records of segments in flight.
    pub segment_records: usize,
    /// Blocks of ranges that are held out of order.
    pub range_blocks: usize,
}

/// An end of a flow as the socket's block holds it.
pub(crate) fn name_of(address: Addr, port: u16) -> Name {
    Name {
        address: *address.octets(),
        port,
    }
}

/// An end of a flow as `std` writes it.
pub(crate) fn socket_addr(address: Addr, port: u16) -> SocketAddr {
    SocketAddr::new(address.to_ip(), port)
}
