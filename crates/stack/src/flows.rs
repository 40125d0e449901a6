//! All flows of a stack: sockets with their connections, the flow table, listeners, handshakes in
//! progress, and compact entries of ended connections.

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

use std::net::IpAddr;

use packetio::RxFrame;
use packetio::mesh::Directory;
use ring::chunk::ChunkPool;
use ring::huge_pages::PageSource;
use ring::socket_block::{SocketBlock, SocketId};
use tcp::Memory;
use tcp::time_wait::TimeWait;
use wire::{FlowHasher, FlowKey};

use self::flow_table::{FlowEntry, FlowTable, FlowTableFull};
use self::half_opens::{HalfOpenSlot, HalfOpens};
use self::icmp_notes::IcmpNotes;
use self::ledger::Ledger;
use self::listeners::Listeners;
use self::local_ports::{Binds, Bound, PortSearch};
use self::saved_syns::{Saved, SavedSyns};
use self::slot::{Role, Slot};
use self::sockets::Sockets;
use self::stories::Stories;
use self::time_waits::{TimeWaitSlot, TimeWaits};
use crate::context::{IcmpNoteQuery, SavedSynQuery, SoftErrorQuery};
use crate::limits::{Limits, MEMORY_SHARED, SHARE_BYTES_MIN};
use crate::network::icmp::ErrorReport;
use crate::source_pool::SourcePool;

/// Every flow of a stack, by kind, and the table that finds it.
pub(crate) struct Flows {
    hasher: FlowHasher,
    table: FlowTable,
    sockets: Sockets,
    half_opens: HalfOpens,
    time_waits: TimeWaits,
    listeners: Listeners,
    binds: Binds,
    ports: PortSearch,
    /// Source addresses and ports for connections to one destination; `None`: no pool is set.
    sources: Option<SourcePool>,
    icmp_notes: IcmpNotes,
    saved_syns: SavedSyns,
    ledger: Ledger,
    stories: Stories,
    shared: Option<Listed>,
}

/// This stack's flows in the directory that other contexts can look up.
struct Listed {
    directory: Directory,
    /// Number of flows for which the directory had no room.
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

    /// The sockets.
    #[inline(always)]
    pub fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// The sockets, to change them.
    #[inline(always)]
    pub fn sockets_mut(&mut self) -> &mut Sockets {
        &mut self.sockets
    }

    /// The slot of a socket, unpacked if it was packed.
    #[inline(always)]
    pub fn slot(&mut self, socket: u32) -> &mut Slot {
        self.sockets.slot(socket)
    }

    /// The slot of a socket, the pool of chunks for its bytes, and the block that it shares with
    /// the application.
    #[inline(always)]
    pub fn socket_parts(&mut self, socket: u32) -> (&mut Slot, &mut ChunkPool, &SocketBlock) {
        self.sockets.parts(socket)
    }

    /// The block that a socket shares with the application.
    #[inline(always)]
    pub fn block(&self, socket: u32) -> &SocketBlock {
        self.sockets.block(socket)
    }

    /// The role of a socket index.
    #[inline(always)]
    pub fn role(&self, socket: u32) -> Role {
        self.sockets.role(socket)
    }

    /// The index of the socket with this identifier, unless the socket is gone.
    #[inline(always)]
    pub fn resolve(&self, id: SocketId) -> Option<u32> {
        self.sockets.resolve(id)
    }

    /// The listeners.
    #[inline(always)]
    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// The listeners, to change them.
    #[inline(always)]
    pub fn listeners_mut(&mut self) -> &mut Listeners {
        &mut self.listeners
    }

    /// The pool of source addresses; `None`: no pool is set.
    pub fn sources(&self) -> Option<&SourcePool> {
        self.sources.as_ref()
    }

    /// Sets the pool of source addresses, or removes it.
    pub fn set_sources(&mut self, pool: Option<SourcePool>) {
        self.sources = pool;
    }

