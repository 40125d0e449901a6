//! `struct tcp_info` and its relatives in Linux 7.0's layout. (6.18 has the modes of accurate ECN
//! in other bits of the last word.)
//!
//! All times are in microseconds, except `tcpi_total_rto_time` and the four `tcpi_last_*`, which
//! are in milliseconds. Three fields are always zero: `tcpi_fackets` and `tcpi_last_ack_sent`, as
//! in Linux, and `tcpi_rehash`, since flows are never rehashed.

use millstream::{SocketInfo, TcpConfig, TcpState};

/// Size of the structure in bytes.
pub const TCP_INFO_BYTES: usize = 280;
/// Value of an unlimited slow-start threshold.
const SSTHRESH_INFINITE: u32 = 0x7fff_ffff;

/// `tcpi_max_pacing_rate` of a socket without a limit.
const NO_PACING_LIMIT: u64 = u64::MAX;

/// Bits of `tcpi_options`.
mod option {
    pub const TIMESTAMPS: u8 = 1;
    pub const SACK: u8 = 2;
    pub const WSCALE: u8 = 4;
    pub const ECN: u8 = 8;
    pub const ECN_SEEN: u8 = 16;
    pub const SYN_DATA: u8 = 32;
    pub const TFO_CHILD: u8 = 128;
}

/// Linux's number of a state.
#[must_use]
pub fn state_number(state: TcpState) -> u8 {
    match state {
        TcpState::Established => 1,
        TcpState::SynSent => 2,
        TcpState::SynReceived => 3,
        TcpState::FinWait1 => 4,
        TcpState::FinWait2 => 5,
        // Linux's sockets are never in TIME_WAIT, which is an entry of its own. A program that
        // still has the socket finds it closed.
        TcpState::TimeWait | TcpState::Closed => CLOSED,
        TcpState::CloseWait => 8,
        TcpState::LastAck => 9,
        TcpState::Closing => 11,
    }
}

/// `TCP_CLOSE`
const CLOSED: u8 = 7;
/// `TCP_LISTEN`
const LISTEN: u8 = 10;

/// The structure being filled, by offsets of fields.
struct Fields([u8; TCP_INFO_BYTES]);

impl Fields {
    fn byte(&mut self, at: usize, value: u8) {
        self.0[at] = value;
    }

