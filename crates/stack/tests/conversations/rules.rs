//! Packet rules: which packets pass, and how the others are answered.

use std::net::{IpAddr, SocketAddr};

use ring::frame_log::FrameLogReader;
use ring::socket_block::SocketState;
use stack::context::Control;
use stack::rules::{Judge, Protocol, Rule, RuleAction, RuleSet};
use wire::tcp::Flags;
use wire::{icmpv4, icmpv6, ipv4, protocol};

use crate::common::frames::{self, Seen, mend_ipv4};
use crate::common::{MILLIS, PEER_V4, PEER_V6, PORT, SECOND, STACK_MAC, STACK_V4, STACK_V6, World};

/// Offset of the IP header in a frame.
const IP: usize = wire::ethernet::HEADER_LEN;
const ALLOW: RuleAction = RuleAction::Allow;
const DENY: RuleAction = RuleAction::Deny;
const REJECT: RuleAction = RuleAction::Reject;

fn set(rules: Vec<Rule>, default_action: RuleAction) -> RuleSet {
    RuleSet {
        rules,
        default_action,
    }
}

fn ruled(rules: Vec<Rule>, default_action: RuleAction) -> World {
    World::with(|s| s.config.rules = set(rules, default_action))
}

fn from(prefix: &str, action: RuleAction) -> Rule {
    Rule {
        source: Some(prefix.parse().unwrap()),
        action,
        ..Rule::default()
    }
}

fn to_port(port: u16, action: RuleAction) -> Rule {
    Rule {
        destination_ports: Some((port, port)),
        action,
        ..Rule::default()
    }
}

/// Number of packets and refusals of each rule.
fn counts(w: &World) -> Vec<(u64, u64)> {
    let rules = w.stack.report().rules;
    rules.iter().map(|one| (one.packets, one.refused)).collect()
}

fn ping(w: &World) -> Vec<u8> {
    let ping = icmpv4::Message::EchoRequest {
        ident: 7,
        seq: 8,
        data: b"ping",
    };
    frames::icmp4_frame(w.peer.mac, STACK_MAC, PEER_V4, STACK_V4, &ping)
}

/// A UDP datagram from the peer, from port 5 to 53.
fn datagram(w: &World, src: IpAddr, dst: IpAddr) -> Vec<u8> {
    let bytes = [0, 5, 0, 53, 0, 8, 0, 0];
    frames::ip_frame(w.peer.mac, STACK_MAC, src, dst, protocol::UDP, &bytes)
}

#[test]
fn listen_denied_syn_leaves_nothing_and_hears_nothing() {
    let mut w = ruled(vec![from("10.0.0.0/24", DENY)], ALLOW);
    w.listen();
    let mut client = w.client();
    let syn = client.syn();
    let moved = w.counted(|w| w.send(&syn));
    assert_eq!(moved, [("rx_drop_rule", 1)]);
    assert_eq!(w.stack.usage().half_open, 0);
    w.advance(10 * SECOND);
    w.silent();
    let counts = w.stack.report().rules;
    assert_eq!((counts[0].packets, counts[0].refused), (1, 1));
    assert_eq!(
        counts[0].bytes, 44,
        "two headers and a maximum segment size"
    );
}

#[test]
fn closed_denied_segments_of_no_flow_earn_no_reset() {
    let mut w = ruled(vec![to_port(PORT, DENY)], ALLOW);
    let client = w.client();
    for flags in [Flags::ACK, Flags::SYN | Flags::ACK, Flags::FIN | Flags::ACK] {
        w.send(&client.segment(flags));
        w.silent();
    }
    let other = w.client_from(PEER_V4, SocketAddr::new(STACK_V4, PORT + 1));
    w.send(&other.ack());
    w.tcp_with(Flags::RST);
}

#[test]
fn listen_rejected_syn_is_reset_as_at_a_closed_port() {
    let mut w = ruled(vec![to_port(PORT, REJECT)], ALLOW);
    w.listen();
    let mut client = w.client();
    let syn = client.syn();
    let moved = w.counted(|w| w.send(&syn));
    assert!(moved.contains(&("rx_drop_rule_reject", 1)), "{moved:?}");
    assert!(moved.contains(&("resets_sent", 1)), "{moved:?}");
    let reset = w.tcp_with(Flags::RST | Flags::ACK);
    assert_eq!(reset.ack, client.nxt);
    w.send(&client.rst());
    w.silent();
}

