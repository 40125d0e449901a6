//! The application's end of the send stream.

use std::io::IoSlice;

use super::restart_word;
use crate::chunk::{ChunkClass, ChunkId, Magazine};
use crate::memory::Memory;
use crate::raw::RawSlice;
use crate::socket_block::SocketBlock;
use crate::sync::Ordering;

/// The application's end of a send stream. See [`byte_ring`](super).
#[derive(Debug, Default)]
pub struct TxWriter {
    /// Position after the last byte written; the block's `tx_tail`.
    tail: u32,
    /// The chunk that the last byte went to. The writer may append to it only if `tx_open` still
    /// names it when taken.
    chunk: Option<ChunkId>,
    /// Payload bytes of that chunk that are filled.
    filled: u32,
    /// Number of restarts so far.
    restarts: u32,
}

impl TxWriter {
    /// The writer of a block that has just been opened.
    pub const fn new() -> Self {
        Self {
            tail: 0,
            chunk: None,
            filled: 0,
            restarts: 0,
        }
    }

    /// Position after the last byte written, modulo 2^32.
    #[inline]
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// Bytes that the send buffer's limit admits now. (The magazine may have room for fewer.)
    #[inline]
    pub fn space(&self, block: &SocketBlock) -> u32 {
        block.tx_limit().saturating_sub(self.waiting(block))
    }

    /// True if a writer that waits for room may go on, by Linux's rule for waking it.
    #[inline]
    pub fn is_writable(&self, block: &SocketBlock) -> bool {
        block.is_writable_at(self.waiting(block)) && self.space(block) > 0
    }

    /// Bytes written and not yet acknowledged by the peer.
    #[inline]
    pub fn waiting(&self, block: &SocketBlock) -> u32 {
        self.tail
            .wrapping_sub(block.stack.tx_una.load(Ordering::Acquire))
    }

    /// Writes from the start of `src` and publishes. Returns the bytes written, fewer than `src`
    /// when the limit is reached or the magazine is empty.
    #[inline]
    pub fn write(
        &mut self,
        memory: &Memory,
        block: &SocketBlock,
        magazine: &mut Magazine,
        src: &[u8],
    ) -> usize {
        let piece = core::iter::once(RawSlice::from(src));
        self.append(memory, block, magazine, src.len(), piece)
    }

    /// Writes several slices in turn and publishes once.
    pub fn write_vectored(
        &mut self,
        memory: &Memory,
        block: &SocketBlock,
        magazine: &mut Magazine,
        slices: &[IoSlice<'_>],
    ) -> usize {
        let total = slices
            .iter()
            .fold(0usize, |total, slice| total.saturating_add(slice.len()));
        let pieces = slices.iter().map(|slice| RawSlice::from(&**slice));
        self.append(memory, block, magazine, total, pieces)
    }

    /// Appends `pieces`, `total` bytes together, as far as the limit and the magazine allow, and
    /// publishes them at once. Without a chunk for the next byte nothing behind that byte is
    /// written, although the stack may bring a chunk meanwhile.
    #[inline(always)]
    fn append<'a>(
        &mut self,
        memory: &Memory,
        block: &SocketBlock,
        magazine: &mut Magazine,
        total: usize,
        pieces: impl Iterator<Item = RawSlice<'a>>,
    ) -> usize {
        let waiting = self.waiting(block);
        let space = block.tx_limit().saturating_sub(waiting);
        let n = total.min(space as usize) as u32;
        if n == 0 {
            return 0;
        }
        self.open(block);
        let mut written = 0;
        'pieces: for piece in pieces {
            let (mut rest, _) = piece.split_at((n - written) as usize);
            while !rest.is_empty() {
                let chunk = match self.chunk {
                    Some(last) if self.filled < last.data_bytes() => last,
                    _ => {
                        let class = ChunkClass::for_need(n - written, waiting + written);
                        let Some(new) = magazine.take(class) else {
                            break 'pieces;
                        };
                        self.extend(memory, block, new, self.tail.wrapping_add(written));
                        new
                    }
                };
                let (part, behind) = rest.split_at((chunk.data_bytes() - self.filled) as usize);
                memory.copy_in(chunk, self.filled, part);
                self.filled += part.len() as u32;
                written += part.len() as u32;
                rest = behind;
            }
        }
        self.publish(block, written);
        written as usize
    }

    /// Takes the open chunk if the stack has not taken it. From here to `publish` the stack leaves
    /// the chunk alone.
    #[inline(always)]
    fn open(&mut self, block: &SocketBlock) {
        // The word is zero after the block was opened, and once the stack has taken the chunk. A
        // swap is not needed then, because only the writer sets the word to another value.
        if block.app.tx_open.load(Ordering::Acquire) == 0 {
            self.chunk = None;
            return;
        }
        let word = block.app.tx_open.swap(0, Ordering::Acquire);
        if word == 0 {
            self.chunk = None;
        }
        debug_assert!(word == 0 || self.chunk.is_some_and(|chunk| chunk.word() == word));
    }

    /// Publishes `n` bytes, then gives the chunk back to `tx_open`. The order matters: when the
    /// stack takes the chunk, it relies on a tail that covers all bytes in it.
    #[inline(always)]
    fn publish(&mut self, block: &SocketBlock, n: u32) {
        if n != 0 {
            self.tail = self.tail.wrapping_add(n);
            block.app.tx_tail.store(self.tail, Ordering::Release);
        }
        if let Some(chunk) = self.chunk {
            block.app.tx_open.store(chunk.word(), Ordering::Release);
        }
    }

    /// Puts a new chunk, whose bytes begin at `start`, behind the last one or at the start of a new
    /// chain.
    fn extend(&mut self, memory: &Memory, block: &SocketBlock, new: ChunkId, start: u32) {
        memory.header(new).begin(start, new.data_bytes());
        match self.chunk {
            Some(last) => memory.header(last).set_next(new),
            None => {
                self.restarts = self.restarts.wrapping_add(1);
                let word = restart_word(new, self.restarts);
                // Release: the stack may see the restart before the tail, and then reads the
                // chunk's header to learn where the previous chain ended.
                block.app.tx_restart.store(word, Ordering::Release);
            }
        }
        (self.chunk, self.filled) = (Some(new), 0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
