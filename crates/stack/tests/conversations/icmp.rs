//! Echo, refusals, and the effect of ICMP errors on connections.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use stack::context::{DontFragment, SocketOption};
use wire::tcp::Flags;
use wire::{icmpv4, icmpv6, protocol};

use crate::common::{
    Client, PEER_V4, PEER_V6, SECOND, STACK_MAC, STACK_V4, STACK_V6, Seen, Tcp, World, frames,
};

const PING: icmpv4::Message<'static> = icmpv4::Message::EchoRequest {
    ident: 7,
    seq: 8,
    data: b"ping",
};

#[test]
fn echo_request_is_answered() {
    let mut w = World::new();
    let ping = frames::icmp4_frame(w.peer.mac, STACK_MAC, PEER_V4, STACK_V4, &PING);
    w.send_frame(&ping);
    let Some(Seen::Icmp { src, dst, bytes }) = w.peer.next() else {
        panic!("an echo reply")
    };
    assert_eq!((src, dst), (STACK_V4, PEER_V4));
    let reply = icmpv4::Message::EchoReply {
        ident: 7,
        seq: 8,
        data: b"ping",
    };
    assert_eq!(icmpv4::Message::parse(&bytes), Ok(reply));
}

#[test]
fn echo_request_v6_is_answered() {
    let mut w = World::new();
    let ping = icmpv6::Message::EchoRequest {
        ident: 7,
        seq: 8,
        data: b"ping6",
    };
    w.send_frame(&frames::icmp6_frame(
        w.peer.mac, STACK_MAC, PEER_V6, STACK_V6, &ping,
    ));
    let Some(Seen::Icmp { bytes, .. }) = w.peer.next() else {
        panic!("an echo reply")
    };
    assert_eq!((bytes[0], &bytes[8..]), (129, &b"ping6"[..]));
}

#[test]
fn echo_request_to_everybody_or_with_echo_off_is_not_answered() {
    let mut w = World::new();
    let all: IpAddr = "10.0.0.255".parse().unwrap();
    let broadcast = frames::icmp4_frame(
        w.peer.mac,
        packetio::MacAddr::BROADCAST,
        PEER_V4,
        all,
        &PING,
    );
    let moved = w.counted(|w| w.send_frame(&broadcast));
    assert_eq!(moved, [("rx_drop_icmp", 1)]);
    let mut w = World::with(|s| s.config.echo = false);
    let ping = frames::icmp4_frame(w.peer.mac, STACK_MAC, PEER_V4, STACK_V4, &PING);
    let moved = w.counted(|w| w.send_frame(&ping));
    assert_eq!(moved, [("rx_drop_icmp", 1)]);
}

#[test]
fn echo_request_as_large_as_the_link_is_answered() {
    let mut w = World::with(|s| s.wire.mtu = 3_000);
    for len in [1_472, 2_000, 2_010, 2_048, 2_900] {
        let data = vec![7; len];
        let message = icmpv4::Message::EchoRequest {
            ident: 1,
            seq: 2,
            data: &data,
        };
        let ping = frames::icmp4_frame(w.peer.mac, STACK_MAC, PEER_V4, STACK_V4, &message);
        let moved = w.counted(|w| w.send_frame(&ping));
        match w.peer.next() {
            Some(Seen::Icmp { bytes, .. }) => assert_eq!(bytes.len(), len + 8),
            None => assert!(
                moved
                    .iter()
                    .any(|(name, _)| name.starts_with("rx_drop") || *name == "control_queue_full"),
                "{len}: dropped without a word: {moved:?}"
            ),
            other => panic!("{other:?}"),
        }
    }
}

fn quoted(w: &mut World, src: IpAddr, dst: IpAddr, upper: u8) -> (u8, u8) {
    let frame = frames::ip_frame(w.peer.mac, STACK_MAC, src, dst, upper, &[0; 16]);
    let moved = w.counted(|w| w.send_frame(&frame));
    assert!(moved.contains(&("rx_drop_protocol", 1)), "{moved:?}");
    match w.peer.next() {
        Some(Seen::Icmp { bytes, .. }) => (bytes[0], bytes[1]),
        other => panic!("an ICMP error was expected, not {other:?}"),
    }
}

