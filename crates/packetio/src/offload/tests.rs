//! Frames as a kernel peer sends them, and what a real wire must get.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use wire::ethernet::MacAddr;
use wire::seq::SeqNumber;
use wire::tcp::{self, Flags, Options, Timestamp};

use super::*;

const TCP_HEADERS: usize = 32;

/// A frame with a TCP segment whose checksum field holds only the pseudo-header sum.
fn partial(v6: bool, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 18 + 40 + TCP_HEADERS];
    let (v4_src, v4_dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let (v6_src, v6_dst) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
    let len = TCP_HEADERS + payload.len();
    let ethernet = ethernet::Header {
        dst: MacAddr([2; 6]),
        src: MacAddr([4; 6]),
        vlan: None,
        ethertype: if v6 { EtherType::IPV6 } else { EtherType::IPV4 },
    };
    let mut at = ethernet.emit(&mut frame);
    let pseudo = if v6 {
        let ip = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_len: len as u16,
            next_header: TCP,
            hop_limit: 64,
            src: v6_src,
            dst: v6_dst,
        };
        at += ip.emit(&mut frame[at..]);
        pseudo_header_v6(v6_src, v6_dst, TCP, len as u32)
    } else {
        let ip = ipv4::Header {
            total_len: (20 + len) as u16,
            ident: 0xfffe,
            protocol: TCP,
            src: v4_src,
            dst: v4_dst,
            ..ipv4::Header::default()
        };
        at += ip.emit(&mut frame[at..]);
        pseudo_header_v4(v4_src, v4_dst, TCP, len as u32)
    };
    let header = tcp::Header {
        src_port: 1,
        dst_port: 2,
        seq: SeqNumber(u32::MAX - 1000),
        flags: Flags::ACK | Flags::PSH | Flags::FIN | Flags::CWR,
        checksum: pseudo.fold(),
        options: Options {
            timestamp: Some(Timestamp { value: 1, echo: 2 }),
            ..Options::NONE
        },
        ..tcp::Header::default()
    };
    at += header.emit(&mut frame[at..]);
    frame.truncate(at);
    frame.extend_from_slice(payload);
    frame
}

fn layout(frame: &[u8]) -> Layout {
    match Layout::of(frame) {
        Some(layout) => layout,
        None => panic!("no transport in {frame:?}"),
    }
}

fn is_valid(frame: &[u8]) -> bool {
    let layout = layout(frame);
    let mut sum = layout.pseudo(frame, layout.end - layout.at);
    sum.combine(of(&frame[layout.at..layout.end]), false);
    sum.is_valid()
}

#[test]
fn partial_checksum_is_completed_once() {
    for v6 in [false, true] {
        let mut frame = partial(v6, b"hello");
        assert!(!is_valid(&frame));
        assert!(complete_partial(&mut frame));
        assert!(is_valid(&frame));
        let whole = frame.clone();
        assert!(!complete_partial(&mut frame));
        assert_eq!(frame, whole);
    }
}

#[test]
fn partial_checksum_of_a_padded_frame_leaves_the_padding_out() {
    let mut frame = partial(false, b"x");
    frame.extend([0xff; 7]);
    assert!(complete_partial(&mut frame));
    assert!(is_valid(&frame));
}

#[test]
fn wrong_checksum_stays_wrong() {
    let mut frame = partial(false, b"hello");
    let field = layout(&frame).field();
    frame[field] ^= 1;
    let before = frame.clone();
    assert!(!complete_partial(&mut frame));
    assert_eq!(frame, before);
}

#[test]
fn what_is_no_transport_is_left_alone() {
    for mut frame in [
        vec![],
        vec![0; 13],
        vec![0; 60],
        partial(false, b"").split_off(1),
    ] {
        assert!(!complete_partial(&mut frame));
        assert!(!Segmenter::new(100).load(&frame, 100));
    }
    assert!(!complete_at(&mut [0; 10], 10, 0));
    assert!(!complete_at(&mut [0; 10], 4, 5));
    assert!(!complete_at(&mut [0; 10], usize::MAX, usize::MAX));
}

