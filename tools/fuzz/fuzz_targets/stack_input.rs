//! A whole stack between a hostile wire and a careless application: frames of every kind, socket
//! calls in any order, time in leaps.
//!
//! After each step the stack must come to rest in a bounded number of turns, and its frames must be
//! well formed. Every byte that the application reads must follow the one before. Every byte that
//! leaves must be the one that was written there. At the end all is closed, time passes, and
//! everything that was taken must have been given back (the harness's own check).

#![no_main]

#[path = "../../../crates/stack/tests/common/mod.rs"]
mod common;
mod stack_steps;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: stack_steps::Input| {
    stack_steps::Play::new(&input.world).run(&input.steps);
});
