//! The way into a process from outside: its statistics, and requests to its contexts.
//!
//! A process with stacks runs one agent thread, which listens on a socket named after the process.
//! The agent hands readers of the same user (or root) a file with the process's statistics, and
//! carries their requests to the contexts. A context answers at the end of a turn through a short
//! mailbox. While no request waits, this costs the context a look at one word per turn.
//!
//! | module | what it is |
//! |---|---|
//! | [`layout`] | what lies where in the statistics file |
//! | [`segment`] | the statistics file, written |
//! | [`reader`] | the statistics file, read; its writer may be hostile |
//! | [`message`] | the packets between reader and agent |
//! | [`mailbox`] | the queues between the agent and one context |
//! | [`agent`] | the thread that listens |
//! | [`client`] | a reader's connection |
//! | [`place`] | where sockets lie, and which of them are stale |
//! | `packet` | the socket calls of both ends |
//! | [`limits`] | every limit, with its name |

#![forbid(unsafe_code)]

pub mod agent;
pub mod client;
pub mod layout;
pub mod limits;
pub mod mailbox;
pub mod message;
mod packet;
pub mod place;
pub mod reader;
pub mod segment;
