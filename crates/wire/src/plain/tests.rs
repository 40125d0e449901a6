//! The plain parsers and emitters agree with the general ones, on every packet and on every
//! corrupted one.

use proptest::prelude::*;

use super::*;
use crate::ethernet::EtherType;
use crate::{checksum, tcp};
use std::vec::Vec;

fn headers() -> impl Strategy<Value = Headers> {
    let stamp = any::<Option<(u32, u32)>>();
    let ends = (
        any::<[u8; 6]>(),
        any::<[u8; 6]>(),
        any::<u32>(),
        any::<u32>(),
    );
    let ip = (any::<u8>(), any::<u8>(), 0u16..=1460);
    let numbers = (any::<u16>(), any::<u16>(), any::<u32>(), any::<u32>());
    let control = (0u16..0x200, any::<u16>(), stamp);
    (ends, ip, numbers, control).prop_map(|(ends, ip, numbers, control)| Headers {
        dst_mac: MacAddr(ends.0),
        src_mac: MacAddr(ends.1),
        src: Ipv4Addr::from_bits(ends.2),
        dst: Ipv4Addr::from_bits(ends.3),
        dscp_ecn: ip.0,
        ttl: ip.1,
        payload_len: ip.2,
        src_port: numbers.0,
        dst_port: numbers.1,
        seq: SeqNumber(numbers.2),
        ack: SeqNumber(numbers.3),
        flags: Flags(control.0),
        window: control.1,
        timestamp: control.2.map(|(value, echo)| Timestamp { value, echo }),
    })
}

/// The same headers made by the general emitters, for a payload whose sum is `payload_sum`.
fn emit_in_pieces(plain: &Headers, payload_sum: Option<u16>) -> Vec<u8> {
    let options = Options {
        timestamp: plain.timestamp,
        ..Options::NONE
    };
    emit_any_in_pieces(plain, options, payload_sum)
}

fn emit_any_in_pieces(plain: &Headers, options: Options, payload_sum: Option<u16>) -> Vec<u8> {
    let mut out = [0; SYN_BYTES];
    ethernet::Header {
        dst: plain.dst_mac,
        src: plain.src_mac,
        vlan: None,
        ethertype: EtherType::IPV4,
    }
    .emit(&mut out);
    let tcp_len = (HEADER_LEN + options.emit_len()) as u16 + plain.payload_len;
    let network = ipv4::Header {
        dscp_ecn: plain.dscp_ecn,
        total_len: tcp_len + ipv4::HEADER_LEN as u16,
        ttl: plain.ttl,
        protocol: protocol::TCP,
        src: plain.src,
        dst: plain.dst,
        ..ipv4::Header::default()
    };
    network.emit(&mut out[IP_AT..]);
    let transport = tcp::Header {
        src_port: plain.src_port,
        dst_port: plain.dst_port,
        seq: plain.seq,
        ack: plain.ack,
        flags: plain.flags,
        window: plain.window,
        options,
        ..tcp::Header::default()
    };
    let end = TCP_AT + transport.emit(&mut out[TCP_AT..]);
    let pseudo =
        checksum::pseudo_header_v4(plain.src, plain.dst, protocol::TCP, u32::from(tcp_len));
    let field = match payload_sum {
        None => pseudo.fold(),
        Some(payload_sum) => {
            let mut sum = pseudo;
            sum.add_bytes(&out[TCP_AT..end]);
            sum.combine(Sum::from_folded(payload_sum), false);
            sum.finish()
        }
    };
    let at = TCP_AT + tcp::CHECKSUM_OFFSET;
    out[at..at + 2].copy_from_slice(&field.to_be_bytes());
    out[..end].to_vec()
}

/// The result of the general parsers, if the packet is plain.
fn parse_in_pieces(head: &[u8; BYTES_MAX], frame_len: usize) -> Option<Packet> {
    let (packet, options) = parse_any_in_pieces(head, frame_len)?;
    let aligned = packet.payload_at == BYTES_MIN
        || (packet.payload_at == BYTES_MAX && be32(head, BYTES_MIN) == TIMESTAMP_ALIGNED);
    (aligned && options.is_plain()).then_some(packet)
}

