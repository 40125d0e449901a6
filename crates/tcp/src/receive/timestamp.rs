//! The peer's timestamps: TS.Recent, and protection against wrapped sequence numbers (RFC 7323 4
//! and 5).

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::receive::Receiver;
use crate::segment::Segment;
use crate::timers::Timers;
use crate::timestamp::PAWS_SLACK;
use crate::variables::{Rcv, Snd};

impl Receiver {
    /// True if PAWS rejects the segment (RFC 7323 5.3 R1): its timestamp is older than TS.Recent by
    /// more than Linux's slack, and TS.Recent is not outdated (5.5).
    pub(crate) fn paws_rejects(
        &self,
        cx: &Cx<'_>,
        seg: &Segment,
        conn_flags: ConnFlags,
        snd: &Snd,
        rcv: &Rcv,
        timers: &Timers,
    ) -> bool {
        let Some(stamp) = seg.options.timestamp else {
            return false;
        };
        let behind = rcv.ts_recent().wrapping_sub(stamp.value) as i32;
        if !conn_flags.has(ConnFlags::TIMESTAMPS)
            || behind <= PAWS_SLACK
            || timers.is_overtaken_ack(seg, behind, snd, rcv)
        {
            return false;
        }
        !self.ts_recent_is_outdated(cx.now_ns)
    }

    /// Updates TS.Recent (RFC 7323 4.3). The segment has an acceptable ACK, starts at or before
    /// Last.ACK.sent, and its timestamp is not older.
    #[inline]
    pub(crate) fn learn_timestamp(
        &mut self,
        cx: &Cx<'_>,
        seg: &Segment,
        conn_flags: ConnFlags,
        rcv: &mut Rcv,
    ) {
        let Some(stamp) = seg.options.timestamp else {
            return;
        };
        if !conn_flags.has(ConnFlags::TIMESTAMPS) || seg.seq.gt(rcv.acked()) {
            return;
        }
        let behind = rcv.ts_recent().wrapping_sub(stamp.value) as i32;
        // An older value counts only if TS.Recent is outdated. Within the slack, or on an ACK that
        // was overtaken, it passed PAWS but is not taken.
        if behind > 0 && (behind <= PAWS_SLACK || !self.ts_recent_is_outdated(cx.now_ns)) {
            return;
        }
        rcv.set_ts_recent(stamp.value);
        self.note_timestamp(cx.now_ns);
    }
}