#[test]
fn udp_is_answered_by_port_unreachable() {
    let mut w = World::new();
    assert_eq!(quoted(&mut w, PEER_V4, STACK_V4, protocol::UDP), (3, 3));
    assert_eq!(quoted(&mut w, PEER_V6, STACK_V6, protocol::UDP), (1, 4));
}

#[test]
fn unknown_protocol_is_answered_by_protocol_unreachable() {
    let mut w = World::new();
    assert_eq!(quoted(&mut w, PEER_V4, STACK_V4, 132), (3, 2));
    assert_eq!(quoted(&mut w, PEER_V6, STACK_V6, 132), (4, 1));
}

#[test]
fn datagram_in_a_frame_to_everybody_is_not_answered() {
    let mut w = World::new();
    for (src, dst) in [(PEER_V4, STACK_V4), (PEER_V6, STACK_V6)] {
        let all = packetio::MacAddr::BROADCAST;
        let frame = frames::ip_frame(w.peer.mac, all, src, dst, protocol::UDP, &[0; 16]);
        let moved = w.counted(|w| w.send_frame(&frame));
        assert_eq!(moved, [("rx_drop_protocol", 1)]);
        w.silent();
    }
}

#[test]
fn packet_with_nothing_behind_its_header_is_not_answered() {
    let mut w = World::new();
    let nothing = protocol::IPV6_NO_NEXT_HEADER;
    let frame = frames::ip_frame(w.peer.mac, STACK_MAC, PEER_V6, STACK_V6, nothing, &[0; 16]);
    let moved = w.counted(|w| w.send_frame(&frame));
    assert_eq!(moved, [("rx_drop_protocol", 1)]);
    w.silent();
}

#[test]
fn echo_request_from_a_group_of_stations_is_dropped() {
    let mut w = World::new();
    let everybody = packetio::MacAddr::BROADCAST;
    let ping = frames::icmp4_frame(everybody, STACK_MAC, PEER_V4, STACK_V4, &PING);
    let moved = w.counted(|w| w.send_frame(&ping));
    assert_eq!(moved, [("rx_drop_source_mac", 1)]);
    w.silent();
}

#[test]
fn established_segment_from_a_group_of_stations_is_dropped() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    let segment = client.data(b"text");
    let mut frame = w.peer.frame(&segment);
    // The group bit of the source MAC address.
    frame[6] |= 1;
    let moved = w.counted(|w| w.send_frame(&frame));
    assert_eq!(moved, [("rx_drop_source_mac", 1)]);
    frame[6] &= !1;
    w.send_frame(&frame);
    assert_eq!(w.read(socket), b"text");
    w.peer.forget();
}

/// An ICMPv4 error about a segment of the stack.
pub(crate) fn about(w: &World, segment: &Tcp, message: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (segment.src, segment.dst) else {
        panic!("IPv4")
    };
    let quote = frames::ipv4_packet(src, dst, protocol::TCP, &segment.segment_bytes());
    let body = message(&quote);
    frames::ip_frame(
        w.peer.mac,
        STACK_MAC,
        PEER_V4,
        STACK_V4,
        protocol::ICMP,
        &body,
    )
}

fn emitted(message: &icmpv4::Message<'_>) -> Vec<u8> {
    let mut bytes = vec![0; message.emit_len()];
    message.emit(&mut bytes);
    bytes
}

pub(crate) fn unreachable(code: u8, next_hop_mtu: u16) -> impl Fn(&[u8]) -> Vec<u8> {
    move |quote| {
        emitted(&icmpv4::Message::DestinationUnreachable {
            code,
            next_hop_mtu,
            quote,
        })
    }
}

#[test]
fn syn_sent_port_unreachable_refuses() {
    let mut w = World::new();
    for (code, errno) in [
        (3, Errno::CONNREFUSED),
        (1, Errno::HOSTUNREACH),
        (0, Errno::NETUNREACH),
    ] {
        let socket = w.app.connect(SocketAddr::new(PEER_V4, 80));
        w.settle();
        let syn = w.tcp_with(Flags::SYN);
        w.send_frame(&about(&w, &syn, unreachable(code, 0)));
        assert_eq!(w.app.errno(socket), Some(errno), "code {code}");
    }
}

