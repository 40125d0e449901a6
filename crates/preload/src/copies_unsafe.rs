//! Processes that were forked without libc's `fork`. No handler of ours has run in them, so they
//! have a copy of the parent's stack.

use ring::published::{Published32, Published64};

use crate::{own_process, stderr_unsafe};

/// A page that reads as zeros in a child that came by no `fork` of libc's; 0: there is none.
static PAGE: Published64 = Published64::new(0);

/// Notes that this process may use its table of descriptors.
pub fn note_process() {
    own_process::note();
    if PAGE.load() == 0 {
        // SAFETY: a new page, which stays as long as the process.
        let at = unsafe {
            let (none, kind) = (
                std::ptr::null_mut(),
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            );
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(none, PAGE_BYTES, access, kind, -1, 0);
            match at != libc::MAP_FAILED
                && libc::madvise(at, PAGE_BYTES, libc::MADV_WIPEONFORK) == 0
            {
                true => at,
                false => return,
            }
        };
        PAGE.store(at.expose_provenance() as u64);
    }
    let at = std::ptr::with_exposed_provenance_mut::<u8>(PAGE.load() as usize);
    // SAFETY: the page above, which only this function writes.
    unsafe { at.write_volatile(1) };
}

/// Bytes of the page.
const PAGE_BYTES: usize = 4096;

/// True in a child of `_Fork` or of the system call: it has a copy of the parent's stack, which it
/// must not drive.
#[inline]
pub fn is_copy() -> bool {
    let at = PAGE.load() as usize;
    // SAFETY: the page of `note_process`, which stays as long as the process.
    at != 0 && unsafe { std::ptr::with_exposed_provenance::<u8>(at).read_volatile() } == 0
}

/// Says that the process is such a child.
pub fn say_copy() {
    static HAS_SAID: Published32 = Published32::new(0);
    if HAS_SAID.load() == 0 {
        HAS_SAID.store(1);
        stderr_unsafe::say("millstream: a process that came by no `fork` of libc's: EBADF\n");
    }
}
