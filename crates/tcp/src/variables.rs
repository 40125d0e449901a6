//! The connection's variables, cut by how often they are touched, with the RFC's names.
//!
//! ```text
//!   sent and acknowledged │ in flight │ may be sent │ not yet        received │ may arrive │ not yet
//!   ──────────────────────┼───────────┼─────────────┼───────►        ─────────┼────────────┼───────►
//!                      snd.una     snd.nxt  snd.una + snd.wnd              rcv.nxt      rcv.adv
//! ```
//!
//! [`Snd`] and [`Rcv`] stand in the hot line with the state and the deadline: a segment that changes
//! nothing touches no other. [`Sender`] and [`Receiver`] hold the rest, the common before the rare.

use wire::SeqNumber;
use wire::tcp::FastOpenCookie;

use crate::buffers::{InitialWindow, RATIO_DEFAULT};
use crate::ecn::EcnLine;
use crate::fast_open::FastOpenFailure;
use crate::limits::{SEND_MSS_MIN, coarse};
use crate::pack::{Packing, Usual};
use crate::reassembly::{Held, Range};
use crate::record_ends::RecordEnds;
use crate::rtt::RoundTrip;
use crate::timers::{OwnTimers, Tally, Timers};

/// Hot send variables.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Snd {
    /// SND.UNA: oldest sequence number not acknowledged.
    pub una: SeqNumber,
    /// SND.NXT: next to be sent for the first time. Never goes back.
    pub nxt: SeqNumber,
    /// SND.WND in bytes.
    pub wnd: u32,
    /// Payload bytes in the send buffer from `una` on, sent and unsent.
    pub buffered: u32,
    /// SND.WL1: sequence number of the last window update.
    pub wl1: SeqNumber,
    /// SND.WL2: acknowledgment number of the last window update.
    pub wl2: SeqNumber,
    /// Eff.snd.MSS: largest payload of a segment, options deducted.
    pub mss: u16,
    /// Shift of the windows that the peer advertises.
    pub shift: u8,
    /// Which kind of ECN is in use, and what it expects of the next segment.
    pub ecn: EcnLine,
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

    /// What the peer's window still takes beyond `nxt`.
    #[inline]
    pub fn usable(&self) -> u32 {
        self.wnd.saturating_sub(self.flight())
    }
}

/// Hot receive variables.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Rcv {
    /// RCV.NXT: next sequence number expected.
    pub nxt: SeqNumber,
    /// RCV.NXT + RCV.WND: right edge of the window as advertised. Never goes back.
    pub adv: SeqNumber,
    /// Last.ACK.sent of RFC 7323.
    pub acked: SeqNumber,
    /// TS.Recent of RFC 7323.
    pub ts_recent: u32,
}

impl Rcv {
    /// Nothing received.
    pub const NEW: Rcv = Rcv {
        nxt: SeqNumber(0),
        adv: SeqNumber(0),
        acked: SeqNumber(0),
        ts_recent: 0,
    };

    /// RCV.WND in bytes.
    #[inline]
    pub fn wnd(&self) -> u32 {
        self.adv.since(self.nxt)
    }
}

/// Send variables outside the hot line: with every ACK, with every segment sent, seldom.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Sender {
    /// The three deadlines.
    pub timers: Timers,
    /// Round-trip estimate and timeout.
    pub rtt: RoundTrip,
    /// Payload bytes acknowledged that the caller has not taken yet.
    pub acked: u32,
    /// MAX.SND.WND of RFC 5961 and of silly-window avoidance.
    pub max_wnd: u32,
    /// When `una` last moved, or flight or probing began: the user timeout counts from here.
    pub progress_ns: u64,
    /// When payload was last sent, or the connection established; 0 = neither.
    pub last_sent_ns: u64,
    /// Payload bytes acknowledged in all.
    pub bytes_acked: u64,
    /// End of the last segment sent below the MSS (Minshall's variant of Nagle).
    pub small_end: SeqNumber,
    /// Added to the clock in milliseconds for our timestamps.
    pub ts_offset: u32,
    /// ISS
    pub iss: SeqNumber,
    /// Sequence number of the RST that answers one segment (`Marks::REPLY_RESET`).
    pub reply_seq: SeqNumber,
    /// Segments sent.
    pub segs_out: u32,
    /// Segments with payload sent.
    pub data_segs_out: u32,
    /// Segments sent again.
    pub total_retrans: u32,
    /// Idle time before keep-alive probes.
    pub keepalive_idle_ms: u32,
    /// Time between keep-alive probes.
    pub keepalive_interval_ms: u32,
    /// TCP_USER_TIMEOUT; 0 = none.
    pub user_timeout_ms: u32,
    /// When an invalid, empty segment was last answered, in milliseconds (wraps).
    pub invalid_answered_ms: u32,
    /// MSS that the peer announced.
    pub peer_mss: u16,
    /// MSS that our link, or the path, allows.
    pub path_mss: u16,
    /// Keep-alive probes before giving up.
    pub keepalive_probes_max: u8,
    /// Probes of either kind without an answer.
    pub probes: u8,
    /// Timeouts in a row without progress.
    pub retransmits: u8,
    /// Doublings of the timeout.
    pub backoff: u8,
    /// Last soft ICMP error, reported if the connection times out.
    pub soft_error: Option<crate::state::ConnectionError>,
}

