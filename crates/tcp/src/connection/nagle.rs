//! The segment sizes that may leave: the effective MSS, the sender's silly-window avoidance (RFC
//! 9293 3.8.6.2.1), Nagle's algorithm in Minshall's variant, and the cork.

use wire::SeqNumber;

use crate::connection::Connection;
use crate::context::Cx;
use crate::limits::{SEND_MSS_MIN, TIMESTAMP_OPTION_LEN};
use crate::marks::Marks;
use crate::recovery::flag;

/// Up to this window a peer is taken as small by nature, and segments may fill its window.
const SMALL_WINDOW_MAX: u32 = 536;

impl Connection {
    /// Computes Eff.snd.MSS (RFC 9293 3.7.1): the least of the peer's limit and the path's, less
    /// options. It is at most half of the largest window, so that two segments fit.
    pub(crate) fn refresh_mss(&mut self) {
        self.find_mss();
        self.tune.refresh_runs(&self.snd, &self.tx);
    }

    /// Computes the segment size alone. The caller refreshes the values that depend on it.
    pub(crate) fn find_mss(&mut self) {
        let options = if self.marks.has(Marks::TIMESTAMPS) {
            TIMESTAMP_OPTION_LEN
        } else {
            0
        };
        let base = self.tx.base_mss(options);
        let cutoff = if self.tx.max_wnd > SMALL_WINDOW_MAX {
            self.tx.max_wnd / 2
        } else {
            self.tx.max_wnd
        };
        self.snd.mss = if cutoff == 0 || cutoff >= u32::from(base) {
            base
        } else {
            // Below `base`, so it fits a u16.
            (cutoff as u16).max(SEND_MSS_MIN.min(base))
        };
    }

    /// The largest payload of a segment that leaves now: SACK blocks take their room from it.
    #[inline]
    pub(crate) fn current_mss(&self, cx: &Cx<'_>) -> u32 {
        u32::from(self.snd.mss - self.report_bytes(cx).min(self.snd.mss / 2))
    }

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
        let record = self.record_room();
        let want = unsent.min(mss).min(record);
        if want > usable {
            // The window cuts the segment: only behind full ones that leave with it, or overdue
            // (Linux).
            let worth = push || (self.delivery.burst_left() > 0 && !self.held_by_nagle());
            return (usable > 0 && worth).then_some(usable);
        }
        // F-RTO's test data does not wait to fill a segment (Linux); the window limits it like
        // other data.
        let overdue = push || self.recovery.any(flag::SEND_NEW);
        // The end of a record behind which more waits is as good as a full segment.
        if want == mss || (want == record && record < unsent) || overdue || (fin && want == unsent)
        {
            return Some(want);
        }
        if self.held_by_nagle() {
            None
        } else {
            Some(want)
        }
    }

    /// Bytes from SND.NXT to the end of the record that it is in.
    #[inline]
    pub(crate) fn record_room(&self) -> u32 {
        if !self.marks.has(Marks::RECORDS) {
            return u32::MAX;
        }
        let end = self.cold.record_ends.next_after(self.snd.nxt);
        end.map_or(u32::MAX, |end| end.since(self.snd.nxt))
    }

    /// The application ended a record before `seq` (MSG_EOR): no segment goes on there.
    pub(crate) fn ends_record(&self, seq: SeqNumber) -> bool {
        self.marks.has(Marks::RECORDS) && self.cold.record_ends.contains(seq)
    }

    /// A partial segment waits: a small one is in flight already (Minshall), or the cork is in.
    fn held_by_nagle(&self) -> bool {
        self.is_small_held() && !self.is_urgent()
    }

    fn is_small_held(&self) -> bool {
        if self.marks.any(Marks::CORK | Marks::MORE) {
            return true;
        }
        if self.marks.has(Marks::NODELAY) {
            return false;
        }
        self.tx.small_end.gt(self.snd.una) && self.tx.small_end.le(self.snd.nxt)
    }

    /// Something urgent is not acknowledged yet: nothing waits for the end of a segment meanwhile
    /// (Linux).
    pub(crate) fn is_urgent(&self) -> bool {
        self.marks.has(Marks::RECORDS) && self.cold.urgent_out.is_some()
    }
}
