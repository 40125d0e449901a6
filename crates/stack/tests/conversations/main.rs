//! Conversations with a whole stack, over its wire and with its application. Tests are named
//! `<state>_<event>`.

#[path = "../common/mod.rs"]
mod common;

mod activity;
mod aggregation;
mod binds;
mod capture;
mod closing;
mod connects;
mod contexts;
mod crowds;
mod data;
mod events;
mod fast_open;
mod fin_wait_2;
mod handshakes;
mod hostile;
mod hosts;
mod icmp;
mod input;
mod interleaving;
mod large_frames;
mod late_turns;
mod limits;
mod memory;
mod memory_rounds;
mod neighbours;
mod offloads;
mod outside_congestion;
mod pacing;
mod packed_sockets;
mod piggyback;
mod rules;
mod sacks;
mod searches;
mod shared_ports;
mod stamps;
mod stories;
mod survey;
mod text_ends;
mod to_itself;
mod transfers;
mod two_gateways;
mod two_lanes;
mod two_ports;
