//! The code between `%{` and `}%`: as much Python as assertions about a connection need.
//!
//! Numbers, strings, lists, comparisons in chains, arithmetic, `and`/`or`/`not`, comprehensions,
//! f-strings, the functions that come with the language; assignment, `assert`, `if`, `for`, in
//! blocks by indentation. What is beyond (`def`, classes) is refused with its line. The runner owns
//! one [`Python`] per script, so a name assigned in one piece of code is known in the next. It sets
//! the names of `tcp_info` before each piece.

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
    /// As Python's `str`.
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

/// The names and what they stand for.
#[derive(Default)]
pub(super) struct Python {
    names: BTreeMap<String, Value>,
    /// Text that was printed.
    pub output: String,
    /// The piece of code that runs has called `sys.exit`.
    is_over: bool,
    /// Values that all of it has made, up to a limit: names keep theirs from one piece to the next.
    made: usize,
}

impl Python {
    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.names.insert(name.to_owned(), value);
    }

    /// Runs code that starts in `line` of the script. Fails at an assertion that does not hold, and
    /// at code that makes no sense.
    pub(super) fn run(&mut self, line: u32, code: &str) -> Result<(), Mismatch> {
        let program = parse::program(line, code)?;
        self.is_over = false;
        eval::run(self, &program)
    }
}

/// Reads code that starts in `line` of the script without running it.
pub(super) fn check(line: u32, code: &str) -> Result<(), Mismatch> {
    parse::program(line, code).map(|_| ())
}

#[cfg(test)]
mod tests;
