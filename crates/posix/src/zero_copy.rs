//! `MSG_ZEROCOPY`: the socket's error queue reports when the bytes of a send are no longer needed.
//!
//! The call copies the bytes into the socket's chunks before it returns, and the notification says
//! so (`SO_EE_CODE_ZEROCOPY_COPIED`), as Linux does where it has to copy. Sends are numbered from 0
//! on. A notification comes when the peer has acknowledged the last byte of a send. Consecutive
//! notifications that were not fetched yet become one.

use crate::entry::{Entry, File};
use crate::request::ControlMessage;

/// Updates which sends are acknowledged; returns the number of sends completed.
pub(crate) fn update(entry: &mut Entry) -> u32 {
    if entry.zero_copy.pending.is_empty() {
        return 0;
    }
    // A connection that is gone needs no bytes any more.
    let left = match &entry.file {
        File::Stream(stream) => stream.info().ok().flatten().map_or(0, |i| i.send_buffered),
        _ => 0,
    };
    entry.zero_copy.note_left(left.into())
}

/// The next notification.
pub(crate) fn next(entry: &mut Entry) -> Option<ControlMessage> {
    let (first, last) = entry.zero_copy.ready.pop_front()?;
    Some(notification(entry.is_v6, first, last))
}

/// A `struct sock_extended_err`.
fn notification(is_v6: bool, first: u32, last: u32) -> ControlMessage {
    let mut data = Vec::new();
    data.extend(0_u32.to_ne_bytes());
    data.extend([SO_EE_ORIGIN_ZEROCOPY, 0, SO_EE_CODE_ZEROCOPY_COPIED, 0]);
    data.extend(first.to_ne_bytes());
    data.extend(last.to_ne_bytes());
    ControlMessage::extended_error(is_v6, data)
}

const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;
