//! The list of exceptions with their reasons, `tools/xtask/tidy-exceptions.toml`. An exception that
//! nothing needs is a finding itself, so the list only shrinks.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Finding;

const FILE: &str = "tools/xtask/tidy-exceptions.toml";
/// Bytes that a reason must have.
const REASON_BYTES_MIN: usize = 20;

/// The list from the file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exceptions {
    #[serde(default, rename = "exception")]
    list: Vec<Exception>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    rule: String,
    file: PathBuf,
    /// A function or dependency; empty for the file as a whole.
    #[serde(default)]
    item: String,
    reason: String,
}

/// Reads the list. A missing file means an empty list.
pub fn read(root: &Path) -> Result<Exceptions, String> {
    match std::fs::read_to_string(root.join(FILE)) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Exceptions::default()),
        Err(error) => Err(format!("{FILE}: {error}")),
    }
}

/// Parses the list.
pub fn parse(text: &str) -> Result<Exceptions, String> {
    toml::from_str(text).map_err(|error| format!("{FILE}: {error}"))
}

impl Exceptions {
    /// Removes excepted findings, and adds faults of the list itself.
    pub fn apply(&self, findings: Vec<Finding>) -> Vec<Finding> {
        let mut used = vec![false; self.list.len()];
        let mut left = Vec::new();
        for finding in findings {
            let index = self
                .list
                .iter()
                .position(|exception| exception.covers(&finding));
            match index {
                Some(index) => used[index] = true,
                None => left.push(finding),
            }
        }
        for (exception, used) in self.list.iter().zip(used) {
            if !used {
                left.push(exception.finding("nothing needs this exception: take it out"));
            }
            if exception.reason.trim().len() < REASON_BYTES_MIN {
                left.push(exception.finding("an exception states its reason"));
            }
        }
        left
    }
}

impl Exception {
    fn covers(&self, finding: &Finding) -> bool {
        self.rule == finding.rule && self.file == finding.file && self.item == finding.item
    }

    fn finding(&self, cause: &str) -> Finding {
        let Self {
            rule, file, item, ..
        } = self;
        Finding {
            file: FILE.into(),
            line: 0,
            rule: "exceptions",
            item: item.clone(),
            cause: format!("{rule} {} {item}: {cause}", file.display()),
        }
    }
}
