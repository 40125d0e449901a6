//! The sender's measurements and counters, outside the hot line.
//!
//! Owned by `Connection`. Recovery, timers and output read it; ACKs and departures change it.

use wire::SeqNumber;

use crate::MILLISECOND_NS;
use crate::config::Config;
use crate::limits::{SEND_MSS_MIN, timestamp_bytes};
use crate::marks::Marks;
use crate::pack::{Packing, Usual};
use crate::rtt::RoundTrip;
use crate::timers::Timers;
use crate::variables::Snd;

/// Linux's defaults, which are ours: what most connections have.
const USUAL_MSS: u16 = 1_460;
const USUAL_KEEPALIVE_MS: (u32, u32, u8) = (7_200_000, 75_000, 9);

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

impl Sender {
    /// Enough probes went unanswered, or the user timeout passed with at least one.
    pub(crate) fn keepalive_exhausted(&self, silent_ns: u64) -> bool {
        match self.user_timeout_ns() {
            0 => self.probes >= self.keepalive_probes_max,
            user_ns => silent_ns >= user_ns && self.probes > 0,
        }
    }
}

impl Sender {
    /// The user timeout in nanoseconds; 0 = none.
    pub(crate) fn user_timeout_ns(&self) -> u64 {
        u64::from(self.user_timeout_ms) * MILLISECOND_NS
    }
}

impl Sender {
    /// The peer's MSS, or the assumed one before its SYN, less our options.
    pub(crate) fn mss_of_peer(&self, marks: Marks) -> u32 {
        let options = timestamp_bytes(marks.has(Marks::TIMESTAMPS));
        u32::from(self.peer_mss.saturating_sub(options))
    }

    pub(crate) fn min_rtt_ns(&self) -> u64 {
        match self.rtt.min_us() {
            u32::MAX => u64::MAX,
            min_us => u64::from(min_us) * 1000,
        }
    }
}

impl Sender {
    pub(crate) fn least_wait_ns(&self) -> u64 {
        self.rtt.rto_ns() * 7 / 2
    }
}

impl Sender {
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
