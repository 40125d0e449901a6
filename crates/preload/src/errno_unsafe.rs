//! Results of exported calls: a failure becomes -1 and `errno`.

use posix::Errno;

/// Converts an outcome to C's return value; sets `errno` if it is an error.
#[inline]
pub fn c<T: TryFrom<i64> + From<i8>>(outcome: Result<i64, Errno>) -> T {
    match outcome {
        Ok(value) => T::try_from(value).unwrap_or_else(|_| fail(Errno::OVERFLOW)),
        Err(errno) => fail(errno),
    }
}

fn fail<T: From<i8>>(errno: Errno) -> T {
    set_errno(errno.raw_os_error());
    T::from(-1_i8)
}

/// Sets this thread's `errno`.
pub fn set_errno(errno: i32) {
    // SAFETY: libc's own place for this thread's errno.
    unsafe { *libc::__errno_location() = errno };
}

/// This thread's `errno`, which may be 0.
pub fn errno_number() -> i32 {
    // SAFETY: libc's own place for this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// The `errno` of a call of this thread's that failed.
pub fn errno() -> Errno {
    Errno::from_raw_os_error(errno_number())
}

/// The result of a libc call.
pub fn told(value: i64) -> Result<i64, Errno> {
    match value {
        -1 => Err(errno()),
        value => Ok(value),
    }
}
