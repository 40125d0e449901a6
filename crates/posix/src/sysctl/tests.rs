//! Names and values of settings.

use millstream::SlowStart;

use super::*;
use crate::sysctl::value::{fast_open_keys, unsigned};

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
    let plus_plus = "tcp_cubic.hystart_plus_plus";
    assert_eq!(set(&mut tcp, plus_plus, "1"), Ok(()));
    assert_eq!(tcp.cubic.slow_start, SlowStart::HyStartPlusPlus);
    assert_eq!(set(&mut tcp, plus_plus, "0"), Ok(()));
    assert_eq!(tcp.cubic.slow_start, SlowStart::HyStart);
}

#[test]
fn value_that_was_set_is_read() {
    let mut tcp = TcpConfig::default();
    let rows = [
        ("net.ipv4.tcp_sack", "0", "0"),
        ("net.ipv4.tcp_syn_retries", "4", "4"),
        ("net.ipv4.tcp_fin_timeout", "30", "30"),
        ("net.ipv4.tcp_rto_max_ms", "60000", "60000"),
        (
            "net.ipv4.tcp_rmem",
            "4096 131072 6291456",
            "4096\t131072\t6291456",
        ),
        ("net.ipv4.tcp_congestion_control", "reno", "reno"),
        ("net.ipv4.tcp_fastopen", "0x403", "1027"),
        (
            "net.ipv4.tcp_fastopen_key",
            "00000001-00000002-00000003-00000004",
            "00000001-00000002-00000003-00000004",
        ),
        ("net.ipv4.tcp_ecn", "2", "2"),
        ("net.ipv4.tcp_syncookies", "2", "2"),
        ("net.ipv4.tcp_mtu_probing", "1", "1"),
        ("tcp_cubic.hystart_detect", "1", "1"),
        ("module.tcp_cubic.beta", "700", "700"),
    ];
    for (name, value, read) in rows {
        assert_eq!(set(&mut tcp, name, value), Ok(()), "{name}");
        assert_eq!(get(&tcp, name).as_deref(), Ok(read), "{name}");
    }
    assert_eq!(get(&tcp, "net.ipv4.ip_forward"), Err(SysctlError::Unknown));
}

#[test]
fn every_name_stands_in_the_table_once_and_reads_back_what_it_says() {
    for (at, setting) in SETTINGS.iter().enumerate() {
        let twice = SETTINGS[..at]
            .iter()
            .any(|other| other.name == setting.name);
        assert!(!twice, "{}", setting.name);
        let mut tcp = TcpConfig::default();
        let value = (setting.get)(&tcp);
        if value.is_empty() {
            continue;
        }
        assert_eq!((setting.set)(&mut tcp, &value), Ok(()), "{}", setting.name);
        assert_eq!((setting.get)(&tcp), value, "{}", setting.name);
    }
}

#[test]
fn accurate_ecn_has_the_values_of_linux() {
    let mut tcp = TcpConfig::default();
    assert_eq!(get(&tcp, "net.ipv4.tcp_ecn").as_deref(), Ok("2"));
    for value in ["0", "1", "2", "3", "4", "5"] {
        assert_eq!(set(&mut tcp, "net.ipv4.tcp_ecn", value), Ok(()));
        assert_eq!(get(&tcp, "net.ipv4.tcp_ecn").as_deref(), Ok(value));
    }
    assert_eq!(
        set(&mut tcp, "net.ipv4.tcp_ecn", "6"),
        Err(SysctlError::Value)
    );
    assert_eq!(get(&tcp, "net.ipv4.tcp_ecn_option").as_deref(), Ok("2"));
    assert_eq!(set(&mut tcp, "net.ipv4.tcp_ecn_option", "3"), Ok(()));
    assert_eq!(
        set(&mut tcp, "net.ipv4.tcp_ecn_option", "4"),
        Err(SysctlError::Value)
    );
    assert_eq!(
        get(&tcp, "net.ipv4.tcp_ecn_option_beacon").as_deref(),
        Ok("3")
    );
}
