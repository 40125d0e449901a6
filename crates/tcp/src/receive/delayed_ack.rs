//! The time of an acknowledgment (RFC 9293 3.8.6.3, RFC 5681 4.2, and Linux's rules). ACKs leave at
//! once while the connection is young or data is out of order, and with every second full segment.
//! Other ACKs wait for a segment to ride on, with a delay that follows the pace of arrivals.

use wire::SeqNumber;
use wire::tcp::Flags;

use crate::config::Config;
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::limits::timestamp_bytes;
use crate::path::Path;
use crate::receive::Receiver;
use crate::timers::{NEVER_NS, Timers};
use crate::variables::{Rcv, Snd};

/// Duplicate ACKs that leave at once before SACKs are held back: the peer's threshold (RFC 5681).
const DUP_ACKS_AT_ONCE: u8 = 3;
/// Least number of quick ACKs, which applies when the window is small.
const QUICK_ACKS_MIN: u32 = 2;

/// Reason to acknowledge. It decides when the ACK leaves, and whether the ACK counts as one that
/// text waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckKind {
    /// Text arrived. Its ACK may wait for a segment to ride on, or for more text (RFC 5681 4.2).
    Owed,
    /// The owed ACK has waited long enough: two full segments, a filled gap, quick ACKs, the end of
    /// its delay.
    Due,
    /// Text arrived beyond a gap. Each such ACK leaves separately, because the peer counts them
    /// (RFC 5681 4.2).
    Duplicate,
    /// Text arrived and was not taken: it is old, lies outside the window, or found no memory.
    Refusal,
    /// A segment was not acceptable, or is challenged (RFC 9293 3.10.7.4, RFC 5961).
    Answer,
    /// The peer's SYN is acknowledged.
    Handshake,
    /// The peer's FIN arrived.
    End,
    /// The peer should learn at once of a congestion mark, or of the end of a reduction (RFC 3168,
    /// 8257, 9768).
    Congestion,
    /// The application read, and the peer waits for a larger window or for this acknowledgment.
    WindowUpdate,
    /// Urgent data waits before a shut window; only an ACK brings its pointer through.
    Urgent,
}

impl AckKind {
    #[inline]
    pub(crate) const fn conn_flags(self) -> ConnFlags {
        match self {
            AckKind::Owed => ConnFlags::ACK_PENDING,
            AckKind::Duplicate | AckKind::Refusal => {
                ConnFlags::ACK_PENDING.with(ConnFlags::ACK_NOW)
            }
            AckKind::Due
            | AckKind::Answer
            | AckKind::Handshake
            | AckKind::End
            | AckKind::Congestion
            | AckKind::WindowUpdate
            | AckKind::Urgent => ConnFlags::ACK_NOW,
        }
    }
}

impl Receiver {
    /// True if ACKs leave at once: a limited number of them, and only if the application does not
    /// answer what it receives.
    pub(crate) fn in_quick_ack_mode(&self) -> bool {
        self.quick_acks > 0 && !self.interactive
    }

    /// Notes that our payload leaves soon after the peer's arrived: a dialogue, in which ACKs ride
    /// on answers.
    pub(crate) fn note_answer(&mut self, now_ns: u64) {
        let since_ns = now_ns.saturating_sub(self.last_data_ns);
        if self.ato_us > 0 && since_ns < u64::from(self.ato_us) * 1000 {
            self.interactive = true;
        }
    }

    /// True if an ACK that waited for reading is due, now that the application has read `copied`
    /// bytes.
    pub(crate) fn read_deserves_ack(&self, rcv: &Rcv, conn_flags: ConnFlags, copied: u32) -> bool {
        if !conn_flags.has(ConnFlags::ACK_PENDING) {
            return false;
        }
        let full = rcv.nxt().since(rcv.acked()) > u32::from(self.peer_segment);
        let message_read = copied > 0
            && (self.pushed > 1 || (self.pushed > 0 && !self.interactive))
            && self.charged == 0;
        full || message_read
    }

