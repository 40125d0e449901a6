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
        let waiting = self.waiting(block);
        let space = block.tx_limit().saturating_sub(waiting);
        let n = src.len().min(space as usize);
        if n == 0 {
            return 0;
        }
        self.open(block);
        let mut sink = Sink {
            memory,
            block,
            magazine,
            waiting,
            written: 0,
            to_come: n as u32,
        };
        self.append(&mut sink, RawSlice::from(&src[..n]));
        let written = sink.written;
        self.publish(block, written);
        written as usize
    }

    /// Writes several slices in turn and publishes once.
    pub fn write_vectored(
        &mut self,
        memory: &Memory,
        block: &SocketBlock,
        magazine: &mut Magazine,
        slices: &[IoSlice<'_>],
    ) -> usize {
        let waiting = self.waiting(block);
        let space = block.tx_limit().saturating_sub(waiting) as usize;
        let total = slices
            .iter()
            .fold(0usize, |total, slice| total.saturating_add(slice.len()));
        let n = total.min(space);
        if n == 0 {
            return 0;
        }
        self.open(block);
        let mut sink = Sink {
            memory,
            block,
            magazine,
            waiting,
            written: 0,
            to_come: n as u32,
        };
        for slice in slices {
            let len = slice.len().min(sink.to_come as usize);
            self.append(&mut sink, RawSlice::from(&slice[..len]));
        }
        let written = sink.written;
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

    /// Appends as much of `src` as the magazine allows.
    #[inline(always)]
    fn append(&mut self, sink: &mut Sink<'_>, mut src: RawSlice<'_>) {
        while !src.is_empty() {
            let Some((chunk, filled)) = self.room(sink) else {
                break;
            };
            let room = chunk.data_bytes() - filled;
            let (piece, rest) = src.split_at(room as usize);
            let len = piece.len() as u32;
            sink.memory.copy_in(chunk, filled, piece);
            self.filled += len;
            sink.written += len;
            sink.to_come -= len;
            src = rest;
        }
    }

    /// A chunk with room, and how far it is filled.
    #[inline(always)]
    fn room(&mut self, sink: &mut Sink<'_>) -> Option<(ChunkId, u32)> {
        match self.chunk {
            Some(chunk) if self.filled < chunk.data_bytes() => Some((chunk, self.filled)),
            chunk => self.extend(sink, chunk),
        }
    }

    /// A new chunk behind `last`, or at the start of a new chain.
    fn extend(&mut self, sink: &mut Sink<'_>, last: Option<ChunkId>) -> Option<(ChunkId, u32)> {
        let class = ChunkClass::for_need(sink.to_come, sink.waiting + sink.written);
        let chunk = sink.magazine.take(class)?;
        let start = self.tail.wrapping_add(sink.written);
        sink.memory.header(chunk).begin(start, chunk.data_bytes());
        match last {
            Some(last) => sink.memory.header(last).set_next(chunk),
            None => {
                self.restarts = self.restarts.wrapping_add(1);
                let word = restart_word(chunk, self.restarts);
                // Release: the stack may see the restart before the tail, and then reads the
                // chunk's header to learn where the previous chain ended.
                sink.block.app.tx_restart.store(word, Ordering::Release);
            }
        }
        self.chunk = Some(chunk);
        self.filled = 0;
        Some((chunk, 0))
    }
}

/// One write in progress: its destination and its counts of bytes.
struct Sink<'a> {
    memory: &'a Memory,
    block: &'a SocketBlock,
    magazine: &'a mut Magazine,
    /// Bytes of earlier writes that were unacknowledged when this write began.
    waiting: u32,
    /// Bytes of this write that are in place.
    written: u32,
    /// Bytes of this write still to be placed.
    to_come: u32,
}