    /// Takes the next source address of the pool. `None`: the stack chooses.
    pub fn take_source(&mut self) -> Option<IpAddr> {
        self.sources.as_mut().and_then(SourcePool::take)
    }

    /// Lists the flows in `directory` from now on, so that other contexts can find their owner.
    pub fn share(&mut self, directory: Option<Directory>) {
        self.shared = directory.map(|directory| Listed {
            directory,
            refused: 0,
        });
    }

    /// Number of flows that the directory does not list for want of room.
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

    /// Adds a flow with this hash.
    ///
    /// # Errors
    /// The table is full.
    #[inline]
    fn insert_flow(&mut self, hash: u64, entry: FlowEntry) -> Result<(), FlowTableFull> {
        self.table.insert(hash, entry)?;
        self.list(hash);
        Ok(())
    }

    /// Removes a flow. False: it was not there.
    #[inline]
    fn remove_flow(&mut self, hash: u64, entry: FlowEntry) -> bool {
        self.unlist(hash);
        self.table.remove(hash, entry)
    }

    /// Adds the flow of a connection to the table, for `socket`.
    ///
    /// # Errors
    /// The table is full.
    #[inline(always)]
    pub fn add_connection(
        &mut self,
        hash: u64,
        socket: u32,
        key: &FlowKey,
    ) -> Result<(), FlowTableFull> {
        self.insert_flow(hash, FlowEntry::Connection(socket))?;
        self.ledger.begin(socket, key);
        Ok(())
    }

    /// Removes the flow of the connection of `socket`.
    #[inline(always)]
    pub fn remove_connection(&mut self, hash: u64, socket: u32) {
        let found = self.remove_flow(hash, FlowEntry::Connection(socket));
        debug_assert!(found, "a connection is in the flow table");
        self.ledger.end(socket);
    }

    /// Releases a socket whose connection found no place in the table.
    #[cold]
    pub fn give_up_connection(&mut self, socket: u32) {
        self.ledger.end(socket);
        self.saved_syns.forget(Saved::Connection(socket));
        self.sockets.release(socket);
    }

