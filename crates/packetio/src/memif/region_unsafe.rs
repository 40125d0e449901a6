//! Mapped memory regions, and the bounds check of descriptors against them.
//!
//! A [`Region`] owns a mapping; a [`Window`] holds all regions of a connection. The peer may
//! rewrite the memory at any time, so no Rust reference to it is ever made. The control channel
//! maps and lays out regions; the batches check descriptors.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::io;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A mapped memory file. It is unmapped when its last holder is gone.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; all access goes through raw pointers
// with the ordering that the cursors give.
unsafe impl Send for Region {}
// SAFETY: as above; the type hands out no references into the mapping.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `len` bytes of `fd` for reading and writing. `prefault` touches all pages at once.
    ///
    /// # Errors
    /// The error of `mmap`.
    pub fn map(fd: BorrowedFd<'_>, len: usize, prefault: bool) -> io::Result<Arc<Self>> {
        let mut flags = MapFlags::SHARED;
        if prefault {
            flags |= MapFlags::POPULATE;
        }
        // SAFETY: the kernel chooses the address, so no existing mapping changes.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                fd,
                0,
            )?
        };
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::Errno::NOMEM)?;
        // SAFETY: the range is the mapping just made. Huge pages are a wish; a refusal changes
        // nothing.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage) };
        Ok(Arc::new(Self { base, len }))
    }

    /// The address of `offset`, if at least `bytes` bytes are mapped there.
    pub fn place(&self, offset: usize, bytes: usize) -> Option<NonNull<u8>> {
        if offset.checked_add(bytes)? > self.len {
            return None;
        }
        // SAFETY: `offset <= len`, so the result is within the mapping or at its end.
        Some(unsafe { self.base.add(offset) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map` and every holder of a pointer into it also held
        // this region. A failure would leave it mapped, which is harmless.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// All regions of a connection, as bounds for descriptors.
#[derive(Clone, Debug)]
pub struct Window {
    bounds: Box<[(NonNull<u8>, u64)]>,
    /// Keeps the bounds mapped.
    _regions: Arc<[Arc<Region>]>,
}

// SAFETY: the bounds lead into mappings that are kept alive and are valid on every thread; accesses
// are raw.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Makes the bounds of `regions`, which stay mapped while the window lives.
    pub fn new(regions: &Arc<[Arc<Region>]>) -> Self {
        Self {
            bounds: regions
                .iter()
                .map(|region| (region.base, region.len as u64))
                .collect(),
            _regions: Arc::clone(regions),
        }
    }

    /// The address of `length` bytes at `offset` of `region`; `None`: they exceed the region.
    #[inline]
    pub fn place(&self, region: u16, offset: u32, length: u32) -> Option<NonNull<u8>> {
        let (base, len) = *self.bounds.get(usize::from(region))?;
        if u64::from(offset) + u64::from(length) > len {
            return None;
        }
        // SAFETY: `offset <= len`, so the result is within the mapping or at its end.
        Some(unsafe { base.add(offset as usize) })
    }
}
