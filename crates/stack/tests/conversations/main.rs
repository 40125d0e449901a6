//! Conversations with a whole stack over its wire and with its application, named `<state>_<event>`.

#[path = "../common/mod.rs"]
mod common;

mod connects;
mod handshakes;
mod icmp;
mod neighbours;
