//! The page without traffic: each row has its section, and the figures have their names.

use super::*;
use crate::frame::{Figure, Point, Series, Spread};
use crate::published::Shown;

fn rows() -> Vec<&'static Row> {
    CONTENTS.iter().collect()
}

fn page(outcomes: &[Outcome]) -> String {
    let rows = rows();
    let page = Page {
        rows: &rows,
        outcomes,
        failures: &[],
    };
    page.markdown()
}

#[test]
fn every_figure_that_a_row_takes_has_a_benchmark_that_knows_it() {
    let rows = rows();
    figures::check(&figures_of(Benchmark::Message, &rows)).unwrap();
    let repeats = Repeats::default();
    let figures = figures_of(Benchmark::Bulk, &rows);
    BulkOptions { figures, repeats }.check().unwrap();
    shown(&figures_of(Benchmark::Mux, &rows)).unwrap();
}

#[test]
fn a_page_without_outcomes_has_a_section_and_a_line_for_each_row() {
    let text = page(&[]);
    for row in rows() {
        let heading = format!("\n### {}\n", row.heading());
        assert!(text.contains(&heading), "{heading}");
        let state = match row.shown {
            Shown::Not(reason) => format!("not shown: {reason}"),
            Shown::Here { .. } => "not measured in this run".to_owned(),
        };
        let line = format!("| {} | {} |", row.about, state);
        assert!(text.contains(&line), "{line}");
        for value in row.values() {
            assert!(text.contains(value.place), "{}", value.series);
            assert!(text.contains(value.series), "{}", value.series);
        }
    }
}

#[test]
fn a_measured_ratio_stands_beside_the_published_one_and_in_a_chart() {
    let mut outcome = Outcome::new("message", "");
    let series = [
        ("kernel, loopback, one listener", 10_000.0),
        ("Millstream, memif, inline", 170_000.0),
    ];
    let series = series.map(|(system, rate)| Series {
        system: system.to_owned(),
        points: vec![Point {
            x: 2.0,
            y: Spread::of([rate]),
        }],
    });
    outcome.add(Figure {
        id: "7a-cores".to_owned(),
        title: "Messages".to_owned(),
        x: "cores".to_owned(),
        y: "transactions per second".to_owned(),
        falls: false,
        compares: true,
        series: series.to_vec(),
    });
    let text = page(&[outcome]);
    let line = "| mTCP over Linux | 25 × (8 cores) | abstract | the paper's text | 17 |";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("![Messages](message-7a-cores.svg)"), "{text}");
    assert!(text.contains("(papers-mtcp-figure-7a-0.svg)"), "{text}");
    assert!(
        text.contains("Not measured in this run: `7a-cores-cpu`."),
        "{text}"
    );
}

#[test]
fn lines_that_all_outcomes_share_stand_on_the_page_once() {
    let outcomes = ["message", "bulk"].map(|name| {
        let mut outcome = Outcome::new(name, "");
        outcome.parameter("runs of each system", 3);
        outcome.notes.push(format!("seen by {name}"));
        outcome
    });
    let text = page(&outcomes);
    assert_eq!(text.matches("runs of each system: 3").count(), 1, "{text}");
    for own in [
        "`message`: Note: seen by message",
        "`bulk`: Note: seen by bulk",
    ] {
        assert!(text.contains(own), "{text}");
    }
}

#[test]
fn a_command_without_a_directory_is_refused() {
    let options = PapersOptions {
        papers: Vec::new(),
        repeats: Repeats::default(),
    };
    let refused = papers(&options).unwrap_err().to_string();
    assert!(refused.contains("--out DIR"), "{refused}");
}