    /// Prefetches the part of the table that holds flows with this hash.
    #[inline]
    pub fn prefetch_flow(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    /// The table's entry whose flow probably has this hash, without comparing keys.
    #[inline]
    pub fn likely_flow(&self, hash: u64) -> Option<FlowEntry> {
        self.table.likely(hash)
    }

    /// True if no further socket can be bound.
    pub fn is_bind_table_full(&self) -> bool {
        self.binds.is_full()
    }

    /// Notes a socket that was bound.
    pub fn note_bind(&mut self, bound: Bound) {
        self.binds.add(bound);
    }

    /// Forgets the binding of a socket.
    #[inline]
    pub fn forget_bind(&mut self, socket: u32) {
        self.binds.remove(socket);
    }

    /// True if the socket was bound with `SO_REUSEPORT`.
    pub fn shares_port(&self, socket: u32) -> bool {
        self.binds.shares_port(socket)
    }

    /// Adds local ports that the host lends. `ports`: first and last port.
    pub fn take_lent_ports(&mut self, ports: (u16, u16)) {
        self.ports.add(ports);
    }

    /// Stops using local ports that went back to the host.
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

    /// True if the entry exists and belongs to this flow.
    #[inline(always)]
    pub fn holds(&self, entry: FlowEntry, key: &FlowKey) -> bool {
        let held = match entry {
            FlowEntry::Connection(socket) => return self.sockets.is_of(socket, key),
            FlowEntry::HalfOpen(index) => self.half_opens.at(index).map(|slot| &slot.key),
            FlowEntry::TimeWait(index) => self.time_waits.at(index).map(|slot| &slot.key),
        };
        held.is_some_and(|held| held.is_same(key))
    }

    /// Prefetches the memory that a segment of this entry will touch.
    #[inline]
    pub fn prefetch(&self, entry: Option<FlowEntry>) {
        match entry {
            Some(FlowEntry::Connection(socket)) => self.sockets.prefetch(socket),
            Some(FlowEntry::HalfOpen(index)) => self.half_opens.prefetch(index),
            Some(FlowEntry::TimeWait(index)) => self.time_waits.prefetch(index),
            None => {}
        }
    }

    /// Handshakes in progress.
    #[inline]
    pub fn half_opens(&self) -> &HalfOpens {
        &self.half_opens
    }

    /// A handshake in progress, by mutable reference.
    #[inline]
    pub fn half_open_mut(&mut self, index: u32) -> Option<&mut HalfOpenSlot> {
        self.half_opens.at_mut(index)
    }

    /// Adds a handshake that a peer has begun, and returns its index. The caller sets its timer.
    ///
    /// # Errors
    /// The table is full.
    #[inline(always)]
    pub fn add_half_open(&mut self, slot: HalfOpenSlot) -> Result<u32, FlowTableFull> {
        let (key, hash, listener) = (slot.key, slot.hash, slot.listener);
        let index = self.half_opens.insert(slot).map_err(|_| FlowTableFull)?;
        if let Err(full) = self.insert_flow(hash, FlowEntry::HalfOpen(index)) {
            self.half_opens.remove(index);
            return Err(full);
        }
        if let Some(listening) = self.listeners.at_mut(listener) {
            listening.half_open += 1;
        }
        self.ledger.begin_half_open(index, &key);
        Ok(index)
    }

    /// Turns a handshake in progress into the connection of `socket`. The caller stops the
    /// handshake's timer. False: the flow was not in the table.
    #[inline(always)]
    pub fn accept_half_open(&mut self, index: u32, socket: u32) -> bool {
        let Some(slot) = self.half_opens.at(index) else {
            return false;
        };
        let (hash, listener) = (slot.hash, slot.listener);
        self.ledger.begin(socket, &slot.key);
        self.half_opens.remove(index);
        self.ledger.end_half_open(index);
        self.saved_syns.accept(index, socket);
        if let Some(listening) = self.listeners.at_mut(listener) {
            listening.half_open = listening.half_open.saturating_sub(1);
        }
        let (old, new) = (FlowEntry::HalfOpen(index), FlowEntry::Connection(socket));
        self.table.replace(hash, old, new)
    }

    /// Removes a handshake in progress. The caller stops its timer. False: there was none.
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

    /// Compact entries in FIN_WAIT_2 and TIME_WAIT.
    #[inline]
    pub fn time_waits(&self) -> &TimeWaits {
        &self.time_waits
    }

    /// A compact entry, by mutable reference.
    #[inline]
    pub fn time_wait_mut(&mut self, index: u32) -> Option<&mut TimeWaitSlot> {
        self.time_waits.at_mut(index)
    }

    /// Turns a connection into a compact entry. False: there is no room, and the connection keeps
    /// its flow.
    #[inline(always)]
    pub fn become_time_wait(
        &mut self,
        socket: u32,
        (key, hash): (&FlowKey, u64),
        entry: TimeWait,
        dscp: u8,
    ) -> bool {
        let Some(index) = self.time_waits.insert(*key, hash, entry, dscp) else {
            return false;
        };
        self.ledger.begin_wait(index, key);
        self.ledger.end(socket);
        let (old, new) = (FlowEntry::Connection(socket), FlowEntry::TimeWait(index));
        let placed = self.table.replace(hash, old, new);
        debug_assert!(placed, "a connection is in the flow table");
        true
    }

    /// Notes that the peer's FIN moved a compact entry from FIN_WAIT_2 to TIME_WAIT.
    pub fn entered_time_wait(&mut self, index: u32) {
        self.time_waits.entered_time_wait(index);
    }

    /// Notes that a segment restarted the timer of a compact entry.
    pub fn restarted_time_wait(&mut self, index: u32) {
        self.time_waits.restarted(index);
    }

    /// Removes one compact entry whose time is over. `None`: no entry is due. True: the entry was
    /// in FIN_WAIT_2.
    #[inline]
    pub fn expire_time_wait(&mut self, now_ns: u64) -> Option<bool> {
        let index = self.time_waits.due(now_ns)?;
        Some(self.remove_time_wait(index))
    }

    /// Removes a compact entry. True: it was in FIN_WAIT_2.
    pub fn remove_time_wait(&mut self, index: u32) -> bool {
        let Some((hash, in_fin_wait_2)) = self.time_waits.remove(index) else {
            return false;
        };
        self.remove_flow(hash, FlowEntry::TimeWait(index));
        self.ledger.end_wait(index);
        in_fin_wait_2
    }

    /// The stories of connections.
    #[inline]
    pub fn stories(&self) -> &Stories {
        &self.stories
    }

    /// Notes that an observer asked for the story in a slot.
    pub fn ask_story(&mut self, slot: usize, now_ns: u64) {
        self.stories.ask(slot, now_ns);
    }

    /// Starts with the host's list of connections, and with a story for one in `story_one_in` new
    /// connections.
    pub fn observe(&mut self, ledger: Ledger, story_one_in: u32) {
        self.ledger = ledger;
        self.stories = Stories::new(story_one_in);
    }

    /// Sets whether peers at our own addresses are other programs of the host. Otherwise such a
    /// peer is this stack itself.
    pub fn set_own_peers(&mut self, on: bool) {
        self.ledger.set_own_peers(on);
    }

    /// Saves the headers of a SYN as its listener asked. False: there was no room.
    pub fn save_syn(&mut self, how: u8, frame: &RxFrame, headers_end: usize, of: Saved) -> bool {
        self.saved_syns.save(how, frame, headers_end, of)
    }

    /// Answers a request for the SYN that made a connection.
    pub fn answer_saved_syn(&mut self, query: SavedSynQuery) {
        self.saved_syns.answer(&self.sockets, query);
    }

    /// Answers a request for the ICMP error that ended an attempt to connect.
    pub fn answer_icmp_note(&mut self, query: IcmpNoteQuery) {
        self.icmp_notes.answer_note(&self.sockets, query);
    }

    /// Answers a request for an ICMP error about a live connection.
    pub fn answer_soft_error(&mut self, query: SoftErrorQuery) {
        self.icmp_notes.answer_soft_error(&mut self.sockets, query);
    }

    /// Sets whether the calls of a socket fail with ICMP errors about its live connection.
    pub fn set_receive_errors(&mut self, socket: u32, v4: bool, v6: bool) {
        self.icmp_notes.set_receive_errors(socket, v4, v6);
    }

    /// Notes an ICMP error about a live connection. True: the application must be told.
    pub fn note_soft_error(&mut self, socket: u32, report: &ErrorReport, lost: &mut u64) -> bool {
        let (slot, _, block) = self.sockets.parts(socket);
        (self.icmp_notes).note_soft_error((socket, slot, block), report, lost)
    }

    /// Notes the ICMP error that has ended an attempt to connect.
    pub fn note_refusal(
        &mut self,
        socket: u32,
        report: &ErrorReport,
        packet: &[u8],
        lost: &mut u64,
    ) {
        let block = self.sockets.block(socket);
        (self.icmp_notes).note_refusal((socket, block), report, packet, lost);
    }

    /// Forgets ICMP errors and saved SYN headers of a socket.
    #[inline]
    pub fn forget_notes(&mut self, socket: u32) {
        self.icmp_notes.forget(socket);
        self.saved_syns.forget(Saved::Connection(socket));
    }

    /// Largest send buffer of one connection, bytes. While memory is low, all connections share
    /// equal parts of a fixed portion. Otherwise a connection with large buffers would always take
    /// back what it freed.
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
