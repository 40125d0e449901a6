//! Connections on their way between the stacks of two processes at one address and port: those sent
//! and unanswered, and the addresses left.
//!
//! [`transfers`](crate::transfers) fills and empties these lists.

use std::collections::VecDeque;
use std::net::SocketAddr;

use tcp::{Buffers, CongestionAlgorithm, Handshake};
use wire::{FlowKey, SeqNumber};

use crate::flows::half_opens::ListenerId;
use crate::flows::listeners::Listener;
use crate::limits::{
    FLOWS_AWAY_MAX, LEFT_HISTORY_MAX, LEFT_PLACE_QUIET_NS, STRAYS_PER_TURN, TRANSFERS_OUT_MAX,
};

mod parcel;

pub(crate) use parcel::Parcel;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Transfers {
    /// Listeners closed since the last exchange with the host.
    pub closed: Vec<(ListenerId, Listener)>,
    /// Addresses left to other processes whose listener or quiet time still matters.
    pub left: Vec<LeftEndpoint>,
    /// Connections that were sent and not answered.
    pub sent: Vec<Sent>,
    /// Connections to send, whose handshake has completed since the last exchange with the host.
    pub ready: Vec<(SocketAddr, Parcel)>,
    next_number: u32,
    /// Flows that went to another process while their listener stays, oldest first. Their segments
    /// get no answer until this time, ns.
    away: VecDeque<(FlowKey, u64)>,
    /// Addresses ever left to other processes, oldest first.
    left_history: Vec<SocketAddr>,
    /// Connections made by a SYN cookie that were sent away. The peer's next segment brings the
    /// cookie again.
    pub by_cookie: Vec<FlowKey>,
    /// Flows whose SYN came to a left address since the last exchange with the host.
    pub strays: Vec<FlowKey>,
}

/// An address and port that were left to other processes.
pub(crate) struct LeftEndpoint {
    pub local: SocketAddr,
    pub listener: ListenerId,
    /// Time until which segments of unknown flows get no answer, ns.
    pub quiet_until_ns: u64,
    /// Options that the listener's SYN cookies offered to peers.
    pub offer: Offer,
}

/// The properties of a listener that are needed to read its SYN cookies.
#[derive(Clone, Copy)]
pub(crate) struct Offer {
    /// Buffer sizes of its connections, which determine the window.
    pub buffers: Buffers,
    /// Its congestion control; `None`: the stack's.
    pub congestion: Option<CongestionAlgorithm>,
    /// Largest segment that it announces, bytes; 0: the path's.
    pub mss_max: u16,
}

/// A connection that was sent and not answered.
pub(crate) struct Sent {
    /// The number under which it was sent.
    pub number: u32,
    pub key: FlowKey,
    /// Sequence number for a reset, if the connection is refused.
    pub seq: SeqNumber,
    /// The address of the listener that takes the connection back if no other process does, and the
    /// connection. `None`: the listener was closed.
    pub back: Option<Box<(SocketAddr, Parcel)>>,
}

impl Transfers {
    /// A number for the host's answer.
    pub fn new_number(&mut self) -> u32 {
        self.next_number = self.next_number.wrapping_add(1);
        self.next_number
    }

    /// Handles the answer that another process has connection `number`. Segments of its peer for
    /// this stack may still be on their way.
    pub fn taken(&mut self, number: u32, now_ns: u64) {
        if let Some(at) = self.sent.iter().position(|sent| sent.number == number) {
            let sent = self.sent.swap_remove(at);
            if sent.back.is_some() {
                if self.away.len() == FLOWS_AWAY_MAX {
                    self.away.pop_front();
                }
                self.away
                    .push_back((sent.key, now_ns + LEFT_PLACE_QUIET_NS));
            }
        }
        self.stay_quiet(now_ns);
    }

    /// Forgets flows whose late segments have all arrived.
    #[inline]
    pub fn forget_away(&mut self, now_ns: u64) {
        while self
            .away
            .front()
            .is_some_and(|(_, until_ns)| *until_ns <= now_ns)
        {
            self.away.pop_front();
        }
    }

