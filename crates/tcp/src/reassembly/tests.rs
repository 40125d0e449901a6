//! Ranges, compared with a plain model: a set of bytes.

use std::collections::BTreeSet;
use std::vec::Vec;

use wire::SeqNumber;

use super::{Held, Inserted, Range, RangePool, Recent};
use crate::limits::{RANGE_BLOCK_RANGES, RANGE_BLOCKS_EACH_MAX};

fn range(left: u32, right: u32) -> Range {
    Range {
        left: SeqNumber(left),
        right: SeqNumber(right),
    }
}

fn all(held: Held, pool: &RangePool) -> Vec<Range> {
    held.iter(pool).collect()
}

#[test]
fn neighbours_merge() {
    let (mut pool, mut held) = (RangePool::new(4), Held::default());
    for (left, right) in [(10, 20), (30, 40), (20, 30)] {
        assert_eq!(held.insert(&mut pool, range(left, right)), Inserted::Yes);
    }
    assert_eq!(all(held, &pool), [range(10, 40)]);
    assert_eq!(held.bytes(&pool), 30);
}

#[test]
fn order_is_kept() {
    let (mut pool, mut held) = (RangePool::new(4), Held::default());
    for left in [50, 10, 30, 70] {
        assert_eq!(held.insert(&mut pool, range(left, left + 5)), Inserted::Yes);
    }
    let lefts: Vec<u32> = held.iter(&pool).map(|range| range.left.0).collect();
    assert_eq!(lefts, [10, 30, 50, 70]);
    // A range that touches several joins them.
    assert_eq!(held.insert(&mut pool, range(12, 72)), Inserted::Yes);
    assert_eq!(all(held, &pool), [range(10, 75)]);
}

