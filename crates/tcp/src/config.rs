//! The settings of TCP, one value per stack, shared by all its connections.
//!
//! Owned by the stack, lent to every call through `Cx`. The defaults are Linux's. Where a default
//! differs from an RFC's SHOULD, the field says so. Times are nanoseconds.

use crate::congestion_control::OutsideAlgorithms;
use crate::fast_open::FastOpenSettings;
use crate::path_mtu::PathMtuSettings;
use crate::{MILLISECOND_NS, SECOND_NS};

mod algorithm;

pub use algorithm::CongestionAlgorithm;

/// The rule that ends slow start before the first loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowStart {
    /// No rule: slow start lasts until a loss or until the threshold.
    Standard,
    /// HyStart as in Linux: a long train of ACKs, or a longer round trip.
    #[default]
    HyStart,
    /// HyStart++ (RFC 9406).
    HyStartPlusPlus,
}

/// The kinds of ECN that a connection negotiates, with the values of Linux's `tcp_ecn`: classic
/// (RFC 3168) or accurate (RFC 9768). A setting that grants accurate ECN also grants classic ECN to
/// a peer that asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum EcnUse {
    /// ECN is neither requested nor granted.
    Never = 0,
    /// Classic ECN is requested, and granted to a peer that requests either kind.
    Always = 1,
    /// Classic ECN is granted to a peer that requests either kind; Linux's default.
    #[default]
    WhenAsked = 2,
    /// Accurate ECN is requested and granted.
    Accurate = 3,
    /// Accurate ECN is granted; classic ECN is requested.
    AccurateWhenAsked = 4,
    /// Accurate ECN is granted; no ECN is requested.
    AccurateOnlyWhenAsked = 5,
}

impl EcnUse {
    /// The setting for a value of Linux's `tcp_ecn`.
    #[must_use]
    pub const fn from_sysctl(value: u8) -> Option<Self> {
        match value {
            0 => Some(EcnUse::Never),
            1 => Some(EcnUse::Always),
            2 => Some(EcnUse::WhenAsked),
            3 => Some(EcnUse::Accurate),
            4 => Some(EcnUse::AccurateWhenAsked),
            5 => Some(EcnUse::AccurateOnlyWhenAsked),
            _ => None,
        }
    }

    /// Our SYNs ask for accurate ECN.
    #[must_use]
    pub const fn asks_for_accurate(self) -> bool {
        matches!(self, EcnUse::Accurate)
    }

    /// Our SYNs ask for classic ECN.
    #[must_use]
    pub const fn asks_for_classic(self) -> bool {
        matches!(self, EcnUse::Always | EcnUse::AccurateWhenAsked)
    }

    /// A SYN that asks for accurate ECN gets it.
    #[must_use]
    pub const fn grants_accurate(self) -> bool {
        matches!(
            self,
            EcnUse::Accurate | EcnUse::AccurateWhenAsked | EcnUse::AccurateOnlyWhenAsked
        )
    }

    /// A SYN that asks for ECN of either kind gets some.
    #[must_use]
    pub const fn grants(self) -> bool {
        !matches!(self, EcnUse::Never)
    }
}

/// Settings of CUBIC, by the names and in the units of Linux's `/sys/module/tcp_cubic/parameters`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CubicSettings {
    /// Fast convergence: a window that shrank twice in a row leaves room for others (RFC 9438 4.7).
    pub fast_convergence: bool,
    /// The window after a loss, in 1/1024 of the one before (RFC 9438 4.6: 0.7), below 1024.
    pub beta: u32,
    /// First slow-start threshold in segments, if slow start is `Standard`; 0 = unlimited.
    pub initial_ssthresh: u32,
    /// A tenth of the constant C, in 1/1024 segments/s^3 (`bic_scale`; RFC 9438 5: C = 0.4).
    pub scale: u32,
    /// Grow at least as Reno would (RFC 9438 4.3).
    pub tcp_friendliness: bool,
    /// The rule that ends slow start (`hystart`).
    pub slow_start: SlowStart,
    /// HyStart looks at trains of ACKs (`hystart_detect` & 1).
    pub hystart_ack_train: bool,
    /// HyStart looks at round trips (`hystart_detect` & 2).
    pub hystart_delay: bool,
    /// HyStart does nothing below this window in segments.
    pub hystart_low_window: u32,
    /// Largest gap between two ACKs of one train, in microseconds.
    pub hystart_ack_delta_us: u32,
}

