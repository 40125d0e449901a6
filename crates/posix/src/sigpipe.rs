//! The rule by which a call raises `SIGPIPE`. Raising it is up to the crate that knows the thread.

use rustix::io::Errno;

use crate::number::MSG_NOSIGNAL;

/// True if the calling thread has to get `SIGPIPE`: for `EPIPE` from a call that sends without
/// `MSG_NOSIGNAL`, as in Linux.
#[must_use]
pub fn owes_sigpipe<T>(outcome: &Result<T, Errno>, flags: i32) -> bool {
    matches!(outcome, Err(Errno::PIPE)) && flags & MSG_NOSIGNAL == 0
}
