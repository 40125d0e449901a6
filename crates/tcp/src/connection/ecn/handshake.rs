//! The negotiation of ECN, as the connection sends and receives SYNs (RFC 3168 6.1.1, RFC 9768
//! 3.1).

use wire::Ecn;
use wire::tcp::{AccEcn, Flags};

use crate::config::{Config, CongestionAlgorithm};
use crate::connection::Connection;
use crate::context::Cx;
use crate::ecn::handshake::{
    ACE_ASKS, ACE_ASKS_CLASSIC, ACE_CLASSIC, ASKS_MAX, EcnGrant, EcnKind, HalfOpenEcn, SynEcn,
    reflected, reflection,
};
use crate::ecn::option::{OptionSeen, initial_option, micros};
use crate::ecn::received::fail;
use crate::ecn::{EcnLine, EcnMode, bit};
use crate::marks::Marks;
use crate::segment::{Segment, SegmentOut};

impl Connection {
    /// Our SYN will ask for ECN, if the settings or the algorithm want it.
    pub(crate) fn ask_for_ecn(&mut self, config: &Config, choice: CongestionAlgorithm) {
        let mode = if config.ecn.asks_for_accurate() {
            EcnMode::Pending
        } else if config.ecn.asks_for_classic() || choice.wants_ecn() {
            EcnMode::Classic
        } else {
            EcnMode::Off
        };
        self.put_ecn_mode(mode, choice);
    }

    fn put_ecn_mode(&mut self, mode: EcnMode, choice: CongestionAlgorithm) {
        self.snd.ecn = EcnLine::of(mode);
        self.ecn
            .put(bit::ECT_ALWAYS, mode != EcnMode::Off && choice.wants_ecn());
    }

    /// A passive handshake agreed on ECN, or did not; the segment that completed it is still to
    /// come.
    pub(crate) fn put_ecn(&mut self, granted: EcnGrant) {
        let choice = self.congestion();
        match granted {
            EcnGrant::None => self.put_ecn_mode(EcnMode::Off, choice),
            EcnGrant::Classic => self.put_ecn_mode(EcnMode::Classic, choice),
            EcnGrant::Accurate(grant) => {
                self.put_ecn_mode(EcnMode::Accurate, choice);
                let accurate = &mut self.ecn.accurate;
                accurate.syn_sent = grant.syn_ack_sent;
                accurate.syn_received = grant.syn_received;
                accurate.latest = grant.syn_received;
                accurate.failed = grant.failed;
                accurate.option_seen = grant.option_seen;
                if grant.option_seen == OptionSeen::Zeroed {
                    accurate.failed |= fail::OPTION_RECV;
                }
                accurate.demand = 1;
                self.ecn.put(bit::THIRD_ACK, true);
            }
        }
    }

    /// A SYN with a good cookie makes a connection at once (RFC 7413): it is itself the first
    /// segment that counts.
    pub(crate) fn put_ecn_of_fast_open(&mut self, cx: &mut Cx<'_>, kind: EcnKind, syn: SynEcn) {
        let entry = HalfOpenEcn::new(kind, self.congestion(), syn);
        self.put_ecn(entry.granted(&AccEcn::NONE));
        if self.snd.ecn.is_accurate() {
            self.ecn.count_arrival(cx.counters, syn.codepoint, 0);
        }
    }

    /// The algorithm changed.
    pub(crate) fn refresh_ecn(&mut self) {
        let on = self.uses_ecn() && self.congestion().wants_ecn();
        self.ecn.put(bit::ECT_ALWAYS, on);
    }

    /// Flags, codepoint and option of our SYN, or of the SYN-ACK that is a connection's. A SYN that
    /// is sent again does not ask, by default: what drops such SYNs was met in the field (RFC 3168
    /// 6.1.1.1). Accurate ECN is asked for twice.
    pub(crate) fn dress_syn(&mut self, cx: &Cx<'_>, out: &mut SegmentOut) {
        if self.snd.ecn.is_off() {
            return;
        }
        out.ecn = self.ecn.syn_codepoint();
        if out.flags.contains(Flags::ACK) {
            self.dress_syn_ack(cx, out);
            return;
        }
        let persists = !cx.config.ecn_fallback;
        match self.snd.ecn.mode() {
            EcnMode::Pending if persists || self.tx.retransmits < ASKS_MAX => {
                out.flags = out.flags.with_ace(ACE_ASKS);
            }
            EcnMode::Classic if persists || self.is_first_syn() => {
                out.flags = out.flags.with_ace(ACE_ASKS_CLASSIC);
            }
            _ => {}
        }
        self.ecn.accurate.syn_sent = out.ecn;
    }

    /// The SYN-ACK of a crossed open, or of one by cookie.
    fn dress_syn_ack(&mut self, cx: &Cx<'_>, out: &mut SegmentOut) {
        if self.snd.ecn.is_classic() {
            out.flags |= Flags::ECE;
        }
        if !self.snd.ecn.is_accurate() {
            return;
        }
        self.ecn.accurate.syn_sent = out.ecn;
        let fast = self.marks.has(Marks::FAST_OPENED);
        let tired = self.tx.retransmits >= ASKS_MAX;
        if fast && tired {
            self.ecn.accurate.failed |= fail::ACE_SEND;
        } else {
            let reflected = reflection(self.ecn.accurate.syn_received);
            out.flags = out.flags.with_ace(reflected);
        }
        let again = if fast { self.cold.is_syn_sent } else { tired };
        if !again {
            initial_option(cx.config, &mut out.options);
            self.ecn.accurate.option_sent_us = micros(cx.now_ns);
        }
    }

    /// The answer to our SYN (RFC 9768 table 2), or a SYN that crossed it and asks too.
    pub(crate) fn learn_ecn(&mut self, cx: &Cx<'_>, seg: &Segment) {
        if self.snd.ecn.is_off() {
            return;
        }
        let choice = self.congestion();
        let syn = SynEcn::of(seg);
        let pending = self.snd.ecn.mode() == EcnMode::Pending;
        let mode = if seg.has(Flags::ACK) {
            match syn.ace {
                ACE_CLASSIC => EcnMode::Classic,
                // A reserved value: a future peer grants ECN this way. For a SYN that asked in the
                // classic way it is ECE without CWR.
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
        self.put_ecn_mode(mode, choice);
        if mode != EcnMode::Accurate {
            return;
        }
        self.ecn.accurate.syn_received = seg.ecn;
        if seg.has(Flags::ACK) {
            self.ecn.take_accurate_syn_ack(cx.config, seg);
        } else {
            self.ecn.accurate.latest = seg.ecn;
        }
    }

    /// The first segment after our SYN-ACK: its ACE field tells how that arrived, if it is the
    /// third ACK itself (RFC 9768 3.2.2.1, table 4).
    pub(crate) fn take_third_ack(&mut self, cx: &Cx<'_>, seg: &Segment) {
        self.ecn.see_handshake_option(seg, 1);
        let plain = seg.seq_len() == 0 && seg.options.sack.is_empty();
        match seg.flags.ace() {
            0b000 if seg.options.sack.is_empty() => {
                self.ecn.accurate.failed |= fail::ACE_RECV | fail::OPTION_RECV;
            }
            ace @ (0b010 | 0b011 | 0b100 | 0b110) if plain => {
                let believed = self.ecn.believes_feedback(cx.config, ace);
                if believed && reflected(ace) == Ecn::Ce && self.recovery.delivered_ce() == 0 {
                    self.recovery.count_marked(1);
                }
            }
            _ => {}
        }
        self.expect_known_ace();
    }
}
