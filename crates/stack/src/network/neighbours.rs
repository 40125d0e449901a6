//! The neighbour cache: MAC addresses of IP addresses on the link, learned by ARP or neighbour
//! discovery.
//!
//! The cache owns the entries with their states and timers, and the connections and control frames
//! that wait for an answer. `arp_nd` passes it the link's messages,
//! [`Routes`](crate::network::routes::Routes) names the address to resolve, and `packet_out` reads
//! MAC addresses. The timer stage polls it for requests to send. One state machine serves both
//! families (RFC 4861 section 7.3, RFC 1122 section 2.3.2.1):
//!
//! ```text
//!              resolve                        answer                   reachable time over
//!   (nothing) ────────► Incomplete ─────────────────────► Reachable ─────────────────────► Stale
//!                           │ 3 requests                   ▲  ▲  ▲                           │ used
//!                           ▼                       confirm│  │  │answer                     ▼
//!                        Failed ◄───────────────────── Probe ◄┼─────────────────────────── Delay
//!                                 3 unicast requests          └── confirm ───────────────────┘  5 s
//! ```
//!
//! A connection keeps a [`NeighbourId`]. Reading its MAC address takes one bounds check, one
//! comparison of generations and one of times. A replaced entry has another generation:
//! [`Link::Gone`] tells the connection to resolve again. Nothing allocates after
//! [`Neighbours::new`].

use core::net::IpAddr;

use wire::{Addr, MacAddr, siphash};

use crate::limits::NEIGHBOURS_MAX;

mod index;
mod learning;
mod table;
mod waiting;

#[cfg(test)]
mod tests;

use index::Index;
use table::Newcomer;
use waiting::{Pools, Queue};

/// Protocol constants of RFC 4861 section 10, all in nanoseconds or counts.
#[derive(Clone, Copy, Debug)]
pub struct NeighbourTimers {
    /// Average time for which a confirmation holds; the actual time is drawn between half and one
    /// and a half of it (BaseReachableTime).
    pub reachable_ns: u64,
    /// Time that a stale entry in use waits for TCP's confirmation before it is probed
    /// (DELAY_FIRST_PROBE_TIME).
    pub delay_ns: u64,
    /// Time between requests (RETRANS_TIMER).
    pub retransmit_ns: u64,
    /// Multicast or broadcast requests before an address counts as absent (MAX_MULTICAST_SOLICIT).
    pub multicast_requests_max: u8,
    /// Unicast requests before a known neighbour counts as lost (MAX_UNICAST_SOLICIT).
    pub unicast_requests_max: u8,
    /// Time for which an address without an answer is not requested again.
    pub failed_ns: u64,
}

impl Default for NeighbourTimers {
    fn default() -> Self {
        const SECOND: u64 = 1_000_000_000;
        NeighbourTimers {
            reachable_ns: 30 * SECOND,
            delay_ns: 5 * SECOND,
            retransmit_ns: SECOND,
            multicast_requests_max: 3,
            unicast_requests_max: 3,
            failed_ns: SECOND,
        }
    }
}

/// Time for which news from a peer confirms its neighbour: by then the peer must have had our ACKs.
const NEWS_NS: u64 = 1_000_000_000;

/// A reference to a neighbour that a connection keeps. Outdated references are recognised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NeighbourId {
    index: u16,
    port: u8,
    generation: u32,
}

const _: () = assert!(NEIGHBOURS_MAX <= 1 << u16::BITS);

impl NeighbourId {
    /// Index of the port behind which the neighbour is.
    #[inline]
    pub fn port(self) -> u8 {
        self.port
    }
}

/// State of an entry (RFC 4861 section 7.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NeighbourState {
    /// A request was sent, no answer came yet.
    Incomplete,
    /// Confirmed recently.
    Reachable,
    /// The address is known, but not confirmed recently and not in use.
    Stale,
    /// Stale and in use: TCP may confirm the neighbour before it is probed.
    Delay,
    /// The neighbour is being probed by unicast requests.
    Probe,
    /// No answer came.
    Failed,
    /// Configured, or given by the host; never ages.
    Permanent,
}

/// The current link to a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// Frames go to this MAC address.
    Ready(MacAddr),
    /// The MAC address is unknown as yet: call [`Neighbours::wait`] or [`Neighbours::hold_frame`].
    Waiting,
    /// No answer came: the host is unreachable.
    Unreachable,
    /// The entry was replaced: resolve the address again.
    Gone,
}

