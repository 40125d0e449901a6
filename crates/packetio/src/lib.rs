//! Packet input and output, in batches.
//!
//! [`Port`] is the central trait. Backends for machines are [`xdp`] (any netdev), [`packet`] (a raw
//! AF_PACKET socket), [`tap`] (where XDP is missing), [`dpdk`] (any NIC of DPDK's, through a
//! plug-in) and [`mux`] (a virtual port of `mill mux`). [`memif`] is shared memory between two
//! processes, [`loopback`] a wire within one, and [`ip_wire`] a wire with raw IP packets at its far
//! end. Wrappers go around any of them: [`fault`] loses and delays frames by seed, [`pcap`] writes
//! a pcapng file, and [`capture_port`] logs for other processes. [`WireSpec`] names a wire in one
//! line, [`open()`] makes its port, [`wait()`] sleeps on several ports, [`bridge`] joins two.
//! Contexts of one process share a wire by [`shared_queues`] and hand frames over by a [`mesh`], or
//! receive from a [`switch`].
//!
//! The stack is the main caller. `mill wire` uses [`bridge`]. Simulated worlds hold the far ends of
//! [`loopback`] on their own clock.
//!
//! `unsafe` stands only in files named `*_unsafe.rs`; such a module is declared with
//! `#[allow(unsafe_code)]`.

#![deny(unsafe_code)]

pub mod bridge;
#[allow(unsafe_code)]
pub mod buffer_unsafe;
pub mod capture_port;
pub mod clock;
pub mod counter_list;
pub mod dpdk;
pub mod fault;
mod fd_port;
pub mod foreign;
mod forward;
pub mod frame_filter;
#[allow(unsafe_code)]
pub mod frame_unsafe;
pub mod host;
mod interface_drops;
pub mod ip_wire;
pub mod ledger;
pub mod limits;
pub mod local_queue;
pub mod loopback;
mod mac;
pub mod memif;
pub mod mesh;
pub mod mirror;
#[cfg(test)]
#[path = "../tests/mortal/mod.rs"]
mod mortal;
pub mod mux;
#[allow(unsafe_code)]
mod netdev_unsafe;
pub mod notice;
pub mod offload;
pub mod open;
mod open_error;
pub mod packet;
#[allow(unsafe_code)]
mod packet_unsafe;
pub mod pcap;
pub mod port;
pub mod seqpacket;
pub mod shared_queues;
#[allow(unsafe_code)]
pub mod signals_unsafe;
pub mod spec;
pub mod spin;
pub mod spread;
pub mod switch;
pub mod tap;
pub mod text;
mod virtio;
pub mod wait;
pub mod xdp;

pub use clock::{Clock, VirtualClock};
pub use frame_unsafe::{HeadMut, RxChecksum, RxFrame, TxFrame};
pub use open::open;
pub use open_error::{Check, OpenError, Remedy};
pub use port::{Capabilities, ChecksumPolicy, MacAddr, Port, PortCounters, PortError};
pub use rustix::event::PollFlags;
pub use spec::{Backend, SpecError, WireSpec};
pub use wait::{Woken, wait, wait_each};
