//! Explicit congestion notification: routers mark segments instead of dropping them. One interface
//! covers both kinds.
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
//! [`EcnState`] holds the rest, touched only if ECN is in use. Output asks [`EcnState::dress`] for
//! each segment. The steps show each arrival to `Flight::note_arrival` and each accepted text to
//! [`EcnState::note_codepoint`]. Loss recovery asks `Snd::sees_ece` or `Connection::take_feedback`
//! of each ACK.

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
    /// Every segment is sent as ECN-capable, since the algorithm relies on it (DCTCP).
    pub const ECT_ALWAYS: u8 = 1 << 1;
    /// Accurate: the next ACK without text repeats the codepoint of the SYN or SYN-ACK that it
    /// answers.
    pub const REFLECT: u8 = 1 << 2;
    /// Accurate: the next text is acknowledged at once.
    pub const ACK_NEXT: u8 = 1 << 3;
    /// Accurate: the segment that completes the handshake is still to come.
    pub const THIRD_ACK: u8 = 1 << 4;
    /// Accurate: the segment that leaves carries a D-SACK.
    pub const DSACK_OUT: u8 = 1 << 5;
}

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

/// A connection's part in ECN, beside its [`EcnLine`].
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
    /// The owed ACKs that carry ECE: the first one's is the lowest bit.
    owed_echo: u8,
    /// DCTCP: RCV.NXT after the latest data segment (`SEEN_NXT`).
    seen_nxt: SeqNumber,
    /// DCTCP: ACK numbers of the text that arrived before the mark changed.
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
    /// When an AccECN option was last sent, in microseconds (wraps after an hour, when one more
    /// does no harm).
    option_sent_us: u32,
    /// Segments that arrived marked: r.cep without its initial value.
    received_ce: u32,
    /// Payload that arrived, by codepoint.
    received: ByteCounters,
    /// Payload of ours that the peer's options told of, by codepoint.
    delivered: ByteCounters,
    /// TS.Recent before the segment that is being taken.
    ts_before: u32,
    /// Segments that an ACK covers, in 1/64, averaged over 64 ACKs; 0 = none seen.
    acked_average: u16,
    /// Marked segments that no ACK of ours has told of.
    ce_untold: u8,
    /// The codepoint that our SYN or SYN-ACK was sent with.
    syn_sent: Ecn,
    /// The codepoint that the peer's SYN or SYN-ACK arrived with.
    syn_received: Ecn,
    /// The codepoint that last arrived.
    latest: Ecn,
    /// The codepoint to which bytes without an option are added; Not-ECT = none.
    estimate: Ecn,
    /// Kinds of options seen from the peer.
    option_seen: OptionSeen,
    /// Bits of [`fail`].
    failed: u8,
    /// Options that are to be sent whatever the settings save.
    demand: u8,
    /// Fields that the next option needs to report every change.
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
    /// A connection with accurate ECN is not packed: its counters are many.
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
    /// The peer has sent a segment as ECN-capable.
    pub(crate) fn has_seen_ect(&self) -> bool {
        self.has(bit::SEEN)
    }
}

impl EcnState {
    /// Flags, codepoint and option of any segment without SYN. `fresh` = it carries data never sent
    /// before.
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

    /// The codepoint of a segment whose text was taken, RCV.NXT having moved.
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
