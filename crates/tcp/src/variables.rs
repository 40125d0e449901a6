//! The hot variables of both directions, with the RFC's names.
//!
//! ```text
//!   sent and acknowledged │ in flight │ may be sent │ not yet        received │ may arrive │ not yet
//!   ──────────────────────┼───────────┼─────────────┼───────►        ─────────┼────────────┼───────►
//!                      snd.una     snd.nxt  snd.una + snd.wnd              rcv.nxt      rcv.adv
//! ```
//!
//! [`Snd`] and [`Rcv`] share the hot line with the flags and the state.
//! [`Sender`](crate::send::Sender) and [`Receiver`](crate::receive::Receiver) hold the other
//! variables of each direction.

use wire::SeqNumber;
use wire::tcp::Flags;

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::ecn_mode::EcnLine;
use crate::pack::Packing;
use crate::segment::Segment;
use crate::state::State;
use crate::timestamp::is_before;

/// Hot send variables.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Snd {
    /// SND.UNA: oldest sequence number not acknowledged.
    una: SeqNumber,
    /// SND.NXT: next to be sent for the first time. It never goes back.
    nxt: SeqNumber,
    /// SND.WND in bytes.
    wnd: u32,
    /// Payload bytes in the send buffer from `una` on, sent and unsent.
    buffered: u32,
    /// SND.WL1: sequence number of the last window update.
    wl1: SeqNumber,
    /// SND.WL2: acknowledgment number of the last window update.
    wl2: SeqNumber,
    /// MAX.SND.WND: the largest window of the peer so far (RFC 5961, silly-window avoidance).
    max_wnd: u32,
    /// Eff.snd.MSS: largest payload of a segment, options deducted.
    mss: u16,
    /// Shift of the windows that the peer advertises.
    shift: u8,
    /// The kind of ECN in use, and the expected ACE field of the next segment.
    ecn: EcnLine,
}

impl Snd {
    /// The state before anything is sent or known of the peer.
    pub fn new(una: SeqNumber, mss: u16) -> Self {
        Snd {
            una,
            nxt: una,
            wnd: 0,
            buffered: 0,
            wl1: SeqNumber(0),
            wl2: una,
            max_wnd: 0,
            mss,
            shift: 0,
            ecn: EcnLine::OFF,
        }
    }

    /// SND.UNA + SND.WND: the first sequence number beyond the peer's window.
    #[inline]
    pub fn wnd_end(&self) -> SeqNumber {
        self.una + self.wnd
    }

    /// Sequence numbers in flight.
    #[inline]
    pub fn flight(&self) -> u32 {
        self.nxt.since(self.una)
    }

    /// Room in the peer's window beyond `nxt`.
    #[inline]
    pub fn usable(&self) -> u32 {
        self.wnd.saturating_sub(self.flight())
    }

    /// Packs all variables but `una`, which is packed already.
    pub fn pack(&mut self, p: &mut impl Packing, rcv: &Rcv) {
        let Snd {
            una,
            nxt,
            wnd,
            buffered,
            wl1,
            wl2,
            max_wnd,
            mss,
            shift,
            ecn,
        } = self;
        p.seq(nxt, *una);
        p.u32(wnd, u32::from(u16::MAX));
        p.u32(buffered, 0);
        p.seq(wl1, rcv.nxt - 1);
        p.seq(wl2, *una);
        p.u32(max_wnd, *wnd);
        p.u16(mss, USUAL_MSS - 12);
        p.u8(shift, 7);
        ecn.pack(p);
    }
}

/// Hot receive variables.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Rcv {
    /// RCV.NXT: next sequence number expected.
    nxt: SeqNumber,
    /// RCV.NXT + RCV.WND: right edge of the window as advertised.
    adv: SeqNumber,
    /// Last.ACK.sent of RFC 7323: RCV.NXT as last acknowledged.
    acked: SeqNumber,
    /// TS.Recent of RFC 7323.
    ts_recent: u32,
    /// The furthest right edge that was ever advertised (RFC 7323 2.4); valid while `retracted`.
    promised: SeqNumber,
    /// Shift of the windows that we advertise.
    shift: u8,
    /// The window was taken back, so `promised` lies beyond `adv`.
    retracted: bool,
}

