//! IPv4 and IPv6 addresses in one type.

use super::Addr;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::string::ToString;

#[test]
fn ipv4_comes_back_as_ipv4() {
    let ip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 33));
    let addr = Addr::from(ip);
    assert!(addr.is_v4());
    assert_eq!(addr.to_ip(), ip);
    assert_eq!(addr.octets()[10..], [0xff, 0xff, 192, 0, 2, 33]);
    assert_eq!(addr.to_string(), "192.0.2.33");
}

#[test]
fn ipv6_comes_back_as_ipv6() {
    let v6: Ipv6Addr = "2001:db8::7".parse().unwrap();
    let addr = Addr::from(v6);
    assert!(!addr.is_v4());
    assert_eq!(
        (addr.to_ip(), addr.to_v4(), addr.to_v6()),
        (v6.into(), None, v6)
    );
    assert_eq!(addr.bits(), v6.to_bits());
}

#[test]
fn mapped_ipv6_is_ipv4() {
    let mapped: Ipv6Addr = "::ffff:10.0.0.1".parse().unwrap();
    assert_eq!(Addr::from(mapped), Addr::from(Ipv4Addr::new(10, 0, 0, 1)));
    assert_eq!(Addr::from(mapped).to_v6(), mapped);
}

#[test]
fn kinds_are_told_apart_in_both_families() {
    let of = |text: &str| Addr::from(text.parse::<IpAddr>().unwrap());
    assert!(of("0.0.0.0").is_unspecified() && of("::").is_unspecified());
    assert!(!of("10.0.0.1").is_unspecified() && !of("::1").is_unspecified());
    assert_eq!(of("0.0.0.0"), Addr::UNSPECIFIED_V4);
    assert_eq!(of("::"), Addr::UNSPECIFIED_V6);
    assert!(of("224.0.0.1").is_multicast() && of("ff02::1").is_multicast());
    assert!(!of("10.0.0.1").is_multicast() && !of("fe80::1").is_multicast());
    assert!(of("127.0.0.9").is_loopback() && of("::1").is_loopback());
    assert!(!of("128.0.0.1").is_loopback() && !of("::2").is_loopback());
}
