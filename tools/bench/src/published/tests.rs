//! The page is complete: every figure and table is in one row, and each value belongs to one.

use super::*;

/// All that the papers number, as far as this project knows.
fn numbered(paper: Paper) -> Vec<String> {
    let (figures, tables): (&[&str], usize) = match paper {
        Paper::Mtcp => (
            &[
                "1", "2", "3", "4", "5", "6", "7a", "7b", "7c", "8", "9", "10",
            ],
            4,
        ),
        Paper::Multistack => (&["1", "2", "3", "4", "5", "6"], 0),
        Paper::Receive => (
            &[
                "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12",
            ],
            1,
        ),
    };
    let figures = figures.iter().map(|number| format!("figure {number}"));
    let tables = (1..=tables).map(|number| format!("table {number}"));
    figures.chain(tables).collect()
}

#[test]
fn every_figure_and_table_is_in_one_row() {
    for paper in Paper::ALL {
        for name in numbered(paper) {
            let rows = CONTENTS.iter().filter(|row| row.paper == paper);
            let holding = rows.filter(|row| row.names.contains(&name.as_str()));
            assert_eq!(holding.count(), 1, "{paper:?}: {name}");
        }
        for row in CONTENTS.iter().filter(|row| row.paper == paper) {
            for name in row.names {
                let is_known = numbered(paper).iter().any(|other| other == name);
                assert!(is_known || name.starts_with("text: "), "{paper:?}: {name}");
            }
        }
    }
}

#[test]
fn a_row_is_shown_by_figures_or_has_a_reason() {
    for row in CONTENTS {
        let heading = row.heading();
        match row.shown {
            Shown::Not(reason) => assert!(reason.ends_with('.'), "{heading}"),
            Shown::Here { drawn, differs } => {
                assert!(differs.ends_with('.'), "{heading}");
                assert!(!drawn.is_empty(), "{heading}");
                assert!(drawn.iter().all(|drawn| !drawn.ids.is_empty()), "{heading}");
            }
        }
    }
}

#[test]
fn a_value_is_of_one_row_and_read_from_the_rows_figures() {
    for value in VALUES {
        let is_own = |row: &&Row| row.paper == value.paper && row.names.contains(&value.figure);
        let rows: Vec<&Row> = CONTENTS.iter().filter(is_own).collect();
        let [row] = rows[..] else {
            panic!("{}: {} rows", value.series, rows.len());
        };
        assert!(!value.points.is_empty(), "{}", value.series);
        assert!(!value.place.is_empty(), "{}", value.series);
        for here in value.here {
            let drawn = row.drawn().iter();
            let mut own = drawn.filter(|drawn| drawn.benchmark == here.benchmark);
            assert!(
                own.any(|drawn| drawn.ids.contains(&here.figure)),
                "{}: {}",
                value.series,
                here.figure
            );
        }
    }
}

fn measured() -> Outcome {
    let mut outcome = Outcome::new("message", "");
    let point = |x: f64, y: f64| crate::frame::Point {
        x,
        y: crate::frame::Spread::of([y]),
    };
    let series = |system: &str, values: [f64; 2]| crate::frame::Series {
        system: system.to_owned(),
        points: vec![point(1.0, values[0]), point(2.0, values[1])],
    };
    outcome.add(Figure {
        id: "7a-cores".to_owned(),
        title: "Rate".to_owned(),
        x: "cores".to_owned(),
        y: "per second".to_owned(),
        falls: false,
        compares: true,
        series: vec![series("theirs", [10.0, 20.0]), series("ours", [50.0, 60.0])],
    });
    outcome
}

#[test]
fn a_ratio_says_how_many_times_better_either_way() {
    let mut outcome = measured();
    let mut here = Here {
        benchmark: Benchmark::Message,
        figure: "7a-cores",
        series: "ours",
        over: Some("theirs"),
        at: At::All,
        scale: 1.0,
    };
    assert_eq!(here.read(&outcome), Some((3.0, 5.0)));
    here.at = At::Greatest;
    assert_eq!(here.read(&outcome), Some((3.0, 3.0)));
    here.at = At::Least;
    assert_eq!(here.read(&outcome), Some((5.0, 5.0)));
    outcome.figures[0].falls = true;
    assert_eq!(here.read(&outcome), Some((0.2, 0.2)));
    here.series = "nobody";
    assert_eq!(here.read(&outcome), None);
}

#[test]
fn points_have_the_digits_that_were_stated() {
    let shown = [0.973, 2.3, 14.88, 2_170.0].map(digits);
    assert_eq!(shown, ["0.973", "2.3", "14.88", "2,170"]);
}

#[test]
fn an_outcome_has_the_lines_of_its_own_figures() {
    let outcome = measured();
    let found = lines(&outcome);
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found.iter().all(|(id, _)| id == "7a-cores"), "{found:?}");
    assert!(found[0].1.contains("25 × (8 cores); abstract"), "{found:?}");
}
