//! Connections on their way between the stacks of two processes that share a place: what was sent
//! and is not answered, and the places that were left.
//!
//! Owns the lists. [`transfers`](crate::transfers) fills and empties them.

use std::net::SocketAddr;

use tcp::{Buffers, CongestionAlgorithm, Handshake};
use wire::{FlowKey, SeqNumber};

use crate::flows::half_opens::ListenerId;
use crate::flows::listeners::Listener;
use crate::limits::{FORSAKEN_PLACES_MAX, LEFT_PLACE_QUIET_NS, STRAYS_PER_TURN, TRANSFERS_OUT_MAX};

mod parcel;

pub(crate) use parcel::Parcel;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Transfers {
    /// Listeners that were closed since the last look at the host.
    pub closed: Vec<(ListenerId, Listener)>,
    /// Places that were left to other processes.
    pub left: Vec<LeftPlace>,
    /// Connections that were sent and are not answered.
    pub sent: Vec<Sent>,
    /// Connections to be sent, whose handshake has completed since the last look at the host.
    pub ready: Vec<(SocketAddr, Parcel)>,
    pub next_number: u32,
    /// Places that were left to other processes at any time, the oldest first.
    forsaken: Vec<SocketAddr>,
    /// Connections that a SYN cookie made and that left. The peer's next segment brings the cookie
    /// again.
    pub by_cookie: Vec<FlowKey>,
    /// Flows whose SYNs came to a place that was left, since the last look at the host.
    pub strays: Vec<FlowKey>,
}

/// A place that was left to other processes.
pub(crate) struct LeftPlace {
    pub local: SocketAddr,
    pub listener: ListenerId,
    /// Until when unknown segments get no answer.
    pub quiet_until_ns: u64,
    /// The terms that the SYN cookies of the listener offered to connections to come.
    pub offer: Offer,
}

/// The properties of a listener by which its SYN cookies are read.
#[derive(Clone, Copy)]
pub(crate) struct Offer {
    /// The buffers of its connections, which size the window.
    pub buffers: Buffers,
    /// Its congestion control; `None`: the stack's.
    pub congestion: Option<CongestionAlgorithm>,
    /// Its largest segment; 0: the path's.
    pub mss_max: u16,
}

/// A connection that was sent and is not answered.
pub(crate) struct Sent {
    /// The number under which it was sent.
    pub number: u32,
    pub key: FlowKey,
    /// The sequence number of a reset.
    pub seq: SeqNumber,
}

impl Transfers {
    /// A place is left to other processes.
    pub fn leave(&mut self, left: LeftPlace) {
        self.forsaken.retain(|place| *place != left.local);
        if self.forsaken.len() == FORSAKEN_PLACES_MAX {
            self.forsaken.remove(0);
        }
        self.forsaken.push(left.local);
        self.left.push(left);
    }

    /// A SYN has come for a flow that this stack does not know, at a place without a listener.
    /// True: the place was left, so the SYN gets no answer, and the host hears that the next one is
    /// for another process.
    #[cold]
    pub fn take_stray(&mut self, key: &FlowKey) -> bool {
        let mut places = self.forsaken.iter();
        let is_left = places.any(|place| is_at(*place, key));
        if is_left && self.strays.len() < STRAYS_PER_TURN {
            self.strays.push(*key);
        }
        is_left
    }

    /// Segments of unknown flows of this place get no answer: the flow may be another stack's now.
    #[inline]
    pub fn is_quiet(&self, key: &FlowKey, now_ns: u64) -> bool {
        !self.left.is_empty() && self.is_left(key, now_ns)
    }

    #[cold]
    fn is_left(&self, key: &FlowKey, now_ns: u64) -> bool {
        let is_moving = !self.sent.is_empty();
        let mut left = self.left.iter();
        left.any(|left| is_at(left.local, key) && (is_moving || now_ns < left.quiet_until_ns))
    }

    /// The listener that was closed at the place of a flow, the last one there, and what it
    /// offered.
    pub fn listener_at(&self, key: &FlowKey) -> Option<(ListenerId, Offer)> {
        let mut left = self.left.iter().rev();
        let left = left.find(|left| is_at(left.local, key))?;
        Some((left.listener, left.offer))
    }

    /// Places that were left answer no segment of an unknown flow for a while from now on.
    pub fn stay_quiet(&mut self, now_ns: u64) {
        for left in &mut self.left {
            left.quiet_until_ns = now_ns + LEFT_PLACE_QUIET_NS;
        }
    }

    /// The place of a listener that was closed and left to other processes.
    pub fn place_of(&self, listener: ListenerId) -> Option<SocketAddr> {
        let left = self.left.iter().find(|left| left.listener == listener)?;
        Some(left.local)
    }

    /// Takes the handshake of a listener that was left to other processes: its final ACK has come,
    /// and another process gets the connection. Data of that segment comes again. False: the
    /// listener was not left to others.
    pub fn take_handshake(
        &mut self,
        listener: ListenerId,
        key: &FlowKey,
        handshake: &Handshake,
    ) -> bool {
        let Some(place) = self.place_of(listener) else {
            return false;
        };
        let parcel = Parcel {
            key: *key,
            handshake: *handshake,
            has_fin: false,
            bytes: Vec::new(),
        };
        self.ready.push((place, parcel));
        true
    }

    /// Takes the handshake that a SYN cookie of such a listener made, once. True: the segment gets
    /// no answer here.
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

    /// A listener was closed; `transfers` decides about its connections.
    pub fn close(&mut self, id: ListenerId, listener: Listener) {
        self.closed.push((id, listener));
    }
}

/// The local end of a flow lies at a place.
fn is_at(place: SocketAddr, key: &FlowKey) -> bool {
    let (ip, port) = (place.ip(), place.port());
    port == key.local_port && (ip.is_unspecified() || ip == key.local.to_ip())
}
