//! The flow hash has its stated properties, and spreads the keys of attackers and load generators.

use super::*;
use crate::siphash::siphash24_words;
use core::net::{Ipv4Addr, Ipv6Addr};
use std::vec;
use std::vec::Vec;

const SECRET: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];

fn v4(remote: u32, remote_port: u16) -> FlowKey {
    FlowKey {
        local: Ipv4Addr::new(10, 0, 0, 1).into(),
        remote: Ipv4Addr::from_bits(remote).into(),
        local_port: 80,
        remote_port,
    }
}

/// The hash by its definition, on any words.
fn two_rounds_of_nh(secret: [u64; 2], words: [u64; 5]) -> u64 {
    let secrets: Vec<u64> = (0..8).map(|at| siphash24_words(secret, &[at])).collect();
    let add = |word: u64, at: usize| u128::from(word.wrapping_add(secrets[at]));
    let pairs = [(0, words[1]), (2, words[3]), (4, 0)];
    let mut first = 0u128;
    for (at, second) in pairs {
        first = first.wrapping_add(add(words[at], at) * add(second, at + 1));
    }
    let second = add(first as u64, 6) * add((first >> 64) as u64, 7);
    second as u64 ^ (second >> 64) as u64
}

fn words_of(key: &FlowKey) -> [u64; 5] {
    let halves = |addr: &Addr| {
        let (high, low) = addr.octets().split_at(8);
        [high, low].map(|half| u64::from_ne_bytes(half.try_into().unwrap()))
    };
    let ([a, b], [c, d]) = (halves(&key.local), halves(&key.remote));
    [
        a,
        b,
        c,
        d,
        u64::from(key.local_port) | u64::from(key.remote_port) << 16,
    ]
}

#[test]
fn hash_is_two_rounds_of_nh_for_both_families() {
    let (local, remote): (Ipv6Addr, Ipv6Addr) =
        ("2001:db8::1".parse().unwrap(), "fe80::2".parse().unwrap());
    let v6 = FlowKey {
        local: local.into(),
        remote: remote.into(),
        local_port: 443,
        remote_port: 50_000,
    };
    for key in [v4(0x0a00_0002, 40_000), v6, v6.reversed()] {
        let expected = two_rounds_of_nh(SECRET, words_of(&key));
        assert_eq!(FlowHasher::new(SECRET).hash(&key), expected);
    }
}

#[test]
fn keys_that_differ_in_one_bit_differ_in_half_of_the_hash() {
    let hasher = FlowHasher::new(SECRET);
    let (mut flips, mut pairs) = (0, 0);
    for host in 0..1000 {
        let key = v4(0x0a00_0100 + host, 40_000);
        let hash = hasher.hash(&key);
        for bit in 0..32 {
            flips +=
                (hash ^ hasher.hash(&v4((0x0a00_0100 + host) ^ (1 << bit), 40_000))).count_ones();
            pairs += 1;
        }
        for bit in 0..16 {
            flips +=
                (hash ^ hasher.hash(&v4(0x0a00_0100 + host, 40_000 ^ (1 << bit)))).count_ones();
            pairs += 1;
        }
    }
    let mean = f64::from(flips) / f64::from(pairs);
    assert!((31.0..33.0).contains(&mean), "{mean} of 64");
}

#[test]
fn reversing_twice_changes_nothing() {
    let key = v4(0x0a00_0002, 40_000);
    assert_ne!(key.reversed(), key);
    assert_eq!(key.reversed().reversed(), key);
    assert_eq!(key.reversed().local_port, 40_000);
}

#[test]
fn secrets_differ_and_so_do_hashes() {
    let key = v4(1, 1);
    assert_ne!(
        FlowHasher::new([1, 2]).hash(&key),
        FlowHasher::new([1, 3]).hash(&key)
    );
}

#[test]
fn consecutive_ports_and_addresses_fill_buckets_evenly() {
    let hasher = FlowHasher::new(SECRET);
    let mut low = vec![0u32; 256];
    let mut high = vec![0u32; 256];
    for host in 0..64 {
        for port in 0..1024 {
            let hash = hasher.hash(&v4(0x0a00_0100 + host, 1024 + port));
            low[(hash & 0xff) as usize] += 1;
            high[(hash >> 56) as usize] += 1;
        }
    }
    // 65,536 keys over 256 buckets: 256 each, with a standard deviation of 16. A bucket is never
    // six deviations off.
    for count in low.into_iter().chain(high) {
        assert!((160..=352).contains(&count), "{count}");
    }
}
