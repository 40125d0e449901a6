//! Tests of [`IpCidr`] and [`LocalAddresses`].

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn cidr(text: &str) -> IpCidr {
    text.parse().unwrap()
}

fn held(texts: &[(&str, u8)]) -> LocalAddresses {
    let mut addresses = LocalAddresses::new();
    for (text, port) in texts {
        addresses.add(cidr(text), *port).unwrap();
    }
    addresses
}

#[test]
fn cidr_parses_and_prints_both_families() {
    for text in [
        "10.0.0.1/24",
        "0.0.0.0/0",
        "fe80::1/64",
        "::/0",
        "1.2.3.4/32",
    ] {
        assert_eq!(cidr(text).to_string(), text);
    }
    assert_eq!(cidr("10.1.2.3").to_string(), "10.1.2.3/32");
    assert_eq!(cidr("2001:db8::1").to_string(), "2001:db8::1/128");
}

#[test]
fn cidr_names_what_is_wrong() {
    assert_eq!("10.0.0/8".parse::<IpCidr>(), Err(CidrError::Address));
    assert_eq!("".parse::<IpCidr>(), Err(CidrError::Address));
    assert_eq!("10.0.0.0/".parse::<IpCidr>(), Err(CidrError::Length));
    assert_eq!("10.0.0.0/+8".parse::<IpCidr>(), Err(CidrError::Length));
    assert_eq!("10.0.0.0/33".parse::<IpCidr>(), Err(CidrError::TooLong));
    assert_eq!("::/129".parse::<IpCidr>(), Err(CidrError::TooLong));
}

#[test]
fn cidr_contains_by_prefix_and_family() {
    assert!(cidr("10.0.0.1/24").contains(ip("10.0.0.255")));
    assert!(!cidr("10.0.0.1/24").contains(ip("10.0.1.0")));
    assert!(cidr("0.0.0.0/0").contains(ip("255.1.2.3")));
    assert!(!cidr("0.0.0.0/0").contains(ip("::1")));
    assert!(cidr("::/0").contains(ip("ffff::")));
    assert_eq!(cidr("10.1.2.3/8").network(), cidr("10.0.0.0/8"));
    assert_eq!(
        cidr("10.0.0.1/24").broadcast(),
        Some(Ipv4Addr::new(10, 0, 0, 255))
    );
    assert_eq!(cidr("10.0.0.0/31").broadcast(), None);
}

#[test]
fn addresses_refuse_what_is_no_host() {
    let mut addresses = LocalAddresses::new();
    for text in [
        "0.0.0.0/0",
        "224.0.0.1/4",
        "255.255.255.255/32",
        "::/64",
        "ff02::1/64",
        "10.0.0.255/24",
    ] {
        assert_eq!(
            addresses.add(cidr(text), 0),
            Err(AddressError::NotUnicast),
            "{text}"
        );
    }
    addresses.add(cidr("10.0.0.1/24"), 0).unwrap();
    assert_eq!(
        addresses.add(cidr("10.0.0.1/16"), 1),
        Err(AddressError::Duplicate)
    );
    assert!(addresses.remove(ip("10.0.0.1")));
    assert!(!addresses.remove(ip("10.0.0.1")));
}

#[test]
fn addresses_stop_at_their_limit() {
    let mut addresses = LocalAddresses::new();
    for host in 0..LOCAL_ADDRESSES_MAX as u32 {
        let address = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0001 + host));
        addresses.add(IpCidr::host(address), 0).unwrap();
    }
    assert_eq!(
        addresses.add(cidr("192.0.2.1/24"), 0),
        Err(AddressError::Full)
    );
}

#[test]
fn destinations_are_sorted() {
    let addresses = held(&[("10.0.0.1/24", 0), ("fe80::1/64", 0)]);
    assert_eq!(addresses.classify(ip("10.0.0.1")), Destination::Local);
    assert_eq!(addresses.classify(ip("10.0.0.255")), Destination::Broadcast);
    assert_eq!(
        addresses.classify(ip("255.255.255.255")),
        Destination::Broadcast
    );
    assert_eq!(addresses.classify(ip("224.0.0.1")), Destination::Multicast);
    assert_eq!(addresses.classify(ip("ff02::1")), Destination::Multicast);
    assert_eq!(addresses.classify(ip("10.0.0.2")), Destination::Foreign);
}

