//! The verdict whether a write is followed by `SIGPIPE`. Raising it is for the layer that knows the
//! thread.

use rustix::io::Errno;

use crate::number::MSG_NOSIGNAL;

/// Linux sends the calling thread `SIGPIPE` for every `EPIPE` that a call which sends returns,
/// unless `MSG_NOSIGNAL` is among its flags.
#[must_use]
pub fn owes_sigpipe<T>(outcome: &Result<T, Errno>, flags: i32) -> bool {
    matches!(outcome, Err(Errno::PIPE)) && flags & MSG_NOSIGNAL == 0
}
