//! Packet headers: bytes to values and back.
//!
//! This crate is the base of all others: `tcp` takes sequence numbers and options from here,
//! `packetio` MAC addresses, and `stack` parses and builds frames. It owns the formats, the
//! portable checksum, and the keyed hash of a flow. It uses only the slices that callers pass: no
//! clock, no operating system, no allocation, no `unsafe` (`no_std`).
//!
//! Three habits hold in every module:
//!
//! * `parse` takes bytes that may be anything and returns a value or a [`WireError`]; nothing that
//!   an attacker can send makes it panic.
//! * `emit` writes a value at the start of a buffer and returns the number of bytes written: 0,
//!   with the buffer untouched, if it does not fit.
//! * A packet that is parsed and emitted again is the same packet, except for content that is
//!   skipped by design (unknown options).
//!
//! ```
//! use wire::ethernet::{self, EtherType};
//! use wire::{SeqNumber, ipv4, protocol, tcp};
//!
//! let mut frame = [0u8; 54];
//! let eth = ethernet::Header { ethertype: EtherType::IPV4, ..Default::default() };
//! let ip = ipv4::Header { total_len: 40, protocol: protocol::TCP, ..Default::default() };
//! let syn = tcp::Header { seq: SeqNumber(7), flags: tcp::Flags::SYN, ..Default::default() };
//! let mut at = eth.emit(&mut frame);
//! at += ip.emit(&mut frame[at..]);
//! at += syn.emit(&mut frame[at..]);
//! assert_eq!(at, frame.len());
//!
//! let (eth, at) = ethernet::Header::parse(&frame)?;
//! assert_eq!(eth.ethertype, EtherType::IPV4);
//! let ip = ipv4::Header::parse(&frame[at..], frame.len() - at)?;
//! let (tcp, data_offset) = tcp::Header::parse(&frame[at + usize::from(ip.header_len)..])?;
//! assert_eq!((tcp, data_offset), (syn, 20));
//! # Ok::<(), wire::WireError>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod accecn;
pub mod addr;
pub mod arp;
pub mod checksum;
pub mod ecn;
pub mod error;
pub mod ethernet;
mod field;
pub mod flow;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod limits;
pub mod plain;
pub mod quote;
pub mod seq;
pub mod siphash;
pub mod tcp;
pub mod tcp_option;
pub mod toeplitz;

pub use addr::Addr;
pub use checksum::Sum;
pub use ecn::Ecn;
pub use error::WireError;
pub use ethernet::MacAddr;
pub use flow::{FlowHasher, FlowKey};
pub use seq::SeqNumber;

/// Numbers of the IP protocol field, and of IPv6's next header field.
pub mod protocol {
    /// ICMP for IPv4, RFC 792.
    pub const ICMP: u8 = 1;
    /// TCP, RFC 9293.
    pub const TCP: u8 = 6;
    /// UDP, RFC 768.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6, RFC 4443.
    pub const ICMPV6: u8 = 58;
    /// IPv6: nothing follows, RFC 8200 section 4.7.
    pub const IPV6_NO_NEXT_HEADER: u8 = 59;
}
