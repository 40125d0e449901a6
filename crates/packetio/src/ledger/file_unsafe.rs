//! A ledger in memory of the host's: the stack writes it, and the host reads it, without a system
//! call.
//!
//! Owns the mapping. Each entry is copied through a raw pointer, so no Rust reference to it is ever
//! made. Called by stacks, when a connection begins and ends, and by the service `mill mux`.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::{ENTRY_BYTES, Entry};

/// A ledger with an entry for each connection that a context may have.
#[derive(Debug)]
pub struct LedgerFile {
    mapping: NonNull<u8>,
    entries: usize,
    /// The process that has the mapping: a forked child has a hole there, or something else by now.
    pid: u32,
}

// SAFETY: the mapping is this value's alone and is used through raw pointers only; it can be
// reached from any thread.
unsafe impl Send for LedgerFile {}

impl LedgerFile {
    /// The ledger in `memory`, which the host made and keeps at this length, of `bytes` bytes.
    ///
    /// # Errors
    /// Errors of mapping it; `INVAL` if it holds no entry.
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

    /// The bytes of entry `index`, for the host; `None` beyond the last one. Bytes that the
    /// application writes at the same moment may be of two entries.
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

    /// Writes the connection that has entry `index`, or frees the entry. A connection beyond the
    /// ledger has no entry.
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
        // A connection beyond the ledger is left out.
        ledger.set(3, Some(&entry));
        assert_eq!(read(3), None);
        assert!(LedgerFile::map(file.as_fd(), 39).is_err());
    }
}
