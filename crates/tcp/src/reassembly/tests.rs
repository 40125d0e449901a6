//! Ranges against a plain model: a set of bytes.

use std::collections::BTreeSet;
use std::vec::Vec;

use wire::SeqNumber;

use super::{Range, Ranges};
use crate::limits::RANGES_MAX;

fn range(left: u32, right: u32) -> Range {
    Range {
        left: SeqNumber(left),
        right: SeqNumber(right),
    }
}

#[test]
fn neighbours_merge() {
    let mut ranges = Ranges::default();
    assert!(ranges.insert(range(10, 20)));
    assert!(ranges.insert(range(30, 40)));
    assert!(ranges.insert(range(20, 30)));
    assert_eq!(ranges.as_slice(), [range(10, 40)]);
}

#[test]
fn order_is_kept() {
    let mut ranges = Ranges::default();
    for left in [50, 10, 30, 70] {
        assert!(ranges.insert(range(left, left + 5)));
    }
    let lefts: Vec<u32> = ranges.as_slice().iter().map(|range| range.left.0).collect();
    assert_eq!(lefts, [10, 30, 50, 70]);
    assert!(!ranges.fits(range(90, 95)));
    assert!(!ranges.insert(range(90, 95)));
    // What touches still fits, and may join several.
    assert!(ranges.insert(range(12, 72)));
    assert_eq!(ranges.as_slice(), [range(10, 75)]);
}

#[test]
fn advance_takes_what_it_reaches() {
    let mut ranges = Ranges::default();
    for left in [10, 30, 50] {
        ranges.insert(range(left, left + 10));
    }
    assert_eq!(ranges.advance(SeqNumber(5)), SeqNumber(5));
    assert_eq!(ranges.advance(SeqNumber(10)), SeqNumber(20));
    assert_eq!(ranges.advance(SeqNumber(35)), SeqNumber(40));
    assert_eq!(ranges.as_slice(), [range(50, 60)]);
    assert_eq!(ranges.advance(SeqNumber(70)), SeqNumber(70));
    assert!(ranges.is_empty());
}

#[test]
fn random_ranges_agree_with_a_set_of_bytes() {
    let mut state = 88_172_645_463_325_252u64;
    let mut next = move |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n) as u32
    };
    for round in 0..500u32 {
        // Around the wrap of sequence numbers.
        let base = SeqNumber(u32::MAX - 100 + round % 7);
        let mut ranges = Ranges::default();
        let mut bytes = BTreeSet::new();
        for _ in 0..30 {
            let left = 1 + next(200);
            let right = left + 1 + next(20);
            let new = Range {
                left: base + left,
                right: base + right,
            };
            if ranges.insert(new) {
                bytes.extend(left..right);
            }
            let held: u32 = ranges
                .as_slice()
                .iter()
                .map(|r| r.right.since(r.left))
                .sum();
            assert_eq!(held as usize, bytes.len());
            assert!(ranges.as_slice().len() <= RANGES_MAX);
        }
        let end = ranges.advance(base + 1);
        let mut expected = 1;
        while bytes.contains(&expected) {
            expected += 1;
        }
        assert_eq!(end, base + expected);
    }
}
