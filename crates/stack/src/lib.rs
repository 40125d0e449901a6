//! One core's TCP/IP stack. A turn goes through these stages, each in a file of the same name:
//!
//! ```text
//! packet_in      a batch of frames from the driver (one clock read per turn)
//! demux          parse, check headers, find out what is left to verify
//! tcp_in         find the flow, merge in-order segments into runs, RFC 9293 on each
//! job_queue      requests of the application since the last turn
//! timer_stage    what is due
//! tcp_out        what each ready connection sends now
//! tx_lists       control before ACK before data before openings
//! packet_out     frames built in the driver's own buffers
//! event_queue    sockets that the application should look at
//! ```
//!
//! Modules use only those below them:
//!
//! ```text
//! stack        the turn                                  timer_stage, host
//!   ports        receiving, sending, sleeping              port_loss
//!   arrivals     packet_in, demux, tcp_in, passive opens, ICMP and ARP
//!   departures   tcp_out, packet_out, ACK trains
//!   requests     job_queue, connect, bind, options
//!     effects      the one door for what follows from a call into a connection
//!     engine       the parts that a call into a connection may change
//!       flows        sockets, flow table, listeners, half-opens, TIME_WAIT
//!       network      addresses, routes, neighbours, ICMP, destinations
//!       schedule     transmit lists, timers, departure times
//!         context, config, rules, header_fields, counters, activity, limits
//! ```
//!
//! Stacks share nothing with each other. A stack meets its application in the queues of [`context`]
//! and in the memory of `ring`. The caller drives it by [`Stack::turn`].

#![forbid(unsafe_code)]

mod accept_rings;
mod accept_search;
pub mod activity;
mod admission;
mod arrivals;
pub mod config;
pub mod context;
mod core;
pub mod counters;
mod departures;
mod drop_reasons;
mod effects;
mod engine;
mod event_queue;
mod flows;
mod handshake_keys;
mod header_fields;
mod host;
mod host_wishes;
mod leaving_connections;
pub mod limits;
mod network;
mod network_setup;
mod option_table;
mod port_loss;
mod ports;
mod requests;
pub mod rules;
mod schedule;
mod secrets;
mod shortcuts;
mod socket_option;
mod source_pool;
mod stack;
mod stage_clock;
pub mod survey;
mod tcp_env;
mod timer_stage;
mod transfer_lists;
mod transfers;
mod unsent_notes;

pub use config::{ConfigError, StackConfig};
pub use context::Usage;
pub use counters::Counters;
pub use limits::Limits;
pub use network::addresses::{CidrError, IpCidr};
pub use ring::huge_pages::{HugePages, MissingPages, PagesHeld};
pub use secrets::new_seed;
#[cfg(feature = "twin")]
pub use shortcuts::set_shortcuts;
pub use stack::{Observer, PortView, Queues, Stack, Turned};
pub use stage_clock::StageCycles;
