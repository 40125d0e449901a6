//! Every interleaving of contexts that add, remove and look up flows in the table of their owners,
//! and of the hand-over of a frame between two of them.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p ring --test loom_flow_owners`
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;

use ring::flow_owners::FlowOwners;
use ring::spsc::queue;

/// Places of the smallest table: one set, which is both sets of every flow.
const PLACES: u64 = 8;

/// A flow's hash, different for each number.
fn flow(number: u64) -> u64 {
    (number + 1) << 40
}

/// The smallest table, in which context 63 has `taken` flows from number 100 on.
fn table(taken: u64) -> Arc<FlowOwners> {
    let owners = FlowOwners::new(1);
    assert!((0..taken).all(|number| owners.insert(flow(100 + number), 63)));
    Arc::new(owners)
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn free_places_two_contexts_that_add_take_different_ones() {
    check(|| {
        let owners = table(PLACES - 2);
        let theirs = owners.clone();
        let other = thread::spawn(move || theirs.insert(flow(1), 1));
        assert!(owners.insert(flow(0), 0));
        assert!(other.join().unwrap());
        assert_eq!(owners.find(flow(0)), Some(0));
        assert_eq!(owners.find(flow(1)), Some(1));
    });
}

#[test]
fn last_place_one_of_two_contexts_gets_it_and_the_other_is_told() {
    check(|| {
        let owners = table(PLACES - 1);
        let theirs = owners.clone();
        let other = thread::spawn(move || theirs.insert(flow(1), 1));
        let got = [owners.insert(flow(0), 0), other.join().unwrap()];
        assert_ne!(got[0], got[1]);
        assert_eq!(owners.find(flow(0)), got[0].then_some(0));
        assert_eq!(owners.find(flow(1)), got[1].then_some(1));
    });
}

#[test]
fn flow_that_stays_is_found_while_others_come_and_go() {
    check(|| {
        let owners = table(PLACES - 2);
        assert!(owners.insert(flow(0), 0) && owners.insert(flow(1), 1));
        let theirs = owners.clone();
        let other = thread::spawn(move || {
            // The place is free for a moment, and then another flow takes it.
            assert!(theirs.remove(flow(1), 1));
            assert!(theirs.insert(flow(2), 1));
        });
        assert_eq!(owners.find(flow(0)), Some(0));
        let found = [owners.find(flow(1)), owners.find(flow(2))];
        assert!(found.iter().flatten().all(|&owner| owner == 1));
        other.join().unwrap();
        assert_eq!(owners.find(flow(0)), Some(0));
        assert_eq!(
            (owners.find(flow(1)), owners.find(flow(2))),
            (None, Some(1))
        );
    });
}

/// Copies of a SYN reach two contexts at once, and both begin a handshake.
#[test]
fn same_flow_twice_ends_with_the_one_that_keeps_it() {
    check(|| {
        let owners = table(PLACES - 2);
        let theirs = owners.clone();
        let other = thread::spawn(move || {
            assert!(theirs.insert(flow(0), 1));
            assert!(theirs.remove(flow(0), 1));
        });
        assert!(owners.insert(flow(0), 0));
        assert!(owners.find(flow(0)).is_some());
        other.join().unwrap();
        assert_eq!(owners.find(flow(0)), Some(0));
    });
}

/// A TIME_WAIT entry gives way to a new SYN, which goes to another context that listens.
#[test]
fn flow_handed_over_is_the_receivers_when_its_frame_arrives() {
    check(|| {
        // The set is full: the receiver needs exactly the place that the sender has freed.
        let owners = table(PLACES - 1);
        assert!(owners.insert(flow(0), 0));
        let (mut frames, mut arrived) = queue::<u64>(2);
        let theirs = owners.clone();
        let receiver = thread::spawn(move || {
            let Some(hash) = arrived.pop() else {
                return false;
            };
            assert_eq!(theirs.find(hash), None);
            assert!(theirs.insert(hash, 1));
            assert_eq!(theirs.find(hash), Some(1));
            true
        });
        assert!(owners.remove(flow(0), 0));
        frames.push(flow(0)).unwrap();
        let is_seen = owners.find(flow(0));
        assert!(
            is_seen.is_none_or(|owner| owner == 1),
            "not its own any more"
        );
        let is_taken = receiver.join().unwrap();
        assert_eq!(owners.find(flow(0)), is_taken.then_some(1));
    });
}

#[test]
fn context_gone_its_flows_are_nobodys_and_those_of_others_stay() {
    check(|| {
        let owners = table(PLACES - 3);
        assert!(owners.insert(flow(1), 1) && owners.insert(flow(2), 1));
        let theirs = owners.clone();
        let gone = thread::spawn(move || theirs.forget(1));
        assert!(owners.insert(flow(0), 0));
        assert_eq!(owners.find(flow(0)), Some(0));
        gone.join().unwrap();
        assert_eq!(owners.find(flow(0)), Some(0));
        assert_eq!((owners.find(flow(1)), owners.find(flow(2))), (None, None));
    });
}
