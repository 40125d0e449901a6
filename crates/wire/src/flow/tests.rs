//! The flow hash is SipHash of the key's bytes, and spreads what attackers and load generators
//! send.

use super::*;
use crate::siphash::siphash13;
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

#[test]
fn ipv4_hashes_twelve_bytes() {
    let key = v4(0x0a00_0002, 40_000);
    let mut bytes: Vec<u8> = Vec::new();
    bytes.extend(0x0a00_0001u32.to_le_bytes());
    bytes.extend(0x0a00_0002u32.to_le_bytes());
    bytes.extend(80u16.to_le_bytes());
    bytes.extend(40_000u16.to_le_bytes());
    assert_eq!(
        FlowHasher::new(SECRET).hash(&key),
        siphash13(SECRET, &bytes)
    );
}

#[test]
fn ipv6_hashes_thirty_six_bytes() {
    let (local, remote): (Ipv6Addr, Ipv6Addr) =
        ("2001:db8::1".parse().unwrap(), "fe80::2".parse().unwrap());
    let key = FlowKey {
        local: local.into(),
        remote: remote.into(),
        local_port: 443,
        remote_port: 50_000,
    };
    let mut bytes: Vec<u8> = Vec::new();
    for addr in [local.to_bits(), remote.to_bits()] {
        bytes.extend(((addr >> 64) as u64).to_le_bytes());
        bytes.extend((addr as u64).to_le_bytes());
    }
    bytes.extend(443u16.to_le_bytes());
    bytes.extend(50_000u16.to_le_bytes());
    assert_eq!(
        FlowHasher::new(SECRET).hash(&key),
        siphash13(SECRET, &bytes)
    );
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
    // 65,536 keys over 256 buckets: 256 each, standard deviation 16; six of those are never seen.
    for count in low.into_iter().chain(high) {
        assert!((160..=352).contains(&count), "{count}");
    }
}