    pub(crate) fn raise_quick_acks(&mut self, acks_max: u8) {
        let segments = self.wnd / (2 * u32::from(self.peer_segment.max(1)));
        let segments = if segments == 0 {
            QUICK_ACKS_MIN
        } else {
            segments
        };
        let wanted = segments.min(u32::from(acks_max)) as u8;
        self.quick_acks = self.quick_acks.max(wanted);
    }

    /// Adapts the ACK delay to the gap between arrivals, within `min_us` and the timeout.
    #[inline(always)]
    pub(crate) fn learn_pace(&mut self, now_ns: u64, min_us: u32, rto_us: u32, config: &Config) {
        let gap_ns = now_ns.saturating_sub(self.last_data_ns);
        // Most segments arrive in the same turn as another, so the gap is zero and the division is
        // saved.
        let gap_us = if gap_ns == 0 {
            0
        } else {
            (gap_ns / 1000).min(u64::from(u32::MAX)) as u32
        };
        self.last_data_ns = now_ns;
        if self.ato_us == 0 {
            self.raise_quick_acks(config.quick_acks_max);
            self.ato_us = min_us;
        } else if gap_us <= min_us / 2 {
            self.ato_us = self.ato_us / 2 + min_us / 2;
        } else if gap_us < self.ato_us {
            self.ato_us = (self.ato_us / 2 + gap_us).min(rto_us);
        } else if gap_us > rto_us {
            // The peer was idle. It may be in slow start again and needs its ACKs soon.
            self.raise_quick_acks(config.quick_acks_max);
        }
    }

    /// Notes that an ACK leaves; `is_owed`: text waited for it.
    #[inline(always)]
    pub(crate) fn note_ack_sent(&mut self, is_owed: bool, cx: &Cx<'_>) {
        self.compressed = 0;
        self.pushed = 0;
        if is_owed && self.quick_acks > 0 {
            self.quick_acks -= 1;
            if self.quick_acks == 0 {
                self.ato_us = least_delay_us(cx);
            }
        }
    }

    /// Adapts the ACK delay when no segment came to ride on: it grows in a one-way flow, and starts
    /// over in a dialogue.
    pub(crate) fn miss_ride(&mut self, min_us: u32, rto_us: u32) {
        if self.interactive {
            self.restart_pace(min_us);
        } else {
            self.ato_us = self.ato_us.saturating_mul(2).min(rto_us);
        }
    }

    /// Sets the shortest delay, and expects no answers of the application.
    pub(crate) fn restart_pace(&mut self, min_us: u32) {
        self.interactive = false;
        self.ato_us = min_us;
    }

    /// Notes whether the application answers what it receives, so that ACKs ride on its answers.
    pub(crate) fn expect_answer(&mut self, is_expected: bool) {
        self.interactive = is_expected;
    }

    /// Ends quick ACKs, because the reader does not keep up.
    pub(crate) fn end_quick_acks(&mut self) {
        self.quick_acks = 0;
    }

    /// Notes the end of a message, or a full segment with PSH.
    #[inline(always)]
    pub(crate) fn note_pushed(&mut self) {
        self.pushed = self.pushed.max(1);
    }

    /// Notes a segment that looks like the end of a message.
    #[inline(always)]
    pub(crate) fn note_end_of_message(&mut self) {
        self.pushed = (self.pushed + 1).min(2);
    }

    /// Notes that no message has ended since the last ACK.
    pub(crate) fn settle_pushed(&mut self) {
        self.pushed = 0;
    }

    /// Sets the size of the peer's segments to `len` bytes, but at most to our limit.
    #[inline(always)]
    pub(crate) fn set_peer_segment(&mut self, len: u32) {
        // The announced size fits a u16.
        self.peer_segment = len.min(u32::from(self.advmss)) as u16;
    }

    /// Takes the size of the latest segment smaller than the estimate; 0: none.
    #[inline(always)]
    pub(crate) fn take_last_small(&mut self) -> u16 {
        core::mem::take(&mut self.last_small)
    }

