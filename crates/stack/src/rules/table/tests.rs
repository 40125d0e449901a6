//! The table, compared with a reference that tests every rule in order.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::rules::RuleAction;

/// Tests every rule in order, directly on the configuration.
fn reference(rules: &[Rule], packet: &RulePacket) -> Option<usize> {
    rules.iter().position(|rule| asked_alone(rule, packet))
}

fn asked_alone(rule: &Rule, packet: &RulePacket) -> bool {
    let within = |cidr: Option<IpCidr>, address: Addr| match cidr {
        None => true,
        Some(cidr) => cidr.contains(address.to_ip()),
    };
    let numbers: &[u8] = match rule.protocol {
        Some(Protocol::Tcp) => &[6],
        Some(Protocol::Udp) => &[17],
        Some(Protocol::Icmp) if packet.source.to_ip().is_ipv4() => &[1],
        Some(Protocol::Icmp) => &[58],
        Some(Protocol::Number(number)) => &[number],
        None => &[packet.protocol],
    };
    let ports = |asked: Option<(u16, u16)>, of: fn((u16, u16)) -> u16| match (asked, packet.ports) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some((first, last)), Some(ports)) => first <= of(ports) && of(ports) <= last,
    };
    within(rule.source, packet.source)
        && within(rule.destination, packet.destination)
        && numbers.contains(&packet.protocol)
        && ports(rule.source_ports, |(source, _)| source)
        && ports(rule.destination_ports, |(_, destination)| destination)
        && rule.wire.is_none_or(|wire| wire == packet.port + 1)
}

/// Addresses from a small set, so that prefixes nest, meet and repeat: both families with the edges
/// of each.
fn address() -> impl Strategy<Value = IpAddr> {
    let v4 = prop_oneof![
        4 => (0_u32..64).prop_map(|low| 0x0a00_0000 | (low << 26) | (low & 3)),
        1 => Just(0),
        1 => Just(u32::MAX),
    ];
    let v6 = prop_oneof![
        4 => (0_u128..64).prop_map(|low| (0xfd << 120) | (low << 122) | (low & 7)),
        1 => Just(0),
        1 => Just(1_u128 << 48),
        1 => Just(u128::MAX),
    ];
    prop_oneof![
        v4.prop_map(|bits| std::net::Ipv4Addr::from_bits(bits).into()),
        v6.prop_map(|bits| std::net::Ipv6Addr::from_bits(bits).into()),
    ]
}

fn prefix() -> impl Strategy<Value = IpCidr> {
    (address(), 0_u8..=128).prop_map(|(address, len)| {
        let width = if address.is_ipv4() { 32 } else { 128 };
        IpCidr::new(address, len.min(width)).unwrap()
    })
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![0_u16..12, Just(u16::MAX), Just(u16::MAX - 1)]
}

fn range() -> impl Strategy<Value = (u16, u16)> {
    (port(), port()).prop_map(|(a, b)| (a.min(b), a.max(b)))
}

fn maybe<T: Clone + std::fmt::Debug + 'static>(
    some: impl Strategy<Value = T> + 'static,
    weight: u32,
) -> impl Strategy<Value = Option<T>> {
    prop_oneof![2 => Just(None).boxed(), weight => some.prop_map(Some).boxed()]
}

