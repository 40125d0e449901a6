//! The parts that all benchmarks share: child processes, namespaces, repetition in turns,
//! statistics, tables, charts, and the page.
//!
//! A benchmark makes [`Figure`]s and puts them into an [`Outcome`], which writes itself as JSON,
//! Markdown and SVG. [`page`] puts the outcomes of one directory together.

pub mod chart;
pub mod drops;
mod html;
pub mod levels;
pub mod machine;
pub mod memory;
pub mod namespace;
pub mod outcome;
pub mod page;
pub mod process;
pub mod repeats;
mod rivals;
pub mod stats;
pub mod turns;

pub use machine::Machine;
pub use outcome::{Figure, Goal, Outcome, Point, Series};
pub use process::Process;
pub use repeats::Repeats;
pub use stats::{Spread, jain, median, quartiles};
