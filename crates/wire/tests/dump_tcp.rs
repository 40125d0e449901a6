//! TCP segments as a Linux kernel sends them. For each, `tcp_segment` also checks that emitting the
//! parsed header gives the kernel's bytes, so the option layouts are the same.

mod dump;

use dump::{dump, tcp_segment};
use std::net::IpAddr;
use wire::tcp::{FastOpenCookie, Flags, Header, Options, SackBlock, Timestamp};
use wire::{FlowKey, SeqNumber};

fn flow(local: &str, local_port: u16, remote: &str, remote_port: u16) -> FlowKey {
    let addr = |text: &str| text.parse::<IpAddr>().unwrap().into();
    FlowKey {
        local: addr(local),
        remote: addr(remote),
        local_port,
        remote_port,
    }
}

fn stamp(value: u32, echo: u32) -> Option<Timestamp> {
    Some(Timestamp { value, echo })
}

/// The blocks of a header's SACK option, as offsets from its acknowledgment number.
fn sacked(header: &Header) -> Vec<(i32, i32)> {
    let from_ack = |seq: SeqNumber| seq.since(header.ack) as i32;
    let blocks = header.options.sack.as_slice().iter();
    blocks
        .map(|&SackBlock { left, right }| (from_ack(left), from_ack(right)))
        .collect()
}

#[test]
fn syn_offers_all_options() {
    let frame = dump(
        "
        02 00 00 00 00 02 02 00 00 00 00 01 08 00       ; ethernet
        45 00 00 3c 04 8d 40 00 40 06 b2 2b c0 00 02 01 ; ipv4
        c0 00 02 02
        b2 7e 00 50 7d 7c d0 64 00 00 00 00 a0 02 fa f0 ; tcp
        6b 97 00 00
        02 04 05 b4                                     ; mss
        04 02                                           ; sack permitted
        08 0a 73 9e e9 22 00 00 00 00                   ; timestamp
        01                                              ; nop
        03 03 0a                                        ; window scale
        ",
    );
    let (flow_seen, header, payload) = tcp_segment(&frame);
    assert_eq!(flow_seen, flow("192.0.2.2", 80, "192.0.2.1", 45694));
    let expected = Header {
        src_port: 45694,
        dst_port: 80,
        seq: SeqNumber(0x7d7c_d064),
        ack: SeqNumber(0),
        flags: Flags::SYN,
        window: 64240,
        checksum: 0x6b97,
        urgent: 0,
        options: Options {
            mss: Some(1460),
            window_scale: Some(10),
            sack_permitted: true,
            timestamp: stamp(0x739e_e922, 0),
            ..Options::NONE
        },
    };
    assert_eq!(header, expected);
    assert!(payload.is_empty());
}

#[test]
fn syn_ack_answers_and_echoes_the_timestamp() {
    let frame = dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 08 00       ; ethernet
        45 00 00 3c 00 00 40 00 40 06 b6 b8 c0 00 02 02 ; ipv4
        c0 00 02 01
        00 50 b2 7e 5d f6 24 4c 7d 7c d0 65 a0 12 fe 88 ; tcp
        32 2a 00 00
        02 04 05 b4                                     ; mss
        04 02                                           ; sack permitted
        08 0a a8 ac 0a d5 73 9e e9 22                   ; timestamp
        01                                              ; nop
        03 03 0a                                        ; window scale
        ",
    );
    let (flow_seen, header, _) = tcp_segment(&frame);
    assert_eq!(flow_seen, flow("192.0.2.1", 45694, "192.0.2.2", 80));
    assert_eq!(header.flags, Flags::SYN | Flags::ACK);
    assert_eq!(header.ack, SeqNumber(0x7d7c_d064) + 1);
    assert_eq!(header.options.timestamp, stamp(0xa8ac_0ad5, 0x739e_e922));
    assert_eq!(
        (header.window, header.options.window_scale),
        (65160, Some(10))
    );
}

#[test]
fn ack_carries_the_timestamp_only() {
    let frame = dump(
        "
        02 00 00 00 00 02 02 00 00 00 00 01 08 00       ; ethernet
        45 00 00 34 04 8e 40 00 40 06 b2 32 c0 00 02 01 ; ipv4
        c0 00 02 02
        b2 7e 00 50 7d 7c d0 65 5d f6 24 4d 80 10 00 3f ; tcp
        5f 43 00 00
        01 01                                           ; nop, nop
        08 0a 73 9e e9 22 a8 ac 0a d5                   ; timestamp
        ",
    );
    let (_, header, payload) = tcp_segment(&frame);
    let expected = Options {
        timestamp: stamp(0x739e_e922, 0xa8ac_0ad5),
        ..Options::NONE
    };
    assert_eq!((header.flags, header.options), (Flags::ACK, expected));
    assert!(payload.is_empty());
}

