//! `MSG_ZEROCOPY`: sends that tell when their bytes are no longer needed, by the socket's error queue.
//!
//! What is sent is copied into the socket's chunks before the call returns, and the notification says so (`SO_EE_CODE_ZEROCOPY_COPIED`), as Linux does where
//! it has to copy after all. Sends are numbered from 0 on; a number's notification comes when the peer has acknowledged the last of its bytes, and neighbours that
//! nobody has fetched yet become one.

use std::cell::Cell;
use std::collections::VecDeque;

use crate::number::*;
use crate::open::info;
use crate::request::ControlMessage;
use crate::sockets::{Entry, File};

/// What a socket remembers of its sends.
#[derive(Debug, Default)]
pub(crate) struct ZeroCopy {
    /// `SO_ZEROCOPY`
    pub on: Cell<bool>,
    /// Bytes that were sent in all.
    sent: u64,
    /// The next send's number.
    next: u32,
    /// Sends whose bytes are not all acknowledged: where they end, and their numbers.
    pending: VecDeque<(u64, u32)>,
    /// Notifications: first and last number.
    ready: VecDeque<(u32, u32)>,
}

impl ZeroCopy {
    /// What an accepted connection begins with.
    pub fn inherited(&self) -> Self {
        Self {
            on: self.on.clone(),
            ..Self::default()
        }
    }

    /// `bytes` were sent.
    pub fn note_sent(&mut self, bytes: usize, flags: i32) {
        self.sent += bytes as u64;
        if flags & MSG_ZEROCOPY != 0 && self.on.get() && bytes > 0 {
            self.pending.push_back((self.sent, self.next));
            self.next = self.next.wrapping_add(1);
        }
    }

    /// No notification waits.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Of what was sent, `left` bytes are not acknowledged: so many sends are over by it.
    fn note_left(&mut self, left: u64) -> u32 {
        let mut count = 0;
        let acked = self.sent.saturating_sub(left);
        while let Some(&(end, number)) = self.pending.front()
            && end <= acked
        {
            self.pending.pop_front();
            count += 1;
            match self.ready.back_mut() {
                Some((_, last)) if last.wrapping_add(1) == number => *last = number,
                _ => self.ready.push_back((number, number)),
            }
        }
        count
    }
}

/// Finds out what has been acknowledged: so many sends.
pub(crate) fn look(entry: &mut Entry) -> u32 {
    if entry.zero_copy.pending.is_empty() {
        return 0;
    }
    // Of a connection that is gone nothing is needed any more.
    let left = match &entry.file {
        File::Stream(stream) => info(stream).ok().flatten().map_or(0, |i| i.send_buffered),
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
    crate::error_queue::message(is_v6, data)
}

const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_nobody_fetched_become_one() {
        let mut sends = ZeroCopy::default();
        sends.note_sent(5, MSG_ZEROCOPY);
        assert!(sends.pending.is_empty(), "the option is off");
        sends.on.set(true);
        for bytes in [10, 0, 20, 30] {
            sends.note_sent(bytes, MSG_ZEROCOPY);
        }
        sends.note_left(50);
        assert_eq!(sends.ready, [(0, 0)]);
        sends.note_left(0);
        assert_eq!(sends.ready, [(0, 2)]);
        sends.ready.clear();
        sends.note_sent(1, MSG_ZEROCOPY);
        sends.note_sent(1, 0);
        sends.note_left(1);
        assert_eq!(sends.ready, [(3, 3)]);
    }
}
