//! Log lines: each cause is said once for a process, to the place where stderr was when the program
//! began.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::memory_unsafe;

/// Says a line, unless it has been said.
pub fn once(line: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let is_new = {
        let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        said.len() < LINES_MAX && said.insert(line.to_owned())
    };
    if is_new {
        memory_unsafe::say(&format!("millstream: {line}\n"));
    }
}

/// Different lines that a process says at most: a program that fails in ever new ways does not fill
/// the disk.
const LINES_MAX: usize = 256;
