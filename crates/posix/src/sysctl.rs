//! Settings of TCP by the names that Linux gives them.
//!
//! Whoever mirrors a host's settings, or plays a script that changes them, has names (`net.ipv4.tcp_ecn`, a module's parameter `tcp_cubic.beta`) and values as text.
//! [`set`] makes of them a change of a [`TcpConfig`], which a context takes by [`reconfigure`](millstream::Context::reconfigure).

use millstream::{
    BufferSizes, CongestionAlgorithm, EcnUse, FastOpenKeys, MtuProbing, SlowStart, SynCookieUse,
    TcpConfig,
};

/// Why a setting was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SysctlError {
    /// Nothing here has that name.
    Unknown,
    /// The value is none that it can have.
    Value,
}

/// What the suites of packet scripts presuppose (their `defaults.sh`), and Linux itself where they say nothing and its defaults depend on the machine.
pub const DEFAULTS: &[(&str, &str)] = &[
    ("net.ipv4.tcp_rmem", "4096 540000 15728640"),
    ("net.ipv4.tcp_wmem", "4096 262144 4194304"),
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_syn_retries", "5"),
    ("net.ipv4.tcp_synack_retries", "5"),
    ("net.ipv4.tcp_frto", "2"),
    ("net.ipv4.tcp_sack", "1"),
    ("net.ipv4.tcp_dsack", "1"),
    ("net.ipv4.tcp_reordering", "3"),
    ("net.ipv4.tcp_congestion_control", "cubic"),
    ("net.ipv4.tcp_slow_start_after_idle", "0"),
    ("net.ipv4.tcp_early_retrans", "4"),
    ("net.ipv4.tcp_recovery", "1"),
    ("net.ipv4.tcp_tso_win_divisor", "3"),
    ("net.ipv4.tcp_ecn", "0"),
    ("net.ipv4.tcp_ecn_option", "2"),
    ("net.ipv4.tcp_pacing_ss_ratio", "200"),
    ("net.ipv4.tcp_pacing_ca_ratio", "120"),
    ("net.ipv4.tcp_notsent_lowat", "4294967295"),
    ("net.ipv4.tcp_fastopen", "0x70403"),
    (
        "net.ipv4.tcp_fastopen_key",
        "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4",
    ),
    ("net.ipv4.tcp_syncookies", "1"),
];

/// Makes a setting.
///
/// # Errors
/// [`SysctlError`]; nothing has changed then.
pub fn set(tcp: &mut TcpConfig, name: &str, value: &str) -> Result<(), SysctlError> {
    if let Some(name) = name.strip_prefix("net.ipv4.") {
        return set_ipv4(tcp, name, value);
    }
    let module = name.strip_prefix("module.").unwrap_or(name);
    match module.strip_prefix("tcp_cubic.") {
        Some(parameter) => set_cubic(tcp, parameter, value),
        None => Err(SysctlError::Unknown),
    }
}

