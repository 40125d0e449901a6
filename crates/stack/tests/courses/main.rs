//! Courses of whole stacks. Two stacks talk over links in virtual time, and strangers and observers
//! interfere. A seed draws settings, limits, ports, faults and the behaviour of applications. A
//! table row holds the digests of one course: of all frames, events, answers, reports and deadlines
//! of each stack.
//!
//! A change of behaviour changes these tables. `COURSES_WRITE=1 cargo test -p stack --test courses`
//! writes them anew. The tables show that nothing changed, not that it is right; conversations test
//! that.

#[path = "../common/mod.rs"]
mod common;

mod card;
mod course;
mod digest;
mod draw;
mod end;
mod hosts;
mod observers;
mod options;
mod strangers;

use std::net::SocketAddr;

use course::Course;
use packetio::MacAddr;

/// Number of seeds in each table.
const SEEDS: u64 = 25;

#[test]
fn digests_of_the_first_seeds_are_as_written() {
    check(1);
}

#[test]
fn digests_of_the_second_seeds_are_as_written() {
    check(2);
}

#[test]
fn digests_of_the_third_seeds_are_as_written() {
    check(3);
}

#[test]
fn digests_of_the_fourth_seeds_are_as_written() {
    check(4);
}

/// The twin without shortcuts sends, answers and counts the same. Courses with cards that cut
/// frames are left out: only shortcuts make such frames.
#[test]
fn courses_without_shortcuts_have_the_same_digests() {
    let is_cut = |settings: &draw::Settings| {
        let mut cards = settings.abilities.iter();
        cards.any(|card| card.cuts || card.has_bulk_lane)
    };
    let mut compared = 0;
    for seed in (100..100 + SEEDS).chain(200..200 + SEEDS) {
        let mut settings = draw::settings(seed);
        if is_cut(&settings) {
            continue;
        }
        settings.compares_ways = true;
        let with = Course::of(settings.clone()).run();
        stack::set_shortcuts(false);
        let without = Course::of(settings).run();
        stack::set_shortcuts(true);
        assert_eq!(with, without, "seed {seed}");
        compared += 1;
    }
    assert!(compared > 2 * SEEDS / 5, "{compared} courses were compared");
}

/// Compares courses with a table, and fails at the first row that differs.
fn check(table: u64) {
    let name = format!("digests_{table}.txt");
    let path = format!("{}/tests/courses/{name}", env!("CARGO_MANIFEST_DIR"));
    let rows = (table * 100..table * 100 + SEEDS).map(row);
    if std::env::var_os("COURSES_WRITE").is_some() {
        std::fs::write(path, rows.collect::<String>()).expect("a table");
        return;
    }
    let kept = std::fs::read_to_string(path).expect("a table");
    let mut kept = kept.lines();
    for row in rows {
        assert_eq!(row.trim_end(), kept.next().unwrap_or("the end of the file"));
    }
    assert_eq!(kept.next(), None);
}

/// A row: `seed | digests of both stacks`.
fn row(seed: u64) -> String {
    let [first, second] = Course::new(seed).run();
    format!("{seed} | {first:016x} {second:016x}\n")
}

/// The MAC address of a stack's port.
fn mac(stack: usize, port: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, port as u8, stack as u8 + 1])
}

/// The unspecified address of the same family, with a port.
fn unspecified(like: SocketAddr, port: u16) -> SocketAddr {
    let address = match like {
        SocketAddr::V4(_) => "0.0.0.0",
        SocketAddr::V6(_) => "::",
    };
    SocketAddr::new(address.parse().unwrap(), port)
}
