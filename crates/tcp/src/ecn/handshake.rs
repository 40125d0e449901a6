//! Negotiation of ECN: the kind that a SYN requests, the kind that is granted, and the reasons to
//! give ECN up.
//!
//! ```text
//!   SYN       AE CWR ECE   111 accurate (so are all others but these)   011 classic   000 none
//!   SYN-ACK                010 011 100 110 accurate: the SYN came as Not-ECT, ECT(1), ECT(0), CE
//!                          001 classic   000 none   111 none, a mirror   101 reserved: accurate
//!   third ACK              as the SYN-ACK, of the codepoint that the SYN-ACK came with
//! ```
//!
//! The rules are those of RFC 9768 3.1 with Linux's choices: two SYNs request accurate ECN, later
//! ones none; two SYN-ACKs carry the ACE field, the first one also the option (3.1.4). Feedback
//! that no router can have caused means that the path alters the field. Then none of our segments
//! is ECN-capable, while received marks are reported as before (3.2.2.3).

use wire::Ecn;
use wire::tcp::{AccEcn, Flags};

use crate::config::{Config, CongestionAlgorithm};
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::ecn::fail;
use crate::ecn::option_values::{OptionSeen, initial_option, micros};
use crate::ecn::{EcnState, bit};
use crate::ecn_mode::{EcnLine, EcnMode};
use crate::opening::Opening;
use crate::segment::{Segment, SegmentOut};
use crate::timers::Timers;
use crate::variables::Snd;

/// Number of SYNs that request accurate ECN, and of SYN-ACKs of a crossed open that carry its
/// option (RFC 9768 3.1.4.1).
pub(crate) const ASKS_MAX: u8 = 2;
/// Number of SYN-ACKs with an ACE field that may be lost before the field itself is suspected as
/// the cause.
pub(crate) const SYN_ACKS_TRUSTED_MAX: u8 = 2;
/// ACE field of a SYN that asks for accurate ECN.
pub(crate) const ACE_ASKS: u8 = 0b111;
/// ECE and CWR: the ACE field of a SYN that asks for classic ECN.
pub(crate) const ACE_ASKS_CLASSIC: u8 = 0b011;
/// ECE: classic ECN is granted.
pub(crate) const ACE_CLASSIC: u8 = 0b001;

/// The ACE field that reports the codepoint with which a SYN or SYN-ACK arrived (RFC 9768 tables 2
/// and 3).
pub(crate) fn reflection(arrived: Ecn) -> u8 {
    match arrived {
        Ecn::NotEct => 0b010,
        Ecn::Ect1 => 0b011,
        Ecn::Ect0 => 0b100,
        Ecn::Ce => 0b110,
    }
}

/// The codepoint with which our segment arrived, from the peer's ACE field. A value that no
/// handshake segment carries is read as in Linux.
pub(crate) fn reflected(ace: u8) -> Ecn {
    match ace & 7 {
        0b010 => Ecn::NotEct,
        0b110 => Ecn::Ce,
        0b000 | 0b100 => Ecn::Ect0,
        _ => Ecn::Ect1,
    }
}

/// True if a path can cause this change: it marks an ECN-capable segment, or changes one
/// ECN-capable codepoint into the other (RFC 9768 3.2.2.3).
pub(crate) fn is_possible(sent: Ecn, arrived: Ecn) -> bool {
    sent == arrived || (sent != Ecn::NotEct && arrived != Ecn::NotEct && sent != Ecn::Ce)
}

/// The ECN request of a SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SynEcn {
    /// The ACE field (AE, CWR and ECE), from 0 to 7.
    pub ace: u8,
    /// The codepoint with which the SYN arrived.
    pub codepoint: Ecn,
}

impl SynEcn {
    /// The ECN request of this SYN.
    #[must_use]
    pub fn of(seg: &Segment) -> SynEcn {
        SynEcn {
            ace: seg.flags.ace(),
            codepoint: seg.ecn,
        }
    }

