//! The deterministic world in which the stack is proven: everything here runs in virtual time, on one thread, and the same seed gives the same run.
//!
//! * [`world`]: two to eight stacks, random networks between them, random faults and random applications, and observers that know the rules.
//! * [`script`]: packet scripts in the language of packetdrill, played through the socket calls that applications make.

#![deny(unsafe_code)]

pub mod limits;
pub mod script;
pub mod world;
