//! The frame of every call from C: errors become `errno`, and panics are caught.

use std::panic::{AssertUnwindSafe, catch_unwind};

use posix::Errno;

use crate::errno_unsafe;

/// Runs a call; returns its value, or -1 with `errno`.
pub fn answer(call: impl FnOnce() -> Result<i64, Errno>) -> i64 {
    open(call).unwrap_or(-1)
}

/// Runs a call whose value fits an `int`.
pub fn answer_int(call: impl FnOnce() -> Result<i64, Errno>) -> i32 {
    let value = answer(call);
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// Runs a call; `None` after setting `errno`.
pub fn open<T>(call: impl FnOnce() -> Result<T, Errno>) -> Option<T> {
    // A panic ends the call's borrow of the context. Between statements every structure in the
    // context is consistent, so later calls may use it.
    let errno = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(errno)) => errno,
        Err(_) => Errno::IO,
    };
    errno_unsafe::set(errno);
    None
}