impl Sender {
    /// The segment size before the peer's window is considered.
    pub fn base_mss(&self, option_bytes: u16) -> u16 {
        let mss = self.peer_mss.min(self.path_mss).max(SEND_MSS_MIN);
        mss - option_bytes
    }
}

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

/// What matters when a connection begins and ends, and seldom between.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cold {
    /// The Fast Open option of the first SYN, or of the first SYN-ACK.
    pub fast_open: Option<FastOpenCookie>,
    /// Payload bytes that the first SYN may take along.
    pub syn_bytes_max: u16,
    /// Payload bytes that it took.
    pub syn_bytes: u16,
    /// Why the client's Fast Open came to nothing (Linux's `tcpi_fastopen_client_fail`).
    pub fast_open_failure: FastOpenFailure,
    /// The application reads no more than what had arrived when it said so.
    pub read_shut: bool,
    /// The application has the connection (asked for only while it is opened fast).
    pub is_accepted: bool,
    /// FIN_WAIT_2 of an orphan in milliseconds (TCP_LINGER2); `None`: it is not waited for; 0: the stack's setting.
    pub fin_wait_2_ms: Option<u32>,
    /// Where segments must end (`Marks::RECORDS`).
    pub record_ends: RecordEnds,
    /// SND.UP: the sequence number after the last urgent byte (`Marks::RECORDS`).
    pub urgent_out: Option<SeqNumber>,
    /// The port had no room for what is due, and the persist timer watches over the wait: a mark of what had left by it at the last look; 0: it had.
    pub port_blocked_at: u8,
    /// The SYN or SYN-ACK left once.
    pub is_syn_sent: bool,
    /// TCP_SYNCNT; 0 = the stack's setting.
    pub syn_retries_max: u8,
    /// What the application chose for this socket's timers.
    pub own_timers: OwnTimers,
    /// Made by a SYN with a good cookie (Linux's `TCPI_OPT_TFO_CHILD`).
    pub is_fast_child: bool,
    /// Timeouts so far.
    pub tally: Tally,
    /// Segments that arrived ahead of others and were kept.
    pub out_of_order_in: u32,
    /// A segment larger than our MSS was taken for several of the peer's MSS (`size_on_the_wire`).
    pub divides_segments: bool,
}

