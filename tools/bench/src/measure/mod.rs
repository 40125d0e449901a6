//! The message benchmark's work on a connection, and its counts: one code for every system that is
//! measured.
//!
//! [`Plan`] says what is exchanged, [`Answering`] and [`Asking`] do it over anything that reads and
//! writes without blocking, [`http`] is what it exchanges with servers that others wrote, [`Tally`]
//! counts, [`Seen`] is what is reported. Used by `bench` and by `rivals`, the systems that other
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
