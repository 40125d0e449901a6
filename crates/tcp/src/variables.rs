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
    /// SND.NXT: next to be sent for the first time. Never goes back.
    nxt: SeqNumber,
    /// SND.WND in bytes.
    wnd: u32,
    /// Payload bytes in the send buffer from `una` on, sent and unsent.
    buffered: u32,
    /// SND.WL1: sequence number of the last window update.
    wl1: SeqNumber,
    /// SND.WL2: acknowledgment number of the last window update.
    wl2: SeqNumber,
    /// MAX.SND.WND of RFC 5961 and of silly-window avoidance.
    max_wnd: u32,
    /// Eff.snd.MSS: largest payload of a segment, options deducted.
    mss: u16,
    /// Shift of the windows that the peer advertises.
    shift: u8,
    /// The kind of ECN in use, and the expected ACE field of the next segment.
    ecn: EcnLine,
}

impl Snd {
    /// Nothing sent, nothing known of the peer.
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

    /// Packs all but `una`, which is packed already.
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
    /// Last.ACK.sent of RFC 7323.
    acked: SeqNumber,
    /// TS.Recent of RFC 7323.
    ts_recent: u32,
    /// The furthest right edge that was ever advertised (RFC 7323 2.4), while `retracted`.
    promised: SeqNumber,
    /// Shift of the windows that we advertise.
    shift: u8,
    /// The window was taken back: `promised` lies beyond `adv`.
    retracted: bool,
}

/// The part of a segment's text that is new.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    /// Position of the text, in bytes past RCV.NXT.
    pub offset: u32,
    /// Bytes at the segment's front that arrived before.
    pub skip: u32,
    /// Bytes to take.
    pub len: u32,
}

impl Rcv {
    /// Nothing received.
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

/// Linux's default, which is ours.
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

    /// Plainly nothing is left: the next plan would be none.
    #[inline]
    pub(crate) fn is_drained(&self, state: State, conn_flags: ConnFlags) -> bool {
        let owes = ConnFlags::SEND_NOW
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
            // The common case. The state is read only if it matters.
            0 => 0,
            unsent if conn_flags.may_send_data(state) => unsent,
            _ => 0,
        }
    }

    /// Something of ours is not acknowledged or not even sent.
    pub(crate) fn has_unfinished_sending(&self, state: State, conn_flags: ConnFlags) -> bool {
        self.flight() > 0 || self.unsent(state, conn_flags) > 0 || conn_flags.fin_unsent()
    }

    /// The FIN of a connection without an application is acknowledged, with all data before it.
    /// Nothing will be sent again, and no caller can ask for measurements any more.
    #[inline]
    pub(crate) fn is_last_ack(&self, seg: &Segment, conn_flags: ConnFlags) -> bool {
        conn_flags.has(ConnFlags::FIN_SENT | ConnFlags::ORPHAN)
            && seg.ack == self.nxt
            && seg.ack != self.una
            && !conn_flags.any(ConnFlags::RECOVERING | ConnFlags::PERSIST)
    }

    /// True if the peer shut its window on data in flight. Retransmissions are then probes and are
    /// not counted (Linux). For an orphan they count as usual.
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
    /// SND.NXT, or the edge of a window that shrank below it: a number that the peer accepts.
    pub(crate) fn acceptable_seq(&self, snd: &Snd) -> SeqNumber {
        let edge = snd.wnd_end();
        // A difference below one unit of the scale is rounding, not shrinking; of our own scale, as
        // Linux has it.
        let unit = 1u32 << self.shift;
        if edge.ge(snd.nxt) || snd.nxt.since(edge) < unit {
            snd.nxt
        } else {
            edge
        }
    }

    /// RFC 9293 table 6 to the letter, as it completes the handshake of a connection that was
    /// opened fast (Linux).
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

    /// Text in order whose ACK and window say nothing new: Linux does not look at them.
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

    /// Nothing about it is new but its timestamp, which Linux learns before it looks at the ACK
    /// number: in ESTABLISHED, which alone has a fast path.
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

    /// Some peers forget that their FIN took a number, and reset one too low (Linux).
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

    /// The window may be taken back: the settings say so, and the field can say it.
    pub(crate) fn may_shrink(&self, cx: &Cx<'_>) -> bool {
        cx.config.shrink_window && self.shift > 0
    }

    /// The right edge is about to go back: remembers where it was.
    #[cold]
    pub(crate) fn retract(&mut self) {
        if !self.retracted || self.adv.gt(self.promised) {
            self.promised = self.adv;
        }
        self.retracted = true;
    }

    /// The largest promised window that is not used up: the peer may send this much though a later
    /// segment advertised less (RFC 7323 2.4).
    pub(crate) fn promised_window(&self) -> u32 {
        if self.retracted && self.promised.gt(self.adv) {
            return self.promised.since(self.nxt);
        }
        self.wnd()
    }

    /// The largest window that the field can say.
    pub(crate) fn window_ceiling(&self) -> u32 {
        u32::from(u16::MAX) << self.shift
    }
}

