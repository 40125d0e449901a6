//! Courses of whole stacks, in tables. Two stacks talk over links in virtual time, strangers and
//! observers interfere, and a seed draws their settings, limits, ports, faults and what the
//! applications do. A row holds the digests of one course: of all frames, events, answers, reports
//! and deadlines of either stack.
//!
//! A change of behaviour shows as a change of these files. `COURSES_WRITE=1 cargo test -p stack
//! --test courses` writes them anew. The tables say that nothing changed, and not that it is right:
//! that is for conversations.

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

/// Seeds of each table.
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

/// The twin that takes no shortcut sends, answers and counts the same. Frames that a card cuts are
/// made by one of the shortcuts alone: those courses are left out.
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

/// The digests are what the table says. The first row that differs fails, before the next course.
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

/// `seed | digests of both stacks`.
fn row(seed: u64) -> String {
    let [first, second] = Course::new(seed).run();
    format!("{seed} | {first:016x} {second:016x}\n")
}

/// The MAC address of a stack's port.
fn mac(stack: usize, port: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, port as u8, stack as u8 + 1])
}

/// Any address of the family, with a port.
fn unspecified(like: SocketAddr, port: u16) -> SocketAddr {
    let address = match like {
        SocketAddr::V4(_) => "0.0.0.0",
        SocketAddr::V6(_) => "::",
    };
    SocketAddr::new(address.parse().unwrap(), port)
}