    /// True if the flow is on its way to another process, or went there a short time ago.
    pub fn is_away(&self, key: &FlowKey) -> bool {
        let mut sent = self.sent.iter();
        self.away.iter().any(|(away, _)| away == key) || sent.any(|sent| sent.key == *key)
    }

    /// Notes an address as left to other processes.
    pub fn leave(&mut self, left: LeftEndpoint) {
        self.left_history.retain(|endpoint| *endpoint != left.local);
        if self.left_history.len() == LEFT_HISTORY_MAX {
            self.left_history.remove(0);
        }
        self.left_history.push(left.local);
        self.left.push(left);
    }

    /// Decides about a SYN of an unknown flow at an address without a listener. True: the address
    /// was left, so the SYN gets no answer. The host is told, and the next SYN goes to another
    /// process.
    #[cold]
    pub fn take_stray(&mut self, key: &FlowKey) -> bool {
        let mut endpoints = self.left_history.iter();
        let is_left = endpoints.any(|endpoint| is_at(*endpoint, key));
        if is_left && self.strays.len() < STRAYS_PER_TURN {
            self.strays.push(*key);
        }
        is_left
    }

    /// True while segments of unknown flows at this address get no answer, because the flow may be
    /// another stack's.
    #[inline]
    pub fn is_quiet(&self, key: &FlowKey, now_ns: u64) -> bool {
        !self.left.is_empty() && self.is_left(key, now_ns) || self.is_away(key)
    }

    #[cold]
    fn is_left(&self, key: &FlowKey, now_ns: u64) -> bool {
        let is_moving = !self.sent.is_empty();
        let mut left = self.left.iter();
        left.any(|left| is_at(left.local, key) && (is_moving || now_ns < left.quiet_until_ns))
    }

    /// The last listener closed at the address of a flow, and what it offered.
    pub fn listener_at(&self, key: &FlowKey) -> Option<(ListenerId, Offer)> {
        let mut left = self.left.iter().rev();
        let left = left.find(|left| is_at(left.local, key))?;
        Some((left.listener, left.offer))
    }

    /// Restarts the quiet time of all left addresses.
    pub fn stay_quiet(&mut self, now_ns: u64) {
        for left in &mut self.left {
            left.quiet_until_ns = now_ns + LEFT_PLACE_QUIET_NS;
        }
    }

    /// The address of a closed listener that was left to other processes.
    pub fn endpoint_of(&self, listener: ListenerId) -> Option<SocketAddr> {
        let left = self.left.iter().find(|left| left.listener == listener)?;
        Some(left.local)
    }

    /// Takes a completed handshake of a listener that was left to other processes: another process
    /// gets the connection. The peer repeats the segment's data. False: the listener was not left.
    pub fn take_handshake(
        &mut self,
        listener: ListenerId,
        key: &FlowKey,
        handshake: &Handshake,
    ) -> bool {
        let Some(endpoint) = self.endpoint_of(listener) else {
            return false;
        };
        let parcel = Parcel {
            key: *key,
            handshake: *handshake,
            has_fin: false,
            bytes: Vec::new(),
        };
        self.ready.push((endpoint, parcel));
        true
    }

    /// Takes a handshake that completes by a SYN cookie of a left listener, once per flow. True:
    /// the segment gets no answer here.
    pub fn take_cookie(
        &mut self,
        listener: ListenerId,
        key: &FlowKey,
        handshake: &Handshake,
    ) -> bool {
        let is_known = self.by_cookie.contains(key);
        if is_known || self.by_cookie.len() == TRANSFERS_OUT_MAX {
            return is_known;
        }
        self.by_cookie.push(*key);
        self.take_handshake(listener, key, handshake)
    }

    /// Notes a closed listener; `transfers` decides about its connections.
    pub fn close(&mut self, id: ListenerId, listener: Listener) {
        self.closed.push((id, listener));
    }
}

/// True if the local end of a flow lies at `endpoint`.
fn is_at(endpoint: SocketAddr, key: &FlowKey) -> bool {
    let (ip, port) = (endpoint.ip(), endpoint.port());
    port == key.local_port && (ip.is_unspecified() || ip == key.local.to_ip())
}
