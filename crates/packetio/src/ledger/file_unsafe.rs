//! The application's end of a ledger: a sealed memory file that the stack writes without a system
//! call.
//!
//! Owns the file and its mapping. Each entry is written through a raw pointer, and nothing reads
//! the mapping, so no Rust reference to it is ever made. Called by stacks, when a connection begins
//! and ends.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::{ENTRY_BYTES, Entry};

/// A ledger with an entry for each socket of a context. Its pages are taken when first written.
#[derive(Debug)]
pub struct LedgerFile {
    mapping: NonNull<u8>,
    entries: usize,
    file: OwnedFd,
    /// The process that has the mapping: a forked child has a hole there, or something else by now.
    pid: u32,
}

// SAFETY: the mapping is this value's alone and is used through raw pointers only; it can be
// reached from any thread.
unsafe impl Send for LedgerFile {}

impl LedgerFile {
    /// An empty ledger of `entries` entries.
    ///
    /// # Errors
    /// Those of making, sealing and mapping the file; `INVAL` for no entries.
    pub fn new(entries: usize) -> Result<Self, Errno> {
        let bytes = entries.checked_mul(ENTRY_BYTES).ok_or(Errno::INVAL)?;
        let file = memfd_create("ledger", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing; the file is
        // as long, and its seals keep it so.
        let mapping = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        let ledger = Self {
            mapping: NonNull::new(mapping.cast::<u8>()).ok_or(Errno::NOMEM)?,
            entries,
            file,
            pid: std::process::id(),
        };
        // SAFETY: a whole mapping of our own; the advice leaves its contents alone. A forked child
        // must not write the ledger of its parent.
        unsafe { madvise(mapping, bytes, Advice::LinuxDontFork) }?;
        Ok(ledger)
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        (self.entries * ENTRY_BYTES) as u64
    }

    /// The file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Writes the connection of socket `index`, or frees the entry. A socket beyond the ledger has
    /// no entry.
    #[inline]
    pub fn set(&mut self, index: u32, entry: Option<&Entry>) {
        let index = index as usize;
        if index >= self.entries {
            return;
        }
        let bytes = entry.map_or([0; ENTRY_BYTES], Entry::encode);
        // SAFETY: `index` is less than `entries`, so the entry lies in the mapping, which lives as
        // long as `self`. Only this value writes it, and the service reads the file by `pread`.
        unsafe {
            let room = self.mapping.as_ptr().add(index * ENTRY_BYTES);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), room, ENTRY_BYTES);
        }
    }
}

impl Drop for LedgerFile {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        let bytes = self.entries * ENTRY_BYTES;
        // SAFETY: the mapping is ours, whole, and no reference to it exists.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_that_is_set_and_freed_stands_in_the_file() {
        let mut ledger = LedgerFile::new(3).unwrap();
        let entry = Entry {
            local: "10.0.0.1:80".parse().unwrap(),
            remote: "192.0.2.9:40000".parse().unwrap(),
        };
        let read = |ledger: &LedgerFile| {
            let mut bytes = [0; ENTRY_BYTES];
            let at = 2 * ENTRY_BYTES as u64;
            assert_eq!(
                rustix::io::pread(ledger.file(), &mut bytes, at),
                Ok(ENTRY_BYTES)
            );
            Entry::decode(&bytes)
        };
        ledger.set(2, Some(&entry));
        assert_eq!(read(&ledger), Some(entry));
        ledger.set(2, None);
        assert_eq!(read(&ledger), None);
        // A socket beyond the ledger is left out.
        ledger.set(3, Some(&entry));
        assert_eq!(ledger.bytes(), 3 * ENTRY_BYTES as u64);
    }
}
