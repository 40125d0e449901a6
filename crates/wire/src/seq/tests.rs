//! Sequence numbers next to the wrap, where plain comparison goes wrong.

use super::SeqNumber;
use proptest::prelude::*;

const HALF: u32 = 1 << 31;

#[test]
fn order_holds_across_the_wrap() {
    let old = SeqNumber(u32::MAX);
    let new = SeqNumber(0);
    assert!(old.lt(new) && old.le(new) && !old.gt(new) && !old.ge(new));
    assert!(new.gt(old) && new.ge(old) && !new.lt(old) && !new.le(old));
    assert_eq!(old.max(new), new);
    assert_eq!(old.min(new), old);
}

#[test]
fn equal_numbers_are_neither_before_nor_after() {
    let a = SeqNumber(7);
    assert!(a.le(a) && a.ge(a) && !a.lt(a) && !a.gt(a));
    assert_eq!((a.max(a), a.min(a)), (a, a));
}

#[test]
fn window_of_zero_holds_nothing() {
    assert!(!SeqNumber(5).in_window(SeqNumber(5), 0));
}

#[test]
fn window_larger_than_half_the_circle_is_exact() {
    let left = SeqNumber(10);
    assert!((left + (HALF + 5)).in_window(left, HALF + 6));
    assert!(!(left + (HALF + 5)).in_window(left, HALF + 5));
    assert!(!(left - 1).in_window(left, u32::MAX));
}

#[test]
fn assignment_wraps() {
    let mut a = SeqNumber(u32::MAX);
    a += 2;
    assert_eq!(a, SeqNumber(1));
    a -= 3;
    assert_eq!(a, SeqNumber(u32::MAX - 1));
}

proptest! {
    #[test]
    fn what_lies_less_than_half_ahead_is_later(start: u32, ahead in 1..HALF) {
        let (a, b) = (SeqNumber(start), SeqNumber(start) + ahead);
        prop_assert!(a.lt(b) && b.gt(a) && a.le(b) && b.ge(a));
        prop_assert_eq!(b.since(a), ahead);
        prop_assert_eq!(b - ahead, a);
        prop_assert_eq!((a.max(b), a.min(b)), (b, a));
    }

    #[test]
    fn window_holds_what_its_distance_says(left: u32, len: u32, at: u32) {
        let inside = SeqNumber(at).in_window(SeqNumber(left), len);
        prop_assert_eq!(inside, u64::from(at.wrapping_sub(left)) < u64::from(len));
    }
}
