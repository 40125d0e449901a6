//! A row of the page: the cells of a Markdown table line, parsed.

use super::COLUMNS;

/// A row's statement about Millstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Millstream obeys the rule.
    Obeyed,
    /// Millstream differs on purpose; the note gives the reason.
    Differs,
    /// The rule concerns something that we do not have; the note gives the reason.
    Absent,
}

/// A rule and the statement about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Line in the page, from 1.
    pub line: usize,
    /// Identifier in RFC 9293's appendix B, or RFC and section.
    pub id: String,
    pub verdict: Verdict,
    /// Places as `path#item`, below `crates/` or `tools/` unless the path is found from the root.
    pub places: Vec<String>,
    /// Tests as `path#function`, or packet scripts.
    pub tests: Vec<String>,
    pub note: String,
}

/// The rows of all tables with our columns. An error names the line.
pub fn rows(text: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let mut inside = false;
    for (number, line) in (1..).zip(text.lines()) {
        let Some(cells) = cells(line) else {
            inside = false;
            continue;
        };
        if cells == COLUMNS {
            inside = true;
        } else if inside && !is_rule(&cells) {
            rows.push(row(number, &cells).map_err(|cause| format!("{number}: {cause}"))?);
        }
    }
    Ok(rows)
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// Whether the cells are those of the line of dashes below a header.
fn is_rule(cells: &[&str]) -> bool {
    cells
        .iter()
        .all(|cell| !cell.is_empty() && cell.chars().all(|c| c == '-' || c == ':'))
}

fn row(line: usize, cells: &[&str]) -> Result<Row, String> {
    let [id, _rule, verdict, places, tests, note] = cells else {
        return Err(format!("{} cells, not {}", cells.len(), COLUMNS.len()));
    };
    let verdict = match *verdict {
        "obeyed" => Verdict::Obeyed,
        "differs" => Verdict::Differs,
        "absent" => Verdict::Absent,
        other => return Err(format!("verdict {other:?}: not obeyed, differs or absent")),
    };
    Ok(Row {
        line,
        id: (*id).to_owned(),
        verdict,
        places: quoted(places)?,
        tests: quoted(tests)?,
        note: (*note).to_owned(),
    })
}

/// The texts between backquotes. Only commas and blanks may stand outside of them.
fn quoted(cell: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for (index, part) in cell.split('`').enumerate() {
        if index % 2 == 1 {
            names.push(part.to_owned());
        } else if !part.trim_matches([',', ' ']).is_empty() {
            return Err(format!("{part:?} stands outside of backquotes"));
        }
    }
    Ok(names)
}
