//! Explicit congestion notification (RFC 3168): routers mark segments instead of dropping them.
//!
//! ```text
//!   sender                              router            receiver
//!   data, ECT(0) ─────────────────────► CE ────────────►  ECE on every ACK …
//!   one reduction per round trip ◄──────────────────────  … until
//!   CWR on the next new data ──────────────────────────►  CWR arrives
//! ```
//!
//! Owned by the connection, both its halves. Loss recovery asks [`Connection::sees_ece`] of each ACK, and says
//! when the window was reduced ([`Connection::queue_cwr`]); the steps of the receive side show it each codepoint.
//! DCTCP changes the receiver (RFC 8257 3.2): ECE tells the mark of just the segments that the ACK covers, so a
//! change of the mark acknowledges what came before it first.

use wire::tcp::Flags;
use wire::{Ecn, SeqNumber};

use crate::config::{Config, EcnUse};
use crate::congestion::CongestionAlgorithm;
use crate::connection::{Connection, Cx};
use crate::marks::Marks;
use crate::segment::{Segment, SegmentOut};

/// ECN is asked for in our SYN, or agreed on.
const OK: u8 = 1;
/// A codepoint other than Not-ECT arrived: the peer really uses it.
const SEEN: u8 = 1 << 1;
/// Our ACKs carry ECE.
const ECHO: u8 = 1 << 2;
/// The next new data carries CWR.
const CWR_DUE: u8 = 1 << 3;
/// DCTCP: the latest data segment was marked.
const MARKED: u8 = 1 << 4;
/// Every segment is sent as ECN-capable, since the algorithm relies on it (DCTCP).
const ECT_ALWAYS: u8 = 1 << 5;

/// ACKs before a change of the mark that may wait to be sent; further changes of the same turn are lost.
const OWED_MAX: usize = 3;

/// ACKs that leave at once after a mark, as in Linux: the sender may have a window of one segment.
const QUICK_ACKS: u8 = 2;

/// A connection's part in ECN.
#[derive(Clone, Debug, Default)]
pub(crate) struct EcnState {
    flags: u8,
    owed_len: u8,
    /// DCTCP: RCV.NXT after the latest data segment.
    seen_nxt: Option<SeqNumber>,
    owed: [OwedAck; OWED_MAX],
}

/// DCTCP: an ACK of what arrived before the mark changed.
#[derive(Clone, Copy, Debug, Default)]
struct OwedAck {
    ack: u32,
    echo: bool,
}

impl EcnState {
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn put(&mut self, flag: u8, on: bool) {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }
}

/// ECN is granted to a SYN that asks for it. One that came as ECN-capable itself is not trusted: no honest sender does that, so
/// something on the path sets the bits at random (Linux; DCTCP does send such SYNs).
pub(crate) fn is_granted(config: &Config, congestion: CongestionAlgorithm, syn: Ecn) -> bool {
    congestion.wants_ecn() || (config.ecn != EcnUse::Never && syn == Ecn::NotEct)
}

impl Connection {
    /// Our SYN will ask for ECN, if the settings or the algorithm want it.
    pub(crate) fn ask_for_ecn(&mut self, config: &Config, choice: CongestionAlgorithm) {
        let ask = config.ecn == EcnUse::Always || choice.wants_ecn();
        self.ecn.put(OK, ask);
        self.ecn.put(ECT_ALWAYS, ask && choice.wants_ecn());
    }

    /// The handshake of a passive open agreed on ECN, or did not.
    pub(crate) fn put_ecn(&mut self, on: bool) {
        let wants = self.congestion().wants_ecn();
        self.ecn.put(OK, on);
        self.ecn.put(ECT_ALWAYS, on && wants);
    }

    /// The algorithm changed.
    pub(crate) fn refresh_ecn(&mut self) {
        let wants = self.congestion().wants_ecn();
        let on = self.ecn.has(OK) && wants;
        self.ecn.put(ECT_ALWAYS, on);
    }

    /// Both sides use ECN.
    #[inline]
    pub(crate) fn uses_ecn(&self) -> bool {
        self.ecn.has(OK)
    }

    /// The peer has sent a segment as ECN-capable.
    pub(crate) fn has_seen_ect(&self) -> bool {
        self.ecn.has(SEEN)
    }

    /// The answer to our SYN: a SYN-ACK grants by ECE alone (RFC 3168 6.1.1), a SYN that crossed ours asks too.
    pub(crate) fn learn_ecn(&mut self, seg: &Segment) {
        let agreed = if seg.has(Flags::ACK) {
            seg.has(Flags::ECE) && !seg.has(Flags::CWR)
        } else {
            seg.has(Flags::ECE | Flags::CWR)
        };
        let on = self.ecn.has(OK) && agreed;
        self.put_ecn(on);
    }

    /// Flags and codepoint of our SYN, or of the SYN-ACK that is a connection's. A SYN that is sent again does not
    /// ask, by default: what drops such SYNs was met in the field (RFC 3168 6.1.1.1).
    pub(crate) fn dress_syn(&self, out: &mut SegmentOut, asks: bool) {
        if !self.ecn.has(OK) {
            return;
        }
        if out.flags.contains(Flags::ACK) {
            out.flags |= Flags::ECE;
        } else if asks {
            out.flags |= Flags::ECE | Flags::CWR;
        }
        if self.ecn.has(ECT_ALWAYS) {
            out.ecn = Ecn::Ect0;
        }
    }