#[test]
fn data_is_pushed() {
    let frame = dump(
        "
        02 00 00 00 00 02 02 00 00 00 00 01 08 00       ; ethernet
        45 00 00 39 04 8f 40 00 40 06 b2 2c c0 00 02 01 ; ipv4
        c0 00 02 02
        b2 7e 00 50 7d 7c d0 65 5d f6 24 4d 80 18 00 3f ; tcp
        1b 63 00 00
        01 01                                           ; nop, nop
        08 0a 73 9e e9 23 a8 ac 0a d5                   ; timestamp
        68 65 6c 6c 6f                                  ; data
        ",
    );
    let (_, header, payload) = tcp_segment(&frame);
    assert_eq!(header.flags.to_string(), "PA");
    assert_eq!(payload, b"hello");
}

#[test]
fn fin_comes_alone() {
    let frame = dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 08 00       ; ethernet
        45 00 00 34 eb 85 40 00 40 06 cb 3a c0 00 02 02 ; ipv4
        c0 00 02 01
        00 50 b2 7e 5d f6 24 55 7d 7c d0 6a 80 11 00 40 ; tcp
        5f 00 00 00
        01 01                                           ; nop, nop
        08 0a a8 ac 0b 08 73 9e e9 23                   ; timestamp
        ",
    );
    let (_, header, payload) = tcp_segment(&frame);
    assert_eq!(header.flags.to_string(), "FA");
    assert!(payload.is_empty());
}

#[test]
fn reset_has_no_options_and_no_window() {
    let frame = dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 08 00       ; ethernet
        45 00 00 28 00 00 40 00 40 06 b6 cc c0 00 02 02 ; ipv4
        c0 00 02 01
        00 51 ce 28 00 00 00 00 e6 d9 85 b8 50 14 00 00 ; tcp
        f0 c0 00 00
        ",
    );
    let (_, header, _) = tcp_segment(&frame);
    assert_eq!(header.flags, Flags::RST | Flags::ACK);
    assert_eq!((header.window, header.options), (0, Options::NONE));
}

#[test]
fn syn_without_timestamps_is_laid_out_otherwise() {
    let frame = dump(
        "
        02 00 00 00 00 02 02 00 00 00 00 01 08 00       ; ethernet
        45 00 00 34 42 05 40 00 40 06 74 bb c0 00 02 01 ; ipv4
        c0 00 02 02
        96 20 00 50 ee 6d 81 04 00 00 00 00 80 02 fa f0 ; tcp
        ea 36 00 00
        02 04 05 b4                                     ; mss
        01 01                                           ; nop, nop
        04 02                                           ; sack permitted
        01                                              ; nop
        03 03 0a                                        ; window scale
        ",
    );
    let (_, header, _) = tcp_segment(&frame);
    let expected = Options {
        mss: Some(1460),
        window_scale: Some(10),
        sack_permitted: true,
        ..Options::NONE
    };
    assert_eq!(header.options, expected);
}

#[test]
fn syn_over_ipv6_has_a_smaller_mss() {
    let frame = dump(
        "
        02 00 00 00 00 02 02 00 00 00 00 01 86 dd       ; ethernet
        60 00 9f 29 00 28 06 40                         ; ipv6
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 01 ;   source
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 02 ;   destination
        e6 26 00 50 d5 2e a6 aa 00 00 00 00 a0 02 fd 20 ; tcp
        3a 4f 00 00
        02 04 05 a0                                     ; mss
        04 02                                           ; sack permitted
        08 0a 3f 06 13 d6 00 00 00 00                   ; timestamp
        01                                              ; nop
        03 03 0a                                        ; window scale
        ",
    );
    let (flow_seen, header, _) = tcp_segment(&frame);
    assert_eq!(flow_seen, flow("2001:db8::2", 80, "2001:db8::1", 58918));
    assert_eq!((header.flags, header.options.mss), (Flags::SYN, Some(1440)));
}

#[test]
fn data_over_ipv6_is_summed_with_its_pseudo_header() {
    let frame = dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 86 dd       ; ethernet
        60 04 d5 8f 00 28 06 40                         ; ipv6
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 02 ;   source
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 01 ;   destination
        00 50 e6 26 e3 e7 da 41 d5 2e a6 b0 80 18 00 3f ; tcp
        d0 89 00 00
        01 01                                           ; nop, nop
        08 0a 68 d7 13 8e 3f 06 13 d7                   ; timestamp
        68 69 20 68 65 6c 6c 6f                         ; data
        ",
    );
    let (_, header, payload) = tcp_segment(&frame);
    assert_eq!(header.flags.to_string(), "PA");
    assert_eq!(payload, b"hi hello");
}

