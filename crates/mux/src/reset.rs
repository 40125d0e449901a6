//! Resets the peers of an application that died.
//!
//! Owns the queue of connections and the raw sockets. The service does not know the sequence
//! numbers. So it sends a bare ACK from the application's end of each connection. The peer finds it
//! outside its window and answers with the ACK that it expects (RFC 9293 section 3.10.7.4, RFC
//! 5961). The answer reaches the kernel, which knows no such connection and resets it with the
//! right sequence number. Called by the service, a slice at a time.
//!
//! The application wrote the ledger, and root sends. So a segment leaves only if the application
//! could have sent it: from an address of the NIC and a port that it owned, to a host behind this
//! NIC, and no faster than its rate.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use packetio::ledger::Entry;
use rustix::io;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with,
};

use wire::checksum::{pseudo_header_v4, pseudo_header_v6};

use crate::limits::{LEDGER_ENTRIES_PER_TURN, RESET_AGAIN_NS, RESET_BURST_NS, RESETS_PER_TURN};
use crate::plane::Ledger;
use crate::socket_option_unsafe::bind_to_device;

/// TCP's number among the IP protocols.
const TCP: u8 = 6;
/// Bytes of a TCP header without options.
const TCP_BYTES: usize = 20;
/// Bytes on the wire for one connection: two frames over IPv6, the longer kind.
const CONNECTION_BYTES: u64 = 2 * (14 + 40 + TCP_BYTES as u64);

/// The ledger of a dead application.
#[derive(Debug)]
struct PendingResets {
    ledger: Box<dyn Ledger>,
    size: LedgerSize,
    /// Number under which the data plane keeps the ledger for the next service.
    kept: Option<u32>,
    /// Entry from which reading continues.
    at: u32,
    /// Rights of the application, which could write any entry into its ledger.
    owned: Owned,
    /// The next slice leaves no earlier.
    not_before: Instant,
    is_second_round: bool,
}

/// The kernel memory of a dead application's ledger, which its user pays for until the end of the
/// resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerSize {
    /// The user.
    pub uid: u32,
    /// The memory in bytes.
    pub bytes: u64,
}

/// The rights of an application when it died: which segments it could have sent.
#[derive(Clone, Debug, Default)]
pub struct Owned {
    /// Claims; an unspecified address covers those of its family that the NIC has.
    pub endpoints: Vec<SocketAddr>,
    /// Leases.
    pub leases: Vec<std::ops::RangeInclusive<u16>>,
    /// Addresses of the NIC.
    pub addresses: Vec<IpAddr>,
    /// Broadcast addresses of the NIC's subnets.
    pub broadcasts: Vec<IpAddr>,
    /// Index of the NIC; `None`: the host had none, and nothing leaves.
    pub link: Option<u32>,
    /// The NIC's own addresses were reachable, too (`--local`).
    pub is_local: bool,
}

impl Owned {
    /// Whether the application could have had this connection. It could write any into its ledger.
    fn covers(&self, entry: &Entry) -> bool {
        self.has(entry.local) && self.may_reach(entry.remote)
    }

    fn has(&self, local: SocketAddr) -> bool {
        let mut endpoints = self.endpoints.iter();
        let is_claimed = endpoints.any(|endpoint| {
            endpoint.port() == local.port()
                && endpoint.is_ipv4() == local.is_ipv4()
                && (endpoint.ip() == local.ip() || endpoint.ip().is_unspecified())
        });
        let mut leases = self.leases.iter();
        let is_leased = leases.any(|range| range.contains(&local.port()));
        (is_claimed || is_leased) && self.addresses.contains(&local.ip())
    }

    fn may_reach(&self, remote: SocketAddr) -> bool {
        let is_host = match remote.ip() {
            IpAddr::V4(ip) => {
                let is_this_network = ip.octets()[0] == 0;
                !(is_this_network || ip.is_loopback() || ip.is_multicast() || ip.is_broadcast())
            }
            IpAddr::V6(ip) => {
                let is_mapped = ip.to_ipv4_mapped().is_some();
                !(is_mapped || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast())
            }
        };
        is_host
            && remote.port() != 0
            && !self.broadcasts.contains(&remote.ip())
            && (self.is_local || !self.is_own(remote))
    }

    fn is_own(&self, remote: SocketAddr) -> bool {
        self.addresses.contains(&remote.ip())
    }
}

/// Raw sockets, one for each family.
#[derive(Debug)]
struct RawSockets {
    v4: OwnedFd,
    /// `None` if IPv6 is disabled.
    v6: Option<OwnedFd>,
}

impl RawSockets {
    fn new() -> io::Result<Self> {
        Ok(Self {
            v4: raw_socket(AddressFamily::INET)?,
            v6: raw_socket(AddressFamily::INET6).ok(),
        })
    }

    fn of(&self, end: SocketAddr) -> Option<&OwnedFd> {
        match end {
            SocketAddr::V4(_) => Some(&self.v4),
            SocketAddr::V6(_) => self.v6.as_ref(),
        }
    }

