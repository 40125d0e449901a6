//! Packets that the ARP parser refuses.

use super::*;

fn request() -> [u8; PACKET_LEN] {
    let mut packet = [0; PACKET_LEN];
    let repr = Repr {
        op: Operation::Request,
        sha: MacAddr([2, 0, 0, 0, 0, 1]),
        spa: Ipv4Addr::new(10, 0, 0, 1),
        tha: MacAddr::UNSPECIFIED,
        tpa: Ipv4Addr::new(10, 0, 0, 2),
    };
    assert_eq!(repr.emit(&mut packet), PACKET_LEN);
    assert_eq!(Repr::parse(&packet), Ok(repr));
    packet
}

#[test]
fn other_hardware_protocol_or_operation_is_unsupported() {
    for (at, value) in [(1, 6), (2, 0x86), (4, 8), (5, 16), (7, 0), (7, 3), (6, 1)] {
        let mut packet = request();
        packet[at] = value;
        assert_eq!(
            Repr::parse(&packet),
            Err(WireError::Unsupported),
            "byte {at}"
        );
    }
}

#[test]
fn sender_that_is_a_group_is_refused() {
    let mut packet = request();
    packet[8] |= 1;
    assert_eq!(Repr::parse(&packet), Err(WireError::BadAddress));
}

#[test]
fn short_packet_is_truncated_and_short_buffer_untouched() {
    let packet = request();
    assert_eq!(Repr::parse(&packet[..27]), Err(WireError::Truncated));
    let mut out = [9u8; 27];
    assert_eq!(Repr::parse(&packet).unwrap().emit(&mut out), 0);
    assert_eq!(out, [9; 27]);
}
