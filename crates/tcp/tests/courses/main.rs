//! Courses of connections, recorded in tables. Two connections exchange data over a path in virtual
//! time; a seed draws their settings, the path's faults and the actions of the applications. A row
//! of `courses.txt` holds what both ends report of themselves at a moment, and a digest of all
//! segments, effects and deadlines until then. `digests_1.txt` to `digests_4.txt` hold only the
//! last digests, for more seeds.
//!
//! A change of behaviour shows as a change of these files. `COURSES_WRITE=1 cargo test -p tcp
//! --test courses` writes them anew. The tables show that nothing changed, not that the behaviour
//! is right: conversations and the comparison with the kernel test that.

mod draw;
mod end;
mod outside;
#[path = "../harness/outside_twins.rs"]
mod outside_twins;
mod path;
#[path = "../harness/single_calls.rs"]
mod single_calls;

use std::fmt::Write as _;

use path::Path;

/// The seeds of `courses.txt`. Those of the digest files follow, with one test for each hundred.
const COURSES: std::ops::RangeInclusive<u64> = 1..=16;
const ROWS: u64 = 6;

#[test]
fn courses_are_as_written() {
    check("courses.txt", COURSES.map(course));
}

#[test]
fn digests_of_the_first_hundred_are_as_written() {
    check("digests_1.txt", (101..=200).map(digests));
}

#[test]
fn digests_of_the_second_hundred_are_as_written() {
    check("digests_2.txt", (201..=300).map(digests));
}

#[test]
fn digests_of_the_third_hundred_are_as_written() {
    check("digests_3.txt", (301..=400).map(digests));
}

#[test]
fn digests_of_the_fourth_hundred_are_as_written() {
    check("digests_4.txt", (401..=500).map(digests));
}

/// Checks that the courses are as the file has them. Fails at the first line that differs, before
/// the next course is played.
fn check(file: &str, courses: impl Iterator<Item = String>) {
    let path = format!("{}/tests/courses/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("COURSES_WRITE").is_some() {
        std::fs::write(path, courses.collect::<String>()).expect("a table");
        return;
    }
    let kept = std::fs::read_to_string(path).expect("a table");
    let mut kept = kept.lines();
    for course in courses {
        for now in course.lines() {
            assert_eq!(now, kept.next().unwrap_or("the end of the file"));
        }
    }
    assert_eq!(kept.next(), None);
}

/// `course | settings`, then `ms | end | state | digest`, then the counters.
fn course(seed: u64) -> String {
    let mut table = String::new();
    let settings = draw::settings(seed);
    let _ = writeln!(table, "{seed} | {}", settings.description);
    let mut path = Path::new(settings);
    for row in 1..=ROWS {
        path.run_until_row(row, ROWS);
        path.write_row(&mut table);
    }
    path.write_counters(&mut table);
    table
}

/// `course | digests of both ends`.
fn digests(seed: u64) -> String {
    let mut path = Path::new(draw::settings(seed));
    path.run_until_row(1, 1);
    format!("{seed} | {:016x} {:016x}\n", path.digest(0), path.digest(1))
}
