//! The egress check in user space: the same decisions as in `bpf/mux_check.h`, for `path=memif` and
//! as a test oracle of the programs.
//!
//! Owns a table of senders' rights. The check only reads a frame's bytes, and no byte can make it
//! panic. The checks have the order of [`Reason`]. Called for each frame from a memif application,
//! with a copy of its first [`HEAD_BYTES`] bytes, and by tests that compare its verdicts with the
//! XDP program's.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use foldhash::fast::RandomState as Keyed;
use packetio::MacAddr;

use crate::reason::Reason;

const ETHERNET_BYTES: usize = 14;
const FRAME_BYTES_MIN: usize = ETHERNET_BYTES + 20;
/// Least size of an Ethernet frame without its checksum; shorter packets are padded.
const FRAME_BYTES_PADDED: usize = 60;
const TCP_BYTES: usize = 20;
/// Least bytes of options and payload of a segment that is cut from a packet.
const SEGMENT_BYTES_MIN: usize = 48;
/// Number of bytes at the beginning of a frame that the check reads: all headers up to the fixed
/// part of TCP's, with the longest IPv4 header.
pub const HEAD_BYTES: usize = 96;

/// The kind of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// An address of the NIC.
    Local,
    /// The broadcast address of a subnet of the NIC.
    Broadcast,
}

/// The owner of an address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The application.
    pub slot: u16,
    /// Flows keep their context, so flows that the owner sends must be recorded.
    pub tracks: bool,
}

/// A packet that may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The destination address.
    pub destination: IpAddr,
    /// Length of the network header in bytes.
    pub header_len: usize,
    /// The flow must be recorded as the sender's.
    pub tracks: bool,
}

/// The rights of each sender. The hashes are keyed, since applications choose ports, and fast,
/// since each frame is looked up in every table.
#[derive(Clone, Debug)]
pub struct EgressTable {
    /// The NIC's MAC address.
    pub mac: MacAddr,
    /// The NIC's MTU in bytes.
    pub mtu: usize,
    /// Frames for addresses of the NIC may go to clients of the same host.
    pub is_local: bool,
    /// MAC addresses that the service has resolved.
    pub next_hops: HashSet<MacAddr, Keyed>,
    /// Addresses of the NIC, and broadcast addresses of its subnets.
    pub addresses: HashMap<IpAddr, AddressKind, Keyed>,
    /// The device that leases each local port.
    pub leases: HashMap<u16, u16, Keyed>,
    /// The owner of each address and port.
    pub claims: HashMap<SocketAddr, Owner, Keyed>,
}

impl EgressTable {
    /// A table that permits nothing.
    pub fn new(mac: MacAddr, mtu: usize) -> Self {
        Self {
            mac,
            mtu,
            is_local: false,
            next_hops: HashSet::default(),
            addresses: HashMap::default(),
            leases: HashMap::default(),
            claims: HashMap::default(),
        }
    }

    /// Checks whether the application of `slot` may send the frame through its `device`.
    ///
    /// # Errors
    /// The first reason to drop it.
    pub fn check(&self, frame: &[u8], slot: u16, device: u16) -> Result<(), Reason> {
        self.check_head(frame, frame.len(), slot, device).map(drop)
    }

    /// Like [`check`](Self::check), for a frame of `len` bytes of which the caller has copied the
    /// first [`HEAD_BYTES`], or all if there are fewer.
    ///
    /// # Errors
    /// The first reason to drop it.
    pub fn check_head(
        &self,
        head: &[u8],
        len: usize,
        slot: u16,
        device: u16,
    ) -> Result<Passed, Reason> {
        self.check_segments((head, len), 0, slot, device)
    }

    /// Like [`check`](Self::check), for a packet of the bulk lane. Before it leaves it is cut into
    /// segments with `segment_bytes` of payload; 0: it is not cut. The lane does not lead to
    /// clients of the same host.
    ///
    /// # Errors
    /// The first reason to drop it.
    pub fn check_bulk(
        &self,
        frame: &[u8],
        segment_bytes: u16,
        slot: u16,
        device: u16,
    ) -> Result<(), Reason> {
        let passed = self.check_segments((frame, frame.len()), segment_bytes, slot, device)?;
        match self.addresses.get(&passed.destination) {
            Some(AddressKind::Local) => Err(Reason::Local),
            _ => Ok(()),
        }
    }