fn protocol_name() -> impl Strategy<Value = Protocol> {
    prop_oneof![
        3 => Just(Protocol::Tcp),
        1 => Just(Protocol::Udp),
        1 => Just(Protocol::Icmp),
        1 => prop_oneof![Just(6_u8), Just(47)].prop_map(Protocol::Number),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let ends = (maybe(prefix(), 4), maybe(prefix(), 1));
    let ports = (maybe(range(), 1), maybe(range(), 3));
    let rest = (maybe(protocol_name(), 1), maybe(1_u8..3, 1));
    (ends, ports, rest).prop_map(|(ends, ports, rest)| Rule {
        source: ends.0,
        destination: ends.1,
        source_ports: ports.0,
        destination_ports: ports.1,
        protocol: rest.0,
        wire: rest.1,
        ..Rule::default()
    })
}

fn packet() -> impl Strategy<Value = RulePacket> {
    let kinds = prop_oneof![4 => Just(6_u8), 4 => prop::sample::select(vec![17, 1, 58, 47])];
    (address(), address(), kinds, (port(), port()), 0_u8..3).prop_map(
        |(source, destination, protocol, ports, port)| RulePacket {
            source: source.into(),
            destination: destination.into(),
            protocol,
            ports: matches!(protocol, 6 | 17).then_some(ports),
            port,
            bytes: 40,
            is_counted: true,
        },
    )
}

/// A packet that this rule may match, at the edges of its prefixes and ranges.
fn aimed(rule: &Rule, packet: RulePacket, at_end: bool) -> RulePacket {
    let edge = |cidr: Option<IpCidr>, other: Addr| match cidr {
        None => other,
        Some(cidr) => {
            let bits = Addr::from(cidr.network().address()).bits();
            let host = if at_end { !mask(len_of(&cidr)) } else { 0 };
            Addr::from_octets((bits | host).to_be_bytes())
        }
    };
    let end = |(first, last): (u16, u16)| if at_end { last } else { first };
    RulePacket {
        source: edge(rule.source, packet.source),
        destination: edge(rule.destination, packet.destination),
        ports: packet.ports.map(|(source, destination)| {
            (
                rule.source_ports.map_or(source, end),
                rule.destination_ports.map_or(destination, end),
            )
        }),
        ..packet
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn table_finds_the_rule_that_the_reference_finds(
        rules in vec(rule(), 0..60),
        packets in vec((packet(), any::<prop::sample::Index>(), any::<bool>()), 1..40),
    ) {
        let table = RuleTable::new(&rules);
        for (packet, at, at_end) in packets {
            prop_assert_eq!(table.first_match(&packet), reference(&rules, &packet));
            if !rules.is_empty() {
                let packet = aimed(at.get(&rules), packet, at_end);
                prop_assert_eq!(table.first_match(&packet), reference(&rules, &packet));
            }
        }
    }
}

fn tcp(source: &str, port: u16) -> RulePacket {
    RulePacket {
        source: source.parse::<IpAddr>().unwrap().into(),
        destination: "10.0.0.1".parse::<IpAddr>().unwrap().into(),
        protocol: protocol::TCP,
        ports: Some((40_000, port)),
        port: 0,
        bytes: 40,
        is_counted: true,
    }
}

#[test]
fn zero_prefix_of_one_family_leaves_the_other_alone() {
    let all_v6 = Rule {
        source: Some("::/0".parse().unwrap()),
        action: RuleAction::Deny,
        ..Rule::default()
    };
    let all_v4 = Rule {
        source: Some("0.0.0.0/0".parse().unwrap()),
        ..Rule::default()
    };
    let table = RuleTable::new(&[all_v6, all_v4]);
    assert_eq!(table.first_match(&tcp("192.0.2.1", 80)), Some(1));
    assert_eq!(table.first_match(&tcp("fd00::1", 80)), Some(0));
}

/// The 1,500 rules have ports `0..last` each, and a condition that keeps them from being final.
/// Their lists by port would take more than a million entries.
#[test]
fn lists_without_room_give_way_to_one_list() {
    let nested = |last: u16| Rule {
        protocol: Some(Protocol::Tcp),
        destination_ports: Some((0, last)),
        ..Rule::default()
    };
    let rules: Vec<Rule> = (0..1_500).map(nested).collect();
    let table = RuleTable::new(&rules);
    assert!(matches!(table.nodes[0].rules, NodeRules::Unsorted(_)));
    assert!(table.lists.len() <= RULE_LISTS_MAX);
    for port in [0, 700, 1_499, 1_500] {
        let packet = tcp("192.0.2.1", port);
        assert_eq!(table.first_match(&packet), reference(&rules, &packet));
    }
}

#[test]
fn ten_thousand_ports_and_ten_thousand_prefixes_are_found() {
    let by_port = |port: u16| Rule {
        destination_ports: Some((port, port)),
        ..Rule::default()
    };
    let by_prefix = |at: u32| Rule {
        source: Some(IpCidr::new(std::net::Ipv4Addr::from_bits(at << 8).into(), 24).unwrap()),
        ..Rule::default()
    };
    let rules: Vec<Rule> = (1..=10_000)
        .map(by_port)
        .chain((1..=10_000).map(by_prefix))
        .collect();
    let table = RuleTable::new(&rules);
    assert_eq!(table.first_match(&tcp("0.0.9.9", 9_999)), Some(9_998));
    assert_eq!(table.first_match(&tcp("0.0.9.9", 10_001)), Some(10_008));
    assert_eq!(table.first_match(&tcp("9.0.9.9", 10_001)), None);
}