/// The new part of a segment's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    /// Offset of the text from RCV.NXT, bytes.
    pub offset: u32,
    /// Bytes at the segment's front that have arrived before.
    pub skip: u32,
    /// Number of new bytes.
    pub len: u32,
}

impl Rcv {
    /// The state before anything is received.
    pub const NEW: Rcv = Rcv {
        nxt: SeqNumber(0),
        adv: SeqNumber(0),
        acked: SeqNumber(0),
        ts_recent: 0,
        promised: SeqNumber(0),
        shift: 0,
        retracted: false,
    };

    /// RCV.WND in bytes.
    #[inline]
    pub fn wnd(&self) -> u32 {
        self.adv.since(self.nxt)
    }
}

/// Linux's default MSS, which most connections have.
const USUAL_MSS: u16 = 1_460;

impl Snd {
    /// True if both sides use ECN of either kind, or ECN is requested.
    #[inline]
    pub(crate) fn uses_ecn(&self) -> bool {
        !self.ecn.is_off()
    }

    /// True if the ACK reports a mark in the classic way.
    #[inline]
    pub(crate) fn sees_ece(&self, seg: &Segment) -> bool {
        self.ecn.is_classic() && seg.has(Flags::ECE) && !seg.has(Flags::SYN)
    }

    /// True if nothing is left to send, so that the next plan would be empty.
    #[inline]
    pub(crate) fn is_drained(&self, state: State, conn_flags: ConnFlags) -> bool {
        let owes = ConnFlags::NEEDS_FULL_PLAN
            .with(ConnFlags::PATH_NARROWED)
            .with(ConnFlags::PATH_PROBING);
        self.unsent(state, conn_flags) == 0 && !conn_flags.fin_unsent() && !conn_flags.any(owes)
    }

    /// Payload in the send buffer that was never sent.
    #[inline]
    pub(crate) fn unsent(&self, state: State, conn_flags: ConnFlags) -> u32 {
        let fin = u32::from(conn_flags.has(ConnFlags::FIN_SENT));
        let sent = self.flight().saturating_sub(fin);
        match self.buffered.saturating_sub(sent) {
            // The usual case, in which the state is not read.
            0 => 0,
            unsent if conn_flags.may_send_data(state) => unsent,
            _ => 0,
        }
    }

    /// True if anything of ours is unacknowledged or unsent.
    pub(crate) fn has_unfinished_sending(&self, state: State, conn_flags: ConnFlags) -> bool {
        self.flight() > 0 || self.unsent(state, conn_flags) > 0 || conn_flags.fin_unsent()
    }

    /// True if the ACK covers the FIN of a connection without an application, and all data before
    /// it. Nothing will be sent again, and no caller can ask for measurements any more.
    #[inline]
    pub(crate) fn is_last_ack(&self, seg: &Segment, conn_flags: ConnFlags) -> bool {
        conn_flags.has(ConnFlags::FIN_SENT | ConnFlags::ORPHAN)
            && seg.ack == self.nxt
            && seg.ack != self.una
            && !conn_flags.any(ConnFlags::RECOVERING | ConnFlags::PERSIST)
    }

    /// True if the peer shut its window on data in flight. Retransmissions are then probes and are
    /// not counted (Linux), except for an orphan.
    pub(crate) fn is_held_shut(&self, state: State, conn_flags: ConnFlags) -> bool {
        let is_opening = matches!(state, State::SynSent | State::SynReceived);
        self.wnd == 0 && !is_opening && !conn_flags.has(ConnFlags::ORPHAN)
    }

    /// SEG.WND in bytes, from a segment without SYN.
    pub(crate) fn scaled_window(&self, seg: &Segment) -> u32 {
        u32::from(seg.window) << self.shift
    }
}

impl Rcv {
    /// A sequence number that the peer accepts: SND.NXT, or the edge of a window that shrank below
    /// it.
    pub(crate) fn acceptable_seq(&self, snd: &Snd) -> SeqNumber {
        let edge = snd.wnd_end();
        // A difference below one unit of the window scale is rounding, not shrinking. As in Linux
        // the unit is that of our own scale.
        let unit = 1u32 << self.shift;
        if edge.ge(snd.nxt) || snd.nxt.since(edge) < unit {
            snd.nxt
        } else {
            edge
        }
    }

