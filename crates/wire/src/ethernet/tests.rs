//! Frames with and without a tag.

use super::*;
use std::string::ToString;

const DST: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 1]);
const SRC: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 2]);

#[test]
fn untagged_frame_parses() {
    let frame = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00, 0x45];
    let header = Header {
        dst: DST,
        src: SRC,
        vlan: None,
        ethertype: EtherType::IPV4,
    };
    assert_eq!(Header::parse(&frame), Ok((header, HEADER_LEN)));
    assert_eq!(Header::parse(&frame[..13]), Err(WireError::Truncated));
}

#[test]
fn tagged_frame_parses() {
    let frame = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0x00, 0x60, 0x64, 0x86, 0xdd,
    ];
    let header = Header {
        dst: DST,
        src: SRC,
        vlan: Some(0x6064),
        ethertype: EtherType::IPV6,
    };
    assert_eq!(Header::parse(&frame), Ok((header, VLAN_HEADER_LEN)));
    assert_eq!(Header::parse(&frame[..17]), Err(WireError::Truncated));
}

#[test]
fn second_tag_is_left_on() {
    let mut frame = [0u8; 22];
    frame[12..18].copy_from_slice(&[0x81, 0, 0, 1, 0x81, 0]);
    let (header, len) = Header::parse(&frame).unwrap();
    assert_eq!((header.ethertype, len), (EtherType::VLAN, 18));
}

#[test]
fn short_buffer_stays_untouched() {
    let mut out = [7u8; 17];
    let mut header = Header {
        dst: DST,
        src: SRC,
        vlan: Some(1),
        ethertype: EtherType::ARP,
    };
    assert_eq!(header.emit(&mut out), 0);
    header.vlan = None;
    assert_eq!(header.emit(&mut out[..13]), 0);
    assert_eq!(out, [7; 17]);
    assert_eq!((header.emit(&mut out), header.header_len()), (14, 14));
}

#[test]
fn mac_address_text_round_trips() {
    let mac: MacAddr = "02:aB:00:ff:10:9c".parse().unwrap();
    assert_eq!(mac, MacAddr([0x02, 0xab, 0, 0xff, 0x10, 0x9c]));
    assert_eq!(mac.to_string(), "02:ab:00:ff:10:9c");
    for wrong in [
        "",
        "02:ab:00:ff:10",
        "02:ab:00:ff:10:9c:",
        "2:ab:00:ff:10:9c",
        "+2:ab:00:ff:10:9c",
    ] {
        assert_eq!(wrong.parse::<MacAddr>(), Err(ParseMacAddrError), "{wrong}");
    }
}

#[test]
fn groups_are_not_stations() {
    assert!(MacAddr::BROADCAST.is_broadcast() && MacAddr::BROADCAST.is_multicast());
    assert!(!MacAddr::BROADCAST.is_unicast() && !MacAddr::UNSPECIFIED.is_unicast());
    assert!(SRC.is_unicast());
    let v4 = MacAddr::multicast_v4("239.129.2.3".parse().unwrap());
    assert_eq!(v4.to_string(), "01:00:5e:01:02:03");
    let v6 = MacAddr::multicast_v6("ff02::1:ff00:abcd".parse().unwrap());
    assert_eq!(v6.to_string(), "33:33:ff:00:ab:cd");
}
