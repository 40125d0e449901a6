//! The deterministic world in which the stack is proven: everything here runs in virtual time, on one thread, and the same seed gives the same run.
//!
//! * [`world`]: two to eight stacks, random networks between them, random faults and random applications, and observers that know the rules.

#![forbid(unsafe_code)]

pub mod world;
