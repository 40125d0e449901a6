//! The receiver: window, memory, out-of-order text and the pace of ACKs, outside the hot line.
//!
//! Owned by `Connection`. Segments and reads change it; output asks it for the window and the SACK
//! blocks.

mod acceptable;
pub(crate) mod delayed_ack;
mod fin;
mod prediction;
mod report;
mod text;
mod timestamp;
pub(crate) mod tuning;
pub(crate) mod window;

use wire::SeqNumber;

use crate::buffers::{Buffers, InitialWindow, RATIO_DEFAULT};
use crate::conn_flags::ConnFlags;
use crate::counters::Counters;
use crate::limits::{SACK_BLOCKS_MAX, TS_RECENT_AGE_MAX, coarse};
use crate::pack::{Packing, Usual};
use crate::reassembly::{Held, Range, RangePool};
use crate::recv_buffer::RecvBuffer;
use crate::variables::{Rcv, Snd};

use tuning::Tuning;

/// Payload of a well-filled page, and the memory that such a page costs, in bytes.
const PACKED_BYTES: u64 = 3712;
const PACKED_MEMORY: u64 = 4352;

/// Linux's defaults, which most connections have.
const USUAL_MSS: u16 = 1_460;
const USUAL_BUFFER: u32 = 131_072;

/// Linux's guess of the peer's segment size before anything has arrived: small, so that too many
/// ACKs are sent rather than too few.
pub(crate) const SEGMENT_GUESS_MIN: u32 = 88;
const SEGMENT_GUESS_MAX: u32 = 536;

/// Receive variables outside the hot line.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Receiver {
    /// Time at which payload last arrived, or the connection was established; 0: neither.
    last_data_ns: u64,
    /// Time at which an acceptable ACK last arrived.
    last_ack_ns: u64,
    /// Payload bytes received in order.
    bytes_received: u64,
    /// Size of the receive buffer in bytes of memory.
    buffer: u32,
    /// Bytes of memory that received data takes, in order and out of order.
    charged: u32,
    /// Bytes published that the application has not read.
    unread: u32,
    /// The window last advertised, in bytes from `rcv.acked()` on.
    wnd: u32,
    /// Largest window that may ever be advertised, bytes.
    clamp: u32,
    /// Present upper limit of the advertised window, bytes. It grows with well-filled segments.
    ssthresh: u32,
    /// Adaptive delay of acknowledgments; 0 = no payload has arrived yet.
    ato_us: u32,
    /// Time at which TS.Recent was last updated, in coarse time.
    ts_recent_at: u32,
    /// Segments received.
    segs_in: u32,
    /// Segments with payload received.
    data_segs_in: u32,
    /// MSS that we announced.
    mss: u16,
    /// Our MSS less the options that every segment carries.
    advmss: u16,
    /// Estimate of the peer's segment size.
    peer_segment: u16,
    /// Size of the latest segment smaller than `peer_segment`; 0: none.
    last_small: u16,
    /// Payload bytes that the newest Linux buffer would still take without new memory.
    room: u16,
    /// ACKs that may still be sent at once.
    quick_acks: u8,
    /// Payload bytes per 256 bytes of memory.
    ratio: u8,
    /// True if the application answers what it receives, so that ACKs ride on its answers.
    interactive: bool,
    /// Segments since the last ACK that look like the end of a message; 2: several.
    pushed: u8,
    /// Number of duplicate ACKs owed, one for each out-of-order segment.
    dup_acks_due: u8,
    /// Number of duplicate ACKs sent at once since RCV.NXT last moved.
    dup_acks_sent: u8,
    /// Number of SACKs held back since the last ACK.
    compressed: u8,
    /// A segment larger than our MSS was counted as several segments of the peer's MSS
    /// (`size_on_the_wire`).
    divides_segments: bool,
    /// The application reads only what had arrived when it shut reading down.
    read_shut: bool,
    /// Segments that arrived out of order and were stored.
    out_of_order_in: u32,
    /// RCV.NXT when the count in `dup_acks_sent` began.
    dup_acks_at: SeqNumber,
    /// Out-of-order ranges.
    held: Held,
    /// The duplicate range that the next ACK reports (`ConnFlags::DSACK`).
    duplicate: Range,
    /// Sequence number of a FIN that arrived ahead of data (`ConnFlags::FIN_HELD`).
    fin_seq: SeqNumber,
    /// IRS.
    irs: SeqNumber,
    /// RCV.UP: the sequence number after the last urgent byte (`ConnFlags::URGENT`).
    urgent_end: SeqNumber,
    /// Measurements from which the buffer's size is computed.
    tuning: Tuning,
}

