//! The receiver: window, memory, out-of-order text and the pace of ACKs, outside the hot line.
//!
//! Owned by `Connection`. Segments and reads change it; output asks it for the window and the SACK blocks.

pub(crate) mod delayed_ack;
pub(crate) mod window;

use wire::SeqNumber;

use crate::buffers::{InitialWindow, RATIO_DEFAULT};
use crate::counters::Counters;
use crate::limits::{SACK_BLOCKS_MAX, TS_RECENT_AGE_MAX, coarse};
use crate::marks::Marks;
use crate::pack::Packing;
use crate::reassembly::{Held, Range, RangePool};
use crate::recv_buffer::RecvBuffer;
use crate::variables::{Rcv, Snd};

/// Payload in a well-filled page, and the memory that the page costs.
const PACKED_BYTES: u64 = 3712;
const PACKED_MEMORY: u64 = 4352;

/// Linux's defaults, which are ours: what most connections have.
const USUAL_MSS: u16 = 1_460;
const USUAL_BUFFER: u32 = 131_072;

/// Linux's guess of the peer's segment size before anything has arrived: small, so that ACKs are rather too many.
pub(crate) const SEGMENT_GUESS_MIN: u32 = 88;
const SEGMENT_GUESS_MAX: u32 = 536;

/// Receive variables outside the hot line.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Receiver {
    /// When payload last arrived, or the connection was established; 0 = neither.
    pub last_data_ns: u64,
    /// When an acceptable ACK last arrived.
    pub last_ack_ns: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// The receive buffer in bytes of memory.
    pub buffer: u32,
    /// Memory that received bytes take, in order and not.
    pub charged: u32,
    /// Bytes published that the application has not read.
    pub unread: u32,
    /// The window last advertised, counted from `rcv.acked`.
    pub wnd: u32,
    /// The largest window that may be advertised.
    pub clamp: u32,
    /// What is advertised at most for now: grows with well-filled segments.
    pub ssthresh: u32,
    /// Adaptive delay of acknowledgments; 0 = no payload has arrived yet.
    pub ato_us: u32,
    /// When TS.Recent was last updated, in coarse time.
    pub ts_recent_at: u32,
    /// Segments received.
    pub segs_in: u32,
    /// Segments with payload received.
    pub data_segs_in: u32,
    /// MSS that we announced.
    pub mss: u16,
    /// The same less the options that every segment carries.
    pub advmss: u16,
    /// Estimate of the peer's segment size.
    pub peer_segment: u16,
    /// Size of the last segment smaller than that; 0 = none.
    pub last_small: u16,
    /// Payload that the last buffer still takes for nothing.
    pub room: u16,
    /// ACKs that may still be sent at once.
    pub quick_acks: u8,
    /// Payload bytes per 256 bytes of memory.
    pub ratio: u8,
    /// The application answers what it receives: ACKs ride on its answers.
    pub interactive: bool,
    /// Segments that look like the end of a message arrived since the last ACK; 2 = several.
    pub pushed: u8,
    /// Duplicate ACKs owed, one for each segment out of order.
    pub dup_acks_due: u8,
    /// Duplicate ACKs sent at once since RCV.NXT last moved.
    pub dup_acks_sent: u8,
    /// SACKs held back since the last ACK.
    pub compressed: u8,
    /// The window was taken back: the connection's `promised` lies beyond `rcv.adv`.
    pub retracted: bool,
    /// RCV.NXT when `dup_acks_sent` began.
    pub dup_acks_at: SeqNumber,
    /// Out-of-order ranges.
    pub held: Held,
    /// What arrived twice, to be reported by the next ACK (`Marks::DSACK`).
    pub duplicate: Range,
    /// Sequence number of a FIN that arrived ahead of data (`Marks::FIN_HELD`).
    pub fin_seq: SeqNumber,
    /// IRS
    pub irs: SeqNumber,
    /// RCV.UP: the sequence number after the last urgent byte (`Marks::URGENT`).
    pub urgent_end: SeqNumber,
}

impl Receiver {
    /// Before the peer is heard of. `initial`: the window that the SYN offers.
    pub fn new(now_ns: u64, mss: u16, buffer: u32, initial: &InitialWindow) -> Self {
        Receiver {
            last_data_ns: 0,
            last_ack_ns: now_ns,
            bytes_received: 0,
            buffer,
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
            retracted: false,
        }
    }
}
impl Receiver {
    /// `last_ack_ns` and RCV.NXT are packed already; the rest of `rcv` is packed along.
    pub fn pack(&mut self, p: &mut impl Packing, rcv: &mut Rcv) {
        let Rcv {
            nxt,
            adv,
            acked,
            ts_recent,
        } = rcv;
        p.seq(acked, *nxt);
        p.u32(&mut self.wnd, USUAL_BUFFER / 2);
        p.seq(adv, *acked + self.wnd);
        p.u32(ts_recent, 0);
        p.u32(&mut self.ts_recent_at, coarse(self.last_ack_ns));
        self.pack_rest(p, *nxt);
    }

