//! The socket table. For each index in use it holds the connection, the stack's ends of its byte
//! rings, and the index's role.
//!
//! ```text
//!            refill                connect            closed by both
//!   Free ───────────▶ Reserved ───────────▶ Connection ─────────────▶ Free
//!     │                   │ listen              │ ended, application
//!     │ accepted          ▼                     ▼ still holds it
//!     └──▶ Connection  Listener ──▶ Free      Ended ──▶ Free
//! ```
//!
//! Indices equal those of the blocks in the memory file. Free indices are reused last-in first-out.
//!
//! ```text
//!   index ──▶ location: a slot, warm              a slot that is asked for is warm
//!                 │ quiet for a while    ▲
//!                 ▼                      │ anything happens
//!             packed, in `dormant`
//! ```
//!
//! Slots are large and few, packed sockets small and many. While more than
//! [`Limits::warm_sockets`](crate::limits::Limits) slots are in use, a cursor goes round them a few
//! steps at a time, and packs quiet connections. A pause follows a round that packed hardly any,
//! because looking at busy slots fetches them from memory in vain. Packing loses nothing and is
//! invisible outside this table.
//!
//! A reserved index gets a slot on first use: the slot freed last, which is probably in the cache.

use std::borrow::Cow;

use ring::chunk::{ChunkClass, ChunkPool};
use ring::huge_pages::PageSource;
use ring::memory::Memory;
use ring::socket_block::{SocketBlock, SocketId};
use ring::stock::Stock;
use ring::tables::Table;
use tcp::Connection;
use wire::FlowKey;

use crate::flows::dormant::PackedBlocks;
use crate::flows::slot::{Role, Slot};
use crate::limits::{
    Limits, MEMORY_EXHAUSTED, MEMORY_LOW, MEMORY_PRESSURE, PACK_LOOKS_MAX, PACK_ROUND_WORTH,
    PACKED_PER_STEP_MAX, SLOTS_PER_STEP, SLOTS_SPARE, SLOTS_STEP_SHARE,
};

/// Where the state of a socket is: in a slot or in packed blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Location(u32);

impl Location {
    /// The location of a free index: slot 0, which belongs to no socket.
    const NOBODY: Location = Location(0);
    const DORMANT: u32 = 1 << 31;
    /// The location of a reserved index that has not been used yet.
    const RESERVED: Location = Location(u32::MAX);

    #[inline]
    fn warm(self) -> Option<usize> {
        (self.0 & Self::DORMANT == 0).then_some(self.0 as usize)
    }

    #[inline]
    fn dormant(self) -> Option<u32> {
        (self.0 & Self::DORMANT != 0 && self != Self::RESERVED).then_some(self.0 & !Self::DORMANT)
    }
}

/// Bytes of a location, for the test that limits the memory of an idle connection.
#[cfg(test)]
pub(crate) const LOCATION_BYTES: usize = size_of::<Location>();

/// See the module's documentation.
pub(crate) struct Sockets {
    memory: Memory,
    pub pool: ChunkPool,
    /// The time of this turn, ns.
    pub now_ns: u64,
    /// Locations by index, up to the largest index ever used.
    locations: Table<Location>,
    /// Slots; slot 0 belongs to no socket.
    warm: Table<Slot>,
    warm_free: Vec<u32>,
    warm_max: usize,
    pack_after_ns: u64,
    /// The slot that the packing cursor visited last.
    pack_cursor: usize,
    /// Number of slots packed in the cursor's current round.
    packed_in_round: usize,
    /// Time until which packing pauses, ns.
    packing_paused_until_ns: u64,
    /// Number of slots whose memory was touched and not returned.
    warm_touched: usize,
    /// Number of slots that the current memory round keeps; `usize::MAX`: no round is in progress.
    warm_wanted: usize,
    /// Number of slots in use when the last memory round began.
    warm_before: usize,
    dormant: PackedBlocks,
    dormant_count: usize,
    free: Vec<u32>,
    capacity: usize,
    send_buffer_bytes: u32,
    orphans: usize,
}