fn set_ipv4(tcp: &mut TcpConfig, name: &str, value: &str) -> Result<(), SysctlError> {
    match name {
        "tcp_congestion_control" => {
            tcp.congestion = CongestionAlgorithm::from_name(value).ok_or(SysctlError::Value)?;
        }
        "tcp_ecn" => tcp.ecn = EcnUse::from_sysctl(narrow(value)?).ok_or(SysctlError::Value)?,
        "tcp_ecn_fallback" => tcp.ecn_fallback = is_on(value)?,
        "tcp_fastopen" => tcp.fast_open = tcp.fast_open.with_bits(unsigned(value)?),
        "tcp_fastopen_key" => tcp.fast_open.keys = Some(fast_open_keys(value)?),
        "tcp_fastopen_blackhole_timeout_sec" => {
            tcp.fast_open.blackhole_timeout_ns = seconds(value)?;
        }
        "tcp_syncookies" => {
            tcp.syn_cookies = match unsigned(value)? {
                0 => SynCookieUse::Never,
                1 => SynCookieUse::WhenFull,
                2 => SynCookieUse::Always,
                _ => return Err(SysctlError::Value),
            }
        }
        "tcp_mtu_probing" => {
            tcp.path_mtu.probing = match unsigned(value)? {
                0 => MtuProbing::Never,
                1 => MtuProbing::AfterBlackHole,
                2 => MtuProbing::Always,
                _ => return Err(SysctlError::Value),
            }
        }
        "tcp_base_mss" => tcp.path_mtu.probe_mss_base = narrow(value)?,
        "tcp_min_snd_mss" | "tcp_mtu_probe_floor" => tcp.path_mtu.probe_mss_min = narrow(value)?,
        "tcp_probe_threshold" => tcp.path_mtu.probe_threshold = narrow(value)?,
        "tcp_probe_interval" => tcp.path_mtu.probe_interval_ns = seconds(value)?,
        "tcp_abort_on_overflow" => tcp.abort_on_overflow = is_on(value)?,
        "tcp_challenge_ack_limit" => tcp.challenge_acks_per_second_max = unsigned(value)?,
        "tcp_fin_timeout" => tcp.fin_wait_2_ns = seconds(value)?,
        "tcp_invalid_ratelimit" => tcp.invalid_ack_interval_ns = millis(value)?,
        "tcp_keepalive_intvl" => tcp.keepalive_interval_ns = seconds(value)?,
        "tcp_keepalive_probes" => tcp.keepalive_probes_max = narrow(value)?,
        "tcp_keepalive_time" => tcp.keepalive_idle_ns = seconds(value)?,
        "tcp_orphan_retries" => {
            tcp.orphan_retries_max = match narrow(value)? {
                0 => ORPHAN_RETRIES_OF_ZERO,
                retries => retries,
            }
        }
        "tcp_early_retrans" => tcp.tail_loss_probe = matches!(unsigned(value)?, 3 | 4),
        "tcp_frto" => tcp.frto = unsigned(value)? != 0,
        "tcp_max_reordering" => tcp.reordering_max = narrow(value)?,
        "tcp_min_rtt_wlen" => tcp.min_rtt_window_ns = seconds(value)?,
        "tcp_min_tso_segs" => tcp.burst_segments_min = narrow(value)?,
        "tcp_pacing_ca_ratio" => tcp.pacing_ca_percent = unsigned(value)?,
        "tcp_pacing_ss_ratio" => tcp.pacing_ss_percent = unsigned(value)?,
        "tcp_reordering" => tcp.dup_acks_max = narrow(value)?,
        "tcp_retries2" => tcp.retries_max = narrow(value)?,
        "tcp_rto_max_ms" => tcp.rto_ns_max = millis(value)?,
        "tcp_rto_min_us" => tcp.rto_ns_min = u64::from(unsigned(value)?) * 1_000,
        "tcp_rmem" => tcp.recv_buffer = sizes(value)?,
        "tcp_wmem" => tcp.send_buffer = sizes(value)?,
        "tcp_moderate_rcvbuf" => tcp.recv_buffer_moderate = is_on(value)?,
        "tcp_notsent_lowat" => tcp.notsent_lowat = unsigned(value)?,
        "tcp_dsack" => tcp.dsack = is_on(value)?,
        "tcp_comp_sack_delay_ns" => tcp.comp_sack_ns_max = u64::from(unsigned(value)?),
        "tcp_comp_sack_nr" => tcp.comp_sacks_max = narrow(value)?,
        "tcp_comp_sack_rtt_percent" => tcp.comp_sack_rtt_percent = narrow(value)?,
        "tcp_sack" => tcp.sack = is_on(value)?,
        "tcp_slow_start_after_idle" => tcp.slow_start_after_idle = is_on(value)?,
        "tcp_syn_linear_timeouts" => tcp.syn_linear_timeouts_max = narrow(value)?,
        "tcp_syn_retries" => tcp.syn_retries_max = narrow(value)?,
        "tcp_synack_retries" => tcp.syn_ack_retries_max = narrow(value)?,
        "tcp_timestamps" => tcp.timestamps = is_on(value)?,
        "tcp_window_scaling" => tcp.window_scaling = is_on(value)?,
        _ => return Err(SysctlError::Unknown),
    }
    Ok(())
}

/// The three sizes of a buffer.
fn sizes(value: &str) -> Result<BufferSizes, SysctlError> {
    let mut words = value.split_whitespace().map(unsigned);
    let mut next = || words.next().unwrap_or(Err(SysctlError::Value));
    Ok(BufferSizes {
        bytes_min: next()?,
        bytes_default: next()?,
        bytes_max: next()?,
    })
}

fn set_cubic(tcp: &mut TcpConfig, name: &str, value: &str) -> Result<(), SysctlError> {
    let cubic = &mut tcp.cubic;
    match name {
        "beta" => cubic.beta = unsigned(value)?,
        "bic_scale" => cubic.scale = unsigned(value)?,
        "fast_convergence" => cubic.fast_convergence = is_on(value)?,
        "hystart" => {
            cubic.slow_start = match is_on(value)? {
                true => SlowStart::HyStart,
                false => SlowStart::Standard,
            }
        }
        "hystart_ack_delta_us" => cubic.hystart_ack_delta_us = unsigned(value)?,
        "hystart_detect" => {
            let bits = unsigned(value)?;
            cubic.hystart_ack_train = bits & 1 != 0;
            cubic.hystart_delay = bits & 2 != 0;
        }
        "hystart_low_window" => cubic.hystart_low_window = unsigned(value)?,
        "initial_ssthresh" => cubic.initial_ssthresh = unsigned(value)?,
        "tcp_friendliness" => cubic.tcp_friendliness = is_on(value)?,
        _ => return Err(SysctlError::Unknown),
    }
    Ok(())
}

