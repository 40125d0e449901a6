//! The tail of a burst: full segments of new data that follow the first one and differ from it only
//! in their sequence numbers. They are counted, timed and recorded together, with the same result
//! as separate calls of [`Connection::poll_transmit`].

use wire::Ecn;
use wire::tcp::Flags;

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::flag;
use crate::segment::SegmentOut;

/// Segments that follow the segment sent last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BurstTail {
    /// Number of segments. Each carries as much payload as the one before it and begins where that
    /// one ends.
    pub segments: u32,
    /// The last segment carries PSH.
    pub ends_burst: bool,
}

impl Connection {
    /// Takes up to `segments_max` more segments like `first`, which
    /// [`poll_transmit`](Self::poll_transmit) has just built. The tail is empty if `first` is no
    /// full segment of new data, or if the next segment differs; `poll_transmit` builds that one.
    #[inline]
    pub fn poll_burst_tail(
        &mut self,
        cx: &mut Cx<'_>,
        first: &SegmentOut,
        segments_max: u32,
    ) -> BurstTail {
        let segments = self.segments_alike(cx, first).min(segments_max);
        if segments == 0 {
            return BurstTail::default();
        }
        self.note_burst_tail(cx, segments);
        BurstTail {
            segments,
            ends_burst: self.flight.delivery().burst_left() == 0,
        }
    }

    #[inline]
    fn segments_alike(&self, cx: &Cx<'_>, first: &SegmentOut) -> u32 {
        let mss = u32::from(self.snd.mss());
        let left = u32::from(self.flight.delivery().burst_left());
        let is_alike = left > 0
            && first.payload_len == mss
            && first.flags == Flags::ACK
            // A window that is shut for want of memory is advertised in one segment only.
            && first.window > 0
            && first.seq + mss == self.snd.nxt()
            && !self.conn_flags.any(ConnFlags::STOPS_BURST_TAIL)
            && self.rx.dup_acks_due() == 0
            && (self.snd.ecn().is_off() || self.has_plain_mark(first))
            && !self.flight.recovery().any(flag::SEND)
            && self.ecn.current_mss(cx, self.conn_flags, &self.snd, &self.timers, &self.rx) == mss;
        if !is_alike {
            return 0;
        }
        // The segment with the last byte is built separately, because it carries PSH or a FIN.
        let bytes = self
            .snd
            .unsent(self.state(), self.conn_flags)
            .saturating_sub(1)
            .min(self.snd.usable());
        let room = self
            .flight
            .congestion()
            .cwnd()
            .saturating_sub(self.flight.recovery().segments_in_flight());
        left.min(room).min(bytes / mss.max(1))
    }

    /// True if classic ECN is in use and `first` only says that it is ECN-capable. The segments
    /// behind it then say the same: CWR stands on one segment alone (RFC 3168, section 6.1.2), and
    /// ECE is as in `first`. Accurate ECN counts in the flags of every segment, but a card that
    /// cuts segments knows only CWR.
    #[cold]
    fn has_plain_mark(&self, first: &SegmentOut) -> bool {
        let ecn = self.snd.ecn();
        ecn.is_classic() && first.ecn == Ecn::Ect0 && !self.ecn.owes_ack(ecn)
    }

    /// Notes that `segments` full segments of new data leave within a burst.
    fn note_burst_tail(&mut self, cx: &mut Cx<'_>, segments: u32) {
        let bytes = segments * u32::from(self.snd.mss());
        cx.counters.segments_out += u64::from(segments);
        self.tx.count_segments(segments);
        match self.flight.pacing().is_on() {
            true => self.pace_burst_tail(cx, segments),
            false => {
                self.tx.count_text_segments(segments);
                self.flight.delivery_mut().take_tail(segments);
            }
        }
        self.flight.delivery_mut().count_fresh(bytes);
        // Only the PSH of the last byte is recorded. The PSH that ends a burst does not belong to
        // the text.
        self.flight
            .note_sent_new(cx, self.snd.nxt() + bytes, 0, &mut self.snd);
        self.flight.after_new_sent(
            cx,
            false,
            self.state(),
            &mut self.conn_flags,
            &self.snd,
            &mut self.timers,
        );
    }

    /// Paces the segments one by one: they leave at one moment, and each moves the time of the next
    /// burst.
    #[cold]
    fn pace_burst_tail(&mut self, cx: &Cx<'_>, segments: u32) {
        let mss = u32::from(self.snd.mss());
        for _ in 0..segments {
            self.tx.count_text_segments(1);
            self.flight.delivery_mut().take_tail(1);
            self.flight.pace(cx, mss, &self.tx);
        }
    }
}