const _: () = assert!(core::mem::offset_of!(Receiver, tuning) <= 128);

impl Receiver {
    /// The state before the peer's first segment. `initial`: the window that the SYN offers.
    pub fn new(now_ns: u64, mss: u16, buffers: &Buffers, initial: &InitialWindow) -> Self {
        Receiver {
            last_data_ns: 0,
            last_ack_ns: now_ns,
            bytes_received: 0,
            buffer: buffers.recv_bytes,
            charged: 0,
            unread: 0,
            wnd: initial.window,
            clamp: initial.clamp,
            ssthresh: initial.window,
            ato_us: 0,
            ts_recent_at: 0,
            segs_in: 0,
            data_segs_in: 0,
            mss,
            advmss: mss,
            peer_segment: mss,
            last_small: 0,
            room: 0,
            quick_acks: 0,
            ratio: RATIO_DEFAULT,
            interactive: false,
            pushed: 0,
            dup_acks_due: 0,
            dup_acks_sent: 0,
            compressed: 0,
            dup_acks_at: SeqNumber(0),
            held: Held::default(),
            duplicate: Range::default(),
            fin_seq: SeqNumber(0),
            irs: SeqNumber(0),
            urgent_end: SeqNumber(0),
            divides_segments: false,
            read_shut: false,
            out_of_order_in: 0,
            tuning: Tuning::new(buffers.recv_locked),
        }
    }
}
impl Receiver {
    /// Packs the time of the last ACK. The time comes first, because most other times are stored
    /// relative to it.
    pub fn pack_clock(&mut self, p: &mut impl Packing) {
        p.u64(&mut self.last_ack_ns, 0);
    }

    /// Packs the other fields, and those of `rcv`. `last_ack_ns` and RCV.NXT are packed already.
    pub fn pack(&mut self, p: &mut impl Packing, rcv: &mut Rcv, usual: &Usual) {
        p.u32(&mut self.wnd, USUAL_BUFFER / 2);
        rcv.pack(p, self.wnd);
        p.u32(&mut self.ts_recent_at, coarse(self.last_ack_ns));
        self.pack_rest(p, rcv.nxt(), usual);
    }

    fn pack_rest(&mut self, p: &mut impl Packing, nxt: SeqNumber, usual: &Usual) {
        let Receiver {
            last_data_ns,
            last_ack_ns,
            bytes_received,
            buffer,
            charged,
            unread,
            wnd,
            clamp,
            ssthresh,
            ato_us,
            ts_recent_at: _,
            segs_in,
            data_segs_in,
            mss,
            advmss,
            peer_segment,
            last_small,
            room,
            quick_acks,
            ratio,
            interactive,
            pushed,
            dup_acks_due,
            dup_acks_sent,
            compressed,
            divides_segments,
            read_shut,
            out_of_order_in,
            dup_acks_at,
            held,
            duplicate,
            fin_seq,
            irs,
            urgent_end,
            tuning,
        } = self;
        p.seq(irs, nxt - 1);
        p.u64(bytes_received, u64::from(nxt.since(*irs + 1)));
        for count in [segs_in, data_segs_in, charged, unread, ato_us] {
            p.u32(count, 0);
        }
        p.u64(last_data_ns, *last_ack_ns);
        p.u32(buffer, USUAL_BUFFER);
        p.u32(clamp, *wnd);
        p.u32(ssthresh, *wnd);
        p.u16(mss, USUAL_MSS);
        p.u16(advmss, *mss - 12.min(*mss));
        p.u16(peer_segment, 536);
        p.u16(last_small, 0);
        p.u16(room, 0);
        for count in [quick_acks, pushed, dup_acks_due, dup_acks_sent, compressed] {
            p.u8(count, 0);
        }
        p.u8(ratio, RATIO_DEFAULT);
        p.bool(interactive);
        p.seq(dup_acks_at, SeqNumber(0));
        if p.must(held.is_empty()) {
            *held = Held::default();
        }
        p.seq(&mut duplicate.left, SeqNumber(0));
        p.seq(&mut duplicate.right, duplicate.left);
        p.seq(fin_seq, SeqNumber(0));
        p.seq(urgent_end, SeqNumber(0));
        p.bool(divides_segments);
        p.bool(read_shut);
        p.u32(out_of_order_in, 0);
        tuning.pack(p, usual);
    }
}

