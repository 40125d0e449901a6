//! Tests of what is remembered about a host, and for how long.

use super::*;

const NOW: u64 = 1_000_000_000;

fn host(n: u32) -> Addr {
    std::net::IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + n)).into()
}

fn reply(cookie: &[u8], mss: u16) -> FastOpenReply {
    FastOpenReply {
        mss,
        cookie: FastOpenCookie::new(cookie).filter(|cookie| !cookie.is_request()),
        experimental: 0,
    }
}

fn syn(table: &mut Destinations, n: u32) -> Option<FastOpenSyn> {
    table.fast_open_syn(host(n), 1460, false, &FastOpenSettings::default(), NOW)
}

#[test]
fn first_syn_asks_and_the_next_brings_the_cookie_with_as_much_as_the_peer_takes() {
    let mut table = Destinations::new([1, 2]);
    let first = syn(&mut table, 1).unwrap();
    assert_eq!(
        (first.option, first.bytes),
        (Some(FastOpenCookie::REQUEST), 0)
    );
    table.learn_fast_open(host(1), &reply(&[1, 2, 3, 4], 940));
    let next = syn(&mut table, 1).unwrap();
    assert_eq!(
        (next.option, next.bytes),
        (FastOpenCookie::new(&[1, 2, 3, 4]), 900)
    );
    assert!(syn(&mut table, 2).unwrap().option.unwrap().is_request());
}

#[test]
fn ignored_request_is_tried_as_experiment_once() {
    let mut table = Destinations::new([1, 2]);
    for (experimental, then) in [(1, true), (2, false)] {
        let ignored = FastOpenReply {
            experimental,
            ..reply(&[], 1460)
        };
        table.learn_fast_open(host(1), &ignored);
        assert_eq!(
            syn(&mut table, 1).unwrap().option.unwrap().experimental,
            then
        );
    }
}

#[test]
fn cookie_that_was_forgotten_is_asked_for_again_and_the_path_stays_known() {
    let mut table = Destinations::new([1, 2]);
    table.learn_fast_open(host(1), &reply(&[1, 2, 3, 4], 940));
    let told = word(1400, NOW + 10);
    table.learn_path(host(1), told, NOW);
    table.forget_fast_open();
    let next = syn(&mut table, 1).unwrap();
    assert_eq!(
        (next.option, next.bytes),
        (Some(FastOpenCookie::REQUEST), 0)
    );
    assert_eq!(table.path(host(1), NOW), Some(told));
}

fn word(mtu: u16, until_ns: u64) -> PathWord {
    PathWord {
        mtu,
        too_narrow: false,
        until_ns,
    }
}

#[test]
fn path_mtu_counts_until_its_time_is_over() {
    let mut table = Destinations::new([1, 2]);
    let told = word(1400, NOW + 10);
    assert_eq!(table.learn_path(host(1), told, NOW), told);
    assert_eq!(table.path(host(1), NOW + 9), Some(told));
    assert_eq!(table.path(host(1), NOW + 10), None);
    assert_eq!(table.path(host(2), NOW), None);
}

#[test]
fn path_mtu_that_is_larger_does_not_count_before_the_smaller_one_is_old() {
    let mut table = Destinations::new([1, 2]);
    let (small, large) = (word(1000, NOW + 10), word(1400, NOW + 20));
    table.learn_path(host(1), small, NOW);
    assert_eq!(table.learn_path(host(1), large, NOW + 9), small);
    assert_eq!(table.path(host(1), NOW + 9), Some(small));
    assert_eq!(table.learn_path(host(1), large, NOW + 10), large);
    let smaller = word(600, NOW + 15);
    assert_eq!(table.learn_path(host(1), smaller, NOW + 11), smaller);
}

#[test]
fn black_hole_pauses_fast_open_for_longer_each_time() {
    let mut table = Destinations::new([1, 2]);
    let settings = FastOpenSettings {
        blackhole_timeout_ns: 100,
        ..FastOpenSettings::default()
    };
    let at = |table: &mut Destinations, now_ns| {
        table
            .fast_open_syn(host(1), 1460, false, &settings, now_ns)
            .is_some()
    };
    table.pause_fast_open(&settings, NOW);
    assert!(!at(&mut table, NOW + 99));
    assert!(at(&mut table, NOW + 100));
    table.pause_fast_open(&settings, NOW + 100);
    assert!(!at(&mut table, NOW + 299));
    assert!(at(&mut table, NOW + 300));
}

#[test]
fn full_table_forgets_what_was_not_asked_for_the_longest() {
    let mut table = Destinations::new([1, 2]);
    for n in 0..2 * DESTINATIONS_MAX as u32 {
        table.learn_path(host(0), word(1300, u64::MAX), NOW);
        table.learn_path(host(n + 1), word(1400, u64::MAX), NOW);
    }
    assert_eq!(table.path(host(0), NOW), Some(word(1300, u64::MAX)));
    let held = table.sets.iter().flatten().flatten().count();
    assert!(held <= DESTINATIONS_MAX && held > DESTINATIONS_MAX / 2);
    assert_eq!(
        table.evicted() as usize,
        2 * DESTINATIONS_MAX + 1 - held,
        "and who was forgotten is counted"
    );
}