impl Sockets {
    pub fn new(
        memory: Memory,
        pool: ChunkPool,
        limits: &Limits,
        send_buffer_bytes: u32,
        source: &mut PageSource,
    ) -> Self {
        let capacity = limits.sockets_max;
        let mut warm = Table::with_capacity(capacity + 1, source);
        let has_room = warm.push(Slot::new());
        debug_assert!(has_room, "one slot more than sockets");
        Self {
            memory,
            pool,
            now_ns: 0,
            locations: Table::with_capacity(capacity, source),
            warm,
            warm_free: Vec::with_capacity(capacity),
            warm_max: limits.warm_sockets,
            pack_after_ns: limits.pack_after_ns,
            pack_cursor: 0,
            packed_in_round: 0,
            packing_paused_until_ns: 0,
            warm_touched: 1,
            warm_wanted: usize::MAX,
            warm_before: 0,
            dormant: PackedBlocks::new(limits.packed_blocks, source),
            dormant_count: 0,
            free: Vec::with_capacity(capacity),
            capacity,
            send_buffer_bytes,
            orphans: 0,
        }
    }

    /// The role of a socket index.
    #[inline]
    pub fn role(&self, socket: u32) -> Role {
        match self.locations[socket as usize].warm() {
            Some(at) => self.warm[at].role,
            None if self.locations[socket as usize] == Location::RESERVED => Role::Reserved,
            None => Role::Connection,
        }
    }

    /// True if the socket has a connection of this flow.
    #[inline(always)]
    pub fn is_of(&self, socket: u32, key: &FlowKey) -> bool {
        let location = self.locations[socket as usize];
        match location.warm() {
            Some(at) => {
                let slot = &self.warm[at];
                slot.key.is_same(key) && slot.role == Role::Connection
            }
            None => location
                .dormant()
                .is_some_and(|at| self.dormant.is_of(at, key)),
        }
    }

    /// The slot of an index in use; it is unpacked if need be. A free index yields slot 0, which
    /// belongs to no socket.
    #[inline]
    pub fn slot(&mut self, socket: u32) -> &mut Slot {
        let at = self.warm_index(socket);
        &mut self.warm[at]
    }

