//! Checks of the memory files that applications hand over.
//!
//! Owns nothing. A file must be memory (a memfd on tmpfs) and sealed, so that it can neither shrink
//! nor grow nor lose its seals. Seals are checked first: only memory files have them, and the file
//! system of any other file might make the service wait. Called by the service.

use std::os::fd::BorrowedFd;

use packetio::mux::message::Memory;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};

use crate::limits::{MEMORY_BYTES_MAX, RING_SLOTS_MAX};

/// `TMPFS_MAGIC`. Huge pages have another file system and are refused, since they may run out
/// during use.
const TMPFS: u64 = 0x0102_1994;

/// Checks that `file` is sealed memory of exactly `bytes` bytes.
///
/// # Errors
/// The fault of the file.
pub fn check(file: BorrowedFd<'_>, bytes: u64) -> Result<(), &'static str> {
    let wanted = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let seals = fcntl_get_seals(file).map_err(|_| "not a memory file")?;
    if !seals.contains(wanted) {
        return Err("the memory file is not sealed");
    }
    if !fstatfs(file).is_ok_and(|found| found.f_type as u64 == TMPFS) {
        return Err("not a memory file");
    }
    match fstat(file) {
        Ok(found) if u64::try_from(found.st_size) == Ok(bytes) => Ok(()),
        _ => Err("the memory file has another length"),
    }
}

/// Checks the sizes that an application asks for. The data plane also checks AF_XDP's requirements.
pub fn fits(memory: &Memory) -> bool {
    let rings = [
        memory.fill_slots,
        memory.completion_slots,
        memory.rx_slots,
        memory.tx_slots,
    ];
    let chunk = memory.chunk_bytes;
    (1..=MEMORY_BYTES_MAX).contains(&memory.bytes)
        && matches!(chunk, 2048 | 4096)
        && memory.headroom_bytes < chunk / 2
        && rings
            .iter()
            .all(|slots| slots.is_power_of_two() && *slots <= RING_SLOTS_MAX)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("test", flags).unwrap();
        ftruncate(&file, bytes).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[test]
    fn sealed_memory_of_the_right_length_passes() {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let file = memory(8192, seals);
        assert_eq!(check(file.as_fd(), 8192), Ok(()));
        assert!(check(file.as_fd(), 4096).is_err());
    }

    #[test]
    fn memory_that_can_change_its_length_is_refused() {
        for seals in [
            SealFlags::SHRINK | SealFlags::GROW,
            SealFlags::SHRINK | SealFlags::SEAL,
            SealFlags::GROW | SealFlags::SEAL,
        ] {
            assert!(check(memory(8192, seals).as_fd(), 8192).is_err());
        }
    }

    #[test]
    fn other_files_are_refused() {
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        assert!(check(pipe.as_fd(), 0).is_err());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(check(file.as_fd(), 0).is_err());
    }
}
