//! The memory file as the machine has it: a memfd, mapped shared; under Miri,
//! which has no memfd, zeroed heap memory of the same layout.
//!
//! Owns the mapping and turns indices into addresses. The index of a block, and of a chunk id that
//! is read from shared memory, is compared with its limit. A chunk id that this process holds is
//! trusted to be one of this file: see `header`.

use core::ptr::NonNull;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::{Layout, MemoryError, PAGE_BYTES};
use crate::checksum;
use crate::chunk_format::{
    ChunkClass, ChunkHeader, ChunkId, Front, HEADER_BYTES, LARGE_BYTES, SMALL_BYTES, Units,
};
use crate::huge_pages::PageSource;
use crate::prefetch::Ahead;
use crate::raw::{RawSlice, RawSliceMut};
use crate::socket_block::SocketBlock;

/// A handle on a context's memory file; clones name the same file.
#[derive(Clone)]
pub struct Memory {
    blocks: NonNull<SocketBlock>,
    /// Headers of the large chunks.
    headers: NonNull<ChunkHeader>,
    small: NonNull<u8>,
    large: NonNull<u8>,
    blocks_count: u32,
    small_count: u32,
    large_count: u32,
    mapping: Arc<Mapping>,
}

// SAFETY: blocks and chunk headers are atomics alone; payload is reached only by raw copies under
// the protocol of `byte_ring`, which orders them by the cursors.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn with_layout(
        layout: &Layout,
        source: &mut PageSource,
    ) -> Result<Self, MemoryError> {
        let mapping = Arc::new(Mapping::new(layout.bytes, source)?);
        let base = mapping.base;
        // SAFETY: the offsets lie within the `layout.bytes` that were mapped.
        let (headers, small, large) = unsafe {
            (
                base.add(layout.headers_offset),
                base.add(layout.small_offset),
                base.add(layout.large_offset),
            )
        };
        Ok(Self {
            blocks: base.cast(),
            headers: headers.cast(),
            small,
            large,
            blocks_count: layout.blocks,
            small_count: layout.small_chunks,
            large_count: layout.large_chunks,
            mapping,
        })
    }

    /// The block at `index`, whichever use of it is current.
    #[inline]
    pub fn block(&self, index: u32) -> Option<&SocketBlock> {
        if index >= self.blocks_count {
            return None;
        }
        // SAFETY: `index` is below the count that the mapping has room for, the array starts page
        // aligned, zeros are a valid block, and a block is atomics alone.
        Some(unsafe { self.blocks.add(index as usize).as_ref() })
    }

    /// Largest number of sockets.
    #[inline]
    pub fn sockets_max(&self) -> u32 {
        self.blocks_count
    }

    /// The file, to pass to another process; `None` where there is no file.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.mapping.fd()
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> usize {
        self.mapping.bytes
    }

    /// Asks the kernel to bring in all pages now rather than when first touched; no effect where it
    /// cannot.
    pub fn prefault(&self) {
        self.mapping.prefault();
    }

    /// Where the chunks of a class begin in the file, and the bytes of each.
    fn place(&self, class: ChunkClass) -> (usize, usize) {
        let (start, bytes) = match class {
            ChunkClass::Small => (self.small, SMALL_BYTES),
            ChunkClass::Large => (self.large, LARGE_BYTES),
        };
        let offset = start.addr().get() - self.mapping.base.addr().get();
        (offset, bytes as usize)
    }

    /// The units in which chunks of a class can be returned to the system: the chunks of one page.
    pub(crate) fn units(&self, class: ChunkClass) -> Units {
        let (offset, bytes) = self.place(class);
        let page = self.mapping.page_bytes;
        let first = (offset.next_multiple_of(page.max(1)) - offset) / bytes;
        Units {
            first: first as u32,
            chunks: (page / bytes) as u32,
            pages: (page / PAGE_BYTES) as u32,
        }
    }

    /// Gives the pages of these chunks back to the system: they read as zeros, and are allocated
    /// again when written. The chunks must be free and make up whole [`units`](Self::units).
    /// Returns the bytes returned; 0: the kernel refused.
    pub(crate) fn return_pages(&self, class: ChunkClass, first: u32, count: u32) -> u64 {
        let (offset, bytes) = self.place(class);
        let start = offset + first as usize * bytes;
        self.mapping.punch(start, count as usize * bytes)
    }

    /// Bytes of the file that the system holds in memory at present.
    pub fn resident_bytes(&self) -> u64 {
        self.mapping.resident_bytes()
    }

    #[inline]
    pub(super) fn small_chunks(&self) -> u32 {
        self.small_count
    }

    #[inline]
    pub(super) fn large_chunks(&self) -> u32 {
        self.large_count
    }

    #[inline(always)]
    pub(crate) fn header(&self, chunk: ChunkId) -> &ChunkHeader {
        debug_assert!(chunk.index() < self.chunks(chunk.class()));
        let index = chunk.index() as usize;
        // SAFETY: ids come from the pool of this file or through `Memory::checked` on it, so the
        // index is below the counts that the mapping has room for. The mapping outlives `self`.
        // Headers start on multiples of 16 bytes, zeros are a valid header, and a header is atomics
        // alone. No type says that an id is of this file, and a release build does not check it:
        // callers keep the rule "One file" of `byte_ring`. Comparing the index here and in
        // `payload_start` cost 1.25 % of all instructions of small transactions, and would not keep
        // two streams apart.
        unsafe {
            let header = match chunk.class() {
                ChunkClass::Small => self.small.add(index * SMALL_BYTES as usize).cast(),
                ChunkClass::Large => self.headers.add(index),
            };
            header.as_ref()
        }
    }

    /// Where the payload of `chunk` begins.
    #[inline(always)]
    fn payload_start(&self, chunk: ChunkId) -> NonNull<u8> {
        debug_assert!(chunk.index() < self.chunks(chunk.class()));
        let index = chunk.index() as usize;
        let (base, at) = match chunk.class() {
            ChunkClass::Small => (
                self.small,
                index * SMALL_BYTES as usize + HEADER_BYTES as usize,
            ),
            ChunkClass::Large => (self.large, index * LARGE_BYTES as usize),
        };
        // SAFETY: as in `header`.
        unsafe { base.add(at) }
    }

    /// The payload of `chunk` from `offset` on.
    #[inline]
    fn payload(&self, chunk: ChunkId, offset: u32) -> RawSliceMut<'_> {
        let data_bytes = chunk.data_bytes();
        let offset = offset.min(data_bytes);
        // SAFETY: offset and the rest of the payload lie within the chunk, the chunk in the
        // mapping. References to payload exist only for lent bytes, which nobody writes (`lend`).
        unsafe {
            let start = self.payload_start(chunk).add(offset as usize);
            RawSliceMut::new(start.as_ptr(), (data_bytes - offset) as usize)
        }
    }

    /// The bytes of a front, in place. The caller keeps the rule *Lent bytes* of
    /// [`byte_ring`](crate::byte_ring): the front is the last one that the reader of a stream in
    /// this file returned, and the reader discards none of its bytes while they are borrowed.
    #[inline]
    pub fn lend(&self, front: Front) -> &[u8] {
        let payload = self.payload(front.chunk, front.offset);
        let bytes = payload.as_raw();
        let len = bytes.len().min(front.len as usize);
        // SAFETY: the payload lies within the mapping, which outlives `self`. The bytes are
        // published and not read. The stack writes only past them, and frees their chunk when the
        // reader's cursor has passed it, which the caller rules out for as long as they are
        // borrowed.
        unsafe { core::slice::from_raw_parts(bytes.as_ptr(), len) }
    }

    /// The payload of `chunk` from `offset` on, to be prefetched.
    #[inline]
    pub(crate) fn ahead(&self, chunk: ChunkId, offset: u32) -> Ahead {
        Ahead::at(self.payload_start(chunk).as_ptr()).past(offset)
    }

    #[inline]
    pub(crate) fn copy_in(&self, chunk: ChunkId, offset: u32, src: RawSlice<'_>) {
        debug_assert!(offset as usize + src.len() <= chunk.data_bytes() as usize);
        self.payload(chunk, offset).copy_from(src);
    }

    #[inline]
    pub(crate) fn copy_in_sum(
        &self,
        chunk: ChunkId,
        offset: u32,
        src: RawSlice<'_>,
        ahead: Ahead,
    ) -> u32 {
        debug_assert!(offset as usize + src.len() <= chunk.data_bytes() as usize);
        checksum::copy_and_sum_ahead(self.payload(chunk, offset), src, ahead)
    }

    #[inline]
    pub(crate) fn copy_out(&self, chunk: ChunkId, offset: u32, mut dst: RawSliceMut<'_>) {
        debug_assert!(offset as usize + dst.len() <= chunk.data_bytes() as usize);
        dst.copy_from(self.payload(chunk, offset).as_raw());
    }

    #[inline]
    pub(crate) fn copy_out_sum(
        &self,
        chunk: ChunkId,
        offset: u32,
        dst: RawSliceMut<'_>,
        ahead: Ahead,
    ) -> u32 {
        debug_assert!(offset as usize + dst.len() <= chunk.data_bytes() as usize);
        checksum::copy_and_sum_ahead(dst, self.payload(chunk, offset).as_raw(), ahead)
    }
}