    /// Packets leave by this interface only, whatever the host's routes say.
    fn bind_to_device(&self, index: u32) -> io::Result<()> {
        bind_to_device(self.v4.as_fd(), index)?;
        match &self.v6 {
            Some(v6) => bind_to_device(v6.as_fd(), index),
            None => Ok(()),
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Resets {
    /// For peers behind the NIC.
    outside: RawSockets,
    /// For peers at the host's own addresses (`--local`).
    inside: RawSockets,
    pending: VecDeque<PendingResets>,
    /// Kept ledgers that nobody needs any more.
    finished: Vec<u32>,
    /// Bytes a second that the resets of one context may take, as its frames could; 0: any number.
    rate: u64,
}

impl Resets {
    /// # Errors
    /// `PERM` without `CAP_NET_RAW`.
    pub fn new(rate: u64) -> io::Result<Self> {
        Ok(Self {
            outside: RawSockets::new()?,
            inside: RawSockets::new()?,
            pending: VecDeque::new(),
            finished: Vec::new(),
            rate,
        })
    }

    /// Queues the connections in `ledger`, whose application owned `owned`. `kept`: the number
    /// under which the data plane keeps the ledger.
    pub fn add(
        &mut self,
        ledger: Box<dyn Ledger>,
        kept: Option<u32>,
        size: LedgerSize,
        owned: Owned,
    ) {
        self.pending.push_back(PendingResets {
            ledger,
            size,
            kept,
            at: 0,
            owned,
            not_before: Instant::now(),
            is_second_round: false,
        });
    }

    /// The ledgers that are still needed.
    pub fn ledgers(&self) -> impl Iterator<Item = LedgerSize> + '_ {
        self.pending.iter().map(|resets| resets.size)
    }

    /// The kept ledgers that are still needed, for the next service, with the rights of their
    /// applications.
    pub fn kept(&self) -> impl Iterator<Item = (u32, LedgerSize, &Owned)> {
        let pending = self.pending.iter();
        pending.filter_map(|resets| Some((resets.kept?, resets.size, &resets.owned)))
    }

    /// The numbers of kept ledgers that are not needed any more; each is returned once.
    pub fn take_finished(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.finished)
    }

    /// Whether no connections wait.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// True if a connection can be reset now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.pending.iter().any(|resets| resets.not_before <= now)
    }

    /// Sends the first round of all that wait, at once: the service is about to end.
    pub fn finish(&mut self) {
        self.rate = 0;
        let now = Instant::now();
        self.pending.retain(|resets| !resets.is_second_round);
        for resets in &mut self.pending {
            resets.not_before = now;
        }
        while self.is_due(now) {
            self.turn(now);
        }
    }

    /// Sends the next slice. Ledgers have their slices by turns, so that a long one delays no
    /// other.
    pub fn turn(&mut self, now: Instant) {
        let Some(index) = self
            .pending
            .iter()
            .position(|resets| resets.not_before <= now)
        else {
            return;
        };
        let Some(mut resets) = self.pending.remove(index) else {
            return;
        };
        let Some(sent) = self.send_slice(&mut resets) else {
            // Nothing of it can leave: the NIC is gone.
            self.finished.extend(resets.kept);
            return;
        };
        let is_read = resets.ledger.entry(resets.at).is_none();
        match (is_read, resets.is_second_round) {
            (true, true) => {
                self.finished.extend(resets.kept);
                return;
            }
            (true, false) => {
                // The first segment may have been lost, or may have fallen into a peer's window.
                resets.is_second_round = true;
                resets.at = 0;
                resets.not_before = now + Duration::from_nanos(RESET_AGAIN_NS);
            }
            (false, _) => resets.not_before = self.next_slice(resets.not_before, now, sent),
        }
        self.pending.push_back(resets);
    }

    /// When the slice after one of `sent` connections may leave.
    fn next_slice(&self, last: Instant, now: Instant, sent: usize) -> Instant {
        let bytes = sent as u64 * CONNECTION_BYTES;
        let ns = bytes.saturating_mul(1_000_000_000).checked_div(self.rate);
        // The service's ticks are coarse; what was missed between two of them is made up for.
        let burst = Duration::from_nanos(RESET_BURST_NS);
        let from = now
            .checked_sub(burst)
            .map_or(last, |oldest| last.max(oldest));
        from + Duration::from_nanos(ns.unwrap_or(0))
    }

    /// Resets the next peers of a ledger, and counts them; `None` without the NIC.
    fn send_slice(&self, resets: &mut PendingResets) -> Option<usize> {
        self.outside.bind_to_device(resets.owned.link?).ok()?;
        let mut sent = 0;
        for _ in 0..LEDGER_ENTRIES_PER_TURN {
            let Some(bytes) = resets.ledger.entry(resets.at) else {
                break;
            };
            resets.at += 1;
            let entry = Entry::decode(&bytes);
            if let Some(entry) = entry.filter(|entry| resets.owned.covers(entry)) {
                self.provoke(&entry, resets.owned.is_own(entry.remote));
                sent += 1;
            }
            if sent == RESETS_PER_TURN {
                break;
            }
        }
        Some(sent)
    }

    /// Sends a bare ACK that provokes an answer. Of two sequence numbers that are half the space
    /// apart, at least one is outside every window.
    fn provoke(&self, entry: &Entry, is_inside: bool) {
        let sockets = match is_inside {
            true => &self.inside,
            false => &self.outside,
        };
        let is_one_family = entry.local.is_ipv4() == entry.remote.is_ipv4();
        let (Some(socket), true) = (sockets.of(entry.local), is_one_family) else {
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

#[cfg(test)]
mod tests;