#[test]
fn syn_sent_icmp_error_about_another_number_is_dropped() {
    let mut w = World::new();
    let socket = w.app.connect(SocketAddr::new(PEER_V4, 80));
    w.settle();
    let syn = w.tcp_with(Flags::SYN);
    // A quote of SND.NXT is believed: pure ACKs carry it, and Linux checks no more in this state.
    for guess in [syn.seq.wrapping_sub(1), syn.seq + 2, syn.seq + 1000] {
        let forged = syn.clone().at(guess);
        w.send_frame(&about(&w, &forged, unreachable(3, 0)));
    }
    assert_eq!(w.app.errno(socket), None);
    assert_eq!(w.stack.tcp_counters().drop_icmp_outside_window, 3);
    // An error about an unknown flow has no effect either.
    let mut other = syn.clone();
    other.src_port ^= 1;
    let frame = about(&w, &other, unreachable(3, 0));
    let moved = w.counted(|w| w.send_frame(&frame));
    assert_eq!(moved, [("rx_drop_icmp", 1)]);
}

#[test]
fn established_icmp_errors_do_not_end_it() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.write(socket, b"data");
    let data = w.tcp();
    for code in 0..16 {
        if code != 4 {
            w.send_frame(&about(&w, &data, unreachable(code, 0)));
        }
    }
    assert_eq!(w.app.errno(socket), None);
    client.take(&data);
    w.send(&client.ack());
    w.send(&client.data(b"fine"));
    assert_eq!(w.read(socket), b"fine");
}

/// ICMPv6 errors that end an attempt to connect, and the errno of each.
#[test]
fn syn_sent_v6_errors_end_the_attempt() {
    for (is_exceeded, errno) in [(false, Errno::CONNREFUSED), (true, Errno::HOSTUNREACH)] {
        let mut w = World::new();
        let socket = w.app.connect(SocketAddr::new(PEER_V6, 80));
        w.settle();
        let syn = w.tcp_with(Flags::SYN);
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (syn.src, syn.dst) else {
            panic!("IPv6")
        };
        let quote = frames::ipv6_packet(src, dst, protocol::TCP, 64, &syn.segment_bytes());
        let quote = quote.as_slice();
        let message = match is_exceeded {
            true => icmpv6::Message::TimeExceeded { code: 0, quote },
            false => icmpv6::Message::DestinationUnreachable { code: 4, quote },
        };
        let moved = w.counted(|w| {
            w.send_frame(&frames::icmp6_frame(
                w.peer.mac, STACK_MAC, PEER_V6, STACK_V6, &message,
            ));
        });
        assert!(!moved.contains(&("rx_drop_icmp", 1)), "{moved:?}");
        assert_eq!(w.app.errno(socket), Some(errno));
    }
}

fn in_flight(w: &mut World, len: usize) -> (Client, ring::socket_block::SocketId, Vec<Tcp>) {
    let (client, socket) = w.established();
    w.write(socket, &vec![1; len]);
    let sent = w.peer.take_tcp();
    (client, socket, sent)
}

#[test]
fn established_packet_too_big_lowers_the_segment_size() {
    let mut w = World::new();
    let (mut client, _, sent) = in_flight(&mut w, 8_000);
    assert_eq!(sent[0].payload.len(), 1460);
    w.send_frame(&about(&w, &sent[0], unreachable(4, 1_200)));
    let again = w.peer.take_tcp();
    assert!(!again.is_empty(), "what was too big is sent again");
    assert!(again.iter().all(|s| s.payload.len() <= 1_160), "{again:?}");
    let mut received = 0;
    let mut queue = again;
    while let Some(segment) = queue.first().cloned() {
        queue.remove(0);
        if segment.seq == client.rcv {
            received += client.take(&segment).len();
            w.send(&client.ack());
            queue.extend(w.peer.take_tcp());
        }
    }
    assert_eq!(received, 8_000);
}

