//! One connection between a hostile peer and a careless application: segments that are nearly
//! right, in every state.
//!
//! The harness is that of crate `tcp`'s conversations. So at every call the effects must tell the
//! truth, nothing beyond the buffer or the MSS is sent, and sending stops by itself. Bytes that
//! wait have a timer, and published bytes were written. At the end the peer falls silent and time
//! passes: the connection must come to an end, or have nothing left to wait for.

#![no_main]

#[path = "../../../crates/tcp/tests/harness/outside_twins.rs"]
mod outside_twins;
#[path = "../../../crates/tcp/tests/conversations/peer.rs"]
mod peer;
#[path = "../../../crates/tcp/tests/conversations/script.rs"]
mod script;
mod segment_steps;
#[path = "../../../crates/tcp/tests/conversations/shadow.rs"]
mod shadow;
#[path = "../../../crates/tcp/tests/harness/single_calls.rs"]
mod single_calls;
#[path = "../../../crates/tcp/tests/conversations/states.rs"]
mod states;
// Every call is also made on a copy that may not take shortcuts.
#[path = "../../../crates/tcp/tests/conversations/twin.rs"]
mod twin;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: segment_steps::Input| segment_steps::play(&input));
