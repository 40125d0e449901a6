//! The message benchmark's work on a connection, and its counts: one code for every system that is
//! measured.
//!
//! [`Plan`] says what is exchanged, and [`Answering`] and [`Asking`] do it over anything that reads
//! and writes without blocking. [`http`] is the exchange with servers that others wrote, [`Tally`]
//! counts, and [`Seen`] is the report. Used by `bench` and by `rivals`, the systems that other
//! libraries bring.

mod conversation;
pub mod http;
pub mod kernel;
mod plan;
mod tally;
mod times;

pub use mill::cpu;

pub use conversation::{Answering, Asking, Next};
pub use plan::{Exchange, Plan};
pub use tally::{Batches, Seen, Tally};
pub use times::{PERCENTILES, Parts, Recorder, Times};