impl Cold {
    pub const NEW: Cold = Cold {
        fast_open: None,
        syn_bytes_max: 0,
        syn_bytes: 0,
        fast_open_failure: FastOpenFailure::None,
        read_shut: false,
        is_accepted: false,
        fin_wait_2_ms: Some(0),
        record_ends: RecordEnds::NONE,
        urgent_out: None,
        port_blocked_at: 0,
        is_syn_sent: false,
        syn_retries_max: 0,
        own_timers: OwnTimers::NONE,
        is_fast_child: false,
        tally: Tally::NONE,
        out_of_order_in: 0,
        divides_segments: false,
    };
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

/// Linux's defaults, which are ours: what most connections have.
const USUAL_MSS: u16 = 1_460;
const USUAL_KEEPALIVE_MS: (u32, u32, u8) = (7_200_000, 75_000, 9);
const USUAL_BUFFER: u32 = 131_072;

impl Snd {
    /// `una` is packed already.
    pub fn pack(&mut self, p: &mut impl Packing, rcv: &Rcv) {
        let Snd {
            una,
            nxt,
            wnd,
            buffered,
            wl1,
            wl2,
            mss,
            shift,
            ecn,
        } = self;
        p.seq(nxt, *una);
        p.u32(wnd, u32::from(u16::MAX));
        p.u32(buffered, 0);
        p.seq(wl1, rcv.nxt - 1);
        p.seq(wl2, *una);
        p.u16(mss, USUAL_MSS - 12);
        p.u8(shift, 7);
        ecn.pack(p);
    }
}

impl Sender {
    /// `iss` is packed already.
    pub fn pack(&mut self, p: &mut impl Packing, snd: &Snd, usual: &Usual) {
        let Sender {
            timers,
            rtt,
            acked,
            max_wnd,
            progress_ns,
            last_sent_ns,
            bytes_acked,
            small_end,
            ts_offset,
            iss: _,
            reply_seq,
            segs_out,
            data_segs_out,
            total_retrans,
            keepalive_idle_ms,
            keepalive_interval_ms,
            user_timeout_ms,
            invalid_answered_ms,
            peer_mss,
            path_mss,
            keepalive_probes_max,
            probes,
            retransmits,
            backoff,
            soft_error,
        } = self;
        timers.pack(p);
        rtt.pack(p, usual);
        p.u32(acked, 0);
        p.u32(max_wnd, snd.wnd);
        p.u64(progress_ns, usual.now_ns);
        p.u32(segs_out, 0);
        p.u32(data_segs_out, 0);
        let sent_ns = if *data_segs_out > 0 { usual.now_ns } else { 0 };
        p.u64(last_sent_ns, sent_ns);
        p.u64(bytes_acked, u64::from(usual.una.since(usual.first)));
        p.seq(small_end, usual.una);
        p.u32(ts_offset, 0);
        p.seq(reply_seq, SeqNumber(0));
        p.u32(total_retrans, 0);
        p.u32(keepalive_idle_ms, USUAL_KEEPALIVE_MS.0);
        p.u32(keepalive_interval_ms, USUAL_KEEPALIVE_MS.1);
        p.u32(user_timeout_ms, 0);
        p.u32(invalid_answered_ms, 0);
        p.u16(peer_mss, USUAL_MSS);
        p.u16(path_mss, *peer_mss);
        p.u8(keepalive_probes_max, USUAL_KEEPALIVE_MS.2);
        p.u8(probes, 0);
        p.u8(retransmits, 0);
        p.u8(backoff, 0);
        if p.must(soft_error.is_none()) {
            *soft_error = None;
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

impl Cold {
    /// A connection that was opened fast, has records or urgent data under way, or timers of its own, is not packed.
    pub fn pack(&mut self, p: &mut impl Packing) {
        let Cold {
            fast_open,
            syn_bytes_max,
            syn_bytes,
            fast_open_failure,
            read_shut,
            is_accepted,
            fin_wait_2_ms,
            record_ends,
            urgent_out,
            port_blocked_at,
            is_syn_sent,
            syn_retries_max,
            own_timers,
            is_fast_child,
            tally,
            out_of_order_in,
            divides_segments,
        } = self;
        if p.must(fast_open.is_none() && record_ends.is_empty() && urgent_out.is_none()) {
            (*fast_open, *record_ends, *urgent_out) = (None, RecordEnds::NONE, None);
        }
        if p.must(*own_timers == OwnTimers::NONE) {
            *own_timers = OwnTimers::NONE;
        }
        p.u16(syn_bytes_max, 0);
        p.u16(syn_bytes, 0);
        p.one_of(
            fast_open_failure,
            &[
                FastOpenFailure::None,
                FastOpenFailure::NoCookie,
                FastOpenFailure::DataNotAcked,
                FastOpenFailure::SynRetransmitted,
            ],
        );
        p.bool(read_shut);
        p.bool(is_accepted);
        let mut is_never = fin_wait_2_ms.is_none();
        p.bool(&mut is_never);
        let mut ms = fin_wait_2_ms.unwrap_or(0);
        p.u32(&mut ms, 0);
        *fin_wait_2_ms = (!is_never).then_some(ms);
        p.u8(port_blocked_at, 0);
        p.bool(is_syn_sent);
        p.u8(syn_retries_max, 0);
        p.bool(is_fast_child);
        tally.pack(p);
        p.u32(out_of_order_in, 0);
        p.bool(divides_segments);
    }
}
