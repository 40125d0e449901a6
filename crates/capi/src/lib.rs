//! libmtcp: the socket calls of Millstream for C, by the names that mTCP gave them.
//!
//! The headers in `include/` say what the calls promise. This crate translates and nothing more:
//! the meaning of calls, options and errno's is `posix`'s, what both need and Rust programs lack
//! goes into `millstream`.
//!
//! ```text
//!  C ─▶ *_unsafe.rs ─▶ door ─▶ contexts: mctx_t ─▶ posix::Sockets of this thread ─▶ millstream
//!       pointers        panics,   which context,
//!       become slices   errno     whose thread
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `control_unsafe`, `socket_unsafe`, `transfer_unsafe`, `epoll_unsafe` | the functions that C programs call |
//! | `memory_unsafe` | C's memory as slices and values; null is `EFAULT` |
//! | `door` | what every call passes: no panic leaves, failures become `errno` |
//! | `contexts` | contexts, found by the handle that C holds; each belongs to one thread |
//! | `process` | what the process has one of: settings, and the runtime made of them |
//! | `stats` | the lines of `stat_print` |
//! | `config` | the configuration's two grammars |
//! | `kernel_unsafe` | calls on sockets of the kernel's that a context has taken in |
//! | `fork_unsafe` | a child leaves contexts to its parent |
//! | `signals_unsafe`, `interfaces_unsafe`, `errno_unsafe` | the few calls of libc that have no better name |

#![deny(unsafe_code)]

mod config;
mod contexts;
#[allow(unsafe_code)]
mod control_unsafe;
mod door;
#[allow(unsafe_code)]
mod epoll_unsafe;
#[allow(unsafe_code)]
mod errno_unsafe;
#[allow(unsafe_code)]
mod fork_unsafe;
#[allow(unsafe_code)]
mod interfaces_unsafe;
#[allow(unsafe_code)]
mod kernel_unsafe;
pub mod limits;
#[allow(unsafe_code)]
mod memory_unsafe;
mod process;
#[allow(unsafe_code)]
mod signals_unsafe;
#[allow(unsafe_code)]
mod socket_unsafe;
mod stats;
#[allow(unsafe_code)]
mod transfer_unsafe;
