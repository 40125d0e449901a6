//! Chunks: the memory that socket buffers take when bytes arrive.
//!
//! Two sizes, each with a 16-byte header that links it into a stream. That of a small chunk stands
//! before its payload, in the line that holds its first bytes. Those of large chunks lie together
//! in a table. A stream of many megabytes leaves a chunk alone for so long that nothing of it is in
//! the caches when both ends walk past its header. The table is. A chunk belongs to exactly one of:
//! the stack's [`ChunkPool`], an application's [`Magazine`] (send chunks handed out ahead of need),
//! or one byte stream. The stack alone frees. The pool is plain private state of the stack's
//! thread; a magazine is two queues that the stack refills.

use free_list::FreeList;

pub use crate::chunk_format::{
    ChunkClass, ChunkId, HEADER_BYTES, LARGE_BYTES, LARGE_DATA_BYTES, SMALL_BYTES, SMALL_DATA_BYTES,
};
use crate::huge_pages::PageSource;
use crate::limits::SMALL_CHUNK_STREAM_BYTES_MAX;
use crate::memory::{ContextLimits, Memory, MemoryError};
use crate::published::Published32;
use crate::spsc::{self, Consumer};
use crate::stock::Stock;
use crate::sync::Arc;

mod free_list;
mod index_set;

impl ChunkClass {
    /// The class for `need` more bytes of a stream in which `waiting` already wait.
    #[inline]
    pub(crate) const fn for_need(need: u32, waiting: u32) -> Self {
        let is_stream = waiting.saturating_add(need) > SMALL_CHUNK_STREAM_BYTES_MAX;
        if need > SMALL_DATA_BYTES || is_stream {
            Self::Large
        } else {
            Self::Small
        }
    }
}

/// Makes the memory file of a context and the pool of all its chunks, on pages by the source's
/// rule.
///
/// # Errors
/// Limits that are out of range, and what the kernel refused.
pub fn create_memory(
    limits: &ContextLimits,
    source: &mut PageSource,
) -> Result<(Memory, ChunkPool), MemoryError> {
    let memory = Memory::create(limits, source)?;
    let pool = ChunkPool::new(&memory);
    Ok((memory, pool))
}

/// The free chunks of one memory file. Made once, by
/// [`create_memory`]; private to the stack.
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

    /// Takes a chunk back. It must have come from this pool and belong to no stream: only a debug
    /// build checks it, and memory safety depends on it ([`byte_ring`](crate::byte_ring), "One
    /// file").
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

    /// Runs a bounded part of the round that was begun. Returns how many bytes went back to the
    /// system; `None`: the round is over.
    pub fn go_round(&mut self) -> Option<u64> {
        let small = self.small.go_round(&self.memory);
        small.or_else(|| self.large.go_round(&self.memory))
    }

    /// True if rounds would return something sooner or later, if nothing is taken meanwhile.
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
    /// Value of the shared word, which is written only when it changes.
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

    /// True if a write would find no chunk.
    pub fn is_empty(&mut self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    /// True if the pool was empty when the stack last filled the stock. False: the stack's next
    /// turn brings the chunks that are missing here.
    pub fn is_pool_dry(&self) -> bool {
        self.pool_is_dry.load() != 0
    }
}

impl MagazineFeed {
    /// Fills the magazine from the pool, always the same one, as far as its use asks for; returns
    /// how many chunks went in.
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

    /// True if the application has nothing left in stock.
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
