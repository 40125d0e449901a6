//! The page as one file for a browser: tables, and the charts in it. Made by [`page`](super::page).

use std::fmt::Write;
use std::path::Path;

use super::outcome::{Grid, Outcome, claims_grid};
use super::page::{PREFACE, Page};

const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Benchmarks</title>\n<style>\n\
body { font: 15px/1.45 sans-serif; max-width: 76em; margin: 2em auto; padding: 0 1em; color: #222 }\n\
table { border-collapse: collapse; margin: 0.6em 0 }\n\
th, td { border: 1px solid #bbb; padding: 0.2em 0.6em; text-align: right }\n\
th { background: #eee } td:first-child, th:first-child, .words td { text-align: left }\n\
.aim { background: #d5ecd4 } .bar { background: #ebf5d9 } .below { background: #f7d9d4 }\n\
svg { max-width: 100%; height: auto }\n</style>\n";

/// The page's text with the charts in it, which are read from `directory`.
pub fn page(page: &Page, directory: &Path) -> Result<String, String> {
    let mut text = format!("{HEAD}<h1>Benchmarks</h1>\n<p>{}</p>\n", escaped(PREFACE));
    let claims = page.claims();
    if !claims.is_empty() {
        text.push_str("<h2>What they must show</h2>\n");
        let verdicts: Vec<&str> = claims.iter().map(|claim| claim.verdict()).collect();
        table(&mut text, &claims_grid(&claims), &verdicts);
    }
    if let Some(line) = page.unmeasured() {
        let _ = writeln!(text, "<p>{}</p>", escaped(&line));
    }
    for outcome in &page.outcomes {
        section(&mut text, outcome, directory)?;
    }
    text.push_str("</html>\n");
    Ok(text)
}

fn section(text: &mut String, outcome: &Outcome, directory: &Path) -> Result<(), String> {
    let (name, rule) = (escaped(&outcome.name), escaped(&outcome.rule));
    let _ = writeln!(text, "<h2>{name}</h2>\n<p>{rule}</p>\n<ul>");
    for line in outcome.circumstances() {
        let _ = writeln!(text, "<li>{}</li>", escaped(&line));
    }
    text.push_str("</ul>\n");
    for figure in &outcome.figures {
        let (title, caption) = (escaped(&figure.title), escaped(&figure.caption()));
        let _ = writeln!(text, "<h3>{title}</h3>\n<p>{caption}</p>");
        table(text, &figure.grid(), &[]);
        let path = directory.join(outcome.chart_name(figure));
        let chart = std::fs::read_to_string(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        text.push_str(&chart);
        text.push('\n');
        for line in outcome.stated_of(figure) {
            let _ = writeln!(text, "<p>Published: {}.</p>", escaped(line));
        }
    }
    Ok(())
}

/// Appends a table. With `classes`, each row has its class, and the cells hold words.
fn table(text: &mut String, grid: &Grid, classes: &[&str]) {
    text.push_str(match classes.is_empty() {
        true => "<table>\n",
        false => "<table class=\"words\">\n",
    });
    let mut row = |cells: &[String], tag: &str, class: Option<&&str>| {
        let class = class.map_or(String::new(), |class| format!(" class=\"{class}\""));
        let _ = write!(text, "<tr{class}>");
        for cell in cells {
            let _ = write!(text, "<{tag}>{}</{tag}>", escaped(cell));
        }
        text.push_str("</tr>\n");
    };
    row(&grid.head, "th", None);
    for (index, cells) in grid.rows.iter().enumerate() {
        row(cells, "td", classes.get(index));
    }
    text.push_str("</table>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
