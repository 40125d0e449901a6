//! The form of a chunk: sizes, class, id and header, as the memory file lays them out.
//!
//! [`memory`](crate::memory) places chunks of this form, [`chunk`](crate::chunk) hands them out,
//! and [`byte_ring`](crate::byte_ring) links them into streams.

use core::num::NonZeroU32;

use crate::sync::{AtomicU32, Ordering};

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

    /// The other class, for when this one has run out.
    #[inline]
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Small => Self::Large,
            Self::Large => Self::Small,
        }
    }
}

/// Name of a chunk in a memory file: its class and index. Never zero, so that zero in a shared word
/// means "none".
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

    /// The id in a word of shared memory; not yet known to name a chunk of the memory file.
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

    /// The chunk's class.
    #[inline]
    pub const fn class(self) -> ChunkClass {
        if self.word() & LARGE_BIT == 0 {
            ChunkClass::Small
        } else {
            ChunkClass::Large
        }
    }

    /// The chunk's index among the chunks of its class.
    #[inline]
    pub const fn index(self) -> u32 {
        (self.word() & !LARGE_BIT).wrapping_sub(1)
    }

    /// Payload bytes that the chunk holds.
    #[inline]
    pub const fn data_bytes(self) -> u32 {
        self.class().data_bytes()
    }
}

/// The links of a chunk in its stream. Written by the end that appends to
/// the stream, read by the other end after it has acquired the tail.
#[repr(C)]
pub(crate) struct ChunkHeader {
    /// Next chunk of the stream, 0 = none yet.
    next: AtomicU32,
    /// Stream position of the first payload byte.
    start: AtomicU32,
    /// Payload bytes of the chunk that belong to the stream once the stream has gone past it: the
    /// capacity, or fewer where the stack has closed a partly filled chunk.
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

    /// Makes the chunk the last one of its stream, by clearing its link.
    #[inline]
    pub(crate) fn clear_next(&self) {
        self.next.store(0, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn set_next(&self, next: ChunkId) {
        self.next.store(next.word(), Ordering::Relaxed);
    }
}

/// The unit in which chunks of a class return to the system: the chunks of one page, ordinary or
/// huge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    /// Index of the first chunk that begins a page.
    pub first: u32,
    /// Chunks of one unit; 0: nothing can be returned.
    pub chunks: u32,
    /// Pages of 4 KiB in each unit.
    pub pages: u32,
}

/// The next readable bytes of a stream, as far as they lie in one chunk
/// ([`RxReader::front`](crate::byte_ring::RxReader::front)).
#[derive(Clone, Copy, Debug)]
pub struct Front {
    pub(crate) chunk: ChunkId,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}
