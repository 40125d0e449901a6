//! The header in both directions, with super-frames cut by `offload`.

use super::*;
use crate::buffer_unsafe::carve;
use wire::checksum::pseudo_header_v4;

const PAYLOAD_AT: usize = 54;

/// A TCP frame over IPv4 whose checksum field holds only the pseudo-header sum.
fn large_frame(payload: usize) -> Vec<u8> {
    let mut frame = vec![0; PAYLOAD_AT + payload];
    frame[12..14].copy_from_slice(&[8, 0]);
    let ip = wire::ipv4::Header {
        dscp_ecn: 0,
        total_len: (40 + payload) as u16,
        ident: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: 6,
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
        header_len: 20,
    };
    ip.emit(&mut frame[14..]);
    frame[46] = 0x50;
    let pseudo = pseudo_header_v4(ip.src, ip.dst, 6, (20 + payload) as u32).fold();
    frame[50..52].copy_from_slice(&pseudo.to_be_bytes());
    (0..payload).for_each(|i| frame[PAYLOAD_AT + i] = i as u8);
    frame
}

fn buffer(frame: &[u8]) -> FrameBuf {
    let mut buf = carve(1, SUPER_FRAME_BYTES_MAX).remove(0);
    assert!(buf.copy_bytes(frame));
    buf
}

/// A kernel peer's header with a segment size.
fn header(gso_type: u8, size: u16) -> [u8; VIRTIO_HEADER_LEN] {
    let mut buf = buffer(&large_frame(3_000));
    buf.offload = Some((34, 16));
    buf.segment_bytes = size;
    let mut header = header_of(&buf);
    header[1] = gso_type;
    header
}

#[test]
fn frame_to_be_cut_says_size_and_headers() {
    let mut buf = buffer(&large_frame(3_000));
    assert_eq!(header_of(&buf), NOTHING_TO_DO);
    buf.offload = Some((34, 16));
    let todo = Todo::parse(&header_of(&buf));
    assert!(todo.needs_checksum && todo.gso_type == GSO_NONE);
    buf.segment_bytes = 1_448;
    let header = header_of(&buf);
    let todo = Todo::parse(&header);
    assert!(todo.is_merged_tcp() && todo.gso_type == GSO_TCP_V4);
    assert_eq!((todo.gso_size, todo.checksum_start), (1_448, 34));
    assert_eq!(u16::from_ne_bytes([header[2], header[3]]), 54);
}

#[test]
fn merged_frame_for_a_caller_who_takes_it_stays_whole() {
    let mut unpacker = Unpacker::new(1_536);
    unpacker.merges = true;
    let mut buf = buffer(&large_frame(3_000));
    let read = unpacker.unpack(&header(GSO_TCP_V4, 1_448), &mut buf);
    assert_eq!(read, Read::Frame);
    assert_eq!((buf.len(), buf.segment_bytes), (3_054, 1_448));
    assert_eq!(buf.checksum, RxChecksum::Verified);
    assert_eq!(unpacker.merged, 1);
}

#[test]
fn merged_frame_for_any_other_caller_is_cut() {
    let mut unpacker = Unpacker::new(1_536);
    let mut buf = buffer(&large_frame(3_000));
    let mut lens = Vec::new();
    let mut read = unpacker.unpack(&header(GSO_TCP_V4, 1_448), &mut buf);
    loop {
        assert_eq!((read, buf.segment_bytes), (Read::Frame, 0));
        lens.push(buf.len());
        if !unpacker.holds_frames() {
            break;
        }
        read = unpacker.next_segment(&mut buf);
    }
    assert_eq!(lens, [1_502, 1_502, 158]);
}

#[test]
fn merged_frame_that_contradicts_its_ip_header_is_not_lent_whole() {
    let mut unpacker = Unpacker::new(1_536);
    unpacker.merges = true;
    let mut frame = large_frame(3_000);
    frame.extend_from_slice(&[0; 10]);
    let mut buf = buffer(&frame);
    let read = unpacker.unpack(&header(GSO_TCP_V4, 1_448), &mut buf);
    assert_eq!(
        (read, buf.segment_bytes, buf.len()),
        (Read::Frame, 0, 1_502)
    );
    let mut short = buffer(&large_frame(0)[..20]);
    let read = unpacker.unpack(&header(GSO_TCP_V4, 1_448), &mut short);
    assert_eq!((read, unpacker.bad_offload), (Read::Dropped, 1));
}

#[test]
fn merged_datagrams_are_cut_for_every_caller() {
    let mut unpacker = Unpacker::new(1_536);
    unpacker.merges = true;
    let mut buf = buffer(&large_frame(3_000));
    let read = unpacker.unpack(&header(5, 1_448), &mut buf);
    assert_eq!((read, buf.segment_bytes), (Read::Frame, 0));
}

#[test]
fn unfinished_checksum_is_finished_only_for_a_caller_who_needs_it() {
    let frame = large_frame(100);
    for merges in [false, true] {
        let mut unpacker = Unpacker::new(1_536);
        unpacker.merges = merges;
        let mut buf = buffer(&frame);
        assert_eq!(unpacker.unpack(&header(GSO_NONE, 0), &mut buf), Read::Frame);
        assert_eq!(buf.checksum, RxChecksum::Verified);
        assert_eq!(buf.bytes() == frame, merges);
    }
}

#[test]
fn frame_longer_than_the_mtu_that_nobody_merged_is_dropped() {
    let mut unpacker = Unpacker::new(1_536);
    let mut buf = buffer(&large_frame(3_000));
    assert_eq!(unpacker.unpack(&NOTHING_TO_DO, &mut buf), Read::Dropped);
    assert_eq!(unpacker.too_long, 1);
}