/// The result of the general parsers, if the packet is a plain SYN.
fn parse_syn_in_pieces(head: &[u8; SYN_BYTES], frame_len: usize) -> Option<(Packet, SynOptions)> {
    let (packet, options) = parse_any_in_pieces(head, frame_len)?;
    let emitted = {
        let mut out = [0; crate::limits::TCP_OPTION_BYTES_MAX];
        let len = options.emit(&mut out);
        out[..len].to_vec()
    };
    let in_our_order = packet.payload_at == SYN_BYTES && emitted == head[BYTES_MIN..SYN_BYTES];
    in_our_order.then_some((packet, options.plain_syn()?))
}

fn parse_any_in_pieces(head: &[u8], frame_len: usize) -> Option<(Packet, Options)> {
    let bytes = &head[..frame_len.min(head.len())];
    let (link, at) = ethernet::Header::parse(bytes).ok()?;
    if link.ethertype != EtherType::IPV4 || link.vlan.is_some() {
        return None;
    }
    let network = ipv4::Header::parse(&bytes[at..], frame_len - at).ok()?;
    if network.is_fragment() || network.has_options() || network.protocol != protocol::TCP {
        return None;
    }
    let segment_len = network.payload_len();
    let (transport, header_len) = tcp::Header::parse(&bytes[TCP_AT..]).ok()?;
    if header_len > segment_len || bytes[TCP_AT + 12] & 0x0e != 0 {
        return None;
    }
    let (src, dst) = (network.src, network.dst);
    let pseudo = checksum::pseudo_header_v4(src, dst, protocol::TCP, segment_len as u32);
    let mut sum = pseudo;
    sum.add_bytes(&bytes[TCP_AT..TCP_AT + header_len]);
    let packet = Packet {
        dst_mac: link.dst,
        src,
        dst,
        dscp_ecn: network.dscp_ecn,
        src_port: transport.src_port,
        dst_port: transport.dst_port,
        seq: transport.seq,
        ack: transport.ack,
        flags: transport.flags,
        window: transport.window,
        urgent: transport.urgent,
        checksum: transport.checksum,
        timestamp: transport.options.timestamp,
        payload_at: TCP_AT + header_len,
        payload_len: (segment_len - header_len) as u32,
        pseudo,
        sum,
    };
    Some((packet, transport.options))
}

/// Flips bits of a frame. The IPv4 checksum detects most flips; some pass.
fn break_bits(head: &mut [u8], flips: Vec<(usize, bool)>) {
    for (bit, mend) in flips {
        head[bit / 8] ^= 1 << (bit % 8);
        if mend {
            head[IP_AT + 10..IP_AT + 12].fill(0);
            let checksum = checksum::of(&head[IP_AT..TCP_AT]).finish();
            head[IP_AT + 10..IP_AT + 12].copy_from_slice(&checksum.to_be_bytes());
        }
    }
}

