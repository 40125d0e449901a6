//! One core's TCP/IP stack: the stages of a turn, in files that carry their names.
//!
//! ```text
//! packet_in      a batch of frames from the driver (one clock read per turn)
//! demux          parse, check headers, find out what is left to verify, find the flow
//! aggregation    merge in-order runs of one flow (to come: every segment passes unmerged as yet)
//! tcp_in         RFC 9293 on the segment; who is readable, writable, accepted
//! job_queue      what the application asked since last turn
//! timers         what is due
//! tcp_out        per ready connection: what to send now
//! tx_lists       control before ACK before data before openings
//! packet_out     frames built in the driver's own buffers
//! event_queue    what the application should look at; its doorbell at most once
//! ```
//!
//! A stack shares nothing with another. It meets its application in the queues of [`context`] and in the memory of `ring`; it is driven by
//! whoever calls [`Stack::turn`].

#![forbid(unsafe_code)]

mod accept_queue;
pub mod account;
mod ack_trains;
pub mod addresses;
mod aggregation;
pub mod arp_nd;
mod binds;
pub mod config;
mod connect;
pub mod context;
mod control_queue;
mod core;
pub mod counters;
mod demux;
pub mod departures;
mod destinations;
mod dormant;
mod event_queue;
mod fast_open_in;
pub mod flow_table;
mod frame_queue;
mod half_opens;
pub mod host;
mod icmp;
mod icmp_notes;
mod job_queue;
pub mod limits;
mod listeners;
mod memory_rounds;
pub mod neighbours;
mod network;
mod options;
mod other_in;
mod packet_in;
mod packet_out;
pub mod routes;
mod rx_sink;
mod saved_syns;
mod settle;
mod shedding;
mod slab;
mod sockets;
mod stack;
mod stage_clock;
mod stamps;
mod tcp_in;
mod tcp_out;
mod time_waits;
mod timer_stage;
pub mod timers;
mod tx_lists;

pub use addresses::IpCidr;
pub use config::{ConfigError, StackConfig};
pub use counters::Counters;
pub use limits::Limits;
pub use stack::{Stack, Turned, Usage};
pub use stage_clock::StageCycles;