/// A number as `sysctl` takes it: decimal, or hexadecimal behind `0x`. A negative one means the largest.
fn unsigned(value: &str) -> Result<u32, SysctlError> {
    let value = value.trim();
    let number = match value.strip_prefix("0x").or(value.strip_prefix("0X")) {
        Some(digits) => i64::from_str_radix(digits, 16),
        None => value.parse(),
    };
    match number {
        Ok(negative @ i64::MIN..0) if negative >= i64::from(i32::MIN) => Ok(u32::MAX),
        Ok(number) => u32::try_from(number).map_err(|_| SysctlError::Value),
        Err(_) => Err(SysctlError::Value),
    }
}

fn narrow<T: TryFrom<u32>>(value: &str) -> Result<T, SysctlError> {
    T::try_from(unsigned(value)?).map_err(|_| SysctlError::Value)
}

fn is_on(value: &str) -> Result<bool, SysctlError> {
    // Linux's parameters of type `bool` say Y and N.
    match value.trim() {
        "Y" | "y" => Ok(true),
        "N" | "n" => Ok(false),
        value => unsigned(value).map(|number| number != 0),
    }
}

fn seconds(value: &str) -> Result<u64, SysctlError> {
    unsigned(value).map(|seconds| u64::from(seconds) * 1_000_000_000)
}

fn millis(value: &str) -> Result<u64, SysctlError> {
    unsigned(value).map(|millis| u64::from(millis) * 1_000_000)
}

/// One key, or two with a comma between: the first makes cookies, both are taken.
fn fast_open_keys(value: &str) -> Result<FastOpenKeys, SysctlError> {
    let mut keys = value.split(',').map(fast_open_key);
    let mut both = FastOpenKeys::new(keys.next().ok_or(SysctlError::Value)??);
    both.backup = keys.next().transpose()?;
    match keys.next() {
        None => Ok(both),
        Some(_) => Err(SysctlError::Value),
    }
}

/// Four words in hexadecimal, each little-endian in the key.
fn fast_open_key(value: &str) -> Result<[u8; 16], SysctlError> {
    let mut key = [0; 16];
    let mut words = value.trim().split('-');
    for place in key.chunks_exact_mut(4) {
        let word = words.next().ok_or(SysctlError::Value)?;
        let word = u32::from_str_radix(word, 16).map_err(|_| SysctlError::Value)?;
        place.copy_from_slice(&word.to_le_bytes());
    }
    match words.next() {
        None => Ok(key),
        Some(_) => Err(SysctlError::Value),
    }
}

/// What Linux takes zero of `tcp_orphan_retries` for.
const ORPHAN_RETRIES_OF_ZERO: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_the_suites_have_values_that_are_understood() {
        let mut tcp = TcpConfig::default();
        for (name, value) in DEFAULTS {
            assert_ne!(
                set(&mut tcp, name, value),
                Err(SysctlError::Value),
                "{name}"
            );
        }
        assert_eq!(tcp.syn_retries_max, 5);
        assert!(tcp.fast_open.client && tcp.fast_open.every_listener && tcp.sack);
        assert!(!tcp.slow_start_after_idle);
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(unsigned(" 0x403 "), Ok(0x403));
        assert_eq!(unsigned("4294967295"), Ok(u32::MAX));
        assert_eq!(unsigned("-1"), Ok(u32::MAX));
        assert_eq!(unsigned("4294967296"), Err(SysctlError::Value));
        assert_eq!(unsigned(""), Err(SysctlError::Value));
    }

    #[test]
    fn keys_are_words_of_little_endian() {
        let keys = fast_open_keys("03020100-07060504-0b0a0908-0f0e0d0c").unwrap();
        assert_eq!(keys.primary, core::array::from_fn(|at| at as u8));
        assert!(fast_open_keys("1-2-3-4,5-6-7-8").unwrap().backup.is_some());
        for value in ["", "1-2-3", "1-2-3-4-5", "1-2-3-x", "1-2-3-4,"] {
            assert!(fast_open_keys(value).is_err(), "{value}");
        }
    }

    #[test]
    fn a_wrong_name_or_value_changes_nothing() {
        let mut tcp = TcpConfig::default();
        let set = |tcp: &mut TcpConfig, name, value| set(tcp, name, value);
        assert_eq!(
            set(&mut tcp, "net.ipv4.ip_forward", "1"),
            Err(SysctlError::Unknown)
        );
        assert_eq!(
            set(&mut tcp, "net.ipv4.tcp_syncookies", "3"),
            Err(SysctlError::Value)
        );
        assert_eq!(
            set(&mut tcp, "net.ipv4.tcp_syn_retries", "300"),
            Err(SysctlError::Value)
        );
        assert_eq!(tcp, TcpConfig::default());
        assert_eq!(set(&mut tcp, "module.tcp_cubic.hystart", "0"), Ok(()));
        assert_eq!(tcp.cubic.slow_start, SlowStart::Standard);
    }
}