#[test]
fn advance_takes_what_it_reaches() {
    let (mut pool, mut held) = (RangePool::new(4), Held::default());
    for left in [10, 30, 50] {
        held.insert(&mut pool, range(left, left + 10));
    }
    assert_eq!(held.advance(&mut pool, SeqNumber(5), None), SeqNumber(5));
    assert_eq!(held.advance(&mut pool, SeqNumber(10), None), SeqNumber(20));
    assert_eq!(held.advance(&mut pool, SeqNumber(35), None), SeqNumber(40));
    assert_eq!(all(held, &pool), [range(50, 60)]);
    assert_eq!(held.advance(&mut pool, SeqNumber(70), None), SeqNumber(70));
    assert!(!held.has_ranges(&pool));
    held.release(&mut pool);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn full_the_furthest_gives_way() {
    let mut pool = RangePool::new(1);
    let mut held = Held::default();
    for n in 0..RANGE_BLOCK_RANGES as u32 {
        assert_eq!(
            held.insert(&mut pool, range(100 + n * 10, 105 + n * 10)),
            Inserted::Yes
        );
    }
    let last = held.last(&pool).unwrap();
    // A range beyond all others is refused; for a nearer one the last range is dropped.
    assert_eq!(held.insert(&mut pool, range(900, 905)), Inserted::No);
    assert_eq!(
        held.insert(&mut pool, range(50, 55)),
        Inserted::Instead(last.left)
    );
    assert_eq!(all(held, &pool).len(), RANGE_BLOCK_RANGES);
    assert_eq!(all(held, &pool)[0], range(50, 55));
    // A range that touches another needs no slot of its own.
    assert_eq!(held.insert(&mut pool, range(55, 56)), Inserted::Yes);
    // No other connection gets a block.
    let mut other = Held::default();
    assert_eq!(other.insert(&mut pool, range(1, 2)), Inserted::No);
    held.release(&mut pool);
    assert_eq!(other.insert(&mut pool, range(1, 2)), Inserted::Yes);
}

#[test]
fn one_connection_has_its_share() {
    let mut pool = RangePool::new(4 * RANGE_BLOCKS_EACH_MAX);
    let mut held = Held::default();
    let mut n = 0;
    while held.insert(&mut pool, range(n * 10, n * 10 + 5)) == Inserted::Yes {
        n += 1;
    }
    // Ranges added in order leave blocks half full, so later ranges between them find room.
    assert_eq!(pool.in_use(), RANGE_BLOCKS_EACH_MAX);
    assert!(n as usize >= RANGE_BLOCKS_EACH_MAX * (RANGE_BLOCK_RANGES / 2));
    held.release(&mut pool);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn recent_reports_the_newest_first() {
    let mut recent = Recent::default();
    for left in [10, 30, 50, 70, 90] {
        recent.hear(range(left, left + 5));
    }
    let lefts: Vec<u32> = recent.as_slice().iter().map(|r| r.left.0).collect();
    assert_eq!(lefts, [90, 70, 50, 30]);
    recent.hear(range(55, 70));
    assert_eq!(
        recent.as_slice(),
        [range(50, 75), range(90, 95), range(30, 35)]
    );
    recent.advance(SeqNumber(40));
    assert_eq!(recent.as_slice(), [range(50, 75), range(90, 95)]);
    recent.truncate(SeqNumber(60));
    assert_eq!(recent.as_slice(), [range(50, 60)]);
}

/// A small, seeded generator (xorshift).
fn random(state: &mut u64, n: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % n
}

#[test]
fn random_ranges_agree_with_a_set_of_bytes() {
    let mut state = 88_172_645_463_325_252u64;
    for round in 0..60 {
        // Sequence numbers near the wrap are covered too, and some pools are short.
        let base = if round % 2 == 0 { 0 } else { u32::MAX - 2_000 };
        let blocks = 2 + random(&mut state, 20) as usize;
        let mut pool = RangePool::new(blocks);
        let mut held = Held::default();
        let mut bytes: BTreeSet<u32> = BTreeSet::new();
        let mut nxt = 0u32;
        let at = |offset: u32| SeqNumber(base.wrapping_add(offset));
        for _ in 0..600 {
            match random(&mut state, 12) {
                0 => {
                    nxt += random(&mut state, 40) as u32;
                    let end = held.advance(&mut pool, at(nxt), None);
                    while bytes.contains(&nxt) {
                        nxt += 1;
                    }
                    assert_eq!(end, at(nxt));
                    bytes = bytes.split_off(&nxt);
                }
                1 => {
                    let edge = nxt + 1 + random(&mut state, 4_000) as u32;
                    held.truncate(&mut pool, at(edge));
                    bytes.split_off(&edge);
                }
                _ => {
                    let left = nxt + 1 + random(&mut state, 4_000) as u32;
                    let right = left + 1 + random(&mut state, 30) as u32;
                    let new = Range {
                        left: at(left),
                        right: at(right),
                    };
                    match held.insert(&mut pool, new) {
                        Inserted::Yes => bytes.extend(left..right),
                        Inserted::Instead(edge) => {
                            bytes.extend(left..right);
                            bytes.split_off(&edge.0.wrapping_sub(base));
                        }
                        Inserted::No => {}
                    }
                }
            }
            agree(held, &pool, &bytes, base);
        }
        held.release(&mut pool);
        assert_eq!(pool.in_use(), 0);
    }
}

fn agree(held: Held, pool: &RangePool, bytes: &BTreeSet<u32>, base: u32) {
    assert_eq!(held.bytes(pool) as usize, bytes.len());
    let mut seen = 0;
    let mut before: Option<u32> = None;
    for range in held.iter(pool) {
        let (left, right) = (
            range.left.0.wrapping_sub(base),
            range.right.0.wrapping_sub(base),
        );
        assert!(left < right && before.is_none_or(|end| end < left));
        assert!((left..right).all(|byte| bytes.contains(&byte)));
        seen += (right - left) as usize;
        before = Some(right);
    }
    assert_eq!(seen, bytes.len());
}

#[test]
fn recent_forgets_what_begins_where_order_ends() {
    for (nxt, is_left) in [(49, true), (50, false), (51, false)] {
        let mut recent = Recent::default();
        recent.hear(range(50, 60));
        recent.advance(SeqNumber(nxt));
        assert_eq!(!recent.as_slice().is_empty(), is_left, "{nxt}");
    }
}
