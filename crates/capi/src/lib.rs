//! libmtcp: Millstream's socket calls for C, under mTCP's names.
//!
//! The headers in `include/` specify the calls. This crate only translates: `posix` implements
//! calls, options and errnos, and features that Rust programs need as well belong into
//! `millstream`.
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
//! | `memory_unsafe` | C's memory as slices and values; a null pointer is `EFAULT` |
//! | `door` | the frame of every call: errors become `errno`, panics are caught |
//! | `contexts` | contexts, found by the handle that C has; each belongs to one thread |
//! | `process` | state of the process: settings, and the runtime made from them |
//! | `stats` | the lines of `stat_print` |
//! | `config` | the configuration's two grammars |
//! | `kernel_unsafe` | calls on a context's kernel sockets |
//! | `fork_unsafe` | keeps a child from dropping its parent's contexts |
//! | `signals_unsafe`, `interfaces_unsafe`, `errno_unsafe` | the remaining calls of libc |

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
