//! Conversations with a connection: every state, every kind of segment, timers and loss. Each
//! conversation runs with header prediction on and off, and at sequence numbers that wrap; see
//! `peer::conversation`.

mod accecn;
mod boundaries;
mod buffers;
mod closing;
mod congestion;
mod ecn;
mod edges;
mod established;
mod fin_order;
mod link;
mod loss_probe;
mod matrix;
mod open;
#[path = "../harness/outside_twins.rs"]
mod outside_twins;
mod pacing;
mod path;
mod peer;
mod probes;
mod receive;
mod recovery;
mod sack;
mod script;
mod shadow;
#[path = "../harness/single_calls.rs"]
mod single_calls;
mod spurious;
mod states;
mod storm;
mod timestamps;
mod twin;
mod window;
mod windows_and_timeouts;
