//! Explicit congestion notification: routers mark segments instead of dropping them. One interface
//! covers classic and accurate ECN.
//!
//! ```text
//!   handshake   which kind is asked for, granted, given up            RFC 3168 6.1.1, RFC 9768 3.1
//!   classic     one echo a round trip, by ECE and CWR                 RFC 3168; RFC 8257 for DCTCP's receiver
//!   received    what of the peer's segments arrived how               RFC 9768 3.2: r.cep and the byte counters
//!   feedback    what the peer says of ours: newly marked segments     RFC 9768 3.2: s.cep, the option, wrapped counters
//!   option      when an AccECN option leaves, and how long it is      RFC 9768 3.2.3
//! ```
//!
//! [`EcnLine`](crate::ecn_mode::EcnLine) lies in the hot line and names the kind in one byte.
//! [`EcnState`] holds all other state, which is touched only if ECN is in use. Output calls
//! [`EcnState::dress`] for each segment. The steps pass each arrival to `Flight::note_arrival` and
//! each accepted text to [`EcnState::note_codepoint`]. Loss recovery calls `Snd::sees_ece` or
//! `Connection::take_feedback` for each ACK.

use wire::{Ecn, SeqNumber};

use crate::ecn::classic::OWED_MAX;
use crate::ecn::option_values::{ByteCounters, OptionSeen};

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::ecn_mode::EcnMode;
use crate::pack::Packing;
use crate::receive::Receiver;
use crate::segment::SegmentOut;
use crate::timers::Timers;
use crate::variables::{Rcv, Snd};

pub(crate) mod classic;
pub(crate) mod feedback;
pub(crate) mod handshake;
mod option;
pub(crate) mod option_values;
pub(crate) mod received;

pub use handshake::{EcnGrant, SynEcn};
pub(crate) use handshake::{EcnKind, HalfOpenEcn, dress_cookie, grant, granted_by_cookie};
pub use received::AccurateEcnInfo;

/// Bits of [`EcnState::flags`].
pub(crate) mod bit {
    /// A codepoint other than Not-ECT arrived: the peer really uses ECN.
    pub const SEEN: u8 = 1;
    /// Every segment is sent as ECN-capable, because the algorithm (DCTCP) relies on it.
    pub const ECT_ALWAYS: u8 = 1 << 1;
    /// Accurate: the next ACK without text reports the codepoint of the SYN or SYN-ACK that it
    /// answers.
    pub const REFLECT: u8 = 1 << 2;
    /// Accurate: the next text is acknowledged at once.
    pub const ACK_NEXT: u8 = 1 << 3;
    /// Accurate: the segment that completes the handshake is still to come.
    pub const THIRD_ACK: u8 = 1 << 4;
    /// Accurate: the segment that leaves carries a D-SACK.
    pub const DSACK_OUT: u8 = 1 << 5;
}

/// Parts of accurate ECN that do not work (the bits of Linux's `tcpi_accecn_fail_mode`).
pub(crate) mod fail {
    /// Our SYN-ACK with an ACE field had to be sent three times, so the path may drop segments with
    /// that field.
    pub const ACE_SEND: u8 = 1;
    /// The path altered the ACE field of the peer.
    pub const ACE_RECV: u8 = 1 << 1;
    /// ACKs with an AccECN option do not seem to arrive.
    pub const OPTION_SEND: u8 = 1 << 2;
    /// The path altered the peer's option, or the option never came.
    pub const OPTION_RECV: u8 = 1 << 3;
}

/// A connection's ECN state, except for its [`EcnLine`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EcnState {
    /// Bits of [`bit`].
    flags: u8,
    classic: ClassicEcn,
    accurate: AccurateEcn,
}

/// State of classic ECN.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClassicEcn {
    flags: u8,
    owed_len: u8,
    /// The owed ACKs that carry ECE, a bit for each; the lowest bit is the first ACK's.
    owed_echo: u8,
    /// DCTCP: RCV.NXT after the latest data segment; valid if `SEEN_NXT` is set.
    seen_nxt: SeqNumber,
    /// DCTCP: ACK numbers of the text that arrived before each change of the mark.
    owed: [u32; OWED_MAX],
}

