//! Settings of TCP under Linux's names.
//!
//! A program that mirrors a host's settings, or runs a script that changes them, has names
//! (`net.ipv4.tcp_ecn`, or a module's parameter such as `tcp_cubic.beta`) and values as text.
//! [`set`] turns them into a change of a [`TcpConfig`], which a context takes by
//! [`reconfigure`](millstream::Context::reconfigure). [`get`] reads a value as Linux prints it.

use millstream::TcpConfig;

mod table;
#[cfg(test)]
mod tests;
mod value;

use table::SETTINGS;

/// The reason why a setting was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SysctlError {
    /// No setting has that name.
    Unknown,
    /// The setting cannot have that value.
    Value,
}

/// The settings that packet-script suites presuppose (their `defaults.sh`). Where suites name none
/// and Linux's default depends on the machine, a typical default of Linux.
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

/// A setting, with functions that print and set its field.
struct Setting {
    name: &'static str,
    get: fn(&TcpConfig) -> String,
    set: fn(&mut TcpConfig, &str) -> Result<(), SysctlError>,
}

fn find(name: &str) -> Result<&'static Setting, SysctlError> {
    let name = name.strip_prefix("module.").unwrap_or(name);
    let found = SETTINGS.iter().find(|setting| setting.name == name);
    found.ok_or(SysctlError::Unknown)
}

/// Makes a setting in `tcp`.
///
/// # Errors
/// [`SysctlError`]; `tcp` is unchanged then.
pub fn set(tcp: &mut TcpConfig, name: &str, value: &str) -> Result<(), SysctlError> {
    (find(name)?.set)(tcp, value)
}

/// The value of a setting, as text.
///
/// # Errors
/// [`SysctlError::Unknown`]
pub fn get(tcp: &TcpConfig, name: &str) -> Result<String, SysctlError> {
    Ok((find(name)?.get)(tcp))
}
