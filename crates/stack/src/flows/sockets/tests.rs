//! The socket table without connections: which sockets count as in use, and the limits of slots and
//! memory.

use ring::huge_pages::PageSource;
use ring::memory::ContextLimits;
use ring::{chunk, spsc};

use super::*;

const CHUNKS: u32 = 64;
const BUFFER_BYTES: u32 = 65_536;

fn table(sockets_max: usize) -> Sockets {
    let limits = Limits {
        sockets_max,
        warm_sockets: sockets_max,
        ..Limits::default()
    };
    let shared = ContextLimits {
        sockets_max: sockets_max as u32,
        small_chunks: CHUNKS,
        large_chunks: CHUNKS,
    };
    let mut source = PageSource::default();
    let (memory, pool) = chunk::create_memory(&shared, &mut source).unwrap();
    Sockets::new(memory, pool, &limits, BUFFER_BYTES, &mut source)
}

/// Takes a slot for each of `count` sockets. The slot's hash is set to the socket's index.
fn with_slots(sockets: &mut Sockets, count: usize) -> Vec<u32> {
    let take = |_| {
        let index = sockets.reserve().unwrap().index;
        sockets.slot(index).hash = u64::from(index) + 1;
        index
    };
    (0..count).map(take).collect()
}

fn release(sockets: &mut Sockets, gone: &[u32]) {
    for &socket in gone {
        sockets.release(socket);
    }
}

/// The lengths of the table of slots after each step of a round.
fn round(sockets: &mut Sockets) -> Vec<usize> {
    sockets.begin_round();
    let mut lengths = Vec::new();
    while sockets.go_round().is_some() {
        lengths.push(sockets.warm_slots().len());
    }
    lengths
}

#[test]
fn memory_is_judged_by_its_free_share() {
    let mut sockets = table(4);
    let each = ChunkClass::Small.data_bytes() + ChunkClass::Large.data_bytes();
    assert_eq!(sockets.memory_bytes(), u64::from(CHUNKS * each));
    for taken in 0..=CHUNKS {
        let expected = match CHUNKS - taken {
            0..4 => tcp::Memory::Exhausted,
            4..16 => tcp::Memory::Pressure,
            16..32 => tcp::Memory::Low,
            _ => tcp::Memory::Ample,
        };
        assert_eq!(sockets.judge_memory(), expected, "{taken} of {CHUNKS}");
        for class in [ChunkClass::Small, ChunkClass::Large] {
            assert_eq!(sockets.pool.take(class).is_some(), taken < CHUNKS);
        }
    }
}

#[test]
fn stock_takes_half_of_the_free_sockets() {
    let mut sockets = table(9);
    let (producer, mut app) = spsc::queue(8);
    let mut stock = Stock::new(producer);
    let mut left = Vec::new();
    for _ in 0..4 {
        sockets.refill(&mut stock);
        left.push(sockets.available());
    }
    // The stock takes half, rounded up, of the free sockets: 4 of 9, 2 of 5, 1 of 3, 1 of 2.
    assert_eq!(left, [5, 3, 2, 1]);
    sockets.refill(&mut stock);
    assert_eq!(sockets.available(), 1);
    let id = app.pop().unwrap();
    assert_eq!(sockets.span(), 8);
    assert!(!sockets.release(id.index));
    assert_eq!(sockets.available(), 2);
    // A freed index is reused before one that was never used.
    assert_eq!(sockets.reserve().map(|again| again.index), Some(id.index));
    assert!(sockets.reserve().is_some());
    assert_eq!((sockets.reserve(), sockets.available()), (None, 0));
    assert_eq!(sockets.span(), 9);
}

#[test]
fn index_has_the_role_of_its_slot() {
    let mut sockets = table(4);
    let id = sockets.reserve().unwrap();
    let socket = id.index;
    assert_eq!(sockets.role(socket), Role::Reserved);
    assert!(sockets.remembered(socket).is_none() && sockets.warm_slot(socket).is_none());
    assert_eq!((sockets.in_use(), sockets.warm_slots().len()), (0, 1));
    sockets.slot(socket).role = Role::Listener(0);
    assert_eq!(sockets.role(socket), Role::Listener(0));
    assert!(sockets.remembered(socket).is_some() && sockets.warm_slot(socket).is_some());
    assert_eq!((sockets.in_use(), sockets.warm_slots().len()), (1, 2));
    assert_eq!(sockets.resolve(id), Some(socket));
    sockets.slot(socket).bound = true;
    assert!(sockets.release(socket));
    assert_eq!(sockets.role(socket), Role::Free);
    assert!(sockets.remembered(socket).is_none());
    assert_eq!((sockets.in_use(), sockets.resolve(id)), (0, None));
    // A free index has slot 0, which cannot be freed.
    assert!(!sockets.release(socket));
    assert_eq!(sockets.available(), 4);
}

