//! SYN_RECEIVED of the passive path, as a compact entry (RFC 9293 section 3.10.7.4 for a connection
//! that came from LISTEN).
//!
//! The stack owns the entries, keyed by flow. It makes an entry from a [`SynRequest`], sends
//! [`HalfOpen::syn_ack`], and gives the entry the flow's segments and its timer. On
//! [`HalfOpenOutcome::Complete`] it makes a connection and gives it the same segment again, because
//! the segment may carry data, a FIN or a window. If the accept queue is full, the entry stays, and
//! the peer's next segment completes it again.
//!
//! ```text
//!   SYN ──► new ──► syn_ack ──┐◄── repeated SYN, timer (1 s, doubling)
//!                             ├──► final ACK: Complete        ├──► RST at RCV.NXT, out of retries: Gone
//!                             └──► wrong ACK: Reset, stays    └──► anything else: Drop or ChallengeAck
//! ```

use wire::SeqNumber;
use wire::tcp::{Flags, Options, Timestamp};

use crate::challenge::AckGate;
use crate::config::Config;
use crate::context::Cx;
use crate::ecn::{EcnKind, HalfOpenEcn, SynEcn, grant};
use crate::handshake::{Handshake, SynAckRepetitions, WindowScales};
use crate::isn::timestamp_value;
use crate::listen::{PassiveOpen, SynRequest};
use crate::segment::{Segment, SegmentOut};
use crate::state::IcmpError;
use crate::{MILLISECOND_NS, reset};

#[cfg(test)]
mod tests;

/// The action that the stack must take after a segment or a timer of a half-open connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum HalfOpenOutcome {
    /// Take no action.
    Drop,
    /// Send [`HalfOpen::syn_ack`] again.
    SendSynAck,
    /// Send this ACK; the entry stays.
    ChallengeAck(SegmentOut),
    /// Send this RST; the entry stays.
    Reset(SegmentOut),
    /// The handshake is complete: make the connection, give it this segment, remove the entry.
    Complete(Handshake),
    /// Remove the entry: back to LISTEN.
    Gone(GoneReason),
}

/// The reason why a half-open connection ended without a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoneReason {
    /// The peer sent a RST.
    Reset,
    /// The peer began anew with a SYN inside the window. Answer that SYN with [`reset::reply`]; the
    /// peer then sends it again.
    NewSyn,
    /// No answer to any SYN-ACK.
    TimedOut,
}

/// A half-open connection, 64 bytes.
#[derive(Clone, Debug)]
pub struct HalfOpen {
    deadline_ns: u64,
    /// Time at which the SYN-ACK was first sent, ns; 0: not yet.
    sent_ns: u64,
    iss: SeqNumber,
    irs: SeqNumber,
    ts_recent: u32,
    ts_offset: u32,
    /// The timestamp values of the first and the last SYN-ACK; an honest echo lies between them.
    ts_first: u32,
    ts_last: u32,
    gate: AckGate,
    mss: u16,
    peer_mss: u16,
    /// The window field of our SYN-ACK, not scaled.
    window: u16,
    /// SYN-ACKs sent, saturating.
    sent: u8,
    /// SYN-ACKs sent because the timer fired.
    retries: u8,
    our_shift: u8,
    peer_shift: u8,
    /// Number of timeouts during which a bare final ACK does not complete the handshake
    /// (TCP_DEFER_ACCEPT); 0: off.
    defer_accept: u8,
    /// The listener's limit of retransmissions; 0: the stack's setting.
    retries_max: u8,
    flags: u8,
    ecn: HalfOpenEcn,
}

const _: () = assert!(size_of::<HalfOpen>() <= 64);

const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
const WINDOW_SCALING: u8 = 4;
/// A bare final ACK came and did not complete the handshake (TCP_DEFER_ACCEPT).
const ACKED: u8 = 1 << 7;

