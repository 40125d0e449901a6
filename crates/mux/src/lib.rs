//! MultiStack: many user-level stacks and the kernel share one NIC and one IP address.
//!
//! The service behind `mill mux`. It owns who has which port, the virtual ports, the reservation of
//! ports in the kernel, and the mirror of the kernel's addresses, routes and neighbours. One thread
//! runs it; frames never pass through that thread. With `path=memif` a second one moves frames.
//!
//! | module | what it is |
//! |---|---|
//! | `service` | the loop: connections, requests, changes of the host, deaths |
//! | `policy` | which user may claim which port |
//! | `ownership` | which application has which ports |
//! | `reservation`, `reserved_ports` | the same ports in the kernel: bound sockets, and a setting |
//! | `memory_file` | checks of the memory that applications hand over |
//! | `reset` | resets the peers of an application that died |
//! | `state` | notes for the next service |
//! | `plane` | what the service needs of a data plane, as a trait |
//! | `dataplane` | the data plane of `mill mux`: namespace, veth pairs, BPF programs and maps, AF_XDP sockets |
//! | `abandon_unsafe` | sockets that are closed without a wait for what lies in their queues |
//! | `capabilities` | what the service's threads may do after the start |
//! | `bound_unsafe` | sockets of applications that keep an endpoint in the kernel |
//! | `socket_option_unsafe` | the interface by which a socket sends, and descriptors that peers may send it |
//! | `peer_unsafe` | the process at the other end of a connection |
//! | `notify` | news for systemd |
//! | `egress` | the check of what applications send, in user space |
//! | `frames` | the frames' thread of `path=memif`: NIC to applications and back |
//! | `reason` | why the egress check drops a frame |
//! | `limits` | every limit, with its name |
//!
//! The messages are `packetio::mux::message`, since both ends need them. Called by `mill mux`.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod abandon_unsafe;
#[allow(unsafe_code)]
mod bound_unsafe;
pub mod capabilities;
pub mod dataplane;
pub mod egress;
pub mod frames;
pub mod limits;
mod memory_file;
pub mod notify;
mod ownership;
#[allow(unsafe_code)]
mod peer_unsafe;
pub mod plane;
pub mod policy;
pub mod reason;
mod reservation;
mod reserved_ports;
mod reset;
pub mod service;
#[allow(unsafe_code)]
mod socket_option_unsafe;
mod state;

pub use service::{Service, ServiceError, ServiceOptions};
