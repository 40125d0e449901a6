//! Classification of frames. Headers are copied out once, checked, and turned into values; later
//! stages do not read the frame's headers again.
//!
//! `packet_in` calls [`Demux::classify`] for each frame of a batch. TCP for one of our addresses
//! becomes an [`Arrival`]; ARP and ICMP go to the cold path. Any other frame is dropped with a
//! counter that names the reason.

use packetio::{ChecksumPolicy, RxChecksum, RxFrame};
use tcp::Segment;
use wire::checksum::{self, Sum};
use wire::ethernet::{self, EtherType, MacAddr};
use wire::{Addr, Ecn, FlowKey, WireError, ipv4, ipv6, plain, protocol};

use crate::counters::Counters;
use crate::flows::flow_table::FlowEntry;
use crate::header_fields::ECN_BITS;
use crate::limits::HEADER_BYTES_MAX;
use crate::network::addresses::{LocalAddresses, is_link_local};
use crate::shortcuts;

/// A TCP segment for one of our addresses, its payload still in the frame.
pub(crate) struct Arrival {
    pub key: FlowKey,
    /// Keyed hash of `key`: `packet_in` fills it in.
    pub hash: u64,
    /// The flow table's entry under this hash when `packet_in` looked, if there was one.
    pub likely: Option<FlowEntry>,
    pub segment: Segment,
    /// The packet's DSCP, in the upper six bits. An answer without a connection carries the same.
    pub dscp: u8,
    /// The offset of the payload in the frame.
    pub payload_at: u32,
    /// The frame's first bytes, as read from the port.
    pub head: [u8; plain::BYTES_MAX],
    /// True if `head` is that of a [`plain`] packet.
    pub is_plain: bool,
    /// True if options or extension headers lie between the fixed IP header and the TCP header. Set
    /// only if the segment is not plain.
    pub has_ip_options: bool,
    /// The sum of the pseudo-header and the TCP header, still to be verified. `None`: the checksum
    /// is known to be right.
    pub unverified: Option<Unverified>,
}

/// A checksum that only the payload's sum can decide.
#[derive(Clone, Copy)]
pub(crate) struct Unverified {
    headers: Sum,
}

impl Unverified {
    /// The sum of the pseudo-header and the TCP header.
    #[inline]
    pub fn new(sum: u16) -> Self {
        Self {
            headers: Sum::from_folded(sum),
        }
    }

    /// True if the segment is whole, given the sum of its payload.
    #[inline]
    pub fn holds_with(self, payload: Sum) -> bool {
        let mut sum = self.headers;
        // The TCP header's length is a multiple of four, so the payload begins at an even offset.
        sum.combine(payload, false);
        sum.is_valid()
    }
}

impl Arrival {
    /// An empty value for [`Demux::classify`] to fill in. The value is large, and one serves for
    /// all frames of a batch.
    pub fn blank() -> Self {
        let nowhere = Addr::v4(core::net::Ipv4Addr::UNSPECIFIED);
        Self {
            key: FlowKey {
                local: nowhere,
                remote: nowhere,
                local_port: 0,
                remote_port: 0,
            },
            hash: 0,
            likely: None,
            segment: Segment::from((&wire::tcp::Header::default(), 0)),
            dscp: 0,
            payload_at: 0,
            head: [0; plain::BYTES_MAX],
            is_plain: false,
            has_ip_options: false,
            unverified: None,
        }
    }

    /// Bytes of the packet from the IP header on.
    pub fn packet_bytes(&self) -> u32 {
        (self.payload_at + self.segment.len).saturating_sub(ethernet::HEADER_LEN as u32)
    }

    /// True if this segment carries payload and the frame looks like the next segment of the same
    /// flow.
    #[inline(always)]
    pub fn goes_on_in(&self, frame: &RxFrame) -> bool {
        if self.segment.len == 0 || !self.is_plain {
            return false;
        }
        plain::may_continue(&self.head, &frame.head())
    }
}

/// The kind of a frame.
pub(crate) enum FrameKind {
    /// A TCP segment for this stack; `classify` has filled in the arrival.
    Tcp,
    /// ARP, ICMP, neighbour discovery or an unknown protocol: a packet for the cold path.
    Other(OtherPacket),
}

/// The frame was dropped and counted.
pub(crate) struct Dropped;

/// A packet that is not TCP: where its network header lies in the frame.
pub(crate) struct OtherPacket {
    pub ethertype: u16,
    pub source_mac: MacAddr,
    /// True if the frame was addressed to our MAC address, not to a group.
    pub is_to_us_alone: bool,
    /// Index of the port on which the frame arrived.
    pub port: u8,
    /// True if this stack sent the frame to itself.
    pub is_local: bool,
    pub network_at: usize,
}

