//! Chunks: the memory that socket buffers take when bytes arrive.
//!
//! Two sizes, each with a 16-byte header that links it into a stream. That of a
//! small chunk stands before its payload, in the line that holds its first bytes.
//! Those of large chunks lie together in a table: a stream of many megabytes
//! leaves a chunk alone for so long that nothing of it is in the caches any more
//! when both ends walk past its header, and the table is. A chunk
//! belongs to exactly one of: the stack's [`ChunkPool`], an application's
//! [`Magazine`] (send chunks handed out ahead of need), or one byte stream.
//! The stack alone frees. The pool is plain private state of the stack's
//! thread; a magazine is two queues that the stack refills.

use core::num::NonZeroU32;

use free_list::FreeList;
pub(crate) use free_list::Units;

use crate::memory::Memory;
use crate::published::Published32;
use crate::spsc::{self, Consumer};
use crate::stock::Stock;
use crate::sync::{Arc, AtomicU32, Ordering};

mod free_list;
mod index_set;

/// Bytes of a chunk's header.
pub const HEADER_BYTES: u32 = 16;

/// Bytes of a small chunk, header included.
#[cfg(not(loom))]
pub const SMALL_BYTES: u32 = 256;
/// Bytes of a large chunk, whose header lies elsewhere.
#[cfg(not(loom))]
pub const LARGE_BYTES: u32 = 4096;

/// Loom explores every interleaving, so its chunks hold two bytes and three.
#[cfg(loom)]
pub const SMALL_BYTES: u32 = HEADER_BYTES + 2;
/// See [`SMALL_BYTES`].
#[cfg(loom)]
pub const LARGE_BYTES: u32 = 3;

/// Payload bytes that a small chunk holds.
pub const SMALL_DATA_BYTES: u32 = SMALL_BYTES - HEADER_BYTES;
/// Payload bytes that a large chunk holds.
pub const LARGE_DATA_BYTES: u32 = LARGE_BYTES;

const LARGE_BIT: u32 = 1 << 31;

/// The two sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkClass {
    /// [`SMALL_BYTES`]: requests, small responses.
    Small,
    /// [`LARGE_BYTES`]: streams.
    Large,
}

impl ChunkClass {
    /// Payload bytes that a chunk of this class holds.
    #[inline]
    pub const fn data_bytes(self) -> u32 {
        match self {
            Self::Small => SMALL_DATA_BYTES,
            Self::Large => LARGE_DATA_BYTES,
        }
    }

    /// The class for `need` more bytes of a stream in which `waiting` already wait.
    #[inline]
    pub(crate) const fn for_need(need: u32, waiting: u32) -> Self {
        let is_stream = waiting.saturating_add(need) > crate::limits::SMALL_CHUNK_STREAM_BYTES_MAX;
        if need > SMALL_DATA_BYTES || is_stream {
            Self::Large
        } else {
            Self::Small
        }
    }

    /// The other one, for when a class has run out.
    #[inline]
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Small => Self::Large,
            Self::Large => Self::Small,
        }
    }
}

/// Names a chunk of a memory file: its class and index. Never zero, so that a
/// shared word can say "none".
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(transparent)]
pub struct ChunkId(NonZeroU32);

impl ChunkId {
    /// The id of the chunk with this index in its class.
    #[inline]
    pub(crate) const fn new(class: ChunkClass, index: u32) -> Self {
        let class = match class {
            ChunkClass::Small => 0,
            ChunkClass::Large => LARGE_BIT,
        };
        match NonZeroU32::new((index + 1) | class) {
            Some(id) => Self(id),
            None => Self(NonZeroU32::MAX),
        }
    }

