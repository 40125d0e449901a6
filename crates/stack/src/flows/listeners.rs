//! Listening sockets: their addresses, ports, options and accept queues.
//!
//! Listeners are few, and only a segment without a flow looks for one. So a look-up searches a
//! short array: an exact address before the unspecified one.
//!
//! Several listeners share an address and port if all were bound with `SO_REUSEPORT`. The flow's
//! keyed hash chooses one by the greatest weight of hash and listener together. When a listener
//! ends, the flows of the others therefore stay with them.

use std::collections::VecDeque;
use std::mem::discriminant;
use std::net::{IpAddr, SocketAddr};

use ring::huge_pages::PageSource;
use ring::socket_block::SocketId;
use tcp::{CongestionAlgorithm, FastOpenKeys};
use wire::Addr;

use crate::activity::Histogram;
use crate::context::{Accepted, SocketOption};
use crate::flows::accept_queue::AcceptQueue;
use crate::flows::half_opens::ListenerId;
use crate::flows::slab::Slab;
use crate::header_fields::HeaderFields;
use crate::limits::{FAST_OPEN_PENDING_MAX, FAST_OPEN_RESET_NS};

pub(crate) struct Listener {
    pub socket: SocketId,
    /// The address; `None`: every address of the family that `is_v4` tells.
    address: Option<Addr>,
    is_v4: bool,
    /// True for an unspecified IPv6 address that covers IPv4 too.
    is_dual: bool,
    port: u16,
    /// True if bound with `SO_REUSEPORT`: other listeners with this option may have the same
    /// address and port.
    shares: bool,
    pub queue: AcceptQueue,
    /// Options of the accepted connections.
    pub options: Vec<SocketOption>,
    /// The header fields among these options, which SYN-ACKs carry too: those of IPv4 packets and
    /// those of IPv6 packets.
    headers: [HeaderFields; 2],
    /// `TCP_CONGESTION` among these options.
    pub congestion: Option<CongestionAlgorithm>,
    /// True if these options include some that size buffers.
    pub sizes_buffers: bool,
    /// Number of handshakes in progress.
    pub half_open: u32,
    pub fast_open: FastOpenQueue,
    /// TCP_FASTOPEN_NO_COOKIE
    pub no_cookie: bool,
    /// TCP_DEFER_ACCEPT in seconds; 0: off.
    pub defer_accept_seconds: u32,
    /// TCP_MAXSEG: bounds the MSS announced in SYN-ACKs; 0: not set.
    pub mss_max: u16,
    /// TCP_SYNCNT; 0: not set.
    pub syn_retries: u8,
    /// TCP_SAVE_SYN; 0: off.
    pub save_syn: u8,
    generation: u32,
}

/// A listener's state for Fast Open (RFC 7413 section 5.1): its limit of pending connections, their
/// number, and its keys.
#[derive(Default)]
pub(crate) struct FastOpenQueue {
    /// TCP_FASTOPEN: limit of pending Fast Opens; 0: off.
    pub pending_max: u32,
    pub pending: u32,
    /// Times at which Fast Opens reset by their client cease to count, in order, ns.
    resets_until_ns: VecDeque<u64>,
    /// TCP_FASTOPEN_KEY; `None`: the stack's keys.
    pub keys: Option<FastOpenKeys>,
}

impl FastOpenQueue {
    /// True if another Fast Open may become pending under a limit of `pending_max`.
    pub fn has_room(&mut self, pending_max: u32, now_ns: u64) -> bool {
        while self
            .resets_until_ns
            .front()
            .is_some_and(|&until_ns| until_ns <= now_ns)
        {
            self.resets_until_ns.pop_front();
        }
        self.pending + (self.resets_until_ns.len() as u32) < pending_max
    }

    /// Ends a pending Fast Open. `reset`: its client reset it, so it counts for a while longer.
    pub fn leave(&mut self, reset: bool, now_ns: u64) {
        self.pending = self.pending.saturating_sub(1);
        if reset && (self.resets_until_ns.len() as u32) < FAST_OPEN_PENDING_MAX {
            self.resets_until_ns.push_back(now_ns + FAST_OPEN_RESET_NS);
        }
    }
}

