//! What the message benchmark does on a connection, and how it counts: one code for every system that is measured.
//!
//! [`Plan`] says what is exchanged, [`Answering`] and [`Asking`] do it over anything that reads and writes without blocking,
//! [`http`] is what it exchanges with servers that others wrote, [`Tally`] counts, [`Seen`] is what is reported. Used by `mill bench` and by `rivals`, which brings the systems that
//! the product's dependencies shall not know.

#![forbid(unsafe_code)]

mod conversation;
pub mod cpu;
pub mod http;
pub mod kernel;
mod plan;
mod tally;

pub use conversation::{Answering, Asking, Next};
pub use plan::{Exchange, Plan};
pub use tally::{Seen, Tally};
