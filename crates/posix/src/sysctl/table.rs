//! The settings, one row each: Linux's name, and the field of `TcpConfig`.

use millstream::{EcnUse, MtuProbing, SlowStart, SynCookieUse};

use super::value::{
    at_most, fast_open_keys, is_on, keys_text, nanos, narrow, sizes, sizes_text, unsigned,
};
use super::{Setting, SysctlError};

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// The number of retries that `tcp_orphan_retries` = 0 means in Linux.
const ORPHAN_RETRIES_OF_ZERO: u8 = 8;

/// The greatest value of `tcp_ecn_option`.
const ECN_OPTION_MAX: u8 = 3;

/// A row whose field is a flag, a number, a time in a unit, or set by functions of its own.
macro_rules! setting {
    ($name:literal, flag, $($field:ident).+) => {
        setting!($name, |tcp| u8::from(tcp.$($field).+).to_string(), |tcp, value| tcp.$($field).+ = is_on(value)?)
    };
    ($name:literal, number, $($field:ident).+) => {
        setting!($name, |tcp| tcp.$($field).+.to_string(), |tcp, value| tcp.$($field).+ = narrow(value)?)
    };
    ($name:literal, time($unit_ns:expr), $($field:ident).+) => {
        setting!($name, |tcp| (tcp.$($field).+ / $unit_ns).to_string(), |tcp, value| tcp.$($field).+ = nanos(value, $unit_ns)?)
    };
    ($name:literal, |$from:ident| $get:expr, |$to:ident, $value:ident| $set:expr) => {
        Setting {
            name: $name,
            get: |$from| $get,
            set: |$to, $value| {
                $set;
                Ok(())
            },
        }
    };
}

