//! The socket table: for each index in use the connection, the stack's ends of its byte rings, and
//! the index's present role.
//!
//! ```text
//!            refill                connect            closed by both
//!   Free ───────────▶ Reserved ───────────▶ Connection ─────────────▶ Free
//!     │                   │ listen              │ ended, application
//!     │ accepted          ▼                     ▼ still holds it
//!     └──▶ Connection  Listener ──▶ Free      Ended ──▶ Free
//! ```
//!
//! Indices are the same as those of the blocks in the memory file. Free ones are used again last-in
//! first-out.
//!
//! ```text
//!   index ──▶ location: a slot, warm              a slot that is asked for is warm
//!                 │ quiet for a while    ▲
//!                 ▼                      │ anything happens
//!             packed, in `dormant`
//! ```
//!
//! Slots are large and few, packed sockets small and many. A cursor goes round the warm slots, a
//! few steps whenever there are more than [`Limits::warm_sockets`](crate::limits::Limits), and
//! packs those whose connection has been quiet. A round that packed hardly any is followed by a
//! pause: looking at busy slots only brings them in from memory. Packing loses nothing, and nothing
//! outside this table knows of it.
//!
//! A reserved index has no slot until it is first used. It then takes the slot that was freed last,
//! which is still near the core.

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

/// The location of a socket's state.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Location(u32);

impl Location {
    /// The location of a free index: the slot that belongs to no socket.
    const NOBODY: Location = Location(0);
    const DORMANT: u32 = 1 << 31;
    /// The location of a reserved index that nothing was done with yet.
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

/// The size of an entry, for the test that keeps an idle connection small.
#[cfg(test)]
pub(crate) const LOCATION_BYTES: usize = size_of::<Location>();

/// See the module's documentation.
pub(crate) struct Sockets {
    memory: Memory,
    pub pool: ChunkPool,
    /// The time of this turn.
    pub now_ns: u64,
    /// Locations by index, as far as indices were ever in use.
    locations: Table<Location>,
    /// Slots; the first one belongs to no socket.
    warm: Table<Slot>,
    warm_free: Vec<u32>,
    warm_max: usize,
    pack_after_ns: u64,
    /// The slot that was last looked at for something to pack.
    pack_cursor: usize,
    /// Slots that the cursor's round has packed so far.
    packed_in_round: usize,
    /// The cursor pauses until then.
    packing_paused_until_ns: u64,
    /// Slots that have touched their memory and not given it back.
    warm_touched: usize,
    /// Slots that the round that returns memory is to leave; no round is in progress if there are
    /// no more.
    warm_wanted: usize,
    /// Slots in use when the last such round began.
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

    /// The role of an index.
    #[inline]
    pub fn role(&self, socket: u32) -> Role {
        match self.locations[socket as usize].warm() {
            Some(at) => self.warm[at].role,
            None if self.locations[socket as usize] == Location::RESERVED => Role::Reserved,
            None => Role::Connection,
        }
    }

    /// The socket has a connection of this flow.
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

    /// The slot of an index that was handed out, which is warm from now on. A free index has the
    /// slot that belongs to no socket.
    #[inline]
    pub fn slot(&mut self, socket: u32) -> &mut Slot {
        let at = self.warm_index(socket);
        &mut self.warm[at]
    }

    /// Slots that are warm, free ones among them. A packed connection has no neighbour and no
    /// stored headers.
    pub fn warm_slots_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.warm.iter_mut()
    }

    /// The slot of an index that was remembered. The index may have been released since, and handed
    /// out again: `None` if nothing was done with it yet.
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

    /// Asks for the memory that a segment, a job or the beginning of this socket will touch.
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

    /// A slot with the chunk pool and the block that its rings need.
    #[inline]
    pub fn parts(&mut self, socket: u32) -> (&mut Slot, &mut ChunkPool, &SocketBlock) {
        let at = self.warm_index(socket);
        (
            &mut self.warm[at],
            &mut self.pool,
            block_of(&self.memory, socket),
        )
    }

    /// The memory of all streams, and the block of a socket.
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

    /// A slot for `socket`. If there are many, others are packed.
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

    /// Slots in use.
    #[inline]
    fn warm_count(&self) -> usize {
        self.warm.len() - 1 - self.warm_free.len()
    }

