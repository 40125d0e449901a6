//! `struct tcp_info`, parsed into the names that assertions use.

use super::python::{Python, Value};

/// Name, offset and bytes of each field, Linux 6.18.
const FIELDS: &[(&str, usize, usize)] = &[
    ("state", 0, 1),
    ("ca_state", 1, 1),
    ("retransmits", 2, 1),
    ("probes", 3, 1),
    ("backoff", 4, 1),
    ("options", 5, 1),
    ("rto", 8, 4),
    ("ato", 12, 4),
    ("snd_mss", 16, 4),
    ("rcv_mss", 20, 4),
    ("unacked", 24, 4),
    ("sacked", 28, 4),
    ("lost", 32, 4),
    ("retrans", 36, 4),
    ("fackets", 40, 4),
    ("last_data_sent", 44, 4),
    ("last_ack_sent", 48, 4),
    ("last_data_recv", 52, 4),
    ("last_ack_recv", 56, 4),
    ("pmtu", 60, 4),
    ("rcv_ssthresh", 64, 4),
    ("rtt", 68, 4),
    ("rttvar", 72, 4),
    ("snd_ssthresh", 76, 4),
    ("snd_cwnd", 80, 4),
    ("advmss", 84, 4),
    ("reordering", 88, 4),
    ("rcv_rtt", 92, 4),
    ("rcv_space", 96, 4),
    ("total_retrans", 100, 4),
    ("pacing_rate", 104, 8),
    ("max_pacing_rate", 112, 8),
    ("bytes_acked", 120, 8),
    ("bytes_received", 128, 8),
    ("segs_out", 136, 4),
    ("segs_in", 140, 4),
    ("notsent_bytes", 144, 4),
    ("min_rtt", 148, 4),
    ("data_segs_in", 152, 4),
    ("data_segs_out", 156, 4),
    ("delivery_rate", 160, 8),
    ("busy_time", 168, 8),
    ("rwnd_limited", 176, 8),
    ("sndbuf_limited", 184, 8),
    ("delivered", 192, 4),
    ("delivered_ce", 196, 4),
    ("bytes_sent", 200, 8),
    ("bytes_retrans", 208, 8),
    ("dsack_dups", 216, 4),
    ("reord_seen", 220, 4),
    ("rcv_ooopack", 224, 4),
    ("snd_wnd", 228, 4),
    ("rcv_wnd", 232, 4),
    ("rehash", 236, 4),
    ("total_rto", 240, 2),
    ("total_rto_recoveries", 242, 2),
    ("total_rto_time", 244, 4),
    ("received_ce", 248, 4),
    ("delivered_e1_bytes", 252, 4),
    ("delivered_e0_bytes", 256, 4),
    ("delivered_ce_bytes", 260, 4),
    ("received_e1_bytes", 264, 4),
    ("received_e0_bytes", 268, 4),
    ("received_ce_bytes", 272, 4),
];

/// Length of the structure in bytes.
pub(super) const LEN: usize = 280;

/// Names for values of `tcpi_state`, `tcpi_ca_state` and `tcpi_options`.
const NAMES: &[(&str, i128)] = &[
    ("TCP_ESTABLISHED", 1),
    ("TCP_SYN_SENT", 2),
    ("TCP_SYN_RECV", 3),
    ("TCP_FIN_WAIT1", 4),
    ("TCP_FIN_WAIT2", 5),
    ("TCP_TIME_WAIT", 6),
    ("TCP_CLOSE", 7),
    ("TCP_CLOSE_WAIT", 8),
    ("TCP_LAST_ACK", 9),
    ("TCP_LISTEN", 10),
    ("TCP_CLOSING", 11),
    ("TCP_CA_Open", 0),
    ("TCP_CA_Disorder", 1),
    ("TCP_CA_CWR", 2),
    ("TCP_CA_Recovery", 3),
    ("TCP_CA_Loss", 4),
    ("TCPI_OPT_TIMESTAMPS", 1),
    ("TCPI_OPT_SACK", 2),
    ("TCPI_OPT_WSCALE", 4),
    ("TCPI_OPT_ECN", 8),
    ("TCPI_OPT_ECN_SEEN", 16),
    ("TCPI_OPT_SYN_DATA", 32),
    ("TCPI_OPT_USEC_TS", 64),
    ("TCPI_OPT_TFO_CHILD", 128),
    ("TCP_INFINITE_SSTHRESH", 0x7fff_ffff),
];

