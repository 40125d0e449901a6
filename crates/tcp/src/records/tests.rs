//! Chains of records, compared with a naive model: one entry per segment.

use std::vec::Vec;

use wire::SeqNumber;

use super::{Chain, NONE, Record, RecordPool, tag};

const MSS: u16 = 1000;

/// A small, seeded generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// The chain as single segments: sequence number, end, tags.
fn segments(chain: &Chain, pool: &RecordPool) -> Vec<(u32, u32, u16)> {
    let mut all = Vec::new();
    let mut at = chain.head;
    let mut prev = NONE;
    while let Some(record) = pool.get(at) {
        assert_eq!(pool.prev(at), prev, "links");
        let mut seq = record.seq;
        while seq.lt(record.end) {
            let end = (seq + u32::from(MSS)).min(record.end);
            all.push((seq.0, end.0, record.tags));
            seq = end;
        }
        prev = at;
        at = pool.next(at);
    }
    assert_eq!(chain.tail, prev, "tail");
    all
}

fn record(seq: u32, len: u32, sent_ns: u64) -> Record {
    Record::new(SeqNumber(seq), SeqNumber(seq) + len, MSS, sent_ns, 0)
}

/// Pushes a record as a connection does when a segment has left.
fn push(chain: &mut Chain, pool: &mut RecordPool, record: Record, joins: bool) -> u32 {
    match chain.push(pool, record, joins) {
        Some(count) => count,
        None => chain.swallow(pool, record),
    }
}

/// The record that holds `seq`.
fn find(chain: &Chain, pool: &RecordPool, seq: u32) -> u32 {
    let mut at = chain.head;
    while let Some(record) = pool.get(at) {
        if record.end.gt(SeqNumber(seq)) {
            return at;
        }
        at = pool.next(at);
    }
    NONE
}

#[test]
fn a_burst_shares_a_record_until_it_is_cut() {
    let mut pool = RecordPool::new(8, 1);
    let mut chain = Chain::EMPTY;
    for i in 0..5 {
        assert_eq!(
            push(&mut chain, &mut pool, record(1000 * i, 1000, 7), true),
            1
        );
    }
    assert_eq!(chain.head, chain.tail);
    assert_eq!(pool.get(chain.head).map(Record::count), Some(5));
    let head = chain.head;
    let rest = chain
        .split(&mut pool, head, SeqNumber(2000))
        .expect("there is room");
    assert_eq!(pool.get(chain.head).map(Record::count), Some(2));
    assert_eq!(pool.get(rest).map(Record::count), Some(3));
    assert!(chain.merge_next(&mut pool, head));
    assert_eq!(pool.available(), 7);
    chain.clear(&mut pool);
    assert_eq!(pool.available(), 8);
}

#[test]
fn a_short_segment_and_a_fin_end_a_record() {
    let mut pool = RecordPool::new(8, 1);
    let mut chain = Chain::EMPTY;
    push(&mut chain, &mut pool, record(0, 1000, 7), true);
    push(&mut chain, &mut pool, record(1000, 400, 7), true);
    assert_eq!(chain.head, chain.tail);
    push(&mut chain, &mut pool, record(1400, 1000, 7), true);
    assert_ne!(chain.head, chain.tail);
    let fin = Record::new(SeqNumber(2400), SeqNumber(2401), MSS, 7, tag::FIN);
    assert_eq!(fin.count(), 1);
    assert_eq!(push(&mut chain, &mut pool, fin, true), 1);
    assert_eq!(pool.available(), 5);
}

#[test]
fn an_empty_pool_makes_records_coarse_but_never_fails() {
    // Two connections, two records: each connection is sure of one.
    let mut pool = RecordPool::new(2, 2);
    let mut first = Chain::EMPTY;
    let mut second = Chain::EMPTY;
    for i in 0..20 {
        push(
            &mut first,
            &mut pool,
            record(1000 * i, 1000, u64::from(i)),
            false,
        );
    }
    assert_eq!(first.head, first.tail);
    assert_eq!(pool.get(first.head).map(Record::count), Some(20));
    assert_eq!(first.split(&mut pool, first.head, SeqNumber(1000)), None);
    assert_eq!(push(&mut second, &mut pool, record(0, 1000, 1), false), 1);
    assert_eq!(pool.available(), 0);
    first.clear(&mut pool);
    second.clear(&mut pool);
    assert_eq!(pool.available(), 2);
}

