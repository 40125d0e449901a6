//! MultiStack from an application's side: a virtual port of `mill mux`, the service that shares a
//! NIC among many stacks and the kernel.
//!
//! | module | what it is |
//! |---|---|
//! | `message` | the messages between application and service, bytes ⇄ values |
//! | `field` | how the parts of a message are written and read |
//! | `channel` | one connection that carries messages and descriptors |
//! | `host` | this process's connection, its control thread and its requests |
//! | `port` | the virtual port of one context |
//!
//! The service is the crate `mux`. Both ends use these modules, so each message has one definition.

pub mod channel;
mod field;
mod host;
pub mod message;
mod options;
mod port;

pub use host::{MuxHost, after_fork, channel_options, family, found_family, host, join_family};
pub use options::MuxOptions;
pub use port::{MuxPort, open};

/// The service's default socket path; `--socket` or `mux:PATH` names another.
pub const SOCKET_PATH_DEFAULT: &str = "/run/millstream/mux.sock";
