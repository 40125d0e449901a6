//! The flow table at its limits, and in comparison with a map.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

#[test]
fn empty_find_gives_nothing() {
    assert_eq!(
        FlowTable::new(16, &mut PageSource::default()).find(7, |_| true),
        None
    );
}

#[test]
fn full_insert_is_refused_and_works_again_after_a_removal() {
    let mut table = FlowTable::new(8, &mut PageSource::default());
    for index in 0..8 {
        assert_eq!(table.insert(42, FlowEntry::Connection(index)), Ok(()));
    }
    assert_eq!(
        table.insert(42, FlowEntry::Connection(8)),
        Err(FlowTableFull)
    );
    assert!(table.remove(42, FlowEntry::Connection(3)));
    assert_eq!(table.insert(42, FlowEntry::Connection(8)), Ok(()));
}

#[test]
fn same_hash_entries_are_told_apart_by_their_keys() {
    let mut table = FlowTable::new(64, &mut PageSource::default());
    for index in 0..30 {
        table
            .insert(0xdead_beef_0000_0001, FlowEntry::HalfOpen(index))
            .unwrap();
    }
    let found = table.find(0xdead_beef_0000_0001, |entry| {
        entry == FlowEntry::HalfOpen(29)
    });
    assert_eq!(found, Some(FlowEntry::HalfOpen(29)));
}

#[test]
fn flood_of_one_bucket_is_refused_where_a_look_up_would_get_long() {
    let mut table = FlowTable::new(4_096, &mut PageSource::default());
    let places = (FLOW_PROBES_MAX * WAYS) as u32;
    for index in 0..places {
        assert_eq!(table.insert(7, FlowEntry::Connection(index)), Ok(()));
    }
    let one_more = FlowEntry::Connection(places);
    assert_eq!(table.insert(7, one_more), Err(FlowTableFull));
    let last = FlowEntry::Connection(places - 1);
    assert_eq!(table.find(7, |entry| entry == last), Some(last));
    assert!(table.remove(7, FlowEntry::Connection(0)));
    assert_eq!(table.insert(7, one_more), Ok(()));
    for index in 1..=places {
        assert!(table.remove(7, FlowEntry::Connection(index)));
    }
    assert!(
        table
            .buckets
            .iter()
            .all(|bucket| bucket.overflow == 0 && bucket.tags == [0; WAYS])
    );
}

#[test]
fn likely_entry_is_the_one_that_is_found() {
    let mut table = FlowTable::new(64, &mut PageSource::default());
    assert_eq!(table.likely(5 << 48), None);
    table.insert(5 << 48, FlowEntry::TimeWait(3)).unwrap();
    table.prefetch(5 << 48);
    assert_eq!(table.likely(5 << 48), Some(FlowEntry::TimeWait(3)));
    assert_eq!(table.likely(8 << 48), None);
}

#[test]
fn replaced_entry_changes_its_kind_in_place() {
    let mut table = FlowTable::new(64, &mut PageSource::default());
    table.insert(5, FlowEntry::HalfOpen(1)).unwrap();
    assert!(table.replace(5, FlowEntry::HalfOpen(1), FlowEntry::Connection(9)));
    assert!(!table.replace(5, FlowEntry::HalfOpen(1), FlowEntry::Connection(9)));
    assert_eq!(table.find(5, |_| true), Some(FlowEntry::Connection(9)));
    assert_eq!(table.len(), 1);
}

proptest! {
    /// Compares the table with a map. Few distinct hashes make buckets overflow, and all overflow
    /// counts return to zero at the end.
    #[test]
    fn agrees_with_a_map(steps in proptest::collection::vec((0u64..24, any::<bool>()), 1..400)) {
        let mut table = FlowTable::new(64, &mut PageSource::default());
        let mut oracle: HashMap<u64, u32> = HashMap::new();
        for (n, (key, add)) in steps.into_iter().enumerate() {
            let hash = ((key % 3) << 49) | (key % 2);
            if add && !oracle.contains_key(&key) {
                table.insert(hash, FlowEntry::Connection(n as u32)).unwrap();
                oracle.insert(key, n as u32);
            } else if let Some(index) = oracle.remove(&key) {
                prop_assert!(table.remove(hash, FlowEntry::Connection(index)));
            }
            prop_assert_eq!(table.len(), oracle.len());
            for (&key, &index) in &oracle {
                let hash = ((key % 3) << 49) | (key % 2);
                let found = table.find(hash, |entry| entry == FlowEntry::Connection(index));
                prop_assert_eq!(found, Some(FlowEntry::Connection(index)));
            }
        }
        for (key, index) in oracle {
            prop_assert!(table.remove(((key % 3) << 49) | (key % 2), FlowEntry::Connection(index)));
        }
        prop_assert!(table.buckets.iter().all(|bucket| bucket.overflow == 0 && bucket.tags == [0; WAYS]));
    }
}