#[test]
fn no_connection_has_more_than_are_left_for_all_others() {
    let mut pool = RecordPool::new(10, 2);
    let mut greedy = Chain::EMPTY;
    for i in 0..30 {
        push(
            &mut greedy,
            &mut pool,
            record(1000 * i, 1000, u64::from(i)),
            false,
        );
    }
    // Five records are free, one of them reserved for the other connection's first.
    assert_eq!((pool.available(), pool.refused()), (5, 25));
    let mut second = Chain::EMPTY;
    for i in 0..30 {
        push(
            &mut second,
            &mut pool,
            record(1000 * i, 1000, u64::from(i)),
            false,
        );
    }
    assert_eq!(pool.available(), 2);
    greedy.clear(&mut pool);
    push(&mut second, &mut pool, record(30_000, 1000, 40), false);
    assert_eq!(pool.available(), 6);
}

/// Connections whose peers fragment their flights leave records to the others, however many they
/// ask for.
#[test]
fn two_dozen_greedy_connections_do_not_empty_the_pool() {
    let mut pool = RecordPool::new(16_384, 1000);
    let mut chains = [Chain::EMPTY; 24];
    for i in 0..10_000 {
        for chain in &mut chains {
            push(
                chain,
                &mut pool,
                record(1000 * i, 1000, u64::from(i)),
                false,
            );
        }
    }
    let spare = pool.available() - (1000 - 24);
    assert!(spare > 500, "{spare}");
}

/// Random bursts, cuts, tags, merges and cumulative ACKs. After each step the chain equals a list
/// of single segments.
#[test]
fn chain_agrees_with_a_list_of_segments() {
    for seed in 1..300u64 {
        let mut random = Random(seed);
        let mut pool = RecordPool::new(1000, 1);
        let mut chain = Chain::EMPTY;
        let mut model: Vec<(u32, u32, u16)> = Vec::new();
        let (mut nxt, mut now_ns) = (0u32, 1u64);
        for _ in 0..200 {
            step(
                &mut random,
                &mut pool,
                &mut chain,
                &mut model,
                &mut nxt,
                &mut now_ns,
            );
            assert_eq!(segments(&chain, &pool), model, "seed {seed}");
        }
        chain.clear(&mut pool);
        assert_eq!(pool.available(), 1000, "seed {seed}");
    }
}

fn step(
    random: &mut Random,
    pool: &mut RecordPool,
    chain: &mut Chain,
    model: &mut Vec<(u32, u32, u16)>,
    nxt: &mut u32,
    now_ns: &mut u64,
) {
    match random.below(5) {
        0 | 1 => {
            *now_ns += random.below(2);
            for i in 0..1 + random.below(6) {
                push(chain, pool, record(*nxt, 1000, *now_ns), i > 0);
                model.push((*nxt, *nxt + 1000, 0));
                *nxt += 1000;
            }
        }
        2 if !model.is_empty() => {
            // One segment is SACKed, at a random position.
            let i = random.below(model.len() as u64) as usize;
            let (seq, end, _) = model[i];
            isolate(chain, pool, seq, end);
            let at = find(chain, pool, seq);
            if let Some(record) = pool.get_mut(at) {
                record.tags |= tag::SACKED;
            }
            model[i].2 |= tag::SACKED;
            let prev = pool.prev(at);
            chain.merge_sacked(pool, prev);
        }
        3 if !model.is_empty() => {
            // Whole segments are acknowledged.
            let n = 1 + random.below(model.len() as u64) as usize;
            let una = model[n - 1].1;
            while let Some(record) = pool.get(chain.head).copied() {
                if record.end.gt(SeqNumber(una)) {
                    break;
                }
                chain.unlink(pool, chain.head);
            }
            if let Some(head) = pool.get_mut(chain.head) {
                head.seq = head.seq.max(SeqNumber(una));
            }
            model.drain(..n);
        }
        _ => {
            let head = chain.head;
            chain.merge_next(pool, head);
        }
    }
}

/// Cuts a record so that one segment stands alone.
fn isolate(chain: &mut Chain, pool: &mut RecordPool, seq: u32, end: u32) {
    let at = find(chain, pool, seq);
    if pool.get(at).is_some_and(|record| record.seq.0 != seq) {
        chain.split(pool, at, SeqNumber(seq));
    }
    let at = find(chain, pool, seq);
    if pool.get(at).is_some_and(|record| record.end.0 != end) {
        chain.split(pool, at, SeqNumber(end));
    }
}
