//! The checksum against a naive one, word by word as RFC 1071 writes it.

use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

fn naive(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[test]
fn nothing_sums_to_zero() {
    assert_eq!(of(&[]).fold(), 0);
    assert_eq!(of(&[]).finish(), 0xffff);
}

#[test]
fn header_of_a_real_packet_is_valid() {
    let header = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00,
        0x01, 0xc0, 0xa8, 0x00, 0xc7,
    ];
    assert!(of(&header).is_valid());
}

#[test]
fn all_ones_of_every_length_agree_with_naive() {
    for len in 0..70 {
        let bytes = vec![0xff; len];
        assert_eq!(of(&bytes).fold(), naive(&bytes), "{len}");
    }
}

#[test]
fn a_megabyte_of_ones_does_not_overflow() {
    let bytes = vec![0xff; 1 << 20];
    let mut sum = Sum::new();
    for _ in 0..100 {
        sum.add_bytes(&bytes);
    }
    assert_eq!(sum.fold(), 0xffff);
}

#[test]
fn pseudo_headers_agree_with_their_bytes() {
    let (src, dst) = (Ipv4Addr::new(10, 1, 2, 3), Ipv4Addr::new(192, 168, 4, 5));
    let mut bytes = Vec::new();
    bytes.extend(src.octets());
    bytes.extend(dst.octets());
    bytes.extend([0, 6, 0x12, 0x34]);
    assert_eq!(pseudo_header_v4(src, dst, 6, 0x1234).fold(), naive(&bytes));
    let generic = pseudo_header(src.into(), dst.into(), 6, 0x1234);
    assert_eq!(generic.fold(), naive(&bytes));

    let src: Ipv6Addr = "2001:db8:1:2:3:4:5:6".parse().unwrap();
    let dst: Ipv6Addr = "fe80::abcd:ef01".parse().unwrap();
    let mut bytes = Vec::new();
    bytes.extend(src.octets());
    bytes.extend(dst.octets());
    bytes.extend([0, 1, 0x86, 0xa0, 0, 0, 0, 58]);
    assert_eq!(
        pseudo_header_v6(src, dst, 58, 100_000).fold(),
        naive(&bytes)
    );
    let generic = pseudo_header(src.into(), dst.into(), 58, 100_000);
    assert_eq!(generic.fold(), naive(&bytes));
}

proptest! {
    #[test]
    fn agrees_with_naive(bytes: Vec<u8>) {
        prop_assert_eq!(of(&bytes).fold(), naive(&bytes));
    }

    #[test]
    fn agrees_with_naive_at_every_alignment(bytes: Vec<u8>, from in 0usize..16) {
        let bytes = &bytes[from.min(bytes.len())..];
        prop_assert_eq!(of(bytes).fold(), naive(bytes));
    }

    #[test]
    fn pieces_combine_to_the_whole(bytes: Vec<u8>, cuts: Vec<prop::sample::Index>) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let (mut sum, mut at) = (Sum::new(), 0);
        for cut in cuts {
            sum.combine(of(&bytes[at..cut]), at % 2 == 1);
            at = cut;
        }
        prop_assert_eq!(sum.fold(), naive(&bytes));
    }

    #[test]
    fn folded_sums_enter_again(a: Vec<u8>, b: Vec<u8>) {
        let mut sum = Sum::from_folded(of(&a).fold());
        sum.combine(of(&b), a.len() % 2 == 1);
        let whole: Vec<u8> = [a, b].concat();
        prop_assert_eq!(sum.fold(), naive(&whole));
    }

    #[test]
    fn words_are_bytes(a: u16, b: u32) {
        let mut sum = Sum::new();
        sum.add_u16(a);
        sum.add_u32(b);
        let bytes: Vec<u8> = a.to_be_bytes().into_iter().chain(b.to_be_bytes()).collect();
        prop_assert_eq!(sum.fold(), naive(&bytes));
    }

    // The first byte is not zero: for a packet of zeros alone, the adjusted checksum may be the
    // other of the two zeros of one's complement arithmetic.
    #[test]
    fn adjusted_by_two_words_is_right(first in 1u8.., rest: [u8; 39], new: u32) {
        let mut packet = vec![first];
        packet.extend(rest);
        let before = of(&packet).finish();
        let old = u32::from_be_bytes(packet[4..8].try_into().unwrap());
        packet[4..8].copy_from_slice(&new.to_be_bytes());
        prop_assert_eq!(adjust_u32(before, old, new), of(&packet).finish());
    }

    #[test]
    fn adjusted_by_a_word_is_right(first in 1u8.., rest: [u8; 19], new: u16) {
        let mut packet = vec![first];
        packet.extend(rest);
        let before = of(&packet).finish();
        let old = u16::from_be_bytes([packet[6], packet[7]]);
        packet[6..8].copy_from_slice(&new.to_be_bytes());
        prop_assert_eq!(adjust_u16(before, old, new), of(&packet).finish());
    }
}
