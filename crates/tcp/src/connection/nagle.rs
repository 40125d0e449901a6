//! The segment sizes that may leave: the effective MSS, the sender's silly-window avoidance (RFC
//! 9293 3.8.6.2.1), Nagle's algorithm in Minshall's variant, and the cork.

use crate::connection::Connection;
use crate::marks::Marks;
use crate::recovery::flag;

impl Connection {
    /// Bytes of `unsent` that the next segment takes, at most `mss`; `None` = wait. `usable` is the
    /// room in the peer's window; `fin` = a FIN would ride on the last byte.
    pub(crate) fn segment_size(
        &self,
        mss: u32,
        unsent: u32,
        usable: u32,
        fin: bool,
    ) -> Option<u32> {
        let push = self.marks.has(Marks::PUSH_DUE);
        let record = self.tx.record_room(self.marks, &self.snd);
        let want = unsent.min(mss).min(record);
        if want > usable {
            // The window cuts the segment: only behind full ones that leave with it, or overdue
            // (Linux).
            let worth = push
                || (self.flight.delivery().burst_left() > 0
                    && !self.tx.held_by_nagle(self.marks, &self.snd));
            return (usable > 0 && worth).then_some(usable);
        }
        // F-RTO's test data does not wait to fill a segment (Linux); the window limits it like
        // other data.
        let overdue = push || self.flight.recovery().any(flag::SEND_NEW);
        // The end of a record behind which more waits is as good as a full segment.
        if want == mss || (want == record && record < unsent) || overdue || (fin && want == unsent)
        {
            return Some(want);
        }
        if self.tx.held_by_nagle(self.marks, &self.snd) {
            None
        } else {
            Some(want)
        }
    }
}