    fn pack_rest(&mut self, p: &mut impl Packing, nxt: SeqNumber) {
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
            retracted: _,
            dup_acks_at,
            held,
            duplicate,
            fin_seq,
            irs,
            urgent_end,
        } = self;
        p.seq(irs, nxt - 1);
        p.u64(bytes_received, u64::from(nxt.since(*irs + 1)));
        p.u32(segs_in, 0);
        p.u32(data_segs_in, 0);
        p.u64(last_data_ns, *last_ack_ns);
        p.u32(buffer, USUAL_BUFFER);
        p.u32(charged, 0);
        p.u32(unread, 0);
        p.u32(clamp, *wnd);
        p.u32(ssthresh, *wnd);
        p.u32(ato_us, 0);
        p.u16(mss, USUAL_MSS);
        p.u16(advmss, *mss - 12.min(*mss));
        p.u16(peer_segment, 536);
        p.u16(last_small, 0);
        p.u16(room, 0);
        p.u8(quick_acks, 0);
        p.u8(ratio, RATIO_DEFAULT);
        p.bool(interactive);
        p.u8(pushed, 0);
        p.u8(dup_acks_due, 0);
        p.u8(dup_acks_sent, 0);
        p.u8(compressed, 0);
        p.seq(dup_acks_at, SeqNumber(0));
        if p.must(held.is_empty()) {
            *held = Held::default();
        }
        p.seq(&mut duplicate.left, SeqNumber(0));
        p.seq(&mut duplicate.right, duplicate.left);
        p.seq(fin_seq, SeqNumber(0));
        p.seq(urgent_end, SeqNumber(0));
    }
}

impl Receiver {
    /// Something is to be reported: segments are longer by it.
    pub(crate) fn sack_bytes(&self, marks: Marks, ranges: &RangePool) -> u16 {
        if !marks.any(Marks::OUT_OF_ORDER | Marks::DSACK) || !marks.has(Marks::SACK) {
            return 0;
        }
        let count =
            self.held.recent(ranges).as_slice().len() + usize::from(marks.has(Marks::DSACK));
        let max = if marks.has(Marks::TIMESTAMPS) {
            SACK_BLOCKS_MAX - 1
        } else {
            SACK_BLOCKS_MAX
        };
        match count.min(max) {
            0 => 0,
            blocks => 4 + 8 * blocks as u16,
        }
    }

    /// Small segments are packed together: what they cost at most is what well-filled buffers would.
    pub(crate) fn squeeze(&mut self, bytes: u32) {
        let packed = u64::from(bytes) * PACKED_MEMORY / PACKED_BYTES;
        self.charged = self.charged.min(packed.min(u64::from(u32::MAX)) as u32);
    }

    /// How many of the `held` bytes are beyond what the buffer is meant to take.
    pub(crate) fn bytes_too_many(&self, held: u32) -> u32 {
        let excess = u64::from(self.charged.saturating_sub(self.buffer));
        let bytes = (excess * u64::from(held)).div_ceil(u64::from(self.charged.max(1)));
        bytes.min(u64::from(held)) as u32
    }
}

impl Receiver {
    /// The sequence number of a FIN that waits for the text before it.
    #[inline]
    pub(crate) fn held_fin(&self, marks: Marks) -> Option<SeqNumber> {
        marks.has(Marks::FIN_HELD).then_some(self.fin_seq)
    }

    /// RCV.NXT is at the peer's FIN, and nothing follows a FIN: text that is held beyond it came from somebody else, or from a peer that
    /// contradicts itself. Its memory goes back (Linux does the same).
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
    /// How long the peer's segments may be, before any has come.
    pub(crate) fn guess_peer_segment(&mut self, snd: &Snd) {
        self.peer_segment = u32::from(self.advmss.min(snd.mss))
            .min(self.wnd / 2)
            .clamp(SEGMENT_GUESS_MIN, SEGMENT_GUESS_MAX) as u16;
    }

    /// Up to where the application has read.
    pub(crate) fn reader_seq(&self, rcv: &Rcv) -> SeqNumber {
        rcv.nxt - self.unread
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