impl Listener {
    /// The listener's address; unspecified if it listens at all addresses of its family.
    pub fn address(&self) -> Addr {
        let any = match self.is_v4 {
            true => Addr::UNSPECIFIED_V4,
            false => Addr::UNSPECIFIED_V6,
        };
        self.address.unwrap_or(any)
    }

    /// The listener's port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// True if the accept queue has room: as in Linux, for one more than the backlog.
    pub fn has_room(&mut self) -> bool {
        self.queue.has_room()
    }

    /// True if handshakes in progress have reached the backlog, so that SYNs get cookies.
    pub fn is_flooded(&self) -> bool {
        self.half_open >= self.queue.backlog.max(1)
    }

    /// Limit of pending Fast Opens. `every`: a listener that did not set `TCP_FASTOPEN` uses its
    /// backlog.
    pub fn fast_open_max(&self, every: bool) -> u32 {
        match self.fast_open.pending_max {
            0 if every => self.queue.backlog,
            asked => asked,
        }
        .min(FAST_OPEN_PENDING_MAX)
    }

    /// Applies an option to the listener or to its future connections.
    pub fn set_option(&mut self, option: SocketOption) {
        let [v4, v6] = &mut self.headers;
        option.sets_header(v4, true);
        option.sets_header(v6, false);
        self.sizes_buffers |= matches!(
            option,
            SocketOption::RecvBuffer(_)
                | SocketOption::SendBuffer(_)
                | SocketOption::WindowClamp(_)
        );
        if let SocketOption::Congestion(choice) = option {
            self.congestion = Some(choice);
        }
        match option {
            SocketOption::FastOpen(pending) => self.fast_open.pending_max = pending,
            SocketOption::FastOpenKey(keys) => self.fast_open.keys = Some(keys),
            SocketOption::FastOpenNoCookie(on) => self.no_cookie = on,
            SocketOption::DeferAccept(seconds) => self.defer_accept_seconds = seconds,
            SocketOption::SynRetries(retries) => self.syn_retries = retries,
            SocketOption::MaxSegment(mss) => self.mss_max = mss,
            SocketOption::SaveSyn(how) => self.save_syn = how,
            inherited => {
                let kind = discriminant(&inherited);
                let held = self
                    .options
                    .iter_mut()
                    .find(|held| discriminant(*held) == kind);
                match held {
                    Some(held) => *held = inherited,
                    None => self.options.push(inherited),
                }
            }
        }
    }
}

/// The reason why a listener cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenError {
    InUse,
    Full,
}

/// How closely a listener matches a local address; later variants match better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Dual,
    Family,
    Exact,
}

