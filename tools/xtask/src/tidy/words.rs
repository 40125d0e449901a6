//! Words for unfinished work. Open work is an issue, not a comment.

use std::path::Path;

use super::Finding;
use super::source::{self, Source};

/// Words that are not allowed, put together so that this file does not contain them.
const WORDS: [&str; 5] = [
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
];

/// Extensions of other files that are searched for these words.
const OTHER_EXTENSIONS: &[&str] = &["c", "h", "sh", "toml"];

/// Findings in a Rust source.
pub fn check(source: &Source) -> Vec<Finding> {
    in_text(&source.path, &source.text)
}

/// Findings in C sources, scripts and manifests.
pub fn check_other_files(root: &Path) -> Result<Vec<Finding>, String> {
    let mut files = Vec::new();
    source::walk(root, &mut files)?;
    let mut findings = Vec::new();
    for path in files {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension.is_some_and(|extension| OTHER_EXTENSIONS.contains(&extension)) {
            findings.extend(in_text(&path, &source::read(root, &path)?));
        }
    }
    Ok(findings)
}

fn in_text(path: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(word) = WORDS.iter().find(|word| holds_word(line, word)) {
            findings.push(Finding {
                file: path.to_path_buf(),
                line: index + 1,
                rule: "unfinished",
                item: String::new(),
                cause: format!("{word}: finish it or write an issue"),
            });
        }
    }
    findings
}

/// Whether the line contains the word, and not only as part of a longer one.
fn holds_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(start, _)| {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        !before.is_some_and(is_part) && (word.ends_with('!') || !after.is_some_and(is_part))
    })
}
