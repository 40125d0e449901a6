//! MultiStack: many user-level stacks and the kernel share one NIC and one IP address.
//!
//! The service behind `mill mux`. It owns who has which port, the virtual ports, the reservation of
//! ports in the kernel, and the mirror of the kernel's addresses, routes and neighbours. One thread
//! runs it; frames never pass through that thread.
//!
//! | module | what it is |
//! |---|---|
//! | `dataplane` | namespace, veth pairs, BPF programs and maps, AF_XDP sockets |
//! | `plane` | what the service needs of a data plane, as a trait |
//! | `policy` | which user may claim which port |
//! | `egress` | the check of what applications send, in user space |
//! | `reason` | why the egress check drops a frame |
//! | `limits` | every limit, with its name |
//!
//! The messages are `packetio::mux::message`, since both ends need them. Called by `mill mux`.

#![deny(unsafe_code)]

pub mod dataplane;
pub mod egress;
pub mod limits;
pub mod reason;
