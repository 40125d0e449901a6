//! The sender outside the hot line: the send buffer, the marks that the application set in the
//! stream, and counters.
//!
//! Owned by `Connection`. Recovery, timers and output read it; ACKs and departures change it.

use wire::SeqNumber;
use wire::tcp::Flags;

use crate::MILLISECOND_NS;
use crate::config::Config;
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::pack::{Packing, Usual};
use crate::segment::{Segment, SegmentOut};
use crate::variables::Snd;

pub(crate) mod buffer;
mod nagle;
mod record_ends;
mod stream_marks;
mod timestamp;

pub(crate) use buffer::SendBuffer;

use record_ends::RecordEnds;

/// Send variables outside the hot line. Those needed for every ACK come first, then those for every
/// segment sent, then rare ones.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Sender {
    /// Time at which payload was last sent, or the connection was established; 0: neither.
    last_sent_ns: u64,
    /// Payload bytes acknowledged in all.
    bytes_acked: u64,
    /// Acknowledged payload bytes that the caller has not taken yet.
    acked: u32,
    /// ISS.
    iss: SeqNumber,
    /// End of the last segment below the MSS (Minshall's variant of Nagle's algorithm).
    small_end: SeqNumber,
    /// Added to our clock in milliseconds to give our timestamp values.
    ts_offset: u32,
    /// Segments sent.
    segs_out: u32,
    /// Segments with payload sent.
    data_segs_out: u32,
    /// Sequence number of the RST that answers one segment (`ConnFlags::REPLY_RESET`).
    reply_seq: SeqNumber,
    /// Time at which an invalid, empty segment was last answered, in milliseconds that wrap; 0:
    /// never.
    invalid_answered_ms: u32,
    /// The send buffer.
    buffer: SendBuffer,
    /// The ends of records, at which segments must end (`ConnFlags::RECORDS`).
    record_ends: RecordEnds,
    /// SND.UP: the sequence number after the last urgent byte (`ConnFlags::RECORDS`).
    urgent_out: Option<SeqNumber>,
}

impl Sender {
    /// The state before anything is sent.
    pub fn new(iss: SeqNumber, una: SeqNumber, ts_offset: u32, buffer: SendBuffer) -> Self {
        Sender {
            last_sent_ns: 0,
            bytes_acked: 0,
            acked: 0,
            iss,
            small_end: una,
            ts_offset,
            segs_out: 0,
            data_segs_out: 0,
            reply_seq: SeqNumber(0),
            invalid_answered_ms: 0,
            buffer,
            record_ends: RecordEnds::NONE,
            urgent_out: None,
        }
    }

    /// Packs the variables; `iss` is packed already. A connection with marks in its stream is not
    /// packed.
    pub fn pack(&mut self, p: &mut impl Packing, snd: &Snd, usual: &Usual) {
        let Sender {
            last_sent_ns,
            bytes_acked,
            acked,
            iss: _,
            small_end,
            ts_offset,
            segs_out,
            data_segs_out,
            reply_seq,
            invalid_answered_ms,
            buffer,
            record_ends,
            urgent_out,
        } = self;
        p.u32(acked, 0);
        p.u32(segs_out, 0);
        p.u32(data_segs_out, 0);
        let sent_ns = if *data_segs_out > 0 { usual.now_ns } else { 0 };
        p.u64(last_sent_ns, sent_ns);
        p.u64(bytes_acked, u64::from(usual.una.since(usual.first)));
        p.seq(small_end, usual.una);
        p.u32(ts_offset, 0);
        p.seq(reply_seq, SeqNumber(0));
        p.u32(invalid_answered_ms, 0);
        buffer.pack(p, snd);
        if p.must(record_ends.is_empty() && urgent_out.is_none()) {
            (*record_ends, *urgent_out) = (RecordEnds::NONE, None);
        }
    }

    /// True if an invalid segment without text may be answered now; the answer is noted. Answers
    /// are limited, or two confused peers would answer each other for ever.
    pub(crate) fn may_answer_invalid(&mut self, now_ns: u64, config: &Config) -> bool {
        // Milliseconds that wrap are enough; 0 stands for never.
        let now_ms = ((now_ns / MILLISECOND_NS) as u32).max(1);
        let interval_ms = config.invalid_ack_interval_ns / MILLISECOND_NS;
        let last_ms = self.invalid_answered_ms;
        if last_ms != 0 && u64::from(now_ms.wrapping_sub(last_ms)) < interval_ms {
            return false;
        }
        self.invalid_answered_ms = now_ms;
        true
    }
}

impl Sender {
    /// Lets a RST answer one segment with an unacceptable ACK.
    #[cold]
    pub(crate) fn reply_reset(&mut self, seg: &Segment, conn_flags: &mut ConnFlags) {
        self.reply_seq = seg.ack;
        conn_flags.set(ConnFlags::REPLY_RESET);
    }