impl Receiver {
    /// Bytes by which segments are longer, because SACK blocks are to be reported.
    pub(crate) fn sack_bytes(&self, conn_flags: ConnFlags, ranges: &RangePool) -> u16 {
        if !conn_flags.any(ConnFlags::OUT_OF_ORDER | ConnFlags::DSACK)
            || !conn_flags.has(ConnFlags::SACK)
        {
            return 0;
        }
        let count = self.held.recent(ranges).as_slice().len()
            + usize::from(conn_flags.has(ConnFlags::DSACK));
        let max = if conn_flags.has(ConnFlags::TIMESTAMPS) {
            SACK_BLOCKS_MAX - 1
        } else {
            SACK_BLOCKS_MAX
        };
        match count.min(max) {
            0 => 0,
            blocks => 4 + 8 * blocks as u16,
        }
    }

    /// Charges small segments as if they were packed together into well-filled buffers.
    pub(crate) fn squeeze(&mut self, bytes: u32) {
        let packed = u64::from(bytes) * PACKED_MEMORY / PACKED_BYTES;
        self.charged = self.charged.min(packed.min(u64::from(u32::MAX)) as u32);
    }

    /// The part of the `held` out-of-order bytes that exceeds the buffer's size.
    pub(crate) fn bytes_too_many(&self, held: u32) -> u32 {
        let excess = u64::from(self.charged.saturating_sub(self.buffer));
        let bytes = (excess * u64::from(held)).div_ceil(u64::from(self.charged.max(1)));
        bytes.min(u64::from(held)) as u32
    }
}

impl Receiver {
    /// The sequence number of a FIN that waits for the text before it.
    #[inline]
    pub(crate) fn held_fin(&self, conn_flags: ConnFlags) -> Option<SeqNumber> {
        conn_flags.has(ConnFlags::FIN_HELD).then_some(self.fin_seq)
    }

    /// Frees text stored beyond RCV.NXT when RCV.NXT is at the peer's FIN. No data follows a FIN,
    /// so that text came from another sender, or from a peer that contradicts itself (as in Linux).
    pub(crate) fn purge_beyond_fin(
        &mut self,
        ranges: &mut RangePool,
        counters: &mut Counters,
        rx: &mut impl RecvBuffer,
    ) {
        let bytes = self.held.bytes(ranges);
        if bytes == 0 {
            return;
        }
        counters.bytes_drop_beyond_fin += u64::from(bytes);
        self.discharge(self.unread.saturating_add(bytes), self.unread);
        rx.forget(0);
    }
}

impl Receiver {
    /// Guesses the size of the peer's segments before any has come.
    pub(crate) fn guess_peer_segment(&mut self, snd: &Snd) {
        self.peer_segment = u32::from(self.advmss.min(snd.mss()))
            .min(self.wnd / 2)
            .clamp(SEGMENT_GUESS_MIN, SEGMENT_GUESS_MAX) as u16;
    }

    /// Sequence number up to which the application has read.
    pub(crate) fn reader_seq(&self, rcv: &Rcv) -> SeqNumber {
        rcv.nxt() - self.unread
    }
}

impl Receiver {
    pub(crate) fn last_heard_ns(&self) -> u64 {
        self.last_ack_ns.max(self.last_data_ns)
    }
}

impl Receiver {
    pub(crate) fn ts_recent_is_outdated(&self, now_ns: u64) -> bool {
        coarse(now_ns).wrapping_sub(self.ts_recent_at) >= TS_RECENT_AGE_MAX
    }
}