impl HalfOpen {
    /// Grants the options that the SYN asks for and the settings allow, and arms the timer. Send
    /// [`HalfOpen::syn_ack`] next.
    #[must_use]
    pub fn new(cx: &mut Cx<'_>, syn: &SynRequest, open: &PassiveOpen) -> HalfOpen {
        let granted = Granted::of(cx.config, syn, open);
        let initial = open.initial_window(cx.config, granted.timestamps, granted.window_scaling);
        HalfOpen {
            deadline_ns: cx.now_ns + cx.config.rto_initial_ns,
            sent_ns: 0,
            iss: open.iss,
            irs: syn.irs,
            ts_recent: syn.timestamp.unwrap_or(0),
            ts_offset: open.ts_offset,
            ts_first: 0,
            ts_last: 0,
            gate: AckGate::default(),
            mss: open.mss,
            peer_mss: syn.send_mss(cx.config, open.is_v4),
            window: initial.syn_field(),
            sent: 0,
            retries: 0,
            our_shift: initial.shift,
            peer_shift: syn.window_scale.unwrap_or(0),
            defer_accept: open.defer_accept,
            retries_max: open.retries_max,
            flags: (u8::from(granted.timestamps) * TIMESTAMPS)
                | (u8::from(granted.sack) * SACK)
                | (u8::from(granted.window_scaling) * WINDOW_SCALING),
            ecn: HalfOpenEcn::new(granted.ecn, open.congestion, syn.ecn),
        }
    }

    /// The SYN-ACK, to be sent now.
    #[must_use]
    pub fn syn_ack(&mut self, cx: &mut Cx<'_>) -> SegmentOut {
        let ts_now = timestamp_value(cx.now_ns, self.ts_offset);
        if self.sent == 0 {
            self.sent_ns = cx.now_ns;
            self.ts_first = ts_now;
        } else {
            cx.counters.syn_acks_retransmitted += 1;
        }
        self.ts_last = ts_now;
        self.sent = self.sent.saturating_add(1);
        let mut out = syn_ack_segment(SynAck {
            iss: self.iss,
            irs: self.irs,
            window: self.window,
            mss: self.mss,
            shift: self.has(WINDOW_SCALING).then_some(self.our_shift),
            sack: self.has(SACK),
            timestamp: self.has(TIMESTAMPS).then_some(Timestamp {
                value: ts_now,
                echo: self.ts_recent,
            }),
        });
        self.ecn.dress(cx.config, &mut out, self.sent);
        out
    }

