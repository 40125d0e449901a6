//! The stack's end of the receive stream: stores segments, also out of order,
//! publishes what is in order, frees what has been read.

use super::restart_word;
use crate::checksum;
use crate::chunk::{ChunkClass, ChunkId, ChunkPool};
use crate::memory::Memory;
use crate::prefetch::Ahead;
use crate::raw::RawSlice;
use crate::socket_block::SocketBlock;
use crate::sync::Ordering;

/// A way to copy into chunks. A trait rather than a closure, because the compiler does not inline a
/// closure that two callers share.
trait CopyIn {
    /// Copies `piece` to a place in a chunk; `done` bytes of the write came before it.
    fn copy(&mut self, memory: &Memory, to: (ChunkId, u32), piece: RawSlice<'_>, done: u32);
}

/// Copies without a sum.
struct Plain;

impl CopyIn for Plain {
    #[inline(always)]
    fn copy(&mut self, memory: &Memory, (chunk, at): (ChunkId, u32), piece: RawSlice<'_>, _: u32) {
        memory.copy_in(chunk, at, piece);
    }
}

/// Copies and sums in one pass.
struct Summing {
    /// The sum so far.
    sum: u32,
    /// The next payload, prefetched during the copy.
    ahead: Ahead,
}

impl CopyIn for Summing {
    #[inline(always)]
    fn copy(
        &mut self,
        memory: &Memory,
        (chunk, at): (ChunkId, u32),
        piece: RawSlice<'_>,
        done: u32,
    ) {
        let sum = memory.copy_in_sum(chunk, at, piece, self.ahead.past(done));
        self.sum = checksum::combine(self.sum, sum, done & 1 != 0);
    }
}

/// The stack's end of a receive stream. See [`byte_ring`](super).
#[derive(Debug, Default)]
pub struct RxWriter {
    /// Position after the last published byte; the block's `rx_tail`.
    tail: u32,
    /// Position after the furthest byte stored, published or not.
    end: u32,
    /// Oldest chunk of the chain. `None`: there is no chain, and `base`, `hint` and `last` are
    /// `None` too.
    first: Option<ChunkId>,
    /// A chunk that begins at or shortly before the tail: the place where a search starts.
    base: Option<ChunkId>,
    /// The chunk of the last write.
    hint: Option<ChunkId>,
    /// Newest chunk of the chain.
    last: Option<ChunkId>,
    /// Number of restarts so far.
    restarts: u32,
}

impl RxWriter {
    /// The writer of a block that has just been opened.
    pub const fn new() -> Self {
        Self {
            tail: 0,
            end: 0,
            first: None,
            base: None,
            hint: None,
            last: None,
            restarts: 0,
        }
    }

    /// The whole state of a stream that holds no chunk (tail and restarts); `None` if it holds one.
    #[inline]
    pub fn at_rest(&self) -> Option<[u32; 2]> {
        let is_empty = self.first.is_none() && self.end == self.tail;
        is_empty.then_some([self.tail, self.restarts])
    }

    /// The stream whose state [`at_rest`](Self::at_rest) returned.
    #[inline]
    pub const fn resting([tail, restarts]: [u32; 2]) -> Self {
        Self {
            tail,
            end: tail,
            restarts,
            ..Self::new()
        }
    }

    /// Stores all of `src` at `offset` bytes past the published tail, without
    /// publishing. Returns the bytes stored, a prefix: fewer when chunks ran
    /// out or the offset is out of reach.
    #[inline]
    pub fn write_at(
        &mut self,
        pool: &mut ChunkPool,
        block: &SocketBlock,
        offset: u32,
        src: RawSlice<'_>,
    ) -> u32 {
        self.store(pool, block, offset, src, &mut Plain)
    }

    /// Like [`write_at`](Self::write_at), and computes the partial checksum of the stored bytes
    /// (see [`checksum`]) in the same pass. The sum is meaningless if fewer bytes than `src` were
    /// stored. The bytes at `ahead`, which the caller reads next, are prefetched on the way.
    #[inline]
    pub fn write_at_sum(
        &mut self,
        pool: &mut ChunkPool,
        block: &SocketBlock,
        offset: u32,
        src: RawSlice<'_>,
        ahead: Ahead,
    ) -> (u32, u32) {
        let mut copy = Summing { sum: 0, ahead };
        let stored = self.store(pool, block, offset, src, &mut copy);
        (stored, copy.sum)
    }