impl Default for CubicSettings {
    fn default() -> Self {
        Self {
            fast_convergence: true,
            beta: 717,
            initial_ssthresh: 0,
            scale: 41,
            tcp_friendliness: true,
            slow_start: SlowStart::HyStart,
            hystart_ack_train: true,
            hystart_delay: true,
            hystart_low_window: 16,
            hystart_ack_delta_us: 2000,
        }
    }
}

/// The three sizes of a socket buffer, in bytes of memory as Linux counts them (`tcp_rmem`,
/// `tcp_wmem`): payload and the overhead of storing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// Size that a socket keeps even when memory is short.
    pub bytes_min: u32,
    /// Initial size.
    pub bytes_default: u32,
    /// Size up to which a buffer grows by itself.
    pub bytes_max: u32,
}

/// Settings of TCP, per stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// First retransmission timeout, before any round trip is measured (RFC 6298 2.1).
    pub rto_initial_ns: u64,
    /// First retransmission timeout of data if the SYN or SYN-ACK itself was lost (RFC 6298 5.7).
    pub rto_after_syn_loss_ns: u64,
    /// Lower bound of the timeout's variance term: RTO >= SRTT + this. RFC 6298 2.4 says 1 s for
    /// the whole timeout; Linux uses 200 ms.
    pub rto_ns_min: u64,
    /// Upper bound of the timeout (RFC 6298 2.5: at least 60 s).
    pub rto_ns_max: u64,
    /// The first timeouts of a stream with little in flight do not double (Linux's
    /// `tcp_thin_linear_timeouts`).
    pub thin_linear_timeouts: bool,
    /// Shortest delay of an acknowledgment, with which the adaptive delay starts.
    pub delayed_ack_ns_min: u64,
    /// Longest delay of an acknowledgment (RFC 9293 MUST-40: below 500 ms).
    pub delayed_ack_ns_max: u64,
    /// Segments acknowledged at once when a connection is young or becomes active again; 0 turns
    /// quick ACKs off.
    pub quick_acks_max: u8,
    /// Retransmissions of a SYN before the open fails, beyond the linear ones.
    pub syn_retries_max: u8,
    /// Number of first SYN retransmissions that each wait the initial timeout, without doubling
    /// (Linux 6.5).
    pub syn_linear_timeouts_max: u8,
    /// Retransmissions of a SYN-ACK before the half-open connection is dropped.
    pub syn_ack_retries_max: u8,
    /// Timeouts in a row without any acknowledgment before the connection fails (R2 of RFC 9293
    /// 3.8.3).
    pub retries_max: u8,
    /// Limit on such timeouts once the application has closed the connection.
    pub orphan_retries_max: u8,
    /// Idle time before the first keep-alive probe (RFC 9293 MUST-28: at least 2 h by default).
    pub keepalive_idle_ns: u64,
    /// Time between keep-alive probes.
    pub keepalive_interval_ns: u64,
    /// Unanswered keep-alive probes before the connection fails.
    pub keepalive_probes_max: u8,
    /// Length of TIME_WAIT. RFC 9293 MUST-13 says 2 MSL = 4 min; Linux 60 s.
    pub time_wait_ns: u64,
    /// True: no RST ends TIME_WAIT (RFC 1337 3, Linux's `tcp_rfc1337`). False: a RST at RCV.NXT
    /// does (RFC 9293 3.10.7.4).
    pub time_wait_outlives_resets: bool,
    /// Time that a connection without an application waits in FIN_WAIT_2 for the peer's FIN.
    pub fin_wait_2_ns: u64,
    /// Shortest time between two answers to invalid, empty segments of one connection. It stops ACK
    /// loops.
    pub invalid_ack_interval_ns: u64,
    /// Initial congestion window in segments (RFC 6928).
    pub initial_window_segments: u16,
    /// The kinds of ECN that are negotiated (RFC 3168, RFC 9768).
    pub ecn: EcnUse,
    /// Retransmitted SYNs fall back: from the first retransmission on they do not request classic
    /// ECN (RFC 3168 6.1.1.1), from the second on not accurate ECN either. Feedback on a SYN that
    /// no path can have caused turns ECN off (RFC 9768 3.1.4, 3.2.2.3).
    pub ecn_fallback: bool,
    /// When AccECN options are sent (Linux's `tcp_ecn_option`): 0 never, 1 when there is news, 2
    /// with every segment that has room. 3 is like 2, also when ACKs with an option seem to be
    /// lost.
    pub accecn_option: u8,
    /// Number of AccECN options sent at least in each round trip, even without news; 0: no minimum
    /// (`tcp_ecn_option_beacon`).
    pub accecn_option_beacon: u8,
    /// Congestion control of new connections.
    pub congestion: CongestionAlgorithm,
    /// Algorithms from outside the crate ([`register_congestion`](Self::register_congestion)).
    pub outside: OutsideAlgorithms,
    /// Settings of CUBIC.
    pub cubic: CubicSettings,
    /// True: every connection paces its segments. False: only connections with SO_MAX_PACING_RATE,
    /// or whose algorithm needs pacing.
    pub pacing: bool,
    /// Pacing rate in slow start below half of the threshold, in percent of a window per round
    /// trip.
    pub pacing_ss_percent: u32,
    /// Pacing rate afterwards, in percent of a window per round trip.
    pub pacing_ca_percent: u32,
    /// Shrink the congestion window of a connection that was idle (RFC 5681 4.1).
    pub slow_start_after_idle: bool,
    /// Duplicate ACKs that start a fast retransmit (RFC 5681 3.2).
    pub dup_acks_max: u8,
    /// Upper limit of the measured reordering, in segments.
    pub reordering_max: u16,
    /// Detect spurious timeouts (RFC 5682).
    pub frto: bool,
    /// Send tail loss probes (RFC 8985 7).
    pub tail_loss_probe: bool,
    /// Segments that leave back to back at least, whatever the rate (Linux's `tcp_min_tso_segs`).
    pub burst_segments_min: u8,
    /// Burst size that is not deferred, although an ACK may soon make room for more: the window
    /// divided by this number. 0: more than three segments (Linux's `tcp_tso_win_divisor`).
    pub burst_window_divisor: u32,
    /// Time for which the least round trip is remembered.
    pub min_rtt_window_ns: u64,
    /// Offer and accept timestamps (RFC 7323 3).
    pub timestamps: bool,
    /// Offer and accept window scaling (RFC 7323 2).
    pub window_scaling: bool,
    /// True: a scaled window may shrink when memory is short (Linux's `tcp_shrink_window`; RFC 9293
    /// SHLD-14 says no).
    pub shrink_window: bool,
    /// Offer and accept selective acknowledgments (RFC 2018).
    pub sack: bool,
    /// A soft ICMP error ends an attempt to connect, as in Linux (RFC 5461; RFC 9293 MUST-56 says
    /// no).
    pub soft_errors_end_connect: bool,
    /// The peer's MSS when its SYN names none, IPv4 (RFC 9293 MUST-15).
    pub mss_default_v4: u16,
    /// The peer's MSS when its SYN names none, IPv6 (RFC 9293 MUST-15).
    pub mss_default_v6: u16,
    /// Report segments that arrived twice (RFC 2883).
    pub dsack: bool,
    /// Longest time for which a SACK behind a gap is held back, once three duplicate ACKs have
    /// left; 0: none is held back.
    pub comp_sack_ns_max: u64,
    /// The same limit in percent of the round trip; the smaller one applies. Linux: 5 up to 6.18,
    /// 33 since. A peer that lost a retransmission learns of the loss that much later.
    pub comp_sack_rtt_percent: u8,
    /// Additional time that lets several held-back SACKs become one (the slack of Linux's timer).
    pub comp_sack_slack_ns: u64,
    /// Number of SACKs that one may stand for; 0: no SACK is held back.
    pub comp_sacks_max: u8,
    /// Receive buffer of a socket.
    pub recv_buffer: BufferSizes,
    /// Send buffer of a socket.
    pub send_buffer: BufferSizes,
    /// Largest request for SO_RCVBUF, in payload bytes; the buffer gets twice that.
    pub recv_buffer_option_max: u32,
    /// Largest request for SO_SNDBUF, in payload bytes; the buffer gets twice that.
    pub send_buffer_option_max: u32,
    /// Receive buffers grow with what the application reads in a round trip (dynamic right-sizing).
    pub recv_buffer_moderate: bool,
    /// Unsent bytes below which a socket is writable (TCP_NOTSENT_LOWAT); `u32::MAX` = no such
    /// limit.
    pub notsent_lowat: u32,
    /// Challenge ACKs per second and stack (RFC 5961 10).
    pub challenge_acks_per_second_max: u32,
    /// Fast Open (RFC 7413).
    pub fast_open: FastOpenSettings,
    /// Path MTU discovery (RFC 1191, RFC 8201, RFC 4821).
    pub path_mtu: PathMtuSettings,
    /// When a SYN is answered with a cookie (RFC 4987).
    pub syn_cookies: SynCookieUse,
    /// True: a handshake that completes while the accept queue is full is answered with a RST.
    /// False: the entry stays, and the peer tries again.
    pub abort_on_overflow: bool,
}

