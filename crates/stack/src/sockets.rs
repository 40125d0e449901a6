//! The socket table: for each index the connection, the stack's ends of its byte rings, and what role the index plays now.
//!
//! ```text
//!            refill                connect            closed by both
//!   Free ───────────▶ Reserved ───────────▶ Connection ─────────────▶ Free
//!     │                   │ listen              │ ended, application
//!     │ accepted          ▼                     ▼ still holds it
//!     └──▶ Connection  Listener ──▶ Free      Ended ──▶ Free
//! ```
//!
//! Indices are the same as those of the blocks in the memory file. Free ones are used again last-in first-out; slots are made on the first use of an index.

use ring::byte_ring::{RxWriter, TxReader};
use ring::chunk::{ChunkClass, ChunkPool};
use ring::memory::Memory;
use ring::socket_block::{SocketBlock, SocketId};
use ring::spsc::Producer;
use tcp::Connection;
use wire::{Addr, FlowKey};

use crate::half_opens::ListenerId;
use crate::limits::{MEMORY_EXHAUSTED, MEMORY_LOW, MEMORY_PRESSURE};
use crate::neighbours::NeighbourId;
use crate::packet_out::HeaderFields;
use crate::stamps::Stamps;

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

pub(crate) struct Slot {
    pub conn: Option<Connection>,
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
}

const NO_KEY: FlowKey = FlowKey {
    local: Addr::UNSPECIFIED_V4,
    remote: Addr::UNSPECIFIED_V4,
    local_port: 0,
    remote_port: 0,
};

impl Slot {
    fn new() -> Self {
        Self {
            conn: None,
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
        }
    }
}

/// See the module's documentation.
pub(crate) struct Sockets {
    memory: Memory,
    pub pool: ChunkPool,
    slots: Vec<Slot>,
    free: Vec<u32>,
    capacity: usize,
    send_buffer_bytes: u32,
    orphans: usize,
}

impl Sockets {
    pub fn new(memory: Memory, pool: ChunkPool, capacity: usize, send_buffer_bytes: u32) -> Self {
        Self {
            memory,
            pool,
            slots: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            capacity,
            send_buffer_bytes,
            orphans: 0,
        }
    }

    /// The slot of an index that was handed out.
    #[inline]
    pub fn slot(&self, socket: u32) -> &Slot {
        &self.slots[socket as usize]
    }

    #[inline]
    pub fn slot_mut(&mut self, socket: u32) -> &mut Slot {
        &mut self.slots[socket as usize]
    }

    /// A slot with the chunk pool and the block that its rings need.
    #[inline]
    pub fn parts(&mut self, socket: u32) -> (&mut Slot, &mut ChunkPool, &SocketBlock) {
        (
            &mut self.slots[socket as usize],
            &mut self.pool,
            block_of(&self.memory, socket),
        )
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
            .filter(|_| (id.index as usize) < self.slots.len())
            .map(|_| id.index)
    }

    /// A free index, reserved: with its block opened for a new use.
    pub fn reserve(&mut self) -> Option<SocketId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < self.capacity => {
                self.slots.push(Slot::new());
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let generation = block_of(&self.memory, index).open(self.send_buffer_bytes);
        let slot = &mut self.slots[index as usize];
        slot.role = Role::Reserved;
        slot.app_gone = false;
        slot.bound = false;
        slot.header = HeaderFields::default();
        slot.rx = RxWriter::new();
        slot.tx = TxReader::new();
        Some(SocketId { index, generation })
    }

    /// A reserved socket becomes a connection.
    pub fn connect(&mut self, socket: u32, key: FlowKey, hash: u64, conn: Connection) {
        let slot = &mut self.slots[socket as usize];
        slot.conn = Some(conn);
        (slot.key, slot.hash, slot.role) = (key, hash, Role::Connection);
        slot.neighbour = None;
        slot.awaits_neighbour = false;
        slot.fast_opened_by = None;
    }

    /// The application let go of a connection, which lives on.
    pub fn orphan(&mut self, socket: u32) {
        let slot = &mut self.slots[socket as usize];
        if !slot.app_gone {
            slot.app_gone = true;
            self.orphans += 1;
        }
    }

    /// Connections without an application.
    pub fn orphans(&self) -> usize {
        self.orphans
    }

    /// Frees an index and all that it holds.
    pub fn release(&mut self, socket: u32) {
        let slot = &mut self.slots[socket as usize];
        if slot.role == Role::Free {
            return;
        }
        slot.role = Role::Free;
        slot.conn = None;
        slot.stamps = None;
        if slot.app_gone {
            slot.app_gone = false;
            self.orphans -= 1;
        }
        let block = block_of(&self.memory, socket);
        slot.rx.release_all(&mut self.pool);
        slot.tx.release_all(&mut self.pool, block);
        block.retire();
        self.free.push(socket);
    }

    /// Fills the application's stock of socket ids, up to a half of what is free.
    pub fn refill(&mut self, stock: &mut Producer<SocketId>) {
        let mut room = stock.free().min(self.available() / 2);
        while room > 0 {
            let Some(id) = self.reserve() else { return };
            if stock.push(id).is_err() {
                return self.release(id.index);
            }
            room -= 1;
        }
    }

    /// Sockets not in use, those in the application's stock apart.
    pub fn available(&self) -> usize {
        self.free.len() + self.capacity - self.slots.len()
    }

    /// How much of the memory for socket buffers is free. Chunks in the application's stock count as taken.
    #[inline]
    pub fn judge_memory(&self) -> tcp::Memory {
        let bytes = |count: fn(&ChunkPool, ChunkClass) -> u32| -> u64 {
            [ChunkClass::Small, ChunkClass::Large]
                .into_iter()
                .map(|class| u64::from(count(&self.pool, class)) * u64::from(class.data_bytes()))
                .sum()
        };
        let free = bytes(ChunkPool::free) * 64;
        let total = bytes(ChunkPool::total);
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

    /// Connections, listeners, and sockets whose connection has ended.
    pub fn in_use(&self) -> usize {
        self.iter()
            .filter(|(_, slot)| slot.role != Role::Reserved)
            .count()
    }

    /// One past the largest index ever in use.
    pub fn span(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Every slot in use, with its index.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.role != Role::Free)
            .map(|(index, slot)| (index as u32, slot))
    }
}

/// Indices come from the table, which is as long as the memory file's.
#[inline]
fn block_of(memory: &Memory, socket: u32) -> &SocketBlock {
    memory
        .block(socket)
        .expect("the table is no longer than the memory file")
}