    /// Publishes the next `n` stored bytes, which are in order, to the reader.
    #[inline]
    pub fn publish(&mut self, block: &SocketBlock, n: u32) {
        debug_assert!(n <= self.held(), "published bytes that were never stored");
        self.tail = self.tail.wrapping_add(n.min(self.held()));
        block.stack.rx_tail.store(self.tail, Ordering::Release);
    }

    /// Position after the last published byte, modulo 2^32.
    #[inline]
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// Bytes between the published tail and the furthest byte stored.
    #[inline]
    pub fn held(&self) -> u32 {
        self.end.wrapping_sub(self.tail)
    }

    /// Forgets the bytes stored beyond the tail: those of a segment whose fused checksum was wrong
    /// (nothing else may be held then), or out-of-order data that is given up. Chunks stay until
    /// [`reclaim`](Self::reclaim).
    #[inline]
    pub fn discard_unpublished(&mut self) {
        self.end = self.tail;
    }

    /// Forgets the bytes stored `offset` bytes past the tail and further. Frees the chunks that
    /// hold only such bytes.
    pub fn truncate(&mut self, pool: &mut ChunkPool, offset: u32) {
        if offset >= self.held() {
            return;
        }
        self.end = self.tail.wrapping_add(offset);
        let Some(base) = self.advance_base(pool) else {
            return;
        };
        // The last chunk to keep: it holds the last kept byte, or the reader may stand at its end.
        let mut kept = base;
        while let Some(next) = pool.memory().next(kept)
            && (pool.memory().header(next).start().wrapping_sub(self.end) as i32) < 0
        {
            kept = next;
        }
        let mut gone = pool.memory().next(kept);
        pool.memory().header(kept).clear_next();
        while let Some(chunk) = gone {
            gone = pool.memory().next(chunk);
            pool.give(chunk);
        }
        self.last = Some(kept);
        self.hint = Some(kept);
    }

    /// Published bytes that the reader has not taken.
    #[inline]
    pub fn unread(&self, block: &SocketBlock) -> u32 {
        self.tail
            .wrapping_sub(block.app.rx_head.load(Ordering::Acquire))
    }

    /// Frees the chunks that the reader has passed; all chunks when the reader has read everything
    /// and nothing is held out of order. Returns the bytes unread.
    #[inline]
    pub fn reclaim(&mut self, pool: &mut ChunkPool, block: &SocketBlock) -> u32 {
        let head = block.app.rx_head.load(Ordering::Acquire);
        let unread = self.tail.wrapping_sub(head);
        let Some(first) = self.first else {
            return unread;
        };
        if unread == 0 && self.held() == 0 {
            self.release_all(pool);
            return 0;
        }
        // Strictly past: a reader that stands at a chunk's end has yet to follow its link.
        let passed = head.wrapping_sub(pool.memory().header(first).start());
        if passed > first.data_bytes() {
            self.free_passed(pool, first, head);
        }
        unread
    }

    /// Frees everything: the connection is gone and so is its reader, or the
    /// reader has read all that was published.
    pub fn release_all(&mut self, pool: &mut ChunkPool) {
        let mut next = self.first;
        while let Some(chunk) = next {
            // Nearly always the chain is a single chunk, whose link need not be read.
            next = match self.last == next {
                true => None,
                false => pool.memory().next(chunk),
            };
            pool.give(chunk);
        }
        self.first = None;
        self.base = None;
        self.hint = None;
        self.last = None;
        self.end = self.tail;
    }

    /// Frees the chunks that end before `head`, from `first` on.
    fn free_passed(&mut self, pool: &mut ChunkPool, first: ChunkId, head: u32) {
        let mut chunk = first;
        while head.wrapping_sub(pool.memory().header(chunk).start()) > chunk.data_bytes() {
            let Some(next) = pool.memory().next(chunk) else {
                debug_assert!(false, "the reader is past the end of the chain");
                break;
            };
            if self.base == Some(chunk) {
                self.base = Some(next);
            }
            if self.hint == Some(chunk) {
                self.hint = Some(next);
            }
            pool.give(chunk);
            chunk = next;
        }
        self.first = Some(chunk);
    }

