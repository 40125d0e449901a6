//! Quotes as routers cut them.

use super::*;
use core::net::{Ipv4Addr, Ipv6Addr};

const TCP: [u8; 8] = [0x9c, 0x40, 0, 80, 0, 0, 0x12, 0x34];

fn quoted_v4(protocol: u8, fragment_offset: u16) -> [u8; 28] {
    let header = ipv4::Header {
        total_len: 1500,
        protocol,
        fragment_offset,
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: Ipv4Addr::new(10, 0, 0, 2),
        ..ipv4::Header::default()
    };
    let mut quote = [0; 28];
    header.emit(&mut quote);
    quote[20..].copy_from_slice(&TCP);
    quote
}

#[test]
fn eight_bytes_of_tcp_name_the_flow() {
    let quote = Quote::parse_v4(&quoted_v4(6, 0)).unwrap();
    assert_eq!(quote.seq, SeqNumber(0x1234));
    assert_eq!(quote.flow.local, Ipv4Addr::new(10, 0, 0, 1).into());
    assert_eq!(quote.flow.remote, Ipv4Addr::new(10, 0, 0, 2).into());
    assert_eq!(
        (quote.flow.local_port, quote.flow.remote_port),
        (40_000, 80)
    );
}

#[test]
fn quote_too_short_for_the_sequence_number_is_truncated() {
    let quote = quoted_v4(6, 0);
    for len in 0..28 {
        assert_eq!(
            Quote::parse_v4(&quote[..len]),
            Err(WireError::Truncated),
            "{len}"
        );
    }
}

#[test]
fn quote_of_something_else_names_no_flow() {
    assert_eq!(
        Quote::parse_v4(&quoted_v4(17, 0)),
        Err(WireError::Unsupported)
    );
    assert_eq!(Quote::parse_v4(&quoted_v4(6, 1)), Err(WireError::Fragment));
}

#[test]
fn ipv6_quote_is_found_behind_extension_headers() {
    let (src, dst): (Ipv6Addr, Ipv6Addr) = (
        "2001:db8::1".parse().unwrap(),
        "2001:db8::2".parse().unwrap(),
    );
    let header = ipv6::Header {
        payload_len: 1400,
        next_header: 60,
        src,
        dst,
        ..ipv6::Header::default()
    };
    let mut quote = [0; 56];
    header.emit(&mut quote);
    quote[40..48].copy_from_slice(&[6, 0, 1, 4, 0, 0, 0, 0]);
    quote[48..].copy_from_slice(&TCP);
    let parsed = Quote::parse_v6(&quote).unwrap();
    assert_eq!(parsed.flow.local, src.into());
    assert_eq!(
        (parsed.flow.remote_port, parsed.seq),
        (80, SeqNumber(0x1234))
    );
    assert_eq!(Quote::parse_v6(&quote[..55]), Err(WireError::Truncated));
    quote[40] = 17;
    assert_eq!(Quote::parse_v6(&quote), Err(WireError::Unsupported));
}
