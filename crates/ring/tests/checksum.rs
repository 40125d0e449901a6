//! Every form of the checksum, compared with RFC 1071 word by word and with `wire`.
#![cfg(not(loom))]

mod common;

use common::{Random, naive_sum};
use ring::checksum;
use ring::raw::{RawSlice, RawSliceMut};

fn lengths() -> Vec<usize> {
    let mut lengths: Vec<usize> = (0..200).collect();
    lengths.extend([
        255, 256, 257, 536, 1447, 1448, 1460, 4079, 4080, 9000, 65535,
    ]);
    if cfg!(miri) {
        lengths.retain(|n| *n < 300 && (n % 13 == 3 || *n < 12));
    }
    lengths
}

#[test]
fn every_form_agrees_at_every_length_and_alignment() {
    let mut random = Random(1071);
    for len in lengths() {
        for (src_shift, dst_shift) in [(0, 0), (1, 0), (0, 3), (5, 2), (2, 14)] {
            let source: Vec<u8> = (0..len + 16).map(|_| random.next() as u8).collect();
            let bytes = &source[src_shift..src_shift + len];
            let expected = naive_sum(bytes);
            assert_eq!(checksum::sum(bytes), expected, "sum of {len}");
            assert_eq!(RawSlice::from(bytes).sum(), expected);
            assert_eq!(u32::from(wire::checksum::of(bytes).fold()), expected);
            for (name, copy_and_sum) in checksum::forms() {
                let mut target = vec![0xee; len + 32];
                let dst = RawSliceMut::from(&mut target[dst_shift..dst_shift + len]);
                let sum = copy_and_sum(dst, RawSlice::from(bytes));
                assert_eq!(sum, expected, "{name}, {len} bytes");
                assert_eq!(&target[dst_shift..dst_shift + len], bytes, "{name}");
                let around = target[..dst_shift].iter().chain(&target[dst_shift + len..]);
                assert!(around.copied().all(|byte| byte == 0xee), "{name} strayed");
            }
        }
    }
}

#[test]
fn all_ones_do_not_overflow() {
    let len = if cfg!(miri) { 1000 } else { 1 << 20 };
    let bytes = vec![0xff; len];
    assert_eq!(checksum::sum(&bytes), 0xffff);
    let mut target = vec![0; len];
    let sum = checksum::copy_and_sum(
        RawSliceMut::from(&mut target[..]),
        RawSlice::from(&bytes[..]),
    );
    assert_eq!((sum, target == bytes), (0xffff, true));
}

#[test]
fn pieces_combine_at_even_and_odd_offsets() {
    let mut random = Random(2);
    let bytes: Vec<u8> = (0..301).map(|_| random.next() as u8).collect();
    for cut in (0..=bytes.len()).step_by(if cfg!(miri) { 43 } else { 1 }) {
        let (first, second) = bytes.split_at(cut);
        let joined = checksum::combine(checksum::sum(first), checksum::sum(second), cut % 2 == 1);
        assert_eq!(joined, naive_sum(&bytes), "cut at {cut}");
        let mut sum = wire::checksum::Sum::from_folded(checksum::sum(first) as u16);
        let second = wire::checksum::Sum::from_folded(checksum::sum(second) as u16);
        sum.combine(second, cut % 2 == 1);
        assert_eq!(u32::from(sum.fold()), joined);
    }
}

#[test]
fn copies_the_smaller_of_the_two_lengths() {
    let bytes = [1u8; 100];
    let mut target = [0u8; 70];
    let sum = checksum::copy_and_sum(
        RawSliceMut::from(&mut target[..]),
        RawSlice::from(&bytes[..]),
    );
    assert_eq!(sum, naive_sum(&bytes[..70]));
    let mut target = [0u8; 130];
    let sum = checksum::copy_and_sum(
        RawSliceMut::from(&mut target[..]),
        RawSlice::from(&bytes[..]),
    );
    assert_eq!((sum, target[99], target[100]), (naive_sum(&bytes), 1, 0));
}

#[test]
fn extreme_words_of_long_pieces_do_not_overflow() {
    let lengths = if cfg!(miri) {
        vec![300]
    } else {
        vec![(1 << 18) + 61, 3 << 18, (1 << 20) + 33]
    };
    for len in lengths {
        for word in [
            [0, 0],
            [0xff, 0xff],
            [0x80, 0x00],
            [0x7f, 0xff],
            [0x00, 0x80],
        ] {
            let source: Vec<u8> = word.into_iter().cycle().take(len).collect();
            for (name, form) in checksum::forms() {
                let mut copy = vec![1; len];
                let got = form(
                    RawSliceMut::from(&mut copy[..]),
                    RawSlice::from(&source[..]),
                );
                assert_eq!(got, naive_sum(&source), "{name} at {len} of {word:x?}");
                assert!(copy == source);
            }
            assert_eq!(checksum::sum(&source), naive_sum(&source));
        }
    }
}
