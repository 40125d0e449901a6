//! The size of the receive buffer, which follows the bytes that the application reads in a round
//! trip (dynamic right-sizing, as in Linux). It is constant if the user chose it or memory is low.

use wire::SeqNumber;

use crate::buffers::{Memory, space_for};
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::opening::Opening;
use crate::pack::{Packing, Usual};
use crate::receive::Receiver;
use crate::segment::Segment;
use crate::send::Sender;
use crate::variables::Rcv;

/// Measurements from which the receive buffer's size is computed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tuning {
    /// Round trip as the receiver sees it, in eighths of a microsecond; 0 = not measured.
    rtt_us8: u32,
    /// Without timestamps: a round trip has passed since `rtt_at_us` when the byte with this number
    /// arrives.
    rtt_seq: SeqNumber,
    rtt_at_us: u32,
    /// The last echoed timestamp that was used for a sample.
    last_echo: u32,
    /// Bytes that the application read in the best round trip so far.
    space: u32,
    /// Sequence number and time (microseconds) at which the reader's present round trip began.
    space_seq: SeqNumber,
    space_at_us: u32,
    /// SO_RCVBUF was set: the receive buffer does not grow.
    is_locked: bool,
    /// The segment being processed ends the handshake, so the next one is measured even if it has
    /// the same echo.
    ends_handshake: bool,
}

impl Tuning {
    /// Nothing was measured. `is_locked`: the user chose the size.
    pub fn new(is_locked: bool) -> Self {
        Tuning {
            rtt_us8: 0,
            rtt_seq: SeqNumber(0),
            rtt_at_us: 0,
            last_echo: 0,
            space: 0,
            space_seq: SeqNumber(0),
            space_at_us: 0,
            is_locked,
            ends_handshake: false,
        }
    }

    pub fn pack(&mut self, p: &mut impl Packing, usual: &Usual) {
        let Tuning {
            rtt_us8,
            rtt_seq,
            rtt_at_us,
            last_echo,
            space,
            space_seq,
            space_at_us,
            is_locked,
            ends_handshake,
        } = self;
        p.u32(rtt_us8, 0);
        p.seq(rtt_seq, SeqNumber(0));
        p.u32(rtt_at_us, 0);
        p.u32(last_echo, 0);
        p.u32(space, 14_480);
        p.seq(space_seq, usual.rcv_nxt);
        p.u32(space_at_us, usual.us());
        p.bool(is_locked);
        p.bool(ends_handshake);
    }

    /// Round trip as the receiver sees it; 0 = not measured.
    #[inline(always)]
    pub(crate) fn rtt_us(&self) -> u32 {
        self.rtt_us8 >> 3
    }

    /// Bytes that the application read in the best round trip so far (Linux's `tcpi_rcv_space`).
    pub(crate) fn space(&self) -> u32 {
        self.space
    }

    /// The last echoed timestamp that was used for a sample.
    #[inline(always)]
    pub(crate) fn last_echo(&self) -> u32 {
        self.last_echo
    }

    /// True if SO_RCVBUF was set, so that the receive buffer does not grow.
    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Notes that SO_RCVBUF is set.
    pub(crate) fn lock(&mut self) {
        self.is_locked = true;
    }

    /// Notes that the next segment ends the handshake.
    pub(crate) fn note_handshake_end(&mut self) {
        self.ends_handshake = true;
    }

    /// Lowers the amount read in a round trip to `clamp`, after the window's limit fell below it.
    pub(crate) fn limit_space(&mut self, clamp: u32) {
        self.space = self.space.min(clamp);
    }
}

/// Microseconds that wrap after 71 minutes. The value is never 0, because 0 stands for "not begun".
pub(crate) fn micros(now_ns: u64) -> u32 {
    ((now_ns / 1000) as u32).max(1)
}

impl Receiver {
    /// Sets the sizes at the moment when data may flow.
    pub(crate) fn begin_tuning(&mut self, cx: &Cx<'_>, rcv: &Rcv) {
        self.tuning.space_at_us = micros(cx.now_ns);
        self.tuning.space_seq = self.reader_seq(rcv);
        self.begin_clamp();
        let initial = u32::from(cx.config.initial_window_segments);
        let bytes = initial * u32::from(self.advmss());
        self.tuning.space = self.ssthresh().min(self.wnd()).min(bytes);
    }

    /// Measures the round trip as the receiver sees it when payload arrives, by an echo that is
    /// new.
    #[inline(always)]
    pub(crate) fn measure_receive_rtt(
        &mut self,
        cx: &Cx<'_>,
        seg: &Segment,
        conn_flags: ConnFlags,
        tx: &Sender,
    ) {
        if let Some(stamp) = seg.options.timestamp
            && conn_flags.has(ConnFlags::TIMESTAMPS)
            && (stamp.echo != self.tuning.last_echo || self.tuning.ends_handshake)
        {
            self.take_echo(cx, seg, stamp.echo, conn_flags, tx);
        }
    }

