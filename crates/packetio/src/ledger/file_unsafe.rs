//! A ledger in memory that the host provides: the stack writes it and the host reads it, without
//! system calls.
//!
//! A [`LedgerFile`] owns the mapping. Each entry is copied through a raw pointer, so no Rust
//! reference to the memory is made. Stacks call it when connections begin and end; so does the
//! service `mill mux`.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::{ENTRY_BYTES, Entry};

/// A ledger with an entry for each possible connection of a context.
#[derive(Debug)]
pub struct LedgerFile {
    mapping: NonNull<u8>,
    entries: usize,
    /// Process that has the mapping. A forked child has a hole there, or another mapping by now.
    pid: u32,
}

// SAFETY: the mapping is this value's alone and is used through raw pointers only; it can be
// reached from any thread.
unsafe impl Send for LedgerFile {}

impl LedgerFile {
    /// Maps the ledger in `memory`, which the host made with `bytes` bytes and keeps at this
    /// length.
    ///
    /// # Errors
    /// The errors of mapping; `INVAL` if there is no room for an entry.
    pub fn map(memory: BorrowedFd<'_>, bytes: u64) -> Result<Self, Errno> {
        let entries = usize::try_from(bytes).map_err(|_| Errno::INVAL)? / ENTRY_BYTES;
        if entries == 0 {
            return Err(Errno::INVAL);
        }
        let bytes = entries * ENTRY_BYTES;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing. The host
        // made the memory as long as it said, and nobody can make it shorter.
        let mapping = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                memory,
                0,
            )
        }?;
        let ledger = Self {
            mapping: NonNull::new(mapping.cast::<u8>()).ok_or(Errno::NOMEM)?,
            entries,
            pid: std::process::id(),
        };
        // SAFETY: a whole mapping of our own; the advice leaves its contents alone. A forked child
        // must not write the ledger of its parent.
        unsafe { madvise(mapping, bytes, Advice::LinuxDontFork) }?;
        Ok(ledger)
    }

    /// The bytes of entry `index`, for the host; `None` beyond the last one. If the application
    /// writes at the same time, the bytes may belong to two entries.
    pub fn get(&self, index: u32) -> Option<[u8; ENTRY_BYTES]> {
        let index = index as usize;
        if index >= self.entries {
            return None;
        }
        let mut bytes = [0; ENTRY_BYTES];
        // SAFETY: `index` is less than `entries`, so the entry lies in the mapping, which lives as
        // long as `self`. Any bytes are a value of `bytes`, whatever another process writes.
        unsafe {
            let entry = self.mapping.as_ptr().add(index * ENTRY_BYTES);
            std::ptr::copy_nonoverlapping(entry, bytes.as_mut_ptr(), ENTRY_BYTES);
        }
        Some(bytes)
    }

    /// Writes entry `index`, or frees it with `None`. An index beyond the ledger is ignored.
    #[inline]
    pub fn set(&mut self, index: u32, entry: Option<&Entry>) {
        let index = index as usize;
        if index >= self.entries {
            return;
        }
        let bytes = entry.map_or([0; ENTRY_BYTES], Entry::encode);
        // SAFETY: `index` is less than `entries`, so the entry lies in the mapping, which lives as
        // long as `self`. Only this value writes it, and the host copies it.
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
    use std::os::fd::AsFd as _;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn entry_that_is_set_and_freed_stands_in_the_memory() {
        let file = memfd_create("ledger", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 4 * ENTRY_BYTES as u64).unwrap();
        let mut ledger = LedgerFile::map(file.as_fd(), 3 * ENTRY_BYTES as u64).unwrap();
        let entry = Entry {
            local: "10.0.0.1:80".parse().unwrap(),
            remote: "192.0.2.9:40000".parse().unwrap(),
        };
        let read = |at: usize| {
            let mut bytes = [0; ENTRY_BYTES];
            let at = (at * ENTRY_BYTES) as u64;
            assert_eq!(rustix::io::pread(&file, &mut bytes, at), Ok(ENTRY_BYTES));
            Entry::decode(&bytes)
        };
        ledger.set(2, Some(&entry));
        assert_eq!(read(2), Some(entry));
        assert_eq!(ledger.get(2), Some(entry.encode()));
        assert_eq!(ledger.get(3), None);
        ledger.set(2, None);
        assert_eq!(read(2), None);
        // An index beyond the ledger is ignored.
        ledger.set(3, Some(&entry));
        assert_eq!(read(3), None);
        assert!(LedgerFile::map(file.as_fd(), 39).is_err());
    }
}
