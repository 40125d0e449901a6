//! The socket table: for each index in use the connection, the stack's ends of its byte rings, and what role the index plays now.
//!
//! ```text
//!            refill                connect            closed by both
//!   Free ───────────▶ Reserved ───────────▶ Connection ─────────────▶ Free
//!     │                   │ listen              │ ended, application
//!     │ accepted          ▼                     ▼ still holds it
//!     └──▶ Connection  Listener ──▶ Free      Ended ──▶ Free
//! ```
//!
//! Indices are the same as those of the blocks in the memory file. Free ones are used again last-in first-out.
//!
//! ```text
//!   index ──▶ place: a slot, warm                 whoever asks for a slot gets a warm one
//!                 │ quiet for a while    ▲
//!                 ▼                      │ anything happens
//!             packed, in `dormant`
//! ```
//!
//! Slots are large and few, packed ones small and many. A hand goes round the warm slots, a few steps whenever there are more than
//! [`Limits::warm_sockets`](crate::limits::Limits), and packs those whose connection has been quiet. A round that found hardly any is followed by a pause: all that it
//! passed were busy, and looking at slots brings them in from memory. Nothing is lost by packing, and nobody but this table knows of it.
//!
//! A reserved index has no slot before something is done with it: the slot that was freed last is then taken, which is still near the core.

use std::borrow::Cow;

use ring::byte_ring::{RxWriter, TxReader};
use ring::chunk::{ChunkClass, ChunkPool};
use ring::memory::Memory;
use ring::socket_block::{SocketBlock, SocketId};
use ring::stock::Stock;
use ring::tables;
use tcp::Connection;
use wire::plain::Standing;
use wire::{Addr, FlowKey};

use crate::flows::dormant::RestBlocks;
use crate::flows::half_opens::ListenerId;
use crate::flows::stamps::Stamps;
use crate::header_fields::HeaderFields;
use crate::limits::{
    HAND_PACKS_MAX, HAND_STEPS_MAX, HAND_WORTH, Limits, MEMORY_EXHAUSTED, MEMORY_LOW,
    MEMORY_PRESSURE, SLOTS_KEPT, SLOTS_PER_STEP, SLOTS_STEP_SHARE,
};
use crate::network::neighbours::NeighbourId;

/// What an index is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Free,
    /// In the application's stock, or a socket of its that is not connected yet.
    Reserved,
    Connection,
    /// A listening socket, with its place among the listeners.
    Listener(u32),
    /// The connection is gone, the application still holds the socket.
    Ended,
}

/// Where a slot's connection is, or the last one was: a new one is made in its place.
pub(crate) struct Seat {
    conn: Connection,
    is_taken: bool,
    /// Of its segments; in what alignment would leave empty.
    headers: Standing,
}

const _: () = assert!(size_of::<Seat>() == size_of::<Connection>() + 64);

impl Seat {
    fn new() -> Self {
        Self {
            conn: Connection::unused(),
            is_taken: false,
            headers: Standing::NONE,
        }
    }

    #[inline]
    pub fn as_ref(&self) -> Option<&Connection> {
        self.is_taken.then_some(&self.conn)
    }

    #[inline]
    pub fn as_mut(&mut self) -> Option<&mut Connection> {
        self.is_taken.then_some(&mut self.conn)
    }

    /// With the headers of its segments, which fit or are to be made.
    #[inline]
    pub fn with_headers(&mut self) -> Option<(&mut Connection, &mut Standing)> {
        self.is_taken.then_some((&mut self.conn, &mut self.headers))
    }

    /// Whatever was there, to be made a connection by whoever calls.
    #[inline]
    pub fn take(&mut self) -> &mut Connection {
        self.is_taken = true;
        self.headers.forget();
        &mut self.conn
    }
}

