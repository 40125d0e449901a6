//! Links of the Markdown pages. A relative link must lead to a file of the repository, and an
//! anchor to a heading of its page. A path to a page in a Rust comment (`docs/….md`) must lead to a
//! file too.

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};

use super::Finding;
use super::source::{self, Package};

const RULE: &str = "dead-link";

/// Wrong links of all Markdown pages below the root.
pub fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let mut files = Vec::new();
    source::walk(root, &mut files)?;
    let mut pages = BTreeMap::new();
    for path in files {
        if path.extension().is_some_and(|extension| extension == "md") {
            let text = source::read(root, &path)?;
            pages.insert(path, text);
        }
    }
    Ok(of_pages(&pages, &|path| root.join(path).exists()))
}

/// Wrong paths to pages in the comments of a package's sources.
pub fn check_sources(root: &Path, package: &Package) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &package.sources {
        for (index, line) in source.text.lines().enumerate() {
            if !line.trim_start().starts_with("//") {
                continue;
            }
            for page in pages_named(line) {
                if !root.join(page).exists() {
                    let cause = format!("{page} does not exist");
                    findings.push(source.finding(RULE, index + 1, page, cause));
                }
            }
        }
    }
    findings
}

/// Wrong links of these pages; `exists` tells which files there are.
pub fn of_pages(pages: &BTreeMap<PathBuf, String>, exists: &dyn Fn(&Path) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in pages {
        for (line, target) in links(text) {
            if let Some(cause) = fault(pages, exists, path, &target) {
                findings.push(Finding {
                    file: path.clone(),
                    line,
                    rule: RULE,
                    item: target,
                    cause,
                });
            }
        }
    }
    findings
}

/// The fault of a link, if it has one.
fn fault(
    pages: &BTreeMap<PathBuf, String>,
    exists: &dyn Fn(&Path) -> bool,
    from: &Path,
    target: &str,
) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let to = if file.is_empty() {
        from.to_path_buf()
    } else {
        normal(&from.parent().unwrap_or(Path::new("")).join(file))
    };
    if !exists(&to) && !pages.contains_key(&to) {
        return Some(format!("{target}: {} does not exist", to.display()));
    }
    let text = pages.get(&to)?;
    if anchor.is_empty() || anchors(text).contains(&anchor.to_owned()) {
        return None;
    }
    Some(format!("{target}: no heading makes this anchor"))
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

/// The targets of `[text](target)` and `[name]: target`, each with its line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code_spans(line);
        for (start, _) in line.match_indices("](") {
            let rest = &line[start + 2..];
            if let Some(end) = rest.find(')') {
                let target = rest[..end].split_whitespace().next().unwrap_or("");
                links.push((number, target.to_owned()));
            }
        }
        let definition = line.strip_prefix('[').and_then(|l| l.split_once("]: "));
        if let Some((_, target)) = definition {
            let target = target.split_whitespace().next().unwrap_or("");
            links.push((number, target.to_owned()));
        }
    }
    links
}

/// Anchors of the page's headings, formed as by GitHub and rustdoc.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut anchors = Vec::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let slug: String = heading
            .trim()
            .chars()
            .filter_map(|c| match c {
                ' ' => Some('-'),
                '-' | '_' => Some(c),
                c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
                _ => None,
            })
            .collect();
        let count = seen.entry(slug.clone()).or_default();
        anchors.push(match *count {
            0 => slug,
            again => format!("{slug}-{again}"),
        });
        *count += 1;
    }
    anchors
}

/// Lines outside of code fences, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((index + 1, line))
    })
}

/// The line with blanks in place of code between backticks.
fn without_code_spans(line: &str) -> String {
    let mut is_code = false;
    line.chars()
        .map(|c| {
            is_code ^= c == '`';
            if is_code { ' ' } else { c }
        })
        .collect()
}

/// Paths of the form `docs/….md` in a comment.
fn pages_named(line: &str) -> impl Iterator<Item = &str> {
    let is_end = |c: char| !(c.is_alphanumeric() || "/._-".contains(c));
    line.match_indices("docs/").filter_map(move |(start, _)| {
        let is_whole =
            !line[..start].ends_with(|c: char| c.is_alphanumeric() || "/._-".contains(c));
        let rest = &line[start..];
        let path = &rest[..rest.find(is_end).unwrap_or(rest.len())];
        let path = path.trim_end_matches('.');
        (is_whole && path.ends_with(".md")).then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(pages: &[(&str, &str)]) -> Vec<String> {
        let pages = pages
            .iter()
            .map(|(path, text)| (PathBuf::from(path), (*text).to_owned()))
            .collect();
        let findings = of_pages(&pages, &|path| path == Path::new("docs/chart.svg"));
        findings
            .iter()
            .map(|finding| {
                format!(
                    "{}:{}:{}",
                    finding.file.display(),
                    finding.line,
                    finding.item
                )
            })
            .collect()
    }

    #[test]
    fn link_to_a_page_a_file_or_the_web_passes() {
        let text =
            "# A\n\n[b](decisions/b.md) ![c](chart.svg) [d](https://x.y/z#q)\n[up](../README.md)\n";
        assert!(
            say(&[
                ("docs/a.md", text),
                ("docs/decisions/b.md", "# B"),
                ("README.md", "")
            ])
            .is_empty()
        );
    }

    #[test]
    fn link_to_what_does_not_exist_is_a_finding_with_its_line() {
        assert_eq!(
            say(&[("docs/a.md", "# A\n[b](b.md)\n[c]: c.md\n")]),
            ["docs/a.md:2:b.md", "docs/a.md:3:c.md"]
        );
    }

    #[test]
    fn anchor_is_the_heading_of_the_page_that_it_names() {
        let page = "# All `settings`, one by one\n## Twice\n## Twice\n";
        let good = "[a](b.md#all-settings-one-by-one) [b](b.md#twice-1) [c](#own)\n# Own\n";
        assert!(say(&[("a.md", good), ("b.md", page)]).is_empty());
        assert_eq!(
            say(&[("a.md", "[a](b.md#thrice)\n[b](#own)\n"), ("b.md", page)]),
            ["a.md:1:b.md#thrice", "a.md:2:#own"]
        );
    }

    #[test]
    fn code_holds_no_links_and_no_headings() {
        let text = "`[a](b.md)`\n```\n[a](b.md)\n# Own\n```\n[c](#own)\n";
        assert_eq!(say(&[("a.md", text)]), ["a.md:6:#own"]);
    }

    #[test]
    fn comment_names_pages_by_their_path_from_the_root() {
        let line = "//! (docs/limits.md), `docs/decisions/0001-a.md`. See crates/x/docs/y.md and docs/decisions.";
        let pages: Vec<_> = pages_named(line).collect();
        assert_eq!(pages, ["docs/limits.md", "docs/decisions/0001-a.md"]);
    }
}
