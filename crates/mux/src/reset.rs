//! Resets of connections whose application has died.
//!
//! Owns the queue of connections and the raw sockets. The service does not know the sequence
//! numbers, so it sends a bare ACK from the application's end of each connection. The peer finds it
//! outside its window and answers with the ACK that it expects (RFC 9293 section 3.10.7.4, RFC
//! 5961). That answer reaches the kernel, which knows no such connection and sends a RST with the
//! right sequence number. Called by the service, a slice at a time.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use packetio::ledger::Entry;
use rustix::io;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with,
};

use wire::checksum::{pseudo_header_v4, pseudo_header_v6};

use crate::limits::{LEDGER_ENTRIES_PER_TURN, RESET_AGAIN_NS, RESETS_PER_TURN};
use crate::plane::Ledger;

/// TCP's number among the IP protocols.
const TCP: u8 = 6;
/// Bytes of a TCP header without options.
const TCP_BYTES: usize = 20;

/// The ledger of a dead application.
#[derive(Debug)]
struct Will {
    ledger: Box<dyn Ledger>,
    /// Entry from which reading continues.
    at: u32,
    /// Local ends that the application owned. Others are ignored, since it could write any into its
    /// ledger.
    owned: Owned,
    /// Earliest time of the second round.
    not_before: Instant,
    is_second_round: bool,
}

/// The local ends that an application owned when it died.
#[derive(Clone, Debug, Default)]
pub struct Owned {
    /// Claimed places; an unspecified address covers its family.
    pub places: Vec<SocketAddr>,
    /// Leased local ports.
    pub leases: Vec<std::ops::RangeInclusive<u16>>,
}

impl Owned {
    fn covers(&self, local: SocketAddr) -> bool {
        let claimed = self.places.iter().any(|place| {
            place.port() == local.port()
                && place.is_ipv4() == local.is_ipv4()
                && (place.ip() == local.ip() || place.ip().is_unspecified())
        });
        claimed
            || self
                .leases
                .iter()
                .any(|range| range.contains(&local.port()))
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Resets {
    v4: OwnedFd,
    /// `None` if IPv6 is disabled.
    v6: Option<OwnedFd>,
    wills: VecDeque<Will>,
}

impl Resets {
    /// # Errors
    /// `PERM` without `CAP_NET_RAW`.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            v4: raw_socket(AddressFamily::INET)?,
            v6: raw_socket(AddressFamily::INET6).ok(),
            wills: VecDeque::new(),
        })
    }

    /// Queues the connections in `ledger`, whose application owned `owned`.
    pub fn add(&mut self, ledger: Box<dyn Ledger>, owned: Owned) {
        self.wills.push_back(Will {
            ledger,
            at: 0,
            owned,
            not_before: Instant::now(),
            is_second_round: false,
        });
    }

    /// True if no connection waits to be reset.
    pub fn is_idle(&self) -> bool {
        self.wills.is_empty()
    }

    /// True if a connection can be reset now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.wills.iter().any(|will| will.not_before <= now)
    }

    /// Sends the next slice of ACKs.
    pub fn turn(&mut self, now: Instant) {
        let Some(index) = self.wills.iter().position(|will| will.not_before <= now) else {
            return;
        };
        let Some(mut will) = self.wills.remove(index) else {
            return;
        };
        let mut left = RESETS_PER_TURN;
        let mut is_read = false;
        for _ in 0..LEDGER_ENTRIES_PER_TURN {
            let Some(bytes) = will.ledger.entry(will.at) else {
                is_read = true;
                break;
            };
            will.at += 1;
            let entry = Entry::decode(&bytes);
            if let Some(entry) = entry.filter(|entry| will.owned.covers(entry.local)) {
                self.provoke(&entry);
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
        if !is_read {
            self.wills.push_front(will);
        } else if !will.is_second_round {
            // The first segment may have been lost, or may have fallen into a peer's window.
            will.is_second_round = true;
            will.at = 0;
            will.not_before = now + Duration::from_nanos(RESET_AGAIN_NS);
            self.wills.push_back(will);
        }
    }

    /// Sends a bare ACK that provokes an answer. Of two sequence numbers that are half the space
    /// apart, at least one is outside every window.
    fn provoke(&self, entry: &Entry) {
        let socket = match entry.local {
            SocketAddr::V4(_) => Some(&self.v4),
            SocketAddr::V6(_) => self.v6.as_ref(),
        };
        let (Some(socket), true) = (socket, entry.local.is_ipv4() == entry.remote.is_ipv4()) else {
            return;
        };
        for sequence in [0, 1 << 31] {
            let Some(packet) = packet(entry, sequence) else {
                return;
            };
            // A raw socket's address has no port.
            let to = SocketAddr::new(entry.remote.ip(), 0);
            // An error is ignored, as if the segment were lost on the way.
            let _ = sendto(socket, &packet, SendFlags::DONTWAIT, &to);
        }
    }
}

/// An IP packet with a bare ACK; `None` if the ends are of different families.
fn packet(entry: &Entry, sequence: u32) -> Option<Vec<u8>> {
    let (header, mut sum) = match (entry.local.ip(), entry.remote.ip()) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => (
            header_v4(local, remote),
            pseudo_header_v4(local, remote, TCP, TCP_BYTES as u32),
        ),
        (IpAddr::V6(local), IpAddr::V6(remote)) => (
            header_v6(local, remote),
            pseudo_header_v6(local, remote, TCP, TCP_BYTES as u32),
        ),
        _ => return None,
    };
    let mut segment = [0; TCP_BYTES];
    segment[..2].copy_from_slice(&entry.local.port().to_be_bytes());
    segment[2..4].copy_from_slice(&entry.remote.port().to_be_bytes());
    segment[4..8].copy_from_slice(&sequence.to_be_bytes());
    segment[12] = (TCP_BYTES as u8 / 4) << 4;
    segment[13] = 0x10; // ACK
    sum.add_bytes(&segment);
    segment[16..18].copy_from_slice(&sum.finish().to_be_bytes());
    Some([header, segment.to_vec()].concat())
}

/// An IPv4 header; the kernel fills in length, identification and checksum.
fn header_v4(local: Ipv4Addr, remote: Ipv4Addr) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, TCP, 0, 0];
    header.extend(local.octets());
    header.extend(remote.octets());
    header
}

fn header_v6(local: Ipv6Addr, remote: Ipv6Addr) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, TCP_BYTES as u8, TCP, 64];
    header.extend(local.octets());
    header.extend(remote.octets());
    header
}

/// A socket that sends complete IP packets and receives none.
fn raw_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW))
}