/// The parts of a stack that `demux` reads, and its counters.
pub(crate) struct Demux<'a> {
    pub port: u8,
    pub mac: MacAddr,
    /// True if this stack sent the frames to itself: both ends are then our own addresses.
    pub are_local: bool,
    pub policy: ChecksumPolicy,
    pub addresses: &'a LocalAddresses,
    pub counters: &'a mut Counters,
}

/// The ends of a segment and its position in the frame, common to both IP versions.
struct Transport {
    local: Addr,
    remote: Addr,
    /// Offset of the TCP header in the frame.
    at: usize,
    /// Length of TCP header and payload, bytes.
    len: usize,
    /// IPv4's TOS, IPv6's traffic class.
    class: u8,
}

impl Transport {
    /// Length of the IP header without options or extension headers, bytes.
    fn bare_len(&self) -> usize {
        match self.local.is_v4() {
            true => ipv4::HEADER_LEN,
            false => ipv6::HEADER_LEN,
        }
    }
}

/// True if the source MAC address is a group address. Nothing answers such a frame: the answer
/// would go to the whole group.
#[inline(always)]
fn is_from_group<const N: usize>(head: &[u8; N]) -> bool {
    const SOURCE_AT: usize = 6;
    head[SOURCE_AT] & 1 != 0
}

