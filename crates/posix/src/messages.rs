//! `sendmmsg` and `recvmmsg`: one call for each message, and Linux's rules for where to stop.
//!
//! Owns nothing. The crates above have the messages' memory and make the single calls.

use rustix::io::Errno;

use crate::number::{MSG_DONTWAIT, MSG_WAITFORONE};

/// Messages that one call handles at most (`UIO_MAXIOV`). The caller sends the others with a next
/// call.
pub const MESSAGES_MAX: usize = 1024;

/// Sends up to `count` messages. `send` sends the message at an index and returns whether all of
/// its bytes were taken. The call ends after a message that was cut short. It does not report an
/// error after the first message.
///
/// # Errors
/// The error of the first message.
pub fn send_messages(
    count: usize,
    mut send: impl FnMut(usize) -> Result<bool, Errno>,
) -> Result<i64, Errno> {
    let mut done = 0;
    while done < count.min(MESSAGES_MAX) {
        match send(done) {
            Ok(is_whole) => {
                done += 1;
                if !is_whole {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done as i64)
}

/// Receives up to `count` messages. `receive` receives the message at an index with the given
/// flags. `is_over` is asked after each message. With `MSG_WAITFORONE` the call waits for the first
/// message only.
///
/// # Errors
/// The error of the first message. An error of a later message goes to `postpone`, which makes the
/// next call report it, as in Linux. `EAGAIN` is not such an error.
pub fn receive_messages(
    count: usize,
    mut flags: i32,
    mut receive: impl FnMut(usize, i32) -> Result<(), Errno>,
    is_over: impl Fn() -> bool,
    postpone: impl FnOnce(Errno),
) -> Result<i64, Errno> {
    let for_one = flags & MSG_WAITFORONE != 0;
    flags &= !MSG_WAITFORONE;
    let mut done = 0;
    while done < count.min(MESSAGES_MAX) {
        match receive(done, flags) {
            Ok(()) => done += 1,
            Err(errno) if done == 0 => return Err(errno),
            Err(Errno::AGAIN) => break,
            Err(errno) => {
                postpone(errno);
                break;
            }
        }
        if for_one {
            flags |= MSG_DONTWAIT;
        }
        if is_over() {
            break;
        }
    }
    Ok(done as i64)
}
