//! The time of an acknowledgment (RFC 9293 3.8.6.3, RFC 5681 4.2, and Linux's habits). ACKs leave
//! at once while the connection is young or data is out of order, and with every second full
//! segment. Other ACKs wait for a segment to ride on, with a delay that follows the pace of
//! arrival.

use wire::tcp::Flags;

use crate::connection::Connection;
use crate::context::Cx;
use crate::limits::timestamp_bytes;
use crate::marks::Marks;

/// The least segment size, which every path carries: a smaller segment is not a full one.
const SEGMENT_MIN: u32 = 88;
const SEGMENT_DEFAULT: u32 = 536;

/// The reason to acknowledge. It decides when the ACK leaves and whether it counts as one that text
/// waits for.
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
    const fn marks(self) -> Marks {
        match self {
            AckKind::Owed => Marks::ACK_PENDING,
            AckKind::Duplicate | AckKind::Refusal => Marks::ACK_PENDING.with(Marks::ACK_NOW),
            AckKind::Due
            | AckKind::Answer
            | AckKind::Handshake
            | AckKind::End
            | AckKind::Congestion
            | AckKind::WindowUpdate
            | AckKind::Urgent => Marks::ACK_NOW,
        }
    }
}

impl Connection {
    /// An ACK is to leave, at once or when its time comes. Nothing else asks for one.
    #[inline(always)]
    pub(crate) fn request_ack(&mut self, kind: AckKind) {
        if kind == AckKind::Duplicate {
            self.rx.owe_dup_ack();
        }
        self.marks.set(kind.marks());
    }

    /// Payload arrived in order: learn the peer's segment size and pace, and what memory is worth.
    #[inline(always)]
    pub(crate) fn note_received(&mut self, cx: &Cx<'_>, len: u32, flags: Flags) {
        self.request_ack(AckKind::Owed);
        self.learn_segment_size(len, flags);
        self.measure_receive_window(cx);
        self.learn_pace(cx);
        if Self::is_telling(len) {
            self.grow_window(cx, len);
        }
    }

    /// Decides when what arrived is acknowledged.
    #[inline(always)]
    pub(crate) fn schedule_ack(&mut self, cx: &Cx<'_>) {
        self.request_ack(AckKind::Owed);
        // MAY hold more than one full segment's worth (SHLD-19); but an ACK that could not keep the
        // window open waits for the reader.
        let full = self.rcv.nxt.since(self.rcv.acked) > u32::from(self.rx.peer_segment());
        // The look at the window may end the quick ACKs: first.
        if (full && self.select_window(cx) >= self.rx.wnd())
            || self.rx.in_quick_ack_mode()
            || self.marks.has(Marks::ACK_NOW)
        {
            self.request_ack(AckKind::Due);
        } else if self.marks.has(Marks::OUT_OF_ORDER) {
            if !self.compresses_ack(cx) {
                self.request_ack(AckKind::Due);
            }
        } else {
            self.delay_ack(cx);
        }
    }

    /// The ACK that is due acknowledges a SYN-ACK, or less text than would make it due if the
    /// connection were not young: should the application answer at once, one segment does for both.
    /// (Linux waits so for a write that is pending already, in `tcp_rcv_synsent_state_process`.)
    #[inline(never)]
    pub(crate) fn ack_may_ride(&self) -> bool {
        let tells_more = Marks::ACK_TELLS_MORE
            .with(Marks::NO_MEMORY)
            .with(Marks::ORPHAN);
        if self.marks.any(tells_more) || self.rx.dup_acks_due() > 0 || !self.snd.ecn.is_off() {
            return false;
        }
        match self.rcv.nxt.since(self.rcv.acked) {
            0 => self.rx.ato_us() == 0,
            text => text <= u32::from(self.rx.peer_segment()) && self.rx.in_quick_ack_mode(),
        }
    }

    /// Something unexpected arrived: acknowledge at once for a while, so that the peer recovers
    /// fast.
    pub(crate) fn enter_quick_ack(&mut self, cx: &Cx<'_>, acks_max: u8) {
        self.rx.raise_quick_acks(acks_max);
        self.rx.restart_pace(least_delay_us(cx));
    }

