//! Settings by the names that Linux gives them, to ours.

use posix::Sockets;

/// Sets it before the stack starts. False: nothing here has that name.
pub(super) fn configure(config: &mut millstream::Config, name: &str, value: &str) -> bool {
    let tcp = &mut config.tcp;
    let number = number(value);
    let is_on = number.is_some_and(|number| number != 0);
    match (name.strip_prefix("net.ipv4.").unwrap_or(name), number) {
        ("tcp_timestamps", _) => tcp.timestamps = is_on,
        ("tcp_window_scaling", _) => tcp.window_scaling = is_on,
        ("tcp_slow_start_after_idle", _) => tcp.slow_start_after_idle = is_on,
        ("tcp_syn_retries", Some(count)) => tcp.syn_retries_max = count as u8,
        ("tcp_synack_retries", Some(count)) => tcp.syn_ack_retries_max = count as u8,
        ("tcp_fastopen", Some(bits)) => tcp.fast_open = tcp.fast_open.with_bits(bits as u32),
        _ => return false,
    }
    true
}

/// Sets it while the stack runs. False: nothing here has that name.
pub(super) fn set(_sockets: &mut Sockets, _name: &str, _value: &str) -> bool {
    false
}

fn number(value: &str) -> Option<i64> {
    let value = value.trim();
    match value.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}
