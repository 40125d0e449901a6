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

mod arrivals;
pub mod config;
pub mod context;
mod core;
pub mod counters;
mod departures;
mod event_queue;
mod flows;
mod header_fields;
pub mod limits;
mod network;
mod requests;
mod schedule;
mod secrets;
mod settle;
mod stack;
mod stage_clock;
mod tcp_env;
mod timer_stage;

pub use config::{ConfigError, StackConfig};
pub use context::Usage;
pub use counters::Counters;
pub use limits::Limits;
pub use network::addresses::IpCidr;
pub use stack::{Stack, Turned};
pub use stage_clock::StageCycles;