#[test]
fn fast_open_cookie_is_asked_for() {
    let frame = dump(
        "
        02 00 00 00 00 02 02 00 00 00 00 01 08 00       ; ethernet
        45 00 00 40 70 42 40 00 40 06 46 72 c0 00 02 01 ; ipv4
        c0 00 02 02
        96 0c 00 50 95 8f 6e 0e 00 00 00 00 b0 02 fa f0 ; tcp
        e2 72 00 00
        02 04 05 b4                                     ; mss
        04 02                                           ; sack permitted
        08 0a d6 49 43 4a 00 00 00 00                   ; timestamp
        01                                              ; nop
        03 03 0a                                        ; window scale
        22 02                                           ; fast open request
        01 01                                           ; nop, nop
        ",
    );
    let (_, header, _) = tcp_segment(&frame);
    assert_eq!(header.options.fast_open, Some(FastOpenCookie::REQUEST));
}

#[test]
fn fast_open_cookie_is_granted() {
    let frame = dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 08 00       ; ethernet
        45 00 00 48 00 00 40 00 40 06 b6 ac c0 00 02 02 ; ipv4
        c0 00 02 01
        00 50 96 0c d8 48 21 18 95 8f 6e 0f d0 12 fe 88 ; tcp
        39 13 00 00
        02 04 05 b4                                     ; mss
        04 02                                           ; sack permitted
        08 0a 08 aa d0 e5 d6 49 43 4a                   ; timestamp
        01                                              ; nop
        03 03 0a                                        ; window scale
        22 0a 52 00 cb 9d 78 5e 1c b9                   ; fast open
        01 01                                           ; nop, nop
        ",
    );
    let (_, header, _) = tcp_segment(&frame);
    assert_eq!(header.flags, Flags::SYN | Flags::ACK);
    let cookie = FastOpenCookie::new(&[0x52, 0x00, 0xcb, 0x9d, 0x78, 0x5e, 0x1c, 0xb9]);
    assert!(cookie.is_some() && header.options.fast_open == cookie);
}

#[test]
fn fast_open_cookie_comes_with_data_on_the_syn() {
    let frame = dump(
        "
        02 00 00 00 00 02 02 00 00 00 00 01 08 00       ; ethernet
        45 00 00 49 8f 6f 40 00 40 06 27 3c c0 00 02 01 ; ipv4
        c0 00 02 02
        96 16 00 50 0c 40 24 25 00 00 00 00 d0 02 fa f0 ; tcp
        04 5c 00 00
        02 04 05 b4                                     ; mss
        04 02                                           ; sack permitted
        08 0a 38 3d 47 d5 00 00 00 00                   ; timestamp
        01                                              ; nop
        03 03 0a                                        ; window scale
        22 0a 52 00 cb 9d 78 5e 1c b9                   ; fast open
        01 01                                           ; nop, nop
        78                                              ; data
        ",
    );
    let (_, header, payload) = tcp_segment(&frame);
    let cookie = FastOpenCookie::new(&[0x52, 0x00, 0xcb, 0x9d, 0x78, 0x5e, 0x1c, 0xb9]);
    assert_eq!(
        (header.flags, header.options.fast_open),
        (Flags::SYN, cookie)
    );
    assert_eq!(payload, b"x");
}

#[test]
fn hole_is_answered_by_a_block() {
    let frame = dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 08 00       ; ethernet
        45 00 00 40 96 31 40 00 40 06 20 83 c0 00 02 02 ; ipv4
        c0 00 02 01
        00 50 96 1c 13 3c 46 c7 b8 97 63 28 b0 10 00 40 ; tcp
        c0 0f 00 00
        01 01                                           ; nop, nop
        08 0a fb 25 10 9e 9a 15 11 ed                   ; timestamp
        01 01                                           ; nop, nop
        05 0a b8 97 63 8c b8 97 63 a0                   ; sack
        ",
    );
    let (_, header, _) = tcp_segment(&frame);
    assert_eq!(sacked(&header), [(100, 120)]);
}

#[test]
fn duplicate_is_reported_before_the_block_that_holds_it() {
    // The first block reports the bytes that came twice (RFC 2883). A fourth block has no room
    // beside the timestamp.
    let frame = dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 08 00       ; ethernet
        45 00 00 50 96 35 40 00 40 06 20 6f c0 00 02 02 ; ipv4
        c0 00 02 01
        00 50 96 1c 13 3c 46 c7 b8 97 63 28 f0 10 00 40 ; tcp
        08 2e 00 00
        01 01                                           ; nop, nop
        08 0a fb 25 11 67 9a 15 11 ed                   ; timestamp
        01 01                                           ; nop, nop
        05 1a b8 97 64 b8 b8 97 64 cc b8 97 64 b8 b8 97 ; sack
        64 cc b8 97 64 54 b8 97 64 68
        ",
    );
    let (_, header, _) = tcp_segment(&frame);
    assert_eq!(sacked(&header), [(400, 420), (400, 420), (300, 320)]);
}
