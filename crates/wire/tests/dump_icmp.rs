//! Echo and ICMP errors as a Linux host or router sends them.

mod dump;

use dump::{Dissected, dissect, dump};
use std::net::IpAddr;
use wire::quote::Quote;
use wire::{Addr, SeqNumber, WireError, icmpv4, icmpv6, protocol};

fn addr(text: &str) -> Addr {
    text.parse::<IpAddr>().unwrap().into()
}

/// Parses the ICMP message of a frame, and checks that emitting it gives the same bytes.
fn icmpv4_of(packet: &Dissected) -> icmpv4::Message<'_> {
    assert_eq!(packet.protocol, protocol::ICMP);
    let message = icmpv4::Message::parse(&packet.payload).unwrap();
    let mut again = vec![0u8; packet.payload.len()];
    assert_eq!(message.emit(&mut again), again.len());
    assert_eq!(again, packet.payload);
    message
}

/// Parses the ICMPv6 message of a frame, and checks that emitting it gives the same bytes.
fn icmpv6_of(packet: &Dissected) -> icmpv6::Message<'_> {
    assert_eq!(packet.protocol, protocol::ICMPV6);
    let (src, dst) = (packet.src.to_v6(), packet.dst.to_v6());
    let message = icmpv6::Message::parse(&packet.payload, src, dst, packet.hop_limit).unwrap();
    let mut again = vec![0u8; packet.payload.len()];
    assert_eq!(message.emit(&mut again, src, dst), again.len());
    assert_eq!(again, packet.payload);
    message
}

#[test]
fn ping_and_its_answer() {
    let ping = dissect(&dump(
        "
        02 00 00 00 00 02 02 00 00 00 00 01 08 00       ; ethernet
        45 00 00 24 5b c1 40 00 40 01 5b 14 c0 00 02 01 ; ipv4
        c0 00 02 02
        08 00 54 35 12 34 00 01                         ; icmp
        61 62 63 64 65 66 67 68                         ; data
        ",
    ));
    let pong = dissect(&dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 08 00       ; ethernet
        45 00 00 24 ce 9d 00 00 40 01 28 38 c0 00 02 02 ; ipv4
        c0 00 02 01
        00 00 5c 35 12 34 00 01                         ; icmp
        61 62 63 64 65 66 67 68                         ; data
        ",
    ));
    let icmpv4::Message::EchoRequest { ident, seq, data } = icmpv4_of(&ping) else {
        panic!("not an echo request");
    };
    assert_eq!((ident, seq, data), (0x1234, 1, &b"abcdefgh"[..]));
    let answer = icmpv4::Message::EchoReply { ident, seq, data };
    assert_eq!(icmpv4_of(&pong), answer);
}

#[test]
fn ping_and_its_answer_over_ipv6() {
    let ping = dissect(&dump(
        "
        02 00 00 00 00 02 02 00 00 00 00 01 86 dd       ; ethernet
        60 0e c3 fd 00 10 3a 40                         ; ipv6
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 01 ;   source
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 02 ;   destination
        80 00 80 75 12 34 00 01                         ; icmpv6
        61 62 63 64 65 66 67 68                         ; data
        ",
    ));
    let pong = dissect(&dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 86 dd       ; ethernet
        60 0c 2f 24 00 10 3a 40                         ; ipv6
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 02 ;   source
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 01 ;   destination
        81 00 7f 75 12 34 00 01                         ; icmpv6
        61 62 63 64 65 66 67 68                         ; data
        ",
    ));
    let icmpv6::Message::EchoRequest { ident, seq, data } = icmpv6_of(&ping) else {
        panic!("not an echo request");
    };
    assert_eq!((ident, seq, data), (0x1234, 1, &b"abcdefgh"[..]));
    let answer = icmpv6::Message::EchoReply { ident, seq, data };
    assert_eq!(icmpv6_of(&pong), answer);
}