#[test]
fn established_packet_too_big_about_another_number_is_ignored() {
    let mut w = World::new();
    let (client, socket, sent) = in_flight(&mut w, 4_000);
    let forged = sent[0].clone().at(client.rcv + 50_000);
    w.send_frame(&about(&w, &forged, unreachable(4, 576)));
    w.silent();
    // A reported MTU above the present one has no effect.
    w.send_frame(&about(&w, &sent[0], unreachable(4, 9_000)));
    w.silent();
    let _ = socket;
}

#[test]
fn established_packet_too_big_never_raises_what_another_lowered() {
    let mut w = World::new();
    let (mut client, socket, sent) = in_flight(&mut w, 3_000);
    w.send_frame(&about(&w, &sent[0], unreachable(4, 1_000)));
    let again = w.peer.take_tcp();
    w.send_frame(&about(&w, &again[0], unreachable(4, 1_400)));
    client.rcv += 3_000;
    w.peer.forget();
    w.send(&client.ack());
    w.peer.forget();
    w.write(socket, &[2; 3_000]);
    let sent = w.peer.take_tcp();
    assert!(sent[0].payload.len() <= 960, "{}", sent[0].payload.len());
}

/// Sends 3,000 bytes that the peer acknowledges. Returns the number of segments, and of those
/// without DF.
fn undivided(
    w: &mut World,
    client: &mut Client,
    socket: ring::socket_block::SocketId,
) -> (usize, usize) {
    w.peer.forget();
    let before = w.peer.fragmentable.len();
    w.write(socket, &[3; 3_000]);
    let sent = w.peer.take_tcp();
    let fragmentable = w.peer.fragmentable.len() - before;
    client.rcv += 3_000;
    w.send(&client.ack());
    (sent.len(), fragmentable)
}

#[test]
fn established_path_below_the_least_mtu_is_left_to_fragments_while_the_word_counts() {
    let mut w = World::new();
    let (mut client, socket, sent) = in_flight(&mut w, 1_460);
    assert_eq!(w.peer.fragmentable.len(), 0);
    w.send_frame(&about(&w, &sent[0], unreachable(4, 400)));
    let again = w.peer.take_tcp();
    assert_eq!(again[0].payload.len(), 512, "no less is believed");
    assert_eq!(w.peer.fragmentable.len(), again.len());
    client.rcv += 1_460;
    w.send(&client.ack());
    assert_eq!(undivided(&mut w, &mut client, socket), (6, 6));
    // The full path MTU is tried again after ten minutes.
    w.advance(602 * SECOND);
    assert_eq!(undivided(&mut w, &mut client, socket), (3, 0));
}

#[test]
fn established_path_below_the_least_mtu_keeps_df_where_the_application_forces_it() {
    for (dont_fragment, divides) in [
        (DontFragment::Always, false),
        (DontFragment::OnBelievablePaths, true),
        (DontFragment::Never, true),
    ] {
        let mut w = World::new();
        let (mut client, socket, sent) = in_flight(&mut w, 1_460);
        let retransmits = true;
        let choice = SocketOption::MtuDiscover {
            dont_fragment,
            retransmits,
            heeds_v6: true,
        };
        w.app.option(socket, choice);
        w.settle();
        w.send_frame(&about(&w, &sent[0], unreachable(4, 400)));
        client.rcv += 1_460;
        w.send(&client.ack());
        let fragmentable = if divides { 6 } else { 0 };
        let seen = undivided(&mut w, &mut client, socket);
        assert_eq!(seen, (6, fragmentable), "{dont_fragment:?}");
    }
}

/// A connection that began with segments of `narrow` bytes sends full ones ten minutes later.
fn widens(w: &mut World, client: &mut Client, socket: ring::socket_block::SocketId, narrow: usize) {
    w.write(socket, &[4; 2_000]);
    assert_eq!(w.tcp().payload.len(), narrow);
    w.peer.forget();
    client.rcv += 2_000;
    w.send(&client.ack());
    w.advance(602 * SECOND);
    w.peer.forget();
    w.write(socket, &[5; 2_000]);
    assert_eq!(w.tcp().payload.len(), 1_460);
}

