//! Rows of made-up looks, and the screen in 80 columns and 24 lines.

use observe::layout::Kind;
use observe::reader::{BehindFirst, ContextValues, Name, Value};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;

use super::rates::{HEAD, rows, short, sort, table};
use super::screen::View;
use super::*;
use crate::processes::Snapshot;

/// A directory of names as a process has it.
pub(crate) fn names(all: &[(&str, &str, Kind)]) -> Vec<Name> {
    all.iter()
        .map(|(name, unit, kind)| Name::new(name, "Help.", unit, *kind))
        .collect()
}

fn look(pid: u32, at_ns: u64, values: [u64; 5]) -> Snapshot {
    let counters = [
        "rx_bytes",
        "accepted",
        "rx_drop_arp",
        "time_busy",
        "time_asleep",
    ];
    Snapshot {
        pid,
        command: "a-server-with-a-long-name".to_owned(),
        start_ns: 1,
        names: names(&counters.map(|name| (name, "", Kind::Counter))),
        contexts: vec![ContextValues {
            slot: 0,
            context: 0,
            port: "tap:t0".to_owned(),
            behind_first: None,
            updated_ns: at_ns,
            values: values.map(|value| Some(Value::Number(value))).to_vec(),
        }],
    }
}

fn made_up() -> Vec<rates::Row> {
    let before = [look(1, 0, [0; 5]), look(2, 0, [0; 5])];
    let after = [
        look(1, 2_000_000_000, [1_000_000, 20, 4, 500, 1_500]),
        look(2, 2_000_000_000, [2_000_000, 10, 0, 0, 0]),
    ];
    rows(&before, &after)
}

#[test]
fn port_behind_the_first_has_a_row_with_its_own_traffic_and_name() {
    let with_port = |at_ns: u64, bytes: u64| {
        let mut look = look(1, at_ns, [0; 5]);
        let mut second = look.contexts[0].clone();
        (second.slot, second.port) = (1, "xdp:eth1".to_owned());
        second.behind_first = Some(BehindFirst {
            owner: 0,
            number: 1,
        });
        second.values = vec![Some(Value::Number(bytes)), None, Some(Value::Number(0))];
        second.values.extend([None, None]);
        look.contexts.push(second);
        look
    };
    let rows = rows(&[with_port(0, 0)], &[with_port(1_000_000_000, 1_000)]);
    assert_eq!((rows.len(), rows[1].rx_bits_per_s), (2, 8_000.0));
    assert!(!rows[0].is_behind_first && rows[1].is_behind_first);
    assert!(table(&rows[1..]).contains(" +eth1 "), "{}", table(&rows));
}

#[test]
fn rates_are_by_the_time_of_the_copies() {
    let rows = made_up();
    let row = &rows[0];
    assert_eq!((row.rx_bits_per_s, row.connections_per_s), (4e6, 10.0));
    assert_eq!((row.drops_per_s, row.busy, row.asleep), (2.0, 0.25, 0.75));
}

#[test]
fn process_that_began_anew_has_no_row_yet() {
    let mut again = look(1, 5, [9; 5]);
    again.start_ns = 2;
    assert!(rows(&[look(1, 0, [0; 5])], &[again]).is_empty());
}

#[test]
fn rows_are_sorted_by_any_column() {
    let mut rows = made_up();
    sort(&mut rows, Sort::Bits, false);
    assert_eq!(rows[0].process, 2);
    sort(&mut rows, Sort::Connections, false);
    assert_eq!(rows[0].process, 1);
    sort(&mut rows, Sort::Process, true);
    assert_eq!(rows[0].process, 2);
}

#[test]
fn table_fits_into_80_columns() {
    assert!(HEAD.len() <= 80);
    for line in table(&made_up()).lines() {
        assert_eq!(line.chars().count(), HEAD.len(), "{line}");
    }
}

#[test]
fn numbers_are_short() {
    let numbers = [0.0, 7.0, 1.5, 999.4, 1_000.0, 12_345.0, 999_600.0, 4.2e9];
    let texts = ["0", "7", "1.50", "999", "1.00k", "12.3k", "1.00M", "4.20G"];
    assert_eq!(numbers.map(short), texts);
}

#[test]
fn screen_of_80_by_24_shows_rows_and_heeds_keys() {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a terminal");
    let mut view = View::new(Sort::Bits);
    view.look(made_up());
    terminal.draw(|frame| view.draw(frame)).expect("drawn");
    let screen = terminal.backend().to_string();
    assert!(screen.contains("2 processes, 2 contexts") && screen.contains("a-server"));
    assert!(screen.contains("12.0M bit/s"), "{screen}");
    assert!(view.key(KeyCode::Char('s')) && view.sort == Sort::Retransmissions);
    assert!(view.key(KeyCode::Down) && view.scroll == 1);
    assert!(!view.key(KeyCode::Char('q')));
}
