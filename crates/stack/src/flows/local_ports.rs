//! Local addresses and ports: which sockets are bound where, who may share a port, and which port
//! an active open gets (RFC 9293 section 3.9.1.1; `bind`).
//!
//! The rules of `bind` are Linux's (`inet_csk_get_port`). Two sockets may have the same port if
//! their addresses differ, both set `SO_REUSEPORT`, or both set `SO_REUSEADDR` and neither listens.
//! Connections count too, TIME_WAIT included, unless the newcomer sets `SO_REUSEADDR`. Few sockets
//! are bound, so `bind` searches a short array.
//!
//! Active opens choose ports by RFC 6056 section 3.3.3 (algorithm 3, "simple hash-based"). A keyed
//! hash of both addresses and the remote port gives the start, and a counter goes on from there. A
//! port is free if its flow is, so connections to different peers may share one. The hash differs
//! from the flow table's, because peers see ports and must learn nothing about that table.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use packetio::limits::SPREAD_LOOKS_MAX;
use ring::socket_block::SocketId;
use rustix::io::Errno;
use tcp::isn::IsnGenerator;
use wire::{Addr, FlowKey};

use crate::config::OwnQueue;
use crate::flows::Flows;
use crate::flows::slot::{NO_KEY, Role};
use crate::limits::BINDS_MAX;

/// The local address and port of a bound socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub socket: SocketId,
    pub local: SocketAddr,
    /// True for an unspecified IPv6 address that covers IPv4 too.
    pub dual: bool,
    pub reuse_addr: bool,
    pub reuse_port: bool,
}

/// Bound sockets, in no order.
#[derive(Default)]
pub(crate) struct Binds {
    bound: Vec<Bound>,
}

impl Binds {
    /// Adds a bound socket. The caller has checked for room and conflicts.
    pub fn add(&mut self, bound: Bound) {
        self.bound.push(bound);
    }

    pub fn is_full(&self) -> bool {
        self.bound.len() >= BINDS_MAX
    }

    /// Removes a socket.
    pub fn remove(&mut self, socket: u32) {
        self.bound.retain(|bound| bound.socket.index != socket);
    }

    /// True if the socket was bound with `SO_REUSEPORT`.
    pub fn shares_port(&self, socket: u32) -> bool {
        let mut bound = self.bound.iter();
        bound.any(|bound| bound.socket.index == socket && bound.reuse_port)
    }

    /// True if a socket is bound to this port.
    pub fn has_port(&self, port: u16) -> bool {
        self.bound.iter().any(|bound| bound.local.port() == port)
    }
}

/// The position from which the search for a local port continues.
pub(crate) struct PortSearch {
    counter: u32,
    /// Ranges of local ports, first and last of each: the configured range, then those lent by the
    /// host.
    ranges: Vec<(u16, u16)>,
    /// The last flow for which a search began, with its start.
    last: (FlowKey, u32),
    /// The queue at which answers should arrive; `None`: any.
    own_queue: Option<OwnQueue>,
}

impl PortSearch {
    pub fn new(counter: u32, ports: (u16, u16), own_queue: Option<OwnQueue>) -> Self {
        Self {
            counter,
            ranges: vec![ports],
            last: (NO_KEY, 0),
            own_queue,
        }
    }

    /// Adds a range of ports for new connections.
    pub fn add(&mut self, ports: (u16, u16)) {
        self.ranges.push(ports);
    }

    /// Removes a range that [`add`](Self::add) brought.
    pub fn remove(&mut self, ports: (u16, u16)) {
        if let Some(at) = self.ranges.iter().rposition(|range| *range == ports) {
            self.ranges.remove(at);
        }
    }

    /// True if a host has lent some of the ports.
    pub fn are_lent(&self) -> bool {
        self.ranges.len() > 1
    }

    /// Number of ports in all ranges.
    fn count(&self) -> u32 {
        let each = |&(first, last): &(u16, u16)| u32::from(last.saturating_sub(first)) + 1;
        self.ranges.iter().map(each).sum()
    }

    /// The port at `offset` in the ranges, counted through; `offset` is less than
    /// [`count`](Self::count).
    fn at(&self, offset: u32) -> u16 {
        let mut offset = offset;
        for &(first, last) in &self.ranges {
            let count = u32::from(last.saturating_sub(first)) + 1;
            if offset < count {
                return first + offset as u16;
            }
            offset -= count;
        }
        0
    }

    /// The start of the search for `key`, which has no local port yet. Consecutive opens often go
    /// to the same peer, so the last start is cached.
    fn start(&mut self, isn: &IsnGenerator, key: &FlowKey) -> u32 {
        if !self.last.0.is_same(key) {
            self.last = (*key, isn.port_start(key));
        }
        self.last.1
    }

