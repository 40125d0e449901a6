//! Chunks: the memory that socket buffers take when bytes arrive.
//!
//! There are two sizes, each with a 16-byte header that links a chunk into a stream. The header of
//! a small chunk stands before its payload, in the cache line of its first bytes. The headers of
//! large chunks lie together in a table: a stream of many megabytes returns to a chunk so late that
//! its payload has left the caches, while the table stays in them. A chunk belongs to exactly one
//! of: the stack's [`ChunkPool`], an application's [`Magazine`] (send chunks handed out ahead of
//! need), or one byte stream. The stack alone frees. The pool is private state of the stack's
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

/// Makes the memory file of a context, on pages by the source's rule, and the pool of all its
/// chunks.
///
/// # Errors
/// [`MemoryError`]: limits that are out of range, or the kernel's
/// error.
pub fn create_memory(
    limits: &ContextLimits,
    source: &mut PageSource,
) -> Result<(Memory, ChunkPool), MemoryError> {
    let memory = Memory::create(limits, source)?;
    let pool = ChunkPool::new(&memory);
    Ok((memory, pool))
}

/// The free chunks of one memory file. [`create_memory`] makes it; the stack alone uses it.
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

    /// The memory file of these chunks.
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

    /// Takes a chunk of this class, or of the other class if this one has run out.
    #[inline]
    pub fn take_any(&mut self, class: ChunkClass) -> Option<ChunkId> {
        self.take(class).or_else(|| self.take(class.other()))
    }

    /// Takes a chunk back. The chunk must have come from this pool and belong to no stream. Only a
    /// debug build checks that, and memory safety depends on it ([`byte_ring`](crate::byte_ring),
    /// "One file").
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

    /// Begins a round: pages whose chunks were all free since the last round go back to the system,
    /// and the chunks that are free now are noted for the next round.
    pub fn begin_round(&mut self) {
        self.small.begin_round();
        self.large.begin_round();
    }

    /// Runs a bounded part of the current round. Returns the bytes that went back to the system;
    /// `None`: the round is over.
    pub fn go_round(&mut self) -> Option<u64> {
        let small = self.small.go_round(&self.memory);
        small.or_else(|| self.large.go_round(&self.memory))
    }

    /// True if rounds would sooner or later return pages, provided that no chunk is taken
    /// meanwhile.
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

/// The stack's end of a magazine, which replaces the chunks that the application has used.
pub struct MagazineFeed {
    small: Stock<ChunkId>,
    large: Stock<ChunkId>,
    pool_is_dry: Arc<Published32>,
    /// The last value written to `pool_is_dry`, so that the shared word is written only when it
    /// changes.
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
    /// Takes a chunk of this class, or of the other class; `None`: the magazine is empty.
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

    /// True if the pool was empty when the stack last filled the magazine. If false, the stack's
    /// next turn brings the missing chunks.
    pub fn is_pool_dry(&self) -> bool {
        self.pool_is_dry.load() != 0
    }
}

impl MagazineFeed {
    /// Fills the magazine from the pool, always the same one, as far as recent use asks for.
    /// Returns how many chunks went in.
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

    /// Chunks of this class in the application's magazine.
    pub fn len(&self, class: ChunkClass) -> usize {
        match class {
            ChunkClass::Small => self.small.len(),
            ChunkClass::Large => self.large.len(),
        }
    }

    /// True if the application's magazine is empty.
    pub fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    /// Gives the magazine's chunks back to the pool that they came from, once the application is
    /// gone.
    pub fn reclaim(self, mut magazine: Magazine, pool: &mut ChunkPool) {
        while let Some(id) = magazine.take(ChunkClass::Small) {
            pool.give(id);
        }
    }
}