/// A task of the cache, from [`Neighbours::poll`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NeighbourEvent {
    /// Send this request, by [`arp_nd::request_frame`](crate::network::arp_nd::request_frame).
    Request(Request),
    /// The neighbour did not answer. [`Neighbours::release`] names the connections that waited.
    Failed(NeighbourId),
    /// The entry for which this connection waited was replaced.
    Displaced(u32),
}

/// A request for a neighbour's MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Index of the port to ask on.
    pub port: u8,
    /// The address whose MAC address is wanted.
    pub target: IpAddr,
    /// Destination of a unicast request; `None`: broadcast (ARP) or solicited-node group (ND).
    pub unicast: Option<MacAddr>,
}

/// A neighbour's claim about its MAC address: a neighbour advertisement (RFC 4861 section 4.4) or
/// an ARP reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advertisement {
    /// The neighbour's MAC address, if the message holds one.
    pub mac: Option<MacAddr>,
    /// True if the claim answers our request.
    pub solicited: bool,
    /// True if the claim may replace a known MAC address.
    pub overrides: bool,
}

/// Something that waited for a neighbour, from [`Neighbours::release`].
#[derive(Debug)]
pub enum Waiter<'a> {
    /// A connection's token, as given to [`Neighbours::wait`].
    Token(u32),
    /// A frame ready to send: its destination MAC address is filled in.
    Frame(&'a [u8]),
}

/// The reason why an address could not be resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NeighbourError {
    /// Every entry is permanent ([`NEIGHBOURS_MAX`]).
    #[error("neighbour cache is full (NEIGHBOURS_MAX)")]
    TableFull,
}

/// Counters of the cache.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct NeighbourCounters {
    /// Requests that [`Neighbours::poll`] returned.
    pub requests: u64,
    /// Addresses that did not answer.
    pub failed: u64,
    /// Entries that were replaced.
    pub evicted: u64,
    /// New entries refused because no other could be replaced.
    pub table_full: u64,
    /// Connections not noted because `NEIGHBOUR_WAITING_MAX` was reached.
    pub waiting_full: u64,
    /// Frames dropped: too long, too many, or the neighbour failed or was replaced.
    pub frames_dropped: u64,
}

/// The neighbour cache, with at most [`NEIGHBOURS_MAX`] entries over all ports.
#[derive(Debug)]
pub struct Neighbours {
    entries: Vec<Entry>,
    index: Index,
    pools: Pools,
    /// Connections that waited for replaced entries.
    displaced: Queue,
    /// Entries with a running timer. The scan removes an entry whose state has no timer any more.
    timed: Vec<u32>,
    scan: usize,
    deadline_ns: u64,
    timers: NeighbourTimers,
    reachable_ns: u64,
    key: [u64; 2],
    draws: u64,
    eviction_hand: usize,
    entries_max: usize,
    counters: NeighbourCounters,
}

#[derive(Clone, Debug)]
struct Entry {
    address: Addr,
    /// End of the state's time, ns. Reachable: validity; Incomplete, Delay, Probe: next action;
    /// Failed: no request before.
    until_ns: u64,
    /// Time of the last wish to send to the neighbour, ns; 0: never.
    used_ns: u64,
    generation: u32,
    queue: Queue,
    mac: MacAddr,
    port: u8,
    state: NeighbourState,
    requests_sent: u8,
    is_timed: bool,
}

impl Entry {
    fn has_timer(&self) -> bool {
        use NeighbourState::{Delay, Incomplete, Probe};
        matches!(self.state, Incomplete | Delay | Probe)
    }

    fn has_mac(&self) -> bool {
        use NeighbourState::{Failed, Incomplete};
        !matches!(self.state, Incomplete | Failed)
    }

    /// The worth of the entry: when the table is full the least goes first, and among equals the
    /// least recently used.
    fn worth(&self) -> u8 {
        match self.state {
            NeighbourState::Failed => 0,
            // A flood of SYNs from invented neighbours must not displace real ones.
            NeighbourState::Incomplete => 1,
            NeighbourState::Stale => 2,
            NeighbourState::Reachable | NeighbourState::Delay | NeighbourState::Probe => 3,
            NeighbourState::Permanent => u8::MAX,
        }
    }
}

