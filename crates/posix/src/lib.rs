//! The BSD socket calls by number, over Millstream's public API: descriptors, flags, options and
//! errno as Linux has them.
//!
//! A [`Call`] is a call in progress: [`Call::poll`] carries it as far as possible. On a
//! non-blocking descriptor it is done at once. On a blocking one it is `Pending` until something
//! has happened, and the caller polls it again after turning the stack. One thread can so hold any
//! number of blocked calls, as packet scripts, the `packetdrill` plug-in and a virtual clock need.
//!
//! ```
//! use posix::{Address, Call, Outcome, Request, Sockets, number};
//! # fn run(context: millstream::Context) -> Option<()> {
//! let mut sockets = Sockets::new(context);
//! let socket = Request::Socket { domain: number::AF_INET, kind: number::SOCK_STREAM, protocol: 0 };
//! let (outcome, _) = sockets.call(socket);
//! let Outcome::Done(Ok(fd)) = outcome else { return None };
//! let address = Address::Inet("10.0.0.2:80".parse().ok()?);
//! let mut connect = Call::start(Request::Connect { fd: fd as i32, address });
//! while connect.poll(&mut sockets) == Outcome::Pending {
//!     sockets.turn(); // and let time pass
//! }
//! # Some(()) }
//! ```
//!
//! Values are typed ([`Request`] in, [`Reply`] out). Callers convert C's structures, with
//! [`c_layout`] if they like. Values of socket options, `tcp_info` among them, are bytes in Linux's
//! layout ([`layout`]). `capi`, `preload` and the virtual host of the tools use this crate.

pub mod c_layout;
#[path = "caged_unsafe.rs"]
mod caged;
mod call;
mod descriptors;
mod direct;
mod direct_bytes;
mod dup;
mod entry;
mod epoll;
mod error_queue;
mod fast_open;
mod files;
mod kernel;
pub mod layout;
mod lent_bytes;
mod messages;
pub mod number;
mod open;
mod opt_stats;
mod options;
mod request;
mod select;
mod shared;
mod sigpipe;
#[path = "sleep_unsafe.rs"]
mod sleep;
mod sockets;
pub mod sysctl;
mod table;
pub mod tcp_info;
mod timestamping;
mod transfer;
mod urgent;
mod zero_copy;

pub use call::{Call, Outcome, Reply};
pub use descriptors::{Descriptors, LowestFree};
pub use direct_bytes::scatter;
pub use entry::errno;
pub use messages::{MESSAGES_MAX, receive_messages, send_messages};
pub use request::{Address, ControlMessage, EpollEvent, PollFd, Request};
pub use ring::waiter::{Reason, Waiter};
pub use rustix::io::Errno;
pub use select::Selection;
pub use shared::{Awaited, Caller, Shared};
pub use sigpipe::owes_sigpipe;
pub use sleep::SignalMask;
pub use sockets::Sockets;
