//! One TCP connection, sans-IO.
//!
//! The crate knows no clock, no socket and no thread, and allocates nothing on the data path. The
//! caller (`stack`) hands in verified segments, the application's actions, and the time; it asks
//! for segments to send. [`Connection`] is RFC 9293's connection from the active open, or from a
//! completed passive handshake, to its end. The passive side has small entries of its own
//! ([`listen`], [`half_open`], [`time_wait`]) and stateless answers ([`reset`], [`syn_cookie`],
//! [`isn`], [`challenge`]).
//!
//! ```text
//!   segment ──► on_segment ─┐                     ┌─► Effects: what the caller must do
//!   write/read/close ──► on_write, on_read, … ────┤
//!   time ──► on_timer ──────┘                     └─► poll_transmit ──► SegmentOut
//! ```
#![no_std]
#![forbid(unsafe_code)]

/// `alloc` is used only for the pools that a stack builds at its start.
extern crate alloc;

#[cfg(test)]
extern crate std;

pub mod buffers;
pub mod challenge;
pub mod config;
mod congestion;
pub mod congestion_control;
mod conn_flags;
pub mod connection;
mod context;
pub mod counters;
mod ecn;
mod ecn_mode;
pub mod effects;
pub mod fast_open;
mod flight;
pub mod half_open;
pub mod handshake;
pub mod isn;
pub mod limits;
pub mod listen;
mod opening;
mod pacing;
pub mod pack;
mod path;
pub mod path_mtu;
mod plan;
mod reassembly;
mod receive;
mod records;
mod recovery;
pub mod recv_buffer;
pub mod reset;
mod rtt;
pub mod segment;
mod send;
pub mod state;
pub mod syn_cookie;
#[cfg(test)]
#[path = "../tests/harness/surroundings.rs"]
mod test_stack;
pub mod time_wait;
mod timers;
mod timestamp;
mod variables;

pub use buffers::{Buffers, Memory};
pub use challenge::ChallengeLimiter;
pub use config::{
    BufferSizes, Config, CongestionAlgorithm, CubicSettings, EcnUse, SlowStart, SynCookieUse,
};
pub use congestion::{BbrInfo, DctcpInfo};
pub use connection::glance::{self, Glance};
pub use connection::info::{self, Info};
pub use connection::run;
pub use connection::{ActiveOpen, BurstTail, Connection, Keepalive, PlainAck, Untouched};
pub use context::Cx;
pub use counters::Counters;
pub use ecn::{AccurateEcnInfo, EcnGrant, SynEcn};
pub use ecn_mode::EcnMode;
pub use effects::Effects;
pub use fast_open::{FastOpenFailure, FastOpenKeys, FastOpenReply, FastOpenSettings, FastOpenSyn};
pub use handshake::{Handshake, SynAckRepetitions, TimeWaitEntry, WindowScales};
pub use path_mtu::PathMtuSettings;
pub use reassembly::RangePool;
pub use records::RecordPool;
pub use recv_buffer::RecvBuffer;
pub use segment::{Segment, SegmentOut, TransmitClass};
pub use send::buffer::SendRoom;
pub use state::{ConnectionError, IcmpError, State};

/// One millisecond in the crate's unit of time.
pub const MILLISECOND_NS: u64 = 1_000_000;
/// One second in the crate's unit of time.
pub const SECOND_NS: u64 = 1_000_000_000;