/// Arriving data.
impl Receiver {
    /// Takes `irs` from the peer's SYN.
    pub(crate) fn take_syn(&mut self, irs: SeqNumber) {
        self.irs = irs;
    }

    /// Counts the SYN as the only segment so far.
    pub(crate) fn count_syn(&mut self) {
        self.segs_in = 1;
    }

    /// Counts a segment that arrived; `has_text`: with payload.
    #[inline(always)]
    pub(crate) fn count_segment(&mut self, has_text: bool) {
        self.segs_in = self.segs_in.wrapping_add(1);
        self.data_segs_in = self.data_segs_in.wrapping_add(u32::from(has_text));
    }

    /// Counts a SYN that carried payload.
    pub(crate) fn count_text(&mut self) {
        self.data_segs_in = self.data_segs_in.wrapping_add(1);
    }

    /// Notes that an acceptable ACK arrived.
    #[inline(always)]
    pub(crate) fn note_ack(&mut self, now_ns: u64) {
        self.last_ack_ns = now_ns;
    }

    /// Notes that payload arrived, or that the connection is established.
    #[inline(always)]
    pub(crate) fn note_data(&mut self, now_ns: u64) {
        self.last_data_ns = now_ns;
    }

    /// Notes that TS.Recent was updated.
    #[inline(always)]
    pub(crate) fn note_timestamp(&mut self, now_ns: u64) {
        self.ts_recent_at = coarse(now_ns);
    }

    /// Notes that `n` bytes of text in order are published.
    #[inline(always)]
    pub(crate) fn take_text(&mut self, n: u32) {
        self.unread = self.unread.saturating_add(n);
        self.bytes_received += u64::from(n);
    }

    /// Notes that the application has read, so that `unread` bytes are left.
    #[inline(always)]
    pub(crate) fn set_unread(&mut self, unread: u32) {
        self.unread = unread;
    }

    /// Counts the FIN as a byte received, as in Linux.
    pub(crate) fn count_fin(&mut self) {
        self.bytes_received += 1;
    }

    /// Notes a FIN that arrived ahead of data.
    pub(crate) fn note_fin_seq(&mut self, fin_seq: SeqNumber) {
        self.fin_seq = fin_seq;
    }

    /// Notes that urgent data ends before `end`.
    pub(crate) fn set_urgent_end(&mut self, end: SeqNumber) {
        self.urgent_end = end;
    }

    /// Notes a duplicate range that the next ACK reports.
    pub(crate) fn begin_duplicate(&mut self, range: Range) {
        self.duplicate = range;
    }

    /// Extends the duplicate range to be reported by `range`, if they touch.
    pub(crate) fn extend_duplicate(&mut self, range: Range) {
        if self.duplicate.touches(&range) {
            self.duplicate = self.duplicate.union(&range);
        }
    }

    /// Limits our MSS to `mss` bytes.
    pub(crate) fn limit_mss(&mut self, mss: u16) {
        self.mss = self.mss.min(mss);
    }

    /// Notes the bytes of options that every segment carries.
    pub(crate) fn deduct_options(&mut self, bytes: u16) {
        self.advmss = self.mss - bytes.min(self.mss / 2);
    }

    /// The out-of-order ranges.
    #[inline(always)]
    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// The out-of-order ranges, to be changed.
    #[inline(always)]
    pub(crate) fn held_mut(&mut self) -> &mut Held {
        &mut self.held
    }
}

/// The application's part in the buffer.
impl Receiver {
    /// Notes that the application has shut reading down.
    pub(crate) fn shut_read(&mut self) {
        self.read_shut = true;
    }

    /// Counts an out-of-order segment that was stored.
    pub(crate) fn count_out_of_order(&mut self) {
        self.out_of_order_in = self.out_of_order_in.wrapping_add(1);
    }

    /// Notes that the next segment ends the handshake.
    pub(crate) fn note_handshake_end(&mut self) {
        self.tuning.note_handshake_end();
    }

    /// Sets the buffer to the size that the application chose: `bytes` of memory.
    pub(crate) fn fix_buffer(&mut self, bytes: u32) {
        self.set_buffer(bytes);
        self.tuning.lock();
    }