impl Demux<'_> {
    /// Determines what a frame is, by the shortcuts for plain packets and SYNs where they apply.
    #[inline(always)]
    pub fn classify(
        &mut self,
        frame: &RxFrame,
        arrival: &mut Arrival,
    ) -> Result<FrameKind, Dropped> {
        if !shortcuts::are_taken() {
            return self.classify_generally(frame, arrival);
        }
        frame.head_into(&mut arrival.head);
        let Some(packet) = plain::parse(&arrival.head, frame.len()) else {
            return self.classify_syn(frame, arrival);
        };
        if packet.dst_mac != self.mac || is_from_group(&arrival.head) {
            return self.classify_any(frame, arrival);
        }
        self.plain(frame, &packet, arrival)?;
        arrival.is_plain = true;
        arrival.segment.options.reset_to(packet.timestamp);
        Ok(FrameKind::Tcp)
    }

    /// [`classify`](Self::classify) without shortcuts. The head of a plain packet or SYN is still
    /// stored, because the ordering of interleaved flows compares heads.
    #[cold]
    fn classify_generally(
        &mut self,
        frame: &RxFrame,
        arrival: &mut Arrival,
    ) -> Result<FrameKind, Dropped> {
        let found = self.classify_any(frame, arrival);
        let (head, syn_head) = (frame.head(), frame.head::<{ plain::SYN_BYTES }>());
        if plain::parse(&head, frame.len()).is_some()
            || plain::parse_syn(&syn_head, frame.len()).is_some()
        {
            arrival.head = head;
        }
        found
    }

    /// Classifies a SYN or SYN-ACK, the most frequent packet that is not plain.
    #[inline(never)]
    fn classify_syn(
        &mut self,
        frame: &RxFrame,
        arrival: &mut Arrival,
    ) -> Result<FrameKind, Dropped> {
        let head = frame.head::<{ plain::SYN_BYTES }>();
        let Some((packet, syn)) = plain::parse_syn(&head, frame.len()) else {
            return self.classify_any(frame, arrival);
        };
        if packet.dst_mac != self.mac || is_from_group(&head) {
            return self.classify_any(frame, arrival);
        }
        self.plain(frame, &packet, arrival)?;
        arrival.is_plain = false;
        let options = &mut arrival.segment.options;
        options.reset_to_syn(packet.timestamp, syn);
        Ok(FrameKind::Tcp)
    }

    /// Fills the arrival from a plain packet, TCP options apart.
    #[inline(always)]
    fn plain(
        &mut self,
        frame: &RxFrame,
        packet: &plain::Packet,
        arrival: &mut Arrival,
    ) -> Result<(), Dropped> {
        let key = FlowKey {
            local: Addr::v4(packet.dst),
            remote: Addr::v4(packet.src),
            local_port: packet.dst_port,
            remote_port: packet.src_port,
        };
        if !self.are_local && !self.addresses.may_exchange(packet.dst, packet.src) {
            self.addresses(key.local, key.remote)?;
        }
        let is_partial = || packet.pseudo.fold() == packet.checksum;
        let is_unverified = self.is_unverified(frame, is_partial)?;
        self.counters.rx_segments += 1;
        arrival.key = key;
        arrival.dscp = packet.dscp_ecn & !ECN_BITS;
        arrival.payload_at = packet.payload_at as u32;
        arrival.unverified = is_unverified.then_some(Unverified {
            headers: packet.sum,
        });
        let segment = &mut arrival.segment;
        segment.seq = packet.seq;
        segment.ack = packet.ack;
        segment.flags = packet.flags;
        segment.window = packet.window;
        segment.urgent = packet.urgent;
        segment.len = packet.payload_len;
        segment.ecn = Ecn::of(packet.dscp_ecn);
        Ok(())
    }

    /// Classifies any frame, field by field.
    #[inline(never)]
    fn classify_any(
        &mut self,
        frame: &RxFrame,
        arrival: &mut Arrival,
    ) -> Result<FrameKind, Dropped> {
        let mut copy = [0; HEADER_BYTES_MAX];
        let n = frame.copy_to(0, &mut copy);
        let bytes = &copy[..n];
        let Ok((ethernet, network_at)) = ethernet::Header::parse(bytes) else {
            return Err(self.drop(|c| &mut c.rx_drop_ethernet));
        };
        if ethernet.dst != self.mac && !ethernet.dst.is_multicast() {
            return Err(self.drop(|c| &mut c.rx_drop_other_mac));
        }
        // A multicast source is no station: an answer would go to a whole group.
        if ethernet.src.is_multicast() {
            return Err(self.drop(|c| &mut c.rx_drop_source_mac));
        }
        // A priority tag (VLAN 0) changes nothing; another network's frames are not ours.
        if ethernet.vlan.is_some_and(|tci| tci & 0x0fff != 0) {
            return Err(self.drop(|c| &mut c.rx_drop_vlan));
        }
        let other = OtherPacket {
            ethertype: ethernet.ethertype,
            source_mac: ethernet.src,
            is_to_us_alone: ethernet.dst == self.mac,
            port: self.port,
            is_local: self.are_local,
            network_at,
        };
        let packet = &bytes[network_at..];
        let packet_len = frame.len() - network_at;
        let transport = match ethernet.ethertype {
            EtherType::IPV4 => self.ipv4(packet, packet_len),
            EtherType::IPV6 => self.ipv6(packet, packet_len),
            EtherType::ARP => return Ok(FrameKind::Other(other)),
            _ => return Err(self.drop(|c| &mut c.rx_drop_ethertype)),
        };
        match transport? {
            Some(_) if ethernet.dst.is_multicast() => Err(self.drop(|c| &mut c.rx_drop_other_mac)),
            Some(transport) => {
                *arrival = self.tcp(frame, bytes, network_at, &transport)?;
                Ok(FrameKind::Tcp)
            }
            None => Ok(FrameKind::Other(other)),
        }
    }

    /// Reads the IPv4 header. `Ok(None)`: the packet is not TCP.
    #[inline]
    fn ipv4(&mut self, packet: &[u8], packet_len: usize) -> Result<Option<Transport>, Dropped> {
        let header = match ipv4::Header::parse(packet, packet_len) {
            Ok(header) => header,
            Err(_) => return Err(self.drop(|c| &mut c.rx_drop_ip_header)),
        };
        if header.is_fragment() {
            return Err(self.drop(|c| &mut c.rx_drop_fragment));
        }
        if header.protocol != protocol::TCP {
            return Ok(None);
        }
        Ok(Some(Transport {
            local: Addr::v4(header.dst),
            remote: Addr::v4(header.src),
            at: usize::from(header.header_len),
            len: header.payload_len(),
            class: header.dscp_ecn,
        }))
    }

    #[inline]
    fn ipv6(&mut self, packet: &[u8], packet_len: usize) -> Result<Option<Transport>, Dropped> {
        let header = match ipv6::Header::parse(packet, packet_len) {
            Ok(header) => header,
            Err(_) => return Err(self.drop(|c| &mut c.rx_drop_ip_header)),
        };
        let (upper, at) = match ipv6::upper_layer(&header, packet) {
            Ok(found) => found,
            Err(WireError::Fragment) => return Err(self.drop(|c| &mut c.rx_drop_fragment)),
            Err(_) => return Err(self.drop(|c| &mut c.rx_drop_ip_header)),
        };
        if upper != protocol::TCP {
            return Ok(None);
        }
        let end = ipv6::HEADER_LEN + usize::from(header.payload_len);
        let Some(len) = end.checked_sub(at) else {
            return Err(self.drop(|c| &mut c.rx_drop_ip_header));
        };
        Ok(Some(Transport {
            local: Addr::v6(header.dst),
            remote: Addr::v6(header.src),
            at,
            len,
            class: header.traffic_class,
        }))
    }

    #[inline]
    fn tcp(
        &mut self,
        frame: &RxFrame,
        bytes: &[u8],
        network_at: usize,
        transport: &Transport,
    ) -> Result<Arrival, Dropped> {
        self.addresses(transport.local, transport.remote)?;
        let tcp_at = network_at + transport.at;
        // Ethernet pads short frames, so the IP header's length gives the end of the segment.
        let tcp_end = (tcp_at + transport.len).min(bytes.len());
        let Some(tcp_bytes) = bytes.get(tcp_at..tcp_end) else {
            return Err(self.drop(|c| &mut c.rx_drop_tcp_header));
        };
        let Ok((header, header_len)) = wire::tcp::Header::parse(tcp_bytes) else {
            return Err(self.drop(|c| &mut c.rx_drop_tcp_header));
        };
        if header_len > transport.len || header_len > tcp_bytes.len() {
            return Err(self.drop(|c| &mut c.rx_drop_tcp_header));
        }
        let unverified =
            self.checksum(frame, &tcp_bytes[..header_len], header.checksum, transport)?;
        self.counters.rx_segments += 1;
        let key = FlowKey {
            local: transport.local,
            remote: transport.remote,
            local_port: header.dst_port,
            remote_port: header.src_port,
        };
        let payload_len = (transport.len - header_len) as u32;
        Ok(Arrival {
            key,
            hash: 0,
            likely: None,
            segment: Segment {
                ecn: Ecn::of(transport.class),
                ..Segment::from((&header, payload_len))
            },
            dscp: transport.class & !ECN_BITS,
            payload_at: (tcp_at + header_len) as u32,
            head: [0; plain::BYTES_MAX],
            is_plain: false,
            has_ip_options: transport.at != transport.bare_len(),
            unverified,
        })
    }

    /// Checks that the segment goes to one of our addresses and comes from a possible peer.
    #[inline]
    fn addresses(&mut self, local: Addr, remote: Addr) -> Result<(), Dropped> {
        if self.are_local {
            return Ok(());
        }
        if !self.addresses.is_own(local) || self.is_beyond_scope(local) {
            return Err(self.drop(|c| &mut c.rx_drop_other_address));
        }
        // RFC 9293 MUST-57, MUST-63: a segment from or to a broadcast or multicast address is not
        // for TCP.
        if !self.addresses.may_be_peer(remote) {
            return Err(self.drop(|c| &mut c.rx_drop_source_address));
        }
        Ok(())
    }

    /// True if `local` is a link-local address of another port (RFC 4007 section 4).
    #[inline]
    fn is_beyond_scope(&self, local: Addr) -> bool {
        is_link_local(local) && self.addresses.port_of(local) != Some(self.port)
    }

    /// True if the port's policy requires verification. `is_partial` tells whether the checksum
    /// field holds only the pseudo-header's sum, not inverted. Local kernel peers send that when
    /// they leave the checksum to hardware.
    #[inline]
    fn is_unverified(
        &mut self,
        frame: &RxFrame,
        is_partial: impl FnOnce() -> bool,
    ) -> Result<bool, Dropped> {
        match (frame.checksum(), self.policy) {
            (RxChecksum::Verified, _) | (RxChecksum::Unknown, ChecksumPolicy::Trust) => Ok(false),
            (RxChecksum::Bad, _) => Err(self.drop(|c| &mut c.rx_drop_tcp_checksum)),
            (RxChecksum::Unknown, ChecksumPolicy::Verify) => Ok(true),
            (RxChecksum::Unknown, ChecksumPolicy::AcceptPartial) => Ok(!is_partial()),
        }
    }

    /// The partial sum of a segment whose checksum must be verified; `None` if it need not be.
    #[inline]
    fn checksum(
        &mut self,
        frame: &RxFrame,
        header: &[u8],
        field: u16,
        transport: &Transport,
    ) -> Result<Option<Unverified>, Dropped> {
        let mut sum = checksum::pseudo_header(
            transport.remote,
            transport.local,
            protocol::TCP,
            transport.len as u32,
        );
        if !self.is_unverified(frame, || sum.fold() == field)? {
            return Ok(None);
        }
        sum.add_bytes(header);
        Ok(Some(Unverified { headers: sum }))
    }

    #[cold]
    fn drop(&mut self, counter: impl FnOnce(&mut Counters) -> &mut u64) -> Dropped {
        *counter(self.counters) += 1;
        Dropped
    }
}