impl Neighbours {
    /// Makes an empty cache with all its memory. `key` is a secret of this stack: it keys the index
    /// and randomises the reachable time.
    pub fn new(timers: NeighbourTimers, key: [u64; 2]) -> Neighbours {
        Neighbours::with_limit(timers, key, NEIGHBOURS_MAX)
    }

    /// Makes a cache with room for fewer entries, 1 to [`NEIGHBOURS_MAX`].
    pub fn with_limit(timers: NeighbourTimers, key: [u64; 2], entries_max: usize) -> Neighbours {
        let entries_max = entries_max.clamp(1, NEIGHBOURS_MAX);
        let mut neighbours = Neighbours {
            entries: Vec::with_capacity(entries_max),
            index: Index::new(entries_max),
            pools: Pools::new(),
            displaced: Queue::EMPTY,
            timed: Vec::with_capacity(entries_max),
            scan: 0,
            deadline_ns: u64::MAX,
            timers,
            reachable_ns: 0,
            key,
            draws: 0,
            eviction_hand: 0,
            entries_max,
            counters: NeighbourCounters::default(),
        };
        neighbours.draw_reachable_time();
        neighbours
    }

    /// The neighbour with `address` on `port`. An unknown one is requested: [`Neighbours::poll`]
    /// returns the request.
    ///
    /// # Errors
    /// [`NeighbourError::TableFull`] when no entry can be replaced.
    pub fn resolve(
        &mut self,
        port: u8,
        address: IpAddr,
        now_ns: u64,
    ) -> Result<NeighbourId, NeighbourError> {
        let address = Addr::from(address);
        if let Some(index) = self.find(port, address) {
            return Ok(self.id(index));
        }
        let index = self.insert(port, address, now_ns, Newcomer::Wanted)?;
        self.start_asking(index, now_ns);
        Ok(self.id(index))
    }

    /// True if `id` still names the same entry.
    #[inline]
    pub fn is_current(&self, id: NeighbourId) -> bool {
        let entry = self.entries.get(usize::from(id.index));
        entry.is_some_and(|entry| entry.generation == id.generation)
    }

    /// The current link to `id`, for one frame of the data path. The call marks the entry as used,
    /// so that a stale one is probed.
    #[inline]
    pub fn link(&mut self, id: NeighbourId, now_ns: u64) -> Link {
        self.link_to_peer(id, now_ns, 0)
    }

    /// The current link to `id`, for a connection whose peer last sent something new at `news_ns`
    /// (0: never). Such news shows that our ACKs reach the peer (RFC 4861 section 7.3.1), so a pure
    /// receiver need not probe its neighbour.
    #[inline]
    pub fn link_to_peer(&mut self, id: NeighbourId, now_ns: u64, news_ns: u64) -> Link {
        let Some(entry) = self.live_mut(id) else {
            return Link::Gone;
        };
        entry.used_ns = now_ns;
        if entry.state == NeighbourState::Reachable && now_ns < entry.until_ns {
            return Link::Ready(entry.mac);
        }
        self.link_not_fresh(u32::from(id.index), now_ns, news_ns)
    }

    /// Confirms a neighbour, because its peer acknowledged new data: both directions work (RFC 4861
    /// section 7.3.1).
    #[inline]
    pub fn confirm(&mut self, id: NeighbourId, now_ns: u64) {
        use NeighbourState::{Delay, Probe, Reachable, Stale};
        let until_ns = now_ns + self.reachable_ns;
        if let Some(entry) = self.live_mut(id)
            && matches!(entry.state, Reachable | Stale | Delay | Probe)
        {
            (entry.state, entry.until_ns) = (Reachable, until_ns);
        }
    }

    /// Doubts a neighbour, because segments were retransmitted repeatedly (RFC 9293 MUST-20). A
    /// reachable entry becomes stale, so its next use probes it.
    pub fn doubt(&mut self, id: NeighbourId) {
        if let Some(entry) = self.live_mut(id)
            && entry.state == NeighbourState::Reachable
        {
            entry.state = NeighbourState::Stale;
        }
    }