pub(crate) struct Slot {
    pub conn: Seat,
    pub key: FlowKey,
    pub hash: u64,
    pub rx: RxWriter,
    pub tx: TxReader,
    /// Where frames to the peer go; looked up again when it is gone.
    pub neighbour: Option<NeighbourId>,
    /// What the application chose of the headers of what it sends.
    pub header: HeaderFields,
    /// Time stamps, of sockets that asked for some.
    pub stamps: Option<Box<Stamps>>,
    pub role: Role,
    /// The application closed the socket: nobody is to be told anything, and received bytes have no reader.
    pub app_gone: bool,
    /// Stands among the bound ones.
    pub bound: bool,
    /// In the list of waiters of its neighbour.
    pub awaits_neighbour: bool,
    /// Whose pending Fast Open this connection is.
    pub fast_opened_by: Option<ListenerId>,
    /// What `event_queue` has to look at when the turn ends.
    pub marks: u8,
    /// Position after which this socket last went into the event queue.
    pub event_position: u64,
    /// The use of the index that it went in for.
    pub event_generation: u32,
    /// Whose slot it is.
    pub socket: u32,
}

/// The flow of a socket that has none.
pub(crate) const NO_KEY: FlowKey = FlowKey {
    local: Addr::UNSPECIFIED_V4,
    remote: Addr::UNSPECIFIED_V4,
    local_port: 0,
    remote_port: 0,
};

impl Slot {
    fn new() -> Self {
        Self {
            conn: Seat::new(),
            key: NO_KEY,
            hash: 0,
            rx: RxWriter::new(),
            tx: TxReader::new(),
            neighbour: None,
            header: HeaderFields::default(),
            stamps: None,
            role: Role::Free,
            app_gone: false,
            bound: false,
            awaits_neighbour: false,
            fast_opened_by: None,
            marks: 0,
            event_position: 0,
            event_generation: 0,
            socket: 0,
        }
    }

    /// The connection, unless it has ended: what is known of one that has (`TCP_INFO`) stays until the application closes.
    #[inline]
    pub fn live_mut(&mut self) -> Option<&mut Connection> {
        match self.role {
            Role::Connection => self.conn.as_mut(),
            _ => None,
        }
    }

    /// When the connection's peer was last heard of.
    #[inline]
    pub fn news_ns(&self) -> u64 {
        self.conn.as_ref().map_or(0, Connection::last_news_ns)
    }

    /// A free slot becomes that of `socket`, reserved.
    fn begin(&mut self, socket: u32) {
        self.conn.is_taken = false;
        (self.key, self.hash) = (NO_KEY, 0);
        (self.rx, self.tx) = (RxWriter::new(), TxReader::new());
        self.header = HeaderFields::default();
        (self.neighbour, self.awaits_neighbour) = (None, false);
        (self.stamps, self.fast_opened_by) = (None, None);
        (self.role, self.app_gone, self.bound) = (Role::Reserved, false, false);
        (self.marks, self.event_position, self.event_generation) = (0, 0, 0);
        self.socket = socket;
    }

    /// A reserved one becomes a connection, which the caller makes in its place.
    pub fn become_connection(&mut self, key: FlowKey, hash: u64) -> &mut Connection {
        (self.key, self.hash, self.role) = (key, hash, Role::Connection);
        self.neighbour = None;
        self.awaits_neighbour = false;
        self.fast_opened_by = None;
        self.conn.take()
    }

    /// It holds a connection that has nothing to do, and had nothing for a while: `rest_ns`, or a tenth of that if it never carried any payload.
    fn is_resting(&self, now_ns: u64, rest_ns: u64) -> bool {
        let Some(conn) = self.conn.as_ref() else {
            return false;
        };
        let wait_ns = match conn.last_payload_ns() {
            0 => rest_ns / 10,
            _ => rest_ns,
        };
        self.role == Role::Connection
            && conn.is_quiet()
            && now_ns.saturating_sub(conn.last_active_ns()) >= wait_ns
    }
}

/// Where a socket is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place(u32);

impl Place {
    /// A free index's: the slot that is nobody's.
    const NOBODY: Place = Place(0);
    const DORMANT: u32 = 1 << 31;
    /// A reserved index's that nothing was done with yet.
    const RESERVED: Place = Place(u32::MAX);

