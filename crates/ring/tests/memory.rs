//! The memory file, its limits, blocks, pool and magazine.
#![cfg(not(loom))]

mod common;

use common::{assert_full, memory};
use ring::chunk::{self, ChunkClass, magazine};
use ring::huge_pages::{HugePages, PageSource};
use ring::memory::{ContextLimits, MemoryError};
use ring::socket_block::{Name, Requests, SOCKET_BLOCK_BYTES, SocketBlock, SocketId, SocketState};

#[test]
fn limits_are_checked() {
    let good = ContextLimits {
        sockets_max: 1,
        small_chunks: 1,
        large_chunks: 1,
    };
    assert!(chunk::create_memory(&good, &mut PageSource::default()).is_ok());
    for bad in [
        ContextLimits {
            sockets_max: 0,
            ..good
        },
        ContextLimits {
            small_chunks: 0,
            ..good
        },
        ContextLimits {
            large_chunks: 0,
            ..good
        },
        ContextLimits {
            sockets_max: u32::MAX,
            ..good
        },
        ContextLimits {
            small_chunks: u32::MAX,
            ..good
        },
    ] {
        assert_eq!(
            chunk::create_memory(&bad, &mut PageSource::default()).err(),
            Some(MemoryError::Limits)
        );
    }
}

#[test]
#[cfg_attr(miri, ignore = "no memfd under Miri")]
fn file_has_its_size_with_and_without_huge_pages() {
    let limits = ContextLimits::default();
    for rule in [HugePages::Auto, HugePages::Transparent, HugePages::Off] {
        let source = &mut PageSource::new(rule);
        let (memory, pool) = chunk::create_memory(&limits, source).expect("a file");
        let fd = memory.fd().expect("a file");
        let size = rustix::fs::fstat(fd).expect("fstat").st_size as usize;
        assert_eq!(size, memory.bytes());
        let held = source.held();
        let counted = held.hugetlb_bytes + held.thp_bytes + held.ordinary_bytes;
        assert_eq!(counted, size as u64);
        assert!(rule == HugePages::Auto || held.hugetlb_bytes == 0);
        assert!(rule != HugePages::Off || held.ordinary_bytes == counted);
        assert!(memory.block(limits.sockets_max - 1).is_some());
        assert!(memory.block(limits.sockets_max).is_none());
        assert_eq!(pool.free(ChunkClass::Large), limits.large_chunks);
    }
}

#[test]
#[cfg_attr(miri, ignore = "no madvise under Miri")]
fn prefault_leaves_zeros() {
    let (memory, _pool) = memory(16, 16);
    memory.prefault();
    assert_eq!(memory.block(3).unwrap().generation(), 0);
}

#[test]
fn stale_id_does_not_resolve() {
    let (memory, _pool) = memory(1, 1);
    let block = memory.block(2).unwrap();
    let generation = block.open(10);
    let id = SocketId {
        index: 2,
        generation,
    };
    assert!(memory.resolve(id).is_some());
    block.retire();
    assert!(memory.resolve(id).is_none() && block.state().contains(SocketState::CLOSED));
    assert_ne!(block.open(10), generation);
    assert!(memory.resolve(id).is_none());
    assert!(memory.resolve(SocketId { index: 99, ..id }).is_none());
}

#[test]
fn blocks_do_not_overlap() {
    let (memory, _pool) = memory(1, 1);
    let address = |index| core::ptr::from_ref(memory.block(index).unwrap()) as usize;
    assert_eq!(address(1) - address(0), SOCKET_BLOCK_BYTES);
    assert_eq!(address(0) % align_of::<SocketBlock>(), 0);
}

