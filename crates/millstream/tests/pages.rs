//! The tables of docs/operating.md match the declared lists: counters, values and log lines.
//!
//! `cargo xtask docs` runs this with `MILLSTREAM_WRITE_PAGES=1`, which writes the tables instead of
//! comparing them.

use std::fmt::Write as _;
use std::path::PathBuf;

use millstream::observed::{EVENTS, EVENTS_AT_START, Event, declared, remedy};
use observe::layout::Kind;
use packetio::counter_list::PORT_COUNTERS;

const BEGIN: &str = "<!-- made by `cargo xtask docs`: ";
const END: &str = "<!-- end -->";

/// A table of the page by its name.
fn table(name: &str) -> Option<String> {
    let counters = |list: &[(&str, &str)]| {
        let rows = list
            .iter()
            .map(|(name, help)| (*name, help.trim(), remedy(name)));
        counter_table(rows)
    };
    Some(match name {
        "counters of a stack" => counters(stack::Counters::LIST),
        "counters of TCP" => counters(tcp::Counters::LIST),
        "counters of neighbours" => {
            let rows = declared().filter(|one| one.name.starts_with("neighbour_"));
            let rows = rows.filter(|one| {
                stack::Counters::LIST
                    .iter()
                    .all(|(own, _)| *own != one.name)
            });
            counter_table(rows.map(|one| (one.name, one.help, remedy(one.name))))
        }
        "counters of ports" => {
            let rows = PORT_COUNTERS.iter();
            counter_table(rows.map(|one| (one.name, one.help, one.remedy)))
        }
        "values" => values(),
        "log lines" => log_lines(),
        _ => return None,
    })
}

fn counter_table<'a>(rows: impl Iterator<Item = (&'a str, &'a str, &'a str)>) -> String {
    let mut text = "| counter | meaning | what to do |\n|---|---|---|\n".to_owned();
    for (name, help, remedy) in rows {
        let _ = writeln!(text, "| `{name}` | {help} | {remedy} |");
    }
    text
}

/// Times, levels and histograms, which `Context::report` does not have.
fn values() -> String {
    let mut text = "| name | kind | unit | meaning |\n|---|---|---|---|\n".to_owned();
    let is_listed_above = |name: &str| {
        let counters = stack::Counters::LIST.iter().chain(tcp::Counters::LIST);
        counters.map(|(own, _)| *own).any(|own| own == name)
    };
    for one in declared() {
        if is_listed_above(one.name) || one.name.starts_with("neighbour_") {
            continue;
        }
        let (name, kind, unit, help) = (one.name, one.kind, one.unit, one.help);
        assert!(
            kind != Kind::Counter || unit == "nanoseconds",
            "{name} is in no table"
        );
        let _ = writeln!(text, "| `{name}` | {kind:?} | {unit} | {help} |");
    }
    text
}

fn log_lines() -> String {
    let mut text =
        "| `event` | level | counter | meaning | what to do |\n|---|---|---|---|---|\n".to_owned();
    let levels = [("warn", EVENTS), ("info", EVENTS_AT_START)];
    for (level, events) in levels {
        for Event {
            name,
            counter,
            meaning,
            remedy,
        } in events
        {
            let counter = counter.map_or(String::new(), |counter| format!("`{counter}`"));
            let _ = writeln!(
                text,
                "| `{name}` | {level} | {counter} | {meaning} | {remedy} |"
            );
        }
    }
    text
}

/// The page with all its tables regenerated, and their number.
fn made(page: &str) -> (String, usize) {
    let (mut out, mut rest, mut tables) = (String::new(), page, 0);
    while let Some(at) = rest.find(BEGIN) {
        let line_end = rest[at..].find('\n').expect("a whole line") + at + 1;
        let name = rest[at + BEGIN.len()..line_end]
            .trim_end()
            .trim_end_matches(" -->");
        let table = table(name).unwrap_or_else(|| panic!("docs/operating.md: no table `{name}`"));
        let end = rest
            .find(END)
            .unwrap_or_else(|| panic!("docs/operating.md: `{name}` has no end"));
        out += &rest[..line_end];
        let _ = write!(out, "\n{table}\n{END}");
        rest = &rest[end + END.len()..];
        tables += 1;
    }
    (out + rest, tables)
}

#[test]
fn operating_page_lists_every_counter_value_and_log_line() {
    let path = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/operating.md"
    ));
    let page = std::fs::read_to_string(&path).expect("the page");
    let (made, tables) = made(&page);
    assert_eq!(tables, 6, "tables that are made from lists");
    if std::env::var_os("MILLSTREAM_WRITE_PAGES").is_some() {
        std::fs::write(&path, made).expect("the page is written");
        return;
    }
    for (line, wanted) in page.lines().zip(made.lines()) {
        assert_eq!(line, wanted, "run `cargo xtask docs`");
    }
    assert_eq!(
        page.lines().count(),
        made.lines().count(),
        "run `cargo xtask docs`"
    );
}