    /// The measurements from which the buffer's size is computed.
    #[inline(always)]
    pub(crate) fn tuning(&self) -> &Tuning {
        &self.tuning
    }
}

/// Read access for other modules.
impl Receiver {
    /// Time at which payload last arrived, or the connection was established; 0: neither.
    #[inline(always)]
    pub fn last_data_ns(&self) -> u64 {
        self.last_data_ns
    }

    /// Time at which an acceptable ACK last arrived.
    #[inline(always)]
    pub fn last_ack_ns(&self) -> u64 {
        self.last_ack_ns
    }

    /// Payload bytes received in order.
    #[inline(always)]
    pub fn bytes_received(&self) -> u64 {
        self.bytes_received
    }

    /// Size of the receive buffer in bytes of memory.
    #[inline(always)]
    pub fn buffer(&self) -> u32 {
        self.buffer
    }

    /// Bytes of memory that received data takes, in order and out of order.
    #[inline(always)]
    pub fn charged(&self) -> u32 {
        self.charged
    }

    /// Bytes published that the application has not read.
    #[inline(always)]
    pub fn unread(&self) -> u32 {
        self.unread
    }

    /// The window last advertised, in bytes from `rcv.acked()` on.
    #[inline(always)]
    pub fn wnd(&self) -> u32 {
        self.wnd
    }

    /// Largest window that may ever be advertised, bytes.
    #[inline(always)]
    pub fn clamp(&self) -> u32 {
        self.clamp
    }

    /// Present upper limit of the advertised window, bytes. It grows with well-filled segments.
    #[inline(always)]
    pub fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    /// Adaptive delay of acknowledgments; 0 = no payload has arrived yet.
    #[inline(always)]
    pub fn ato_us(&self) -> u32 {
        self.ato_us
    }

    /// Time at which TS.Recent was last updated, in coarse time.
    #[inline(always)]
    pub fn ts_recent_at(&self) -> u32 {
        self.ts_recent_at
    }

    /// Segments received.
    #[inline(always)]
    pub fn segs_in(&self) -> u32 {
        self.segs_in
    }

    /// Segments with payload received.
    #[inline(always)]
    pub fn data_segs_in(&self) -> u32 {
        self.data_segs_in
    }

    /// MSS that we announced.
    #[inline(always)]
    pub fn mss(&self) -> u16 {
        self.mss
    }

    /// Our MSS less the options that every segment carries.
    #[inline(always)]
    pub fn advmss(&self) -> u16 {
        self.advmss
    }

    /// Estimate of the peer's segment size.
    #[inline(always)]
    pub fn peer_segment(&self) -> u16 {
        self.peer_segment
    }

    /// Payload bytes per 256 bytes of memory.
    #[inline(always)]
    pub fn ratio(&self) -> u8 {
        self.ratio
    }

    /// True if the application answers what it receives, so that ACKs ride on its answers.
    #[inline(always)]
    pub fn interactive(&self) -> bool {
        self.interactive
    }

    /// Number of duplicate ACKs owed, one for each out-of-order segment.
    #[inline(always)]
    pub fn dup_acks_due(&self) -> u8 {
        self.dup_acks_due
    }

    /// Number of SACKs held back since the last ACK.
    #[inline(always)]
    pub fn compressed(&self) -> u8 {
        self.compressed
    }

    /// The duplicate range that the next ACK reports (`ConnFlags::DSACK`).
    #[inline(always)]
    pub fn duplicate(&self) -> Range {
        self.duplicate
    }

    /// Sequence number of a FIN that arrived ahead of data (`ConnFlags::FIN_HELD`).
    #[inline(always)]
    pub fn fin_seq(&self) -> SeqNumber {
        self.fin_seq
    }

    /// IRS.
    #[inline(always)]
    pub fn irs(&self) -> SeqNumber {
        self.irs
    }

    /// RCV.UP: the sequence number after the last urgent byte (`ConnFlags::URGENT`).
    #[inline(always)]
    pub fn urgent_end(&self) -> SeqNumber {
        self.urgent_end
    }
}

/// Read access for other modules.
impl Receiver {
    /// Segments that arrived out of order and were stored.
    #[inline(always)]
    pub fn out_of_order_in(&self) -> u32 {
        self.out_of_order_in
    }
}