proptest! {
    #[test]
    fn emitted_headers_are_those_of_the_general_emitters(
        plain in headers(),
        payload_sum in any::<Option<u16>>(),
    ) {
        let mut out = [0; BYTES_MAX];
        plain.emit(&mut out, payload_sum);
        prop_assert_eq!(&out[..plain.header_bytes()], &emit_in_pieces(&plain, payload_sum)[..]);
    }

    #[test]
    fn emitted_syns_are_those_of_the_general_emitters(
        plain in headers(),
        stamp in any::<(u32, u32)>(),
        (mss, window_scale) in any::<(u16, u8)>(),
        payload_sum in any::<Option<u16>>(),
    ) {
        let timestamp = Some(Timestamp { value: stamp.0, echo: stamp.1 });
        let plain = Headers { timestamp, ..plain };
        let options = Options {
            mss: Some(mss),
            window_scale: Some(window_scale),
            sack_permitted: true,
            timestamp,
            ..Options::NONE
        };
        let syn = options.plain_syn().unwrap();
        let mut out = [0; SYN_BYTES];
        plain.emit_syn(&mut out, syn, payload_sum);
        prop_assert_eq!(&out[..], &emit_any_in_pieces(&plain, options, payload_sum)[..]);
        let mut read = Options::NONE;
        read.reset_to_syn(timestamp, syn);
        prop_assert_eq!(read, options);
    }

    #[test]
    fn parsed_syns_are_those_of_the_general_parsers(
        plain in headers(),
        stamp in any::<(u32, u32)>(),
        (mss, window_scale) in any::<(u16, u8)>(),
        flips in proptest::collection::vec((0..SYN_BYTES * 8, any::<bool>()), 0..4),
        trimmed in 0usize..80,
    ) {
        let timestamp = Some(Timestamp { value: stamp.0, echo: stamp.1 });
        let mut head = [0; SYN_BYTES];
        let plain = Headers { timestamp, ..plain };
        plain.emit_syn(&mut head, SynOptions { mss, window_scale }, Some(0));
        break_bits(&mut head, flips);
        let whole = SYN_BYTES + usize::from(plain.payload_len) + 40;
        let frame_len = whole.saturating_sub(trimmed);
        let known = frame_len.min(SYN_BYTES);
        head[known..].fill(0);
        prop_assert_eq!(parse_syn(&head, frame_len), parse_syn_in_pieces(&head, frame_len));
    }

    #[test]
    fn expanded_acks_are_those_emitted_one_by_one(
        plain in headers(),
        points in proptest::collection::vec((any::<u32>(), 0u16..0x200, any::<u16>(), any::<u32>()), 1..6),
        offload in any::<bool>(),
    ) {
        let template = AckTemplate::new(&plain, offload);
        for (ack, flags, window, echo) in points {
            let one = Headers {
                ack: SeqNumber(ack),
                flags: Flags(flags),
                window,
                timestamp: plain.timestamp.map(|stamp| Timestamp { echo, ..stamp }),
                payload_len: 0,
                ..plain
            };
            let mut out = [0; BYTES_MAX];
            one.emit(&mut out, (!offload).then_some(0));
            let mut expanded = [0; BYTES_MAX];
            template.emit(&mut expanded, SeqNumber(ack), Flags(flags), window, echo);
            prop_assert_eq!(out, expanded);
            prop_assert_eq!(one.header_bytes(), template.header_bytes());
        }
    }

    #[test]
    fn expanded_segments_are_those_emitted_one_by_one(
        plain in headers(),
        points in proptest::collection::vec((any::<u32>(), 0u16..0x200, any::<u16>()), 1..6),
        offload in any::<bool>(),
    ) {
        let template = DataTemplate::new(&plain, offload);
        for (seq, flags, payload) in points {
            let one = Headers { seq: SeqNumber(seq), flags: Flags(flags), ..plain };
            let mut out = [0; BYTES_MAX];
            one.emit(&mut out, (!offload).then_some(payload));
            let mut expanded = [0; BYTES_MAX];
            template.emit(&mut expanded, SeqNumber(seq), Flags(flags), payload);
            prop_assert_eq!(out, expanded);
            prop_assert_eq!(one.header_bytes(), template.header_bytes());
        }
    }

    #[test]
    fn standing_headers_made_whole_are_those_emitted_alone(
        plain in headers(),
        others in proptest::collection::vec((headers(), any::<u16>()), 1..4),
        offload in any::<bool>(),
    ) {
        let mut stored = StoredHeaders::NONE;
        stored.store(&plain);
        for (other, payload) in others {
            let one = Headers {
                dst_mac: plain.dst_mac,
                src_mac: plain.src_mac,
                src: plain.src,
                dst: plain.dst,
                dscp_ecn: plain.dscp_ecn,
                ttl: plain.ttl,
                src_port: plain.src_port,
                dst_port: plain.dst_port,
                ..other
            };
            let moving = ChangingFields {
                seq: one.seq,
                ack: one.ack,
                flags: one.flags,
                window: one.window,
                timestamp: one.timestamp,
                payload_len: one.payload_len,
            };
            prop_assert_eq!(moving.header_bytes(), one.header_bytes());
            let payload = (!offload).then_some(payload);
            let (mut alone, mut whole) = ([0; BYTES_MAX], [0; BYTES_MAX]);
            one.emit(&mut alone, payload);
            stored.emit(&mut whole, &moving, payload);
            prop_assert_eq!(alone, whole);
        }
        prop_assert!(stored.fits(plain.dst_mac, plain.dscp_ecn, plain.ttl));
        prop_assert!(!stored.fits(plain.dst_mac, plain.dscp_ecn ^ 4, plain.ttl));
        prop_assert!(!stored.fits(plain.dst_mac, plain.dscp_ecn, plain.ttl ^ 1));
        let mut elsewhere = plain.dst_mac;
        elsewhere.0[5] ^= 1;
        prop_assert!(!stored.fits(elsewhere, plain.dscp_ecn, plain.ttl));
        prop_assert!(stored.is_made());
        stored.forget();
        prop_assert!(!stored.is_made());
        prop_assert!(!stored.fits(plain.dst_mac, plain.dscp_ecn, plain.ttl));
    }

    #[test]
    fn parsed_packets_are_those_of_the_general_parsers(
        plain in headers(),
        flips in proptest::collection::vec((0..BYTES_MAX * 8, any::<bool>()), 0..4),
        trimmed in 0usize..80,
    ) {
        let mut head = [0; BYTES_MAX];
        plain.emit(&mut head, Some(0));
        break_bits(&mut head, flips);
        let whole = plain.header_bytes() + usize::from(plain.payload_len) + 40;
        let frame_len = whole.saturating_sub(trimmed);
        let known = frame_len.min(BYTES_MAX);
        head[known..].fill(0);
        prop_assert_eq!(parse(&head, frame_len), parse_in_pieces(&head, frame_len));
    }
}