    /// Flags and codepoint of any later segment. New data is ECN-capable; an ACK or a repetition is not (RFC 3168 6.1.4,
    /// 6.1.5). `fresh` = it carries data never sent before.
    #[inline]
    pub(crate) fn dress(&mut self, out: &mut SegmentOut, fresh: bool) {
        if !self.ecn.has(OK) {
            return;
        }
        if fresh {
            out.ecn = Ecn::Ect0;
            if self.ecn.has(CWR_DUE) {
                self.ecn.put(CWR_DUE, false);
                out.flags |= Flags::CWR;
            }
        } else if self.ecn.has(ECT_ALWAYS) {
            out.ecn = Ecn::Ect0;
        }
        if self.ecn.has(ECHO) {
            out.flags |= Flags::ECE;
        }
    }

    /// The ACK reports a mark.
    #[inline]
    pub(crate) fn sees_ece(&self, seg: &Segment) -> bool {
        self.ecn.has(OK) && seg.has(Flags::ECE) && !seg.has(Flags::SYN)
    }

    /// The window was reduced: the next new data says so (RFC 3168 6.1.2).
    pub(crate) fn queue_cwr(&mut self) {
        let on = self.ecn.has(OK);
        self.ecn.put(CWR_DUE, on);
    }

    /// The reduction was undone.
    pub(crate) fn withdraw_cwr(&mut self) {
        self.ecn.put(CWR_DUE, false);
    }

    /// The peer has reduced its window: no more ECE (RFC 3168 6.1.3). That window may be a single segment, so answer at once.
    #[inline]
    pub(crate) fn accept_cwr(&mut self, seg: &Segment) {
        if self.ecn.has(OK) && seg.has(Flags::CWR) {
            self.ecn.put(ECHO, false);
            self.marks.set(Marks::ACK_NOW);
        }
    }

    /// The codepoint of a segment whose text was taken, RCV.NXT having moved.
    #[inline]
    pub(crate) fn note_codepoint(&mut self, cx: &mut Cx<'_>, codepoint: Ecn) {
        if !self.ecn.has(OK) {
            return;
        }
        match codepoint {
            // A repetition, most likely: the peer misses our ACKs.
            Ecn::NotEct => {
                if self.ecn.has(SEEN) {
                    self.enter_quick_ack(cx, QUICK_ACKS);
                }
                return;
            }
            Ecn::Ce => {
                cx.counters.ce_marks_in += 1;
                self.note_mark_change(true);
                if !self.ecn.has(ECHO) {
                    self.enter_quick_ack(cx, QUICK_ACKS);
                    self.ecn.put(ECHO, true);
                }
            }
            Ecn::Ect0 | Ecn::Ect1 => self.note_mark_change(false),
        }
        self.ecn.put(SEEN, true);
    }

    /// DCTCP (RFC 8257 3.2): the mark changes. What came before is acknowledged with the former mark first.
    fn note_mark_change(&mut self, marked: bool) {
        if !self.congestion().wants_ecn() {
            return;
        }
        if self.ecn.has(MARKED) != marked {
            if self.marks.has(Marks::ACK_PENDING)
                && let Some(seen_nxt) = self.ecn.seen_nxt
                && seen_nxt.gt(self.rcv.acked)
            {
                self.owe_ack(seen_nxt);
            }
            self.marks.set(Marks::ACK_NOW);
        }
        self.ecn.seen_nxt = Some(self.rcv.nxt);
        self.ecn.put(MARKED, marked);
        self.ecn.put(ECHO, marked);
    }

    fn owe_ack(&mut self, ack: SeqNumber) {
        let echo = self.ecn.has(MARKED);
        if let Some(owed) = self.ecn.owed.get_mut(usize::from(self.ecn.owed_len)) {
            *owed = OwedAck { ack: ack.0, echo };
            self.ecn.owed_len += 1;
        }
    }

    /// An ACK of what came before a change of the mark waits to leave.
    #[inline]
    pub(crate) fn owes_ack(&self) -> bool {
        self.ecn.owed_len > 0
    }

    /// Makes the ACK in `out` the one that is owed first.
    pub(crate) fn pay_owed_ack(&mut self, out: &mut SegmentOut) {
        let OwedAck { ack, echo } = self.ecn.owed[0];
        self.ecn.owed.rotate_left(1);
        self.ecn.owed_len = self.ecn.owed_len.saturating_sub(1);
        // The window's right edge stays where the latest ACK puts it.
        let behind = out.ack.since(SeqNumber(ack)) >> self.rcv_shift;
        let window = u32::from(out.window).saturating_add(behind);
        out.window = u16::try_from(window).unwrap_or(u16::MAX);
        out.ack = SeqNumber(ack);
        if self.ecn.has(ECT_ALWAYS) {
            out.ecn = Ecn::Ect0;
        }
        out.flags = if echo {
            Flags::ACK | Flags::ECE
        } else {
            Flags::ACK
        };
    }
}