/// Defines the names of the structure's fields. Fields beyond the bytes are 0.
pub(super) fn define(info: &[u8], python: &mut Python) {
    for (name, value) in NAMES {
        python.set(name, Value::Int(*value));
    }
    let mut set = |name: &str, value: u64| {
        python.set(&format!("tcpi_{name}"), Value::Int(i128::from(value)));
    };
    for &(name, at, len) in FIELDS {
        set(name, number(info, at, len));
    }
    let (scales, flags) = (number(info, 6, 1), number(info, 7, 1));
    set("snd_wscale", scales & 0xf);
    set("rcv_wscale", scales >> 4);
    set("delivery_rate_app_limited", flags & 1);
    set("fastopen_client_fail", flags >> 1 & 3);
    let ecn = number(info, 276, 4);
    set("ecn_mode", ecn & 3);
    set("accecn_opt_seen", ecn >> 2 & 3);
    set("accecn_fail_mode", ecn >> 4 & 15);
    set("options2", ecn >> 8);
}

/// Names of `TCP_CC_INFO` with offset and bytes. The algorithms share a union, so its bytes define
/// the names of every algorithm whose fields they reach.
const CONGESTION: &[&[(&str, usize, usize)]] = &[
    &[
        ("bbr_bw_lo", 0, 4),
        ("bbr_bw_hi", 4, 4),
        ("bbr_bw", 0, 8),
        ("bbr_min_rtt", 8, 4),
        ("bbr_pacing_gain", 12, 4),
        ("bbr_cwnd_gain", 16, 4),
    ],
    &[
        ("dctcp_enabled", 0, 2),
        ("dctcp_ce_state", 2, 2),
        ("dctcp_alpha", 4, 4),
        ("dctcp_ab_ecn", 8, 4),
        ("dctcp_ab_tot", 12, 4),
    ],
    &[
        ("tcpv_enabled", 0, 4),
        ("tcpv_rttcnt", 4, 4),
        ("tcp_rtt", 8, 4),
        ("tcp_minrtt", 12, 4),
    ],
];

/// Bytes of `union tcp_cc_info`, the largest of its members.
pub(super) const CONGESTION_LEN: usize = 20;

/// Names of `SO_MEMINFO`, four bytes each, in order.
const MEMORY: [&str; 9] = [
    "RMEM_ALLOC",
    "RCVBUF",
    "WMEM_ALLOC",
    "SNDBUF",
    "FWD_ALLOC",
    "WMEM_QUEUED",
    "OPTMEM",
    "BACKLOG",
    "DROPS",
];

/// Bytes of `SO_MEMINFO`.
pub(super) const MEMORY_LEN: usize = 4 * MEMORY.len();

/// Defines the names of the congestion control's report.
pub(super) fn define_congestion(info: &[u8], python: &mut Python) {
    for fields in CONGESTION {
        let len = fields
            .iter()
            .map(|(_, at, len)| at + len)
            .max()
            .unwrap_or(0);
        if info.len() < len {
            continue;
        }
        for &(name, at, len) in *fields {
            python.set(name, Value::Int(number(info, at, len).into()));
        }
    }
}

/// Defines the names of the socket's memory counts.
pub(super) fn define_memory(info: &[u8], python: &mut Python) {
    for (at, name) in MEMORY.iter().enumerate() {
        let value = number(info, 4 * at, 4);
        python.set(&format!("SK_MEMINFO_{name}"), Value::Int(value.into()));
    }
}

fn number(info: &[u8], at: usize, len: usize) -> u64 {
    let mut bytes = [0; 8];
    if let Some(field) = info.get(at..at + len) {
        bytes[..len].copy_from_slice(field);
    }
    u64::from_le_bytes(bytes)
}