    #[inline]
    fn warm(self) -> Option<usize> {
        (self.0 & Self::DORMANT == 0).then_some(self.0 as usize)
    }

    #[inline]
    fn dormant(self) -> Option<u32> {
        (self.0 & Self::DORMANT != 0 && self != Self::RESERVED).then_some(self.0 & !Self::DORMANT)
    }
}

/// For the account of what a connection costs.
#[cfg(test)]
pub(crate) const PLACE_BYTES: usize = size_of::<Place>();
#[cfg(test)]
pub(crate) const SLOT_BYTES: usize = size_of::<Slot>();

/// See the module's documentation.
pub(crate) struct Sockets {
    memory: Memory,
    pub pool: ChunkPool,
    /// The time of this turn.
    pub now_ns: u64,
    /// By index, as far as indices were ever in use.
    places: Vec<Place>,
    /// Slots; the first one is nobody's.
    warm: Vec<Slot>,
    warm_free: Vec<u32>,
    warm_max: usize,
    rest_ns: u64,
    /// The slot that was last looked at for something to pack.
    hand: usize,
    /// How many its round has packed so far.
    hand_packed: usize,
    /// It stands still until then.
    hand_until_ns: u64,
    /// Slots that have touched their memory and not given it back.
    warm_touched: usize,
    /// Slots to be left by the round that returns memory; none is under way if there are no more.
    warm_wanted: usize,
    /// Slots in use when the last such round began.
    warm_before: usize,
    dormant: RestBlocks,
    dormant_count: usize,
    free: Vec<u32>,
    capacity: usize,
    send_buffer_bytes: u32,
    orphans: usize,
}

impl Sockets {
    pub fn new(memory: Memory, pool: ChunkPool, limits: &Limits, send_buffer_bytes: u32) -> Self {
        let capacity = limits.sockets_max;
        let mut warm = tables::with_capacity(capacity + 1);
        warm.push(Slot::new());
        Self {
            memory,
            pool,
            now_ns: 0,
            places: Vec::with_capacity(capacity),
            warm,
            warm_free: Vec::with_capacity(capacity),
            warm_max: limits.warm_sockets,
            rest_ns: limits.rest_ns,
            hand: 0,
            hand_packed: 0,
            hand_until_ns: 0,
            warm_touched: 1,
            warm_wanted: usize::MAX,
            warm_before: 0,
            dormant: RestBlocks::new(limits.rest_blocks),
            dormant_count: 0,
            free: Vec::with_capacity(capacity),
            capacity,
            send_buffer_bytes,
            orphans: 0,
        }
    }

    /// What an index is used for.
    #[inline]
    pub fn role(&self, socket: u32) -> Role {
        match self.places[socket as usize].warm() {
            Some(at) => self.warm[at].role,
            None if self.places[socket as usize] == Place::RESERVED => Role::Reserved,
            None => Role::Connection,
        }
    }

    /// The socket has a connection of this flow.
    #[inline]
    pub fn is_of(&self, socket: u32, key: &FlowKey) -> bool {
        let place = self.places[socket as usize];
        match place.warm() {
            Some(at) => {
                let slot = &self.warm[at];
                slot.key.is_same(key) && slot.role == Role::Connection
            }
            None => place
                .dormant()
                .is_some_and(|at| self.dormant.is_of(at, key)),
        }
    }

    /// The slot of an index that was handed out; it is warm from now on. A free index has nobody's.
    #[inline]
    pub fn slot(&mut self, socket: u32) -> &mut Slot {
        let at = self.warm_place(socket);
        &mut self.warm[at]
    }

    /// The slot of an index that something was remembered of, which may have been released since, and handed out again: none if nothing was done with it yet.
    #[inline]
    pub fn remembered(&mut self, socket: u32) -> Option<(&mut Slot, &SocketBlock)> {
        match self.places[socket as usize] {
            Place::NOBODY | Place::RESERVED => None,
            _ => {
                let (slot, _, block) = self.parts(socket);
                Some((slot, block))
            }
        }
    }

