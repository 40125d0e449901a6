//! Long frames are cut into frames that the link could have carried; frames that are not complete
//! TCP are dropped.

use std::net::{Ipv4Addr, Ipv6Addr};

use wire::SeqNumber;

use super::*;

const MTU: usize = 1500;
const PART: usize = 1792;

/// A TCP frame with `data` bytes of payload, each the low byte of its offset. The checksum is not
/// filled in.
fn tcp_frame(v6: bool, data: usize) -> Vec<u8> {
    let tcp = tcp::Header {
        seq: SeqNumber(7_000),
        flags: tcp::Flags::ACK | tcp::Flags::PSH,
        ..tcp::Header::default()
    };
    let mut segment = vec![0; 20 + data];
    tcp.emit(&mut segment);
    for (i, byte) in segment[20..].iter_mut().enumerate() {
        *byte = i as u8;
    }
    let mut frame = vec![0; 14];
    let mut link = ethernet::Header::default();
    if v6 {
        link.ethertype = EtherType::IPV6;
        let ip = ipv6::Header {
            payload_len: segment.len() as u16,
            next_header: protocol::TCP,
            src: Ipv6Addr::LOCALHOST,
            dst: Ipv6Addr::LOCALHOST,
            ..ipv6::Header::default()
        };
        frame.resize(14 + 40, 0);
        ip.emit(&mut frame[14..]);
    } else {
        link.ethertype = EtherType::IPV4;
        let ip = ipv4::Header {
            total_len: (20 + segment.len()) as u16,
            protocol: protocol::TCP,
            src: Ipv4Addr::LOCALHOST,
            dst: Ipv4Addr::LOCALHOST,
            ..ipv4::Header::default()
        };
        frame.resize(14 + 20, 0);
        ip.emit(&mut frame[14..]);
    }
    link.emit(&mut frame);
    frame.extend(segment);
    frame
}

/// Passes `frame` in parts, as the kernel does.
fn assemble(long: &mut LongFrames, frame: &[u8]) -> Assembled {
    let mut parts = RxBatch::new(64);
    let count = frame.len().div_ceil(PART).max(1);
    for (mut buf, part) in carve(count, PART).into_iter().zip(frame.chunks(PART)) {
        assert!(buf.copy_bytes(part));
        parts.push(buf);
    }
    let (last, first) = parts.frames().split_last().unwrap();
    for part in first {
        long.push(Some(part));
        assert!(long.is_assembling());
    }
    let outcome = long.finish(Some(last));
    assert!(!long.is_assembling());
    outcome
}

fn pieces(long: &mut LongFrames) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    while long.is_ready() {
        for piece in long.lend() {
            let mut bytes = vec![0; piece.len()];
            piece.copy_to(0, &mut bytes);
            pieces.push(bytes);
        }
        long.release();
    }
    pieces
}

#[test]
fn long_tcp_frames_become_frames_of_the_links_size() {
    let mut long = LongFrames::new(MTU);
    for (v6, data) in [
        (false, 4_000),
        (true, 4_000),
        (false, 65_000),
        (true, 65_000),
    ] {
        let headers = if v6 { 14 + 40 + 20 } else { 14 + 20 + 20 };
        assert_eq!(assemble(&mut long, &tcp_frame(v6, data)), Assembled::Cut);
        let pieces = pieces(&mut long);
        let segment = MTU + 14 - headers;
        assert_eq!(pieces.len(), data.div_ceil(segment));
        let mut next = 0usize;
        for piece in &pieces {
            assert!(piece.len() <= MTU + 14);
            let (tcp, _) = tcp::Header::parse(&piece[headers - 20..]).unwrap();
            assert_eq!(tcp.seq, SeqNumber(7_000 + next as u32));
            for byte in &piece[headers..] {
                assert_eq!(*byte, next as u8);
                next += 1;
            }
            assert_eq!(tcp.flags.contains(tcp::Flags::PSH), next == data);
        }
        assert_eq!(next, data);
    }
}

#[test]
fn what_is_not_whole_tcp_comes_to_nothing() {
    let mut long = LongFrames::new(MTU);
    let good = tcp_frame(false, 4_000);
    let mut udp = good.clone();
    udp[14 + 9] = 17; // and so a wrong header checksum
    let cut = good[..good.len() - 1].to_vec();
    let mut too_long = good.clone();
    too_long.resize(SUPER_FRAME_BYTES_MAX + 1, 0);
    for bad in [udp, cut, too_long, vec![0; 4_000], vec![0xff; 60]] {
        assert_eq!(assemble(&mut long, &bad), Assembled::Dropped);
        assert!(!long.is_ready());
        assert!(long.lend().is_empty());
    }
    long.push(None);
    assert_eq!(assemble(&mut long, &good), Assembled::Dropped);
    assert_eq!(assemble(&mut long, &good), Assembled::Cut);
    assert_eq!(pieces(&mut long).len(), 3);
}