#[test]
fn unreachable_host_names_the_flow() {
    let packet = dissect(&dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 08 00       ; ethernet
        45 c0 00 58 ce 35 00 00 40 01 27 ac c0 00 02 02 ; ipv4
        c0 00 02 01
        03 01 ea 2a 00 00 00 00                         ; icmp
        45 00 00 3c d6 0b 40 00 40 06 77 b3 c0 00 02 01 ;   quoted ip
        c6 33 64 c8
        b0 aa 00 50 b7 c2 84 cb 00 00 00 00 a0 02 fa f0 ;   quoted transport
        09 70 00 00 02 04 05 b4 04 02 08 0a e1 f9 87 1c
        00 00 00 00 01 03 03 0a
        ",
    ));
    let icmpv4::Message::DestinationUnreachable { code, quote, .. } = icmpv4_of(&packet) else {
        panic!("not an error");
    };
    assert_eq!(code, icmpv4::unreachable::HOST);
    let quote = Quote::parse_v4(quote).unwrap();
    assert_eq!(quote.flow.local, addr("192.0.2.1"));
    assert_eq!(quote.flow.remote, addr("198.51.100.200"));
    assert_eq!((quote.flow.local_port, quote.flow.remote_port), (45226, 80));
    assert_eq!(quote.seq, SeqNumber(0xb7c2_84cb));
}

#[test]
fn unreachable_address_names_the_flow() {
    let packet = dissect(&dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 86 dd       ; ethernet
        60 0c 5c ec 00 58 3a 40                         ; ipv6
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 02 ;   source
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 01 ;   destination
        01 00 49 23 00 00 00 00                         ; icmpv6
        60 06 f3 94 00 28 06 40 20 01 0d b8 00 00 00 00 ;   quoted ip
        00 00 00 00 00 00 00 01 20 01 0d b8 00 01 00 02
        00 00 00 00 00 00 00 05
        a9 32 00 50 2c 76 68 83 00 00 00 00 a0 02 fd 20 ;   quoted transport
        41 f1 00 00 02 04 05 a0 04 02 08 0a 9c 13 d2 f4
        00 00 00 00 01 03 03 0a
        ",
    ));
    let icmpv6::Message::DestinationUnreachable { code, quote } = icmpv6_of(&packet) else {
        panic!("not an error");
    };
    assert_eq!(code, icmpv6::unreachable::NO_ROUTE);
    let quote = Quote::parse_v6(quote).unwrap();
    assert_eq!(quote.flow.local, addr("2001:db8::1"));
    assert_eq!(quote.flow.remote, addr("2001:db8:1:2::5"));
    assert_eq!((quote.flow.local_port, quote.flow.remote_port), (43314, 80));
    assert_eq!(quote.seq, SeqNumber(0x2c76_6883));
}

#[test]
fn unreachable_network_names_the_flow() {
    let packet = dissect(&dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 08 00       ; ethernet
        45 c0 00 58 cd 8c 00 00 40 01 28 55 c0 00 02 02 ; ipv4
        c0 00 02 01
        03 00 e9 b0 00 00 00 00                         ; icmp
        45 00 00 3c 60 56 40 00 01 06 2c e4 c0 00 02 01 ;   quoted ip
        c6 33 64 4d
        e6 f2 00 50 54 56 04 4d 00 00 00 00 a0 02 fa f0 ;   quoted transport
        8f 6d 00 00 02 04 05 b4 04 02 08 0a cb 6c c5 c9
        00 00 00 00 01 03 03 0a
        ",
    ));
    let icmpv4::Message::DestinationUnreachable { code, quote, .. } = icmpv4_of(&packet) else {
        panic!("not an error");
    };
    assert_eq!(code, icmpv4::unreachable::NET);
    let quote = Quote::parse_v4(quote).unwrap();
    assert_eq!(
        (quote.flow.remote, quote.flow.local_port),
        (addr("198.51.100.77"), 59122)
    );
}