#[test]
fn listen_first_rule_that_matches_decides() {
    let rules = || {
        vec![
            to_port(PORT + 1, DENY),
            from("10.0.0.2/32", ALLOW),
            from("10.0.0.0/24", REJECT),
        ]
    };
    let mut w = ruled(rules(), DENY);
    w.listen();
    let mut client = w.client();
    w.handshake(&mut client);
    assert_eq!(counts(&w), [(0, 0), (1, 0), (0, 0)]);
    let mut other = w.client_from(PEER_V4, SocketAddr::new(STACK_V4, PORT + 1));
    let syn = other.syn();
    w.send(&syn);
    w.silent();
    assert_eq!(counts(&w), [(1, 1), (1, 0), (0, 0)]);
}

#[test]
fn listen_default_deny_decides_where_no_rule_does() {
    let mut w = ruled(vec![from("192.0.2.0/24", ALLOW)], DENY);
    w.listen();
    let syn = w.client().syn();
    assert_eq!(w.counted(|w| w.send(&syn)), [("rx_drop_rule", 1)]);
    w.silent();
    assert_eq!(counts(&w), [(0, 0)]);
}

#[test]
fn established_and_half_open_flows_are_not_asked_again() {
    let limit = RuleAction::Limit {
        per_second: 1,
        burst: 1,
    };
    let mut w = ruled(vec![to_port(PORT, limit)], ALLOW);
    let listener = w.listen();
    let mut client = w.client();
    let syn = client.syn();
    w.send(&syn);
    // A repeated SYN belongs to a known handshake and takes no token.
    w.send(&syn);
    let syn_ack = w.tcp_with(Flags::SYN | Flags::ACK);
    client.on_syn_ack(&syn_ack);
    w.peer.forget();
    w.send(&client.ack());
    for _ in 0..5 {
        w.send(&client.data(b"text"));
    }
    let socket = w.app.accept(listener).expect("the handshake is complete");
    assert_eq!(w.read(socket).len(), 20);
    assert_eq!(counts(&w), [(1, 0)]);
}

#[test]
fn limit_refills_in_the_stacks_time() {
    let limit = RuleAction::Limit {
        per_second: 2,
        burst: 3,
    };
    let mut w = ruled(vec![to_port(PORT, limit)], ALLOW);
    w.listen();
    let passed = |w: &mut World, syns: usize| {
        for _ in 0..syns {
            let syn = w.client().syn();
            w.send(&syn);
        }
        let answers = w.peer.take_tcp();
        answers
            .iter()
            .filter(|one| one.flags == Flags::SYN | Flags::ACK)
            .count()
    };
    assert_eq!(passed(&mut w, 5), 3);
    // Retransmitted SYN-ACKs must not count among the answers.
    w.peer.deaf = true;
    w.advance(499 * MILLIS);
    w.peer.deaf = false;
    assert_eq!(passed(&mut w, 1), 0);
    w.advance(MILLIS);
    assert_eq!(passed(&mut w, 2), 1);
    assert_eq!(counts(&w), [(8, 4)]);
    assert_eq!(w.stack.counters().rx_drop_rule_limit, 4);
    // Segments that are not SYNs take no token and are answered.
    let stray = w.client();
    w.send(&stray.ack());
    assert!(w.tcp().flags.contains(Flags::RST));
    assert_eq!(counts(&w), [(9, 4)]);
}

#[test]
fn cookie_handshake_takes_one_token() {
    let limit = RuleAction::Limit {
        per_second: 1,
        burst: 1,
    };
    let mut w = World::with(|s| {
        s.config.tcp.syn_cookies = tcp::SynCookieUse::Always;
        s.config.rules = set(vec![to_port(PORT, limit)], DENY);
    });
    let (client, _) = w.established();
    assert_eq!(w.stack.counters().syn_cookies_accepted, 1);
    assert_eq!(counts(&w), [(2, 0)]);
    w.send(&client.ack());
    w.silent();
}