    /// True if the buffer has no room to begin another run.
    #[inline]
    pub(crate) fn is_send_buffer_full(&self, snd: &Snd) -> bool {
        snd.buffered() >= self.buffer.runs().size()
    }

    /// The RST that answers a segment with an unacceptable ACK: `<SEQ=SEG.ACK><CTL=RST>`.
    pub(crate) fn build_reply_reset(&self, out: &mut SegmentOut) {
        *out = SegmentOut::empty();
        out.seq = self.reply_seq;
        out.flags = Flags::RST;
    }

    /// Answers a repeated SYN of a connection that was opened fast: our SYN-ACK leaves again.
    pub(crate) fn on_retransmitted_fast_syn(
        &mut self,
        cx: &mut Cx<'_>,
        conn_flags: &mut ConnFlags,
    ) {
        cx.counters.syns_repeated += 1;
        if self.may_answer_invalid(cx.now_ns, cx.config) {
            conn_flags.set(ConnFlags::SYN_DUE);
        }
    }
}

/// Changes, each for one event.
impl Sender {
    /// Notes that payload leaves, or that the connection is established.
    #[inline(always)]
    pub(crate) fn note_text_sent(&mut self, now_ns: u64) {
        self.last_sent_ns = now_ns;
    }

    /// Counts segments that leave.
    #[inline(always)]
    pub(crate) fn count_segments(&mut self, segments: u32) {
        self.segs_out = self.segs_out.wrapping_add(segments);
    }

    /// Takes back the count of a segment that belongs to the handshake.
    pub(crate) fn discount_segment(&mut self) {
        self.segs_out = self.segs_out.wrapping_sub(1);
    }

    /// Counts segments with payload that leave.
    #[inline(always)]
    pub(crate) fn count_text_segments(&mut self, segments: u32) {
        self.data_segs_out = self.data_segs_out.wrapping_add(segments);
    }

    /// Notes the end of a segment below the MSS, or the beginning of the stream.
    #[inline(always)]
    pub(crate) fn note_small(&mut self, end: SeqNumber) {
        self.small_end = end;
    }

    /// Counts `bytes` of acknowledged payload, which took `numbers` sequence numbers with SYN and
    /// FIN.
    #[inline(always)]
    pub(crate) fn note_acked(&mut self, bytes: u32, numbers: u32) {
        self.acked += bytes;
        self.bytes_acked += u64::from(numbers);
    }

    /// Payload bytes acknowledged since the last call.
    #[inline(always)]
    pub(crate) fn take_acked(&mut self) -> u32 {
        core::mem::take(&mut self.acked)
    }

    /// Sets the sequence number of the RST that answers one segment.
    pub(crate) fn set_reply_seq(&mut self, seq: SeqNumber) {
        self.reply_seq = seq;
    }

    /// Grows the send buffer to `bytes` of memory.
    pub(crate) fn grow_buffer(&mut self, bytes: u32) {
        self.buffer.grow(bytes);
    }

    /// Sets the send buffer to the size that the application chose.
    pub(crate) fn fix_buffer(&mut self, bytes: u32, snd: &Snd) {
        self.buffer.fix(bytes, snd);
    }

    /// TCP_NOTSENT_LOWAT in bytes; 0 = the configured default.
    pub(crate) fn set_notsent_lowat(&mut self, bytes: u32) {
        self.buffer.set_notsent_lowat(bytes);
    }

    /// Computes the runs anew after segment size, largest window or send buffer changed.
    pub(crate) fn refresh_runs(&mut self, snd: &Snd) {
        self.buffer.refresh_runs(snd);
    }

    /// Packs the ISS, whose usual value is `iss`.
    pub(crate) fn pack_iss(&mut self, p: &mut impl Packing, iss: SeqNumber) {
        p.seq(&mut self.iss, iss);
    }

    /// ISS.
    pub(crate) fn iss(&self) -> SeqNumber {
        self.iss
    }

    /// The send buffer.
    #[inline(always)]
    pub(crate) fn buffer(&self) -> &SendBuffer {
        &self.buffer
    }
}

/// Read access for other modules.
impl Sender {
    /// Time at which payload was last sent, or the connection was established; 0: neither.
    #[inline(always)]
    pub fn last_sent_ns(&self) -> u64 {
        self.last_sent_ns
    }

    /// Payload bytes acknowledged in all.
    #[inline(always)]
    pub fn bytes_acked(&self) -> u64 {
        self.bytes_acked
    }

    /// Added to our clock in milliseconds to give our timestamp values.
    #[inline(always)]
    pub fn ts_offset(&self) -> u32 {
        self.ts_offset
    }

    /// Segments sent.
    #[inline(always)]
    pub fn segs_out(&self) -> u32 {
        self.segs_out
    }

    /// Segments with payload sent.
    #[inline(always)]
    pub fn data_segs_out(&self) -> u32 {
        self.data_segs_out
    }
}
