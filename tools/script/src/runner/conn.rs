//! Sockets as a script numbers them, and their live counterparts.
//!
//! Sequence numbers in a script are relative to the first SYN, except in packets with SYN, where
//! they are absolute. The peer's initial sequence number is the script's. The stack chooses its
//! own, which is learnt from its SYN.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use super::Runner;
use crate::ast::{Body, Direction, Packet, flag};
use crate::datagram::{Datagram, Segment};

/// The script's last action on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not a socket: an epoll instance.
    Other,
    /// The read end of a pipe, with the pipe's number. The runner plays pipes itself.
    PipeOut(usize),
    /// The write end of a pipe, with the pipe's number.
    PipeIn(usize),
    /// A file, which the runner plays itself. Reads find as many zeros as they ask for.
    File,
    New,
    Listening,
    /// `connect` was called.
    Connecting,
    /// The script expects the SYN of `connect`.
    SynSent,
    /// The peer's SYN-ACK was injected.
    SynAcked,
    /// The peer's first packet to a listener was injected.
    PacketReceived,
    SynAckSent,
    SynAckAcked,
}

#[derive(Debug)]
pub(super) struct Conn {
    /// The descriptor in the script; -1: none yet.
    pub script_fd: i32,
    /// The descriptor on the host.
    pub live_fd: i32,
    pub is_closed: bool,
    pub stage: Stage,
    pub local: (IpAddr, u16),
    pub remote: (IpAddr, u16),
    /// Initial sequence numbers: the host's in the script, the host's on the wire, the peer's.
    pub script_isn: u32,
    pub live_isn: u32,
    pub remote_isn: u32,
    /// Live TSvals that left, by the script's value.
    pub timestamps: HashMap<u32, u32>,
    /// The first TSval: the script's and the live one.
    pub first_timestamp: Option<(u32, u32)>,
    /// TSvals that left, in recorded values; only with `Options::record`.
    pub timestamps_seen: BTreeSet<u32>,
    /// The flow label in the script, and the live one.
    pub flow_label: Option<(u32, u32)>,
}

/// How much later a kernel's timestamp may be than ours, in ms. Two ticks of 4 ms by which its
/// timers are late, and some more.
const ECHO_LATE_MAX: u32 = 10;

impl Conn {
    /// The TSval `echo` if it left, else the next one that did, if it is near.
    pub(super) fn nearest_timestamp(&self, echo: u32) -> u32 {
        let near = echo..=echo.saturating_add(ECHO_LATE_MAX);
        self.timestamps_seen
            .range(near)
            .next()
            .copied()
            .unwrap_or(echo)
    }

    /// Offset that turns a live sequence number of the host into the script's.
    pub(super) fn local_offset(&self, is_syn: bool) -> u32 {
        match is_syn {
            true => self.script_isn.wrapping_sub(self.live_isn),
            false => 0u32.wrapping_sub(self.live_isn),
        }
    }

    /// The same offset for the peer's sequence numbers.
    pub(super) fn remote_offset(&self, is_syn: bool) -> u32 {
        match is_syn {
            true => 0,
            false => 0u32.wrapping_sub(self.remote_isn),
        }
    }

    /// Whether `segment` went from this connection's host to its peer.
    fn sent(&self, datagram: &Datagram, segment: &Segment) -> bool {
        (datagram.src, segment.src_port) == self.local
            && (datagram.dst, segment.dst_port) == self.remote
    }
}

/// Port of the peer on a connection to a listener, plus the index of the connection.
const FIRST_REMOTE_PORT: u16 = 40_000;

impl Runner<'_> {
    /// Adds a descriptor without addresses or numbers, and returns its index.
    pub(super) fn new_conn(&mut self, stage: Stage, script_fd: i32, live_fd: i32) -> usize {
        self.conns.push(Conn {
            script_fd,
            live_fd,
            is_closed: false,
            stage,
            local: (self.config.local, 0),
            remote: (self.config.remote, 0),
            script_isn: 0,
            live_isn: 0,
            remote_isn: 0,
            timestamps: HashMap::new(),
            first_timestamp: None,
            timestamps_seen: BTreeSet::new(),
            flow_label: None,
        });
        self.conns.len() - 1
    }

    /// The open descriptor with this number in the script; of several the newest.
    pub(super) fn by_script_fd(&self, fd: i32) -> Option<usize> {
        self.conns
            .iter()
            .rposition(|conn| !conn.is_closed && conn.script_fd == fd)
    }

    /// The connection to which a packet of the script belongs. A packet to a listener begins a new
    /// one.
    pub(super) fn conn_for(&mut self, packet: &Packet) -> Result<usize, String> {
        let stage = self.under_test.map(|at| self.conns[at].stage);
        if let Body::Tcp(tcp) = &packet.body {
            let is_inbound = packet.direction == Direction::Inbound;
            if is_inbound && matches!(stage, None | Some(Stage::Listening)) {
                return Ok(self.passive_conn(tcp.seq));
            }
            let is_syn = tcp.flags & flag::SYN != 0 && tcp.flags & flag::ACK == 0;
            if let (Some(at), Some(Stage::Connecting)) = (self.under_test, stage)
                && !is_inbound
                && is_syn
            {
                self.conns[at].stage = Stage::SynSent;
                self.conns[at].script_isn = tcp.seq;
                return Ok(at);
            }
        }
        match self.under_test {
            Some(at) => Ok(at),
            None => Err("no matching socket for script packet".to_owned()),
        }
    }

    fn passive_conn(&mut self, remote_isn: u32) -> usize {
        let port = FIRST_REMOTE_PORT.wrapping_add(self.conns.len() as u16);
        let at = self.new_conn(Stage::PacketReceived, -1, -1);
        let conn = &mut self.conns[at];
        conn.remote_isn = remote_isn;
        conn.remote.1 = port;
        conn.local.1 = self.config.bind_port;
        self.under_test = Some(at);
        at
    }

    /// Whether a packet that left belongs to the connection under test. The first SYN of a
    /// `connect` reveals the port.
    pub(super) fn owns(&mut self, datagram: &Datagram) -> bool {
        let (Some(at), Some(segment)) = (self.under_test, datagram.tcp()) else {
            return false;
        };
        let conn = &mut self.conns[at];
        if conn.sent(datagram, segment) {
            return true;
        }
        let is_first_syn = conn.stage == Stage::SynSent
            && segment.has(flag::SYN)
            && !segment.has(flag::ACK)
            && (datagram.dst, segment.dst_port) == conn.remote;
        if is_first_syn {
            conn.local = (datagram.src, segment.src_port);
            conn.live_isn = segment.seq;
        }
        is_first_syn
    }
}