pub(super) const SETTINGS: &[Setting] = &[
    setting!("net.ipv4.tcp_abort_on_overflow", flag, abort_on_overflow),
    setting!("net.ipv4.tcp_base_mss", number, path_mtu.probe_mss_base),
    setting!(
        "net.ipv4.tcp_challenge_ack_limit",
        number,
        challenge_acks_per_second_max
    ),
    setting!("net.ipv4.tcp_comp_sack_delay_ns", time(1), comp_sack_ns_max),
    setting!("net.ipv4.tcp_comp_sack_nr", number, comp_sacks_max),
    setting!(
        "net.ipv4.tcp_comp_sack_rtt_percent",
        number,
        comp_sack_rtt_percent
    ),
    setting!(
        "net.ipv4.tcp_comp_sack_slack_ns",
        time(1),
        comp_sack_slack_ns
    ),
    setting!("net.ipv4.tcp_dsack", flag, dsack),
    setting!("net.ipv4.tcp_ecn_fallback", flag, ecn_fallback),
    setting!(
        "net.ipv4.tcp_ecn_option",
        |tcp| tcp.accecn_option.to_string(),
        |tcp, value| tcp.accecn_option = at_most(value, ECN_OPTION_MAX)?
    ),
    setting!(
        "net.ipv4.tcp_ecn_option_beacon",
        number,
        accecn_option_beacon
    ),
    setting!(
        "net.ipv4.tcp_fastopen_blackhole_timeout_sec",
        time(SECOND),
        fast_open.blackhole_timeout_ns
    ),
    setting!("net.ipv4.tcp_fin_timeout", time(SECOND), fin_wait_2_ns),
    setting!("net.ipv4.tcp_frto", flag, frto),
    setting!(
        "net.ipv4.tcp_invalid_ratelimit",
        time(MILLI),
        invalid_ack_interval_ns
    ),
    setting!(
        "net.ipv4.tcp_keepalive_intvl",
        time(SECOND),
        keepalive_interval_ns
    ),
    setting!(
        "net.ipv4.tcp_keepalive_probes",
        number,
        keepalive_probes_max
    ),
    setting!(
        "net.ipv4.tcp_keepalive_time",
        time(SECOND),
        keepalive_idle_ns
    ),
    setting!("net.ipv4.tcp_max_reordering", number, reordering_max),
    setting!("net.ipv4.tcp_min_rtt_wlen", time(SECOND), min_rtt_window_ns),
    setting!("net.ipv4.tcp_min_snd_mss", number, path_mtu.probe_mss_min),
    setting!("net.ipv4.tcp_min_tso_segs", number, burst_segments_min),
    setting!("net.ipv4.tcp_moderate_rcvbuf", flag, recv_buffer_moderate),
    setting!(
        "net.ipv4.tcp_mtu_probe_floor",
        number,
        path_mtu.probe_mss_min
    ),
    setting!("net.ipv4.tcp_notsent_lowat", number, notsent_lowat),
    setting!("net.ipv4.tcp_pacing_ca_ratio", number, pacing_ca_percent),
    setting!("net.ipv4.tcp_pacing_ss_ratio", number, pacing_ss_percent),
    setting!(
        "net.ipv4.tcp_probe_interval",
        time(SECOND),
        path_mtu.probe_interval_ns
    ),
    setting!(
        "net.ipv4.tcp_probe_threshold",
        number,
        path_mtu.probe_threshold
    ),
    setting!("net.ipv4.tcp_reordering", number, dup_acks_max),
    setting!("net.ipv4.tcp_retries2", number, retries_max),
    setting!("net.ipv4.tcp_rfc1337", flag, time_wait_outlives_resets),
    setting!("net.ipv4.tcp_rto_max_ms", time(MILLI), rto_ns_max),
    setting!("net.ipv4.tcp_rto_min_us", time(MICRO), rto_ns_min),
    setting!("net.ipv4.tcp_sack", flag, sack),
    setting!("net.ipv4.tcp_shrink_window", flag, shrink_window),
    setting!(
        "net.ipv4.tcp_slow_start_after_idle",
        flag,
        slow_start_after_idle
    ),
    setting!(
        "net.ipv4.tcp_syn_linear_timeouts",
        number,
        syn_linear_timeouts_max
    ),
    setting!("net.ipv4.tcp_syn_retries", number, syn_retries_max),
    setting!("net.ipv4.tcp_synack_retries", number, syn_ack_retries_max),
    setting!(
        "net.ipv4.tcp_thin_linear_timeouts",
        flag,
        thin_linear_timeouts
    ),
    setting!("net.ipv4.tcp_timestamps", flag, timestamps),
    setting!("net.ipv4.tcp_tso_win_divisor", number, burst_window_divisor),
    setting!("net.ipv4.tcp_window_scaling", flag, window_scaling),
    setting!("tcp_cubic.beta", number, cubic.beta),
    setting!("tcp_cubic.bic_scale", number, cubic.scale),
    setting!("tcp_cubic.fast_convergence", flag, cubic.fast_convergence),
    setting!(
        "tcp_cubic.hystart_ack_delta_us",
        number,
        cubic.hystart_ack_delta_us
    ),
    setting!(
        "tcp_cubic.hystart_low_window",
        number,
        cubic.hystart_low_window
    ),
    setting!("tcp_cubic.initial_ssthresh", number, cubic.initial_ssthresh),
    setting!("tcp_cubic.tcp_friendliness", flag, cubic.tcp_friendliness),
    setting!(
        "net.ipv4.tcp_congestion_control",
        |tcp| tcp.congestion.name().to_owned(),
        |tcp, value| tcp.congestion = tcp
            .congestion_named(value.trim())
            .ok_or(SysctlError::Value)?
    ),
    setting!(
        "net.ipv4.tcp_early_retrans",
        |tcp| if tcp.tail_loss_probe { "3" } else { "0" }.to_owned(),
        |tcp, value| tcp.tail_loss_probe = matches!(unsigned(value)?, 3 | 4)
    ),
    setting!(
        "net.ipv4.tcp_ecn",
        |tcp| (tcp.ecn as u8).to_string(),
        |tcp, value| tcp.ecn = EcnUse::from_sysctl(narrow(value)?).ok_or(SysctlError::Value)?
    ),
    setting!(
        "net.ipv4.tcp_fastopen",
        |tcp| tcp.fast_open.bits().to_string(),
        |tcp, value| tcp.fast_open = tcp.fast_open.with_bits(unsigned(value)?)
    ),
    setting!(
        "net.ipv4.tcp_fastopen_key",
        |tcp| keys_text(tcp.fast_open.keys),
        |tcp, value| tcp.fast_open.keys = Some(fast_open_keys(value)?)
    ),
    setting!(
        "net.ipv4.tcp_mtu_probing",
        |tcp| (tcp.path_mtu.probing as u8).to_string(),
        |tcp, value| {
            tcp.path_mtu.probing = match unsigned(value)? {
                0 => MtuProbing::Never,
                1 => MtuProbing::AfterBlackHole,
                2 => MtuProbing::Always,
                _ => return Err(SysctlError::Value),
            }
        }
    ),
    setting!(
        "net.ipv4.tcp_orphan_retries",
        |tcp| tcp.orphan_retries_max.to_string(),
        |tcp, value| {
            tcp.orphan_retries_max = match narrow(value)? {
                0 => ORPHAN_RETRIES_OF_ZERO,
                retries => retries,
            }
        }
    ),
    setting!(
        "net.ipv4.tcp_rmem",
        |tcp| sizes_text(&tcp.recv_buffer),
        |tcp, value| tcp.recv_buffer = sizes(value)?
    ),
    setting!(
        "net.ipv4.tcp_syncookies",
        |tcp| (tcp.syn_cookies as u8).to_string(),
        |tcp, value| {
            tcp.syn_cookies = match unsigned(value)? {
                0 => SynCookieUse::Never,
                1 => SynCookieUse::WhenFull,
                2 => SynCookieUse::Always,
                _ => return Err(SysctlError::Value),
            }
        }
    ),
    setting!(
        "net.ipv4.tcp_wmem",
        |tcp| sizes_text(&tcp.send_buffer),
        |tcp, value| tcp.send_buffer = sizes(value)?
    ),
    setting!(
        "tcp_cubic.hystart",
        |tcp| u8::from(tcp.cubic.slow_start != SlowStart::Standard).to_string(),
        |tcp, value| {
            tcp.cubic.slow_start = match is_on(value)? {
                true => SlowStart::HyStart,
                false => SlowStart::Standard,
            }
        }
    ),
    // Millstream's own setting. Linux does not have HyStart++ (RFC 9406), which replaces HyStart.
    setting!(
        "tcp_cubic.hystart_plus_plus",
        |tcp| u8::from(tcp.cubic.slow_start == SlowStart::HyStartPlusPlus).to_string(),
        |tcp, value| {
            tcp.cubic.slow_start = match (is_on(value)?, tcp.cubic.slow_start) {
                (true, _) => SlowStart::HyStartPlusPlus,
                (false, SlowStart::HyStartPlusPlus) => SlowStart::HyStart,
                (false, other) => other,
            }
        }
    ),
    setting!(
        "tcp_cubic.hystart_detect",
        |tcp| (u8::from(tcp.cubic.hystart_ack_train) | u8::from(tcp.cubic.hystart_delay) << 1)
            .to_string(),
        |tcp, value| {
            let bits = unsigned(value)?;
            tcp.cubic.hystart_ack_train = bits & 1 != 0;
            tcp.cubic.hystart_delay = bits & 2 != 0;
        }
    ),
];
