//! A descriptor that the script gave by its number.

use std::os::fd::BorrowedFd;

/// The descriptor `fd`, if it can be one.
pub fn borrow<'a>(fd: i32) -> Option<BorrowedFd<'a>> {
    // SAFETY: it is the caller's, who passes it in a call and so keeps it open meanwhile; if it is
    // not, the kernel says so.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}