    /// The next value of the counter.
    fn next(&mut self) -> u32 {
        let counter = self.counter;
        self.counter = counter.wrapping_add(1);
        counter
    }
}

/// True if the addresses are equal or one covers the other.
fn overlap(a: (IpAddr, bool), b: (IpAddr, bool)) -> bool {
    let covers = |(all, dual): (IpAddr, bool), other: IpAddr| {
        all.is_unspecified() && (all.is_ipv4() == other.is_ipv4() || dual)
    };
    a.0 == b.0 || covers(a, b.0) || covers(b, a.0)
}

impl Flows {
    /// A port that no socket uses, for a socket that is bound with port 0.
    pub fn ephemeral_port(&mut self, wanted: &Bound) -> Result<u16, Errno> {
        let taken = self.ports_taken((wanted.local.ip(), wanted.dual));
        let count = self.ports.count();
        for _ in 0..count {
            let offset = self.ports.next() % count;
            let port = self.ports.at(offset);
            if !taken[usize::from(port)] {
                return Ok(port);
            }
        }
        Err(Errno::ADDRINUSE)
    }

    /// The youngest block of lent ports that is unused, if less than half of the other ports are in
    /// use.
    pub fn idle_lent_ports(&self) -> Option<(u16, u16)> {
        let taken = self.ports_taken((Ipv6Addr::UNSPECIFIED.into(), true));
        let used = |&(first, last): &(u16, u16)| {
            let ports = taken.get(usize::from(first)..=usize::from(last));
            ports.map_or(0, |ports| ports.iter().filter(|taken| **taken).count())
        };
        let (_, lent) = self.ports.ranges.split_first()?;
        let idle = *lent.iter().rev().find(|range| used(range) == 0)?;
        let left = self.ports.count() as usize - (usize::from(idle.1 - idle.0) + 1);
        let in_use: usize = self.ports.ranges.iter().map(used).sum();
        (2 * in_use < left).then_some(idle)
    }

    /// One flag per port: true if a socket uses it at this address. One pass over the sockets
    /// serves all ports, so the cost does not grow as ports run out.
    fn ports_taken(&self, wanted: (IpAddr, bool)) -> Vec<bool> {
        let bound = self.binds.bound.iter();
        let bound = bound.map(|bound| (bound.local.ip(), bound.dual, bound.local.port()));
        let listened = self.listeners.endpoints();
        let listened = listened.map(|(ip, port)| (ip, false, port));
        let flows = self.sockets.keys().chain(self.time_waits.keys().copied());
        let flows = flows.map(|key| (key.local.to_ip(), false, key.local_port));
        let mut taken = vec![false; 1 << 16];
        for (ip, dual, port) in bound.chain(listened).chain(flows) {
            if overlap(wanted, (ip, dual)) {
                taken[usize::from(port)] = true;
            }
        }
        taken
    }

    /// True if another socket or a connection prevents this binding.
    pub fn conflicts(&self, new: &Bound) -> bool {
        let wanted = (new.local.ip(), new.dual);
        let port = new.local.port();
        let with_bound = self.binds.bound.iter().any(|old| {
            let listens = matches!(self.sockets.role(old.socket.index), Role::Listener(_));
            let shares = (new.reuse_port && old.reuse_port)
                || (new.reuse_addr && old.reuse_addr && !listens);
            old.local.port() == port && overlap(wanted, (old.local.ip(), old.dual)) && !shares
        });
        if with_bound {
            return true;
        }
        let listened = self
            .listeners
            .endpoints()
            .any(|(ip, listened)| listened == port && overlap(wanted, (ip, false)));
        if listened && !new.reuse_port {
            return true;
        }
        !new.reuse_addr && !new.reuse_port && self.has_flow_at(wanted, port)
    }

    /// The address of a bound socket or listener, and whether it covers IPv4 as well.
    pub fn endpoint_of(&self, socket: u32) -> Option<(SocketAddr, bool)> {
        let mut bound = self.binds.bound.iter();
        if let Some(bound) = bound.find(|bound| bound.socket.index == socket) {
            return Some((bound.local, bound.dual));
        }
        let Role::Listener(index) = self.sockets.role(socket) else {
            return None;
        };
        let (ip, port) = self.listeners.endpoint(index)?;
        Some((SocketAddr::new(ip, port), false))
    }

    /// True if a connection or a compact entry has this address and port.
    pub fn has_flow_at(&self, wanted: (IpAddr, bool), port: u16) -> bool {
        let is_there = |local: Addr, local_port: u16| {
            local_port == port && overlap(wanted, (local.to_ip(), false))
        };
        self.sockets
            .keys()
            .any(|key| is_there(key.local, key.local_port))
            || self
                .time_waits
                .keys()
                .any(|key| is_there(key.local, key.local_port))
    }