    /// TCP_QUICKACK: on = acknowledge at once from now on; off = expect answers to ride on. Neither
    /// is permanent (Linux).
    pub(crate) fn put_quick_ack(&mut self, on: bool) {
        self.rx.expect_answer(!on);
        if on && self.marks.has(Marks::ACK_PENDING) {
            self.rx.note_pushed();
            if self.rx.read_deserves_ack(&self.rcv, self.marks, 1) {
                self.request_ack(AckKind::Due);
            }
        }
    }

    /// A segment with the ACK flag leaves.
    #[inline]
    pub(crate) fn note_ack_sent(&mut self, cx: &Cx<'_>) {
        self.rcv.acked = self.rcv.nxt;
        let is_owed = self.marks.has(Marks::ACK_PENDING);
        self.rx.note_ack_sent(is_owed, least_delay_us(cx));
        self.marks.clear(Marks::ACK_PENDING | Marks::ACK_NOW);
        self.ecn.note_ecn_told(self.snd.ecn);
        if self.tx.timers.delayed_ack_ns != crate::timers::NEVER_NS {
            self.arm_delayed_ack(crate::timers::NEVER_NS);
        }
    }

    pub(crate) fn on_delayed_ack_timer(&mut self, cx: &mut Cx<'_>) {
        self.arm_delayed_ack(crate::timers::NEVER_NS);
        if !self.marks.has(Marks::ACK_PENDING) {
            return;
        }
        self.request_ack(AckKind::Due);
        if self.rx.compressed() > 0 {
            cx.counters.acks_compressed += u64::from(self.rx.compressed()) - 1;
            return;
        }
        // No segment came to ride on: wait longer in a one-way flow, start over in a dialogue.
        self.rx.miss_ride(least_delay_us(cx), self.tx.rtt.rto_us);
        cx.counters.delayed_acks_out += 1;
    }

    /// True if one more SACK may wait for others: SACK is in use, three duplicates have left at
    /// once, and not too many wait. Arms the timer that sends them.
    pub(crate) fn compresses_ack(&mut self, cx: &Cx<'_>) -> bool {
        let config = cx.config;
        if !self.marks.has(Marks::SACK) || self.rx.compressed() >= config.comp_sacks_max {
            return false;
        }
        if self.rx.sends_dup_ack_at_once(self.rcv.nxt) {
            return false;
        }
        let mut rtt_us = u64::from(self.tune.rtt_us8 >> 3);
        let srtt_us = self.tx.rtt.srtt_ns() / 1000;
        if srtt_us > 0 {
            rtt_us = rtt_us.min(srtt_us);
        }
        let delay_ns =
            (rtt_us * 10 * u64::from(config.comp_sack_rtt_percent)).min(config.comp_sack_ns_max);
        if self.rx.hold_sack_back() {
            // Without a known round trip the timer's slack is the whole delay, as in Linux.
            let at_ns = cx
                .now_ns
                .saturating_add(delay_ns + config.comp_sack_slack_ns);
            self.arm_delayed_ack(self.tx.timers.delayed_ack_ns.min(at_ns));
        }
        true
    }

    /// True if the next deadline is the end of a SACK's delay. That delay is a part of a round
    /// trip, which may be a millisecond.
    #[inline]
    pub(crate) fn waits_for_sacks(&self) -> bool {
        self.rx.compressed() > 0 && self.deadline_ns == self.tx.timers.delayed_ack_ns
    }

    /// Holds the ACK back, unless the delay of an earlier one is about to end.
    fn delay_ack(&mut self, cx: &Cx<'_>) {
        let delay_ns = self.ack_delay_ns(cx);
        let armed_ns = self.tx.timers.delayed_ack_ns;
        let about_to_end = armed_ns != crate::timers::NEVER_NS
            && armed_ns <= cx.now_ns.saturating_add(delay_ns / 4);
        if delay_ns == 0 || about_to_end {
            self.request_ack(AckKind::Due);
            return;
        }
        self.arm_delayed_ack(armed_ns.min(cx.now_ns.saturating_add(delay_ns)));
    }