    /// Asks for the memory that a segment, a job or the beginning of this socket will touch.
    #[inline]
    pub fn prefetch(&self, socket: u32) {
        let Some(place) = self.places.get(socket as usize) else {
            return;
        };
        if let Some(slot) = place.warm().and_then(|at| self.warm.get(at)) {
            ring::prefetch::read(slot);
            self.block(socket).prefetch();
        } else if *place == Place::RESERVED {
            self.block(socket).prefetch();
        }
    }

    /// A slot with the chunk pool and the block that its rings need.
    #[inline]
    pub fn parts(&mut self, socket: u32) -> (&mut Slot, &mut ChunkPool, &SocketBlock) {
        let at = self.warm_place(socket);
        (
            &mut self.warm[at],
            &mut self.pool,
            block_of(&self.memory, socket),
        )
    }

    #[inline]
    fn warm_place(&mut self, socket: u32) -> usize {
        match self.places[socket as usize].warm() {
            Some(at) => at,
            None => self.wake(socket),
        }
    }

    #[inline(never)]
    fn wake(&mut self, socket: u32) -> usize {
        let place = self.places[socket as usize];
        if place == Place::RESERVED {
            return self.take_slot(socket);
        }
        let Some(at) = place.dormant() else {
            return 0;
        };
        let place = self.take_slot(socket);
        let generation = block_of(&self.memory, socket).generation();
        self.dormant.read(at, &mut self.warm[place], generation);
        self.dormant.free(at);
        self.dormant_count -= 1;
        place
    }

    /// A slot for `socket`. If there are many, others are packed.
    #[inline]
    fn take_slot(&mut self, socket: u32) -> usize {
        self.rest_some();
        let at = match self.warm_free.pop() {
            Some(at) => at as usize,
            None => {
                self.warm.push(Slot::new());
                self.warm.len() - 1
            }
        };
        self.warm[at].begin(socket);
        self.places[socket as usize] = Place(at as u32);
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

    /// Packs a few sockets that rest, if there are more slots in use than there should be.
    #[inline]
    pub fn rest_some(&mut self) {
        if self.warm_count() >= self.warm_max && self.now_ns >= self.hand_until_ns {
            self.move_hand();
        }
    }

    #[cold]
    fn move_hand(&mut self) {
        let mut packed = 0;
        for _ in 0..HAND_STEPS_MAX {
            if self.hand + 1 < self.warm.len() {
                self.hand += 1;
            } else if self.ends_round() {
                return;
            }
            if self.rest(self.hand) {
                packed += 1;
                self.hand_packed += 1;
            }
            if packed == HAND_PACKS_MAX {
                return;
            }
        }
    }

    /// The hand has been everywhere and begins anew. True: not at once, since it met hardly anybody who rests.
    fn ends_round(&mut self) -> bool {
        let is_vain = self.hand_packed < self.warm.len() / HAND_WORTH;
        (self.hand, self.hand_packed) = (1, 0);
        if is_vain {
            self.hand_until_ns = self.now_ns + self.rest_ns / 10;
        }
        is_vain
    }

    fn rest(&mut self, at: usize) -> bool {
        let Some(slot) = self.warm.get_mut(at) else {
            return false;
        };
        if !slot.is_resting(self.now_ns, self.rest_ns) {
            return false;
        }
        let socket = slot.socket;
        let generation = block_of(&self.memory, socket).generation();
        let Some(stored) = self.dormant.store(slot, generation) else {
            return false;
        };
        slot.role = Role::Free;
        slot.conn.is_taken = false;
        self.warm_free.push(at as u32);
        self.places[socket as usize] = Place(stored | Place::DORMANT);
        self.dormant_count += 1;
        true
    }

    /// Begins a round that returns the memory of slots: all but as many as were in use when the
    /// last round began, or are now, and a few.
    pub fn begin_round(&mut self) {
        let in_use = self.warm_count();
        self.warm_wanted = in_use.max(self.warm_before) + 1 + SLOTS_KEPT;
        self.warm_before = in_use;
    }

    /// A part of the round. Bytes that went back to the system; `None`: it is over.
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
        self.hand = self.hand.min(kept - 1);
        Some(tables::return_room(&mut self.warm, &mut self.warm_touched))
    }

