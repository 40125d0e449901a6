//! Initial sequence numbers, timestamp offsets and port starts.

use super::*;
use crate::test_stack::flow;
use crate::{MILLISECOND_NS, SECOND_NS};

#[test]
fn isn_follows_the_clock_of_4_microseconds() {
    let isns = IsnGenerator::new([1, 2]);
    let first = isns.isn(&flow(), 1_000_000);
    assert_eq!(isns.isn(&flow(), 1_003_999).since(first), 0);
    assert_eq!(isns.isn(&flow(), 1_004_000).since(first), 1);
    assert_eq!(
        isns.isn(&flow(), 1_000_000 + SECOND_NS).since(first),
        250_000
    );
}

#[test]
fn isn_of_another_flow_or_key_is_unrelated() {
    let isns = IsnGenerator::new([1, 2]);
    let own = isns.isn(&flow(), 0);
    let next_port = FlowKey {
        remote_port: 40_001,
        ..flow()
    };
    assert!(isns.isn(&next_port, 0).since(own) > 1 << 16);
    assert!(own.since(IsnGenerator::new([1, 3]).isn(&flow(), 0)) > 1 << 16);
    assert_ne!(isns.isn(&flow().reversed(), 0), own);
}

#[test]
fn isn_of_a_reused_flow_is_above_its_floor() {
    let isns = IsnGenerator::new([1, 2]);
    let own = isns.isn(&flow(), 0);
    assert_eq!(isns.isn_above(&flow(), 0, own - 100_000), own);
    assert_eq!(isns.isn_above(&flow(), 0, own), own + 65_537);
    assert_eq!(isns.isn_above(&flow(), 0, own + 10), own + 65_547);
}

#[test]
fn timestamp_offset_is_the_address_pairs() {
    let mut isns = IsnGenerator::new([1, 2]);
    let other_ports = FlowKey {
        remote_port: 1,
        local_port: 2,
        ..flow()
    };
    let own = isns.timestamp_offset(&flow());
    assert_eq!(isns.timestamp_offset(&other_ports), own);
    let other_peer = FlowKey {
        remote: wire::Addr::v4([10, 0, 0, 3].into()),
        ..flow()
    };
    assert_ne!(isns.timestamp_offset(&other_peer), own);
    assert_eq!(isns.timestamp_offset(&flow()), own);
    assert_eq!(timestamp_value(3 * MILLISECOND_NS + 9, 10), 13);
    assert_eq!(timestamp_value(MILLISECOND_NS, u32::MAX), 0);
}

#[test]
fn port_start_is_of_addresses_and_remote_port_and_tells_nothing_of_the_sequence_number() {
    let isns = IsnGenerator::new([1, 2]);
    let with_ports = |local_port, remote_port| FlowKey {
        local_port,
        remote_port,
        ..flow()
    };
    let start = isns.port_start(&with_ports(0, 80));
    assert_eq!(isns.port_start(&with_ports(9, 80)), start);
    assert_ne!(isns.port_start(&with_ports(0, 81)), start);
    assert_ne!(isns.isn(&with_ports(0, 80), 0).0, start);
}