    /// Notes a segment of `len` bytes, which is smaller than the estimate.
    #[inline(always)]
    pub(crate) fn note_small(&mut self, len: u32) {
        self.last_small = len as u16;
    }

    /// Owes one more duplicate ACK.
    #[inline(always)]
    pub(crate) fn owe_dup_ack(&mut self) {
        self.dup_acks_due = self.dup_acks_due.saturating_add(1);
    }

    /// Notes that an owed duplicate ACK leaves.
    #[inline(always)]
    pub(crate) fn pay_dup_ack(&mut self) {
        self.dup_acks_due = self.dup_acks_due.saturating_sub(1);
    }

    /// Drops the owed duplicate ACKs, because RCV.NXT moved.
    #[inline(always)]
    pub(crate) fn settle_dup_acks(&mut self) {
        self.dup_acks_due = 0;
    }

    /// True if a duplicate ACK for `nxt` may leave at once; it is counted then.
    pub(crate) fn sends_dup_ack_at_once(&mut self, nxt: SeqNumber) -> bool {
        if self.dup_acks_at != nxt {
            self.dup_acks_at = nxt;
            self.dup_acks_sent = 0;
        }
        let is_one_of_few = self.dup_acks_sent < DUP_ACKS_AT_ONCE;
        self.dup_acks_sent += u8::from(is_one_of_few);
        is_one_of_few
    }

    /// Holds one more SACK back. True if it is the first since the last ACK.
    pub(crate) fn hold_sack_back(&mut self) -> bool {
        self.compressed += 1;
        self.compressed == 1
    }
}

/// The shortest time for which an ACK is held back, in microseconds.
pub(crate) fn least_delay_us(cx: &Cx<'_>) -> u32 {
    (cx.config.delayed_ack_ns_min / 1000).clamp(1, u64::from(u32::MAX)) as u32
}

/// Smallest segment size, which every path carries. A smaller segment never counts as full.
const SEGMENT_MIN: u32 = 88;

const SEGMENT_DEFAULT: u32 = 536;

impl Receiver {
    /// Requests an ACK, to leave at once or when its time comes. No other function requests one.
    #[inline(always)]
    pub(crate) fn request_ack(&mut self, kind: AckKind, conn_flags: &mut ConnFlags) {
        if kind == AckKind::Duplicate {
            self.owe_dup_ack();
        }
        conn_flags.set(kind.conn_flags());
    }

    /// Decides when text that arrived is acknowledged.
    #[inline(always)]
    pub(crate) fn schedule_ack(
        &mut self,
        cx: &Cx<'_>,
        conn_flags: &mut ConnFlags,
        rcv: &Rcv,
        timers: &mut Timers,
    ) {
        self.request_ack(AckKind::Owed, conn_flags);
        // The delay ends with more than one full segment (RFC 9293 SHLD-19). But an ACK that would
        // have to shrink the window waits for the reader.
        let full = rcv.nxt().since(rcv.acked()) > u32::from(self.peer_segment());
        // `select_window` comes first, because it may end the quick ACKs.
        if (full && self.select_window(cx, rcv) >= self.wnd())
            || self.in_quick_ack_mode()
            || conn_flags.has(ConnFlags::ACK_NOW)
        {
            self.request_ack(AckKind::Due, conn_flags);
        } else if conn_flags.has(ConnFlags::OUT_OF_ORDER) {
            if !self.compresses_ack(cx, *conn_flags, rcv, timers) {
                self.request_ack(AckKind::Due, conn_flags);
            }
        } else {
            self.delay_ack(cx, conn_flags, timers);
        }
    }

