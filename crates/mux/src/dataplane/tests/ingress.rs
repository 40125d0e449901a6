//! The NIC's program: the owner of each arriving frame.

use super::*;

const PEER: [u8; 4] = [10, 0, 0, 2];

fn ethernet(kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(kind);
    frame.extend(packet);
    frame
}

fn tcp(from: u16, to: u16) -> Vec<u8> {
    let mut segment = from.to_be_bytes().to_vec();
    segment.extend(to.to_be_bytes());
    segment.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    segment
}

fn v4_packet(
    from: [u8; 4],
    to: [u8; 4],
    protocol: u8,
    fragment: [u8; 2],
    payload: &[u8],
) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0, fragment[0], fragment[1], 64, protocol, 0, 0]);
    packet.extend(from);
    packet.extend(to);
    packet.extend(payload);
    packet
}

fn v4(to: [u8; 4], port: u16) -> Vec<u8> {
    ethernet([8, 0], &v4_packet(PEER, to, 6, [0, 0], &tcp(9, port)))
}

fn v6_packet(from: u8, to: u8, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    for last in [from, to] {
        packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    packet.extend(payload);
    packet
}

fn v6(to: u8, next: u8, payload: &[u8]) -> Vec<u8> {
    ethernet([0x86, 0xdd], &v6_packet(2, to, next, payload))
}

/// The program's action for a frame, and the slot that got the frame.
fn decide(plane: &Dataplane, frame: &[u8]) -> (u32, Option<u16>) {
    let received = |slot| plane.counters(slot, 0).rx_frames;
    let before = [received(0), received(1)];
    let action = bpf::dry_run(plane.maps.ingress.as_fd(), frame, 0).unwrap();
    let slot = (0..2).find(|slot| received(*slot) > before[usize::from(*slot)]);
    (action, slot)
}

fn claimed(host: &Host) -> Dataplane {
    let mut plane = host.open();
    drop(add_port(&mut plane, 0, 0));
    drop(add_port(&mut plane, 1, 0));
    plane
        .claim_set("0.0.0.0:80".parse().unwrap(), 0, &[0])
        .unwrap();
    plane
        .claim_set("[::]:80".parse().unwrap(), 0, &[0])
        .unwrap();
    plane
        .claim_set("10.0.0.1:81".parse().unwrap(), 1, &[0])
        .unwrap();
    plane.lease_add(20_000..=20_003, 1, 0).unwrap();
    plane
}

#[test]
fn packet_goes_to_the_owner_of_its_port_and_else_to_the_kernel() {
    let Some(host) = Host::enter("in") else {
        return;
    };
    let mut plane = claimed(&host);
    let ours = OURS.octets();
    assert_eq!(decide(&plane, &v4(ours, 80)), (REDIRECT, Some(0)));
    assert_eq!(decide(&plane, &v4(ours, 81)), (REDIRECT, Some(1)));
    assert_eq!(decide(&plane, &v4(ours, 20_003)), (REDIRECT, Some(1)));
    assert_eq!(decide(&plane, &v6(1, 6, &tcp(9, 80))), (REDIRECT, Some(0)));
    let kernel = [
        v4(ours, 22),
        v4(ours, 20_004),
        v4([10, 0, 0, 3], 80),
        v4([10, 0, 0, 3], 20_000),
        v6(3, 6, &tcp(9, 80)),
        v6(1, 6, &tcp(9, 81)),
        ethernet([8, 0], &v4_packet(PEER, ours, 17, [0, 0], &tcp(9, 80))),
        ethernet(
            [8, 0],
            &v4_packet(PEER, ours, 1, [0, 0], &[8, 0, 0, 0, 0, 0, 0, 0]),
        ),
        ethernet([8, 6], &[0; 46]),
        ethernet([0x81, 0], &[0; 46]),
    ];
    for frame in kernel {
        assert_eq!(decide(&plane, &frame), (PASS, None), "{frame:x?}");
    }
    plane.claim_remove("0.0.0.0:80".parse().unwrap()).unwrap();
    plane.lease_remove(20_000..=20_003).unwrap();
    for port in [80, 20_003] {
        assert_eq!(decide(&plane, &v4(ours, port)), (PASS, None));
    }
    assert_eq!(decide(&plane, &v6(1, 6, &tcp(9, 80))), (REDIRECT, Some(0)));
    plane.close();
}

#[test]
fn icmp_error_goes_to_the_owner_of_the_packet_that_it_quotes() {
    let Some(host) = Host::enter("icmp") else {
        return;
    };
    let plane = claimed(&host);
    let ours = OURS.octets();
    let v4_error = |kind: u8, port: u16, fragment| {
        let mut error = vec![kind, 4, 0, 0, 0, 0, 5, 0];
        error.extend(v4_packet(ours, PEER, 6, fragment, &tcp(port, 9)));
        ethernet([8, 0], &v4_packet(PEER, ours, 1, [0, 0], &error))
    };
    assert_eq!(
        decide(&plane, &v4_error(3, 80, [0x40, 0])),
        (REDIRECT, Some(0))
    );
    assert_eq!(
        decide(&plane, &v4_error(11, 20_001, [0, 0])),
        (REDIRECT, Some(1))
    );
    for frame in [
        v4_error(3, 22, [0, 0]),
        v4_error(8, 80, [0, 0]),
        v4_error(3, 80, [0, 1]),
    ] {
        assert_eq!(decide(&plane, &frame), (PASS, None));
    }
    let v6_error = |kind: u8, port: u16| {
        let mut error = vec![kind, 0, 0, 0, 0, 0, 5, 0];
        error.extend(v6_packet(1, 2, 6, &tcp(port, 9)));
        v6(1, 58, &error)
    };
    assert_eq!(decide(&plane, &v6_error(2, 80)), (REDIRECT, Some(0)));
    assert_eq!(decide(&plane, &v6_error(135, 80)), (PASS, None));
    assert_eq!(decide(&plane, &v6_error(2, 22)), (PASS, None));
    plane.close();
}

#[test]
fn packet_that_the_kernel_would_reset_a_connection_for_is_dropped_and_counted() {
    let Some(host) = Host::enter("drops") else {
        return;
    };
    let plane = claimed(&host);
    let ours = OURS.octets();
    let fragment = |port, flags| ethernet([8, 0], &v4_packet(PEER, ours, 6, flags, &tcp(9, port)));
    assert_eq!(decide(&plane, &fragment(80, [0x20, 0])), (DROP, None));
    assert_eq!(decide(&plane, &fragment(22, [0x20, 0])), (PASS, None));
    assert_eq!(decide(&plane, &fragment(80, [0, 3])), (PASS, None));
    let v6_fragment = |offset: u8| {
        let mut payload = vec![6, 0, 0, offset, 0, 0, 0, 7];
        payload.extend(tcp(9, 80));
        v6(1, 44, &payload)
    };
    assert_eq!(decide(&plane, &v6_fragment(1)), (DROP, None));
    assert_eq!(decide(&plane, &v6_fragment(9)), (PASS, None));
    assert_eq!(decide(&plane, &v6_fragment(0)), (REDIRECT, Some(0)));
    assert_eq!(plane.ingress_counters().fragment, 2);

    // Two extension headers before TCP are parsed; nine are not, nor is one that is cut off.
    let chain = |headers: usize| {
        let mut payload = Vec::new();
        for left in (0..headers).rev() {
            payload.extend([if left == 0 { 6 } else { 60 }, 0, 0, 0, 0, 0, 0, 0]);
        }
        payload.extend(tcp(9, 80));
        payload
    };
    assert_eq!(decide(&plane, &v6(1, 60, &chain(2))), (REDIRECT, Some(0)));
    assert_eq!(decide(&plane, &v6(1, 60, &chain(9))), (DROP, None));
    assert_eq!(decide(&plane, &v6(3, 60, &chain(9))), (PASS, None));
    assert_eq!(decide(&plane, &v6(1, 60, &[6, 0, 0, 0])), (DROP, None));
    assert_eq!(decide(&plane, &v6(1, 6, &[0, 9])), (DROP, None));
    assert_eq!(plane.ingress_counters().ipv6_unparsed, 3);

    let removed = plane.maps.remove("devices", &0u32.to_ne_bytes());
    removed.unwrap();
    assert_eq!(decide(&plane, &v4(ours, 80)), (DROP, None));
    assert_eq!(plane.ingress_counters().no_port, 1);
    plane.close();
}

#[test]
fn flow_keeps_its_context_when_listeners_come_and_go() {
    let Some(host) = Host::enter("flows") else {
        return;
    };
    let mut plane = host.open();
    for context in 0..3 {
        drop(add_port(&mut plane, 0, context));
    }
    let endpoint: SocketAddr = "0.0.0.0:80".parse().unwrap();
    plane.claim_set(endpoint, 0, &[0, 1]).unwrap();
    let ours = OURS.octets();
    let from = |port: u16| ethernet([8, 0], &v4_packet(PEER, ours, 6, [0, 0], &tcp(port, 80)));
    let context_of = |plane: &Dataplane, frame: &[u8]| {
        let received = |context| plane.counters(0, context).rx_frames;
        let before = [0, 1, 2].map(received);
        assert_eq!(
            bpf::dry_run(plane.maps.ingress.as_fd(), frame, 0),
            Ok(REDIRECT)
        );
        (0u16..3)
            .find(|context| received(*context) > before[usize::from(*context)])
            .unwrap()
    };
    let first: Vec<u16> = (1000..1064)
        .map(|port| context_of(&plane, &from(port)))
        .collect();
    assert!(first.contains(&0) && first.contains(&1) && !first.contains(&2));
    // Each owner answers, so that the flow becomes its own.
    let answer = |plane: &Dataplane, context: u16, port: u16| {
        let mut frame = GATEWAY.0.to_vec();
        frame.extend(plane.nic().mac.0);
        frame.extend([8, 0]);
        let mut packet = v4_packet(ours, PEER, 6, [0, 0], &tcp(80, port));
        let sum: u32 = packet[..20]
            .chunks(2)
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
            .sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(packet);
        let program = plane.maps.egress.as_fd();
        let near = near_index(plane.devices[&(0, context)]);
        let action = plane.namespace.run(|| {
            bpf::dry_run(program, &frame, near)
                .map_err(|errno| DataplaneError::io("BPF_PROG_TEST_RUN", errno))
        });
        assert_eq!(action, Ok(REDIRECT));
    };
    for (port, context) in (1000..).zip(&first) {
        answer(&plane, *context, port);
    }
    plane.claim_set(endpoint, 0, &[2]).unwrap();
    let later: Vec<u16> = (1000..1064)
        .map(|port| context_of(&plane, &from(port)))
        .collect();
    assert_eq!(later, first);
    assert!((3000..3064).all(|port| context_of(&plane, &from(port)) == 2));
    plane.close();
}
