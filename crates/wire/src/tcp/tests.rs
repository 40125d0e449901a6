//! The TCP header, on its fast paths and on the general one.

use super::*;
use std::string::ToString;

fn header() -> Header {
    Header {
        src_port: 0x1234,
        dst_port: 443,
        seq: SeqNumber(0xdead_beef),
        ack: SeqNumber(0x0bad_cafe),
        flags: Flags::PSH | Flags::ACK,
        window: 502,
        checksum: 0xabcd,
        urgent: 0,
        options: Options::default(),
    }
}

fn stamped() -> Header {
    let mut header = header();
    header.options.timestamp = Some(Timestamp { value: 7, echo: 9 });
    header
}

fn round_trip(header: Header) -> usize {
    let mut out = [0x55; HEADER_LEN_MAX + 10];
    let len = header.emit(&mut out);
    assert_eq!(len, header.header_len());
    assert_eq!(Header::parse(&out), Ok((header, len)));
    for short in 0..len {
        assert_eq!(
            Header::parse(&out[..short]),
            Err(WireError::Truncated),
            "{short}"
        );
        let mut untouched = [9u8; HEADER_LEN_MAX];
        assert_eq!(header.emit(&mut untouched[..short]), 0);
        assert_eq!(untouched, [9; HEADER_LEN_MAX]);
    }
    len
}

#[test]
fn plain_header_round_trips() {
    assert_eq!(round_trip(header()), 20);
}

#[test]
fn timestamp_header_round_trips() {
    assert_eq!(round_trip(stamped()), 32);
}

#[test]
fn syn_header_round_trips() {
    let mut syn = stamped();
    syn.flags = Flags::SYN;
    syn.options.mss = Some(1460);
    syn.options.sack_permitted = true;
    syn.options.window_scale = Some(10);
    assert_eq!(round_trip(syn), 40);
}

#[test]
fn other_options_of_the_timestamps_size_take_the_slow_path() {
    let mut sack = header();
    let block = SackBlock {
        left: SeqNumber(1),
        right: SeqNumber(2),
    };
    assert!(sack.options.sack.push(block));
    assert_eq!(round_trip(sack), 32);
}

#[test]
fn timestamp_with_other_padding_is_read_as_well() {
    let mut out = [0u8; 32];
    stamped().emit(&mut out);
    // Some stacks write `timestamp, nop, end`.
    out.copy_within(22..32, 20);
    out[30..].copy_from_slice(&[1, 0]);
    assert_eq!(Header::parse(&out), Ok((stamped(), 32)));
}

#[test]
fn data_offset_below_the_header_is_bad_length() {
    let mut out = [0u8; 60];
    header().emit(&mut out);
    for words in 0..5 {
        out[12] = words << 4;
        assert_eq!(Header::parse(&out), Err(WireError::BadLength), "{words}");
    }
}

#[test]
fn zero_length_option_is_bad_option() {
    let mut out = [0u8; 32];
    stamped().emit(&mut out);
    out[23] = 0;
    assert_eq!(Header::parse(&out), Err(WireError::BadOption));
}

#[test]
fn reserved_bits_are_ignored() {
    let mut out = [0u8; 20];
    header().emit(&mut out);
    out[12] |= 0x0e;
    assert_eq!(Header::parse(&out), Ok((header(), 20)));
    // The last of the reserved bits is AE (RFC 9768).
    out[12] |= 0x01;
    let flags = header().flags | Flags::AE;
    assert_eq!(Header::parse(&out), Ok((Header { flags, ..header() }, 20)));
}

#[test]
fn ports_need_four_bytes() {
    assert_eq!(ports(&[0, 80, 0x9c, 0x40]), Some((80, 40_000)));
    assert_eq!(ports(&[0, 80, 0x9c]), None);
}

#[test]
fn flags_are_a_set() {
    let flags = Flags::SYN | Flags::ECE | Flags::CWR;
    assert_eq!(flags.to_string(), "SEC");
    assert_eq!(Flags(0x1ff).to_string(), "FSRPAUECe");
    assert_eq!(Flags::NONE.to_string(), "-");
    assert!(Flags::NONE.is_empty() && flags.contains(Flags::NONE));
    assert_eq!(
        flags.without(Flags::ECE | Flags::FIN),
        Flags::SYN | Flags::CWR
    );
    assert!(flags.intersects(Flags::SYN | Flags::FIN) && !flags.intersects(Flags::FIN));
    let mut grown = Flags::ACK;
    grown |= Flags::FIN;
    assert_eq!(grown, Flags::FIN.union(Flags::ACK));
}
