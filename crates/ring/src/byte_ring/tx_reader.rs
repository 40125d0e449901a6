//! The stack's end of the send stream: copies bytes out for transmission and retransmission, and
//! frees what the peer has acknowledged.

use super::restart_parts;
use crate::checksum;
use crate::chunk::{ChunkId, ChunkPool};
use crate::limits::AHEAD_BYTES_MIN;
use crate::memory::Memory;
use crate::prefetch::Ahead;
use crate::raw::RawSliceMut;
use crate::socket_block::SocketBlock;
use crate::sync::Ordering;

/// The stack's end of a send stream. See [`byte_ring`](super).
#[derive(Debug, Default)]
pub struct TxReader {
    /// Position of the first byte not acknowledged; the block's `tx_una`.
    una: u32,
    /// Position after the last written byte that the stack knows of.
    tail: u32,
    /// Oldest chunk of the chain; holds `una` or ends there.
    first: Option<ChunkId>,
    /// The chunk of the last copy, where the next search starts.
    cursor: Option<ChunkId>,
    /// The chain's last chunk, once the stack has taken it out of `tx_open`. The application
    /// appends no more to it; the next write starts a new chain.
    closed: Option<ChunkId>,
    /// Counter of the last restart seen.
    restarts: u32,
}

impl TxReader {
    /// The reader of a block that has just been opened.
    pub const fn new() -> Self {
        Self {
            una: 0,
            tail: 0,
            first: None,
            cursor: None,
            closed: None,
            restarts: 0,
        }
    }

    /// The whole state of a stream that holds no chunk (una, tail and restarts); `None` if it holds
    /// one.
    #[inline]
    pub fn at_rest(&self) -> Option<[u32; 3]> {
        let is_empty = self.first.is_none() && self.cursor.is_none() && self.closed.is_none();
        is_empty.then_some([self.una, self.tail, self.restarts])
    }

    /// The stream whose state [`at_rest`](Self::at_rest) returned.
    #[inline]
    pub const fn resting([una, tail, restarts]: [u32; 3]) -> Self {
        Self {
            una,
            tail,
            restarts,
            ..Self::new()
        }
    }

    /// The offset from the first unacknowledged byte to a position of the writer
    /// ([`TxWriter::tail`](super::TxWriter::tail)). An earlier position wraps to a large offset.
    #[inline]
    pub fn offset_of(&self, position: u32) -> u32 {
        position.wrapping_sub(self.una)
    }

    /// Bytes written and not acknowledged, sent or not.
    #[inline]
    pub fn buffered(&self, block: &SocketBlock) -> u32 {
        block
            .app
            .tx_tail
            .load(Ordering::Acquire)
            .wrapping_sub(self.una)
    }

    /// Publishes that `n` bytes past the first unacknowledged one have been sent.
    #[inline]
    pub fn publish_sent(&self, block: &SocketBlock, n: u32) {
        let sent = self.una.wrapping_add(n);
        block.stack.tx_sent.store(sent, Ordering::Release);
    }

    /// Copies `dst.len()` bytes that start `offset` bytes past the first unacknowledged one;
    /// returns their partial checksum (see [`checksum`]). All of them must be
    /// [`buffered`](Self::buffered); a missing one leaves `dst` unchanged there. A copy in sequence
    /// takes constant time; a step back searches from the first unacknowledged byte.
    #[inline(always)]
    pub fn copy_out(
        &mut self,
        memory: &Memory,
        block: &SocketBlock,
        offset: u32,
        mut dst: RawSliceMut<'_>,
    ) -> u32 {
        let Some((mut chunk, mut at, mut len)) = self.locate(memory, block, offset, dst.len())
        else {
            return 0;
        };
        let mut sum = 0;
        let mut done = 0;
        loop {
            let (piece, rest) = dst.split_at(len as usize);
            let piece_len = piece.len() as u32;
            let ahead = ahead_of(memory, chunk, at + piece_len, piece_len);
            let piece_sum = memory.copy_out_sum(chunk, at, piece, ahead);
            sum = checksum::combine(sum, piece_sum, done & 1 != 0);
            done += piece_len;
            dst = rest;
            if dst.is_empty() {
                break;
            }
            let Some(next) = memory.next(chunk) else {
                debug_assert!(false, "buffered bytes without a chunk");
                break;
            };
            chunk = next;
            at = 0;
            len = memory.header(chunk).len();
        }
        self.cursor = Some(chunk);
        sum
    }

    /// Takes the peer's acknowledgment of `n` more bytes: frees the chunks before them, the open
    /// chunk too when nothing is left, and publishes the room.
    #[inline]
    pub fn acknowledge(&mut self, pool: &mut ChunkPool, block: &SocketBlock, n: u32) {
        if n > self.tail.wrapping_sub(self.una) {
            self.refresh(pool.memory(), block);
            debug_assert!(n <= self.tail.wrapping_sub(self.una));
        }
        self.una = self
            .una
            .wrapping_add(n.min(self.tail.wrapping_sub(self.una)));
        block.stack.tx_una.store(self.una, Ordering::Release);
        match self.is_drained() {
            true => self.take_open(pool, block),
            false => self.free_passed(pool),
        }
    }

    /// Frees the last chunk of a drained stream if [`acknowledge`](Self::acknowledge) could not,
    /// because the application was in the middle of a write. Called when the application says that
    /// it wrote.
    #[inline]
    pub fn reclaim(&mut self, pool: &mut ChunkPool, block: &SocketBlock) {
        if self.is_drained() {
            self.take_open(pool, block);
        }
    }

    /// All that we know of is acknowledged, and a chunk is left.
    #[inline(always)]
    fn is_drained(&self) -> bool {
        self.una == self.tail && self.first.is_some()
    }

