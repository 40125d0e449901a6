//! The calling thread's `errno`.

use posix::Errno;

/// Sets the calling thread's `errno`.
pub fn set(errno: Errno) {
    // SAFETY: libc gives each thread a place of its own, valid for the thread's life.
    unsafe { *libc::__errno_location() = errno.raw_os_error() };
}