    /// A word read from shared memory; not yet known to lie within a memory file.
    #[inline]
    pub(crate) const fn from_word(word: u32) -> Option<Self> {
        match NonZeroU32::new(word) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// The id as a word for shared memory.
    #[inline]
    pub const fn word(self) -> u32 {
        self.0.get()
    }

    /// Its size class.
    #[inline]
    pub const fn class(self) -> ChunkClass {
        if self.word() & LARGE_BIT == 0 {
            ChunkClass::Small
        } else {
            ChunkClass::Large
        }
    }

    /// Its place among the chunks of its class.
    #[inline]
    pub const fn index(self) -> u32 {
        (self.word() & !LARGE_BIT).wrapping_sub(1)
    }

    /// Payload bytes it holds.
    #[inline]
    pub const fn data_bytes(self) -> u32 {
        self.class().data_bytes()
    }
}

/// What links a chunk into a stream. Written by the end that appends to
/// the stream, read by the other end after it has acquired the tail.
#[repr(C)]
pub(crate) struct ChunkHeader {
    /// Next chunk of the stream, 0 = none yet.
    next: AtomicU32,
    /// Stream position of the first payload byte.
    start: AtomicU32,
    /// Payload bytes that belong to the stream once it has gone past this chunk:
    /// the capacity, or less where the stack has closed a partly filled chunk.
    len: AtomicU32,
    spare: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<ChunkHeader>() == HEADER_BYTES as usize);

impl ChunkHeader {
    /// A header of zeros, as a fresh memory file has it.
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self {
            next: AtomicU32::new(0),
            start: AtomicU32::new(0),
            len: AtomicU32::new(0),
            spare: AtomicU32::new(0),
        }
    }

