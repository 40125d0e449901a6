//! Packets that are built and parsed again.

use super::{Content, Datagram, Segment};
use crate::ast::flag;

fn segment() -> Segment {
    Segment {
        src_port: 1,
        dst_port: 2,
        seq: 3,
        ack: 4,
        flags: flag::PSH | flag::ACK | flag::AE | flag::ECE,
        window: 5,
        urgent: 6,
        options: vec![1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 8],
        payload: vec![9; 11],
        ..Segment::default()
    }
}

fn datagram(src: &str, dst: &str, body: Content) -> Datagram {
    Datagram {
        src: src.parse().expect("address"),
        dst: dst.parse().expect("address"),
        tos: 3,
        ttl: 64,
        flow_label: 0,
        body,
    }
}

#[test]
fn what_was_put_together_comes_apart_the_same() {
    for (src, dst) in [("192.0.2.1", "192.168.0.1"), ("2001:db8::1", "fd3d::1")] {
        for body in [Content::Tcp(segment()), Content::Udp(vec![0; 8])] {
            let sent = datagram(src, dst, body);
            assert_eq!(Datagram::parse(&sent.emit()), Ok(sent));
        }
    }
}

#[test]
fn a_flipped_bit_is_found() {
    let sent = datagram("192.0.2.1", "192.168.0.1", Content::Tcp(segment())).emit();
    for at in [8, 25, sent.len() - 1] {
        let mut bad = sent.clone();
        bad[at] ^= 1;
        assert!(Datagram::parse(&bad).is_err(), "byte {at}");
    }
    assert!(Datagram::parse(&sent[..sent.len() - 1]).is_err());
    assert!(Datagram::parse(&[]).is_err());
}

#[test]
fn it_reads_as_scripts_write_it() {
    assert_eq!(
        segment().display(false, true),
        "P.EA 3:14(11) ack 4 win 5 urg 6 <nop,nop,TS val 7 ecr 8>"
    );
    assert_eq!(
        segment().display(true, false),
        "P.5 3:14(11) ack 4 urg 6 <nop,nop,TS val 7 ecr 8>"
    );
    assert_eq!(Segment::default().display(false, false), "- 0:0(0)");
}
