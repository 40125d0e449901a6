//! Accurate ECN's data receiver (RFC 9768 3.2): the codepoints of the peer's segments, counted and
//! reported.
//!
//! Each marked segment counts for `received_ce` (r.cep), and its payload for the counter of its
//! codepoint. The ACE field of our segments is `received_ce` plus five, modulo eight; the option
//! holds the byte counters. A change of the codepoint is acknowledged at once, and so are six marks
//! that no ACK has reported (3.2.2.5.1).

use wire::Ecn;

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::counters::Counters;
use crate::ecn::classic::QUICK_ACKS;
use crate::ecn::handshake::reflection;
use crate::ecn::option_values::OptionSeen;
use crate::ecn::option_values::field_of;
use crate::ecn::{AccurateEcn, fail};
use crate::ecn::{EcnState, bit};
use crate::ecn_mode::{EcnLine, EcnMode};
use crate::receive::Receiver;
use crate::receive::delayed_ack::AckKind;
use crate::segment::SegmentOut;
use crate::timers::Timers;
use crate::variables::Snd;

/// Initial value of the counters of marked segments on the wire (RFC 9768 3.2.1).
pub(crate) const CEP_INITIAL: u32 = 5;
/// Number of unreported marks at which the next text is acknowledged at once (RFC 9768 3.2.2.5.1).
pub(crate) const CE_UNTOLD_MAX: u8 = 6;
/// Limit of the count of unreported marks.
pub(crate) const CE_COUNTED_MAX: u8 = 0xf;
/// An option is sent at least once for every 2^22 bytes of one codepoint, a quarter of the
/// counter's range (RFC 9768 3.2.3.3).
pub(crate) const BYTES_TOLD_SHIFT: u32 = 22;

/// Counters of accurate ECN (the last fields of Linux's `tcp_info`). Bytes are payload, in the
/// order ECT(1), ECT(0), CE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccurateEcnInfo {
    /// The kind of ECN in use.
    pub mode: EcnMode,
    /// The peer's AccECN options: 0 none, 1 without counters, 2 with counters, 3 zeroed by the
    /// path.
    pub option_seen: u8,
    /// Parts found not to work: 1 our SYN-ACK's ACE field, 2 the peer's ACE field, 4 our option, 8
    /// the peer's option.
    pub fail_mode: u8,
    /// Segments that arrived marked.
    pub received_ce: u32,
    /// Payload bytes of ours that the peer's options reported.
    pub delivered_bytes: [u32; 3],
    /// Payload bytes that arrived.
    pub received_bytes: [u32; 3],
}

impl AccurateEcn {
    pub fn has_failed(&self, how: u8) -> bool {
        self.failed & how != 0
    }

    pub fn demand_at_least(&mut self, options: u8) {
        self.demand = self.demand.max(options);
    }
}

impl AccurateEcn {
    /// Notes what an option that arrived shows of its path.
    pub fn see_option(&mut self, option: &wire::tcp::AccEcn) {
        if self.option_seen < OptionSeen::Counters {
            self.option_seen = OptionSeen::of(option);
            if self.option_seen == OptionSeen::Zeroed {
                self.failed |= fail::OPTION_RECV;
            }
        }
    }
}

impl EcnState {
    /// Notes that parts of accurate ECN do not work: bits of [`fail`].
    pub(crate) fn fail(&mut self, how: u8) {
        self.accurate.failed |= how;
    }

    pub(crate) fn accurate_ecn_info(&self, line: EcnLine) -> AccurateEcnInfo {
        let accurate = &self.accurate;
        AccurateEcnInfo {
            mode: line.mode(),
            option_seen: accurate.option_seen as u8,
            fail_mode: accurate.failed,
            received_ce: accurate.received_ce,
            delivered_bytes: accurate.delivered.all(),
            received_bytes: accurate.received.all(),
        }
    }

