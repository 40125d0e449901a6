//! One set of the table, and which entry is displaced.

use super::*;

const fn kept(member: usize, rank: Rank) -> FlowOwner {
    FlowOwner { member, rank }
}

/// The hash of flow `number` of the only set.
const fn hash(number: u64) -> u64 {
    number << 9
}

#[test]
fn flow_kept_is_found_until_its_place_is_needed() {
    let mut flows = Flows::new(WAYS);
    assert_eq!(flows.find(hash(1)), None);
    assert_eq!(flows.find(0), None, "a free place is no flow");
    flows.keep(hash(1), kept(47, Rank::Doubtful));
    assert_eq!(flows.find(hash(1)), Some(kept(47, Rank::Doubtful)));
    flows.keep(hash(1), kept(3, Rank::Open));
    assert_eq!(flows.find(hash(1)), Some(kept(3, Rank::Open)));
}

#[test]
fn set_full_ended_gives_way_before_doubtful_before_open_and_the_oldest_first() {
    let mut flows = Flows::new(WAYS);
    for number in 0..8 {
        let rank = match number {
            1 | 6 => Rank::Doubtful,
            4 => Rank::Ended,
            _ => Rank::Open,
        };
        assert_eq!(flows.keep(hash(number), kept(number as usize, rank)), None);
    }
    let newest = kept(9, Rank::Open);
    let whose: Vec<_> = (8..12).map(|n| flows.keep(hash(n), newest)).collect();
    assert_eq!(whose, [None, Some(1), Some(6), Some(0)]);
    for gone in [4, 1, 6, 0] {
        assert_eq!(flows.find(hash(gone)), None);
    }
    for here in [2, 3, 5, 7, 8, 9, 10, 11] {
        assert!(flows.find(hash(here)).is_some(), "{here}");
    }
}

#[test]
fn set_flooded_with_syns_keeps_what_is_open() {
    let mut flows = Flows::new(WAYS);
    for number in 0..1000 {
        let is_open = number < 7;
        let rank = if is_open { Rank::Open } else { Rank::Doubtful };
        let whose = flows.keep(hash(number), kept(1, rank));
        assert_eq!(whose.is_some(), number > 7, "an address made up gives way");
    }
    assert!((0..7).all(|number| flows.find(hash(number)).is_some()));
    flows.keep(hash(7), kept(1, Rank::Open));
    for number in 1000..2000 {
        assert_eq!(flows.keep(hash(number), kept(1, Rank::Doubtful)), None);
        assert_eq!(flows.find(hash(number)), None, "there is no place for it");
    }
}

#[test]
fn flows_at_half_the_limit_are_hardly_ever_forgotten() {
    const FLOWS: u64 = 1 << 14;
    let mut flows = Flows::new(2 * FLOWS as usize);
    let random = RandomState::new();
    let forgotten = (0..FLOWS).filter(|number| {
        let hash = random.hash_one(number);
        flows.keep(hash, kept(0, Rank::Open)).is_some()
    });
    let forgotten = forgotten.count() as u64;
    assert!(forgotten < FLOWS / 50, "{forgotten} of {FLOWS}");
}