#[test]
fn syn_sent_under_a_routers_word_the_connection_becomes_wide_when_it_is_old() {
    let mut w = World::new();
    let (_, _, sent) = in_flight(&mut w, 3_000);
    w.send_frame(&about(&w, &sent[0], unreachable(4, 1_000)));
    w.peer.forget();
    let (mut client, socket) = w.connected(SocketAddr::new(PEER_V4, 80));
    widens(&mut w, &mut client, socket, 960);
}

#[test]
fn listen_under_a_routers_word_the_connection_becomes_wide_when_it_is_old() {
    let mut w = World::new();
    let (_, _, sent) = in_flight(&mut w, 3_000);
    w.send_frame(&about(&w, &sent[0], unreachable(4, 400)));
    w.peer.forget();
    let listener = w.listen_at(SocketAddr::new(STACK_V4, 81), 4);
    let mut client = w.client_from(PEER_V4, SocketAddr::new(STACK_V4, 81));
    w.handshake(&mut client);
    let socket = w.app.accept(listener).unwrap();
    assert_eq!(undivided(&mut w, &mut client, socket), (6, 6));
    widens(&mut w, &mut client, socket, 512);
}

#[test]
fn established_v6_packet_too_big_above_64k_changes_nothing() {
    let mut w = World::new();
    let listener = w.listen_at(SocketAddr::new(STACK_V6, 80), 4);
    let mut client = w.client_v6();
    w.handshake(&mut client);
    let socket = w.app.accept(listener).unwrap();
    w.write(socket, &[1; 4_000]);
    let sent = w.peer.take_tcp();
    let full = sent[0].payload.len();
    assert_eq!(full, 1440);
    let (IpAddr::V6(src), IpAddr::V6(dst)) = (sent[0].src, sent[0].dst) else {
        panic!("IPv6")
    };
    let quote = frames::ipv6_packet(src, dst, protocol::TCP, 64, &sent[0].segment_bytes());
    for mtu in [65_536, 65_600, u32::MAX] {
        let message = icmpv6::Message::PacketTooBig { mtu, quote: &quote };
        w.send_frame(&frames::icmp6_frame(
            w.peer.mac, STACK_MAC, PEER_V6, STACK_V6, &message,
        ));
    }
    w.silent();
    client.rcv += 4_000;
    w.send(&client.ack());
    w.write(socket, &[2; 3_000]);
    assert_eq!(w.tcp().payload.len(), full);
}

#[test]
fn established_v6_packet_too_big_lowers_the_segment_size() {
    let mut w = World::new();
    let listener = w.listen_at(SocketAddr::new(STACK_V6, 80), 4);
    let mut client = w.client_v6();
    w.handshake(&mut client);
    let socket = w.app.accept(listener).unwrap();
    w.write(socket, &[1; 4_000]);
    let sent = w.peer.take_tcp();
    let (IpAddr::V6(src), IpAddr::V6(dst)) = (sent[0].src, sent[0].dst) else {
        panic!("IPv6")
    };
    let quote = frames::ipv6_packet(src, dst, protocol::TCP, 64, &sent[0].segment_bytes());
    let message = icmpv6::Message::PacketTooBig {
        mtu: 1_300,
        quote: &quote,
    };
    w.send_frame(&frames::icmp6_frame(
        w.peer.mac, STACK_MAC, PEER_V6, STACK_V6, &message,
    ));
    let again = w.peer.take_tcp();
    assert!(again.iter().all(|s| s.payload.len() <= 1_240) && !again.is_empty());
}

#[test]
fn icmp_errors_out_are_limited() {
    let mut w = World::new();
    let frame = frames::ip_frame(
        w.peer.mac,
        STACK_MAC,
        PEER_V4,
        STACK_V4,
        protocol::UDP,
        &[0; 16],
    );
    for _ in 0..200 {
        w.send_frame(&frame);
    }
    let answered = w.peer.len();
    assert!((1..=60).contains(&answered), "{answered}");
    w.advance(SECOND);
    w.peer.forget();
    w.send_frame(&frame);
    assert_eq!(w.peer.len(), 1);
}
