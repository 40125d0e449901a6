//! mTCP's grammar: a key and its value on each line, separated by blanks or `=`. `#` begins a
//! comment.

use std::path::Path;

use super::{Problem, Settings, keys};

/// The text of a file. Comments may be in any encoding.
pub fn text_of(file: &Path) -> Result<String, Problem> {
    match std::fs::read(file) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) => Err(Problem::at(file, 0, error.to_string())),
    }
}

/// Reads a file's text.
pub fn read(settings: &mut Settings, file: &Path, text: &str) -> Result<(), Problem> {
    for (at, line) in numbered(text) {
        let Some((key, rest)) = line.split_once(|c: char| c == '=' || c.is_ascii_whitespace())
        else {
            return Err(Problem::at(file, at, format!("{line}: a value is missing")));
        };
        let value = rest.trim_matches(|c: char| c == '=' || c.is_ascii_whitespace());
        if value.is_empty() {
            return Err(Problem::at(file, at, format!("{key}: a value is missing")));
        }
        keys::set(settings, key, value, at).map_err(|why| Problem::at(file, at, why))?;
    }
    Ok(())
}

/// The lines with content, without comments, each with its number.
pub fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    lines.filter_map(|(at, line)| {
        let said = line.split('#').next().unwrap_or("").trim();
        (!said.is_empty()).then_some((at + 1, said))
    })
}
