//! The memory file under loom: modelled atomics, and one modelled cell per payload byte, so that
//! loom finds any byte that is written while the other side may read it. Same interface as
//! `mapped_unsafe`.

use super::{Layout, MemoryError};
use crate::checksum;
use crate::chunk_format::{ChunkClass, ChunkHeader, ChunkId, Units};
use crate::huge_pages::PageSource;
use crate::prefetch::Ahead;
use crate::raw::{RawSlice, RawSliceMut};
use crate::socket_block::SocketBlock;
use crate::sync::{Arc, UnsafeCell};

/// A handle on a context's memory file; clones name the same file.
#[derive(Clone)]
pub struct Memory {
    model: Arc<Model>,
}

struct Model {
    blocks: Vec<SocketBlock>,
    small: Vec<Chunk>,
    large: Vec<Chunk>,
}

struct Chunk {
    header: ChunkHeader,
    payload: Vec<UnsafeCell<u8>>,
}

// SAFETY: loom's cells check at run time what `Sync` promises.
unsafe impl Send for Model {}
// SAFETY: as for `Send`.
unsafe impl Sync for Model {}

fn chunks(class: ChunkClass, count: u32) -> Vec<Chunk> {
    let chunk = |_| Chunk {
        header: ChunkHeader::new(),
        payload: (0..class.data_bytes())
            .map(|_| UnsafeCell::new(0))
            .collect(),
    };
    (0..count).map(chunk).collect()
}

impl Memory {
    pub(super) fn with_layout(
        layout: &Layout,
        _source: &mut PageSource,
    ) -> Result<Self, MemoryError> {
        let model = Model {
            blocks: (0..layout.blocks).map(|_| SocketBlock::new()).collect(),
            small: chunks(ChunkClass::Small, layout.small_chunks),
            large: chunks(ChunkClass::Large, layout.large_chunks),
        };
        Ok(Self {
            model: Arc::new(model),
        })
    }

    /// The block at `index`, whichever use of it is current.
    pub fn block(&self, index: u32) -> Option<&SocketBlock> {
        self.model.blocks.get(index as usize)
    }

    /// Largest number of sockets.
    pub fn sockets_max(&self) -> u32 {
        self.model.blocks.len() as u32
    }

    pub(super) fn small_chunks(&self) -> u32 {
        self.model.small.len() as u32
    }

    pub(super) fn large_chunks(&self) -> u32 {
        self.model.large.len() as u32
    }

    /// No units: nothing is returned from the model.
    pub(crate) fn units(&self, _class: ChunkClass) -> Units {
        Units {
            first: 0,
            chunks: 0,
            pages: 0,
        }
    }

    pub(crate) fn return_pages(&self, _class: ChunkClass, _first: u32, _count: u32) -> u64 {
        0
    }

    fn chunk(&self, id: ChunkId) -> &Chunk {
        match id.class() {
            ChunkClass::Small => &self.model.small[id.index() as usize],
            ChunkClass::Large => &self.model.large[id.index() as usize],
        }
    }

    pub(crate) fn header(&self, chunk: ChunkId) -> &ChunkHeader {
        &self.chunk(chunk).header
    }

    pub(crate) fn ahead(&self, _chunk: ChunkId, _offset: u32) -> Ahead {
        Ahead::NOTHING
    }

    pub(crate) fn copy_in(&self, chunk: ChunkId, offset: u32, src: RawSlice<'_>) {
        let mut bytes = vec![0; src.len()];
        src.copy_to(&mut bytes);
        for (cell, byte) in self.cells(chunk, offset).iter().zip(bytes) {
            // SAFETY: loom verifies that nobody else accesses the cell.
            cell.with_mut(|place| unsafe { *place = byte });
        }
    }

    pub(crate) fn copy_in_sum(
        &self,
        chunk: ChunkId,
        offset: u32,
        src: RawSlice<'_>,
        _ahead: Ahead,
    ) -> u32 {
        self.copy_in(chunk, offset, src);
        checksum::sum_raw(src)
    }

    pub(crate) fn copy_out(&self, chunk: ChunkId, offset: u32, mut dst: RawSliceMut<'_>) {
        let bytes: Vec<u8> = self.cells(chunk, offset)[..dst.len()]
            .iter()
            // SAFETY: loom verifies that nobody writes the cell.
            .map(|cell| cell.with(|place| unsafe { *place }))
            .collect();
        dst.write(0, &bytes);
    }

    pub(crate) fn copy_out_sum(
        &self,
        chunk: ChunkId,
        offset: u32,
        mut dst: RawSliceMut<'_>,
        _ahead: Ahead,
    ) -> u32 {
        self.copy_out(chunk, offset, dst.reborrow());
        checksum::sum_raw(dst.as_raw())
    }

    fn cells(&self, chunk: ChunkId, offset: u32) -> &[UnsafeCell<u8>] {
        &self.chunk(chunk).payload[offset as usize..]
    }
}
