//! Frames that are built, sent over a wire of this process and parsed back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packetio::Port;
use ring::raw::RawSlice;
use tcp::SegmentOut;
use wire::tcp::{Flags, Options, Timestamp};
use wire::{Addr, SeqNumber};

use wire::ethernet::MacAddr;

use super::*;
use crate::header_fields::{DontFragment, HeaderFields};

const ENDS: LinkEnds = LinkEnds {
    source: MacAddr([2, 0, 0, 0, 0, 1]),
    destination: MacAddr([2, 0, 0, 0, 0, 2]),
    header: HeaderFields {
        dscp: 0,
        hop_limit: 64,
        discovers_mtu: true,
        dont_fragment: DontFragment::OnBelievablePaths,
        retransmits_for_mtu: true,
        heeds_mtu_v6: true,
        ident: 0,
        too_narrow_until: 0,
    },
};
const PAYLOAD: &[u8] = b"GET / HTTP/1.1\r\n\r";

fn key(local: IpAddr, remote: IpAddr) -> FlowKey {
    FlowKey {
        local: Addr::from(local),
        remote: Addr::from(remote),
        local_port: 40_000,
        remote_port: 80,
    }
}

fn segment(payload_len: u32) -> SegmentOut {
    SegmentOut {
        seq: SeqNumber(7),
        ack: SeqNumber(9),
        flags: Flags::ACK | Flags::PSH,
        window: 512,
        options: Options {
            timestamp: Some(Timestamp { value: 1, echo: 2 }),
            ..Options::default()
        },
        payload_offset: 0,
        payload_len,
        ecn: Ecn::Ect0,
        urgent: 0,
    }
}

/// The bytes that arrive at the other end of a wire when `segment` is sent.
fn sent(key: &FlowKey, segment: &SegmentOut) -> Vec<u8> {
    let (mut here, mut there) = packetio::loopback::pair(&Default::default()).expect("loopback");
    let frames = here.reserve(1);
    let copy = |mut place: RawSliceMut<'_>| {
        place.write(0, PAYLOAD);
        ring::checksum::sum_raw(RawSlice::from(PAYLOAD))
    };
    assert!(build_segment(&frames[0], &ENDS, key, segment, false, copy));
    here.send(1).expect("sent");
    let frames = there.receive().expect("received");
    let mut bytes = vec![0; frames[0].len()];
    frames[0].copy_to(0, &mut bytes);
    bytes
}

fn check(key: &FlowKey, network_len: usize) {
    let segment = segment(PAYLOAD.len() as u32);
    let bytes = sent(key, &segment);
    let (ethernet, at) = ethernet::Header::parse(&bytes).unwrap();
    assert_eq!(
        (ethernet.src, ethernet.dst),
        (ENDS.source, ENDS.destination)
    );
    let transport = &bytes[at + network_len..];
    let (header, header_len) = TcpHeader::parse(transport).unwrap();
    assert_eq!(
        (header.src_port, header.dst_port, header.seq, header.ack),
        (40_000, 80, segment.seq, segment.ack)
    );
    assert_eq!(
        (header.flags, header.window, header.options),
        (segment.flags, segment.window, segment.options)
    );
    assert_eq!(&transport[header_len..], PAYLOAD);
    let mut sum =
        checksum::pseudo_header(key.local, key.remote, protocol::TCP, transport.len() as u32);
    sum.add_bytes(transport);
    assert!(
        sum.is_valid(),
        "the checksum covers headers and an odd payload"
    );
}

#[test]
fn segment_over_ipv4_parses_back_and_its_checksum_holds() {
    let key = key(
        Ipv4Addr::new(10, 0, 0, 1).into(),
        Ipv4Addr::new(10, 0, 0, 2).into(),
    );
    check(&key, ipv4::HEADER_LEN);
    let bytes = sent(&key, &segment(0));
    let header = ipv4::Header::parse(
        &bytes[ethernet::HEADER_LEN..],
        bytes.len() - ethernet::HEADER_LEN,
    )
    .expect("a header");
    assert_eq!(header.dscp_ecn, 2);
}

#[test]
fn segment_over_ipv6_parses_back_and_its_checksum_holds() {
    let key = key(
        Ipv6Addr::LOCALHOST.into(),
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).into(),
    );
    check(&key, ipv6::HEADER_LEN);
    let bytes = sent(&key, &segment(0));
    let header = ipv6::Header::parse(
        &bytes[ethernet::HEADER_LEN..],
        bytes.len() - ethernet::HEADER_LEN,
    )
    .expect("a header");
    assert_eq!(header.traffic_class, 2);
}

#[test]
fn bare_segment_is_the_same_in_a_buffer_and_in_a_frame() {
    let key = key(
        Ipv4Addr::new(10, 0, 0, 1).into(),
        Ipv4Addr::new(10, 0, 0, 2).into(),
    );
    let mut buffer = [0; HEADER_BYTES_MAX];
    // A bare segment leaves its payload out.
    for len in [0, 100] {
        let len = build_bare(&mut buffer, &ENDS, &key, &segment(len));
        assert_eq!(&buffer[..len], sent(&key, &segment(0)));
    }
}