    /// The flow's key with a local port under which the flow is unused, and its hash.
    pub fn unique_key(
        &mut self,
        isn: &IsnGenerator,
        local: IpAddr,
        port: u16,
        remote: SocketAddr,
    ) -> Result<(FlowKey, u64), Errno> {
        let mut key = FlowKey {
            local: Addr::from(local),
            remote: Addr::from(remote.ip()),
            local_port: port,
            remote_port: remote.port(),
        };
        if port != 0 {
            let hash = self.hasher.hash(&key);
            // A listener at this port does not conflict, because the flow is looked up first.
            return match self.find(&key, hash) {
                None => Ok((key, hash)),
                Some(_) => Err(Errno::ADDRNOTAVAIL),
            };
        }
        if let Some(found) = self.port_of_own_queue(isn, &key, SPREAD_LOOKS_MAX) {
            return Ok(found);
        }
        let count = self.ports.count();
        let start = self.ports.start(isn, &key);
        for _ in 0..count {
            let offset = start.wrapping_add(self.ports.next()) % count;
            key.local_port = self.ports.at(offset);
            // A socket must not become its own peer by chance.
            let is_own_peer = key.local_port == key.remote_port && key.local == key.remote;
            if is_own_peer || self.binds.has_port(key.local_port) {
                continue;
            }
            let hash = self.hasher.hash(&key);
            if self.is_free(&key, hash) {
                // With many connections to one peer, the next candidate's bucket is not in the
                // cache.
                let next = FlowKey {
                    local_port: key.local_port.wrapping_add(1),
                    ..key
                };
                self.table.prefetch(self.hasher.hash(&next));
                return Ok((key, hash));
            }
        }
        Err(Errno::ADDRNOTAVAIL)
    }

    /// A key as by [`unique_key`](Self::unique_key), for an address of a
    /// [`SourcePool`](crate::source_pool::SourcePool). Ports whose answers are known to arrive at
    /// another queue are skipped.
    pub fn pooled_key(
        &mut self,
        isn: &IsnGenerator,
        local: IpAddr,
        remote: SocketAddr,
    ) -> Result<(FlowKey, u64), Errno> {
        if self.ports.own_queue.is_none() {
            return self.unique_key(isn, local, 0, remote);
        }
        let key = FlowKey {
            local: Addr::from(local),
            remote: Addr::from(remote.ip()),
            local_port: 0,
            remote_port: remote.port(),
        };
        let found = self.port_of_own_queue(isn, &key, u32::MAX);
        found.ok_or(Errno::ADDRNOTAVAIL)
    }

    /// The flow's key with a free local port whose answers the card brings to this stack's own
    /// queue. `None`: the card's spread is unknown, or none of `looks_max` ports qualifies.
    fn port_of_own_queue(
        &mut self,
        isn: &IsnGenerator,
        key: &FlowKey,
        looks_max: u32,
    ) -> Option<(FlowKey, u64)> {
        let own = self.ports.own_queue.clone()?;
        let by_port = own.spread.by_local_port(key);
        let count = self.ports.count();
        let start = self.ports.start(isn, key);
        for _ in 0..count.min(looks_max) {
            let offset = start.wrapping_add(self.ports.next()) % count;
            let local_port = self.ports.at(offset);
            if own.spread.queue_of(&by_port, local_port) != own.queue
                || self.binds.has_port(local_port)
            {
                continue;
            }
            let one = FlowKey { local_port, ..*key };
            let hash = self.hasher.hash(&one);
            if self.is_free(&one, hash) {
                return Some((one, hash));
            }
        }
        None
    }

    /// True if nothing of ours uses this flow.
    fn is_free(&self, key: &FlowKey, hash: u64) -> bool {
        self.find(key, hash).is_none() && !self.listeners.listens_at(key.local, key.local_port)
    }
}

#[cfg(test)]
mod tests {
    use super::overlap;

    fn overlaps(a: &str, a_dual: bool, b: &str) -> bool {
        overlap((a.parse().unwrap(), a_dual), (b.parse().unwrap(), false))
    }

    #[test]
    fn unspecified_address_covers_its_family_and_a_dual_one_both() {
        assert!(overlaps("0.0.0.0", false, "10.0.0.1"));
        assert!(overlaps("10.0.0.1", false, "0.0.0.0"));
        assert!(overlaps("10.0.0.1", false, "10.0.0.1"));
        assert!(!overlaps("10.0.0.1", false, "10.0.0.2"));
        assert!(!overlaps("::", false, "10.0.0.1"));
        assert!(overlaps("::", true, "10.0.0.1"));
        assert!(overlaps("::", true, "0.0.0.0"));
        assert!(!overlaps("::1", false, "0.0.0.0"));
    }
}
