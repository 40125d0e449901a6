//! Accurate ECN's data receiver (RFC 9768 3.2): how the peer's segments arrived, counted and told.
//!
//! Each segment counts for `received_ce` (r.cep), its payload for the counter of its codepoint. The
//! ACE field of our segments is the former, plus five, modulo eight; the option holds the latter. A
//! change of the codepoint is acknowledged at once, and so are six marks that no ACK has reported
//! (3.2.2.5.1).

use wire::Ecn;

use super::EcnMode;
use super::option::{ByteCounters, OptionSeen};
use crate::counters::Counters;
use crate::ecn::option::field_of;
use crate::ecn::{EcnLine, EcnState, bit};

/// Initial value of the counters of marked segments on the wire (RFC 9768 3.2.1).
pub(crate) const CEP_INITIAL: u32 = 5;
/// Marks that may be untold before the next text is acknowledged at once (RFC 9768 3.2.2.5.1).
pub(crate) const CE_UNTOLD_MAX: u8 = 6;
/// Marked segments that no ACK has told of are counted no further.
pub(crate) const CE_COUNTED_MAX: u8 = 0xf;
/// An option is sent at least once for as many bytes of one codepoint: 2^22, a quarter of the
/// counter's range (RFC 9768 3.2.3.3).
pub(crate) const BYTES_TOLD_SHIFT: u32 = 22;

/// Ways in which accurate ECN was found not to work (the bits of Linux's `tcpi_accecn_fail_mode`).
pub(crate) mod fail {
    /// Our SYN-ACK with an ACE field had to be sent thrice: what we send may be dropped for it.
    pub const ACE_SEND: u8 = 1;
    /// The ACE field that arrives was altered.
    pub const ACE_RECV: u8 = 1 << 1;
    /// ACKs with an AccECN option do not seem to arrive.
    pub const OPTION_SEND: u8 = 1 << 2;
    /// The option that arrives was altered, or never came.
    pub const OPTION_RECV: u8 = 1 << 3;
}

/// State of accurate ECN.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AccurateEcn {
    /// When an AccECN option was last sent, in microseconds (wraps after an hour, when one more
    /// does no harm).
    pub option_sent_us: u32,
    /// Segments that arrived marked: r.cep without its initial value.
    pub received_ce: u32,
    /// Payload that arrived, by codepoint.
    pub received: ByteCounters,
    /// Payload of ours that the peer's options told of, by codepoint.
    pub delivered: ByteCounters,
    /// TS.Recent before the segment that is being taken.
    pub ts_before: u32,
    /// Segments that an ACK covers, in 1/64, averaged over 64 ACKs; 0 = none seen.
    pub acked_average: u16,
    /// Marked segments that no ACK of ours has told of.
    pub ce_untold: u8,
    /// The codepoint that our SYN or SYN-ACK was sent with.
    pub syn_sent: Ecn,
    /// The codepoint that the peer's SYN or SYN-ACK arrived with.
    pub syn_received: Ecn,
    /// The codepoint that last arrived.
    pub latest: Ecn,
    /// The codepoint to which bytes without an option are added; Not-ECT = none.
    pub estimate: Ecn,
    /// Kinds of options seen from the peer.
    pub option_seen: OptionSeen,
    /// Bits of [`fail`].
    pub failed: u8,
    /// Options that are to be sent whatever the settings save.
    pub demand: u8,
    /// Fields that the next option needs to report every change.
    pub fields_min: u8,
    /// The last segment carried both an option and a D-SACK.
    pub option_with_dsack: bool,
}

impl Default for AccurateEcn {
    fn default() -> Self {
        AccurateEcn {
            option_sent_us: 0,
            received_ce: 0,
            received: ByteCounters::default(),
            delivered: ByteCounters::default(),
            ts_before: 0,
            acked_average: 0,
            ce_untold: 0,
            syn_sent: Ecn::NotEct,
            syn_received: Ecn::NotEct,
            latest: Ecn::NotEct,
            estimate: Ecn::NotEct,
            option_seen: OptionSeen::None,
            failed: 0,
            demand: 0,
            fields_min: 0,
            option_with_dsack: false,
        }
    }
}

/// Counters of accurate ECN (the last fields of Linux's `tcp_info`). Bytes are payload: ECT(1),
/// ECT(0), CE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccurateEcnInfo {
    /// The kind of ECN in use.
    pub mode: EcnMode,
    /// The peer's AccECN options: 0 none came, 1 without counters, 2 with counters, 3 zeroed on the
    /// path.
    pub option_seen: u8,
    /// Parts found not to work: 1 our SYN-ACK's ACE field, 2 the peer's ACE field, 4 our option, 8
    /// the peer's option.
    pub fail_mode: u8,
    /// Segments that arrived marked.
    pub received_ce: u32,
    /// Payload of ours that the peer's options told of.
    pub delivered_bytes: [u32; 3],
    /// Payload that arrived.
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
    /// An option arrived: notes what it shows of its path.
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

    /// A segment with `len` bytes of payload arrived with this codepoint.
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
            // Two ACKs: the second one tells the new codepoint apart from the old.
            accurate.demand = 2;
            if changed {
                self.flags |= bit::ACK_NEXT;
            }
        }
    }

    /// An ACK leaves, so immediate reports are done.
    #[inline]
    pub(crate) fn note_ecn_told(&mut self, line: EcnLine) {
        if line.is_accurate() {
            self.put(bit::ACK_NEXT, false);
        }
    }

    /// The segment that leaves carries a D-SACK.
    pub(crate) fn note_dsack_out(&mut self) {
        self.put(bit::DSACK_OUT, true);
    }

    /// See [`dress_accurate`](Self::dress_accurate).
    pub(crate) fn sends_all_ecn_capable(&self, line: EcnLine) -> bool {
        let failed = fail::ACE_RECV | fail::ACE_SEND;
        line.is_accurate() && !self.accurate.has_failed(failed)
    }
}