impl Default for ClassicEcn {
    fn default() -> Self {
        ClassicEcn {
            flags: 0,
            owed_len: 0,
            owed_echo: 0,
            seen_nxt: SeqNumber(0),
            owed: [0; OWED_MAX],
        }
    }
}

/// State of accurate ECN.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AccurateEcn {
    /// Time at which an AccECN option was last sent, in microseconds. It wraps after an hour, when
    /// one additional option does no harm.
    option_sent_us: u32,
    /// Segments that arrived marked: r.cep without its initial value.
    received_ce: u32,
    /// Payload that arrived, by codepoint.
    received: ByteCounters,
    /// Payload of ours that the peer's options reported, by codepoint.
    delivered: ByteCounters,
    /// TS.Recent before the segment that is being processed.
    ts_before: u32,
    /// Segments that an ACK covers, in 1/64, averaged over 64 ACKs; 0: no ACK was seen.
    acked_average: u16,
    /// Marked segments that no ACK of ours has reported.
    ce_untold: u8,
    /// The codepoint that our SYN or SYN-ACK was sent with.
    syn_sent: Ecn,
    /// The codepoint that the peer's SYN or SYN-ACK arrived with.
    syn_received: Ecn,
    /// The codepoint of the latest segment.
    latest: Ecn,
    /// The codepoint that newly delivered bytes are added to if an ACK has no option; Not-ECT:
    /// none.
    estimate: Ecn,
    /// Kinds of options seen from the peer.
    option_seen: OptionSeen,
    /// Bits of [`fail`].
    failed: u8,
    /// Options that must still be sent, whatever the settings.
    demand: u8,
    /// Counters that the next option needs to report every change.
    fields_min: u8,
    /// The last segment carried both an option and a D-SACK.
    option_with_dsack: bool,
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

impl EcnState {
    /// Packs the state. A connection with accurate ECN is not packed, because it has too many
    /// counters.
    pub fn pack(&mut self, p: &mut impl Packing) {
        if !p.is_there(self, EcnState::default()) {
            return;
        }
        let EcnState {
            flags,
            classic,
            accurate,
        } = self;
        p.u8(flags, 0);
        classic.pack(p);
        let has_counters = p.is_there(accurate, AccurateEcn::default());
        p.must(!has_counters);
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(crate) fn put(&mut self, flag: u8, on: bool) {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, flag: u8) -> bool {
        let had = self.has(flag);
        self.put(flag, false);
        had
    }
}

impl EcnState {
    /// True if the peer has sent an ECN-capable segment.
    pub(crate) fn has_seen_ect(&self) -> bool {
        self.has(bit::SEEN)
    }
}

impl EcnState {
    /// Sets flags, codepoint and option of a segment without SYN. `fresh`: it carries data that was
    /// never sent before.
    #[inline]
    pub(crate) fn dress(
        &mut self,
        cx: &Cx<'_>,
        out: &mut SegmentOut,
        fresh: bool,
        snd: &Snd,
        timers: &Timers,
    ) {
        match snd.ecn().mode() {
            EcnMode::Off | EcnMode::Pending => {}
            EcnMode::Classic => self.dress_classic(out, fresh),
            EcnMode::Accurate => self.dress_accurate(cx, out, snd, timers),
        }
    }

    /// Notes the codepoint of a segment whose text was taken. RCV.NXT has moved.
    #[inline]
    pub(crate) fn note_codepoint(
        &mut self,
        cx: &mut Cx<'_>,
        codepoint: Ecn,
        conn_flags: &mut ConnFlags,
        snd: &Snd,
        rcv: &Rcv,
        rx: &mut Receiver,
    ) {
        match snd.ecn().mode() {
            EcnMode::Off | EcnMode::Pending => {}
            EcnMode::Classic => self.note_codepoint_classic(cx, codepoint, conn_flags, rcv, rx),
            EcnMode::Accurate => self.note_codepoint_accurate(cx, codepoint, conn_flags, rx),
        }
    }
}