    /// All unpacked slots, free ones included. Packed connections have no neighbour and no stored
    /// headers to update.
    pub fn warm_slots_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.warm.iter_mut()
    }

    /// The slot of an index from an earlier turn, which may have been released and reused since.
    /// `None`: it is free, or not used yet.
    #[inline]
    pub fn remembered(&mut self, socket: u32) -> Option<(&mut Slot, &SocketBlock)> {
        match self.locations[socket as usize] {
            Location::NOBODY | Location::RESERVED => None,
            _ => {
                let (slot, _, block) = self.parts(socket);
                Some((slot, block))
            }
        }
    }

    /// Prefetches the memory that a segment, a job or the start of this socket will touch.
    #[inline]
    pub fn prefetch(&self, socket: u32) {
        let Some(location) = self.locations.get(socket as usize) else {
            return;
        };
        if let Some(slot) = location.warm().and_then(|at| self.warm.get(at)) {
            ring::prefetch::read(slot);
            self.block(socket).prefetch();
        } else if *location == Location::RESERVED {
            self.block(socket).prefetch();
        }
    }

    /// The slot of a socket with the chunk pool and block that its rings need.
    #[inline]
    pub fn parts(&mut self, socket: u32) -> (&mut Slot, &mut ChunkPool, &SocketBlock) {
        let at = self.warm_index(socket);
        (
            &mut self.warm[at],
            &mut self.pool,
            block_of(&self.memory, socket),
        )
    }

    /// The memory of all streams, and a socket's block.
    pub fn memory_of(&self, socket: u32) -> (&Memory, &SocketBlock) {
        (&self.memory, block_of(&self.memory, socket))
    }

    #[inline]
    fn warm_index(&mut self, socket: u32) -> usize {
        match self.locations[socket as usize].warm() {
            Some(at) => at,
            None => self.wake(socket),
        }
    }

    #[inline(never)]
    fn wake(&mut self, socket: u32) -> usize {
        let location = self.locations[socket as usize];
        if location == Location::RESERVED {
            return self.take_slot(socket);
        }
        let Some(at) = location.dormant() else {
            return 0;
        };
        let warm_at = self.take_slot(socket);
        let generation = block_of(&self.memory, socket).generation();
        self.dormant.read(at, &mut self.warm[warm_at], generation);
        self.dormant.free(at);
        self.dormant_count -= 1;
        warm_at
    }

    /// Takes a slot for `socket`. If many slots are in use, others are packed.
    #[inline]
    fn take_slot(&mut self, socket: u32) -> usize {
        self.pack_some();
        let at = match self.warm_free.pop() {
            Some(at) => at as usize,
            None => {
                let has_room = self.warm.push(Slot::new());
                debug_assert!(has_room, "a slot for each socket");
                self.warm.len() - 1
            }
        };
        self.warm[at].begin(socket);
        self.locations[socket as usize] = Location(at as u32);
        at
    }

    /// Number of slots in use.
    #[inline]
    fn warm_count(&self) -> usize {
        self.warm.len() - 1 - self.warm_free.len()
    }

    /// Number of packed sockets.
    pub fn dormant(&self) -> usize {
        self.dormant_count
    }

    /// Packs a few quiet sockets if too many slots are in use.
    #[inline]
    pub fn pack_some(&mut self) {
        if self.warm_count() >= self.warm_max && self.now_ns >= self.packing_paused_until_ns {
            self.pack_next();
        }
    }

    #[cold]
    fn pack_next(&mut self) {
        let mut packed = 0;
        for _ in 0..PACK_LOOKS_MAX {
            if self.pack_cursor + 1 < self.warm.len() {
                self.pack_cursor += 1;
            } else if self.ends_round() {
                return;
            }
            if self.pack(self.pack_cursor) {
                packed += 1;
                self.packed_in_round += 1;
            }
            if packed == PACKED_PER_STEP_MAX {
                return;
            }
        }
    }

    /// Ends the cursor's round. True: hardly any connection was quiet, so a pause follows.
    fn ends_round(&mut self) -> bool {
        let is_vain = self.packed_in_round < self.warm.len() / PACK_ROUND_WORTH;
        (self.pack_cursor, self.packed_in_round) = (1, 0);
        if is_vain {
            self.packing_paused_until_ns = self.now_ns + self.pack_after_ns / 10;
        }
        is_vain
    }

    fn pack(&mut self, at: usize) -> bool {
        let Some(slot) = self.warm.get_mut(at) else {
            return false;
        };
        if !slot.is_quiet_for(self.now_ns, self.pack_after_ns) {
            return false;
        }
        let socket = slot.socket;
        let generation = block_of(&self.memory, socket).generation();
        let Some(stored) = self.dormant.store(slot, generation) else {
            return false;
        };
        slot.role = Role::Free;
        slot.conn.clear();
        self.warm_free.push(at as u32);
        self.locations[socket as usize] = Location(stored | Location::DORMANT);
        self.dormant_count += 1;
        true
    }

    /// Begins a round that returns the memory of slots. It keeps as many as are in use now or were
    /// when the last round began, and a few spare ones.
    pub fn begin_round(&mut self) {
        let in_use = self.warm_count();
        self.warm_wanted = in_use.max(self.warm_before) + 1 + SLOTS_SPARE;
        self.warm_before = in_use;
    }

    /// Takes a step of the round, and returns the bytes returned to the system. `None`: the round
    /// is over.
    pub fn go_round(&mut self) -> Option<u64> {
        let len = self.warm.len();
        let step = SLOTS_PER_STEP.max(len / SLOTS_STEP_SHARE);
        let kept = len.saturating_sub(step).max(self.warm_wanted);
        // More slots may be in use than when the round began.
        if kept >= len || self.warm_count() + 1 > kept {
            self.warm_wanted = usize::MAX;
            return None;
        }
        self.warm_touched = self.warm_touched.max(len);
        self.warm_free.retain(|&at| (at as usize) < kept);
        for at in kept..len {
            if self.warm[at].role != Role::Free {
                self.move_slot(at);
            }
        }
        self.warm.truncate(kept);
        Some(self.warm.return_room(&mut self.warm_touched))
    }

    /// True if slots beyond the spare ones are free, so that a round could return some.
    pub fn has_unused(&self) -> bool {
        self.warm.len() > self.warm_count() + 1 + SLOTS_SPARE
    }

    /// Moves the slot at `at` to a free place.
    fn move_slot(&mut self, at: usize) {
        let Some(free) = self.warm_free.pop() else {
            return;
        };
        self.warm.swap(at, free as usize);
        let socket = self.warm[free as usize].socket;
        self.locations[socket as usize] = Location(free);
    }

    #[inline]
    pub fn block(&self, socket: u32) -> &SocketBlock {
        block_of(&self.memory, socket)
    }

    /// The index that `id` names, if its generation is still current.
    #[inline]
    pub fn resolve(&self, id: SocketId) -> Option<u32> {
        self.memory
            .resolve(id)
            .filter(|_| (id.index as usize) < self.locations.len())
            .map(|_| id.index)
    }

    /// Takes a free index in the role `Reserved`, and opens its block for a new use.
    pub fn reserve(&mut self) -> Option<SocketId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.locations.len() < self.capacity => {
                let has_room = self.locations.push(Location::NOBODY);
                debug_assert!(has_room, "as many as sockets");
                self.locations.len() as u32 - 1
            }
            None => return None,
        };
        let generation = block_of(&self.memory, index).open(self.send_buffer_bytes);
        self.locations[index as usize] = Location::RESERVED;
        Some(SocketId { index, generation })
    }

    /// Counts a connection as an orphan: the application has closed it, and it lives on.
    pub fn orphan(&mut self, socket: u32) {
        let slot = self.slot(socket);
        if !slot.app_gone {
            slot.app_gone = true;
            self.orphans += 1;
        }
    }

    /// Number of connections that their application has closed.
    pub fn orphans(&self) -> usize {
        self.orphans
    }

    /// Frees an index with all its memory. True: its socket was bound.
    pub fn release(&mut self, socket: u32) -> bool {
        let at = self.warm_index(socket);
        let slot = &mut self.warm[at];
        if slot.role == Role::Free {
            return false;
        }
        slot.role = Role::Free;
        slot.conn.clear();
        slot.stamps = None;
        (slot.story, slot.has_observers) = (0, false);
        if slot.app_gone {
            slot.app_gone = false;
            self.orphans -= 1;
        }
        let block = block_of(&self.memory, socket);
        slot.rx.release_all(&mut self.pool);
        slot.tx.release_all(&mut self.pool, block);
        block.retire();
        let bound = slot.bound;
        self.warm_free.push(at as u32);
        self.locations[socket as usize] = Location::NOBODY;
        self.free.push(socket);
        bound
    }

    /// Refills the application's stock of socket ids according to its use, with at most half of the
    /// free ones.
    pub fn refill(&mut self, stock: &mut Stock<SocketId>) {
        let mut room = self.available() / 2;
        stock.fill(|| {
            room = room.checked_sub(1)?;
            self.reserve()
        });
    }

    /// Number of free sockets, not counting the application's stock.
    pub fn available(&self) -> usize {
        self.free.len() + self.capacity - self.locations.len()
    }

    /// The state of the memory for socket buffers, by its free share. Chunks in the application's
    /// stock count as used.
    #[inline]
    pub fn judge_memory(&self) -> tcp::Memory {
        let free = self.bytes_in(ChunkPool::free) * 64;
        let total = self.memory_bytes();
        if free >= total * MEMORY_LOW {
            tcp::Memory::Ample
        } else if free >= total * MEMORY_PRESSURE {
            tcp::Memory::Low
        } else if free >= total * MEMORY_EXHAUSTED {
            tcp::Memory::Pressure
        } else {
            tcp::Memory::Exhausted
        }
    }

    /// Capacity of all chunks, bytes.
    #[inline]
    pub fn memory_bytes(&self) -> u64 {
        self.bytes_in(ChunkPool::total)
    }

    #[inline]
    fn bytes_in(&self, count: fn(&ChunkPool, ChunkClass) -> u32) -> u64 {
        [ChunkClass::Small, ChunkClass::Large]
            .into_iter()
            .map(|class| u64::from(count(&self.pool, class)) * u64::from(class.data_bytes()))
            .sum()
    }

    /// Number of connections, listeners, and sockets whose connection has ended.
    pub fn in_use(&self) -> usize {
        let is_used = |slot: &&Slot| !matches!(slot.role, Role::Free | Role::Reserved);
        self.dormant_count + self.warm.iter().filter(is_used).count()
    }

    /// Number of blocks that packed sockets use.
    pub fn packed_blocks(&self) -> usize {
        self.dormant.in_use()
    }

    /// Number of times that a socket could not be packed for want of blocks.
    pub fn pack_refused(&self) -> u64 {
        self.dormant.refused()
    }

    /// One more than the largest index ever in use.
    pub fn span(&self) -> u32 {
        self.locations.len() as u32
    }

    /// All unpacked slots, free ones included.
    pub fn warm_slots(&self) -> &[Slot] {
        &self.warm
    }

    /// The slot of `socket`, if it is not packed.
    #[inline]
    pub fn warm_slot(&mut self, socket: u32) -> Option<&mut Slot> {
        let at = self.locations[socket as usize].warm()?;
        Some(&mut self.warm[at])
    }

    /// Keys of all connections.
    pub fn keys(&self) -> impl Iterator<Item = FlowKey> {
        self.locations
            .iter()
            .filter_map(|location| match location.warm() {
                Some(at) => {
                    let slot = &self.warm[at];
                    (slot.role == Role::Connection).then_some(slot.key)
                }
                None => location.dormant().map(|at| self.dormant.key(at)),
            })
    }

    /// Passes a socket's connection to `look`; a packed one stays packed.
    pub fn look_at<R>(
        &self,
        socket: u32,
        look: impl FnOnce(&Slot, &SocketBlock) -> Option<R>,
    ) -> Option<R> {
        let location = self.locations.get(socket as usize)?;
        let block = block_of(&self.memory, socket);
        if let Some(at) = location.warm() {
            let slot = &self.warm[at];
            return (slot.role == Role::Connection).then(|| look(slot, block))?;
        }
        let mut slot = Slot::new();
        (self.dormant).read(location.dormant()?, &mut slot, block.generation());
        look(&slot, block)
    }

    /// Every connection with its key; packed ones stay packed.
    pub fn connections(&self) -> impl Iterator<Item = (FlowKey, Cow<'_, Connection>)> {
        let sockets = 0..self.locations.len() as u32;
        sockets.filter_map(|socket| match self.locations[socket as usize].warm() {
            Some(at) => {
                let slot = &self.warm[at];
                let conn = slot.conn.as_ref()?;
                (slot.role == Role::Connection).then_some((slot.key, Cow::Borrowed(conn)))
            }
            None => {
                let at = self.locations[socket as usize].dormant()?;
                let mut slot = Slot::new();
                let generation = block_of(&self.memory, socket).generation();
                self.dormant.read(at, &mut slot, generation);
                Some((slot.key, Cow::Owned(slot.conn.into_inner())))
            }
        })
    }
}

/// The block of a socket. Indices come from the table, which is as long as the memory file's.
#[inline]
fn block_of(memory: &Memory, socket: u32) -> &SocketBlock {
    memory
        .block(socket)
        .expect("the table is no longer than the memory file")
}

#[cfg(test)]
mod tests;