#[test]
fn expired_packet_names_the_flow() {
    let packet = dissect(&dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 08 00       ; ethernet
        45 c0 00 58 ce 00 00 00 40 01 27 e1 c0 00 02 02 ; ipv4
        c0 00 02 01
        0b 00 e1 b0 00 00 00 00                         ; icmp
        45 00 00 3c cd 0e 40 00 01 06 c0 2b c0 00 02 01 ;   quoted ip
        c6 33 64 4d
        e2 d0 00 50 5e f9 89 f6 00 00 00 00 a0 02 fa f0 ;   quoted transport
        6b 03 00 00 02 04 05 b4 04 02 08 0a b1 e1 77 94
        00 00 00 00 01 03 03 0a
        ",
    ));
    let icmpv4::Message::TimeExceeded { code: 0, quote } = icmpv4_of(&packet) else {
        panic!("not an error");
    };
    let quote = Quote::parse_v4(quote).unwrap();
    assert_eq!(
        (quote.flow.remote, quote.flow.local_port),
        (addr("198.51.100.77"), 58064)
    );
}

#[test]
fn expired_packet_names_the_flow_over_ipv6() {
    let packet = dissect(&dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 86 dd       ; ethernet
        60 00 74 b7 00 58 3a 40                         ; ipv6
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 02 ;   source
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 01 ;   destination
        03 00 ed 66 00 00 00 00                         ; icmpv6
        60 07 4d 8f 00 28 06 01 20 01 0d b8 00 00 00 00 ;   quoted ip
        00 00 00 00 00 00 00 01 20 01 0d b8 00 01 00 00
        00 00 00 00 00 00 00 77
        8a 88 01 bb 6e f9 9b 0b 00 00 00 00 a0 02 fd 20 ;   quoted transport
        78 d1 00 00 02 04 05 a0 04 02 08 0a cf 14 10 d7
        00 00 00 00 01 03 03 0a
        ",
    ));
    let icmpv6::Message::TimeExceeded { code: 0, quote } = icmpv6_of(&packet) else {
        panic!("not an error");
    };
    let quote = Quote::parse_v6(quote).unwrap();
    assert_eq!(
        (quote.flow.remote, quote.flow.remote_port),
        (addr("2001:db8:1::77"), 443)
    );
}

#[test]
fn unreachable_udp_port_is_not_ours() {
    let packet = dissect(&dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 08 00       ; ethernet
        45 c0 00 3b cd 36 00 00 40 01 28 c8 c0 00 02 02 ; ipv4
        c0 00 02 01
        03 03 81 1d 00 00 00 00                         ; icmp
        45 00 00 1f f9 fa 40 00 40 11 bc cf c0 00 02 01 ;   quoted ip
        c0 00 02 02
        cd cb 00 09 00 0b e9 9c 61 62 63                ;   quoted transport
        ",
    ));
    let icmpv4::Message::DestinationUnreachable { code, quote, .. } = icmpv4_of(&packet) else {
        panic!("not an error");
    };
    assert_eq!(code, icmpv4::unreachable::PORT);
    assert_eq!(Quote::parse_v4(quote), Err(WireError::Unsupported));
}

#[test]
fn unreachable_udp_port_is_not_ours_over_ipv6() {
    let packet = dissect(&dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 86 dd       ; ethernet
        60 0e 39 7a 00 3b 3a 40                         ; ipv6
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 02 ;   source
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 01 ;   destination
        01 04 61 bc 00 00 00 00                         ; icmpv6
        60 01 d0 24 00 0b 11 40 20 01 0d b8 00 00 00 00 ;   quoted ip
        00 00 00 00 00 00 00 01 20 01 0d b8 00 00 00 00
        00 00 00 00 00 00 00 02
        ca 65 00 09 00 0b 15 92 61 62 63                ;   quoted transport
        ",
    ));
    let icmpv6::Message::DestinationUnreachable { code, quote } = icmpv6_of(&packet) else {
        panic!("not an error");
    };
    assert_eq!(code, icmpv6::unreachable::PORT);
    assert_eq!(Quote::parse_v6(quote), Err(WireError::Unsupported));
}