#[test]
fn packet_with_its_payload_sums_to_all_ones() {
    let plain = Headers {
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        src: Ipv4Addr::new(192, 0, 2, 1),
        dst: Ipv4Addr::new(192, 0, 2, 2),
        dscp_ecn: 0,
        ttl: 64,
        src_port: 4000,
        dst_port: 80,
        seq: SeqNumber(7),
        ack: SeqNumber(9),
        flags: Flags::ACK | Flags::PSH,
        window: 500,
        timestamp: Some(Timestamp { value: 1, echo: 2 }),
        payload_len: 5,
    };
    let payload = checksum::of(b"hello").fold();
    let mut head = [0; BYTES_MAX];
    plain.emit(&mut head, Some(payload));
    let packet = parse(&head, BYTES_MAX + 5).unwrap();
    assert_eq!((packet.payload_at, packet.payload_len), (BYTES_MAX, 5));
    let mut sum = packet.sum;
    sum.combine(Sum::from_folded(payload), false);
    assert!(sum.is_valid());
}

proptest! {
    #[test]
    fn what_continues_a_run_reads_as_the_parser_reads_it(
        first in headers(),
        change in (any::<u32>(), any::<u32>(), any::<bool>(), any::<u16>(), any::<(u32, u32)>(), 0u16..2_000),
        flips in proptest::collection::vec(0..BYTES_MAX * 8, 0..3),
        trimmed in 0usize..80,
    ) {
        let (seq, ack, push, window, (value, echo), payload_len) = change;
        let first = Headers { flags: first.flags.without(Flags::PSH), ..first };
        let next = Headers {
            seq: SeqNumber(seq),
            ack: SeqNumber(ack),
            flags: if push { first.flags | Flags::PSH } else { first.flags },
            window,
            timestamp: first.timestamp.map(|_| Timestamp { value, echo }),
            payload_len,
            ..first
        };
        let (mut head, mut other) = ([0; BYTES_MAX], [0; BYTES_MAX]);
        first.emit(&mut head, Some(0));
        next.emit(&mut other, Some(0));
        let bare = first.header_bytes();
        // Bytes behind a header without options are payload.
        head[bare..].fill(0xa5);
        let frame_len = (bare + usize::from(payload_len) + 40).saturating_sub(trimmed);
        let is_whole = frame_len >= bare + usize::from(payload_len);
        prop_assert_eq!(Sequel::read(&head, &other, frame_len).is_some(), is_whole);
        for flip in flips {
            other[flip / 8] ^= 1 << (flip % 8);
        }
        if let Some(sequel) = Sequel::read(&head, &other, frame_len) {
            let packet = parse(&other, frame_len).expect("plain, as the first");
            let read = Sequel {
                seq: packet.seq,
                ack: packet.ack,
                push: packet.flags.contains(Flags::PSH),
                window: packet.window,
                timestamp: packet.timestamp,
                payload_at: packet.payload_at,
                payload_len: packet.payload_len,
                sum: packet.sum.fold(),
            };
            prop_assert_eq!(sequel, read);
            prop_assert!(may_continue(&head, &other));
            prop_assert_eq!(packet.flags.without(Flags::PSH), first.flags);
            prop_assert_eq!((packet.src, packet.dst), (first.src, first.dst));
            prop_assert_eq!((packet.src_port, packet.dst_port), (first.src_port, first.dst_port));
            prop_assert_eq!((packet.dst_mac, packet.dscp_ecn), (first.dst_mac, first.dscp_ecn));
        }
    }
}