    /// Notes that the connection `token` waits for `id`. The caller calls it once per connection.
    /// False if it was not noted ([`NeighbourCounters::waiting_full`]): the connection's own timer
    /// must serve.
    pub fn wait(&mut self, id: NeighbourId, token: u32) -> bool {
        let Some(entry) = self.entries.get_mut(usize::from(id.index)) else {
            return false;
        };
        if entry.generation != id.generation {
            return false;
        }
        let noted = self.pools.push_token(&mut entry.queue, token);
        self.counters.waiting_full += u64::from(!noted);
        noted
    }

    /// Holds a copy of a small frame until `id` is resolved; its destination MAC address is filled
    /// in then. At the neighbour's limit the oldest frame is dropped. False if this frame was
    /// dropped.
    pub fn hold_frame(&mut self, id: NeighbourId, frame: &[u8]) -> bool {
        let Some(entry) = self.entries.get_mut(usize::from(id.index)) else {
            return false;
        };
        let held = if entry.generation == id.generation {
            self.pools.push_frame(&mut entry.queue, frame)
        } else {
            waiting::Held {
                kept: false,
                dropped: 1,
            }
        };
        self.counters.frames_dropped += u64::from(held.dropped);
        held.kept
    }

    /// Passes everything that waited for `id` to `out`, oldest first, and forgets it. Frames are
    /// dropped and counted if the MAC address is unknown.
    pub fn release(&mut self, id: NeighbourId, mut out: impl FnMut(Waiter<'_>)) {
        let Some(entry) = self.entries.get_mut(usize::from(id.index)) else {
            return;
        };
        if entry.generation != id.generation {
            return;
        }
        while let Some(token) = self.pools.pop_token(&mut entry.queue) {
            out(Waiter::Token(token));
        }
        let destination = entry.has_mac().then_some(entry.mac);
        while let Some(frame) = self.pools.pop_frame(&mut entry.queue) {
            match destination {
                Some(mac) => {
                    frame[..6].copy_from_slice(&mac.0);
                    out(Waiter::Frame(frame));
                }
                None => self.counters.frames_dropped += 1,
            }
        }
    }

    /// Sets an entry that never ages. Call [`release`](Self::release) if something waited for it.
    ///
    /// # Errors
    /// [`NeighbourError::TableFull`] when no entry can be replaced.
    pub fn set_permanent(
        &mut self,
        port: u8,
        address: IpAddr,
        mac: MacAddr,
        now_ns: u64,
    ) -> Result<NeighbourId, NeighbourError> {
        let id = self.resolve(port, address, now_ns)?;
        let entry = &mut self.entries[usize::from(id.index)];
        entry.mac = mac;
        entry.state = NeighbourState::Permanent;
        Ok(id)
    }

    /// The existing entry of `address` on `port`.
    pub fn known(&self, port: u8, address: IpAddr) -> Option<NeighbourId> {
        let index = self.find(port, Addr::from(address))?;
        Some(self.id(index))
    }

    /// Discards the neighbour's MAC address and requests it again.
    pub fn ask_again(&mut self, id: NeighbourId, now_ns: u64) {
        if self.live_mut(id).is_some() {
            self.start_asking(u32::from(id.index), now_ns);
        }
    }

    /// Time of the next task of [`Neighbours::poll`], ns; `u64::MAX`: none.
    #[inline]
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// The next task that is due, if there is one.
    pub fn poll(&mut self, now_ns: u64) -> Option<NeighbourEvent> {
        if now_ns < self.deadline_ns {
            return None;
        }
        if let Some(token) = self.pools.pop_token(&mut self.displaced) {
            return Some(NeighbourEvent::Displaced(token));
        }
        while let Some(&index) = self.timed.get(self.scan) {
            let entry = &mut self.entries[index as usize];
            if !entry.has_timer() {
                entry.is_timed = false;
                self.timed.swap_remove(self.scan);
                continue;
            }
            // The entry stays in the list, because its state may get a timer again; until then it
            // is not due.
            if now_ns >= entry.until_ns
                && let Some(event) = self.act(index, now_ns)
            {
                return Some(event);
            }
            self.scan += 1;
        }
        self.scan = 0;
        self.deadline_ns = self
            .timed
            .iter()
            .map(|&index| self.entries[index as usize].until_ns)
            .min()
            .unwrap_or(u64::MAX);
        None
    }

    /// The state of an entry, for tests and tools; `None` if the id is outdated.
    pub fn state(&self, id: NeighbourId) -> Option<NeighbourState> {
        let entry = self.entries.get(usize::from(id.index))?;
        (entry.generation == id.generation).then_some(entry.state)
    }

    /// Number of entries.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no entries.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The counters so far.
    pub fn counters(&self) -> &NeighbourCounters {
        &self.counters
    }

    #[cold]
    fn link_not_fresh(&mut self, index: u32, now_ns: u64, news_ns: u64) -> Link {
        use NeighbourState::{Delay, Failed, Incomplete, Permanent, Probe, Reachable, Stale};
        if news_ns != 0 && now_ns < news_ns.saturating_add(NEWS_NS) {
            self.confirm(self.id(index), now_ns);
        }
        let delay_ns = self.timers.delay_ns;
        let entry = &mut self.entries[index as usize];
        let mac = entry.mac;
        match entry.state {
            Reachable if now_ns < entry.until_ns => Link::Ready(mac),
            Permanent | Delay | Probe => Link::Ready(mac),
            Reachable | Stale => {
                entry.state = Delay;
                entry.until_ns = now_ns + delay_ns;
                self.arm(index);
                Link::Ready(mac)
            }
            Incomplete => Link::Waiting,
            Failed if now_ns < entry.until_ns => Link::Unreachable,
            Failed => {
                self.start_asking(index, now_ns);
                Link::Waiting
            }
        }
    }

    /// Performs what is due at the timer of entry `index`.
    fn act(&mut self, index: u32, now_ns: u64) -> Option<NeighbourEvent> {
        use NeighbourState::{Delay, Failed, Incomplete, Probe};
        let timers = self.timers;
        let entry = &mut self.entries[index as usize];
        let requests_max = match entry.state {
            Incomplete => timers.multicast_requests_max,
            Delay => {
                entry.state = Probe;
                entry.requests_sent = 0;
                timers.unicast_requests_max
            }
            Probe => timers.unicast_requests_max,
            _ => return None,
        };
        if entry.requests_sent >= requests_max {
            // A neighbour that was known until now may have another MAC address: its next use asks
            // the whole link.
            let was_known = entry.state == Probe;
            entry.state = Failed;
            entry.until_ns = now_ns + if was_known { 0 } else { timers.failed_ns };
            self.counters.failed += 1;
            return Some(NeighbourEvent::Failed(self.id(index)));
        }
        entry.requests_sent += 1;
        entry.until_ns = now_ns + timers.retransmit_ns;
        self.counters.requests += 1;
        Some(NeighbourEvent::Request(Request {
            port: entry.port,
            target: entry.address.to_ip(),
            unicast: (entry.state == Probe).then_some(entry.mac),
        }))
    }

    fn start_asking(&mut self, index: u32, now_ns: u64) {
        let entry = &mut self.entries[index as usize];
        entry.state = NeighbourState::Incomplete;
        entry.requests_sent = 0;
        entry.until_ns = now_ns;
        self.arm(index);
    }

    /// Has [`Neighbours::poll`] visit entry `index` at its deadline.
    fn arm(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        self.deadline_ns = self.deadline_ns.min(entry.until_ns);
        if !entry.is_timed {
            entry.is_timed = true;
            self.timed.push(index);
        }
    }

    /// Draws the reachable time, uniformly between half and one and a half of the base (RFC 4861
    /// section 6.3.2).
    fn draw_reachable_time(&mut self) {
        self.draws = self.draws.wrapping_add(1);
        let base = self.timers.reachable_ns;
        let random = siphash::siphash13_words(self.key, &[self.draws]);
        self.reachable_ns = base / 2 + random % base.max(1);
    }

    fn hash(&self, port: u8, address: Addr) -> u32 {
        hash(self.key, port, address)
    }

    fn id(&self, index: u32) -> NeighbourId {
        let entry = &self.entries[index as usize];
        NeighbourId {
            index: index as u16,
            port: entry.port,
            generation: entry.generation,
        }
    }

    /// The entry that `id` names, if it is still the one it named.
    #[inline(always)]
    fn live_mut(&mut self, id: NeighbourId) -> Option<&mut Entry> {
        self.entries
            .get_mut(usize::from(id.index))
            .filter(|entry| entry.generation == id.generation)
    }
}

fn hash(key: [u64; 2], port: u8, address: Addr) -> u32 {
    let bits = address.bits();
    siphash::siphash13_words(key, &[u64::from(port), (bits >> 64) as u64, bits as u64]) as u32
}
