//! A sealed memory file of 64-bit words: one process writes it, other processes map it to read.
//!
//! The file cannot change its length, and no process but the one that made it can write it: a
//! reader's copy of the descriptor refuses a writable mapping. Each word is an atomic, accessed
//! relaxed; [`StatWords::write_group`] and [`StatWords::read_group`] are the sequence lock over a
//! group of words. Every index is checked. Called by the crate `observe`.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, Ordering, fence};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat};
use rustix::fs::{fstatfs, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const WORD_BYTES: usize = 8;
/// `TMPFS_MAGIC`, the file system of memory files without reserved huge pages.
const TMPFS: u64 = 0x0102_1994;
/// Attempts to read a group whose writer changes it meanwhile.
const READS_MAX: u32 = 64;

/// A mapping of the file, for its writer or for a reader.
pub struct StatWords {
    base: NonNull<AtomicU64>,
    words: usize,
    is_writer: bool,
    file: OwnedFd,
}

// SAFETY: the mapping is atomics alone and belongs to this value, whichever thread uses it.
unsafe impl Send for StatWords {}
// SAFETY: as for `Send`.
unsafe impl Sync for StatWords {}

impl StatWords {
    /// Makes a file of `words` words, all zero, for this process to write.
    ///
    /// # Errors
    /// The kernel's error; `INVAL` for zero words.
    pub fn create(words: usize) -> Result<Self, Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("millstream-statistics", flags)?;
        let bytes = words.checked_mul(WORD_BYTES).ok_or(Errno::INVAL)?;
        ftruncate(&file, bytes as u64)?;
        let made = Self::map(file, words, ProtFlags::READ | ProtFlags::WRITE)?;
        let length = SealFlags::SHRINK | SealFlags::GROW;
        // Kernels before 5.1 lack this seal. There a reader could write the file, and only other
        // readers would be misled.
        if fcntl_add_seals(&made.file, length | SealFlags::FUTURE_WRITE).is_err() {
            fcntl_add_seals(&made.file, length)?;
        }
        fcntl_add_seals(&made.file, SealFlags::SEAL)?;
        Ok(made)
    }

    /// Maps a file that another process made, to read. The file may be hostile: it must be memory
    /// whose length is sealed, with at most `words_max` words.
    ///
    /// # Errors
    /// `INVAL` if the file is no such memory; else the kernel's error.
    pub fn open(file: OwnedFd, words_max: usize) -> Result<Self, Errno> {
        // Seals come first: a call to another file system might block the caller.
        let seals = fcntl_get_seals(&file).map_err(|_| Errno::INVAL)?;
        let is_memory = fstatfs(&file).is_ok_and(|found| found.f_type as u64 == TMPFS);
        if !seals.contains(SealFlags::SHRINK | SealFlags::SEAL) || !is_memory {
            return Err(Errno::INVAL);
        }
        let bytes = usize::try_from(fstat(&file)?.st_size).map_err(|_| Errno::INVAL)?;
        let words = bytes / WORD_BYTES;
        if words == 0 || words > words_max || bytes % WORD_BYTES != 0 {
            return Err(Errno::INVAL);
        }
        Self::map(file, words, ProtFlags::READ)
    }

    fn map(file: OwnedFd, words: usize, access: ProtFlags) -> Result<Self, Errno> {
        let bytes = words * WORD_BYTES;
        // SAFETY: a new mapping at an address of the kernel's choice, over no other.
        let base = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, &file, 0) }?;
        Ok(Self {
            base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?,
            words,
            is_writer: access.contains(ProtFlags::WRITE),
            file,
        })
    }

    /// Number of words in the file.
    #[inline]
    pub fn len(&self) -> usize {
        self.words
    }

    /// Always false: a file has at least one word.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words == 0
    }

    /// The file, to pass to a reader.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    #[inline]
    fn word(&self, index: usize) -> Option<&AtomicU64> {
        if index >= self.words {
            return None;
        }
        // SAFETY: `index` is below the words that are mapped for as long as `self` lives, pages
        // are aligned, any bits are a value, and every access to the words is atomic.
        Some(unsafe { self.base.add(index).as_ref() })
    }

    /// The word at `index`; 0 beyond the end.
    #[inline]
    pub fn load(&self, index: usize) -> u64 {
        self.word(index)
            .map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Sets the word at `index`. Does nothing beyond the end, or if another process is the writer.
    #[inline]
    pub fn store(&self, index: usize, value: u64) {
        if let (true, Some(word)) = (self.is_writer, self.word(index)) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Sets the words from `index` on to bytes, little endian, padded with zeros. Does nothing if
    /// they would end beyond the file, or if another process is the writer.
    #[inline]
    pub fn store_bytes(&self, index: usize, bytes: &[u8]) {
        let count = bytes.len().div_ceil(WORD_BYTES);
        if !self.is_writer || index > self.words || count > self.words - index {
            return;
        }
        // SAFETY: as in `word`: `index + count` is at most the number of words that are mapped.
        let words = unsafe {
            let first = self.base.add(index).as_ptr();
            core::slice::from_raw_parts(first, count)
        };
        let (whole, rest) = bytes.as_chunks::<WORD_BYTES>();
        for (word, chunk) in words.iter().zip(whole) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
        if let (Some(last), false) = (words.last(), rest.is_empty()) {
            let mut padded = [0; WORD_BYTES];
            padded[..rest.len()].copy_from_slice(rest);
            last.store(u64::from_le_bytes(padded), Ordering::Relaxed);
        }
    }

    /// Changes a group of words by `write`, so that a reader sees all of the change or nothing. The
    /// word at `sequence` belongs to the group and has this one writer.
    #[inline]
    pub fn write_group<T>(&self, sequence: usize, write: impl FnOnce(&Self) -> T) -> T {
        let begun = self.load(sequence) | 1;
        self.store(sequence, begun);
        fence(Ordering::Release);
        let outcome = write(self);
        if let (true, Some(word)) = (self.is_writer, self.word(sequence)) {
            word.store(begun.wrapping_add(1), Ordering::Release);
        }
        outcome
    }

    /// Reads a group of words by `read`, and again while the writer changes it. `None`: the writer
    /// never ended its change, because it died or is hostile.
    pub fn read_group<T>(&self, sequence: usize, mut read: impl FnMut(&Self) -> T) -> Option<T> {
        let word = self.word(sequence)?;
        for attempt in 0..READS_MAX {
            let before = word.load(Ordering::Acquire);
            if before & 1 == 0 {
                let outcome = read(self);
                fence(Ordering::Acquire);
                if word.load(Ordering::Relaxed) == before {
                    return Some(outcome);
                }
            }
            // The writer may be waiting for this core.
            match attempt < READS_MAX / 2 {
                true => core::hint::spin_loop(),
                false => std::thread::yield_now(),
            }
        }
        None
    }
}

impl Drop for StatWords {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no borrow of it is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.words * WORD_BYTES) };
    }
}

#[cfg(all(test, not(loom), not(miri)))]
#[path = "stat_words/tests.rs"]
mod tests;