/// The weight of a listener for a flow: pseudo-random, but the same for each look-up.
fn weight(flow_hash: u64, generation: u32) -> u64 {
    // The finalizer of SplitMix64.
    let mut word = flow_hash ^ u64::from(generation).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

pub(crate) struct Listeners {
    slots: Slab<Listener>,
    generation: u32,
    /// Indices of listeners in whose accept queues connections waited at the last look, or wait
    /// since.
    awaited: Vec<u32>,
    /// Indices of listeners whose process accepts although the host passes it over.
    returned: Vec<u32>,
}

impl Listeners {
    /// Puts a connection into a listener's accept queue; the caller has checked that there is room.
    pub fn push_accepted(&mut self, listener: ListenerId, accepted: Accepted, now_ns: u64) {
        let Some(listening) = self.at_mut(listener) else {
            return;
        };
        listening.queue.push(accepted, now_ns);
        let is_known = std::mem::replace(&mut listening.queue.is_awaited, true);
        if !is_known && self.awaited.len() < self.awaited.capacity() {
            self.awaited.push(listener.index);
        }
    }

    /// Records the delays of connections that applications have accepted since the last turn.
    #[inline]
    pub fn note_taken(&mut self, now_ns: u64, delays: &mut Histogram) {
        if !self.awaited.is_empty() {
            self.note_awaited(now_ns, delays);
        }
    }

    fn note_awaited(&mut self, now_ns: u64, delays: &mut Histogram) {
        let (slots, returned) = (&mut self.slots, &mut self.returned);
        self.awaited.retain(|&index| {
            let Some(listener) = slots.at_mut(index) else {
                return false;
            };
            listener.queue.is_awaited = listener.queue.note_taken(now_ns, delays);
            let search = &listener.queue.search;
            let is_back = search.is_passed_over && search.has_accepted;
            if is_back && returned.len() < returned.capacity() && !returned.contains(&index) {
                returned.push(index);
            }
            listener.queue.is_awaited
        });
    }

    /// Indices of listeners in whose accept queues connections wait.
    pub fn awaited(&self) -> &[u32] {
        &self.awaited
    }

    /// Indices of listeners whose process accepts although the host passes it over.
    pub fn returned(&self) -> &[u32] {
        &self.returned
    }

    /// Tells the host of these listeners. `tell` returns false if there is no room.
    #[cold]
    pub fn tell_returned(&mut self, mut tell: impl FnMut(SocketAddr) -> bool) {
        let slots = &mut self.slots;
        self.returned.retain(|&index| {
            let Some(listener) = slots.at_mut(index) else {
                return false;
            };
            let local = SocketAddr::new(listener.address().to_ip(), listener.port);
            let is_told = !listener.queue.search.is_passed_over || tell(local);
            listener.queue.search.is_passed_over &= !is_told;
            !is_told
        });
    }

    /// The listener whose search for another process has this number.
    pub fn asked(&self, number: u32) -> Option<ListenerId> {
        let mut all = self.slots.iter();
        let (index, listener) = all.find(|(_, one)| one.queue.search.asked == Some(number))?;
        let generation = listener.generation;
        Some(ListenerId { index, generation })
    }

    /// Number of connections that wait in accept queues.
    pub fn waiting(&self) -> usize {
        let waiting = self
            .slots
            .iter()
            .map(|(_, one)| one.queue.waiting().count());
        waiting.sum()
    }

    /// The network header fields that a listener chose for its SYN-ACKs of a family (`IP_TOS`,
    /// `IPV6_TCLASS`, `IP_TTL`, `IPV6_UNICAST_HOPS`, `IP_MTU_DISCOVER`).
    pub fn header_of(&self, listener: ListenerId, is_v4: bool) -> HeaderFields {
        self.at(listener)
            .map_or_else(HeaderFields::default, |listening| {
                let [v4, v6] = listening.headers;
                if is_v4 { v4 } else { v6 }
            })
    }

    /// True if a connection of `listener` waits in its accept queue.
    pub fn has_waiting(&mut self, listener: ListenerId, socket: u32) -> bool {
        self.at_mut(listener)
            .is_some_and(|listening| listening.queue.waiting().any(|id| id.index == socket))
    }

    pub fn new(capacity: usize, source: &mut PageSource) -> Self {
        Self {
            slots: Slab::new(capacity, source),
            generation: 0,
            awaited: Vec::with_capacity(capacity),
            returned: Vec::with_capacity(capacity),
        }
    }

    /// Adds a listener at `address` (unspecified: all) and `port`. `shares`: it was bound with
    /// `SO_REUSEPORT`.
    pub fn add(
        &mut self,
        socket: SocketId,
        (address, port): (IpAddr, u16),
        shares: bool,
        queue: AcceptQueue,
        options: Vec<SocketOption>,
    ) -> Result<u32, ListenError> {
        let is_v4 = address.is_ipv4();
        let is_dual =
            !is_v4 && address.is_unspecified() && options.contains(&SocketOption::V6Only(false));
        let address = (!address.is_unspecified()).then(|| Addr::from(address));
        if self
            .slots
            .iter()
            .filter(|(_, l)| l.port == port && l.is_v4 == is_v4 && l.address == address)
            .any(|(_, l)| !(l.shares && shares))
        {
            return Err(ListenError::InUse);
        }
        self.generation = self.generation.wrapping_add(1);
        let mut listener = Listener {
            socket,
            address,
            is_v4,
            is_dual,
            port,
            shares,
            queue,
            options: Vec::new(),
            headers: [HeaderFields::default(); 2],
            congestion: None,
            sizes_buffers: false,
            half_open: 0,
            fast_open: FastOpenQueue::default(),
            no_cookie: false,
            defer_accept_seconds: 0,
            mss_max: 0,
            syn_retries: 0,
            save_syn: 0,
            generation: self.generation,
        };
        for option in options {
            listener.set_option(option);
        }
        self.slots.insert(listener).map_err(|_| ListenError::Full)
    }

    /// True if a socket listens at `local`:`port`.
    pub fn listens_at(&self, local: Addr, port: u16) -> bool {
        self.find(local, port, 0).is_some()
    }

    /// The listener at `local`:`port` for a flow with this keyed hash.
    pub fn find(&self, local: Addr, port: u16, flow_hash: u64) -> Option<ListenerId> {
        let mut best: Option<((Fit, u64), ListenerId)> = None;
        for (index, listener) in self.slots.iter() {
            if listener.port != port {
                continue;
            }
            let fit = match listener.address {
                Some(address) if address == local => Fit::Exact,
                None if listener.is_v4 == local.is_v4() => Fit::Family,
                None if listener.is_dual => Fit::Dual,
                _ => continue,
            };
            let rank = (fit, weight(flow_hash, listener.generation));
            if best.is_none_or(|(best_rank, _)| rank > best_rank) {
                let generation = listener.generation;
                best = Some((rank, ListenerId { index, generation }));
            }
        }
        best.map(|(_, id)| id)
    }

    /// The addresses and ports of all listeners.
    pub fn endpoints(&self) -> impl Iterator<Item = (IpAddr, u16)> + '_ {
        let endpoint = |listener: &Listener| (listener.address().to_ip(), listener.port);
        self.slots
            .iter()
            .map(move |(_, listener)| endpoint(listener))
    }

    /// One more than the largest index in use.
    pub fn span(&self) -> u32 {
        self.slots.span()
    }

    /// The listener with an index, by shared reference.
    pub fn by_index(&self, index: u32) -> Option<&Listener> {
        self.slots.at(index)
    }

    /// Address and port of the listener with an index.
    pub fn endpoint(&self, index: u32) -> Option<(IpAddr, u16)> {
        let listener = self.slots.at(index)?;
        let any = match listener.is_v4 {
            true => Addr::UNSPECIFIED_V4,
            false => Addr::UNSPECIFIED_V6,
        };
        Some((listener.address.unwrap_or(any).to_ip(), listener.port))
    }

    /// The listener with an index, by mutable reference.
    pub fn by_index_mut(&mut self, index: u32) -> Option<&mut Listener> {
        self.slots.at_mut(index)
    }

    /// The listener with this id, by shared reference.
    pub fn at(&self, id: ListenerId) -> Option<&Listener> {
        self.slots
            .at(id.index)
            .filter(|listener| listener.generation == id.generation)
    }

    /// The listener with this id, by mutable reference; `None` if it has ended.
    pub fn at_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        self.slots
            .at_mut(id.index)
            .filter(|listener| listener.generation == id.generation)
    }

    /// Removes a listener; returns it with its id.
    pub fn remove(&mut self, index: u32) -> Option<(ListenerId, Listener)> {
        let listener = self.slots.remove(index)?;
        let generation = listener.generation;
        Some((ListenerId { index, generation }, listener))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::AcceptRings;

    fn listener(listeners: &mut Listeners, address: &str, port: u16) -> Result<u32, ListenError> {
        let (accepted, queue) = ring::spsc::queue(4);
        let ends = (accepted, AcceptRings::new(queue));
        let socket = SocketId {
            index: 0,
            generation: 0,
        };
        let address = address.parse().unwrap();
        let endpoint = (address, port);
        let shares = port == 81;
        listeners.add(
            socket,
            endpoint,
            shares,
            AcceptQueue::new(ends, 3),
            Vec::new(),
        )
    }

    fn found(listeners: &Listeners, address: &str, port: u16) -> Option<u32> {
        listeners
            .find(Addr::from(address.parse::<IpAddr>().unwrap()), port, 0)
            .map(|id| id.index)
    }

    #[test]
    fn exact_address_is_found_before_the_unspecified_one() {
        let mut listeners = Listeners::new(4, &mut PageSource::default());
        let any = listener(&mut listeners, "0.0.0.0", 80).unwrap();
        let exact = listener(&mut listeners, "10.0.0.1", 80).unwrap();
        assert_eq!(found(&listeners, "10.0.0.1", 80), Some(exact));
        assert_eq!(found(&listeners, "10.0.0.2", 80), Some(any));
        assert_eq!(found(&listeners, "10.0.0.2", 81), None);
        assert_eq!(
            found(&listeners, "fd00::1", 80),
            None,
            "the other family has listeners of its own"
        );
    }

    #[test]
    fn unspecified_ipv6_address_takes_ipv4_flows_only_if_asked_to() {
        for (options, takes) in [
            (Vec::new(), false),
            (vec![SocketOption::V6Only(true)], false),
            (vec![SocketOption::V6Only(false)], true),
        ] {
            let mut listeners = Listeners::new(1, &mut PageSource::default());
            let (accepted, queue) = ring::spsc::queue(4);
            let ends = (accepted, AcceptRings::new(queue));
            let socket = SocketId {
                index: 0,
                generation: 0,
            };
            let endpoint = ("::".parse().unwrap(), 80);
            let queue = AcceptQueue::new(ends, 3);
            let added = listeners.add(socket, endpoint, false, queue, options);
            assert_eq!(added, Ok(0));
            assert_eq!(found(&listeners, "10.0.0.1", 80).is_some(), takes);
            assert_eq!(found(&listeners, "fd00::1", 80), Some(0));
        }
    }

    #[test]
    fn flows_of_a_shared_endpoint_stay_when_another_listener_ends() {
        let mut listeners = Listeners::new(3, &mut PageSource::default());
        let all = [(); 3].map(|()| listener(&mut listeners, "10.0.0.1", 81).unwrap());
        let local = Addr::from("10.0.0.1".parse::<IpAddr>().unwrap());
        let choose = |listeners: &Listeners| -> Vec<u32> {
            (0..300_u64)
                .map(|flow| flow.wrapping_mul(0x1234_5678_9abc_def1))
                .map(|hash| listeners.find(local, 81, hash).unwrap().index)
                .collect()
        };
        let before = choose(&listeners);
        for one in all {
            let share = before.iter().filter(|&&chosen| chosen == one).count();
            assert!((60..140).contains(&share), "{share} of 300");
        }
        listeners.remove(all[1]);
        let after = choose(&listeners);
        for (before, after) in before.iter().zip(after) {
            assert!(*before == all[1] || *before == after);
            assert_ne!(after, all[1]);
        }
    }

    #[test]
    fn weights_are_the_outputs_of_splitmix64() {
        // Outputs of SplitMix64's reference implementation, seeded with 0.
        let outputs = [
            0xe220_a839_7b1d_cdaf,
            0x6e78_9e6a_a1b9_65f4,
            0x06c4_5d18_8009_454f,
        ];
        assert_eq!([1, 2, 3].map(|generation| weight(0, generation)), outputs);
    }

    #[test]
    fn listener_that_does_not_share_is_refused_beside_one_that_does() {
        let mut listeners = Listeners::new(4, &mut PageSource::default());
        let mut add = |address: &str, shares| {
            let (accepted, queue) = ring::spsc::queue(4);
            let ends = (accepted, AcceptRings::new(queue));
            let socket = SocketId {
                index: 0,
                generation: 0,
            };
            let endpoint = (address.parse().unwrap(), 80);
            let queue = AcceptQueue::new(ends, 3);
            listeners.add(socket, endpoint, shares, queue, Vec::new())
        };
        assert_eq!(add("10.0.0.1", true), Ok(0));
        assert_eq!(add("10.0.0.1", false), Err(ListenError::InUse));
        assert_eq!(add("10.0.0.1", true), Ok(1));
        // Another address or family is a different endpoint.
        assert_eq!(add("10.0.0.2", false), Ok(2));
        assert_eq!(add("10.0.0.2", true), Err(ListenError::InUse));
        assert_eq!(add("::", false), Ok(3));
    }

    #[test]
    fn second_listener_at_the_same_endpoint_is_refused_until_the_first_ends() {
        let mut listeners = Listeners::new(1, &mut PageSource::default());
        let first = listener(&mut listeners, "::", 80).unwrap();
        assert_eq!(listener(&mut listeners, "::", 80), Err(ListenError::InUse));
        assert_eq!(listener(&mut listeners, "::", 81), Err(ListenError::Full));
        let id = listeners
            .find(Addr::from("::1".parse::<IpAddr>().unwrap()), 80, 0)
            .unwrap();
        listeners.remove(first);
        assert!(listeners.at_mut(id).is_none());
        assert_eq!(listener(&mut listeners, "::", 80), Ok(0));
        assert!(
            listeners.at_mut(id).is_none(),
            "the index serves another listener now"
        );
    }
}