    /// Packed sockets.
    pub fn dormant(&self) -> usize {
        self.dormant_count
    }

    /// Packs a few quiet sockets, if more slots are in use than there should be.
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

    /// Ends the cursor's round. True: a pause follows, since hardly any connection was quiet.
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

    /// Begins a round that returns the memory of slots: all but as many as were in use when the
    /// last round began, or are now, and a few.
    pub fn begin_round(&mut self) {
        let in_use = self.warm_count();
        self.warm_wanted = in_use.max(self.warm_before) + 1 + SLOTS_SPARE;
        self.warm_before = in_use;
    }

    /// Takes a step of the round. The bytes that went back to the system; `None`: the round is
    /// over.
    pub fn go_round(&mut self) -> Option<u64> {
        let len = self.warm.len();
        let step = SLOTS_PER_STEP.max(len / SLOTS_STEP_SHARE);
        let kept = len.saturating_sub(step).max(self.warm_wanted);
        // More may be in use by now.
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

    /// Rounds would return something sooner or later, if nothing is taken meanwhile.
    pub fn has_unused(&self) -> bool {
        self.warm.len() > self.warm_count() + 1 + SLOTS_SPARE
    }

    /// Moves the slot at `at` into a free one.
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

    /// The index that `id` names, if that use of it is still on.
    #[inline]
    pub fn resolve(&self, id: SocketId) -> Option<u32> {
        self.memory
            .resolve(id)
            .filter(|_| (id.index as usize) < self.locations.len())
            .map(|_| id.index)
    }

    /// A free index, reserved: with its block opened for a new use.
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

    /// Counts a connection as an orphan: the application let go of it, and it lives on.
    pub fn orphan(&mut self, socket: u32) {
        let slot = self.slot(socket);
        if !slot.app_gone {
            slot.app_gone = true;
            self.orphans += 1;
        }
    }

    /// Connections without an application.
    pub fn orphans(&self) -> usize {
        self.orphans
    }

    /// Frees an index and all that it holds. True: its socket was bound.
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

    /// Fills the application's stock of socket ids according to its use, with at most half of the
    /// free ones.
    pub fn refill(&mut self, stock: &mut Stock<SocketId>) {
        let mut room = self.available() / 2;
        stock.fill(|| {
            room = room.checked_sub(1)?;
            self.reserve()
        });
    }

    /// Sockets not in use, those in the application's stock apart.
    pub fn available(&self) -> usize {
        self.free.len() + self.capacity - self.locations.len()
    }

    /// The free share of the memory for socket buffers. Chunks in the application's stock count as
    /// taken.
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

    /// Bytes that all chunks hold.
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

    /// Connections, listeners, and sockets whose connection has ended.
    pub fn in_use(&self) -> usize {
        let is_used = |slot: &&Slot| !matches!(slot.role, Role::Free | Role::Reserved);
        self.dormant_count + self.warm.iter().filter(is_used).count()
    }

    /// Blocks that packed sockets take.
    pub fn packed_blocks(&self) -> usize {
        self.dormant.in_use()
    }

    /// Times that one could not be packed for want of blocks.
    pub fn pack_refused(&self) -> u64 {
        self.dormant.refused()
    }

    /// One more than the largest index ever in use.
    pub fn span(&self) -> u32 {
        self.locations.len() as u32
    }

    /// All slots, also those that no socket has.
    pub fn warm_slots(&self) -> &[Slot] {
        &self.warm
    }

    /// The slot of `socket`, if it is warm.
    #[inline]
    pub fn warm_slot(&mut self, socket: u32) -> Option<&mut Slot> {
        let at = self.locations[socket as usize].warm()?;
        Some(&mut self.warm[at])
    }

    /// The flows of all connections.
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

    /// Shows a socket that has a connection to `look`; a packed one stays so.
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

    /// Every connection with its names; packed ones stay so.
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

/// Indices come from the table, which is as long as the memory file's.
#[inline]
fn block_of(memory: &Memory, socket: u32) -> &SocketBlock {
    memory
        .block(socket)
        .expect("the table is no longer than the memory file")
}

#[cfg(test)]
mod tests;