    /// Rounds would return something sooner or later, if nothing is taken meanwhile.
    pub fn has_unused(&self) -> bool {
        self.warm.len() > self.warm_count() + 1 + SLOTS_KEPT
    }

    /// Moves the slot at `at` into a free one.
    fn move_slot(&mut self, at: usize) {
        let Some(free) = self.warm_free.pop() else {
            return;
        };
        self.warm.swap(at, free as usize);
        let socket = self.warm[free as usize].socket;
        self.places[socket as usize] = Place(free);
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
            .filter(|_| (id.index as usize) < self.places.len())
            .map(|_| id.index)
    }

    /// A free index, reserved: with its block opened for a new use.
    pub fn reserve(&mut self) -> Option<SocketId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.places.len() < self.capacity => {
                self.places.push(Place::NOBODY);
                self.places.len() as u32 - 1
            }
            None => return None,
        };
        let generation = block_of(&self.memory, index).open(self.send_buffer_bytes);
        self.places[index as usize] = Place::RESERVED;
        Some(SocketId { index, generation })
    }

    /// The application let go of a connection, which lives on.
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

    /// Frees an index and all that it holds. True: it stands among the bound ones.
    pub fn release(&mut self, socket: u32) -> bool {
        let at = self.warm_place(socket);
        let slot = &mut self.warm[at];
        if slot.role == Role::Free {
            return false;
        }
        slot.role = Role::Free;
        slot.conn.is_taken = false;
        slot.stamps = None;
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
        self.places[socket as usize] = Place::NOBODY;
        self.free.push(socket);
        bound
    }

    /// Fills the application's stock of socket ids as far as its use asks for, with a half of what is free at most.
    pub fn refill(&mut self, stock: &mut Stock<SocketId>) {
        let mut room = self.available() / 2;
        stock.fill(|| {
            room = room.checked_sub(1)?;
            self.reserve()
        });
    }

    /// Sockets not in use, those in the application's stock apart.
    pub fn available(&self) -> usize {
        self.free.len() + self.capacity - self.places.len()
    }

    /// How much of the memory for socket buffers is free. Chunks in the application's stock count as taken.
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
    pub fn rest_blocks(&self) -> usize {
        self.dormant.in_use()
    }

    /// Times that one could not be packed for want of blocks.
    pub fn rest_refused(&self) -> u64 {
        self.dormant.refused()
    }

    /// One past the largest index ever in use.
    pub fn span(&self) -> u32 {
        self.places.len() as u32
    }

    /// The slot of `socket`, if it is warm.
    #[inline]
    pub fn warm_slot(&mut self, socket: u32) -> Option<&mut Slot> {
        let at = self.places[socket as usize].warm()?;
        Some(&mut self.warm[at])
    }

    /// The flows of all connections.
    pub fn keys(&self) -> impl Iterator<Item = FlowKey> {
        self.places.iter().filter_map(|place| match place.warm() {
            Some(at) => {
                let slot = &self.warm[at];
                (slot.role == Role::Connection).then_some(slot.key)
            }
            None => place.dormant().map(|at| self.dormant.key(at)),
        })
    }

    /// Every connection with its names; packed ones stay so.
    pub fn connections(&self) -> impl Iterator<Item = (FlowKey, Cow<'_, Connection>)> {
        let sockets = 0..self.places.len() as u32;
        sockets.filter_map(|socket| match self.places[socket as usize].warm() {
            Some(at) => {
                let slot = &self.warm[at];
                let conn = slot.conn.as_ref()?;
                (slot.role == Role::Connection).then_some((slot.key, Cow::Borrowed(conn)))
            }
            None => {
                let at = self.places[socket as usize].dormant()?;
                let mut slot = Slot::new();
                let generation = block_of(&self.memory, socket).generation();
                self.dormant.read(at, &mut slot, generation);
                Some((slot.key, Cow::Owned(slot.conn.conn)))
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