    /// Frees everything. The application end must be gone: it has closed and touches the stream no
    /// more.
    pub fn release_all(&mut self, pool: &mut ChunkPool, block: &SocketBlock) {
        self.refresh(pool.memory(), block);
        let mut next = self.first;
        while let Some(chunk) = next {
            next = pool.memory().next(chunk);
            pool.give(chunk);
        }
        block.app.tx_open.store(0, Ordering::Relaxed);
        self.una = self.tail;
        self.first = None;
        self.cursor = None;
        self.closed = None;
    }

    /// The chunk of the byte at `offset`, its offset in the chunk, and the bytes from there to the
    /// chunk's end. `None` if `len` bytes from `offset` on were not written.
    #[inline(always)]
    fn locate(
        &mut self,
        memory: &Memory,
        block: &SocketBlock,
        offset: u32,
        len: usize,
    ) -> Option<(ChunkId, u32, u32)> {
        let end = (offset as usize).saturating_add(len);
        if end > self.tail.wrapping_sub(self.una) as usize {
            self.refresh(memory, block);
            if end > self.tail.wrapping_sub(self.una) as usize {
                debug_assert!(false, "asked for bytes that were never written");
                return None;
            }
        }
        if len == 0 {
            return None;
        }
        let position = self.una.wrapping_add(offset);
        let mut chunk = self.cursor?;
        let mut at = position.wrapping_sub(memory.header(chunk).start());
        if (at as i32) < 0 {
            chunk = self.first?;
            at = position.wrapping_sub(memory.header(chunk).start());
        }
        loop {
            let chunk_len = memory.header(chunk).len();
            if at < chunk_len {
                return Some((chunk, at, chunk_len - at));
            }
            at -= chunk_len;
            chunk = memory.next(chunk)?;
        }
    }

    /// Learns the tail and whether a new chain was begun since the last call.
    #[inline]
    fn refresh(&mut self, memory: &Memory, block: &SocketBlock) {
        let tail = block.app.tx_tail.load(Ordering::Acquire);
        let word = block.app.tx_restart.load(Ordering::Acquire);
        self.tail = tail;
        let (chunk, restarts) = restart_parts(word);
        if restarts == self.restarts {
            return;
        }
        self.restarts = restarts;
        let Some(chunk) = memory.checked(chunk) else {
            debug_assert!(false, "restart without a chunk");
            return;
        };
        match self.closed.take() {
            // Bytes before the restart are not acknowledged yet: the closed chunk ends where the
            // new chain begins.
            Some(closed) => {
                let header = memory.header(closed);
                header.set_len(memory.header(chunk).start().wrapping_sub(header.start()));
                header.set_next(chunk);
            }
            None => {
                debug_assert!(self.first.is_none(), "a restart while a chain is open");
                self.first = Some(chunk);
                self.cursor = Some(chunk);
            }
        }
    }

    /// Frees chunks that end at or before `una`, except the last one known: a link is in place only
    /// if there are bytes after it.
    #[inline]
    fn free_passed(&mut self, pool: &mut ChunkPool) {
        while let Some(first) = self.first {
            let header = pool.memory().header(first);
            let (start, len) = (header.start(), header.len());
            if self.una.wrapping_sub(start) < len || self.tail.wrapping_sub(start) <= len {
                return;
            }
            let Some(next) = pool.memory().next(first) else {
                debug_assert!(false, "bytes after a chunk that has no next");
                return;
            };
            if self.cursor == Some(first) {
                self.cursor = Some(next);
            }
            pool.give(first);
            self.first = Some(next);
        }
    }

    /// Called when all known bytes are acknowledged: takes the chunk that the application would
    /// append to, and frees it unless bytes were added meanwhile.
    fn take_open(&mut self, pool: &mut ChunkPool, block: &SocketBlock) {
        // An optimization: a chunk that has more to send is not taken, and so not closed.
        self.refresh(pool.memory(), block);
        if self.una != self.tail {
            return self.free_passed(pool);
        }
        if self.closed.is_none() {
            let word = block.app.tx_open.load(Ordering::Relaxed);
            let Some(open) = pool.memory().checked(word) else {
                // The writer works on the chunk and will post a job.
                return self.free_passed(pool);
            };
            // Acquire: see what the writer stored in the chunk. Release: the writer's next chain
            // comes after this.
            let taken =
                block
                    .app
                    .tx_open
                    .compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_err() {
                return self.free_passed(pool);
            }
            self.closed = Some(open);
            self.refresh(pool.memory(), block);
        }
        self.free_drained(pool);
    }

    /// Frees the chain up to the taken chunk, if no byte was added.
    fn free_drained(&mut self, pool: &mut ChunkPool) {
        let Some(closed) = self.closed else {
            // A new chain has been linked behind the closed chunk already.
            return self.free_passed(pool);
        };
        if self.una != self.tail {
            return self.free_passed(pool);
        }
        while let Some(first) = self.first {
            self.first = match first == closed {
                true => None,
                false => pool.memory().next(first),
            };
            pool.give(first);
        }
        self.cursor = None;
        self.closed = None;
    }
}

/// Memory that the next copy will read, for prefetching. The next copy probably has as many bytes,
/// `step`, as this one, and starts after the first `done` of this chunk, or in the next chunk if
/// they do not fit. Small pieces are not worth a prefetch.
#[inline]
fn ahead_of(memory: &Memory, chunk: ChunkId, done: u32, step: u32) -> Ahead {
    if step < AHEAD_BYTES_MIN {
        return Ahead::NOTHING;
    }
    if done + step <= chunk.data_bytes() {
        return memory.ahead(chunk, done);
    }
    match memory.next(chunk) {
        Some(next) => memory.ahead(next, 0),
        None => Ahead::NOTHING,
    }
}
