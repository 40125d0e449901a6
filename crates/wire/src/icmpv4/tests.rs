//! ICMP messages emitted and parsed.

use super::*;
use std::vec;

#[test]
fn broken_checksum_is_noticed() {
    let mut out = [0u8; 12];
    let ping = Message::EchoRequest {
        ident: 1,
        seq: 2,
        data: b"data",
    };
    assert_eq!((ping.emit(&mut out), ping.emit_len()), (12, 12));
    assert_eq!(Message::parse(&out), Ok(ping));
    out[9] ^= 1;
    assert_eq!(Message::parse(&out), Err(WireError::BadChecksum));
    assert_eq!(Message::parse(&out[..7]), Err(WireError::Truncated));
}

#[test]
fn quote_is_cut_so_that_the_packet_stays_within_576_bytes() {
    let packet = vec![0x45; 1500];
    let error = Message::DestinationUnreachable {
        code: unreachable::PORT,
        next_hop_mtu: 0,
        quote: &packet,
    };
    assert_eq!(error.emit_len() + ipv4::HEADER_LEN, 576);
    let mut out = [0u8; 576];
    let len = error.emit(&mut out);
    let cut = &packet[..QUOTE_LEN_MAX];
    assert_eq!(
        Message::parse(&out[..len]),
        Ok(Message::DestinationUnreachable {
            code: 3,
            next_hop_mtu: 0,
            quote: cut
        })
    );
}

#[test]
fn echo_is_not_cut() {
    let data = vec![7; 1472];
    let mut out = vec![0; 1480];
    assert_eq!(
        Message::EchoReply {
            ident: 0,
            seq: 0,
            data: &data
        }
        .emit(&mut out),
        1480
    );
}

#[test]
fn echo_with_a_code_is_other() {
    let other = Message::Other {
        kind: 8,
        code: 1,
        rest_of_header: [0, 1, 0, 2],
        body: b"x",
    };
    let mut out = [0u8; 9];
    assert_eq!(other.emit(&mut out), 9);
    assert_eq!(Message::parse(&out), Ok(other));
}

#[test]
fn short_buffer_stays_untouched() {
    let mut out = [9u8; 11];
    assert_eq!(
        Message::EchoReply {
            ident: 0,
            seq: 0,
            data: b"data"
        }
        .emit(&mut out),
        0
    );
    assert_eq!(out, [9; 11]);
}