    /// True if the segment is in the window by the letter of RFC 9293 table 6. This test applies to
    /// the segment that completes a Fast Open's handshake (Linux).
    pub(crate) fn is_in_window(&self, seg: &Segment) -> bool {
        let edge = self.nxt + self.promised_window();
        let is_within = seg.end().gt(self.nxt) && seg.seq.lt(edge);
        seg.seq == self.nxt || is_within || (seg.seq == edge && seg.end() == edge)
    }

    /// `MSG_MORE` holds a short segment back until the next ACK that is more than a duplicate.
    #[inline]
    pub(crate) fn end_more(&self, seg: &Segment, conn_flags: &mut ConnFlags, snd: &Snd) {
        if conn_flags.has(ConnFlags::MORE)
            && (seg.ack != snd.una
                || !self.is_text_alone(seg, snd.scaled_window(seg), *conn_flags, snd))
        {
            conn_flags.clear(ConnFlags::MORE);
        }
    }

    /// True for text in order whose ACK and window say nothing new; Linux does not process these.
    pub(crate) fn is_text_alone(
        &self,
        seg: &Segment,
        window: u32,
        conn_flags: ConnFlags,
        snd: &Snd,
    ) -> bool {
        seg.len > 0
            && seg.seq == self.nxt
            && seg.flags.without(Flags::PSH) == snd.ecn.plain_ack()
            && !conn_flags.has(ConnFlags::OUT_OF_ORDER)
            && snd.wnd == window
    }

    /// True if only the segment's timestamp is new. Linux takes it before it checks the ACK number,
    /// in ESTABLISHED, the only state with a fast path.
    pub(crate) fn is_plain_repetition(
        &self,
        seg: &Segment,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
    ) -> bool {
        state == State::Established
            && seg.len == 0
            && seg.seq == self.nxt
            && seg.flags.without(Flags::PSH) == Flags::ACK
            && seg.options.sack.is_empty()
            && snd.scaled_window(seg) == snd.wnd
            && !conn_flags.any(ConnFlags::OUT_OF_ORDER | ConnFlags::URGENT)
    }

    #[inline]
    pub(crate) fn stamp_is_current(&self, seg: &Segment, conn_flags: ConnFlags) -> bool {
        match seg.options.timestamp {
            Some(stamp) => {
                !conn_flags.has(ConnFlags::TIMESTAMPS) || !is_before(stamp.value, self.ts_recent)
            }
            None => true,
        }
    }

    /// True for a RST one below RCV.NXT after the peer's FIN: some peers forget that their FIN took
    /// a number (Linux).
    pub(crate) fn forgets_its_fin(&self, seg: &Segment, state: State) -> bool {
        let fin_in = matches!(state, State::CloseWait | State::LastAck | State::Closing);
        fin_in && seg.seq + 1 == self.nxt
    }

    pub(crate) fn fresh_text(&self, seg: &Segment) -> Text {
        let skip = if seg.seq.lt(self.nxt) {
            self.nxt.since(seg.seq).min(seg.len)
        } else {
            0
        };
        Text {
            offset: (seg.seq + skip).since(self.nxt),
            skip,
            len: seg.len - skip,
        }
    }

    /// True if the window may be taken back: the settings allow it, and the scale can express it.
    pub(crate) fn may_shrink(&self, cx: &Cx<'_>) -> bool {
        cx.config.shrink_window && self.shift > 0
    }

    /// Saves the right edge before it moves back.
    #[cold]
    pub(crate) fn retract(&mut self) {
        if !self.retracted || self.adv.gt(self.promised) {
            self.promised = self.adv;
        }
        self.retracted = true;
    }

    /// The largest promised window that is not used up. The peer may send this much, even if a
    /// later segment advertised less (RFC 7323 2.4).
    pub(crate) fn promised_window(&self) -> u32 {
        if self.retracted && self.promised.gt(self.adv) {
            return self.promised.since(self.nxt);
        }
        self.wnd()
    }

    /// The largest window that the field can express.
    pub(crate) fn window_ceiling(&self) -> u32 {
        u32::from(u16::MAX) << self.shift
    }
}

/// Changes, each for one event.
impl Snd {
    /// Sets the peer's first window, from a SYN or from the segment that completed the handshake.
    pub(crate) fn begin_window(&mut self, window: u32) {
        self.wnd = window;
        self.max_wnd = window;
    }

    /// Sets the sequence number of the first segment with a window.
    pub(crate) fn begin_updates(&mut self, wl1: SeqNumber) {
        self.wl1 = wl1;
    }

