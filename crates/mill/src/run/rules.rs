//! The rules file of `mill run --rules FILE`: programs, ports and prefixes.
//!
//! ```text
//! # for all programs
//! not 22,192.168.0.0/16
//!
//! program nginx
//! listen 80,443
//!
//! program curl
//! connect 10.0.0.0/8
//! ```
//!
//! A line has a word and a list. Lines after `program` hold in programs of that name, up to the
//! next such line. Lines before the first one, and after `program *`, hold in all programs. The
//! words `listen`, `connect` and `not` mean the same as the options.

use std::io::Read as _;
use std::path::Path;

use super::{ports, ports_and_prefixes, prefixes};
use crate::failure::Failure;

/// Largest rules file in bytes: its lines are handed to programs in one environment variable.
const BYTES_MAX: usize = 64 << 10;

/// Reads a rules file; returns settings of the library, one per line.
pub fn read(path: &Path) -> Result<Vec<String>, Failure> {
    let mut text = String::new();
    let file = std::fs::File::open(path);
    file.and_then(|file| (file.take(BYTES_MAX as u64 + 1)).read_to_string(&mut text))
        .map_err(|error| Failure::Usage(format!("run: {}: {error}", path.display())))?;
    if text.len() > BYTES_MAX {
        let path = path.display();
        return Err(Failure::Usage(format!(
            "run: {path}: longer than {BYTES_MAX} bytes"
        )));
    }
    let lines = settings(&text);
    lines.map_err(|cause| Failure::Usage(format!("run: {}: {cause}", path.display())))
}

/// The settings in a rules file. The last line ends the part that holds in single programs.
pub(super) fn settings(text: &str) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let mut words = line.split_whitespace();
        let (Some(key), Some(value), None) = (words.next(), words.next(), words.next()) else {
            return Err(format!("line {number}: `{line}` is not a word and a list"));
        };
        let checked = match key {
            "program" => program(value),
            "listen" => ports(value),
            "connect" => prefixes(value),
            "not" => ports_and_prefixes(value),
            _ => Err(format!("`{key}` is no rule")),
        };
        let value = checked.map_err(|cause| format!("line {number}: {cause}"))?;
        lines.push(format!("{key}={value}"));
    }
    lines.push("program=*".to_owned());
    Ok(lines)
}

fn program(name: &str) -> Result<String, String> {
    match name.contains('/') {
        true => Err(format!("`{name}` is a path: a program has its file's name")),
        false => Ok(name.to_owned()),
    }
}
