//! `cargo xtask conformance`: checks docs/conformance.md against the sources.
//!
//! The page has tables with the columns of [`COLUMNS`]. A row that claims obedience names the place
//! that obeys and the test that shows it. A row that differs gives the reason. This check finds
//! rows whose places or tests do not exist, claims without a test, and requirements of RFC 9293
//! without a row. It cannot tell whether a test shows what the row claims.

use std::path::Path;

use row::{Row, Verdict};

mod references;
mod row;

/// Path of the page from the workspace's root.
const PAGE: &str = "docs/conformance.md";

/// The header of every table that is read.
const COLUMNS: [&str; 6] = ["id", "rule", "verdict", "place", "tests", "note"];

/// Identifiers of RFC 9293's appendix B: each prefix, and its number of identifiers.
const RFC9293_IDS: [(&str, usize); 3] = [("MUST", 69), ("SHLD", 31), ("MAY", 18)];

/// The chore.
pub fn conformance(root: &Path) -> Result<bool, String> {
    let rows = read(root)?;
    let causes = causes(root, &rows);
    for cause in &causes {
        println!("{PAGE}:{cause}");
    }
    print_summary(&rows);
    match causes.len() {
        0 => Ok(true),
        count => Err(format!("conformance: {count} findings")),
    }
}

fn read(root: &Path) -> Result<Vec<Row>, String> {
    let text =
        std::fs::read_to_string(root.join(PAGE)).map_err(|error| format!("{PAGE}: {error}"))?;
    row::rows(&text).map_err(|cause| format!("{PAGE}:{cause}"))
}

/// The errors of the table, each with its line.
fn causes(root: &Path, rows: &[Row]) -> Vec<String> {
    let mut sources = references::Sources::new(root);
    let mut causes = Vec::new();
    for row in rows {
        causes.extend(
            of_row(&mut sources, row)
                .into_iter()
                .map(|cause| format!("{}: {}: {cause}", row.line, row.id)),
        );
    }
    causes.extend(missing(rows).map(|id| format!("0: {id} of RFC 9293 has no row")));
    causes
}

fn of_row(sources: &mut references::Sources<'_>, row: &Row) -> Vec<String> {
    let mut causes = Vec::new();
    match row.verdict {
        Verdict::Obeyed if row.places.is_empty() => {
            causes.push("obeyed, but no place".to_owned());
        }
        Verdict::Obeyed if row.tests.is_empty() => causes.push("obeyed, but no test".to_owned()),
        Verdict::Differs | Verdict::Absent if row.note.is_empty() => {
            causes.push("differs, but says not why".to_owned());
        }
        _ => {}
    }
    causes.extend(row.places.iter().filter_map(|place| sources.place(place)));
    causes.extend(row.tests.iter().filter_map(|test| sources.test(test)));
    causes
}

/// Identifiers of RFC 9293 for which there is no row.
fn missing(rows: &[Row]) -> impl Iterator<Item = String> + '_ {
    let all = RFC9293_IDS
        .iter()
        .flat_map(|(prefix, count)| (1..=*count).map(move |n| format!("{prefix}-{n}")))
        .chain(["REC-1".to_owned()]);
    all.filter(|id| !rows.iter().any(|row| row.id == *id))
}

fn print_summary(rows: &[Row]) {
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    println!(
        "conformance: {} rows: {} obeyed, {} differ, {} absent",
        rows.len(),
        count(Verdict::Obeyed),
        count(Verdict::Differs),
        count(Verdict::Absent)
    );
}

#[cfg(test)]
mod tests;
