//! Descriptors that a script gives by number.

use std::os::fd::BorrowedFd;

/// The descriptor `fd`, unless the number is negative.
pub fn borrow<'a>(fd: i32) -> Option<BorrowedFd<'a>> {
    // SAFETY: the descriptor is the caller's, who passes it in a call and so keeps it open
    // meanwhile. If it is not open, the kernel reports that.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}
