//! Chunks are taken and given while rounds return pages. A chunk in use keeps its bytes, and the
//! memory held follows its use.

use super::*;
use crate::chunk::{self, ChunkPool};
use crate::huge_pages::PageSource;
use crate::memory::ContextLimits;
use crate::raw::{RawSlice, RawSliceMut};

const CLASSES: [ChunkClass; 2] = [ChunkClass::Small, ChunkClass::Large];
const SMALL: u32 = if cfg!(miri) { 512 } else { 8_192 };
const LARGE: u32 = if cfg!(miri) { 300 } else { 2_048 };
/// Bytes that may stay resident: the chunks of both classes that stay ready, each on a page of its
/// own.
const KEPT_BYTES: u64 = 2 * READY_CHUNKS_KEPT as u64 * 4_096;

fn pool() -> ChunkPool {
    let limits = ContextLimits {
        sockets_max: 2,
        small_chunks: SMALL,
        large_chunks: LARGE,
    };
    chunk::create_memory(&limits, &mut PageSource::default())
        .unwrap()
        .1
}

/// Writes a chunk's id into its first and its last bytes.
fn stamp(pool: &ChunkPool, id: ChunkId) {
    for offset in [0, id.data_bytes() - 4] {
        let name = id.word().to_ne_bytes();
        pool.memory().copy_in(id, offset, RawSlice::from(&name[..]));
    }
}

fn check(pool: &ChunkPool, id: ChunkId) {
    for offset in [0, id.data_bytes() - 4] {
        let mut name = [0; 4];
        pool.memory()
            .copy_out(id, offset, RawSliceMut::from(&mut name[..]));
        assert_eq!(u32::from_ne_bytes(name), id.word());
    }
}

fn take_all(pool: &mut ChunkPool) -> Vec<ChunkId> {
    let mut taken = Vec::new();
    for class in CLASSES {
        while let Some(id) = pool.take(class) {
            stamp(pool, id);
            taken.push(id);
        }
        assert_eq!(pool.free(class), 0);
    }
    assert_eq!(taken.len() as u32, SMALL + LARGE);
    taken
}

/// Runs a whole round; returns the bytes that went back.
fn round(pool: &mut ChunkPool) -> u64 {
    pool.begin_round();
    let mut bytes = 0;
    while let Some(some) = pool.go_round() {
        bytes += some;
    }
    bytes
}

/// True if this machine returns pages of 4 KiB.
fn returns(pool: &ChunkPool) -> bool {
    !cfg!(miri) && pool.memory().units(ChunkClass::Large).chunks == 1
}

#[test]
fn pool_unused_for_a_round_returns_its_pages_and_serves_again() {
    let mut pool = pool();
    assert!(!pool.has_unused());
    for crowd in 0..2 {
        let taken = take_all(&mut pool);
        let full = pool.memory().resident_bytes();
        taken.iter().for_each(|&id| check(&pool, id));
        taken.into_iter().for_each(|id| pool.give(id));
        // Miri's memory refuses to return a page, and a pool asks no more after a refusal.
        assert_eq!(pool.has_unused(), crowd == 0 || !cfg!(miri));
        // Chunks that were used since the last round do not count as unused.
        assert_eq!(round(&mut pool), 0);
        let returned = round(&mut pool);
        if returns(&pool) {
            let resident = pool.memory().resident_bytes();
            assert_eq!(full - resident, returned);
            assert!(resident <= KEPT_BYTES + 4_096, "{resident}");
        }
        assert!(!pool.has_unused());
        assert_eq!(pool.free(ChunkClass::Small), SMALL);
        assert_eq!(pool.free(ChunkClass::Large), LARGE);
    }
}

/// The last page of small chunks is cut short, and stays.
#[test]
fn pool_that_ends_within_a_page_ends_its_rounds() {
    let limits = ContextLimits {
        sockets_max: 2,
        small_chunks: 1_000,
        large_chunks: 301,
    };
    let mut pool = chunk::create_memory(&limits, &mut PageSource::default())
        .unwrap()
        .1;
    let mut taken = Vec::new();
    taken.extend(core::iter::from_fn(|| pool.take(ChunkClass::Small)));
    taken.into_iter().rev().for_each(|id| pool.give(id));
    round(&mut pool);
    round(&mut pool);
    assert!(!pool.has_unused());
    assert_eq!(pool.free(ChunkClass::Small), 1_000);
}

#[test]
fn page_with_a_chunk_in_use_stays() {
    let mut pool = pool();
    let taken = take_all(&mut pool);
    let (kept, given): (Vec<_>, Vec<_>) = taken.into_iter().partition(|id| id.index() % 48 == 5);
    given.into_iter().for_each(|id| pool.give(id));
    round(&mut pool);
    round(&mut pool);
    kept.iter().for_each(|&id| check(&pool, id));
    kept.into_iter().for_each(|id| pool.give(id));
}

#[test]
fn chunk_taken_between_rounds_is_not_returned() {
    let mut pool = pool();
    take_all(&mut pool).into_iter().for_each(|id| pool.give(id));
    round(&mut pool);
    // More chunks than are ready, so that the rest comes from those put aside.
    let mut again = Vec::new();
    for _ in 0..SMALL - 40 {
        let id = pool.take(ChunkClass::Small).unwrap();
        stamp(&pool, id);
        again.push(id);
    }
    round(&mut pool);
    again.iter().for_each(|&id| check(&pool, id));
    assert_eq!(pool.free(ChunkClass::Small), 40);
}

#[test]
fn pool_in_use_for_ever_keeps_every_chunk_apart() {
    let mut pool = pool();
    let mut out: Vec<ChunkId> = Vec::new();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let steps = if cfg!(miri) { 500 } else { 40_000 };
    for step in 0..steps {
        // The crowd grows and shrinks.
        let grows = (step / 2_000) % 2 == 0;
        for _ in 0..random(24) {
            if (random(8) != 0) == grows {
                let class = CLASSES[random(2) as usize];
                let Some(id) = pool.take(class) else { continue };
                stamp(&pool, id);
                out.push(id);
            } else if !out.is_empty() {
                let at = random(out.len() as u64) as usize;
                let id = out.swap_remove(at);
                check(&pool, id);
                pool.give(id);
            }
        }
        match random(8) {
            0 => pool.begin_round(),
            _ => {
                let _ = pool.go_round();
            }
        }
        let free = pool.free(ChunkClass::Small) + pool.free(ChunkClass::Large);
        assert_eq!(free + out.len() as u32, SMALL + LARGE);
    }
    out.into_iter().for_each(|id| check(&pool, id));
}