    /// True if the SYN requests accurate ECN: any combination without another meaning does, for the
    /// sake of future extensions (RFC 9768 3.1.2).
    pub(crate) fn asks_for_accurate(self) -> bool {
        self.ace != 0 && self.ace != ACE_ASKS_CLASSIC
    }

    pub(crate) fn asks_for_classic(self) -> bool {
        self.ace & ACE_ASKS_CLASSIC == ACE_ASKS_CLASSIC
    }
}

/// The kind of ECN that is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EcnKind {
    None,
    Classic,
    Accurate,
}

/// The kind of ECN that a SYN is granted. A request for classic ECN in an ECN-capable packet is not
/// trusted: no RFC 3168 sender does that, so the path seems to set bits at random (Linux).
/// Exceptions are DCTCP, which sends such SYNs, and SYNs with AE, which come from newer stacks.
pub(crate) fn grant(config: &Config, congestion: CongestionAlgorithm, syn: SynEcn) -> EcnKind {
    if syn.asks_for_accurate() && config.ecn.grants_accurate() {
        return EcnKind::Accurate;
    }
    let honest = syn.codepoint == Ecn::NotEct || syn.ace == ACE_ASKS;
    let granted = congestion.wants_ecn() || (config.ecn.grants() && honest);
    if syn.asks_for_classic() && granted {
        EcnKind::Classic
    } else {
        EcnKind::None
    }
}

/// The agreement of a completed passive handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcnGrant {
    /// No ECN.
    #[default]
    None,
    /// Classic ECN, RFC 3168.
    Classic,
    /// Accurate ECN, RFC 9768.
    Accurate(AccurateGrant),
}

impl EcnGrant {
    /// Accurate ECN without knowledge of the handshake's codepoints.
    pub const ACCURATE: EcnGrant = EcnGrant::Accurate(AccurateGrant {
        syn_received: Ecn::NotEct,
        syn_ack_sent: Ecn::NotEct,
        failed: 0,
        option_seen: OptionSeen::None,
    });
}

/// The state of accurate ECN when a passive handshake completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccurateGrant {
    /// The codepoint that the latest SYN arrived with.
    pub(crate) syn_received: Ecn,
    /// The codepoint of our SYN-ACK.
    pub(crate) syn_ack_sent: Ecn,
    pub(crate) failed: u8,
    pub(crate) option_seen: OptionSeen,
}

/// ECN state of a half-open entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HalfOpenEcn {
    kind: EcnKind,
    /// The SYN-ACK is sent as ECN-capable (DCTCP).
    capable: bool,
    /// The SYN-ACK is sent without an ACE field, because those with one do not seem to arrive.
    mute: bool,
    syn_received: Ecn,
    failed: u8,
    option_seen: OptionSeen,
}

impl HalfOpenEcn {
    pub fn new(kind: EcnKind, congestion: CongestionAlgorithm, syn: SynEcn) -> HalfOpenEcn {
        HalfOpenEcn {
            kind,
            capable: kind != EcnKind::None && congestion.wants_ecn(),
            mute: false,
            syn_received: syn.codepoint,
            failed: 0,
            option_seen: OptionSeen::None,
        }
    }

    fn is_accurate(&self) -> bool {
        self.kind == EcnKind::Accurate
    }

    /// Adds ECN to a SYN-ACK that is complete otherwise. `sent`: its number, from 1 on.
    pub fn dress(&mut self, config: &Config, out: &mut SegmentOut, sent: u8) {
        if self.capable {
            out.ecn = Ecn::Ect0;
        }
        match self.kind {
            EcnKind::None => {}
            EcnKind::Classic => out.flags |= Flags::ECE,
            EcnKind::Accurate => {
                if !self.mute {
                    out.flags = out.flags.with_ace(reflection(self.syn_received));
                }
                if sent <= 1 {
                    initial_option(config, &mut out.options);
                } else if sent > SYN_ACKS_TRUSTED_MAX {
                    self.failed |= fail::ACE_SEND;
                }
            }
        }
    }

