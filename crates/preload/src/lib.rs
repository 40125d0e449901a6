//! The library that `mill run` preloads: libc's socket calls, answered by Millstream for TCP
//! sockets on its wire, and by the kernel for everything else.
//!
//! The library only translates: the meaning of calls, options and errnos is `posix`'s. A call that
//! cannot be done exactly fails with an errno and one log line.
//!
//! ```text
//!  program ─▶ *_unsafe.rs ─▶ marks: whose descriptor? ─┬─▶ real_unsafe: libc
//!             exports        one load                  └─▶ engine (one lock) ─▶ posix::Sockets
//!                                                          sleep: arm, unlock, ppoll, lock
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `socket_unsafe`, `transfer_unsafe`, `poll_unsafe`, `descriptor_unsafe`, `splice_unsafe`, `syscall_unsafe` | the functions that programs call |
//! | `aliases_unsafe` | other names of the same |
//! | `stdio_unsafe` | libc's streams on sockets |
//! | `real_unsafe` | libc's functions of the same names |
//! | `process_unsafe` | the constructor, `fork`, the end of the process |
//! | `heir`, `heir_unsafe` | the child that goes on with connections when the process has ended |
//! | `confined_unsafe` | calls after which a process can open no stack |
//! | `copies_unsafe` | processes that were forked without libc |
//! | `own_process` | the process that the table belongs to |
//! | `memory_unsafe` | C's memory as slices; the kernel calls that take numbers alone |
//! | `kernel_epoll_unsafe` | the kernel's epoll, for what stands beside it |
//! | `marks` | the owner of each descriptor |
//! | `inside` | a flag: this thread is inside the library |
//! | `engine`, `held_unsafe` | sockets of Millstream, behind one lock that no sleeper holds; catches panics |
//! | `sleep`, `sleepers`, `pace` | waits without the lock, and the rules for waking |
//! | `waits`, `closing` | the calls that wait, each with the entry that it keeps, and the end of entries |
//! | `signals_unsafe`, `postponed_unsafe` | signal handlers: which one ran; those that wait for the lock |
//! | `calls` | calls on descriptors that are Millstream's |
//! | `decide` | the decision whether a TCP socket is Millstream's or the kernel's |
//! | `listeners`, `holds` | listeners on a `mux` wire, which children open anew, and their addresses and ports |
//! | `kernel_listeners` | inherited listeners of which only the kernel's part remains |
//! | `exec_unsafe`, `exec_list_unsafe`, `family`, `handover` | listeners that the next program of `exec` inherits |
//! | `sharing` | sockets that another program is about to get |
//! | `shared_ports` | ports of listeners from which another process may accept, too |
//! | `filters_unsafe` | constants in front of the packet filter of a kernel socket |
//! | `tags` | sockets that the next program finds marked: connections, listeners that wait |
//! | `rights_unsafe` | listeners that are passed to another program over a UNIX socket |
//! | `passes`, `under_way` | connections on their way over a UNIX socket |
//! | `watches` | the end of watches |
//! | `polling`, `epoll` | waits for descriptors of both sides |
//! | `rules`, `config` | the rules and settings that `mill run` passes |
//! | `errno_unsafe` | results of exported calls: failures become `errno` |

#![deny(unsafe_code)]
// The functions that programs call have no such names in the tests, which are a program themselves.
#![cfg_attr(test, allow(dead_code))]

#[allow(unsafe_code)]
mod aliases_unsafe;
mod calls;
mod closing;
mod config;
#[allow(unsafe_code)]
mod confined_unsafe;
#[allow(unsafe_code)]
mod copies_unsafe;
mod decide;
#[allow(unsafe_code)]
mod descriptor_unsafe;
mod engine;
mod epoll;
#[allow(unsafe_code)]
mod errno_unsafe;
#[allow(unsafe_code)]
mod exec_list_unsafe;
#[allow(unsafe_code)]
mod exec_unsafe;
mod family;
#[allow(unsafe_code)]
mod filters_unsafe;
mod handover;
mod heir;
#[allow(unsafe_code)]
mod heir_unsafe;
#[allow(unsafe_code)]
mod held_unsafe;
mod holds;
mod inside;
#[allow(unsafe_code)]
mod kernel_epoll_unsafe;
mod kernel_listeners;
mod limits;
mod listeners;
mod log;
mod marks;
#[allow(unsafe_code)]
mod memory_unsafe;
#[allow(unsafe_code)]
mod messages_unsafe;
mod own_process;
mod pace;
mod passes;
mod patient;
#[allow(unsafe_code)]
mod poll_unsafe;
mod polling;
#[allow(unsafe_code)]
mod postponed_unsafe;
#[allow(unsafe_code)]
mod process_unsafe;
#[allow(unsafe_code)]
mod real_unsafe;
#[allow(unsafe_code)]
mod rights_unsafe;
mod rules;
mod shared_ports;
mod sharing;
#[allow(unsafe_code)]
mod signals_unsafe;
mod sleep;
mod sleepers;
#[allow(unsafe_code)]
mod socket_unsafe;
#[allow(unsafe_code)]
mod splice_unsafe;
#[allow(unsafe_code)]
mod stderr_unsafe;
#[allow(unsafe_code)]
mod stdio_unsafe;
#[allow(unsafe_code)]
mod syscall_unsafe;
mod tags;
#[allow(unsafe_code)]
mod transfer_unsafe;
mod under_way;
mod waits;
mod watches;
