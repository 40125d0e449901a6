//! The code between `%{` and `}%`: as much Python as assertions about a connection need.
//!
//! Supported are numbers, strings, lists, chained comparisons, arithmetic, `and`/`or`/`not`,
//! comprehensions, f-strings and the built-in functions. Statements are assignment, `assert`, `if`
//! and `for`, in blocks by indentation. Anything else (`def`, classes) is refused with its line.
//!
//! The runner owns one [`Python`] per script, so a name assigned in one piece of code is known
//! in the next. It sets the names of `tcp_info` before each piece.

mod calls;
mod eval;
mod expression;
mod format;
mod lex;
mod parse;

use std::collections::BTreeMap;
use std::fmt;

use super::Mismatch;

/// The value of a name.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    Tuple(Vec<Value>),
}

impl fmt::Display for Value {
    /// Text as from Python's `str`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::None => f.write_str("None"),
            Value::Bool(true) => f.write_str("True"),
            Value::Bool(false) => f.write_str("False"),
            Value::Int(value) => value.fmt(f),
            Value::Float(value) => write!(f, "{value:?}"),
            Value::Text(text) => f.write_str(text),
            Value::Tuple(values) => {
                f.write_str("(")?;
                for (at, value) in values.iter().enumerate() {
                    f.write_str(if at > 0 { ", " } else { "" })?;
                    value.fmt(f)?;
                }
                f.write_str(")")
            }
        }
    }
}

/// The interpreter's state: names and their values, and output.
#[derive(Default)]
pub(super) struct Python {
    names: BTreeMap<String, Value>,
    /// Text that was printed.
    pub output: String,
    /// `sys.exit` was called in the piece of code that runs.
    is_over: bool,
    /// Number of values made by all pieces together, up to a limit: names keep theirs from one to
    /// the next.
    made: usize,
}

impl Python {
    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.names.insert(name.to_owned(), value);
    }

    /// Runs code that starts in `line` of the script. Fails at an assertion that does not hold, and
    /// at code that cannot be run.
    pub(super) fn run(&mut self, line: u32, code: &str) -> Result<(), Mismatch> {
        let program = parse::program(line, code)?;
        self.is_over = false;
        eval::run(self, &program)
    }
}

/// Parses code that starts in `line` of the script without running it.
pub(super) fn check(line: u32, code: &str) -> Result<(), Mismatch> {
    parse::program(line, code).map(|_| ())
}

#[cfg(test)]
mod tests;
