//! Flows of a stack: the sockets with their connections, the flow table that finds them, listeners,
//! handshakes in progress, and the compact entries of connections that have ended.

pub(crate) mod accept_queue;
#[cfg(test)]
pub(crate) mod account;
pub(crate) mod dormant;
pub(crate) mod errno;
pub(crate) mod flow_table;
pub(crate) mod half_opens;
pub(crate) mod icmp_notes;
pub(crate) mod lane;
pub(crate) mod ledger;
pub(crate) mod listeners;
pub(crate) mod local_ports;
pub(crate) mod memory_rounds;
pub(crate) mod rx_sink;
pub(crate) mod saved_syns;
pub(crate) mod shedding;
pub(crate) mod slab;
pub(crate) mod slot;
pub(crate) mod sockets;
pub(crate) mod stamping;
pub(crate) mod stamps;
pub(crate) mod stories;
pub(crate) mod story_events;
mod story_writing;
pub(crate) mod time_waits;

use packetio::mesh::Directory;
use ring::huge_pages::PageSource;
use tcp::Memory;
use wire::{FlowHasher, FlowKey};

use self::flow_table::{FlowEntry, FlowTable, FlowTableFull};
use self::half_opens::HalfOpens;
use self::icmp_notes::IcmpNotes;
use self::ledger::Ledger;
use self::listeners::Listeners;
use self::local_ports::{Binds, Bound, PortSearch};
use self::saved_syns::{Saved, SavedSyns};
use self::sockets::Sockets;
use self::stories::Stories;
use self::time_waits::TimeWaits;
use crate::limits::{Limits, MEMORY_SHARED, SHARE_BYTES_MIN};
use crate::source_pool::SourcePool;

/// Every flow of a stack, by kind, and the table that finds it.
pub(crate) struct Flows {
    hasher: FlowHasher,
    table: FlowTable,
    pub sockets: Sockets,
    pub half_opens: HalfOpens,
    pub time_waits: TimeWaits,
    pub listeners: Listeners,
    binds: Binds,
    ports: PortSearch,
    /// Where connections to one destination leave from.
    pub sources: Option<SourcePool>,
    pub icmp_notes: IcmpNotes,
    pub saved_syns: SavedSyns,
    pub ledger: Ledger,
    pub stories: Stories,
    shared: Option<Listed>,
}

/// The part of a flow table that other contexts can look up.
struct Listed {
    directory: Directory,
    /// Flows for which there was no room.
    refused: u64,
}

impl Flows {
    pub fn new(
        limits: &Limits,
        sockets: Sockets,
        hasher: FlowHasher,
        ports: PortSearch,
        now_ns: u64,
        source: &mut PageSource,
    ) -> Self {
        Self {
            hasher,
            table: FlowTable::new(limits.flows_max(), source),
            sockets,
            half_opens: HalfOpens::new(limits.half_open_max, source),
            time_waits: TimeWaits::new(limits.time_wait_max, now_ns, source),
            listeners: Listeners::new(limits.listeners_max, source),
            binds: Binds::default(),
            ports,
            sources: None,
            icmp_notes: IcmpNotes::default(),
            saved_syns: SavedSyns::default(),
            ledger: Ledger::default(),
            stories: Stories::new(0),
            shared: None,
        }
    }

    /// From now on other contexts can look up who has a flow, in this directory if there is one.
    pub fn share(&mut self, directory: Option<Directory>) {
        self.shared = directory.map(|directory| Listed {
            directory,
            refused: 0,
        });
    }