#[test]
fn time_wait_new_syn_is_asked_about() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.close(socket);
    let fin = w.tcp_with(Flags::FIN | Flags::ACK);
    client.take(&fin);
    w.send(&client.fin());
    w.peer.forget();
    assert_eq!(w.stack.usage().time_wait, 1);
    replace(&mut w, set(vec![to_port(PORT, DENY)], ALLOW));
    let mut again = client.clone();
    again.nxt = client.nxt.wrapping_add(100_000);
    let syn = again.syn();
    assert_eq!(w.counted(|w| w.send(&syn)), [("rx_drop_rule", 1)]);
    w.silent();
    assert_eq!(w.stack.usage().time_wait, 1, "the entry stays");
}

/// Replaces the set of rules.
fn replace(w: &mut World, set: RuleSet) {
    let judge = Judge::new(&set, w.now_ns).unwrap();
    assert!(w.app.side.control(Control::Rules(judge)).is_ok());
    w.settle();
}

#[test]
fn established_connection_outlives_rules_that_deny_its_peer() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    replace(&mut w, set(vec![], DENY));
    w.send(&client.data(b"still"));
    assert_eq!(w.read(socket), b"still");
    w.peer.forget();
    let syn = w.client().syn();
    w.send(&syn);
    w.silent();
    replace(&mut w, RuleSet::default());
    let syn = w.client().syn();
    w.send(&syn);
    w.tcp_with(Flags::SYN | Flags::ACK);
    assert_eq!(w.stack.report().rules, []);
}

#[test]
fn connect_succeeds_where_everything_else_is_denied() {
    let mut w = ruled(vec![], DENY);
    let remote = SocketAddr::new(PEER_V4, 443);
    let (mut client, socket) = w.connected(remote);
    w.send(&client.data(b"answer"));
    assert_eq!(w.read(socket), b"answer");
}

#[test]
fn own_addresses_are_reached_where_everything_else_is_denied() {
    let mut w = ruled(vec![], DENY);
    let listener = w.listen();
    let near = w.app.connect(SocketAddr::new(STACK_V4, PORT));
    w.settle();
    assert!(w.app.has(near, SocketState::CONNECTED));
    assert!(w.app.accept(listener).is_some());
}

#[test]
fn wire_of_another_number_is_not_meant() {
    let by = |wire| Rule {
        wire: Some(wire),
        action: DENY,
        ..Rule::default()
    };
    for (wire, answers) in [(1, 0), (2, 1)] {
        let mut w = ruled(vec![by(wire)], ALLOW);
        w.listen();
        let syn = w.client().syn();
        w.send(&syn);
        assert_eq!(w.peer.take_tcp().len(), answers, "wire {wire}");
    }
}

#[test]
fn ipv6_prefixes_ports_and_neighbour_discovery() {
    let rule = Rule {
        source: Some("fd00::/16".parse().unwrap()),
        destination: Some(stack::IpCidr::host(STACK_V6)),
        protocol: Some(Protocol::Tcp),
        source_ports: Some((40_000, 50_000)),
        ..Rule::default()
    };
    // The peer's address is resolved although the default action denies.
    let mut w = ruled(vec![rule], DENY);
    w.listen_at(SocketAddr::new(STACK_V6, PORT), 4);
    let mut client = w.client_v6();
    w.handshake(&mut client);
    let mut low = w.client_v6();
    low.peer.set_port(39_999);
    let syn = low.syn();
    w.send(&syn);
    let udp = datagram(&w, PEER_V6, STACK_V6);
    w.send_frame(&udp);
    w.silent();
    assert_eq!(w.stack.counters().rx_drop_rule, 2);
}

#[test]
fn packets_that_are_not_tcp_are_asked_about() {
    let icmp = |action| Rule {
        protocol: Some(Protocol::Icmp),
        action,
        ..Rule::default()
    };
    let udp = |action| Rule {
        protocol: Some(Protocol::Udp),
        destination_ports: Some((53, 53)),
        action,
        ..Rule::default()
    };
    let mut w = ruled(vec![icmp(DENY), udp(DENY)], ALLOW);
    let (echo, query) = (ping(&w), datagram(&w, PEER_V4, STACK_V4));
    w.send_frame(&echo);
    w.send_frame(&query);
    w.silent();
    assert_eq!(w.stack.counters().rx_drop_rule, 2);
    assert_eq!(w.stack.counters().rx_drop_protocol, 0);

    let limit = RuleAction::Limit {
        per_second: 1,
        burst: 2,
    };
    let mut w = ruled(vec![icmp(limit), udp(REJECT)], ALLOW);
    (0..5).for_each(|_| w.send_frame(&echo));
    assert_eq!(w.peer.len(), 2);
    w.peer.forget();
    for (src, dst, said) in [(PEER_V4, STACK_V4, [3, 13]), (PEER_V6, STACK_V6, [1, 1])] {
        let query = datagram(&w, src, dst);
        w.send_frame(&query);
        let Some(Seen::Icmp { bytes, .. }) = w.peer.next() else {
            panic!("administratively prohibited")
        };
        assert_eq!(bytes[..2], said, "type and code");
    }
    assert_eq!(counts(&w), [(5, 3), (2, 2)]);
}

