//! The kernel as the other end: over AF_XDP on a veth pair, natively and in generic mode, and over
//! TAP. Needs root.
//!
//! Nothing is tuned for the tests: the kernel keeps its offloads, Millstream its defaults.

#[path = "../common/mod.rs"]
mod common;

mod bad_wire;
mod crowd;
mod flood;
mod good_wire;
mod idle;
mod variants;
mod watchdog;