    /// Sets the shift of the peer's windows.
    pub(crate) fn set_shift(&mut self, shift: u8) {
        self.shift = shift;
    }

    /// Sets the segment size.
    pub(crate) fn set_mss(&mut self, mss: u16) {
        self.mss = mss;
    }

    /// Sets the kind of ECN.
    pub(crate) fn set_ecn(&mut self, ecn: EcnLine) {
        self.ecn = ecn;
    }

    /// Sets the ACE field expected of a segment without news of congestion.
    pub(crate) fn expect_ace(&mut self, ace: u8) {
        self.ecn.expect(ace);
    }

    /// Notes a write: the buffer holds `buffered` bytes from SND.UNA on.
    #[inline(always)]
    pub(crate) fn queue(&mut self, buffered: u32) {
        self.buffered = self.buffered.max(buffered);
    }

    /// Notes that segments up to `end` have left for the first time.
    #[inline(always)]
    pub(crate) fn advance(&mut self, end: SeqNumber) {
        self.nxt = end;
    }

    /// Moves SND.UNA to `ack`. `fin`: our FIN is acknowledged. Returns the number of payload bytes
    /// that leave the send buffer.
    #[inline(always)]
    pub(crate) fn acknowledge(&mut self, ack: SeqNumber, fin: bool) -> u32 {
        let acked = ack.since(self.una);
        let bytes = (acked - u32::from(fin)).min(self.buffered);
        self.una = ack;
        self.buffered -= bytes;
        // The window's right edge stays in place until `learn_window` moves it.
        self.wnd = self.wnd.saturating_sub(acked);
        bytes
    }

    /// Takes the ACK of our SYN, which had the number `iss`, by `seg`. Returns the number of
    /// payload bytes that leave the send buffer.
    pub(crate) fn acknowledge_syn(&mut self, iss: SeqNumber, seg: &Segment) -> u32 {
        let bytes = seg.ack.since(iss + 1).min(self.buffered);
        self.buffered -= bytes;
        self.una = seg.ack;
        self.wl1 = seg.seq;
        self.wl2 = seg.ack;
        bytes
    }

    /// Moves SND.UNA and SND.NXT behind our SYN, which is not acknowledged.
    pub(crate) fn pass_syn(&mut self, iss: SeqNumber) {
        self.una = iss + 1;
        self.nxt = self.una;
    }

    /// The window of a segment with an acceptable ACK (RFC 9293 3.10.7.4, fifth step), if the
    /// segment is newer than the last update and the window differs.
    #[inline(always)]
    pub(crate) fn learn_window(&mut self, seg: &Segment) -> Option<u32> {
        // Beyond the RFC, as in Linux: a higher ACK was sent later, even if it rides on repeated
        // text. Of two segments with equal numbers the order is unknown, so only a larger window
        // counts, or a shut one.
        let window = self.scaled_window(seg);
        let newer = self.wl2.lt(seg.ack)
            || self.wl1.lt(seg.seq)
            || (self.wl1 == seg.seq && (window > self.wnd || window == 0));
        if !newer {
            return None;
        }
        self.note_sequel(seg.seq, seg.ack);
        (window != self.wnd).then_some(window)
    }

    /// Notes that a segment with this number and ACK brought the window.
    #[inline(always)]
    pub(crate) fn note_sequel(&mut self, seq: SeqNumber, ack: SeqNumber) {
        self.wl1 = self.wl1.max(seq);
        self.wl2 = ack;
    }

    /// Sets SND.WND. True if the window is the largest so far.
    #[inline(always)]
    pub(crate) fn set_window(&mut self, window: u32) -> bool {
        self.wnd = window;
        let is_largest = window > self.max_wnd;
        if is_largest {
            self.max_wnd = window;
        }
        is_largest
    }

    /// Packs SND.UNA.
    pub(crate) fn pack_una(&mut self, p: &mut impl Packing) {
        p.seq(&mut self.una, SeqNumber(0));
    }
}

/// Changes, each for one event.
impl Rcv {
    /// Takes the peer's SYN: `nxt`, the number behind it, is RCV.NXT and counts as acknowledged.
    pub(crate) fn begin(&mut self, nxt: SeqNumber) {
        self.nxt = nxt;
        self.acked = nxt;
    }