#[test]
fn fragmentation_needed_tells_the_mtu() {
    let mut frame = dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 08 00       ; ethernet
        45 c0 02 40 2f 17 00 00 40 01 c4 e2 c0 00 02 02 ; ipv4
        c0 00 02 01
        03 04 d8 c3 00 00 05 78                         ; icmp
        45 00 05 dc 12 34 40 00 40 06 36 66 c0 00 02 01 ;   quoted ip
        c6 33 64 4d
        9c 40 00 50 11 22 33 44 55 66 77 88 50 10 01 f6 ;   quoted transport
        90 45 00 00
        ",
    );
    frame.resize(590, b'q'); // the quoted segment's data
    let packet = dissect(&frame);
    let message = icmpv4_of(&packet);
    let icmpv4::Message::DestinationUnreachable {
        code,
        next_hop_mtu,
        quote,
    } = message
    else {
        panic!("not an error");
    };
    assert_eq!(code, icmpv4::unreachable::FRAGMENTATION_NEEDED);
    assert_eq!((next_hop_mtu, quote.len()), (1400, icmpv4::QUOTE_LEN_MAX));
    let quote = Quote::parse_v4(quote).unwrap();
    assert_eq!((quote.flow.local_port, quote.flow.remote_port), (40000, 80));
    assert_eq!(quote.seq, SeqNumber(0x1122_3344));
}

#[test]
fn packet_too_big_tells_the_mtu() {
    let mut frame = dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 86 dd       ; ethernet
        60 0b ea f1 04 d8 3a 40                         ; ipv6
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 02 ;   source
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 01 ;   destination
        02 00 6f e1 00 00 05 78                         ; icmpv6
        60 01 23 45 05 b4 06 40 20 01 0d b8 00 00 00 00 ;   quoted ip
        00 00 00 00 00 00 00 01 20 01 0d b8 00 01 00 00
        00 00 00 00 00 00 00 77
        9c 40 00 50 11 22 33 44 55 66 77 88 50 10 01 f6 ;   quoted transport
        8f 5f 00 00
        ",
    );
    frame.resize(1294, b'q'); // the quoted segment's data
    let packet = dissect(&frame);
    let icmpv6::Message::PacketTooBig { mtu, quote } = icmpv6_of(&packet) else {
        panic!("not an error");
    };
    assert_eq!((mtu, quote.len()), (1400, icmpv6::QUOTE_LEN_MAX));
    let quote = Quote::parse_v6(quote).unwrap();
    assert_eq!(quote.flow.remote, addr("2001:db8:1::77"));
    assert_eq!(quote.seq, SeqNumber(0x1122_3344));
}

#[test]
fn error_with_a_flipped_bit_is_refused() {
    let mut frame = dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 08 00       ; ethernet
        45 c0 00 58 ce 35 00 00 40 01 27 ac c0 00 02 02 ; ipv4
        c0 00 02 01
        03 01 ea 2a 00 00 00 00                         ; icmp
        45 00 00 3c d6 0b 40 00 40 06 77 b3 c0 00 02 01 ;   quoted ip
        c6 33 64 c8
        b0 aa 00 50 b7 c2 84 cb 00 00 00 00 a0 02 fa f0 ;   quoted transport
        09 70 00 00 02 04 05 b4 04 02 08 0a e1 f9 87 1c
        00 00 00 00 01 03 03 0a
        ",
    );
    frame[80] ^= 1;
    let packet = dissect(&frame);
    let parsed = icmpv4::Message::parse(&packet.payload);
    assert_eq!(parsed, Err(WireError::BadChecksum));
}
