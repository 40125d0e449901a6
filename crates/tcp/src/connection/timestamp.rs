//! Timestamps (RFC 7323 3 to 5): our clock, TS.Recent, protection against wrapped sequence numbers.

use wire::tcp::Flags;

use crate::MILLISECOND_NS;
use crate::connection::Connection;
use crate::context::Cx;
use crate::marks::Marks;
use crate::segment::Segment;

impl Connection {
    /// TSval of a segment that leaves now: milliseconds plus the address pair's offset.
    pub(crate) fn ts_value(&self, now_ns: u64) -> u32 {
        self.clock_ms(now_ns).wrapping_add(self.tx.ts_offset)
    }

    /// Our timestamp clock without the offset.
    pub(crate) fn clock_ms(&self, now_ns: u64) -> u32 {
        (now_ns / MILLISECOND_NS) as u32
    }

    /// The echoed timestamp as a time of our clock.
    pub(crate) fn echo_ms(&self, seg: &Segment) -> Option<u32> {
        if !self.marks.has(Marks::TIMESTAMPS) {
            return None;
        }
        let echo = seg.options.timestamp?.echo;
        (echo != 0).then(|| echo.wrapping_sub(self.tx.ts_offset))
    }

    /// RFC 7323 5.3 R1: the timestamp is older than TS.Recent, by more than hosts may be off by
    /// (Linux), which is not itself outdated (5.5).
    pub(crate) fn paws_rejects(&self, cx: &Cx<'_>, seg: &Segment) -> bool {
        let Some(stamp) = seg.options.timestamp else {
            return false;
        };
        let behind = self.rcv.ts_recent.wrapping_sub(stamp.value) as i32;
        if !self.marks.has(Marks::TIMESTAMPS)
            || behind <= PAWS_SLACK
            || self.is_overtaken_ack(seg, behind)
        {
            return false;
        }
        !self.rx.ts_recent_is_outdated(cx.now_ns)
    }

    /// True for a bare ACK at its place without news, `behind_ms` old. Another ACK overtook it,
    /// which is no reason to answer (Linux).
    fn is_overtaken_ack(&self, seg: &Segment, behind_ms: i32) -> bool {
        let wnd = self.scaled_window(seg);
        let opens = seg.seq.gt(self.snd.wl1)
            || (seg.seq == self.snd.wl1 && (wnd > self.snd.wnd || wnd == 0));
        let longest_ms = self.tx.rtt.rto_ns() * 6 / 5 / MILLISECOND_NS;
        is_bare_ack(seg)
            && seg.seq == self.rcv.nxt
            && seg.ack == self.snd.una
            && !opens
            && i64::from(behind_ms) <= longest_ms as i64
    }

    /// RFC 7323 4.3: TS.Recent follows a segment that is no older, of an acceptable ACK, and that
    /// starts at or before Last.ACK.sent.
    #[inline]
    pub(crate) fn learn_timestamp(&mut self, cx: &Cx<'_>, seg: &Segment) {
        let Some(stamp) = seg.options.timestamp else {
            return;
        };
        if !self.marks.has(Marks::TIMESTAMPS) || seg.seq.gt(self.rcv.acked) {
            return;
        }
        let behind = self.rcv.ts_recent.wrapping_sub(stamp.value) as i32;
        // Older values get here that are older by no more than the slack, or of an ACK that was
        // overtaken, or when TS.Recent is outdated: only then they count.
        if behind > 0 && (behind <= PAWS_SLACK || !self.rx.ts_recent_is_outdated(cx.now_ns)) {
            return;
        }
        self.rcv.ts_recent = stamp.value;
        self.rx.note_timestamp(cx.now_ns);
    }

    /// The round trip by the echoed timestamp (RFC 7323 4.1), for when the clock cannot tell which
    /// transmission was acknowledged.
    pub(crate) fn rtt_by_timestamp(&self, now_ns: u64, seg: &Segment) -> Option<u64> {
        if !self.marks.has(Marks::TIMESTAMPS) {
            return None;
        }
        let echo = seg.options.timestamp?.echo;
        let elapsed = self.ts_value(now_ns).wrapping_sub(echo);
        (echo != 0).then(|| elapsed_ns(elapsed)).flatten()
    }
}

/// Stamps of one host may be off by so much from one segment to the next (Linux's
/// `TCP_PAWS_WINDOW`).
const PAWS_SLACK: i32 = 1;

/// An echo as old as this, or from the future, tells nothing: so many microseconds a signed word
/// does not hold (Linux).
const ECHO_MS_MAX: u32 = i32::MAX as u32 / 1_000;

/// The round trip that an echo tells which is `elapsed_ms` old.
pub(crate) fn elapsed_ns(elapsed_ms: u32) -> Option<u64> {
    (elapsed_ms < ECHO_MS_MAX).then(|| u64::from(elapsed_ms.max(1)) * MILLISECOND_NS)
}

/// Nothing but an ACK.
pub(crate) fn is_bare_ack(seg: &Segment) -> bool {
    seg.has(Flags::ACK) && seg.seq_len() == 0
}

/// `a` is older than `b` on the timestamp circle.
pub(crate) fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
