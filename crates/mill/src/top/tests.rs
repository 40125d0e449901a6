//! Rows of made-up looks, and the screen in 80 columns and 24 lines.

use std::sync::Arc;

use clap::ValueEnum as _;
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
pub(crate) fn names(all: &[(&str, &str, Kind)]) -> Arc<[Name]> {
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

/// A look at a process with so many contexts, each with twice the bytes of the one before.
fn crowd(pid: u32, contexts: u16, at_ns: u64) -> Snapshot {
    let mut all = look(pid, at_ns, [0; 5]);
    let one = all.contexts.remove(0);
    for slot in 0..contexts {
        let bytes = (at_ns / 1_000_000) << slot.min(20);
        let values = [bytes, 3, 1, 250, 750].map(|value| match at_ns {
            0 => Some(Value::Number(0)),
            _ => Some(Value::Number(value)),
        });
        all.contexts.push(ContextValues {
            slot,
            context: slot.into(),
            values: values.to_vec(),
            ..one.clone()
        });
    }
    all
}

/// The rates of processes with these numbers of contexts, over one second.
fn crowds(contexts: &[u16]) -> Vec<rates::Row> {
    let looks = [0, 1_000_000_000].map(|at_ns| {
        let all = (1..).zip(contexts);
        let all = all.map(|(pid, contexts)| crowd(pid, *contexts, at_ns));
        all.collect::<Vec<_>>()
    });
    rows(&looks[0], &looks[1])
}

#[test]
fn process_with_several_contexts_has_a_total() {
    let rows = crowds(&[3, 1]);
    let totals: Vec<_> = rows.iter().filter(|row| row.is_total).collect();
    assert_eq!((totals.len(), rows.len()), (1, 5), "one context needs none");
    let total = totals[0];
    assert_eq!((total.process, total.context), (1, 3));
    assert_eq!(total.rx_bits_per_s, 8_000.0 * 7.0);
    assert_eq!((total.connections_per_s, total.drops_per_s), (9.0, 3.0));
    assert_eq!((total.busy, total.asleep), (0.25, 0.75), "means");
    let json = serde_json::json!(rows);
    assert_eq!(json[0]["is_total"], true);
    let text = table(&rows);
    assert!(text.contains(" x3 "), "{text}");
    for line in text.lines() {
        assert_eq!(line.chars().count(), HEAD.len(), "{line}");
    }
}

/// Process and context of each row; `None` for the context of a total.
fn order(rows: &[rates::Row]) -> Vec<(u32, Option<u64>)> {
    let place = |row: &rates::Row| (row.process, (!row.is_total).then_some(row.context));
    rows.iter().map(place).collect()
}

#[test]
fn contexts_are_sorted_below_their_process() {
    let mut rows = crowds(&[3, 2]);
    sort(&mut rows, Sort::Bits, false);
    let largest = [
        (1, None),
        (1, Some(2)),
        (1, Some(1)),
        (1, Some(0)),
        (2, None),
        (2, Some(1)),
        (2, Some(0)),
    ];
    assert_eq!(order(&rows), largest);
    sort(&mut rows, Sort::Bits, true);
    let smallest = [
        (2, None),
        (2, Some(0)),
        (2, Some(1)),
        (1, None),
        (1, Some(0)),
        (1, Some(1)),
        (1, Some(2)),
    ];
    assert_eq!(order(&rows), smallest);
}

#[test]
fn each_column_sorts_by_its_own_values() {
    type Set = fn(&mut rates::Row);
    let columns: [(Sort, Set); 8] = [
        (Sort::Process, |row| row.process = 0),
        (Sort::Connections, |row| row.connections_per_s = 1e6),
        (Sort::Packets, |row| row.tx_packets_per_s = 1e6),
        (Sort::Bits, |row| row.tx_bits_per_s = 1e12),
        (Sort::Retransmissions, |row| row.retransmissions_per_s = 1e6),
        (Sort::Drops, |row| row.drops_per_s = 1e6),
        (Sort::Pools, |row| row.pool_fill = 1.0),
        (Sort::Busy, |row| row.busy = 1.0),
    ];
    assert_eq!(columns.len(), Sort::value_variants().len());
    for (by, set) in columns {
        for which in 0..2 {
            let mut rows = made_up();
            rows.iter_mut().for_each(|row| row.context = 1);
            set(&mut rows[which]);
            rows[which].context = 9;
            sort(&mut rows, by, false);
            assert_eq!(rows[0].context, 9, "{by:?}");
            sort(&mut rows, by, true);
            assert_eq!(rows[1].context, 9, "{by:?} reversed");
        }
    }
}

#[test]
fn port_behind_the_first_stays_below_its_context() {
    let mut rows = crowds(&[2]);
    let mut port = rows[1].clone();
    (port.is_behind_first, port.rx_bits_per_s) = (true, 1e15);
    rows.insert(1, port);
    for is_reversed in [false, true] {
        sort(&mut rows, Sort::Bits, is_reversed);
        let at = rows.iter().position(|row| row.is_behind_first).unwrap();
        assert!(rows[0].is_total && !rows[at - 1].is_behind_first);
        assert_eq!(rows[at].slot, rows[at - 1].slot);
    }
}

/// The lines of the screen in 80 columns and 24 lines.
fn screen(view: &View) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a terminal");
    terminal.draw(|frame| view.draw(frame)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let lines = buffer.content().chunks(80);
    lines
        .map(|line| line.iter().map(|cell| cell.symbol()).collect())
        .collect()
}

#[test]
fn screen_of_80_by_24_shows_rows_and_heeds_keys() {
    let mut view = View::new(Sort::Bits);
    view.look(made_up());
    let shown = screen(&view);
    assert_eq!(
        shown[0].trim_end(),
        "mill top   2 processes, 2 contexts   largest Bits first"
    );
    assert!(shown[1].starts_with(" 12.0M bit/s"), "{shown:#?}");
    assert!(shown[3].starts_with("    15 conn/s"), "{shown:#?}");
    assert_eq!(shown[7].trim_end(), HEAD);
    assert!(shown[8].starts_with("      2 a-server   0 "), "{shown:#?}");
    assert!(shown[9].starts_with("      1 a-server   0 "), "{shown:#?}");
    assert!(shown[23].starts_with("q quit"), "{shown:#?}");
    assert!(view.key(KeyCode::Char('s')) && view.sort == Sort::Retransmissions);
    assert!(view.key(KeyCode::Char('r')) && view.is_reversed);
    assert!(screen(&view)[0].contains("smallest Retransmissions first"));
    assert!(!view.key(KeyCode::Char('q')));
}

#[test]
fn rows_that_go_while_they_are_scrolled_leave_no_empty_table() {
    let mut view = View::new(Sort::Bits);
    view.look(crowds(&[40, 3, 1]));
    for _ in 0..30 {
        view.key(KeyCode::Down);
    }
    view.look(crowds(&[1]));
    let shown = screen(&view);
    assert!(shown[8].starts_with("      1 "), "{shown:#?}");
    view.look(Vec::new());
    assert_eq!(screen(&view)[8].trim_end(), "");
}

#[test]
fn heading_tells_the_order_of_numbers_and_who_could_not_be_asked() {
    let mut view = View::new(Sort::Process);
    view.look(made_up());
    let shown = screen(&view);
    assert!(shown[0].contains("smallest Process first"), "{shown:#?}");
    assert!(shown[8].starts_with("      1 "), "{shown:#?}");
    view.key(KeyCode::Char('r'));
    view.unseen = 2;
    let shown = screen(&view);
    let heading = "2 processes, 2 contexts, 2 unseen   largest Process first";
    assert!(shown[0].contains(heading), "{shown:#?}");
    assert!(shown[8].starts_with("      2 "), "{shown:#?}");
}

#[test]
fn screen_of_a_crowd_scrolls_and_shows_processes_only() {
    let mut view = View::new(Sort::Process);
    view.look(crowds(&[40, 3, 1]));
    let shown = screen(&view);
    assert!(shown[0].contains("3 processes, 44 contexts"), "{shown:#?}");
    assert!(shown[8].contains(" x40 "), "{shown:#?}");
    assert!(shown[22].starts_with("      1 "), "the last line of rows");
    assert!(shown[23].starts_with("q quit"), "{shown:#?}");
    view.key(KeyCode::Down);
    assert_eq!(screen(&view)[8], shown[9], "scrolled by a row");
    for _ in 0..100 {
        view.key(KeyCode::Down);
    }
    let last = screen(&view);
    assert!(
        last[8].starts_with("      3 "),
        "the last row stays: {last:#?}"
    );
    view.key(KeyCode::Char('t'));
    view.key(KeyCode::Up);
    view.key(KeyCode::Up);
    let processes = screen(&view);
    assert!(processes[8].contains(" x40 "), "{processes:#?}");
    assert!(processes[9].contains(" x3 "), "{processes:#?}");
    assert!(processes[10].starts_with("      3 "), "{processes:#?}");
    assert!(processes[11].trim().is_empty(), "{processes:#?}");
}

#[test]
fn row_of_large_numbers_fits_the_screen() {
    let mut row = made_up().remove(0);
    row.process = 4_194_304;
    row.context = 127;
    row.sockets = 1 << 22;
    for value in [
        &mut row.connections_per_s,
        &mut row.rx_packets_per_s,
        &mut row.tx_packets_per_s,
        &mut row.retransmissions_per_s,
        &mut row.drops_per_s,
    ] {
        *value = 999.96e6;
    }
    (row.rx_bits_per_s, row.tx_bits_per_s) = (999.4e12, 0.0);
    (row.pool_fill, row.busy, row.spinning, row.asleep) = (1.5, 1.0, 1.0, 1.0);
    let mut view = View::new(Sort::Bits);
    view.look(vec![row.clone()]);
    assert_eq!(rates::line(&row).chars().count(), HEAD.len());
    let shown = screen(&view);
    assert!(shown[8].trim_end().ends_with("100 100 100"), "{shown:#?}");
}

/// Both lines of a sparkline behind its label. Number 0 is that of bits.
fn spark(shown: &[String], number: usize) -> [Vec<char>; 2] {
    [1, 2].map(|line| shown[line + 2 * number].chars().skip(16).collect())
}

#[test]
fn sparklines_grow_to_the_right_and_scale_to_the_largest_look() {
    let mut view = View::new(Sort::Bits);
    for bits in [0.0, 4e6, 8e6, 2e6] {
        let mut row = made_up().remove(0);
        (row.rx_bits_per_s, row.tx_bits_per_s) = (bits, 0.0);
        (row.connections_per_s, row.drops_per_s) = (0.0, 0.0);
        view.look(vec![row]);
    }
    let shown = screen(&view);
    assert!(shown[1].starts_with(" 2.00M bit/s"), "{shown:#?}");
    // Two lines of eight levels each: 4 fills the lower line, 2 half of it.
    let [upper, lower] = spark(&shown, 0);
    assert_eq!(&upper[..5], [' ', ' ', '█', ' ', ' '], "{shown:#?}");
    assert_eq!(&lower[..5], [' ', '█', '█', '▄', ' '], "{shown:#?}");
    let nothing = spark(&shown, 1).concat();
    assert!(nothing.iter().all(|one| *one == ' '), "{shown:#?}");
}

#[test]
fn sparkline_of_a_long_time_shows_the_latest_looks() {
    let mut view = View::new(Sort::Bits);
    let mut row = made_up().remove(0);
    (row.rx_bits_per_s, row.tx_bits_per_s) = (1e9, 0.0);
    view.look(vec![row.clone()]);
    row.rx_bits_per_s = 1e6;
    for _ in 0..64 {
        view.look(vec![row.clone()]);
    }
    let [upper, _] = spark(&screen(&view), 0);
    assert!(
        upper.iter().all(|one| *one == '█'),
        "the peak is out of sight"
    );
    for _ in 0..1_000 {
        view.look(vec![row.clone()]);
    }
    assert!(view.looks() <= 512, "{}", view.looks());
}

#[test]
fn total_is_not_counted_twice_in_sparklines() {
    let mut view = View::new(Sort::Bits);
    view.look(crowds(&[2]));
    let shown = screen(&view);
    assert!(shown[1].starts_with(" 24.0k bit/s"), "{shown:#?}");
}

#[test]
fn screen_of_any_size_is_drawn() {
    let mut view = View::new(Sort::Bits);
    view.look(crowds(&[3]));
    for (width, height) in [(1, 1), (10, 3), (20, 8), (80, 9), (200, 60)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| view.draw(frame)).expect("drawn");
    }
}