    /// Counts a segment that arrived with this codepoint and `len` bytes of payload.
    pub(crate) fn count_arrival(&mut self, counters: &mut Counters, codepoint: Ecn, len: u32) {
        let marked = codepoint == Ecn::Ce;
        let accurate = &mut self.accurate;
        if codepoint != Ecn::NotEct {
            self.flags |= bit::SEEN;
            if marked {
                counters.ce_marks_in += 1;
                accurate.received_ce = accurate.received_ce.wrapping_add(1);
                accurate.ce_untold = (accurate.ce_untold + 1).min(CE_COUNTED_MAX);
                if accurate.ce_untold >= CE_UNTOLD_MAX {
                    self.flags |= bit::ACK_NEXT;
                }
            }
            if len > 0 {
                let before = accurate.received.of(codepoint);
                let after = before.wrapping_add(len);
                accurate.received.set(codepoint, after);
                accurate.fields_min = accurate.fields_min.max(field_of(codepoint));
                if before >> BYTES_TOLD_SHIFT != after >> BYTES_TOLD_SHIFT {
                    accurate.demand_at_least(1);
                }
            }
        }
        let changed = accurate.latest != codepoint;
        if changed || marked {
            accurate.latest = codepoint;
            // Two options: the second one shows that the codepoint did not change back.
            accurate.demand = 2;
            if changed {
                self.flags |= bit::ACK_NEXT;
            }
        }
    }

    /// Notes that an ACK leaves, so immediate reports are done.
    #[inline]
    pub(crate) fn note_ecn_told(&mut self, line: EcnLine) {
        if line.is_accurate() {
            self.put(bit::ACK_NEXT, false);
        }
    }

    /// Notes that the segment that leaves carries a D-SACK.
    pub(crate) fn note_dsack_out(&mut self) {
        self.put(bit::DSACK_OUT, true);
    }

    /// True if every segment is to be ECN-capable, as [`dress_accurate`](Self::dress_accurate)
    /// describes.
    pub(crate) fn sends_all_ecn_capable(&self, line: EcnLine) -> bool {
        let failed = fail::ACE_RECV | fail::ACE_SEND;
        line.is_accurate() && !self.accurate.has_failed(failed)
    }
}

impl EcnState {
    pub(crate) fn note_codepoint_accurate(
        &self,
        cx: &mut Cx<'_>,
        codepoint: Ecn,
        conn_flags: &mut ConnFlags,
        rx: &mut Receiver,
    ) {
        if codepoint == Ecn::NotEct && self.has(bit::SEEN) {
            // Most likely a retransmission, or a cleared codepoint: handled as under RFC 3168.
            rx.enter_quick_ack(cx, QUICK_ACKS);
        }
        if self.has(bit::ACK_NEXT) {
            rx.request_ack(AckKind::Congestion, conn_flags);
        }
    }

    /// Marks the segment ECN-capable. With accurate ECN every segment is, including ACKs and
    /// retransmissions (RFC 9768 3.1.5), unless the path drops such segments.
    pub(crate) fn dress_accurate(
        &mut self,
        cx: &Cx<'_>,
        out: &mut SegmentOut,
        snd: &Snd,
        timers: &Timers,
    ) {
        let dsack = self.take(bit::DSACK_OUT);
        let reflects = self.take(bit::REFLECT);
        if self.sends_all_ecn_capable(snd.ecn()) {
            out.ecn = Ecn::Ect0;
        }
        let accurate = &mut self.accurate;
        let ace = if reflects && out.payload_len == 0 {
            reflection(accurate.syn_received)
        } else {
            accurate.ce_untold = 0;
            (accurate.received_ce.wrapping_add(CEP_INITIAL) & 7) as u8
        };
        out.flags = out.flags.with_ace(ace);
        self.add_option(
            timers.rtt().srtt_ns() / 1000,
            cx.now_ns,
            cx.config,
            out,
            dsack,
        );
    }
}