    fn half(&mut self, at: usize, value: u16) {
        self.0[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    }

    fn word(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    fn long(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }
}

fn micros(ns: u64) -> u32 {
    u32::try_from(ns / 1_000).unwrap_or(u32::MAX)
}

/// The `tcp_info` of a listener on which `waiting` connections of at most `backlog` wait to be
/// accepted.
#[must_use]
pub fn of_listener((waiting, backlog): (usize, usize), config: &TcpConfig) -> [u8; TCP_INFO_BYTES] {
    let mut fields = Fields([0; TCP_INFO_BYTES]);
    fields.byte(0, LISTEN);
    fields.word(24, u32::try_from(waiting).unwrap_or(u32::MAX));
    fields.word(28, u32::try_from(backlog).unwrap_or(u32::MAX));
    common_part(&mut fields, config);
    fields.0
}

/// The `tcp_info` of a socket without a connection: the values that a connection would begin with.
#[must_use]
pub fn without_connection(config: &TcpConfig) -> [u8; TCP_INFO_BYTES] {
    let mut fields = Fields([0; TCP_INFO_BYTES]);
    fields.byte(0, CLOSED);
    // `tcpi_delivery_rate_app_limited` is set until the first sample, as in Linux.
    fields.byte(7, 1);
    fields.word(8, micros(config.rto_initial_ns));
    fields.word(16, config.mss_default_v4.into());
    fields.word(72, micros(config.rto_initial_ns / 4));
    fields.word(76, SSTHRESH_INFINITE);
    fields.word(148, u32::MAX);
    common_part(&mut fields, config);
    fields.0
}

fn common_part(fields: &mut Fields, config: &TcpConfig) {
    fields.word(80, config.initial_window_segments.into());
    fields.word(88, config.dup_acks_max.into());
    fields.long(104, NO_PACING_LIMIT);
    fields.long(112, NO_PACING_LIMIT);
}

/// The `tcp_info` of a connection at `now_ns`.
#[must_use]
pub fn tcp_info(info: &SocketInfo, now_ns: u64) -> [u8; TCP_INFO_BYTES] {
    let mut fields = Fields([0; TCP_INFO_BYTES]);
    state_part(&mut fields, info);
    congestion_part(&mut fields, info);
    let tcp = &info.tcp;
    let ago_ms = |then_ns: u64| {
        let ago_ns = now_ns.saturating_sub(then_ns);
        u32::try_from(ago_ns / 1_000_000).unwrap_or(u32::MAX)
    };
    fields.word(44, ago_ms(tcp.last.data_sent_ns));
    fields.word(52, ago_ms(tcp.last.data_recv_ns));
    fields.word(56, ago_ms(tcp.last.ack_recv_ns));
    fields.word(60, info.path_mtu);
    fields.word(64, tcp.rcv_ssthresh);
    fields.word(84, tcp.advmss);
    fields.word(92, micros(tcp.rcv_rtt_ns));
    fields.word(96, tcp.rcv_space);
    fields.long(104, tcp.pacing_rate);
    fields.long(112, tcp.max_pacing_rate);
    fields.long(120, tcp.bytes_acked);
    fields.long(128, tcp.bytes_received);
    fields.word(136, tcp.segs_out);
    fields.word(140, tcp.segs_in);
    fields.word(144, tcp.notsent_bytes);
    fields.word(152, tcp.data_segs_in);
    fields.word(156, tcp.data_segs_out);
    fields.word(224, tcp.out_of_order_in);
    fields.word(228, tcp.snd_wnd);
    fields.word(232, tcp.rcv_wnd);
    fields.half(240, tcp.timeouts.count);
    fields.half(242, tcp.timeouts.recoveries);
    fields.word(
        244,
        u32::try_from(tcp.timeouts.recovery_ns / 1_000_000).unwrap_or(u32::MAX),
    );
    accurate_ecn_part(&mut fields, info);
    fields.0
}

fn accurate_ecn_part(fields: &mut Fields, info: &SocketInfo) {
    let ecn = &info.tcp.accurate_ecn;
    fields.word(248, ecn.received_ce);
    let counters = ecn.delivered_bytes.into_iter().chain(ecn.received_bytes);
    for (at, counter) in (252..).step_by(4).zip(counters) {
        fields.word(at, counter);
    }
    // Bit-fields begin at the lowest bit.
    let modes = ecn.mode as u8 | ecn.option_seen << 2 | ecn.fail_mode << 4;
    fields.word(276, modes.into());
}

fn state_part(fields: &mut Fields, info: &SocketInfo) {
    let tcp = &info.tcp;
    fields.byte(0, state_number(tcp.state));
    fields.byte(1, tcp.ca_state);
    fields.byte(2, tcp.retransmits);
    fields.byte(3, tcp.probes);
    fields.byte(4, tcp.backoff);
    let flags = [
        (tcp.timestamps, option::TIMESTAMPS),
        (tcp.sack, option::SACK),
        (tcp.window_scaling, option::WSCALE),
        (tcp.ecn, option::ECN),
        (tcp.ecn_seen, option::ECN_SEEN),
        (tcp.syn_data_acked, option::SYN_DATA),
        (tcp.fast_child, option::TFO_CHILD),
    ];
    let set = flags.iter().filter(|(on, _)| *on);
    fields.byte(5, set.fold(0, |all, (_, bit)| all | bit));
    // Bit-fields begin at the lowest bit.
    fields.byte(6, tcp.snd_wscale | tcp.rcv_wscale << 4);
    let app_limited = u8::from(tcp.delivery_rate_app_limited);
    fields.byte(7, app_limited | (tcp.fast_open_failure as u8) << 1);
}

fn congestion_part(fields: &mut Fields, info: &SocketInfo) {
    let tcp = &info.tcp;
    fields.word(8, micros(tcp.rto_ns));
    fields.word(12, micros(tcp.ato_ns));
    fields.word(16, tcp.snd_mss);
    fields.word(20, tcp.rcv_mss);
    fields.word(24, tcp.unacked);
    fields.word(28, tcp.sacked);
    fields.word(32, tcp.lost);
    fields.word(36, tcp.retrans);
    fields.word(68, micros(tcp.rtt_ns));
    // Before the first measurement, a quarter of the first timeout, as in Linux.
    let unknown = tcp.rtt_ns == 0 && tcp.rttvar_ns == 0;
    let rttvar_ns = if unknown {
        tcp.rto_ns >> tcp.backoff >> 2
    } else {
        tcp.rttvar_ns
    };
    fields.word(72, micros(rttvar_ns));
    fields.word(76, tcp.snd_ssthresh.min(SSTHRESH_INFINITE));
    fields.word(80, tcp.snd_cwnd);
    fields.word(88, tcp.reordering);
    fields.word(100, tcp.total_retrans);
    fields.word(148, micros(tcp.min_rtt_ns));
    fields.long(160, tcp.delivery_rate);
    fields.long(168, tcp.busy_time_ns / 1_000);
    fields.long(176, tcp.rwnd_limited_ns / 1_000);
    fields.long(184, tcp.sndbuf_limited_ns / 1_000);
    fields.word(192, tcp.delivered);
    fields.word(196, tcp.delivered_ce);
    fields.long(200, tcp.bytes_sent);
    fields.long(208, tcp.bytes_retrans);
    fields.word(216, tcp.dsack_dups);
    fields.word(220, tcp.reord_seen);
}

/// `SO_MEMINFO`: use and limits of a socket's buffers, in Linux's order.
#[must_use]
pub fn meminfo(info: Option<&SocketInfo>, recv_buffer: u32, send_buffer: u32) -> [u32; 9] {
    let (unread, buffered) = info.map_or((0, 0), |info| (info.unread, info.send_buffered));
    [
        unread,
        recv_buffer,
        buffered,
        send_buffer,
        0,
        buffered,
        0,
        0,
        0,
    ]
}