    /// Flows that other contexts cannot look up.
    #[inline]
    pub fn unlisted(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.refused)
    }

    #[inline]
    fn list(&mut self, hash: u64) {
        if let Some(shared) = &mut self.shared {
            shared.refused += u64::from(!shared.directory.add(hash));
        }
    }

    #[inline]
    fn unlist(&self, hash: u64) {
        if let Some(shared) = &self.shared {
            shared.directory.remove(hash);
        }
    }

    /// The keyed hash of a flow.
    #[inline]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        self.hasher.hash(key)
    }

    /// Number of flows.
    pub fn count(&self) -> usize {
        self.table.len()
    }

    /// Adds a flow of this hash.
    ///
    /// # Errors
    /// The table is full.
    #[inline]
    pub fn insert_flow(&mut self, hash: u64, entry: FlowEntry) -> Result<(), FlowTableFull> {
        self.table.insert(hash, entry)?;
        self.list(hash);
        Ok(())
    }

    /// Puts one entry in the place of another, whose flow goes on. False: that one was not there.
    #[inline]
    pub fn replace_flow(&mut self, hash: u64, old: FlowEntry, new: FlowEntry) -> bool {
        self.table.replace(hash, old, new)
    }

    /// Removes a flow. False: it was not there.
    #[inline]
    pub fn remove_flow(&mut self, hash: u64, entry: FlowEntry) -> bool {
        self.unlist(hash);
        self.table.remove(hash, entry)
    }

    /// Asks for the memory of the table's part that holds flows of this hash.
    #[inline]
    pub fn prefetch_flow(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    /// An entry whose flow probably has this hash.
    #[inline]
    pub fn likely_flow(&self, hash: u64) -> Option<FlowEntry> {
        self.table.likely(hash)
    }

    /// True if no more sockets can be bound.
    pub fn is_bind_table_full(&self) -> bool {
        self.binds.is_full()
    }

    /// Notes a socket that was bound.
    pub fn note_bind(&mut self, bound: Bound) {
        self.binds.add(bound);
    }

    /// Forgets that a socket was bound.
    #[inline]
    pub fn forget_bind(&mut self, socket: u32) {
        self.binds.remove(socket);
    }

    /// True if a bound socket shares its port.
    pub fn shares_port(&self, socket: u32) -> bool {
        self.binds.shares_port(socket)
    }

    /// The host lends local ports: the first, and how many.
    pub fn take_lent_ports(&mut self, ports: (u16, u16)) {
        self.ports.add(ports);
    }

    /// Lent ports went back to the host.
    pub fn give_lent_ports_back(&mut self, ports: (u16, u16)) {
        self.ports.remove(ports);
    }

    /// True if the host has lent ports.
    pub fn has_lent_ports(&self) -> bool {
        self.ports.are_lent()
    }

    /// Finds the entry of a flow.
    #[inline]
    pub fn find(&self, key: &FlowKey, hash: u64) -> Option<FlowEntry> {
        self.table.find(hash, |entry| self.holds(entry, key))
    }

    /// The entry is there, and of this flow.
    #[inline(always)]
    pub fn holds(&self, entry: FlowEntry, key: &FlowKey) -> bool {
        let held = match entry {
            FlowEntry::Connection(socket) => return self.sockets.is_of(socket, key),
            FlowEntry::HalfOpen(index) => self.half_opens.at(index).map(|slot| &slot.key),
            FlowEntry::TimeWait(index) => self.time_waits.at(index).map(|slot| &slot.key),
        };
        held.is_some_and(|held| held.is_same(key))
    }

    /// Asks for the memory that a segment of this entry will touch.
    #[inline]
    pub fn prefetch(&self, entry: Option<FlowEntry>) {
        match entry {
            Some(FlowEntry::Connection(socket)) => self.sockets.prefetch(socket),
            Some(FlowEntry::HalfOpen(index)) => self.half_opens.prefetch(index),
            Some(FlowEntry::TimeWait(index)) => self.time_waits.prefetch(index),
            None => {}
        }
    }

    /// A handshake in progress has become the connection of `socket`. Timer, listener and flow
    /// table are the caller's to change.
    pub fn accept_half_open(&mut self, index: u32, socket: u32) {
        self.half_opens.remove(index);
        self.ledger.end_half_open(index);
        self.saved_syns.accept(index, socket);
    }

    /// Forgets a handshake in progress, whose timer is the caller's to stop. False: there was none.
    pub fn remove_half_open(&mut self, index: u32) -> bool {
        let Some(slot) = self.half_opens.remove(index) else {
            return false;
        };
        self.saved_syns.forget(Saved::HalfOpen(index));
        self.ledger.end_half_open(index);
        if let Some(listening) = self.listeners.at_mut(slot.listener) {
            listening.half_open = listening.half_open.saturating_sub(1);
        }
        self.remove_flow(slot.hash, FlowEntry::HalfOpen(index));
        true
    }

    /// Forgets an entry in TIME_WAIT; whether it was in FIN_WAIT_2.
    pub fn remove_time_wait(&mut self, index: u32) -> bool {
        let Some((hash, in_fin_wait_2)) = self.time_waits.remove(index) else {
            return false;
        };
        self.remove_flow(hash, FlowEntry::TimeWait(index));
        self.ledger.end_wait(index);
        in_fin_wait_2
    }

    /// Largest send buffer of one connection: while memory is low, an equal part of what all may
    /// fill together. Without the limit, connections that hold much would get back what they free,
    /// for ever.
    pub fn fair_share(&self, memory: Memory) -> u32 {
        if memory == Memory::Ample {
            return u32::MAX;
        }
        let others = self.half_opens.len() + self.time_waits.len();
        let connections = self.table.len().saturating_sub(others).max(1) as u64;
        let share = self.sockets.memory_bytes() / 64 * MEMORY_SHARED / connections;
        u32::try_from(share).map_or(u32::MAX, |share| share.max(SHARE_BYTES_MIN))
    }
}