    /// Notes that the SYN-ACK is sent again, after `timeouts` earlier timeouts. From the second
    /// repetition on it has no ACE field (RFC 9768 3.1.4.2).
    pub fn on_retransmission(&mut self, timeouts: u8) {
        self.mute = self.is_accurate() && timeouts > 0;
    }

    /// Takes a repeated SYN.
    pub fn take_retransmitted_syn(&mut self, syn: SynEcn) {
        if self.is_accurate() {
            self.syn_received = syn.codepoint;
            if syn.ace == 0 {
                self.failed |= fail::ACE_RECV;
            }
        }
    }

    /// The agreement, when the handshake completes with a segment that has this option.
    pub fn granted(&self, option: &AccEcn) -> EcnGrant {
        match self.kind {
            EcnKind::None => EcnGrant::None,
            EcnKind::Classic => EcnGrant::Classic,
            EcnKind::Accurate => EcnGrant::Accurate(AccurateGrant {
                syn_received: self.syn_received,
                syn_ack_sent: if self.capable { Ecn::Ect0 } else { Ecn::NotEct },
                failed: self.failed,
                option_seen: if option.is_present() {
                    OptionSeen::of(option)
                } else {
                    self.option_seen
                },
            }),
        }
    }
}

/// Adds ECN to a SYN-ACK with a cookie. No entry counts how often it was sent, so each is treated
/// as the first.
pub(crate) fn dress_cookie(
    config: &Config,
    congestion: CongestionAlgorithm,
    kind: EcnKind,
    syn: SynEcn,
    out: &mut SegmentOut,
) {
    HalfOpenEcn::new(kind, congestion, syn).dress(config, out, 1);
}

/// The kind that a cookie granted. `remembered`: whether any kind was granted, from the timestamp
/// (`None`: there is no timestamp). The ACE field of the third ACK tells the kind (RFC 9768 5.1).
pub(crate) fn granted_by_cookie(
    config: &Config,
    congestion: CongestionAlgorithm,
    remembered: Option<bool>,
    seg: &Segment,
) -> EcnGrant {
    let granted = config.ecn.grants() || congestion.wants_ecn();
    let accurate = config.ecn.grants_accurate() && seg.flags.ace() > 1;
    match remembered {
        Some(true) | None if accurate => EcnGrant::ACCURATE,
        Some(true) if granted => EcnGrant::Classic,
        _ => EcnGrant::None,
    }
}

impl EcnState {
    /// The codepoint of our SYN or SYN-ACK.
    pub(crate) fn syn_codepoint(&self) -> Ecn {
        if self.has(bit::ECT_ALWAYS) {
            Ecn::Ect0
        } else {
            Ecn::NotEct
        }
    }

    pub(crate) fn take_accurate_syn_ack(&mut self, config: &Config, seg: &Segment) {
        self.see_handshake_option(seg, 2);
        let ace = seg.flags.ace();
        // As in Linux, feedback on our SYN is checked only if the SYN-ACK itself is marked.
        if seg.ecn == Ecn::Ce && (ace == 0b101 || self.believes_feedback(config, ace)) {
            self.accurate.received_ce = 1;
            self.accurate.ce_untold = 1;
        }
        self.put(bit::REFLECT, true);
    }

    /// Notes the peer's first option if a handshake segment brings it. The next `demand` segments
    /// then carry an option.
    pub(crate) fn see_handshake_option(&mut self, seg: &Segment, demand: u8) {
        let accurate = &mut self.accurate;
        if seg.options.accecn.is_present() && accurate.option_seen < OptionSeen::Counters {
            accurate.see_option(&seg.options.accecn);
            accurate.demand_at_least(demand);
        }
    }

