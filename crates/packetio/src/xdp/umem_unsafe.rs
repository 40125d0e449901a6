//! The memory that a port shares with the kernel: first the receiving chunks, then the sending
//! chunks.
//!
//! ```text
//! chunk      0 ............ rx_chunks-1 | rx_chunks ............ chunks-1
//! RX:  [256 B kernel headroom][frame ...]  TX:  [64 B for TX metadata][frame ...]
//! ```
//!
//! A [`Umem`] owns the mapping, and checks everything that turns a kernel's descriptor or a chunk's
//! number into a frame. `port.rs` uses it.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::frame_unsafe::{RxFrame, TxFrame};
use crate::limits::XDP_TX_HEADROOM_BYTES;

/// Size of a huge page on all relevant platforms, bytes.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// One port's frame memory.
#[derive(Debug)]
pub(super) struct Umem {
    /// The mapping, which is longer than the UMEM so that the UMEM can start on a huge page.
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    base: NonNull<u8>,
    chunk_bytes: u32,
    rx_chunks: u32,
    tx_chunks: u32,
    /// Process that has the mapping. A forked child has a hole there, or another mapping by now.
    pid: u32,
}

// SAFETY: the mapping is this value's alone and is used through raw pointers only; it can be
// reached from any thread.
unsafe impl Send for Umem {}

impl Umem {
    /// Maps memory for this many chunks of `chunk_bytes`, a power of two.
    ///
    /// # Errors
    /// `NOMEM`; `INVAL` for impossible sizes.
    pub(super) fn new(chunk_bytes: u32, rx_chunks: u32, tx_chunks: u32) -> Result<Self, Errno> {
        let bytes = bytes_of(chunk_bytes, rx_chunks, tx_chunks)?;
        let mapping_bytes = bytes.checked_add(HUGE_PAGE_BYTES).ok_or(Errno::INVAL)?;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice replaces nothing.
        let mapping = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                mapping_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let lead = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES);
        debug_assert!(lead < HUGE_PAGE_BYTES);
        // SAFETY: `lead` is less than a huge page, by which the mapping is longer than the UMEM.
        let base = unsafe { mapping.add(lead) };
        // SAFETY: the advice leaves the contents alone. Huge pages are a wish, not a need.
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        Self {
            mapping,
            mapping_bytes,
            base,
            chunk_bytes,
            rx_chunks,
            tx_chunks,
            pid: std::process::id(),
        }
        .kept_from_children()
    }

    /// Maps memory like [`new`](Self::new), in a memory file of sealed size, which another process
    /// registers in place of this one.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new), and those of making the file.
    pub(super) fn in_file(
        chunk_bytes: u32,
        rx_chunks: u32,
        tx_chunks: u32,
    ) -> Result<(Self, OwnedFd), Errno> {
        let bytes = bytes_of(chunk_bytes, rx_chunks, tx_chunks)?;
        let file = memfd_create("umem", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing; the file is
        // as long, and stays so.
        let mapping = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let umem = Self {
            mapping,
            mapping_bytes: bytes,
            base: mapping,
            chunk_bytes,
            rx_chunks,
            tx_chunks,
            pid: std::process::id(),
        };
        Ok((umem.kept_from_children()?, file))
    }

    /// Keeps the mapping out of forked children, which would otherwise share frames with us.
    fn kept_from_children(self) -> Result<Self, Errno> {
        let mapping = self.mapping.as_ptr().cast();
        // SAFETY: a whole mapping of our own; the advice leaves its contents alone.
        unsafe { madvise(mapping, self.mapping_bytes, Advice::LinuxDontFork) }?;
        Ok(self)
    }

    /// Address and length for `XDP_UMEM_REG`.
    pub(super) fn region(&self) -> (u64, u64) {
        let chunks = u64::from(self.rx_chunks) + u64::from(self.tx_chunks);
        (
            self.base.as_ptr() as u64,
            chunks * u64::from(self.chunk_bytes),
        )
    }

    /// Offsets of the receiving chunks.
    pub(super) fn rx_offsets(&self) -> impl Iterator<Item = u64> + use<> {
        let bytes = u64::from(self.chunk_bytes);
        (0..u64::from(self.rx_chunks)).map(move |chunk| chunk * bytes)
    }

    /// Offsets of the sending chunks.
    pub(super) fn tx_offsets(&self) -> impl Iterator<Item = u64> + use<> {
        let bytes = u64::from(self.chunk_bytes);
        let first = u64::from(self.rx_chunks);
        let end = first + u64::from(self.tx_chunks);
        (first..end).map(move |chunk| chunk * bytes)
    }

    /// Offset of the receiving chunk that contains `addr`; `None`: there is none.
    #[inline]
    pub(super) fn rx_chunk(&self, addr: u64) -> Option<u64> {
        let offset = addr & !u64::from(self.chunk_bytes - 1);
        (offset < self.tx_start()).then_some(offset)
    }

    /// Offset of the sending chunk that contains `addr`; `None`: there is none.
    #[inline]
    pub(super) fn tx_chunk(&self, addr: u64) -> Option<u64> {
        let offset = addr & !u64::from(self.chunk_bytes - 1);
        (offset >= self.tx_start() && offset < self.region().1).then_some(offset)
    }

    #[inline]
    fn tx_start(&self) -> u64 {
        u64::from(self.rx_chunks) * u64::from(self.chunk_bytes)
    }

    /// The frame of a received descriptor; `None` unless it lies within one receiving chunk.
    #[inline]
    pub(super) fn rx_frame(&self, addr: u64, len: u32) -> Option<RxFrame> {
        let chunk = self.rx_chunk(addr)?;
        if addr - chunk + u64::from(len) > u64::from(self.chunk_bytes) {
            return None;
        }
        // SAFETY: `addr..addr+len` lies in chunk `chunk`, which lies in the mapping. No Rust
        // reference to the mapping is ever made, and it lives as long as the port that owns both it
        // and the frame.
        Some(unsafe { RxFrame::new(self.base.as_ptr().add(addr as usize), len) })
    }

    /// A slot in the sending chunk at `offset`, with `capacity` bytes or as many as fit. `None`:
    /// there is no such chunk.
    #[inline]
    pub(super) fn tx_frame(&self, offset: u64, capacity: u32) -> Option<TxFrame> {
        let chunk = self.tx_chunk(offset)?;
        let capacity = capacity.min(self.chunk_bytes - XDP_TX_HEADROOM_BYTES);
        let start = chunk as usize + XDP_TX_HEADROOM_BYTES as usize;
        // SAFETY: headroom and capacity fit in chunk `chunk`, which lies in the mapping. No Rust
        // reference to the mapping is ever made, and it lives as long as the port that owns both it
        // and the frame.
        Some(unsafe { TxFrame::new(self.base.as_ptr().add(start), capacity) })
    }
}

/// Bytes of all chunks. `chunk_bytes` must be a power of two.
fn bytes_of(chunk_bytes: u32, rx_chunks: u32, tx_chunks: u32) -> Result<usize, Errno> {
    let chunks = rx_chunks as usize + tx_chunks as usize;
    let bytes = chunks
        .checked_mul(chunk_bytes as usize)
        .ok_or(Errno::INVAL)?;
    match bytes > 0 && chunk_bytes.is_power_of_two() && chunk_bytes > XDP_TX_HEADROOM_BYTES {
        true => Ok(bytes),
        false => Err(Errno::INVAL),
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        // SAFETY: the mapping is ours, and frames in it are reachable only through the port that is
        // going. The kernel holds its own reference to the pages for as long as a socket uses them.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapping_bytes) };
    }
}

#[cfg(test)]
mod tests;