    /// Sets the shift of our windows.
    pub(crate) fn set_shift(&mut self, shift: u8) {
        self.shift = shift;
    }

    /// Sets TS.Recent.
    #[inline(always)]
    pub(crate) fn set_ts_recent(&mut self, value: u32) {
        self.ts_recent = value;
    }

    /// Notes that an ACK of RCV.NXT leaves.
    #[inline(always)]
    pub(crate) fn note_acked(&mut self) {
        self.acked = self.nxt;
    }

    /// Moves RCV.NXT by `n` bytes. The right edge never lies before it.
    #[inline(always)]
    pub(crate) fn advance(&mut self, n: u32) {
        self.nxt += n;
        if self.adv.lt(self.nxt) {
            self.adv = self.nxt;
        }
    }

    /// Sets the right edge `window` bytes beyond RCV.NXT.
    #[inline(always)]
    pub(crate) fn open(&mut self, window: u32) {
        self.adv = self.nxt + window;
    }

    /// Notes that `window` is advertised, which may fulfil an earlier promise.
    #[inline(always)]
    pub(crate) fn advertise(&mut self, window: u32) {
        self.open(window);
        if self.retracted && self.promised.le(self.adv) {
            self.retracted = false;
            self.promised = SeqNumber(0);
        }
    }

    /// Packs RCV.NXT.
    pub(crate) fn pack_nxt(&mut self, p: &mut impl Packing) {
        p.seq(&mut self.nxt, SeqNumber(0));
    }

    /// Packs all variables but `nxt`, which is packed already. A connection that took its window
    /// back is not packed. `wnd`: the window last advertised.
    pub(crate) fn pack(&mut self, p: &mut impl Packing, wnd: u32) {
        let Rcv {
            nxt,
            adv,
            acked,
            ts_recent,
            promised,
            shift,
            retracted,
        } = self;
        p.seq(acked, *nxt);
        p.seq(adv, *acked + wnd);
        p.u32(ts_recent, 0);
        if p.must(!*retracted) {
            (*retracted, *promised) = (false, SeqNumber(0));
        }
        p.u8(shift, 7);
    }
}

/// Read access for other modules.
impl Snd {
    /// SND.UNA: oldest sequence number not acknowledged.
    #[inline(always)]
    pub fn una(&self) -> SeqNumber {
        self.una
    }

    /// SND.NXT: next to be sent for the first time. It never goes back.
    #[inline(always)]
    pub fn nxt(&self) -> SeqNumber {
        self.nxt
    }

    /// SND.WND in bytes.
    #[inline(always)]
    pub fn wnd(&self) -> u32 {
        self.wnd
    }

    /// Payload bytes in the send buffer from `una` on, sent and unsent.
    #[inline(always)]
    pub fn buffered(&self) -> u32 {
        self.buffered
    }

    /// SND.WL1: sequence number of the last window update.
    #[inline(always)]
    pub fn wl1(&self) -> SeqNumber {
        self.wl1
    }

    /// MAX.SND.WND: the largest window of the peer so far (RFC 5961, silly-window avoidance).
    #[inline(always)]
    pub fn max_wnd(&self) -> u32 {
        self.max_wnd
    }

    /// Eff.snd.MSS: largest payload of a segment, options deducted.
    #[inline(always)]
    pub fn mss(&self) -> u16 {
        self.mss
    }

    /// Shift of the windows that the peer advertises.
    #[inline(always)]
    pub fn shift(&self) -> u8 {
        self.shift
    }

    /// The kind of ECN in use, and the expected ACE field of the next segment.
    #[inline(always)]
    pub fn ecn(&self) -> EcnLine {
        self.ecn
    }
}

/// Read access for other modules.
impl Rcv {
    /// RCV.NXT: next sequence number expected.
    #[inline(always)]
    pub fn nxt(&self) -> SeqNumber {
        self.nxt
    }

    /// Last.ACK.sent of RFC 7323: RCV.NXT as last acknowledged.
    #[inline(always)]
    pub fn acked(&self) -> SeqNumber {
        self.acked
    }

    /// TS.Recent of RFC 7323.
    #[inline(always)]
    pub fn ts_recent(&self) -> u32 {
        self.ts_recent
    }

    /// Shift of the windows that we advertise.
    #[inline(always)]
    pub fn shift(&self) -> u8 {
        self.shift
    }
}