/// Changes, each for one event.
impl Snd {
    /// The peer's first window, of a SYN or of the segment that completed the handshake: the
    /// largest so far.
    pub(crate) fn begin_window(&mut self, window: u32) {
        self.wnd = window;
        self.max_wnd = window;
    }

    /// The first segment that brought a window has this sequence number.
    pub(crate) fn begin_updates(&mut self, wl1: SeqNumber) {
        self.wl1 = wl1;
    }

    /// The peer shifts its windows.
    pub(crate) fn set_shift(&mut self, shift: u8) {
        self.shift = shift;
    }

    /// Another segment size.
    pub(crate) fn set_mss(&mut self, mss: u16) {
        self.mss = mss;
    }

    /// Another kind of ECN.
    pub(crate) fn set_ecn(&mut self, ecn: EcnLine) {
        self.ecn = ecn;
    }

    /// A segment without news of congestion has this ACE field.
    pub(crate) fn expect_ace(&mut self, ace: u8) {
        self.ecn.expect(ace);
    }

    /// The application has written: `buffered` bytes from SND.UNA on.
    #[inline(always)]
    pub(crate) fn queue(&mut self, buffered: u32) {
        self.buffered = self.buffered.max(buffered);
    }

    /// Segments up to `end` have left for the first time.
    #[inline(always)]
    pub(crate) fn advance(&mut self, end: SeqNumber) {
        self.nxt = end;
    }

    /// SND.UNA moves to `ack`. `fin`: our FIN is acknowledged. Returns the payload bytes that leave
    /// the send buffer.
    #[inline(always)]
    pub(crate) fn acknowledge(&mut self, ack: SeqNumber, fin: bool) -> u32 {
        let acked = ack.since(self.una);
        let bytes = (acked - u32::from(fin)).min(self.buffered);
        self.una = ack;
        self.buffered -= bytes;
        // The window's right edge stays where it was until `learn_window` moves it.
        self.wnd = self.wnd.saturating_sub(acked);
        bytes
    }

    /// Our SYN, which had the number `iss`, is acknowledged by `seg`. Returns the payload bytes
    /// that leave the send buffer.
    pub(crate) fn acknowledge_syn(&mut self, iss: SeqNumber, seg: &Segment) -> u32 {
        let bytes = seg.ack.since(iss + 1).min(self.buffered);
        self.buffered -= bytes;
        self.una = seg.ack;
        self.wl1 = seg.seq;
        self.wl2 = seg.ack;
        bytes
    }

    /// SND.UNA and SND.NXT lie behind our SYN, which is not acknowledged.
    pub(crate) fn pass_syn(&mut self, iss: SeqNumber) {
        self.una = iss + 1;
        self.nxt = self.una;
    }

    /// SEG.WND of a segment with an acceptable ACK (RFC 9293 3.10.7.4, fifth step): the window, if
    /// it is news and another one.
    #[inline(always)]
    pub(crate) fn learn_window(&mut self, seg: &Segment) -> Option<u32> {
        // Beyond the RFC, as in Linux: a higher ACK was sent later, even if it rides on repeated
        // text. The order of two segments with equal numbers is unknown, so only a larger window
        // counts, or none.
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

    /// A segment of this number and ACK brought the window.
    #[inline(always)]
    pub(crate) fn note_sequel(&mut self, seq: SeqNumber, ack: SeqNumber) {
        self.wl1 = self.wl1.max(seq);
        self.wl2 = ack;
    }

    /// SND.WND changes. Returns whether the window is the largest so far.
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
    /// The peer's SYN is taken: RCV.NXT lies behind it, and is acknowledged.
    pub(crate) fn begin(&mut self, nxt: SeqNumber) {
        self.nxt = nxt;
        self.acked = nxt;
    }

    /// We shift our windows.
    pub(crate) fn set_shift(&mut self, shift: u8) {
        self.shift = shift;
    }

    /// TS.Recent
    #[inline(always)]
    pub(crate) fn set_ts_recent(&mut self, value: u32) {
        self.ts_recent = value;
    }

    /// An ACK of RCV.NXT leaves.
    #[inline(always)]
    pub(crate) fn note_acked(&mut self) {
        self.acked = self.nxt;
    }

    /// RCV.NXT moves by `n`. The right edge never lies before it.
    #[inline(always)]
    pub(crate) fn advance(&mut self, n: u32) {
        self.nxt += n;
        if self.adv.lt(self.nxt) {
            self.adv = self.nxt;
        }
    }

    /// `window` is advertised from RCV.NXT on.
    #[inline(always)]
    pub(crate) fn open(&mut self, window: u32) {
        self.adv = self.nxt + window;
    }

    /// `window` is advertised, which may fulfil an earlier promise.
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

    /// Packs all but `nxt`, which is packed already. A connection that took its window back is not
    /// packed. `wnd`: the window last advertised.
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

    /// SND.NXT: next to be sent for the first time. Never goes back.
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

    /// MAX.SND.WND of RFC 5961 and of silly-window avoidance.
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

    /// Last.ACK.sent of RFC 7323.
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
