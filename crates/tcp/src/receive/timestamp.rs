//! The peer's timestamps: TS.Recent and protection against wrapped sequence numbers (RFC 7323 4 and
//! 5).

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::receive::Receiver;
use crate::segment::Segment;
use crate::timers::Timers;
use crate::timestamp::PAWS_SLACK;
use crate::variables::{Rcv, Snd};

impl Receiver {
    /// RFC 7323 5.3 R1: the timestamp is older than TS.Recent, by more than hosts may be off by
    /// (Linux), which is not itself outdated (5.5).
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

    /// RFC 7323 4.3: TS.Recent follows a segment that is no older, of an acceptable ACK, and that
    /// starts at or before Last.ACK.sent.
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
        // Older values get here that are older by no more than the slack, or of an ACK that was
        // overtaken, or when TS.Recent is outdated: only then they count.
        if behind > 0 && (behind <= PAWS_SLACK || !self.ts_recent_is_outdated(cx.now_ns)) {
            return;
        }
        rcv.set_ts_recent(stamp.value);
        self.note_timestamp(cx.now_ns);
    }
}