    /// The size of the peer's full segments, for "every second one" (Linux's estimate).
    #[inline]
    pub(crate) fn learn_segment_size(&mut self, bytes: u32, flags: Flags) {
        let mut last_small = self.rx.take_last_small();
        let advmss = u32::from(self.rx.advmss());
        let len = match bytes <= advmss {
            true => bytes,
            false => self.size_on_the_wire(bytes),
        };
        let estimate = u32::from(self.rx.peer_segment());
        if len > estimate && self.outgrows_its_mss(bytes) {
            last_small = 0;
        } else if len >= estimate {
            if len != estimate {
                self.learn_ratio(bytes);
            }
            self.rx.set_peer_segment(len);
            if flags.contains(Flags::PSH) {
                self.rx.note_pushed();
            }
            return;
        }
        let options = u32::from(timestamp_bytes(self.marks.has(Marks::TIMESTAMPS)));
        let plain = !flags.intersects(Flags::PSH | Flags::FIN | Flags::URG | Flags::SYN);
        if len + options >= SEGMENT_DEFAULT || (len + options >= SEGMENT_MIN && plain) {
            self.rx.note_small(len);
            if len == u32::from(last_small) {
                self.rx.set_peer_segment(len);
                return;
            }
        }
        self.rx.note_end_of_message();
    }

    /// A single segment larger than the peer's MSS shows that its MSS does not bound its segments.
    /// Earlier large segments, which counted as several, were then single ones too. True if this
    /// segment is the first to show it; the estimate then becomes our own limit.
    #[inline(never)]
    fn outgrows_its_mss(&mut self, len: u32) -> bool {
        let outgrows = self.cold.divides_segments
            && len > u32::from(self.tx.peer_mss)
            && len < u32::from(self.rx.advmss());
        if outgrows {
            self.cold.divides_segments = false;
            self.rx.set_peer_segment(u32::from(self.rx.advmss()));
        }
        outgrows
    }

    /// True for a segment larger than we allow whose size is a multiple of the peer's: it was
    /// merged on its way. Any other large segment was sent so.
    #[inline(never)]
    fn size_on_the_wire(&mut self, len: u32) -> u32 {
        let options = u32::from(timestamp_bytes(self.marks.has(Marks::TIMESTAMPS)));
        let peers = u32::from(self.tx.peer_mss)
            .saturating_sub(options)
            .min(u32::from(self.rx.advmss()));
        let is_bounded = u32::from(self.rx.peer_segment()) <= u32::from(self.tx.peer_mss);
        if is_bounded && peers > 0 && len.is_multiple_of(peers) {
            self.cold.divides_segments = true;
            peers
        } else {
            len
        }
    }

    /// The delay follows the gap between arrivals, between its minimum and the timeout.
    #[inline]
    fn learn_pace(&mut self, cx: &Cx<'_>) {
        let min_us = least_delay_us(cx);
        self.rx
            .learn_pace(cx.now_ns, min_us, self.tx.rtt.rto_us, cx.config);
    }

    /// The delay of an ACK: at most half a second in a one-way flow, the configured maximum in a
    /// dialogue or after a message, and never more than a known round trip.
    fn ack_delay_ns(&self, cx: &Cx<'_>) -> u64 {
        let min_ns = cx.config.delayed_ack_ns_min;
        let max_ns = self.cold.own_timers.delayed_ack_ns_max(cx.config);
        let mut delay_ns = u64::from(self.rx.ato_us()) * 1000;
        if delay_ns > min_ns && self.tx.rtt.srtt_us > 0 {
            delay_ns = delay_ns.min(self.tx.rtt.srtt_ns().max(min_ns));
        }
        delay_ns.min(max_ns)
    }
}

/// The least time for which an ACK is held back.
pub(crate) fn least_delay_us(cx: &Cx<'_>) -> u32 {
    (cx.config.delayed_ack_ns_min / 1000).clamp(1, u64::from(u32::MAX)) as u32
}