#[test]
fn sources_that_cannot_be_are_refused() {
    let addresses = held(&[("10.0.0.1/24", 0)]);
    for text in [
        "0.0.0.0",
        "10.0.0.255",
        "255.255.255.255",
        "224.0.0.1",
        "127.0.0.1",
        "10.0.0.1",
        "::",
        "::1",
        "ff02::1",
    ] {
        assert!(!addresses.is_valid_source(ip(text)), "{text}");
    }
    assert!(addresses.is_valid_source(ip("10.0.0.2")));
    assert!(addresses.is_valid_source(ip("2001:db8::2")));
}

#[test]
fn source_is_chosen_by_scope_then_port_then_prefix() {
    let addresses = held(&[
        ("fe80::1/64", 0),
        ("2001:db8:1::1/64", 0),
        ("2001:db8:2::1/64", 1),
        ("10.0.0.1/24", 0),
        ("192.168.0.1/16", 1),
    ]);
    let source = |to: &str, port| addresses.source_for(ip(to), port).map(|a| a.to_string());
    assert_eq!(source("fe80::99", Some(0)).as_deref(), Some("fe80::1"));
    assert_eq!(source("ff02::1", Some(0)).as_deref(), Some("fe80::1"));
    assert_eq!(
        source("2001:db8:2::99", None).as_deref(),
        Some("2001:db8:2::1")
    );
    assert_eq!(
        source("2001:db8:2::99", Some(0)).as_deref(),
        Some("2001:db8:1::1")
    );
    assert_eq!(
        source("2001:db8:1::1", Some(1)).as_deref(),
        Some("2001:db8:1::1")
    );
    assert_eq!(source("192.168.3.4", None).as_deref(), Some("192.168.0.1"));
    assert_eq!(source("8.8.8.8", Some(1)).as_deref(), Some("192.168.0.1"));
    assert_eq!(held(&[("10.0.0.1/8", 0)]).source_for(ip("::1"), None), None);
    // An address of link scope is no source for a global destination, although it comes first and
    // is on the port.
    let addresses = held(&[("169.254.1.1/16", 0), ("10.0.0.1/24", 0)]);
    let source = |to: &str| addresses.source_for(ip(to), Some(0)).map(|a| a.to_string());
    // This destination shares more bits with the link-local address.
    assert_eq!(source("170.1.1.1").as_deref(), Some("10.0.0.1"));
    assert_eq!(source("169.254.7.7").as_deref(), Some("169.254.1.1"));
}

#[test]
fn data_path_forms_agree_with_the_plain_ones() {
    let mut addresses = held(&[
        ("10.0.0.1/24", 0),
        ("2001:db8::1/64", 0),
        ("172.16.0.9/30", 0),
    ]);
    let asked = [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.255",
        "10.0.1.255",
        "127.0.0.1",
        "172.16.0.11",
        "172.16.0.10",
        "223.255.255.255",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "2001:db8::1",
        "2001:db8::2",
        "fe80::1",
        "ff02::1",
    ];
    for _ in 0..2 {
        for text in asked {
            let (address, packed) = (ip(text), wire::Addr::from(ip(text)));
            assert_eq!(
                addresses.is_own(packed),
                addresses.is_local(address),
                "{text}"
            );
            assert_eq!(
                addresses.may_be_peer(packed),
                addresses.is_valid_source(address),
                "{text}"
            );
        }
        addresses.remove(ip("10.0.0.1"));
    }
}

#[test]
fn ends_of_the_last_packet_pass_until_addresses_change() {
    let mut addresses = held(&[("10.0.0.1/24", 0), ("172.16.0.1/30", 0)]);
    let asked = [
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.255",
        "172.16.0.1",
        "127.0.0.1",
    ];
    let v4 = |text: &str| text.parse::<Ipv4Addr>().unwrap();
    for _ in 0..3 {
        for (own, peer) in asked
            .iter()
            .flat_map(|own| asked.map(|peer| (v4(own), v4(peer))))
        {
            let expected = addresses.is_own(Addr::v4(own)) && addresses.may_be_peer(Addr::v4(peer));
            assert_eq!(addresses.may_exchange(own, peer), expected, "{own} {peer}");
            assert_eq!(addresses.may_exchange(own, peer), expected, "once more");
        }
        let (own, peer) = (v4("10.0.0.1"), v4("10.0.0.2"));
        let _ = addresses.may_exchange(own, peer);
        if addresses.add(cidr("10.0.0.2/24"), 0).is_ok() {
            assert!(!addresses.may_exchange(own, peer), "it is ours now");
        } else {
            addresses.remove(own.into());
            assert!(!addresses.may_exchange(own, peer), "we have left");
        }
    }
}
