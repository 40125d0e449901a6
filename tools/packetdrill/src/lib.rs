//! A plug-in for packetdrill: its scripts drive Millstream instead of the kernel's TCP.
//!
//! ```text
//! cargo build -p packetdrill
//! packetdrill --so_filename=target/debug/libmillstream_packetdrill.so [--so_flags=FLAGS] SCRIPT.pkt
//! ```
//!
//! packetdrill loads the library and calls
//! [`packetdrill_interface_init`](interface_unsafe::packetdrill_interface_init). It then makes the
//! script's socket calls through the functions that it got. They use the same public API as
//! applications; packets go straight to the stack's wire.
//!
//! ```text
//!   packetdrill's threads              the stack's thread
//!   interface ─▶ Plugin ── Ask ──▶ Actor ─▶ posix::Sockets ─▶ millstream ─▶ stack
//!       (copies)        ◀─ Answer ──  │                                       │
//!   getsockopt, close of libc ──┘     └────────── ip_wire, virtual clock ◀────┘
//! ```
//!
//! * **Time is virtual** ([`actor`]): it moves when the script waits, from one deadline of the
//!   stack to the next. Every time is exact, and a script of minutes is over in milliseconds.
//! * **Descriptors are real** ([`descriptors`]), and packetdrill's calls of libc on them reach us
//!   ([`interpose_unsafe`]).
//! * **Settings** are those that the script's shell lines make, with or without privilege
//!   ([`settings`], [`shims`]).
//! * Options that packetdrill does not pass to a plug-in are read from its command line
//!   ([`invocation`]).
//!
//! Flags, separated by commas: `clock=real` (the system's clock), `local=ADDRESS`, `mtu=BYTES`,
//! `settings=DIRECTORY` (see [`settings`]), `seed=random`, and `shims=no` (the host's `sysctl`,
//! `tc`, `ip`, `ethtool`, `nstat` and `python3` run as they are).
//!
//! `unsafe` stands only in files named `*_unsafe.rs`; such a module is declared with
//! `#[allow(unsafe_code)]`.

#![deny(unsafe_code)]

mod actor;
mod ask;
mod counters;
mod descriptors;
#[allow(unsafe_code)]
mod descriptors_unsafe;
#[allow(unsafe_code)]
pub mod interface_unsafe;
#[allow(unsafe_code)]
mod interpose_unsafe;
mod invocation;
mod limits;
#[allow(unsafe_code)]
mod memory_unsafe;
mod plugin;
#[allow(unsafe_code)]
mod process_unsafe;
mod reservation;
mod settings;
mod shims;
mod splice;
mod threads;
mod world;
