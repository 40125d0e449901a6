//! The free chunks of one class, and the return of unused pages to the system.
//!
//! ```text
//!   in use ──give──▶ ready (stack) ──a round──▶ resting (set) ──the next round──▶ returned (set)
//!      ▲               │ pop                       │ ready is empty                 │ resting too
//!      └───────────────┴───────────────────────────┴────────────────────────────────┘
//! ```
//!
//! Taking and giving touch `ready` alone. It is a stack, so that chunks still in the caches are
//! taken first, and nothing is counted there. A round moves the chunks of `ready` to `resting`, and
//! they come back only when `ready` is empty. Chunks that still rest when the next round begins
//! were not needed in between: pages whose chunks all rest are returned. Chunks that were never
//! used are counted, not listed, so that a large pool costs nothing until it is used. The lists lie
//! in the stack's own memory, never in the pages that are returned.

use super::index_set::IndexSet;
use super::{ChunkClass, ChunkId};
use crate::chunk_format::Units;
use crate::limits::{
    READY_CHUNKS_KEPT, ROUND_PAGES_PER_STEP, ROUND_SORTED_PER_STEP, ROUND_UNITS_PER_STEP,
};
use crate::memory::Memory;

/// Chunks that move to `ready` at once when it is empty.
const TAKEN_AT_ONCE: u32 = 16;

/// The next step of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Round {
    Over,
    /// Returns pages of resting chunks, from this chunk on.
    Returning(u32),
    /// Puts the ready chunks aside.
    Sorting,
}

/// The free chunks of one class; the module's documentation describes the lists.
pub(super) struct FreeList {
    class: ChunkClass,
    ready: Vec<u32>,
    /// Free chunks that are not in `ready`.
    apart: u32,
    fresh_next: u32,
    total: u32,
    /// Chunks that were ready when the round began, on their way to `resting`.
    sorting: Vec<u32>,
    resting: IndexSet,
    returned: IndexSet,
    round: Round,
    /// A chunk came to `resting` since the last round looked for whole pages there.
    has_rested: bool,
    units: Units,
    /// For each chunk, whether it is in use; catches a double free where it happens.
    #[cfg(debug_assertions)]
    out: Vec<bool>,
}

impl FreeList {
    pub fn new(class: ChunkClass, memory: &Memory) -> Self {
        let total = memory.chunks(class);
        Self {
            class,
            ready: Vec::with_capacity(total as usize),
            apart: total,
            fresh_next: 0,
            total,
            sorting: Vec::with_capacity(total as usize),
            resting: IndexSet::new(total),
            returned: IndexSet::new(total),
            round: Round::Over,
            has_rested: false,
            units: memory.units(class),
            #[cfg(debug_assertions)]
            out: vec![false; total as usize],
        }
    }

    #[inline]
    pub fn take(&mut self) -> Option<ChunkId> {
        let index = match self.ready.pop() {
            Some(index) => index,
            None => self.take_apart()?,
        };
        #[cfg(debug_assertions)]
        {
            debug_assert!(!self.out[index as usize], "chunk taken twice");
            self.out[index as usize] = true;
        }
        Some(ChunkId::new(self.class, index))
    }

    /// A chunk from outside `ready`. Chunks whose pages are still present come first.
    #[inline(never)]
    fn take_apart(&mut self) -> Option<u32> {
        if let Some(index) = self.sorting.pop() {
            self.apart -= 1;
            return Some(index);
        }
        let ready = &mut self.ready;
        for set in [&mut self.resting, &mut self.returned] {
            let taken = set.take_some(TAKEN_AT_ONCE, |index| ready.push(index));
            self.apart -= taken;
            if taken > 0 {
                return ready.pop();
            }
        }
        if self.fresh_next == self.total {
            return None;
        }
        self.fresh_next += 1;
        self.apart -= 1;
        Some(self.fresh_next - 1)
    }

    #[inline]
    pub fn give(&mut self, id: ChunkId) {
        #[cfg(debug_assertions)]
        {
            debug_assert!(self.out[id.index() as usize], "chunk freed twice");
            self.out[id.index() as usize] = false;
        }
        // The vector never grows: its capacity is the number of all chunks.
        self.ready.push(id.index());
    }

    #[inline]
    pub fn free(&self) -> u32 {
        self.ready.len() as u32 + self.apart
    }

    /// True if rounds would return pages, provided that no chunk is taken meanwhile.
    pub fn has_unused(&self) -> bool {
        let is_due = self.has_rested || self.ready.len() > READY_CHUNKS_KEPT;
        self.units.chunks > 0 && (is_due || self.round != Round::Over)
    }

    pub fn begin_round(&mut self) {
        if self.has_unused() && self.round == Round::Over {
            self.round = Round::Returning(self.units.first);
        }
    }

    /// Runs a part of the round. Returns the bytes that went back to the system; `None`: the round
    /// is over.
    pub fn go_round(&mut self, memory: &Memory) -> Option<u64> {
        match self.round {
            Round::Over => None,
            Round::Returning(from) => {
                let (next, bytes) = self.return_some(from, memory);
                self.round = Round::Returning(next);
                if self.units.chunks == 0 {
                    self.round = Round::Over;
                } else if next == self.total || self.resting.next_word(next).is_none() {
                    self.put_aside();
                }
                Some(bytes)
            }
            Round::Sorting => {
                self.sort_some();
                Some(0)
            }
        }
    }

    /// Returns pages whose chunks all rest, from chunk `from` on. Gives the chunk to go on from,
    /// and the bytes returned.
    fn return_some(&mut self, from: u32, memory: &Memory) -> (u32, u64) {
        let Units { chunks, pages, .. } = self.units;
        let (mut at, mut bytes, mut left) = (from, 0, ROUND_PAGES_PER_STEP);
        let mut run = None;
        for _ in 0..ROUND_UNITS_PER_STEP {
            // `chunks` is 0 after the kernel has refused.
            if left == 0 || at + chunks > self.total || self.units.chunks == 0 {
                break;
            }
            if self.resting.has_all(at, chunks) {
                self.resting.remove_all(at, chunks);
                self.returned.insert_all(at, chunks);
                run.get_or_insert(at);
                left = left.saturating_sub(pages);
            } else if let Some(start) = run.take() {
                bytes += self.return_run(memory, start, at);
            }
            at += chunks;
        }
        if let Some(start) = run {
            bytes += self.return_run(memory, start, at);
        }
        let is_end = at + chunks > self.total;
        (if is_end { self.total } else { at }, bytes)
    }

    /// Returns the pages of the chunks from `start` to `end`.
    fn return_run(&mut self, memory: &Memory, start: u32, end: u32) -> u64 {
        let bytes = memory.return_pages(self.class, start, end - start);
        if bytes == 0 {
            // The kernel cannot punch holes in this file, so no further attempt is made.
            self.units.chunks = 0;
        }
        bytes
    }

    /// Moves the ready chunks aside, except those used last.
    fn put_aside(&mut self) {
        self.has_rested = false;
        self.round = Round::Sorting;
        // `sorting` is empty: the last round has ended.
        let kept = self.ready.len().saturating_sub(READY_CHUNKS_KEPT);
        self.sorting.extend_from_slice(&self.ready[kept..]);
        self.ready.truncate(kept);
        core::mem::swap(&mut self.ready, &mut self.sorting);
        self.apart += self.sorting.len() as u32;
    }

    fn sort_some(&mut self) {
        for _ in 0..ROUND_SORTED_PER_STEP {
            let Some(index) = self.sorting.pop() else {
                self.round = Round::Over;
                return;
            };
            self.resting.insert(index);
            self.has_rested = true;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