#[test]
fn block_carries_state_edges_names_requests_and_owner() {
    let (memory, _pool) = memory(1, 1);
    let block = memory.block(0).unwrap();
    block.open(10);
    let name = |byte: u8, port| Name {
        address: core::array::from_fn(|i| byte.wrapping_add(i as u8)),
        port,
    };
    block.set_names(name(1, 80), name(200, 65535));
    assert_eq!(block.names(), (name(1, 80), name(200, 65535)));
    block.add_state(SocketState::CONNECTED | SocketState::EOF);
    block.fail(104);
    block.fail(110);
    let state = block.state();
    assert!(state.contains(SocketState::CONNECTED | SocketState::EOF | SocketState::FAILED));
    assert_eq!(state.errno(), 104);
    assert!(!state.intersects(SocketState::CLOSED | SocketState::TX_SHUT));
    block.add_in_edge();
    block.add_out_edge();
    block.add_out_edge();
    assert_eq!((block.in_edges(), block.out_edges()), (1, 2));
    assert!(block.request(Requests::WROTE));
    assert!(!block.request(Requests::READ | Requests::CLOSE));
    let requests = block.take_requests();
    assert!(requests.contains(Requests::WROTE | Requests::READ | Requests::CLOSE));
    assert!(!requests.contains(Requests::ABORT) && block.take_requests().is_empty());
    block.set_want_writable();
    assert!(block.take_want_writable() && !block.take_want_writable());
    assert!(block.try_own(7) && block.try_own(7) && !block.try_own(8));
    assert_eq!(block.owner(), 7);
    block.disown();
    assert!(block.try_own(8));
    block.open(10);
    assert_eq!((block.state(), block.owner()), (SocketState::default(), 0));
}

#[test]
fn pool_hands_out_each_chunk_once() {
    let (_memory, mut pool) = memory(3, 2);
    let mut taken = Vec::new();
    while let Some(id) = pool.take_any(ChunkClass::Small) {
        assert!(!taken.contains(&id));
        taken.push(id);
    }
    assert_eq!(taken.len(), 5);
    assert_eq!(taken[4].class(), ChunkClass::Large);
    taken.into_iter().for_each(|id| pool.give(id));
    assert_full(&pool);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "freed twice")]
fn double_free_is_caught_in_debug_builds() {
    let (_memory, mut pool) = memory(3, 2);
    let id = pool.take(ChunkClass::Small).unwrap();
    pool.give(id);
    pool.give(id);
}

#[test]
fn magazine_is_filled_up_and_given_back() {
    let (_memory, mut pool) = memory(6, 3);
    let (mut feed, mut magazine) = magazine(4, 2);
    assert!(magazine.is_empty() && feed.is_empty());
    assert_eq!(feed.refill(&mut pool), 6);
    assert_eq!(feed.refill(&mut pool), 0);
    let mut used = Vec::new();
    for _ in 0..5 {
        used.extend(magazine.take(ChunkClass::Small));
    }
    assert_eq!((used.len(), magazine.len(ChunkClass::Large)), (5, 1));
    assert_eq!(feed.refill(&mut pool), 3);
    assert_eq!(
        pool.free(ChunkClass::Small) + pool.free(ChunkClass::Large),
        0
    );
    used.into_iter().for_each(|id| pool.give(id));
    feed.reclaim(magazine, &mut pool);
    assert_full(&pool);
}

#[test]
fn magazine_knows_whether_the_pool_had_more_for_it() {
    let (_memory, mut pool) = memory(6, 3);
    let (mut feed, mut magazine) = magazine(4, 2);
    let mut used = Vec::new();
    for (left, is_dry) in [(3, false), (0, true), (0, true)] {
        feed.refill(&mut pool);
        let free = pool.free(ChunkClass::Small) + pool.free(ChunkClass::Large);
        assert_eq!((free, magazine.is_pool_dry()), (left, is_dry));
        used.extend(std::iter::from_fn(|| magazine.take(ChunkClass::Small)));
    }
    // All chunks come back, more than the magazine has room for.
    used.into_iter().for_each(|id| pool.give(id));
    assert!(magazine.is_pool_dry());
    feed.refill(&mut pool);
    assert!(!magazine.is_pool_dry());
    feed.reclaim(magazine, &mut pool);
    assert_full(&pool);
}