#[test]
fn rejected_echo_request_and_group_packets_hear_nothing() {
    let mut w = ruled(vec![], REJECT);
    let echo = ping(&w);
    w.send_frame(&echo);
    let group = "10.0.0.255".parse().unwrap();
    let mut query = datagram(&w, PEER_V4, group);
    query[..6].fill(0xff);
    w.send_frame(&query);
    w.silent();
    assert_eq!(w.stack.counters().rx_drop_rule_reject, 2);
}

#[test]
fn connect_is_refused_by_an_icmp_error_that_a_default_would_deny() {
    let mut w = ruled(vec![], DENY);
    let socket = w.app.connect(SocketAddr::new(PEER_V4, 443));
    w.settle();
    let syn = w.tcp_with(Flags::SYN);
    let quoted = w.peer.frame(&syn);
    let error = icmpv4::Message::DestinationUnreachable {
        code: icmpv4::unreachable::PORT,
        next_hop_mtu: 0,
        quote: &quoted[IP..],
    };
    let frame = frames::icmp4_frame(w.peer.mac, STACK_MAC, PEER_V4, STACK_V4, &error);
    w.send_frame(&frame);
    assert!(w.app.has(socket, SocketState::FAILED));
    assert_eq!(w.stack.counters().icmp_errors, 1);
    let v6 = icmpv6::Message::EchoRequest {
        ident: 1,
        seq: 1,
        data: b"",
    };
    let frame = frames::icmp6_frame(w.peer.mac, STACK_MAC, PEER_V6, STACK_V6, &v6);
    assert_eq!(w.counted(|w| w.send_frame(&frame)), [("rx_drop_rule", 1)]);
}

#[test]
fn fragments_and_malformed_frames_are_not_the_rules_matter() {
    let mut w = ruled(vec![from("0.0.0.0/0", REJECT)], REJECT);
    w.listen();
    let whole = {
        let syn = w.client().syn();
        w.peer.frame(&syn)
    };
    let mut fragment = whole.clone();
    fragment[IP + 6] = 0x20;
    mend_ipv4(&mut fragment);
    assert_eq!(
        w.counted(|w| w.send_frame(&fragment)),
        [("rx_drop_fragment", 1)]
    );
    let mut damaged = whole.clone();
    damaged[IP + ipv4::HEADER_LEN + wire::tcp::CHECKSUM_OFFSET] ^= 1;
    let moved = w.counted(|w| w.send_frame(&damaged));
    assert_eq!(moved, [("rx_drop_tcp_checksum", 1)]);
    for len in IP..whole.len() {
        w.send_frame(&whole[..len]);
    }
    let query = datagram(&w, PEER_V4, STACK_V4);
    for len in IP..query.len() {
        w.send_frame(&query[..len]);
    }
    w.silent();
    assert_eq!(counts(&w), [(0, 0)]);
}

#[test]
fn captured_stack_names_the_rules_as_reasons() {
    let mut w = ruled(vec![to_port(PORT, DENY), to_port(PORT + 1, REJECT)], ALLOW);
    let log = w.stack.capture(0, 96, None, w.now_ns + SECOND).unwrap();
    let mut log = FrameLogReader::open(log).unwrap();
    for port in [PORT, PORT + 1, PORT + 2] {
        let syn = w
            .client_from(PEER_V4, SocketAddr::new(STACK_V4, port))
            .syn();
        w.send(&syn);
    }
    let mut reasons = Vec::new();
    while let Some(frame) = log.next_frame() {
        if !frame.is_outbound {
            reasons.push(frame.reason.map(str::to_owned));
        }
    }
    let named = |name: &str| Some(name.to_owned());
    assert_eq!(
        reasons,
        [named("rx_drop_rule"), named("rx_drop_rule_reject"), None]
    );
}