#[test]
fn index_that_was_never_used_names_no_socket() {
    let mut sockets = table(4);
    assert!(sockets.reserve().is_some());
    let unused = SocketId {
        index: 1,
        generation: sockets.block(1).generation(),
    };
    assert_eq!(sockets.resolve(unused), None);
    sockets.prefetch(unused.index);
}

#[test]
fn orphan_counts_once_and_until_it_is_released() {
    let mut sockets = table(4);
    let two = with_slots(&mut sockets, 2);
    for _ in 0..2 {
        two.iter().for_each(|&socket| sockets.orphan(socket));
        assert_eq!(sockets.orphans(), 2);
    }
    sockets.release(two[0]);
    assert_eq!(sockets.orphans(), 1);
    let again = with_slots(&mut sockets, 1);
    sockets.release(again[0]);
    assert_eq!(sockets.orphans(), 1);
}

#[test]
fn round_keeps_the_slots_in_use_and_some_spare_ones() {
    let mut sockets = table(2_048);
    let all = with_slots(&mut sockets, 1_000);
    let (gone, stay) = all.split_at(700);
    assert!(!sockets.has_unused());
    release(&mut sockets, gone);
    assert!(sockets.has_unused());
    // Slot 0, the slots in use and the spare ones stay.
    let kept = 1 + stay.len() + SLOTS_SPARE;
    assert_eq!(round(&mut sockets), [1_001 - SLOTS_PER_STEP, kept]);
    assert!(!sockets.has_unused());
    let is_whole = |sockets: &mut Sockets, of: &[u32]| {
        of.iter().all(|&socket| {
            let slot = sockets.slot(socket);
            (slot.socket, slot.hash) == (socket, u64::from(socket) + 1)
        })
    };
    assert!(is_whole(&mut sockets, stay));
    // The free slots are reused before the table grows.
    let more = with_slots(&mut sockets, SLOTS_SPARE);
    assert_eq!(sockets.warm_slots().len(), kept);
    assert!(is_whole(&mut sockets, stay) && is_whole(&mut sockets, &more));
    with_slots(&mut sockets, 1);
    assert_eq!(sockets.warm_slots().len(), kept + 1);
}

#[test]
fn round_returns_what_the_round_before_did_not_need_either() {
    let mut sockets = table(2_048);
    let all = with_slots(&mut sockets, 600);
    assert!(round(&mut sockets).is_empty());
    release(&mut sockets, &all);
    // 600 slots were in use when the last round began.
    assert!(round(&mut sockets).is_empty());
    let kept = 1 + SLOTS_SPARE;
    assert_eq!(round(&mut sockets), [601 - SLOTS_PER_STEP, kept]);
    assert!(round(&mut sockets).is_empty());
}

#[test]
fn round_ends_when_more_are_in_use_than_would_stay() {
    let in_use_later = |more: usize| {
        let mut sockets = table(2_048);
        let all = with_slots(&mut sockets, 600);
        release(&mut sockets, &all[..300]);
        sockets.begin_round();
        let kept = 1 + 300 + SLOTS_SPARE;
        with_slots(&mut sockets, more);
        assert_eq!(sockets.warm_slots().len(), 601);
        sockets
            .go_round()
            .map(|_| sockets.warm_slots().len() == kept)
    };
    assert_eq!(in_use_later(SLOTS_SPARE), Some(true));
    assert_eq!(in_use_later(SLOTS_SPARE + 1), None);
}

#[test]
fn round_of_a_large_table_takes_a_share_in_each_step() {
    let len = SLOTS_STEP_SHARE * SLOTS_PER_STEP * 2;
    let mut sockets = table(len);
    let all = with_slots(&mut sockets, len - 1);
    release(&mut sockets, &all);
    sockets.begin_round();
    assert!(sockets.go_round().is_some());
    assert_eq!(sockets.warm_slots().len(), len - 2 * SLOTS_PER_STEP);
}
