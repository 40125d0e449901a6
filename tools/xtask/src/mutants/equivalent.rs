//! Mutants that no test can tell from the product. They are listed in
//! `tools/xtask/equivalent-mutants.toml`, each with the reason.
//!
//! An entry names file, change and line of code instead of the line's number, so that it survives
//! when lines move. An entry that fits no mutant fails the chore.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::list::Mutant;

const FILE: &str = "tools/xtask/equivalent-mutants.toml";

/// One entry.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    file: String,
    /// The change in cargo-mutants' words: `replace < with <= in Connection::is_acceptable`. None:
    /// every mutant of the line, or of the file.
    change: Option<String>,
    /// The line of code in which the change begins, without surrounding blanks. None: every line.
    code: Option<String>,
    reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries {
    #[serde(default)]
    mutant: Vec<Entry>,
}

/// The list.
#[derive(Default)]
pub struct Equivalents {
    entries: Vec<Entry>,
    /// Source files read so far, by lines.
    lines: HashMap<String, Vec<String>>,
}

impl Equivalents {
    pub fn read(root: &Path, mutants: &[Mutant]) -> Result<Equivalents, String> {
        let path = root.join(FILE);
        let text = fs::read_to_string(&path).map_err(|error| format!("{FILE}: {error}"))?;
        let entries: Entries = toml::from_str(&text).map_err(|error| format!("{FILE}: {error}"))?;
        let mut lines = HashMap::new();
        for mutant in mutants {
            if !lines.contains_key(&mutant.file) {
                let text = fs::read_to_string(root.join(&mutant.file));
                let text = text.map_err(|error| format!("{}: {error}", mutant.file))?;
                let text = text.lines().map(|line| line.trim().to_owned());
                lines.insert(mutant.file.clone(), text.collect());
            }
        }
        Ok(Equivalents {
            entries: entries.mutant,
            lines,
        })
    }

    /// Checks that every entry gives a reason, and that it fits one of `mutants` if its crate is
    /// among `crates`.
    pub fn verify(&self, mutants: &[Mutant], crates: &[String]) -> Result<(), String> {
        for entry in &self.entries {
            let name = entry.change.as_deref().unwrap_or("every change");
            let described = format!("{FILE}: {}: {name}", entry.file);
            if entry.reason.trim().is_empty() {
                return Err(format!("{described}: without a reason"));
            }
            let is_ours = |name: &String| entry.file.starts_with(&format!("crates/{name}/"));
            let fits = mutants.iter().any(|mutant| self.fits(entry, mutant));
            if crates.iter().any(is_ours) && !fits {
                return Err(format!("{described}: no mutant is like that any more"));
            }
        }
        Ok(())
    }

    /// Whether the mutant is listed.
    pub fn contains(&self, mutant: &Mutant) -> bool {
        self.entries.iter().any(|entry| self.fits(entry, mutant))
    }

    fn fits(&self, entry: &Entry, mutant: &Mutant) -> bool {
        let line = self.lines.get(&mutant.file);
        let line = line.and_then(|lines| lines.get(mutant.span.start.line - 1));
        entry.file == mutant.file
            && entry
                .change
                .as_deref()
                .is_none_or(|text| text == mutant.change())
            && entry.code.as_ref().is_none_or(|code| line == Some(code))
    }
}