    /// Checks a frame of `len` bytes, of which `frame` holds at least the headers.
    fn check_segments(
        &self,
        (frame, len): (&[u8], usize),
        segment_bytes: u16,
        slot: u16,
        device: u16,
    ) -> Result<Passed, Reason> {
        debug_assert!(frame.len() >= len.min(HEAD_BYTES), "the head is not whole");
        if segment_bytes == 0 && len > self.mtu + ETHERNET_BYTES {
            return Err(Reason::Oversize);
        }
        if len.min(frame.len()) < FRAME_BYTES_MIN {
            return Err(Reason::Runt);
        }
        let is_v4 = self.check_link(frame)?;
        let packet = match is_v4 {
            true => Packet::of_v4(frame, len)?,
            false => Packet::of_v6(frame, len)?,
        };
        self.check_destination(packet.destination)?;
        let headers = packet.check_tcp()?;
        if segment_bytes > 0 && headers + usize::from(segment_bytes) > self.mtu {
            return Err(Reason::Oversize);
        }
        let tracks = self.check_sender(&packet, slot, device)?;
        if segment_bytes > 0 && packet.is_cut_too_short(headers, segment_bytes.into()) {
            return Err(Reason::Offload);
        }
        Ok(Passed {
            destination: packet.destination,
            header_len: packet.header_len,
            tracks,
        })
    }

    /// Checks the Ethernet header. True: IPv4.
    fn check_link(&self, frame: &[u8]) -> Result<bool, Reason> {
        let is_v4 = match half(frame, 12) {
            0x0800 => true,
            0x86dd => false,
            0x0806 => return Err(Reason::Arp),
            0x8100 | 0x88a8 => return Err(Reason::Vlan),
            _ => return Err(Reason::Ethertype),
        };
        if mac(frame, 6) != self.mac {
            return Err(Reason::SourceMac);
        }
        match self.next_hops.contains(&mac(frame, 0)) {
            true => Ok(is_v4),
            false => Err(Reason::NextHop),
        }
    }

    fn check_destination(&self, to: IpAddr) -> Result<(), Reason> {
        let first = match to {
            IpAddr::V4(v4) => match v4.octets()[0] {
                224..=239 => Some(Reason::Multicast),
                0 | 240..=255 => Some(Reason::Broadcast),
                127 => Some(Reason::Loopback),
                _ => None,
            },
            IpAddr::V6(v6) if v6.is_multicast() => Some(Reason::Multicast),
            IpAddr::V6(v6) if embeds_v4(v6) => Some(Reason::Loopback),
            IpAddr::V6(_) => None,
        };
        match (first, self.addresses.get(&to)) {
            (Some(reason), _) => Err(reason),
            (None, Some(AddressKind::Broadcast)) => Err(Reason::Broadcast),
            (None, Some(AddressKind::Local)) if !self.is_local => Err(Reason::Local),
            (None, _) => Ok(()),
        }
    }

    /// Checks source address and port. True: the packet's flow must be recorded.
    fn check_sender(&self, packet: &Packet<'_>, slot: u16, device: u16) -> Result<bool, Reason> {
        if self.addresses.get(&packet.source) != Some(&AddressKind::Local) {
            return Err(Reason::SourceAddress);
        }
        let port = half(packet.tcp, 0);
        if let Some(leased_to) = self.leases.get(&port) {
            return match *leased_to == device {
                true => Ok(false),
                false => Err(Reason::ForeignPort),
            };
        }
        let any = match packet.source {
            IpAddr::V4(_) => IpAddr::from([0; 4]),
            IpAddr::V6(_) => IpAddr::from([0; 16]),
        };
        let claim = [packet.source, any]
            .iter()
            .find_map(|ip| self.claims.get(&SocketAddr::new(*ip, port)));
        match claim {
            Some(owner) if owner.slot == slot => Ok(owner.tracks),
            Some(_) => Err(Reason::ForeignPort),
            None => Err(Reason::SourcePort),
        }
    }
}

