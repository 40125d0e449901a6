//! Frames that go to one member, and frames that go to all.

use std::net::Ipv6Addr;

use wire::ipv6;

use super::*;

const ARP: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
const ECHO_V4: [u8; 8] = [8, 0, 0, 0, 0, 1, 0, 1];
const ECHO_V6: [u8; 8] = [128, 0, 0, 0, 0, 1, 0, 1];
const UDP: [u8; 8] = [0, 1, 0, 2, 0, 8, 0, 0];
/// Eight bytes of destination options before TCP, all of them padding.
const OPTIONS: [u8; 8] = [protocol::TCP, 0, 1, 4, 0, 0, 0, 0];
const DESTINATION_OPTIONS: u8 = 60;

fn v6(next_header: u8, body: &[u8]) -> Vec<u8> {
    let header = ipv6::Header {
        payload_len: body.len() as u16,
        next_header,
        src: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
        dst: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2),
        ..ipv6::Header::default()
    };
    let mut packet = vec![0; ipv6::HEADER_LEN];
    assert_eq!(header.emit(&mut packet), ipv6::HEADER_LEN);
    packet.extend(body);
    frame(EtherType::IPV6, &packet)
}

/// Adds an 802.1Q tag to the frame.
fn tagged(frame: &[u8], tci: u16) -> Vec<u8> {
    let mut tagged = frame[..12].to_vec();
    tagged.extend(EtherType::VLAN.to_be_bytes());
    tagged.extend(tci.to_be_bytes());
    tagged.extend(&frame[12..]);
    tagged
}

/// A TCP header behind extension headers.
fn behind_options(from: u16, flags: u8) -> Vec<u8> {
    let body = [&OPTIONS[..], &tcp(from, 80, flags)].concat();
    v6(DESTINATION_OPTIONS, &body)
}

#[test]
fn frame_that_one_answers_goes_to_one() {
    let mut world = World::new(3);
    (0..3).for_each(|index| world.listens(index, true));
    let mut fragment = v4(PEER, OURS, protocol::TCP, &tcp(1, 80, SYN));
    // Sets the flag "more fragments" and corrects the checksum.
    fragment[14 + 6] |= 0x20;
    fragment[14 + 10] = fragment[14 + 10].wrapping_sub(0x20);
    let mut broken = segment(1, 80, SYN);
    broken[14] = 0x42;
    for (name, bytes) in [
        ("echo", v4(PEER, OURS, protocol::ICMP, &ECHO_V4)),
        ("echo, IPv6", v6(protocol::ICMPV6, &ECHO_V6)),
        ("UDP", v4(PEER, OURS, protocol::UDP, &UDP)),
        ("UDP, IPv6", v6(protocol::UDP, &UDP)),
        ("unknown protocol", v4(PEER, OURS, 200, &UDP)),
        ("unknown ethertype", frame(0x88b5, &UDP)),
        ("fragment", fragment),
        ("broken header", broken),
        ("SYN behind options", behind_options(1, SYN)),
        ("SYN with a priority", tagged(&segment(1, 80, SYN), 0xe000)),
        ("SYN of another network", tagged(&segment(1, 80, SYN), 7)),
    ] {
        let who = world.hears(&bytes);
        assert_eq!(who.count_ones(), 1, "{name}: {who:b}");
    }
}

#[test]
fn frame_that_all_must_hear_goes_to_all() {
    let mut world = World::new(3);
    let unreachable = [&[3, 4, 0, 0, 0, 0, 5, 0][..], &[0; 28]].concat();
    let too_big = [&[2, 0, 0, 0, 0, 0, 5, 0][..], &[0; 48]].concat();
    let solicitation = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &[0; 16]].concat();
    for (name, bytes) in [
        ("ARP", frame(EtherType::ARP, &ARP)),
        (
            "ARP with a priority",
            tagged(&frame(EtherType::ARP, &ARP), 0xe000),
        ),
        ("unreachable", v4(PEER, OURS, protocol::ICMP, &unreachable)),
        ("too big", v6(protocol::ICMPV6, &too_big)),
        ("solicitation", v6(protocol::ICMPV6, &solicitation)),
    ] {
        assert_eq!(world.hears(&bytes), 0b111, "{name}");
    }
}

#[test]
fn flow_in_other_clothes_keeps_its_owner() {
    let mut world = World::new(3);
    (0..3).for_each(|index| world.listens(index, true));
    for from in 1000..1032 {
        let owner = world.hears(&v6(protocol::TCP, &tcp(from, 80, SYN)));
        assert_eq!(world.hears(&behind_options(from, ACK)), owner, "{from}");
        let owner = world.hears(&segment(from, 80, SYN));
        let with_priority = tagged(&segment(from, 80, ACK), 0xe000);
        assert_eq!(world.hears(&with_priority), owner, "{from}");
    }
}
