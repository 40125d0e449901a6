//! The timer wheel, alone and compared with a sorted map.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const MS: u64 = TICK_NS;

#[test]
fn idle_poll_gives_nothing() {
    let mut wheel = Wheel::new(4, 0, &mut PageSource::default());
    assert_eq!(wheel.poll(10_000 * MS), None);
    assert_eq!(wheel.next_ns(), None);
}

#[test]
fn set_entry_fires_at_its_tick_and_not_before() {
    let mut wheel = Wheel::new(4, 5 * MS, &mut PageSource::default());
    wheel.set_at_latest(2, 205 * MS + 1);
    assert_eq!(wheel.poll(205 * MS), None);
    assert_eq!(wheel.poll(206 * MS), Some(2));
    assert_eq!(wheel.poll(999 * MS), None);
}

/// 2^32 milliseconds are about fifty days.
#[test]
fn ticks_beyond_a_word_are_told_apart() {
    let mut now_ns = (u64::from(u32::MAX) - 3) * MS;
    let mut wheel = Wheel::new(4, now_ns, &mut PageSource::default());
    for _ in 0..8 {
        wheel.set_at_latest(2, now_ns + MS);
        assert_eq!(wheel.next_ns(), Some(now_ns + MS));
        assert_eq!(wheel.poll(now_ns), None);
        now_ns += MS;
        assert_eq!(wheel.poll(now_ns), Some(2));
    }
}

#[test]
fn set_entry_moves_earlier_but_not_later() {
    let mut wheel = Wheel::new(4, 0, &mut PageSource::default());
    wheel.set_at_latest(0, 100 * MS);
    wheel.set_at_latest(0, 500 * MS);
    assert_eq!(
        wheel.next_ns(),
        Some(64 * MS),
        "the slot's beginning, from where it descends"
    );
    assert_eq!(wheel.poll(100 * MS), Some(0));
    wheel.set_at_latest(0, 500 * MS);
    wheel.set_at_latest(0, 120 * MS);
    assert_eq!(wheel.poll(120 * MS), Some(0));
}

#[test]
fn stopped_entry_stays_silent() {
    let mut wheel = Wheel::new(4, 0, &mut PageSource::default());
    wheel.set_at_latest(0, 7 * MS);
    wheel.set_at_latest(1, 7 * MS);
    wheel.set_at_latest(3, 7 * MS);
    wheel.stop(1);
    wheel.stop(2);
    let mut fired = [wheel.poll(7 * MS), wheel.poll(7 * MS)];
    fired.sort();
    assert_eq!(fired, [Some(0), Some(3)]);
    assert_eq!(wheel.poll(7 * MS), None);
}

#[test]
fn entry_beyond_reach_is_held_until_it_is_near() {
    let mut wheel = Wheel::new(1, 0, &mut PageSource::default());
    wheel.set_at_latest(0, u64::MAX / 2);
    assert!(wheel.next_ns().is_some());
    assert_eq!(wheel.poll(1000 * MS), None);
}

/// Starting times: some time after the machine's start, and just before each level's turn ends. The
/// highest level's turn ends after 795 days.
fn beginnings() -> impl Strategy<Value = u64> {
    (0..=LEVELS as u32, 1u64..300_000)
        .prop_map(|(level, before)| (1u64 << (SLOT_BITS * level)).saturating_sub(before) + 17)
}

#[test]
fn entry_set_on_the_last_tick_of_the_highest_level_fires() {
    let end = 1u64 << (SLOT_BITS * LEVELS as u32);
    let mut wheel = Wheel::new(4, (end - 1) * MS, &mut PageSource::default());
    wheel.set_at_latest(0, (end + 200) * MS);
    wheel.set_at_latest(1, u64::MAX / 2);
    assert_eq!(wheel.poll((end + 199) * MS), None);
    assert_eq!(wheel.poll((end + 200) * MS), Some(0));
    assert_eq!(wheel.poll((end + 201) * MS), None);
    assert_eq!(wheel.poll((end + AHEAD_MAX) * MS), Some(1));
}

proptest! {
    /// Compares the wheel with a sorted map over jumps of every size: exactly the due entries fire,
    /// in any order within one poll.
    #[test]
    fn agrees_with_a_sorted_map(beginning in beginnings(), steps in proptest::collection::vec((0u32..32, 0u64..3_000_000, 0u64..200_000, 0u8..4), 1..200)) {
        let mut now = beginning;
        let mut wheel = Wheel::new(32, now * MS, &mut PageSource::default());
        let mut oracle: BTreeMap<u32, u64> = BTreeMap::new();
        for (entry, ahead, jump, what) in steps {
            match what {
                0 => { wheel.stop(entry); oracle.remove(&entry); }
                1 | 2 => {
                    let tick = now + ahead % (1 << (ahead % 22));
                    wheel.set_at_latest(entry, tick * MS);
                    let earliest = oracle.get(&entry).map_or(tick, |&set| set.min(tick));
                    oracle.insert(entry, earliest);
                }
                _ => {
                    now += jump;
                    let mut fired = Vec::new();
                    while let Some(entry) = wheel.poll(now * MS) { fired.push(entry); }
                    fired.sort();
                    let due: Vec<u32> = oracle.iter().filter(|(_, t)| **t <= now).map(|(e, _)| *e).collect();
                    prop_assert_eq!(&fired, &due);
                    oracle.retain(|_, tick| *tick > now);
                }
            }
            if let Some(first) = oracle.values().min() {
                let next = wheel.next_ns().expect("something is set") / MS;
                prop_assert!(next <= (*first).max(now), "next {} first {}", next, first);
            } else {
                prop_assert_eq!(wheel.next_ns(), None);
            }
        }
    }
}
