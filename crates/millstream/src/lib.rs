//! Millstream: a user-level TCP stack for multicore servers.
//!
//! The stack runs inside the application: one per core, sharing nothing, on a wire of its own
//! ([`WireSpec`]: AF_XDP on a network interface, shared memory to another process, a TAP). Sockets
//! look like those of `std::net`, readiness like that of `mio`.
//!
//! ```no_run
//! use std::io::{Read, Write};
//! use millstream::{Config, Runtime, TcpListener};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = Config::new("xdp:eth1".parse()?);
//! config.addresses.push("10.0.0.2/24".parse()?);
//! let runtime = Runtime::new(config)?;
//! let context = runtime.context(0)?;
//! let listener = TcpListener::bind(&context, "10.0.0.2:7".parse()?)?;
//! loop {
//!     let (mut stream, peer) = listener.accept()?;
//!     println!("{peer} is connected");
//!     let mut bytes = [0; 4096];
//!     loop {
//!         match stream.read(&mut bytes)? {
//!             0 => break,
//!             n => stream.write_all(&bytes[..n])?,
//!         }
//!     }
//! }
//! # }
//! ```
//!
//! * A [`Runtime`] opens the wire and holds one stack per context. A [`Context`] is the
//!   application's end of one of them; it and its sockets stay on the thread that took it.
//! * The application's own thread turns its stack, inside calls that wait. [`Crank`] says which
//!   thread does so while the application is elsewhere: a watchdog that all stacks share
//!   ([`Crank::Inline`]), or a thread per stack that comes sooner ([`Crank::Dedicated`]).
//! * A [`Clock`] other than the system's makes a simulation: [`Runtime::with_ports`] takes the wire
//!   from the caller, and the caller advances time.
//! * [`Poll`] waits for many sockets and for kernel descriptors, level- or edge-triggered, once or
//!   repeatedly, as Linux's epoll does.

#![forbid(unsafe_code)]

mod app_socket;
mod config;
mod context;
mod counted;
mod crank;
mod error;
mod event;
mod heir;
mod host_view;
mod interleaving;
mod interrupter;
mod lease;
pub mod limits;
mod linger;
mod listener;
mod mux_context;
pub mod observed;
mod open_wire;
mod options;
mod placement;
mod poll;
mod poll_set;
mod pools;
mod readiness;
pub mod rules;
mod runtime;
mod settings;
mod shared_stack;
mod sharing;
mod socket;
mod state;
mod stream;
mod threads;
mod urgent;
mod watchdog;

pub use config::{Config, Crank, FurtherWire, Observe};
pub use context::Context;
pub use crank::Armed;
pub use crank::Turn;
pub use error::Error;
pub use event::{Event, Events, Interest, Mode, Readiness, Token};
pub use heir::Heir;
pub use interrupter::Interrupter;
pub use listener::{ListenerBuilder, TcpListener};
pub use options::{SocketOptions, option_number};
pub use packetio::notice::on_notice;
pub use packetio::{Clock, VirtualClock, WireSpec};
pub use placement::cpu_list;
pub use poll::{Poll, Source};
pub use pools::{Pool, Pools};
pub use runtime::Runtime;
pub use settings::{Linger, MtuDiscover};
pub use socket::{Refused, TcpSocket};
pub use stack::config::PortConfig;
pub use stack::context::{
    AcceptCall, IcmpNote, PortReport, Report, SocketInfo, SourcePool, StampAnswer, StampKinds,
    StampStats, TxStamp,
};
pub use stack::survey;
pub use stack::{Counters, HugePages, IpCidr, Limits, MissingPages, PagesHeld, Usage};
pub use stream::TcpStream;
pub use tcp::congestion_control;
pub use tcp::path_mtu::MtuProbing;
pub use tcp::{
    BufferSizes, Buffers, CongestionAlgorithm, CubicSettings, DctcpInfo, EcnUse, FastOpenKeys,
    FastOpenSettings, SlowStart, SynCookieUse,
};
pub use tcp::{Config as TcpConfig, Info as TcpInfo, State as TcpState};
pub use urgent::UrgentMark;