/// A packet with a valid network header.
struct Packet<'a> {
    source: IpAddr,
    destination: IpAddr,
    /// Bytes of the network header.
    header_len: usize,
    /// Length of the payload in bytes, from the network header's length field.
    room: usize,
    /// Bytes of the payload that were copied.
    tcp: &'a [u8],
}

impl<'a> Packet<'a> {
    fn of_v4(frame: &'a [u8], len: usize) -> Result<Self, Reason> {
        let ip = &frame[ETHERNET_BYTES..];
        let header_len = usize::from(ip[0] & 15) * 4;
        if ip[0] >> 4 != 4 || header_len < 20 || header_len > ip.len() {
            return Err(Reason::HeaderLength);
        }
        let total = usize::from(half(ip, 2));
        check_total(len, total, header_len)?;
        let sum: u32 = ip[..header_len]
            .chunks_exact(2)
            .map(|word| u32::from(half(word, 0)))
            .sum();
        if (sum & 0xffff) + (sum >> 16) != 0xffff {
            return Err(Reason::HeaderChecksum);
        }
        if half(ip, 6) & 0xbfff != 0 {
            return Err(Reason::Fragment);
        }
        if header_len > 20 {
            return Err(Reason::Options);
        }
        if ip[9] != 6 {
            return Err(Reason::Protocol);
        }
        let address = |at: usize| IpAddr::from([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]);
        Ok(Self {
            source: address(12),
            destination: address(16),
            header_len,
            room: total - header_len,
            tcp: &ip[header_len..total.min(ip.len())],
        })
    }

    fn of_v6(frame: &'a [u8], len: usize) -> Result<Self, Reason> {
        let ip = &frame[ETHERNET_BYTES..];
        if ip.len() < 40 {
            return Err(Reason::Runt);
        }
        if ip[0] >> 4 != 6 {
            return Err(Reason::HeaderLength);
        }
        let total = usize::from(half(ip, 4)) + 40;
        check_total(len, total, 40)?;
        match ip[6] {
            6 => {}
            44 => return Err(Reason::Fragment),
            0 | 43 | 51 | 60 | 135 => return Err(Reason::Options),
            _ => return Err(Reason::Protocol),
        }
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&ip[at..at + 16]);
            IpAddr::from(octets)
        };
        Ok(Self {
            source: address(8),
            destination: address(24),
            header_len: 40,
            room: total - 40,
            tcp: &ip[40..total.min(ip.len())],
        })
    }

    /// Checks the TCP header. Returns the length of all headers in bytes.
    fn check_tcp(&self) -> Result<usize, Reason> {
        if self.room < TCP_BYTES || self.tcp.len() < TCP_BYTES {
            return Err(Reason::DataOffset);
        }
        let header_len = usize::from(self.tcp[12] >> 4) * 4;
        match (TCP_BYTES..=self.room).contains(&header_len) {
            true => Ok(self.header_len + header_len),
            false => Err(Reason::DataOffset),
        }
    }

    /// Whether the packet, whose headers have so many bytes, would become several segments of
    /// which each is tiny.
    fn is_cut_too_short(&self, headers: usize, segment_bytes: usize) -> bool {
        let tcp_header_len = headers - self.header_len;
        let is_cut = self.room - tcp_header_len > segment_bytes;
        is_cut && tcp_header_len + segment_bytes < TCP_BYTES + SEGMENT_BYTES_MIN
    }
}

/// Checks the total length: only padding up to the shortest Ethernet frame may follow the packet.
fn check_total(frame_len: usize, total: usize, least: usize) -> Result<(), Reason> {
    let end = total + ETHERNET_BYTES;
    let is_padded = end < frame_len && frame_len <= FRAME_BYTES_PADDED;
    match total >= least && (end == frame_len || is_padded) {
        true => Ok(()),
        false => Err(Reason::TotalLength),
    }
}

/// True for `::`, `::1`, and addresses that embed an IPv4 address.
fn embeds_v4(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    segments[..4] == [0; 4] && matches!(segments[4..6], [0, 0] | [0, 0xffff])
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn mac(bytes: &[u8], at: usize) -> MacAddr {
    let mut octets = [0; 6];
    octets.copy_from_slice(&bytes[at..at + 6]);
    MacAddr(octets)
}
