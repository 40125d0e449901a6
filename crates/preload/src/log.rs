//! Log lines. Each line is printed once per process, to the stderr with which the program began.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::stderr_unsafe;

/// Prints a line, unless it was printed before.
pub fn once(line: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let is_new = {
        let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        said.len() < LINES_MAX && said.insert(line.to_owned())
    };
    if is_new {
        stderr_unsafe::say(&format!("millstream: {line}\n"));
    }
}

/// Different lines that a process prints at most, so that a program with ever new errors does not
/// fill the disk.
const LINES_MAX: usize = 256;
