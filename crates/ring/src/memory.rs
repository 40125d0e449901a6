//! The one memory file of a context, and its layout.
//!
//! ```text
//!   0   blocks                 headers of large chunks   small chunks     large chunks
//!   [ 128 B x sockets_max | pad ][ 16 B x large | pad ][ 256 B x small ][ 4 KiB x large ]
//! ```
//!
//! All that the stack and the application share about sockets lies here and refers by index, so
//! that one of them may one day be another process. The file is a memfd. Its pages are taken when
//! first touched; pages of unused chunks are returned to the system (`chunk`). The
//! [`huge_pages`](crate::huge_pages) rule decides which kind of pages they are. Under Miri the file
//! is plain heap memory, under loom a model. The stack creates it; both ends hold a [`Memory`],
//! which is a cheap handle.

#[cfg(not(loom))]
mod mapped_unsafe;
#[cfg(loom)]
mod model_unsafe;

#[cfg(not(loom))]
pub use mapped_unsafe::Memory;
#[cfg(loom)]
pub use model_unsafe::Memory;

use core::fmt;

use crate::chunk_format::{ChunkClass, ChunkId, HEADER_BYTES, LARGE_BYTES, SMALL_BYTES};
use crate::huge_pages::PageSource;
use crate::limits::{CHUNKS_MAX, SOCKETS_MAX};
use crate::socket_block::{SOCKET_BLOCK_BYTES, SocketBlock, SocketId};

/// Sizes of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextLimits {
    /// Sockets at once.
    pub sockets_max: u32,
    /// Chunks of 256 bytes.
    pub small_chunks: u32,
    /// Chunks of 4 KiB.
    pub large_chunks: u32,
}

impl Default for ContextLimits {
    fn default() -> Self {
        Self {
            sockets_max: 1 << 16,
            small_chunks: 1 << 17,
            large_chunks: 1 << 15,
        }
    }
}

/// The reason why a memory file could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryError {
    /// A limit is zero, above its own limit, or the sum exceeds the address space.
    Limits,
    /// The kernel's error when it was to create the memfd.
    File(rustix::io::Errno),
    /// The kernel's error when it was to map the memfd.
    Map(rustix::io::Errno),
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limits => f.write_str("context limits are zero or too large"),
            Self::File(errno) => write!(f, "memory file: {errno}"),
            Self::Map(errno) => write!(f, "mapping the memory file: {errno}"),
        }
    }
}

impl std::error::Error for MemoryError {}

impl Memory {
    /// Makes the memory file of a context, on pages by the source's rule.
    pub(crate) fn create(
        limits: &ContextLimits,
        source: &mut PageSource,
    ) -> Result<Self, MemoryError> {
        Self::with_layout(&Layout::new(limits)?, source)
    }
}

/// Byte offsets in the file.
#[cfg_attr(loom, allow(dead_code))]
struct Layout {
    blocks: u32,
    small_chunks: u32,
    large_chunks: u32,
    /// Offset of the headers of large chunks.
    headers_offset: usize,
    small_offset: usize,
    large_offset: usize,
    bytes: usize,
}

const PAGE_BYTES: usize = 4096;

impl Layout {
    fn new(limits: &ContextLimits) -> Result<Self, MemoryError> {
        let in_limits = |n: u32, max: u32| n != 0 && n <= max;
        if !in_limits(limits.sockets_max, SOCKETS_MAX)
            || !in_limits(limits.small_chunks, CHUNKS_MAX)
            || !in_limits(limits.large_chunks, CHUNKS_MAX)
        {
            return Err(MemoryError::Limits);
        }
        let place = |start: usize, count: u32, each: usize| -> Option<usize> {
            (count as usize)
                .checked_mul(each)?
                .checked_add(start)?
                .checked_next_multiple_of(PAGE_BYTES)
        };
        let headers_offset =
            place(0, limits.sockets_max, SOCKET_BLOCK_BYTES).ok_or(MemoryError::Limits)?;
        let small_offset = place(headers_offset, limits.large_chunks, HEADER_BYTES as usize)
            .ok_or(MemoryError::Limits)?;
        let large_offset = place(small_offset, limits.small_chunks, SMALL_BYTES as usize)
            .ok_or(MemoryError::Limits)?;
        let bytes = place(large_offset, limits.large_chunks, LARGE_BYTES as usize)
            .filter(|bytes| isize::try_from(*bytes).is_ok())
            .ok_or(MemoryError::Limits)?;
        Ok(Self {
            blocks: limits.sockets_max,
            small_chunks: limits.small_chunks,
            large_chunks: limits.large_chunks,
            headers_offset,
            small_offset,
            large_offset,
            bytes,
        })
    }
}

impl Memory {
    /// The block that `id` names; `None` if that use of the block has ended.
    #[inline]
    pub fn resolve(&self, id: SocketId) -> Option<&SocketBlock> {
        self.block(id.index)
            .filter(|block| block.generation() == id.generation)
    }

    /// A chunk id read from shared memory: `None` if it is zero or names no
    /// chunk of this file.
    #[inline]
    pub(crate) fn checked(&self, word: u32) -> Option<ChunkId> {
        let id = ChunkId::from_word(word)?;
        (id.index() < self.chunks(id.class())).then_some(id)
    }

    /// The chunk after this one in its stream.
    #[inline]
    pub(crate) fn next(&self, chunk: ChunkId) -> Option<ChunkId> {
        self.checked(self.header(chunk).next_word())
    }

    /// Chunks of this class in all.
    #[inline]
    pub fn chunks(&self, class: ChunkClass) -> u32 {
        match class {
            ChunkClass::Small => self.small_chunks(),
            ChunkClass::Large => self.large_chunks(),
        }
    }
}