    /// The body of both write methods: copies each piece of `src` that falls into one chunk.
    #[inline(always)]
    fn store(
        &mut self,
        pool: &mut ChunkPool,
        block: &SocketBlock,
        offset: u32,
        src: RawSlice<'_>,
        copy: &mut impl CopyIn,
    ) -> u32 {
        let len = src.len().min(crate::limits::REACH_BYTES_MAX as usize) as u32;
        let Some((mut chunk, mut at)) = self.locate(pool, block, offset, len) else {
            return 0;
        };
        let mut done = 0;
        let mut rest = src;
        loop {
            let room = chunk.data_bytes() - at;
            let (piece, after) = rest.split_at(room.min(len - done) as usize);
            copy.copy(pool.memory(), (chunk, at), piece, done);
            done += piece.len() as u32;
            rest = after;
            if done == len {
                break;
            }
            let Some(next) = self.successor(pool, chunk, len - done) else {
                break;
            };
            chunk = next;
            at = 0;
        }
        self.hint = Some(chunk);
        let stored_end = self.tail.wrapping_add(offset).wrapping_add(done);
        if stored_end.wrapping_sub(self.tail) > self.held() {
            self.end = stored_end;
        }
        done
    }

    /// The chunk that holds the byte `offset` past the tail, and the offset in it. `len` bytes (not
    /// zero) are to be stored there.
    #[inline(always)]
    fn locate(
        &mut self,
        pool: &mut ChunkPool,
        block: &SocketBlock,
        offset: u32,
        len: u32,
    ) -> Option<(ChunkId, u32)> {
        if len == 0 || offset > crate::limits::REACH_BYTES_MAX {
            return None;
        }
        let position = self.tail.wrapping_add(offset);
        let Some(hint) = self.hint else {
            let first = self.start_chain(pool, block, offset.saturating_add(len))?;
            if offset < first.data_bytes() {
                return Some((first, offset));
            }
            return self.walk(pool, first, position, len);
        };
        let at = position.wrapping_sub(pool.memory().header(hint).start());
        // A position before the hint wraps to more than any capacity.
        if at < hint.data_bytes() {
            return Some((hint, at));
        }
        let from = if (at as i32) >= 0 {
            hint
        } else {
            self.advance_base(pool)?
        };
        self.walk(pool, from, position, len)
    }

    /// From `chunk`, which begins at or before `position`, to the chunk that holds it.
    fn walk(
        &mut self,
        pool: &mut ChunkPool,
        mut chunk: ChunkId,
        position: u32,
        len: u32,
    ) -> Option<(ChunkId, u32)> {
        loop {
            let at = position.wrapping_sub(pool.memory().header(chunk).start());
            if at < chunk.data_bytes() {
                return Some((chunk, at));
            }
            let need = (at - chunk.data_bytes()).saturating_add(len);
            chunk = self.successor(pool, chunk, need)?;
        }
    }

    /// Moves the base up to the chunk that holds the tail, or the last one.
    fn advance_base(&mut self, pool: &ChunkPool) -> Option<ChunkId> {
        let memory = pool.memory();
        let mut base = self.base?;
        while self.tail.wrapping_sub(memory.header(base).start()) >= base.data_bytes() {
            let Some(next) = memory.next(base) else { break };
            base = next;
        }
        self.base = Some(base);
        Some(base)
    }

    /// The chunk after `chunk`, made if there is none; `need` bytes are to be stored from there on.
    #[inline]
    fn successor(&mut self, pool: &mut ChunkPool, chunk: ChunkId, need: u32) -> Option<ChunkId> {
        if self.last != Some(chunk) {
            return pool.memory().next(chunk);
        }
        let memory = pool.memory();
        let first = self.first.unwrap_or(chunk);
        let start = memory
            .header(chunk)
            .start()
            .wrapping_add(chunk.data_bytes());
        let waiting = start.wrapping_sub(memory.header(first).start());
        let next = pool.take_any(ChunkClass::for_need(need, waiting))?;
        let memory = pool.memory();
        memory.header(next).begin(start, next.data_bytes());
        memory.header(chunk).set_next(next);
        self.last = Some(next);
        Some(next)
    }

    /// The first chunk of a new chain that begins at the tail; `need` bytes are to be stored.
    fn start_chain(
        &mut self,
        pool: &mut ChunkPool,
        block: &SocketBlock,
        need: u32,
    ) -> Option<ChunkId> {
        let chunk = pool.take_any(ChunkClass::for_need(need, 0))?;
        let header = pool.memory().header(chunk);
        header.begin(self.tail, chunk.data_bytes());
        self.restarts = self.restarts.wrapping_add(1);
        // Relaxed: the tail that follows publishes the word, and the reader does not look before
        // that.
        let word = restart_word(chunk, self.restarts);
        block.stack.rx_restart.store(word, Ordering::Relaxed);
        self.first = Some(chunk);
        self.base = Some(chunk);
        self.hint = Some(chunk);
        self.last = Some(chunk);
        Some(chunk)
    }
}
