//! Connections on their way between the stacks of two processes that share a place: what was sent
//! and is not answered, and the places that were left.
//!
//! Owns the lists. [`transfers`](crate::transfers) fills and empties them.

use std::net::SocketAddr;

use tcp::Handshake;
use wire::{FlowKey, SeqNumber};

use crate::flows::half_opens::ListenerId;
use crate::flows::listeners::Listener;

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
}

/// A place that was left to other processes.
pub(crate) struct LeftPlace {
    pub local: SocketAddr,
    pub listener: ListenerId,
    /// Until when unknown segments get no answer.
    pub quiet_until_ns: u64,
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
    /// Segments of unknown flows of this place get no answer: the flow may be another stack's now.
    #[inline]
    pub fn is_quiet(&self, key: &FlowKey, now_ns: u64) -> bool {
        !self.left.is_empty() && self.is_left(key, now_ns)
    }

    #[cold]
    fn is_left(&self, key: &FlowKey, now_ns: u64) -> bool {
        let is_here = |left: &&LeftPlace| {
            let (ip, port) = (left.local.ip(), left.local.port());
            port == key.local_port && (ip.is_unspecified() || ip == key.local.to_ip())
        };
        let is_moving = !self.sent.is_empty();
        let mut left = self.left.iter();
        left.any(|left| is_here(&left) && (is_moving || now_ns < left.quiet_until_ns))
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

    /// A listener was closed; `transfers` decides about its connections.
    pub fn close(&mut self, id: ListenerId, listener: Listener) {
        self.closed.push((id, listener));
    }
}