/// When a SYN is answered with a cookie: Linux's `tcp_syncookies`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SynCookieUse {
    /// Never: a SYN that finds the queue full is dropped.
    Never,
    /// Only when the queue of half-open connections is full.
    #[default]
    WhenFull,
    /// Always.
    Always,
}

/// Linux's `tcp_rmem`.
const RECV_BUFFER: BufferSizes = BufferSizes {
    bytes_min: 4096,
    bytes_default: 131_072,
    bytes_max: 6 << 20,
};
/// Linux's `tcp_wmem`.
const SEND_BUFFER: BufferSizes = BufferSizes {
    bytes_min: 4096,
    bytes_default: 16_384,
    bytes_max: 4 << 20,
};

impl Default for Config {
    fn default() -> Self {
        Self {
            rto_initial_ns: SECOND_NS,
            rto_after_syn_loss_ns: 3 * SECOND_NS,
            rto_ns_min: 200 * MILLISECOND_NS,
            rto_ns_max: 120 * SECOND_NS,
            thin_linear_timeouts: false,
            delayed_ack_ns_min: 40 * MILLISECOND_NS,
            delayed_ack_ns_max: 200 * MILLISECOND_NS,
            quick_acks_max: 16,
            syn_retries_max: 6,
            syn_linear_timeouts_max: 4,
            syn_ack_retries_max: 5,
            retries_max: 15,
            orphan_retries_max: 8,
            keepalive_idle_ns: 7200 * SECOND_NS,
            keepalive_interval_ns: 75 * SECOND_NS,
            keepalive_probes_max: 9,
            time_wait_ns: 60 * SECOND_NS,
            time_wait_outlives_resets: false,
            fin_wait_2_ns: 60 * SECOND_NS,
            invalid_ack_interval_ns: 500 * MILLISECOND_NS,
            initial_window_segments: 10,
            ecn: EcnUse::WhenAsked,
            ecn_fallback: true,
            accecn_option: 2,
            accecn_option_beacon: 3,
            congestion: CongestionAlgorithm::Cubic,
            outside: OutsideAlgorithms::NONE,
            cubic: CubicSettings::default(),
            pacing: false,
            pacing_ss_percent: 200,
            pacing_ca_percent: 120,
            slow_start_after_idle: true,
            dup_acks_max: 3,
            reordering_max: 300,
            frto: true,
            tail_loss_probe: true,
            burst_segments_min: 2,
            burst_window_divisor: 3,
            min_rtt_window_ns: 300 * SECOND_NS,
            timestamps: true,
            window_scaling: true,
            shrink_window: false,
            sack: true,
            soft_errors_end_connect: true,
            mss_default_v4: 536,
            mss_default_v6: 1220,
            dsack: true,
            comp_sack_ns_max: MILLISECOND_NS,
            comp_sack_rtt_percent: 5,
            comp_sack_slack_ns: MILLISECOND_NS / 10,
            comp_sacks_max: 44,
            recv_buffer: RECV_BUFFER,
            send_buffer: SEND_BUFFER,
            recv_buffer_option_max: 4 << 20,
            send_buffer_option_max: 4 << 20,
            recv_buffer_moderate: true,
            notsent_lowat: u32::MAX,
            challenge_acks_per_second_max: 1000,
            fast_open: FastOpenSettings::default(),
            path_mtu: PathMtuSettings::default(),
            syn_cookies: SynCookieUse::default(),
            abort_on_overflow: false,
        }
    }
}
