//! Our stack's answers to the state table, cell by cell, against `states.txt`. A changed answer
//! must change that file.
//!
//! `STATES_WRITE=1 cargo test -p script --test states` rewrites the file. `docs/differences.md`
//! says why where the kernel answers otherwise.

use std::fmt::Write as _;
use std::path::Path;

use script::{Options, run, states};

/// The time of a record's line, in seconds.
fn seconds(line: &str) -> f64 {
    let word = line.split(' ').next().unwrap_or_default();
    word.parse().expect("a time")
}

#[test]
fn every_state_answers_every_segment_as_written_down() {
    let mut table = String::new();
    for cell in states::cells() {
        let options = Options {
            record: true,
            ..Options::default()
        };
        let report = run(&cell.text, &options).unwrap_or_else(|m| panic!("{}: {m}", cell.name));
        let seen = report.record.display();
        let _ = writeln!(table, "{}", cell.name);
        let arrives_s = f64::from(cell.arrives_ms) / 1e3;
        let since = seen.lines().filter(|line| seconds(line) >= arrives_s);
        for line in since {
            let _ = writeln!(table, "    {line}");
        }
    }
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/states.txt");
    if std::env::var_os("STATES_WRITE").is_some() {
        std::fs::write(&place, &table).expect("the table is written");
    }
    let known = std::fs::read_to_string(&place).expect("the table is there");
    for (line, (is, was)) in table.lines().zip(known.lines()).enumerate() {
        assert_eq!(is, was, "line {} of {}", line + 1, place.display());
    }
    assert_eq!(table.lines().count(), known.lines().count());
}
