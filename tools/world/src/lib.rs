//! Random worlds: two to eight stacks, a network between them, faults, applications, and observers
//! that know the rules. A seed determines everything.
//!
//! ```text
//!   seed ─▶ draw ─▶ Plan ─▶ World: hosts (stack + applications) ◀─▶ net (lines, switches, routers) ◀─ lies
//!                             │ queue: one event after another, in virtual time
//!                             ├ watch       every frame of a host, against TCP's rules
//!                             ├ inspect     every connection after every turn
//!                             ├ ledger      every byte of every stream, every failure excused or not
//!                             └ trace       hash, last events
//! ```
//!
//! [`check`] runs a seed, twice if asked to, and on failure looks for faults without which it still
//! fails. It is called by `cargo xtask sim` and by the test of seeds that once failed.
//! [`virtual_host`] is not part of the worlds: packet scripts and the packetdrill plug-in run on
//! it.

#![forbid(unsafe_code)]

mod app;
pub mod draw;
pub mod fairness;
pub mod faults;
mod host;
mod inspect;
mod lies;
mod net;
pub mod plan;
mod queue;
pub mod random;
mod run;
pub mod seeds;
mod trace;
pub mod virtual_host;
mod watch;

pub use run::{Failure, Options, Summary, check};