    /// Takes a segment of this flow.
    pub fn on_segment(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> HalfOpenOutcome {
        let is_old = self.is_old(seg);
        if self.is_retransmitted_syn(seg) && !is_old {
            return self.on_retransmitted_syn(cx, seg);
        }
        if seg.has(Flags::ACK) && !seg.has(Flags::RST) && seg.ack != self.iss + 1 {
            // As in Linux this check precedes that of the sequence number: the ACK belongs to
            // another connection, whose owner should learn of it.
            cx.counters.half_open_bad_ack += 1;
            return HalfOpenOutcome::Reset(reset::refuse(seg.ack));
        }
        if is_old {
            cx.counters.drop_paws += 1;
            return self.challenge(cx, seg);
        }
        if self.echo_is_forged(seg) {
            cx.counters.half_open_bad_echo += 1;
            return self.answer_invalid(cx, seg);
        }
        if !self.is_acceptable(seg) {
            cx.counters.drop_outside_window += u64::from(!seg.has(Flags::RST));
            return self.answer_invalid(cx, seg);
        }
        if seg.has(Flags::RST) {
            return self.on_reset(cx, seg);
        }
        if seg.has(Flags::SYN) && seg.seq != self.irs {
            // RFC 9293 3.10.7.4, fourth: a passive open returns to LISTEN. As in Linux a RST tells
            // the peer, which then starts over.
            cx.counters.half_open_new_syn += 1;
            return HalfOpenOutcome::Gone(GoneReason::NewSyn);
        }
        if !seg.has(Flags::ACK) {
            cx.counters.drop_no_ack += 1;
            return HalfOpenOutcome::Drop;
        }
        if self.retries < self.defer_accept && seg.end() == self.irs + 1 {
            // The application is woken only when there is something to read.
            cx.counters.half_open_deferred += 1;
            self.flags |= ACKED;
            return HalfOpenOutcome::Drop;
        }
        HalfOpenOutcome::Complete(self.handshake(cx, seg))
    }

    /// True if the entry ends because of an ICMP error that quotes our SYN-ACK with `quoted_seq`.
    /// No application is involved yet. As in Linux each address family has its own list of such
    /// errors.
    #[must_use]
    pub fn ends_by_icmp(&self, kind: IcmpError, quoted_seq: SeqNumber, is_v4: bool) -> bool {
        let counts = match kind {
            IcmpError::NetUnreachable | IcmpError::HostUnreachable | IcmpError::TimeExceeded => {
                is_v4
            }
            IcmpError::AccessDenied | IcmpError::PortUnreachable => !is_v4,
            IcmpError::ParameterProblem => true,
            _ => false,
        };
        counts && quoted_seq == self.iss
    }

    /// Time at which [`HalfOpen::on_timer`] is due, ns.
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// SYN-ACKs sent again because no answer came.
    #[must_use]
    pub fn retransmits(&self) -> u8 {
        self.retries
    }

    /// The timer fired: `SendSynAck`, `Gone`, or `Drop` if it was not due.
    pub fn on_timer(&mut self, cx: &mut Cx<'_>) -> HalfOpenOutcome {
        if cx.now_ns < self.deadline_ns {
            return HalfOpenOutcome::Drop;
        }
        let retries_max = match self.retries_max {
            0 => cx.config.syn_ack_retries_max,
            asked => asked,
        };
        let deferred = self.has(ACKED) && self.retries < self.defer_accept;
        if self.retries >= retries_max && !deferred {
            return HalfOpenOutcome::Gone(GoneReason::TimedOut);
        }
        // While a deferred handshake waits for data, no SYN-ACK is sent except the last one.
        let silent = self.has(ACKED) && self.retries + 1 < self.defer_accept;
        self.ecn.on_retransmission(self.retries);
        self.retries += 1;
        self.rearm(cx);
        if silent {
            HalfOpenOutcome::Drop
        } else {
            HalfOpenOutcome::SendSynAck
        }
    }

    fn rearm(&mut self, cx: &Cx<'_>) {
        self.deadline_ns = cx.now_ns + self.timeout_ns(cx.config);
    }

    fn timeout_ns(&self, config: &Config) -> u64 {
        let doubled_ns = config
            .rto_initial_ns
            .saturating_mul(1 << self.retries.min(32));
        doubled_ns.min(config.rto_ns_max)
    }

    /// Time at which the SYN-ACK was first sent, ns; 0: not yet.
    #[must_use]
    pub fn sent_ns(&self) -> u64 {
        self.sent_ns
    }

    /// Time at which the timer was last set, ns: the SYN-ACK was sent then, or was due to be sent
    /// again.
    #[must_use]
    pub fn armed_ns(&self, config: &Config) -> u64 {
        self.deadline_ns.saturating_sub(self.timeout_ns(config))
    }

    /// True for a repetition of the SYN: our SYN-ACK was lost, or is on its way.
    fn is_retransmitted_syn(&self, seg: &Segment) -> bool {
        seg.has(Flags::SYN) && !seg.flags.intersects(Flags::RST | Flags::ACK) && seg.seq == self.irs
    }

    fn on_retransmitted_syn(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> HalfOpenOutcome {
        cx.counters.syns_repeated += 1;
        if self
            .gate
            .allow(cx.now_ns, cx.config.invalid_ack_interval_ns)
        {
            self.rearm(cx);
            self.ecn.take_retransmitted_syn(SynEcn::of(seg));
            self.ecn.on_retransmission(self.retries);
            return HalfOpenOutcome::SendSynAck;
        }
        cx.counters.challenge_acks_limited += 1;
        HalfOpenOutcome::Drop
    }

    /// True if the timestamp is too old (PAWS, RFC 7323 5.3 R1); never for a RST.
    fn is_old(&self, seg: &Segment) -> bool {
        let Some(timestamp) = seg.options.timestamp else {
            return false;
        };
        self.has(TIMESTAMPS)
            && !seg.has(Flags::RST)
            && SeqNumber(timestamp.value).lt(SeqNumber(self.ts_recent))
    }

    /// First step: RFC 9293 section 3.4 with RCV.NXT = IRS + 1 and the window of our SYN-ACK. In
    /// Linux's reading a segment is acceptable if a part of it lies in the window, or if it is
    /// empty and at an edge.
    fn is_acceptable(&self, seg: &Segment) -> bool {
        let left = self.irs + 1;
        let right = left + u32::from(self.window);
        seg.seq == left
            || (seg.end().gt(left) && seg.seq.lt(right))
            || (seg.seq == right && seg.seq_len() == 0)
    }

    /// The answer to a segment that is not acceptable.
    fn answer_invalid(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> HalfOpenOutcome {
        if seg.has(Flags::RST) {
            cx.counters.drop_reset_outside_window += 1;
            return HalfOpenOutcome::Drop;
        }
        self.challenge(cx, seg)
    }

    /// Second step, with RFC 5961 section 3.2: only the exact sequence number resets.
    fn on_reset(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> HalfOpenOutcome {
        if seg.seq == self.irs + 1 {
            cx.counters.resets_in += 1;
            return HalfOpenOutcome::Gone(GoneReason::Reset);
        }
        cx.counters.drop_reset_in_window += 1;
        self.challenge(cx, seg)
    }

    /// True if the echo names none of our SYN-ACKs. An echo of 0 is accepted, because some peers
    /// send it when they have nothing to echo.
    fn echo_is_forged(&self, seg: &Segment) -> bool {
        let Some(Timestamp { echo, .. }) = seg.options.timestamp else {
            return false;
        };
        let span = self.ts_last.wrapping_sub(self.ts_first);
        self.has(TIMESTAMPS) && echo != 0 && echo.wrapping_sub(self.ts_first) > span
    }

    /// Sends `<SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>`, if the limits allow. The limit per connection
    /// does not apply to text, since two hosts never exchange text for ever.
    fn challenge(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> HalfOpenOutcome {
        let is_text = seg.seq_len() > 0 && !seg.has(Flags::SYN);
        if !(is_text
            || self
                .gate
                .allow(cx.now_ns, cx.config.invalid_ack_interval_ns))
            || !cx.challenge.allow(cx.now_ns, cx.config)
        {
            cx.counters.challenge_acks_limited += 1;
            return HalfOpenOutcome::Drop;
        }
        cx.counters.challenge_acks_out += 1;
        let timestamp = self.has(TIMESTAMPS).then(|| Timestamp {
            value: timestamp_value(cx.now_ns, self.ts_offset),
            echo: self.ts_recent,
        });
        let shift = if self.has(WINDOW_SCALING) {
            self.our_shift
        } else {
            0
        };
        HalfOpenOutcome::ChallengeAck(SegmentOut {
            seq: self.iss + 1,
            ack: self.irs + 1,
            flags: Flags::ACK,
            window: self.window >> shift,
            options: Options {
                timestamp,
                ..Options::default()
            },
            ..SegmentOut::empty()
        })
    }

    fn handshake(&self, cx: &Cx<'_>, seg: &Segment) -> Handshake {
        let window_scales = self.has(WINDOW_SCALING).then_some(WindowScales {
            ours: self.our_shift,
            peers: self.peer_shift,
        });
        let mut ts_recent = self.ts_recent;
        if let Some(timestamp) = seg.options.timestamp
            && self.has(TIMESTAMPS)
            && seg.seq.le(self.irs + 1)
        {
            ts_recent = timestamp.value;
        }
        Handshake {
            iss: self.iss,
            irs: self.irs,
            una: seg.ack,
            snd_wnd: u32::from(seg.window) << window_scales.map_or(0, |scales| scales.peers),
            mss: self.mss,
            peer_mss: self.peer_mss,
            window_scales,
            sack: self.has(SACK),
            ecn: self.ecn.granted(&seg.options.accecn),
            timestamps: self.has(TIMESTAMPS),
            ts_recent,
            ts_offset: self.ts_offset,
            rtt_ns: self.rtt_ns(cx, seg),
            // One retransmission proves no loss where the first timeout is 1 s (RFC 6928 section 2,
            // RFC 6298).
            syn_ack_lost: self.retries > 1 && !self.answers_first(seg),
            repetitions: self.repetitions(cx),
        }
    }

    /// True if the echo is the timestamp of the first SYN-ACK, so that the retransmission was
    /// needless (Eifel, RFC 3522).
    fn answers_first(&self, seg: &Segment) -> bool {
        let echo = seg.options.timestamp.map(|timestamp| timestamp.echo);
        self.has(TIMESTAMPS) && echo == Some(self.ts_first)
    }

    fn repetitions(&self, cx: &Cx<'_>) -> SynAckRepetitions {
        if self.sent <= 1 && self.retries == 0 {
            return SynAckRepetitions::default();
        }
        let took_ms = cx.now_ns.saturating_sub(self.sent_ns) / MILLISECOND_NS;
        SynAckRepetitions {
            sent: self.sent.saturating_sub(1),
            timeouts: self.retries,
            took_ms: u32::try_from(took_ms).unwrap_or(u32::MAX),
        }
    }

    /// The round trip of the handshake. If the SYN-ACK was sent more than once, its ACK is
    /// ambiguous (Karn), unless the timestamp tells which one it answers.
    fn rtt_ns(&self, cx: &Cx<'_>, seg: &Segment) -> Option<u64> {
        if self.sent == 1 {
            return Some(cx.now_ns.saturating_sub(self.sent_ns));
        }
        let echo = seg.options.timestamp?.echo;
        if !self.has(TIMESTAMPS) || echo == 0 {
            return None;
        }
        let ms = timestamp_value(cx.now_ns, self.ts_offset).wrapping_sub(echo);
        Some(u64::from(ms.max(1)) * MILLISECOND_NS)
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The options of a SYN that the settings allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
    pub(crate) window_scaling: bool,
    pub(crate) ecn: EcnKind,
}

impl Granted {
    pub(crate) fn of(config: &Config, syn: &SynRequest, open: &PassiveOpen) -> Granted {
        Granted {
            timestamps: config.timestamps && syn.timestamp.is_some(),
            sack: config.sack && syn.sack_permitted,
            window_scaling: config.window_scaling && syn.window_scale.is_some(),
            ecn: grant(config, open.congestion, syn.ecn),
        }
    }
}

/// The variable fields of a SYN-ACK.
pub(crate) struct SynAck {
    pub(crate) iss: SeqNumber,
    pub(crate) irs: SeqNumber,
    pub(crate) window: u16,
    pub(crate) mss: u16,
    pub(crate) shift: Option<u8>,
    pub(crate) sack: bool,
    pub(crate) timestamp: Option<Timestamp>,
}

/// The segment `<SEQ=ISS><ACK=RCV.NXT><CTL=SYN,ACK>` with its options, except for ECN's.
pub(crate) fn syn_ack_segment(say: SynAck) -> SegmentOut {
    SegmentOut {
        seq: say.iss,
        ack: say.irs + 1,
        flags: Flags::SYN | Flags::ACK,
        window: say.window,
        options: Options {
            mss: Some(say.mss),
            window_scale: say.shift,
            sack_permitted: say.sack,
            timestamp: say.timestamp,
            ..Options::default()
        },
        ..SegmentOut::empty()
    }
}