#[test]
fn super_frame_whose_data_offset_lies_within_the_header_is_refused() {
    for v6 in [false, true] {
        let mut frame = partial(v6, &[7; 100]);
        let at = layout(&frame).at + 12;
        for data_offset in 0..=4 {
            frame[at] = data_offset << 4;
            let mut segmenter = Segmenter::new(4096);
            assert!(!segmenter.load(&frame, 1), "{data_offset}");
            assert!(segmenter.is_empty());
        }
        frame[at] = 5 << 4;
        assert!(Segmenter::new(4096).load(&frame, 1));
    }
}

#[test]
fn longest_packet_of_each_family_is_cut_once() {
    for (v6, payload_max) in [(false, 65_535 - 20), (true, 65_535)] {
        let payload = vec![7; payload_max - TCP_HEADERS];
        let whole = partial(v6, &payload);
        let mut segmenter = Segmenter::new(whole.len());
        assert!(segmenter.load(&whole, usize::from(u16::MAX)));
        let mut out = vec![0; whole.len()];
        assert_eq!(segmenter.cut(&mut out), Some(whole.len()));
        assert!(is_valid(&out) && segmenter.is_empty());
    }
}

#[test]
fn super_frame_without_room_is_given_up() {
    let mut segmenter = Segmenter::new(4096);
    assert!(segmenter.load(&partial(false, &[7; 1000]), 400));
    assert_eq!(segmenter.cut(&mut [0; 100]), None);
    assert!(segmenter.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 128 }) })]

    #[test]
    fn super_frame_is_cut_into_whole_segments(
        payload in prop::collection::vec(any::<u8>(), 1..5000), segment in 1usize..2000, v6: bool,
    ) {
        let whole = partial(v6, &payload);
        let mut segmenter = Segmenter::new(8192);
        prop_assert!(segmenter.load(&whole, segment));
        let mut out = vec![0; 4096];
        let (mut got, mut index) = (Vec::new(), 0);
        while let Some(len) = segmenter.cut(&mut out) {
            let frame = &out[..len];
            prop_assert!(is_valid(frame));
            let layout = layout(frame);
            prop_assert_eq!(layout.end, len);
            let (tcp, skip) = tcp::Header::parse(&frame[layout.at..]).map_err(|e| TestCaseError::fail(format!("{e:?}")))?;
            prop_assert_eq!(tcp.seq, SeqNumber(u32::MAX - 1000) + got.len() as u32);
            prop_assert_eq!(tcp.flags.contains(Flags::CWR), index == 0);
            prop_assert_eq!(tcp.flags.contains(Flags::FIN | Flags::PSH), segmenter.is_empty());
            prop_assert!(tcp.flags.contains(Flags::ACK));
            if !v6 {
                prop_assert_eq!(get16(frame, layout.ip_at + 4), 0xfffe_u16.wrapping_add(index));
            }
            got.extend_from_slice(&frame[layout.at + skip..]);
            index += 1;
        }
        prop_assert_eq!(got, payload);
    }

    #[test]
    fn any_bytes_do_no_harm(mut bytes in prop::collection::vec(any::<u8>(), 0..200), segment in 0usize..100) {
        complete_partial(&mut bytes);
        let mut segmenter = Segmenter::new(256);
        if segmenter.load(&bytes, segment) {
            let mut out = [0; 256];
            while segmenter.cut(&mut out).is_some() {}
        }
    }

    #[test]
    fn any_bytes_within_a_frame_do_no_harm(
        v6: bool, payload in 0usize..200, changes in prop::collection::vec((14usize..100, any::<u8>()), 1..6), segment in 0usize..100,
    ) {
        let mut frame = partial(v6, &vec![7; payload]);
        for (at, byte) in changes {
            frame.get_mut(at).into_iter().for_each(|place| *place = byte);
        }
        let mut segmenter = Segmenter::new(512);
        if segmenter.load(&frame, segment) {
            let mut out = [0; 512];
            while segmenter.cut(&mut out).is_some() {}
        }
        complete_partial(&mut frame);
    }
}