    /// True if the due ACK may wait for the application's answer, so that one segment does for
    /// both. Such an ACK acknowledges a SYN-ACK, or text that only the quick ACKs of a young
    /// connection make due. (Linux waits like this for a pending write, in
    /// `tcp_rcv_synsent_state_process`.)
    #[inline(never)]
    pub(crate) fn ack_may_ride(&self, conn_flags: ConnFlags, snd: &Snd, rcv: &Rcv) -> bool {
        let tells_more = ConnFlags::ACK_TELLS_MORE
            .with(ConnFlags::NO_MEMORY)
            .with(ConnFlags::ORPHAN);
        if conn_flags.any(tells_more) || self.dup_acks_due() > 0 || !snd.ecn().is_off() {
            return false;
        }
        match rcv.nxt().since(rcv.acked()) {
            0 => self.ato_us() == 0,
            text => text <= u32::from(self.peer_segment()) && self.in_quick_ack_mode(),
        }
    }

    /// Begins quick ACKs after an unexpected segment, so that the peer recovers fast.
    pub(crate) fn enter_quick_ack(&mut self, cx: &Cx<'_>, acks_max: u8) {
        self.raise_quick_acks(acks_max);
        self.restart_pace(least_delay_us(cx));
    }

    /// TCP_QUICKACK: on, ACKs leave at once from now on; off, they wait for answers to ride on.
    /// Neither is permanent (Linux).
    pub(crate) fn put_quick_ack(&mut self, on: bool, conn_flags: &mut ConnFlags, rcv: &Rcv) {
        self.expect_answer(!on);
        if on && conn_flags.has(ConnFlags::ACK_PENDING) {
            self.note_pushed();
            if self.read_deserves_ack(rcv, *conn_flags, 1) {
                self.request_ack(AckKind::Due, conn_flags);
            }
        }
    }

    pub(crate) fn on_delayed_ack_timer(
        &mut self,
        cx: &mut Cx<'_>,
        conn_flags: &mut ConnFlags,
        timers: &mut Timers,
    ) {
        timers.arm_delayed_ack(NEVER_NS);
        if !conn_flags.has(ConnFlags::ACK_PENDING) {
            return;
        }
        self.request_ack(AckKind::Due, conn_flags);
        if self.compressed() > 0 {
            cx.counters.acks_compressed += u64::from(self.compressed()) - 1;
            return;
        }
        // No segment came to ride on: the delay grows in a one-way flow, and starts over in a
        // dialogue.
        self.miss_ride(least_delay_us(cx), timers.rtt().rto_us());
        cx.counters.delayed_acks_out += 1;
    }

    /// True if one more SACK may wait for others: SACK is in use, three duplicates have left at
    /// once, and not too many SACKs wait. Arms the timer that sends them.
    pub(crate) fn compresses_ack(
        &mut self,
        cx: &Cx<'_>,
        conn_flags: ConnFlags,
        rcv: &Rcv,
        timers: &mut Timers,
    ) -> bool {
        let config = cx.config;
        if !conn_flags.has(ConnFlags::SACK) || self.compressed() >= config.comp_sacks_max {
            return false;
        }
        if self.sends_dup_ack_at_once(rcv.nxt()) {
            return false;
        }
        let mut rtt_us = u64::from(self.tuning.rtt_us());
        let srtt_us = timers.rtt().srtt_ns() / 1000;
        if srtt_us > 0 {
            rtt_us = rtt_us.min(srtt_us);
        }
        let delay_ns =
            (rtt_us * 10 * u64::from(config.comp_sack_rtt_percent)).min(config.comp_sack_ns_max);
        if self.hold_sack_back() {
            // Without a known round trip the timer's slack is the whole delay, as in Linux.
            let at_ns = cx
                .now_ns
                .saturating_add(delay_ns + config.comp_sack_slack_ns);
            timers.arm_delayed_ack(timers.delayed_ack_ns().min(at_ns));
        }
        true
    }

    /// True if the next deadline is the end of a SACK's delay. Such a delay is a part of a round
    /// trip, and may be a millisecond.
    #[inline]
    pub(crate) fn waits_for_sacks(&self, timers: &Timers) -> bool {
        self.compressed() > 0 && timers.deadline_ns() == timers.delayed_ack_ns()
    }