    /// Makes the chunk the newest of a stream, from position `start` on.
    #[inline]
    pub(crate) fn begin(&self, start: u32, len: u32) {
        self.next.store(0, Ordering::Relaxed);
        self.start.store(start, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn start(&self) -> u32 {
        self.start.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_len(&self, len: u32) {
        self.len.store(len, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn next_word(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// It is the last of its stream again.
    #[inline]
    pub(crate) fn clear_next(&self) {
        self.next.store(0, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn set_next(&self, next: ChunkId) {
        self.next.store(next.word(), Ordering::Relaxed);
    }
}

/// The free chunks of one memory file. Made once, by
/// [`memory::create`](crate::memory::create); private to the stack.
pub struct ChunkPool {
    memory: Memory,
    small: FreeList,
    large: FreeList,
}

impl ChunkPool {
    pub(crate) fn new(memory: &Memory) -> Self {
        Self {
            small: FreeList::new(ChunkClass::Small, memory),
            large: FreeList::new(ChunkClass::Large, memory),
            memory: memory.clone(),
        }
    }

    /// The memory file whose chunks these are.
    #[inline]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Takes a free chunk of this class.
    #[inline]
    pub fn take(&mut self, class: ChunkClass) -> Option<ChunkId> {
        match class {
            ChunkClass::Small => self.small.take(),
            ChunkClass::Large => self.large.take(),
        }
    }

    /// Takes a chunk of this class, else of the other.
    #[inline]
    pub fn take_any(&mut self, class: ChunkClass) -> Option<ChunkId> {
        self.take(class).or_else(|| self.take(class.other()))
    }

    /// Takes a chunk back. It must have come from this pool and belong to no stream: only a debug build checks it, and memory
    /// safety depends on it ([`byte_ring`](crate::byte_ring), "One file").
    #[inline]
    pub fn give(&mut self, id: ChunkId) {
        match id.class() {
            ChunkClass::Small => self.small.give(id),
            ChunkClass::Large => self.large.give(id),
        }
    }

    /// Free chunks of this class.
    #[inline]
    pub fn free(&self, class: ChunkClass) -> u32 {
        match class {
            ChunkClass::Small => self.small.free(),
            ChunkClass::Large => self.large.free(),
        }
    }

    /// Begins a round: pages all of whose chunks were free since the last round go back to the
    /// system, and what is free now is noted for the next one.
    pub fn begin_round(&mut self) {
        self.small.begin_round();
        self.large.begin_round();
    }

    /// A bounded part of the round that was begun. Bytes that went back to the system; `None`: the
    /// round is over.
    pub fn go_round(&mut self) -> Option<u64> {
        let small = self.small.go_round(&self.memory);
        small.or_else(|| self.large.go_round(&self.memory))
    }

    /// Whether rounds would return something sooner or later, if nothing is taken meanwhile.
    pub fn has_unused(&self) -> bool {
        self.small.has_unused() || self.large.has_unused()
    }

    /// Chunks of this class in all.
    #[inline]
    pub fn total(&self, class: ChunkClass) -> u32 {
        self.memory.chunks(class)
    }
}

/// The application's end of its stock of send chunks.
pub struct Magazine {
    small: Consumer<ChunkId>,
    large: Consumer<ChunkId>,
    pool_is_dry: Arc<Published32>,
}

/// The stack's end: it fills up what the application has used.
pub struct MagazineFeed {
    small: Stock<ChunkId>,
    large: Stock<ChunkId>,
    pool_is_dry: Arc<Published32>,
    /// What the word says: it is written when it changes.
    said_dry: bool,
}

/// An empty magazine of this many chunks per class (rounded up to powers of two).
pub fn magazine(small: usize, large: usize) -> (MagazineFeed, Magazine) {
    let (small_in, small_out) = spsc::queue(small);
    let (large_in, large_out) = spsc::queue(large);
    let pool_is_dry = Arc::new(Published32::new(0));
    let feed = MagazineFeed {
        small: Stock::new(small_in),
        large: Stock::new(large_in),
        pool_is_dry: pool_is_dry.clone(),
        said_dry: false,
    };
    let magazine = Magazine {
        small: small_out,
        large: large_out,
        pool_is_dry,
    };
    (feed, magazine)
}

impl Magazine {
    /// Takes a chunk of this class, else of the other, else the magazine is empty.
    #[inline]
    pub fn take(&mut self, class: ChunkClass) -> Option<ChunkId> {
        let (first, second) = match class {
            ChunkClass::Small => (&mut self.small, &mut self.large),
            ChunkClass::Large => (&mut self.large, &mut self.small),
        };
        first.pop().or_else(|| second.pop())
    }

    /// Chunks of this class in stock.
    pub fn len(&mut self, class: ChunkClass) -> usize {
        match class {
            ChunkClass::Small => self.small.len(),
            ChunkClass::Large => self.large.len(),
        }
    }

    /// Whether a write would find no chunk.
    pub fn is_empty(&mut self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    /// Whether the pool had nothing left when the stack last filled the stock. Otherwise what is missing here comes with the stack's next look.
    pub fn is_pool_dry(&self) -> bool {
        self.pool_is_dry.load() != 0
    }
}

impl MagazineFeed {
    /// Fills the magazine from the pool, always the same one, as far as its use asks for; returns how many chunks went in.
    #[inline]
    pub fn refill(&mut self, pool: &mut ChunkPool) -> u32 {
        let small = self.small.fill(|| pool.take(ChunkClass::Small));
        let large = self.large.fill(|| pool.take(ChunkClass::Large));
        let is_dry = pool.free(ChunkClass::Small) + pool.free(ChunkClass::Large) == 0;
        if is_dry != self.said_dry {
            self.said_dry = is_dry;
            self.pool_is_dry.store(is_dry.into());
        }
        (small + large) as u32
    }

    /// Chunks of this class in the application's stock.
    pub fn len(&self, class: ChunkClass) -> usize {
        match class {
            ChunkClass::Small => self.small.len(),
            ChunkClass::Large => self.large.len(),
        }
    }

    /// Whether the application has nothing left in stock.
    pub fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    /// Gives the stock back to the pool that it came from once the application is gone.
    pub fn reclaim(self, mut magazine: Magazine, pool: &mut ChunkPool) {
        while let Some(id) = magazine.take(ChunkClass::Small) {
            pool.give(id);
        }
    }
}
