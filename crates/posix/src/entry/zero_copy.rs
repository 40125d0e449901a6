//! `SO_ZEROCOPY` of one socket: its sends, and the notifications that wait.

use std::cell::Cell;
use std::collections::VecDeque;

use crate::number::MSG_ZEROCOPY;

/// The zero-copy sends of a socket.
#[derive(Debug, Default)]
pub(crate) struct ZeroCopy {
    /// `SO_ZEROCOPY`
    pub on: Cell<bool>,
    /// Number of bytes that were sent in all.
    sent: u64,
    /// The next send's number.
    next: u32,
    /// Sends that are not fully acknowledged: the position of their end (bytes sent in all), and
    /// their number.
    pub pending: VecDeque<(u64, u32)>,
    /// Notifications that wait: first and last number of sends.
    pub ready: VecDeque<(u32, u32)>,
}

impl ZeroCopy {
    /// The settings that an accepted connection inherits.
    pub fn inherited(&self) -> Self {
        Self {
            on: self.on.clone(),
            ..Self::default()
        }
    }

    /// Counts bytes that were sent, and the send if it is a zero-copy one.
    pub fn note_sent(&mut self, bytes: usize, flags: i32) {
        self.sent += bytes as u64;
        if flags & MSG_ZEROCOPY != 0 && self.on.get() && bytes > 0 {
            self.pending.push_back((self.sent, self.next));
            self.next = self.next.wrapping_add(1);
        }
    }

    /// True if no notification waits.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Notes that the peer has acknowledged all but `left` of the bytes sent. Returns the number of
    /// sends that this completes.
    pub fn note_left(&mut self, left: u64) -> u32 {
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