    /// Holds the ACK back, unless the delay of an earlier one is about to end.
    fn delay_ack(&mut self, cx: &Cx<'_>, conn_flags: &mut ConnFlags, timers: &mut Timers) {
        let delay_ns = self.ack_delay_ns(cx, timers);
        let armed_ns = timers.delayed_ack_ns();
        let about_to_end =
            armed_ns != NEVER_NS && armed_ns <= cx.now_ns.saturating_add(delay_ns / 4);
        if delay_ns == 0 || about_to_end {
            self.request_ack(AckKind::Due, conn_flags);
            return;
        }
        timers.arm_delayed_ack(armed_ns.min(cx.now_ns.saturating_add(delay_ns)));
    }

    /// Estimates the size of the peer's full segments, for "every second segment" (Linux).
    #[inline]
    pub(crate) fn learn_segment_size(
        &mut self,
        bytes: u32,
        flags: Flags,
        conn_flags: ConnFlags,
        path: &Path,
    ) {
        let mut last_small = self.take_last_small();
        let advmss = u32::from(self.advmss());
        let len = match bytes <= advmss {
            true => bytes,
            false => self.size_on_the_wire(bytes, conn_flags, path),
        };
        let estimate = u32::from(self.peer_segment());
        if len > estimate && self.outgrows_its_mss(bytes, path) {
            last_small = 0;
        } else if len >= estimate {
            if len != estimate {
                self.learn_ratio(bytes, conn_flags);
            }
            self.set_peer_segment(len);
            if flags.contains(Flags::PSH) {
                self.note_pushed();
            }
            return;
        }
        let options = u32::from(timestamp_bytes(conn_flags.has(ConnFlags::TIMESTAMPS)));
        let plain = !flags.intersects(Flags::PSH | Flags::FIN | Flags::URG | Flags::SYN);
        if len + options >= SEGMENT_DEFAULT || (len + options >= SEGMENT_MIN && plain) {
            self.note_small(len);
            if len == u32::from(last_small) {
                self.set_peer_segment(len);
                return;
            }
        }
        self.note_end_of_message();
    }

    /// Takes a single segment larger than the peer's MSS. It shows that the peer's segments exceed
    /// its MSS, so earlier large segments that counted as several were single ones too. True for
    /// the first such segment; the estimate then becomes our own limit.
    #[inline(never)]
    fn outgrows_its_mss(&mut self, len: u32, path: &Path) -> bool {
        let outgrows = self.divides_segments
            && len > u32::from(path.peer_mss())
            && len < u32::from(self.advmss());
        if outgrows {
            self.divides_segments = false;
            self.set_peer_segment(u32::from(self.advmss()));
        }
        outgrows
    }

    /// Size of the segments that left the peer, for a segment larger than our limit. A multiple of
    /// the peer's MSS was merged on its way; any other large segment was sent like that.
    #[inline(never)]
    fn size_on_the_wire(&mut self, len: u32, conn_flags: ConnFlags, path: &Path) -> u32 {
        let options = u32::from(timestamp_bytes(conn_flags.has(ConnFlags::TIMESTAMPS)));
        let peers = u32::from(path.peer_mss())
            .saturating_sub(options)
            .min(u32::from(self.advmss()));
        let is_bounded = u32::from(self.peer_segment()) <= u32::from(path.peer_mss());
        if is_bounded && peers > 0 && len.is_multiple_of(peers) {
            self.divides_segments = true;
            peers
        } else {
            len
        }
    }

    /// The delay of an ACK, ns: the adaptive delay, at most a known round trip (if that exceeds the
    /// shortest delay), and at most the configured maximum.
    fn ack_delay_ns(&self, cx: &Cx<'_>, timers: &Timers) -> u64 {
        let min_ns = cx.config.delayed_ack_ns_min;
        let max_ns = timers.delayed_ack_ns_max(cx.config);
        let mut delay_ns = u64::from(self.ato_us()) * 1000;
        if delay_ns > min_ns && timers.rtt().srtt_us() > 0 {
            delay_ns = delay_ns.min(timers.rtt().srtt_ns().max(min_ns));
        }
        delay_ns.min(max_ns)
    }
}