/// The pages and their file.
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    /// Size of the pieces in which pages can be returned to the system; 0: none can.
    page_bytes: usize,
    #[cfg(not(miri))]
    fd: std::os::fd::OwnedFd,
}

// SAFETY: owns address space and a descriptor, which any thread may use.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`; nothing in it changes after it is made.
unsafe impl Sync for Mapping {}

#[cfg(not(miri))]
mod file {
    use core::ptr::{self, NonNull};
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fstat, ftruncate, memfd_create};
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

    use super::{Mapping, MemoryError, PAGE_BYTES};
    use crate::fill::{fill, fill_reserved};
    use crate::huge_pages::{
        HUGE_PAGE_BYTES, HugePages, PageSource, Pages, Refused, ThpFor, grants_thp,
    };

    impl Mapping {
        /// Maps a new file. A file smaller than a huge page lies on ordinary pages by every rule.
        pub(super) fn new(bytes: usize, source: &mut PageSource) -> Result<Self, MemoryError> {
            let wants_huge = source.rule() != HugePages::Off && bytes >= HUGE_PAGE_BYTES;
            let huge_bytes = bytes.checked_next_multiple_of(HUGE_PAGE_BYTES);
            let wants_reserved = wants_huge && source.rule().takes_reserved();
            if let (true, Some(huge_bytes)) = (wants_reserved, huge_bytes) {
                match Self::on_reserved(huge_bytes) {
                    Ok(mapping) => {
                        source.note(Pages::Hugetlb, huge_bytes);
                        return Ok(mapping);
                    }
                    Err(refused) => source.note_refused(refused, huge_bytes),
                }
            }
            let is_thp = wants_huge && grants_thp(ThpFor::Shared);
            // Pages are returned in whole huge pages, because a hole would split one.
            let (page_bytes, pages, advice) = match is_thp {
                true => (HUGE_PAGE_BYTES, Pages::Thp, Advice::LinuxHugepage),
                false => (PAGE_BYTES, Pages::Ordinary, Advice::LinuxNoHugepage),
            };
            let mapping = Self::with_flags(bytes, MemfdFlags::CLOEXEC, page_bytes)?;
            source.note(pages, bytes);
            // Kernels without transparent huge pages for files refuse; the mapping is then slower,
            // not wrong.
            // SAFETY: the range is the mapping just made; the advice changes no contents.
            let _ = unsafe { madvise(mapping.base.as_ptr().cast(), bytes, advice) };
            Ok(mapping)
        }

        /// A file on reserved huge pages, all of which it has. They are nobody else's: they stay.
        fn on_reserved(bytes: usize) -> Result<Self, Refused> {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
            let mapping = Self::with_flags(bytes, flags, 0).map_err(|_| Refused::Promise)?;
            match fill_reserved(mapping.base, bytes) {
                true => Ok(mapping),
                false => Err(Refused::Pages),
            }
        }

        fn with_flags(
            bytes: usize,
            flags: MemfdFlags,
            page_bytes: usize,
        ) -> Result<Self, MemoryError> {
            let fd: OwnedFd = memfd_create("millstream", flags).map_err(MemoryError::File)?;
            ftruncate(&fd, bytes as u64).map_err(MemoryError::File)?;
            // SAFETY: a new mapping at an address of the kernel's choice, over no other.
            let base = unsafe {
                mmap(
                    ptr::null_mut(),
                    bytes,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::SHARED,
                    &fd,
                    0,
                )
            }
            .map_err(MemoryError::Map)?;
            let base =
                NonNull::new(base.cast()).ok_or(MemoryError::Map(rustix::io::Errno::NOMEM))?;
            Ok(Self {
                base,
                bytes,
                page_bytes,
                fd,
            })
        }

        /// Returns these bytes, whole pages, to the system. Gives the bytes returned: all or none.
        pub(super) fn punch(&self, offset: usize, bytes: usize) -> u64 {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match fallocate(&self.fd, flags, offset as u64, bytes as u64) {
                Ok(()) => bytes as u64,
                Err(_) => 0,
            }
        }

        pub(super) fn resident_bytes(&self) -> u64 {
            const BLOCK_BYTES: u64 = 512;
            fstat(&self.fd).map_or(0, |stat| stat.st_blocks as u64 * BLOCK_BYTES)
        }

        pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
            Some(self.fd.as_fd())
        }

        pub(super) fn prefault(&self) {
            let _ = fill(self.base, self.bytes);
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: the last handle is gone, and with it every borrow of the pages.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        }
    }
}