    /// True if a path can have caused `ace`, the report about our SYN or SYN-ACK. Otherwise none of
    /// our segments is ECN-capable from now on.
    pub(crate) fn believes_feedback(&mut self, config: &Config, ace: u8) -> bool {
        let accurate = &mut self.accurate;
        let believed = !config.ecn_fallback || is_possible(accurate.syn_sent, reflected(ace));
        if !believed {
            accurate.failed |= fail::ACE_RECV;
        }
        believed
    }

    /// Takes a SYN or SYN-ACK in sequence in a synchronized state. The challenge ACK reports how it
    /// arrived.
    pub(crate) fn note_ecn_of_late_syn(&mut self, line: EcnLine, seg: &Segment) {
        if line.is_accurate() {
            self.accurate.syn_received = seg.ecn;
            self.see_handshake_option(seg, 1);
        }
    }

    /// Lets the next ACK report the codepoint of the SYN that it answers.
    pub(crate) fn reflect_next(&mut self, line: EcnLine) {
        let on = line.is_accurate();
        self.put(bit::REFLECT, on);
    }
}

impl EcnState {
    /// Requests ECN in our SYN, if the settings or the algorithm want it.
    pub(crate) fn ask_for_ecn(
        &mut self,
        config: &Config,
        choice: CongestionAlgorithm,
        snd: &mut Snd,
    ) {
        let mode = if config.ecn.asks_for_accurate() {
            EcnMode::Pending
        } else if config.ecn.asks_for_classic() || choice.wants_ecn() {
            EcnMode::Classic
        } else {
            EcnMode::Off
        };
        self.put_ecn_mode(mode, choice, snd);
    }

    fn put_ecn_mode(&mut self, mode: EcnMode, choice: CongestionAlgorithm, snd: &mut Snd) {
        snd.set_ecn(EcnLine::of(mode));
        self.put(bit::ECT_ALWAYS, mode != EcnMode::Off && choice.wants_ecn());
    }

    /// Sets the agreement of a passive handshake. The segment that completed it is still to be
    /// processed.
    pub(crate) fn put_ecn(
        &mut self,
        granted: EcnGrant,
        choice: CongestionAlgorithm,
        snd: &mut Snd,
    ) {
        match granted {
            EcnGrant::None => self.put_ecn_mode(EcnMode::Off, choice, snd),
            EcnGrant::Classic => self.put_ecn_mode(EcnMode::Classic, choice, snd),
            EcnGrant::Accurate(grant) => {
                self.put_ecn_mode(EcnMode::Accurate, choice, snd);
                let accurate = &mut self.accurate;
                accurate.syn_sent = grant.syn_ack_sent;
                accurate.syn_received = grant.syn_received;
                accurate.latest = grant.syn_received;
                accurate.failed = grant.failed;
                accurate.option_seen = grant.option_seen;
                if grant.option_seen == OptionSeen::Zeroed {
                    accurate.failed |= fail::OPTION_RECV;
                }
                accurate.demand = 1;
                self.put(bit::THIRD_ACK, true);
            }
        }
    }

    /// Sets the agreement for a SYN with a good cookie (RFC 7413). The SYN itself is the first
    /// segment that counts.
    pub(crate) fn put_ecn_of_fast_open(
        &mut self,
        cx: &mut Cx<'_>,
        kind: EcnKind,
        syn: SynEcn,
        choice: CongestionAlgorithm,
        snd: &mut Snd,
    ) {
        let entry = HalfOpenEcn::new(kind, choice, syn);
        self.put_ecn(entry.granted(&AccEcn::NONE), choice, snd);
        if snd.ecn().is_accurate() {
            self.count_arrival(cx.counters, syn.codepoint, 0);
        }
    }

    /// Adapts ECN to a changed congestion control algorithm.
    pub(crate) fn refresh_ecn(&mut self, choice: CongestionAlgorithm, snd: &Snd) {
        let on = snd.uses_ecn() && choice.wants_ecn();
        self.put(bit::ECT_ALWAYS, on);
    }

