//! Pages for a whole mapping, before anything lies on it. A kernel that has none says so here by
//! an error. At the first touch it says so by SIGBUS. Called by [`memory`](crate::memory) and
//! [`tables`](crate::tables).

use core::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

/// Has the kernel bring in the pages of a mapping, as a write to each of them would.
pub(crate) fn fill(start: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the advice changes neither contents nor access of any page, and an address without a
    // mapping is an error.
    unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) }
}

/// The same for reserved huge pages. A mapping has the kernel's promise that enough are free, but a
/// control group's limit (`hugetlb.2MB.max`) and the memory nodes of a cpuset are looked at only
/// when a page is taken. False: the kernel withholds a page. Linux before 5.14 does not know the
/// advice, so the promise counts there.
pub(crate) fn fill_reserved(start: NonNull<u8>, bytes: usize) -> bool {
    matches!(fill(start, bytes), Ok(()) | Err(Errno::INVAL))
}