#[cfg(miri)]
mod heap {
    use core::ptr::NonNull;
    use std::alloc;
    use std::os::fd::BorrowedFd;

    use super::super::PAGE_BYTES;
    use super::{Mapping, MemoryError};
    use crate::huge_pages::{PageSource, Pages};

    fn layout(bytes: usize) -> Result<alloc::Layout, MemoryError> {
        alloc::Layout::from_size_align(bytes, PAGE_BYTES).map_err(|_| MemoryError::Limits)
    }

    impl Mapping {
        pub(super) fn new(bytes: usize, source: &mut PageSource) -> Result<Self, MemoryError> {
            source.note(Pages::Ordinary, bytes);
            // SAFETY: the layout's size is not zero: every limit is at least 1.
            let base = unsafe { alloc::alloc_zeroed(layout(bytes)?) };
            let base = NonNull::new(base).ok_or(MemoryError::Map(rustix::io::Errno::NOMEM))?;
            Ok(Self {
                base,
                bytes,
                page_bytes: PAGE_BYTES,
            })
        }

        /// Returns nothing: heap memory stays.
        pub(super) fn punch(&self, _offset: usize, _bytes: usize) -> u64 {
            0
        }

        pub(super) fn resident_bytes(&self) -> u64 {
            self.bytes as u64
        }

        pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        pub(super) fn prefault(&self) {}
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            if let Ok(layout) = layout(self.bytes) {
                // SAFETY: allocated in `new` with the same layout; the last handle is gone.
                unsafe { alloc::dealloc(self.base.as_ptr(), layout) };
            }
        }
    }
}