    /// Sets flags, codepoint and option of our SYN, or of a connection's SYN-ACK. By default a
    /// repeated SYN does not request classic ECN, because some paths drop such SYNs (RFC 3168
    /// 6.1.1.1). Accurate ECN is requested twice.
    pub(crate) fn dress_syn(
        &mut self,
        cx: &Cx<'_>,
        out: &mut SegmentOut,
        conn_flags: ConnFlags,
        snd: &Snd,
        opening: &Opening,
        timers: &Timers,
    ) {
        if snd.ecn().is_off() {
            return;
        }
        out.ecn = self.syn_codepoint();
        if out.flags.contains(Flags::ACK) {
            self.dress_syn_ack(cx, out, conn_flags, snd, opening, timers);
            return;
        }
        let persists = !cx.config.ecn_fallback;
        match snd.ecn().mode() {
            EcnMode::Pending if persists || timers.retransmits() < ASKS_MAX => {
                out.flags = out.flags.with_ace(ACE_ASKS);
            }
            EcnMode::Classic if persists || opening.is_first_syn() => {
                out.flags = out.flags.with_ace(ACE_ASKS_CLASSIC);
            }
            _ => {}
        }
        self.accurate.syn_sent = out.ecn;
    }

    /// Sets ECN of the SYN-ACK of a crossed open, or of a Fast Open.
    fn dress_syn_ack(
        &mut self,
        cx: &Cx<'_>,
        out: &mut SegmentOut,
        conn_flags: ConnFlags,
        snd: &Snd,
        opening: &Opening,
        timers: &Timers,
    ) {
        if snd.ecn().is_classic() {
            out.flags |= Flags::ECE;
        }
        if !snd.ecn().is_accurate() {
            return;
        }
        self.accurate.syn_sent = out.ecn;
        let fast = conn_flags.has(ConnFlags::FAST_OPENED);
        let tired = timers.retransmits() >= ASKS_MAX;
        if fast && tired {
            self.accurate.failed |= fail::ACE_SEND;
        } else {
            let reflected = reflection(self.accurate.syn_received);
            out.flags = out.flags.with_ace(reflected);
        }
        let again = if fast { opening.is_syn_sent() } else { tired };
        if !again {
            initial_option(cx.config, &mut out.options);
            self.accurate.option_sent_us = micros(cx.now_ns);
        }
    }

    /// Learns the kind from the answer to our SYN (RFC 9768 table 2), or from a SYN that crossed
    /// ours.
    pub(crate) fn learn_ecn(
        &mut self,
        cx: &Cx<'_>,
        seg: &Segment,
        choice: CongestionAlgorithm,
        snd: &mut Snd,
    ) {
        if snd.ecn().is_off() {
            return;
        }
        let syn = SynEcn::of(seg);
        let pending = snd.ecn().mode() == EcnMode::Pending;
        let mode = if seg.has(Flags::ACK) {
            match syn.ace {
                ACE_CLASSIC => EcnMode::Classic,
                // A reserved value, by which a future peer grants ECN. If our SYN requested classic
                // ECN, it means ECE without CWR.
                0b101 if !pending => EcnMode::Classic,
                0b000 | 0b111 => EcnMode::Off,
                _ if pending => EcnMode::Accurate,
                _ => EcnMode::Off,
            }
        } else if pending && syn.asks_for_accurate() {
            EcnMode::Accurate
        } else if syn.asks_for_classic() {
            EcnMode::Classic
        } else {
            EcnMode::Off
        };
        self.put_ecn_mode(mode, choice, snd);
        if mode != EcnMode::Accurate {
            return;
        }
        self.accurate.syn_received = seg.ecn;
        if seg.has(Flags::ACK) {
            self.take_accurate_syn_ack(cx.config, seg);
        } else {
            self.accurate.latest = seg.ecn;
        }
    }
}
