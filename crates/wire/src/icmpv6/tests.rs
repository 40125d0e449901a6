//! ICMPv6 messages emitted and parsed, and RFC 4861's checks.

use super::*;
use std::vec;
use std::vec::Vec;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// Emits a message, and parses it again with the same addresses.
fn pass(message: Message<'_>, src: &str, dst: &str, hop_limit: u8) -> Result<(), WireError> {
    let mut out = [0u8; 1500];
    let len = message.emit(&mut out, v6(src), v6(dst));
    assert_eq!(len, message.emit_len());
    assert_eq!(
        Message::parse(&out[..len], v6(src), v6(dst), hop_limit)?,
        message
    );
    Ok(())
}

/// A solicitation for fe80::2 with these options, from fe80::1 to fe80::2, with a valid checksum.
fn solicitation_with(options: &[u8]) -> Vec<u8> {
    let mut packet = vec![135, 0, 0, 0, 0, 0, 0, 0];
    packet.extend(v6("fe80::2").octets());
    packet.extend(options);
    fix_checksum(&mut packet);
    packet
}

fn fix_checksum(packet: &mut [u8]) {
    packet[2..4].fill(0);
    let mut sum = pseudo_header(v6("fe80::1"), v6("fe80::2"), packet.len());
    sum.add_bytes(packet);
    packet[2..4].copy_from_slice(&sum.finish().to_be_bytes());
}

fn parse(packet: &[u8]) -> Result<Message<'_>, WireError> {
    Message::parse(packet, v6("fe80::1"), v6("fe80::2"), 255)
}

fn solicitation(source_lladdr: Option<MacAddr>) -> Message<'static> {
    Message::NeighborSolicitation {
        target: v6("fe80::2"),
        source_lladdr,
    }
}

fn advertisement(flags: NeighborFlags) -> Message<'static> {
    Message::NeighborAdvertisement {
        flags,
        target: v6("fe80::2"),
        target_lladdr: Some(MAC),
    }
}

#[test]
fn checksum_covers_the_addresses() {
    let packet = solicitation_with(&[]);
    assert!(parse(&packet).is_ok());
    let elsewhere = Message::parse(&packet, v6("fe80::3"), v6("fe80::2"), 255);
    assert_eq!(elsewhere, Err(WireError::BadChecksum));
    assert_eq!(parse(&packet[..7]), Err(WireError::Truncated));
}

#[test]
fn neighbor_discovery_from_beyond_a_router_is_refused() {
    assert_eq!(
        pass(solicitation(Some(MAC)), "fe80::1", "fe80::2", 255),
        Ok(())
    );
    assert_eq!(
        pass(solicitation(Some(MAC)), "fe80::1", "fe80::2", 254),
        Err(WireError::BadHopLimit)
    );
    let echo = Message::EchoRequest {
        ident: 1,
        seq: 2,
        data: b"far",
    };
    assert_eq!(pass(echo, "2001:db8::1", "2001:db8::2", 7), Ok(()));
}

#[test]
fn duplicate_address_probe_goes_to_the_solicited_node_without_lladdr() {
    assert_eq!(
        pass(solicitation(None), "::", "ff02::1:ff00:2", 255),
        Ok(())
    );
    assert_eq!(
        pass(solicitation(Some(MAC)), "::", "ff02::1:ff00:2", 255),
        Err(WireError::BadAddress)
    );
    assert_eq!(
        pass(solicitation(None), "::", "fe80::2", 255),
        Err(WireError::BadAddress)
    );
}

#[test]
fn advertisement_to_a_group_is_not_solicited() {
    let flags = NeighborFlags {
        router: true,
        solicited: false,
        overrides: true,
    };
    assert_eq!(
        pass(advertisement(flags), "fe80::2", "ff02::1", 255),
        Ok(())
    );
    let flags = NeighborFlags {
        solicited: true,
        ..flags
    };
    assert_eq!(
        pass(advertisement(flags), "fe80::2", "fe80::1", 255),
        Ok(())
    );
    assert_eq!(
        pass(advertisement(flags), "fe80::2", "ff02::1", 255),
        Err(WireError::BadAddress)
    );
}

#[test]
fn group_is_no_target_and_no_lladdr() {
    let message = Message::NeighborSolicitation {
        target: v6("ff02::2"),
        source_lladdr: None,
    };
    assert_eq!(
        pass(message, "fe80::1", "fe80::2", 255),
        Err(WireError::BadAddress)
    );
    assert_eq!(
        pass(
            solicitation(Some(MacAddr::BROADCAST)),
            "fe80::1",
            "fe80::2",
            255
        ),
        Err(WireError::BadAddress)
    );
}

#[test]
fn unknown_neighbor_option_is_skipped() {
    let mut options = vec![14, 1, 1, 2, 3, 4, 5, 6, 1, 1];
    options.extend(MAC.0);
    assert_eq!(
        parse(&solicitation_with(&options)),
        Ok(solicitation(Some(MAC)))
    );
}

#[test]
fn lladdr_of_other_hardware_is_skipped() {
    assert_eq!(
        parse(&solicitation_with(&[
            1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        ])),
        Ok(solicitation(None))
    );
}

#[test]
fn malformed_neighbor_options_are_bad_options() {
    for options in [
        &[1, 0, 0, 0, 0, 0, 0, 0][..],
        &[1, 2, 0, 0, 0, 0, 0, 0],
        &[1],
        &[1, 1, 0],
    ] {
        assert_eq!(
            parse(&solicitation_with(options)),
            Err(WireError::BadOption),
            "{options:?}"
        );
    }
}

#[test]
fn neighbor_message_with_a_code_or_no_target_is_refused() {
    let mut packet = solicitation_with(&[]);
    packet[1] = 1;
    fix_checksum(&mut packet);
    assert_eq!(parse(&packet), Err(WireError::BadCode));
    let mut packet = solicitation_with(&[]);
    packet.truncate(23);
    fix_checksum(&mut packet);
    assert_eq!(parse(&packet), Err(WireError::Truncated));
}

#[test]
fn quote_is_cut_so_that_the_packet_stays_within_1280_bytes() {
    let packet = vec![0x60; 1500];
    for error in [
        Message::DestinationUnreachable {
            code: unreachable::PORT,
            quote: &packet,
        },
        Message::PacketTooBig {
            mtu: 1400,
            quote: &packet,
        },
        Message::TimeExceeded {
            code: 0,
            quote: &packet,
        },
        Message::ParameterProblem {
            code: 1,
            pointer: 40,
            quote: &packet,
        },
    ] {
        assert_eq!(error.emit_len() + ipv6::HEADER_LEN, 1280);
    }
    let too_big = Message::PacketTooBig {
        mtu: 1400,
        quote: &packet[..200],
    };
    assert_eq!(pass(too_big, "2001:db8::1", "2001:db8::2", 60), Ok(()));
}

#[test]
fn router_discovery_is_other() {
    let message = Message::Other {
        kind: 134,
        code: 0,
        rest_of_header: [64, 0, 7, 8],
        body: &[0; 8],
    };
    assert_eq!(pass(message, "fe80::1", "ff02::1", 255), Ok(()));
}

#[test]
fn solicited_node_group_takes_the_low_24_bits() {
    assert_eq!(
        solicited_node(v6("2001:db8::12:3456:789a:bcde")),
        v6("ff02::1:ff9a:bcde")
    );
}

#[test]
fn short_buffer_stays_untouched() {
    let mut out = [9u8; 23];
    assert_eq!(solicitation(None).emit(&mut out, v6("::"), v6("::")), 0);
    assert_eq!(out, [9; 23]);
}