    fn take_echo(
        &mut self,
        cx: &Cx<'_>,
        seg: &Segment,
        echo: u32,
        conn_flags: ConnFlags,
        tx: &Sender,
    ) {
        if core::mem::take(&mut self.tuning.ends_handshake) {
            return;
        }
        self.tuning.last_echo = echo;
        if seg.len < u32::from(self.peer_segment()) {
            return;
        }
        // A sample below a tick of the clock says nothing; such paths are measured by windows.
        let is_this_tick = tx.ts_value(cx.now_ns) == echo;
        if !is_this_tick && let Some(rtt_ns) = tx.rtt_by_timestamp(cx.now_ns, seg, conn_flags) {
            let sample_us = (rtt_ns / 1000).min(u64::from(u32::MAX >> 4)) as u32;
            self.take_receive_rtt(sample_us);
        }
    }

    /// Takes a sample: the shortest one counts at once; a longer one slowly, and not while the
    /// reader holds the sender up (Linux 6.16).
    fn take_receive_rtt(&mut self, sample_us: u32) {
        let rtt = self.tuning.rtt_us8;
        let sample = sample_us << 3;
        if rtt == 0 || sample < rtt {
            self.tuning.rtt_us8 = sample;
        } else if self.unread() == 0 {
            self.tuning.rtt_us8 = rtt - (rtt >> 3) + sample_us;
        }
    }

    /// Measures without timestamps: a full window takes at least a round trip to arrive.
    pub(crate) fn measure_receive_window(&mut self, cx: &Cx<'_>, rcv: &Rcv) {
        if self.tuning.rtt_at_us != 0 && rcv.nxt().lt(self.tuning.rtt_seq) {
            return;
        }
        let now_us = micros(cx.now_ns);
        if self.tuning.rtt_at_us != 0 {
            let took_us = now_us.wrapping_sub(self.tuning.rtt_at_us).max(1);
            let sample = took_us.min(u32::MAX >> 4) << 3;
            if self.tuning.rtt_us8 == 0 || sample < self.tuning.rtt_us8 {
                self.tuning.rtt_us8 = sample;
            }
        }
        self.tuning.rtt_seq = rcv.nxt() + self.wnd();
        self.tuning.rtt_at_us = now_us;
    }

    /// Grows the receive buffer once per round trip after the application read. If it read more
    /// than ever before, the buffer makes room for the next round trip of slow start.
    pub(crate) fn adjust_receive_space(&mut self, cx: &Cx<'_>, rcv: &Rcv) {
        let now_us = micros(cx.now_ns);
        let took_us = now_us.wrapping_sub(self.tuning.space_at_us);
        if self.tuning.rtt_us8 == 0 || took_us < self.tuning.rtt_us8 >> 3 {
            return;
        }
        let copied = self.reader_seq(rcv).since(self.tuning.space_seq);
        // Unread data shows that the reader, not the window, is the limit (Linux 6.16).
        let copied = copied.saturating_sub(self.unread());
        if copied > self.tuning.space {
            self.grow_receive_buffer(cx, copied, rcv);
            self.tuning.space = copied;
        }
        self.tuning.space_seq = self.reader_seq(rcv);
        self.tuning.space_at_us = now_us;
    }

    fn grow_receive_buffer(&mut self, cx: &Cx<'_>, copied: u32, rcv: &Rcv) {
        if !cx.config.recv_buffer_moderate || self.tuning.is_locked || cx.memory >= Memory::Low {
            return;
        }
        let (copied, space) = (u64::from(copied), u64::from(self.tuning.space.max(1)));
        // The measurement is a round trip old, and the sender may have doubled its rate meanwhile.
        let mut window = 2 * copied;
        window += 2 * (window * (copied - space.min(copied)) / space);
        // Data beyond a gap has arrived in addition.
        let beyond = self.held().last(cx.ranges);
        window += beyond.map_or(0, |range| u64::from(range.right.since(rcv.nxt())));
        let wanted = space_for(window, self.ratio());
        let wanted = wanted.min(u64::from(cx.config.recv_buffer.bytes_max)) as u32;
        self.grow_buffer(wanted);
    }

    /// Grows the buffer for text beyond a gap, which needs room in addition to a round trip's data
    /// (Linux 6.18). A passively opened connection that has read nothing is left alone, because
    /// perhaps no application has accepted it.
    pub(crate) fn make_place_beyond_gap(
        &mut self,
        cx: &Cx<'_>,
        conn_flags: ConnFlags,
        rcv: &Rcv,
        opening: &Opening,
    ) {
        let is_used = opening.is_syn_sent() || self.reader_seq(rcv) != self.irs() + 1;
        if is_used && !conn_flags.has(ConnFlags::ORPHAN) {
            self.grow_receive_buffer(cx, self.tuning.space, rcv);
        }
    }
}
