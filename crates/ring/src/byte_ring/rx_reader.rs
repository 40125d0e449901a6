//! The application's end of the receive stream.

use super::restart_parts;
use crate::chunk::ChunkId;
use crate::chunk_format::Front;
use crate::memory::Memory;
use crate::raw::RawSliceMut;
use crate::socket_block::SocketBlock;
use crate::sync::Ordering;

/// The application's end of a receive stream. See [`byte_ring`](super).
#[derive(Debug, Default)]
pub struct RxReader {
    /// Position of the next byte to read; the block's `rx_head`.
    head: u32,
    at: Position,
    /// Counter of the last restart that this reader has seen.
    restarts: u32,
}

/// Place of the next byte: at `offset` in `chunk`, or at the start of the next chunk if `offset` is
/// the end of this one.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    chunk: Option<ChunkId>,
    offset: u32,
}

impl Position {
    /// The chunk that holds the next byte, the offset in it, and the bytes from there to its end.
    /// There must be a byte to read.
    #[inline(always)]
    fn settle(&mut self, memory: &Memory) -> Option<(ChunkId, u32, u32)> {
        let mut chunk = self.chunk?;
        if self.offset == chunk.data_bytes() {
            chunk = memory.next(chunk)?;
            self.chunk = Some(chunk);
            self.offset = 0;
        }
        Some((chunk, self.offset, chunk.data_bytes() - self.offset))
    }

    /// Copies out `dst.len()` bytes, all published, and moves past them.
    /// Returns the bytes copied: fewer only if the chain is broken.
    #[inline(always)]
    fn copy_out(&mut self, memory: &Memory, mut dst: RawSliceMut<'_>) -> u32 {
        let mut copied = 0;
        while !dst.is_empty() {
            let Some((chunk, offset, room)) = self.settle(memory) else {
                debug_assert!(false, "published bytes without a chunk");
                break;
            };
            let (piece, rest) = dst.split_at(room as usize);
            let len = piece.len() as u32;
            memory.copy_out(chunk, offset, piece);
            self.offset += len;
            copied += len;
            dst = rest;
        }
        copied
    }

    /// Moves past `n` published bytes; returns by how many it moved.
    #[inline]
    fn skip(&mut self, memory: &Memory, n: u32) -> u32 {
        let mut left = n;
        while left != 0 {
            let Some((_, _, room)) = self.settle(memory) else {
                debug_assert!(false, "published bytes without a chunk");
                break;
            };
            let step = room.min(left);
            self.offset += step;
            left -= step;
        }
        n - left
    }
}

impl RxReader {
    /// The reader of a block that has just been opened.
    pub const fn new() -> Self {
        Self {
            head: 0,
            at: Position {
                chunk: None,
                offset: 0,
            },
            restarts: 0,
        }
    }

    /// Position after the last byte read, modulo 2^32.
    #[inline]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Bytes that can be read now.
    #[inline]
    pub fn readable(&self, block: &SocketBlock) -> u32 {
        block
            .stack
            .rx_tail
            .load(Ordering::Acquire)
            .wrapping_sub(self.head)
    }

    /// Reads into `dst`; returns the bytes read, 0 if there are none.
    #[inline]
    pub fn read(&mut self, memory: &Memory, block: &SocketBlock, dst: &mut [u8]) -> usize {
        let n = (self.ready(memory, block) as usize).min(dst.len());
        if n == 0 {
            return 0;
        }
        let copied = self.at.copy_out(memory, RawSliceMut::from(&mut dst[..n]));
        self.publish(block, copied);
        copied as usize
    }

    /// Copies the bytes that [`read`](Self::read) would, and takes none.
    #[inline]
    pub fn peek(&mut self, memory: &Memory, block: &SocketBlock, dst: &mut [u8]) -> usize {
        self.peek_at(memory, block, 0, dst)
    }

    /// Copies from `offset` bytes past the next byte, and takes nothing; for
    /// peeking into several slices.
    pub fn peek_at(
        &mut self,
        memory: &Memory,
        block: &SocketBlock,
        offset: u32,
        dst: &mut [u8],
    ) -> usize {
        let ready = self.ready(memory, block).saturating_sub(offset);
        let n = (ready as usize).min(dst.len());
        if n == 0 {
            return 0;
        }
        let mut at = self.at;
        at.skip(memory, offset);
        at.copy_out(memory, RawSliceMut::from(&mut dst[..n])) as usize
    }

    /// The next readable bytes, as far as they lie in one chunk, for
    /// [`Memory::lend`](crate::memory::Memory::lend). Takes nothing. `None` without bytes.
    #[inline]
    pub fn front(&mut self, memory: &Memory, block: &SocketBlock) -> Option<Front> {
        let ready = self.ready(memory, block);
        if ready == 0 {
            return None;
        }
        let (chunk, offset, room) = self.at.settle(memory)?;
        Some(Front {
            chunk,
            offset,
            len: room.min(ready),
        })
    }

    /// Drops up to `n` readable bytes; returns how many.
    #[inline]
    pub fn discard(&mut self, memory: &Memory, block: &SocketBlock, n: u32) -> u32 {
        let n = self.ready(memory, block).min(n);
        if n == 0 {
            return 0;
        }
        let dropped = self.at.skip(memory, n);
        self.publish(block, dropped);
        dropped
    }

    /// Readable bytes. If there are some, the reader then stands in the chain that holds them.
    #[inline(always)]
    fn ready(&mut self, memory: &Memory, block: &SocketBlock) -> u32 {
        let ready = self.readable(block);
        if ready == 0 {
            return 0;
        }
        // Relaxed: the tail, acquired before, orders this load, and unread bytes forbid a later
        // restart.
        let (chunk, restarts) = restart_parts(block.stack.rx_restart.load(Ordering::Relaxed));
        if restarts != self.restarts {
            self.restarts = restarts;
            self.at = Position {
                chunk: memory.checked(chunk),
                offset: 0,
            };
        }
        ready
    }

    #[inline(always)]
    fn publish(&mut self, block: &SocketBlock, n: u32) {
        self.head = self.head.wrapping_add(n);
        block.app.rx_head.store(self.head, Ordering::Release);
    }
}
