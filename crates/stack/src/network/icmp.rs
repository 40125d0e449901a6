//! ICMP and ICMPv6: received messages, and the errors that we send.
//!
//! The cold path of `packet_in` passes whole packets for us. Echo requests are answered. An error
//! about one of our TCP segments becomes an [`ErrorReport`], which goes to the connection that it
//! names. The connection checks the quoted sequence number (RFC 5927). Neighbour discovery goes on
//! to [`arp_nd`](crate::network::arp_nd). Packets are read from a local copy, and answers are
//! written to the caller's buffer, both from the IP header on.

use core::net::Ipv4Addr;

use tcp::IcmpError;
use wire::quote::Quote;
use wire::{FlowKey, SeqNumber, WireError, icmpv4, icmpv6, ipv4, ipv6, protocol};

use crate::limits::{
    ECHO_REPLIES_BURST_MAX, ECHO_REPLIES_PER_SECOND_MAX, ICMP_ERRORS_BURST_MAX,
    ICMP_ERRORS_PER_SECOND_MAX,
};
use crate::network::addresses::{Destination, LocalAddresses, is_unicast};
use crate::network::arp_nd::is_own_group;

mod limiter;

#[cfg(test)]
mod tests;

use limiter::Bucket;

/// Code of "time exceeded" for a reassembly timeout (RFC 792).
const V4_REASSEMBLY_TIME: u8 = 1;

/// Hop limit of our ICMP packets.
const HOP_LIMIT: u8 = 64;

/// The meaning of an ICMP packet to this host.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// An echo request that was answered. The first `len` bytes of the caller's buffer are the
    /// reply packet.
    EchoReply {
        /// Length of the reply, bytes.
        len: usize,
    },
    /// One of our packets was not delivered.
    Error(ErrorReport),
    /// Neighbour discovery, for [`arp_nd::on_nd`](crate::network::arp_nd::on_nd) with the packet's
    /// source address.
    Neighbour {
        /// The message.
        message: icmpv6::Message<'a>,
        /// The packet's source.
        source: core::net::Ipv6Addr,
    },
    /// A packet without effect, and the reason.
    Dropped(Drop),
}

/// The reason why an ICMP packet had no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drop {
    /// The packet is malformed, or an error that quotes too little or no TCP segment.
    Wire(WireError),
    /// The destination is not ours, or the source is impossible.
    Address,
    /// The type of message is of no use to a TCP host.
    Kind,
    /// The rate limit is reached, or the answer does not fit the buffer.
    Limit,
    /// Echo is turned off.
    EchoOff,
}

/// An ICMP error about a TCP segment that seems to come from us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorReport {
    /// The quoted flow: `local` is the quoted source.
    pub flow: FlowKey,
    /// The quoted sequence number. Only one in SND.UNA..SND.NXT is believed (RFC 5927 section 4.1).
    pub seq: SeqNumber,
    /// The fate of the segment.
    pub kind: ErrorKind,
}

/// The fate of a packet of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The packet was dropped for this reason.
    Failed(IcmpError),
    /// The packet was too big for a link (RFC 1191, RFC 8201), for `Connection::on_mtu`: IPv4's
    /// "fragmentation needed" or IPv6's "packet too big".
    PacketTooBig {
        /// The MTU that would have fitted, bytes; never below the family's minimum (68, 1280).
        mtu: u32,
    },
}

/// The ICMP error to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Port unreachable: no socket listens (UDP).
    Port,
    /// Protocol unreachable: the stack does not speak it.
    Protocol,
    /// Administratively prohibited: a packet rule rejects the packet.
    Prohibited,
}

/// Rate limits for ICMP packets that we send (RFC 1122 section 3.2.2, RFC 4443 section 2.4(f)).
#[derive(Clone, Debug)]
pub struct IcmpLimiter {
    errors: Bucket,
    echoes: Bucket,
}

impl IcmpLimiter {
    /// Makes full buckets. `seed` blurs the limits, so that an outsider cannot infer our traffic
    /// with other hosts (CVE-2020-25705).
    pub fn new(seed: u64) -> IcmpLimiter {
        IcmpLimiter {
            errors: Bucket::new(ICMP_ERRORS_PER_SECOND_MAX, ICMP_ERRORS_BURST_MAX, seed),
            echoes: Bucket::new(ECHO_REPLIES_PER_SECOND_MAX, ECHO_REPLIES_BURST_MAX, !seed),
        }
    }
}

/// The parts of a stack that process ICMP packets.
#[derive(Debug)]
pub struct Icmp<'a> {
    /// Our addresses.
    pub addresses: &'a LocalAddresses,
    /// The rate limits.
    pub limiter: &'a mut IcmpLimiter,
    /// True to answer echo requests.
    pub echo: bool,
    /// The time of this turn, ns.
    pub now_ns: u64,
}

impl Icmp<'_> {
    /// Processes an IPv4 packet with ICMP. `packet` begins with the IP header; padding behind it is
    /// ignored. An answer is written to `out`.
    pub fn on_v4<'p>(&mut self, packet: &'p [u8], out: &mut [u8]) -> Incoming<'p> {
        self.try_v4(packet, out).unwrap_or_else(Incoming::Dropped)
    }

    /// Processes an IPv6 packet with ICMPv6, like [`Icmp::on_v4`].
    pub fn on_v6<'p>(&mut self, packet: &'p [u8], out: &mut [u8]) -> Incoming<'p> {
        self.try_v6(packet, out).unwrap_or_else(Incoming::Dropped)
    }

    fn try_v4<'p>(&mut self, packet: &'p [u8], out: &mut [u8]) -> Result<Incoming<'p>, Drop> {
        use icmpv4::Message;
        let header = ipv4::Header::parse(packet, packet.len()).map_err(Drop::Wire)?;
        // Answering broadcasts would amplify a small packet (RFC 1122 section 3.2.2.6 allows
        // silence).
        self.check_ends(header.dst.into(), header.src.into())?;
        if header.is_fragment() {
            return Err(Drop::Wire(WireError::Fragment));
        }
        let body = payload(
            packet,
            usize::from(header.header_len),
            usize::from(header.total_len),
        )?;
        let (kind, quote) = match Message::parse(body).map_err(Drop::Wire)? {
            Message::EchoRequest { ident, seq, data } => {
                self.check_echo()?;
                let reply = Message::EchoReply { ident, seq, data };
                return echo_v4(&header, &reply, out);
            }
            Message::DestinationUnreachable {
                code: icmpv4::unreachable::FRAGMENTATION_NEEDED,
                next_hop_mtu,
                quote,
            } => (too_big_v4(next_hop_mtu, quote)?, quote),
            Message::DestinationUnreachable { code, quote, .. } => (
                ErrorKind::Failed(unreachable_v4(code).ok_or(Drop::Kind)?),
                quote,
            ),
            // Errors about fragments say nothing of a path that our segments pass unfragmented
            // (Linux).
            Message::TimeExceeded { code, .. } if code == V4_REASSEMBLY_TIME => {
                return Err(Drop::Kind);
            }
            Message::TimeExceeded { quote, .. } => {
                (ErrorKind::Failed(IcmpError::TimeExceeded), quote)
            }
            Message::ParameterProblem { quote, .. } => {
                (ErrorKind::Failed(IcmpError::ParameterProblem), quote)
            }
            // Source quench is dropped silently (RFC 9293 MUST-55); redirects are not followed.
            Message::EchoReply { .. } | Message::Other { .. } => return Err(Drop::Kind),
        };
        self.report(Quote::parse_v4(quote), kind)
    }

    fn try_v6<'p>(&mut self, packet: &'p [u8], out: &mut [u8]) -> Result<Incoming<'p>, Drop> {
        use icmpv6::Message;
        let header = ipv6::Header::parse(packet, packet.len()).map_err(Drop::Wire)?;
        let (upper, at) = ipv6::upper_layer(&header, packet).map_err(Drop::Wire)?;
        if upper != protocol::ICMPV6 {
            return Err(Drop::Kind);
        }
        let end = ipv6::HEADER_LEN + usize::from(header.payload_len);
        let body = payload(packet, at, end)?;
        let message =
            Message::parse(body, header.src, header.dst, header.hop_limit).map_err(Drop::Wire)?;
        if let Message::NeighborSolicitation { .. } | Message::NeighborAdvertisement { .. } =
            message
        {
            return self.neighbour(message, &header);
        }
        self.check_ends(header.dst.into(), header.src.into())?;
        let (kind, quote) = match message {
            Message::EchoRequest { ident, seq, data } => {
                self.check_echo()?;
                let reply = Message::EchoReply { ident, seq, data };
                return echo_v6(&header, &reply, out);
            }
            Message::DestinationUnreachable { code, quote } => {
                (ErrorKind::Failed(unreachable_v6(code)), quote)
            }
            // Every IPv6 link carries that much, so RFC 8201 section 4 has such a message
            // discarded.
            Message::PacketTooBig { mtu, .. } if mtu < MTU_MIN_V6 => return Err(Drop::Kind),
            Message::PacketTooBig { mtu, quote } => (ErrorKind::PacketTooBig { mtu }, quote),
            Message::TimeExceeded { quote, .. } => {
                (ErrorKind::Failed(IcmpError::TimeExceeded), quote)
            }
            Message::ParameterProblem { quote, .. } => {
                (ErrorKind::Failed(IcmpError::ParameterProblem), quote)
            }
            _ => return Err(Drop::Kind),
        };
        self.report(Quote::parse_v6(quote), kind)
    }

    /// Writes the ICMP error that refuses `packet`, and returns its length. `None`: RFC 1122
    /// section 3.2.2, RFC 4443 section 2.4(e) or the rate limit forbid one, or `out` is too short
    /// (576 bytes suffice for IPv4, 1280 for IPv6).
    pub fn refuse(&mut self, packet: &[u8], refusal: Refusal, out: &mut [u8]) -> Option<usize> {
        match packet.first()? >> 4 {
            4 => self.refuse_v4(packet, refusal, out),
            6 => self.refuse_v6(packet, refusal, out),
            _ => None,
        }
    }

    fn refuse_v4(&mut self, packet: &[u8], refusal: Refusal, out: &mut [u8]) -> Option<usize> {
        let header = ipv4::Header::parse(packet, packet.len()).ok()?;
        if header.protocol == protocol::ICMP || header.fragment_offset != 0 {
            return None;
        }
        self.check_ends(header.dst.into(), header.src.into()).ok()?;
        let code = match refusal {
            Refusal::Port => icmpv4::unreachable::PORT,
            Refusal::Protocol => icmpv4::unreachable::PROTOCOL,
            Refusal::Prohibited => icmpv4::unreachable::ADMINISTRATIVELY_PROHIBITED,
        };
        let message = icmpv4::Message::DestinationUnreachable {
            code,
            next_hop_mtu: 0,
            quote: packet.get(..usize::from(header.total_len))?,
        };
        if !self.limiter.errors.take(self.now_ns) {
            return None;
        }
        write_v4(&message, header.dst, header.src, out)
    }

    fn refuse_v6(&mut self, packet: &[u8], refusal: Refusal, out: &mut [u8]) -> Option<usize> {
        let header = ipv6::Header::parse(packet, packet.len()).ok()?;
        let (upper, at) = ipv6::upper_layer(&header, packet).ok()?;
        if upper == protocol::ICMPV6 {
            return None;
        }
        self.check_ends(header.dst.into(), header.src.into()).ok()?;
        let quote = packet.get(..ipv6::HEADER_LEN + usize::from(header.payload_len))?;
        let message = match refusal {
            Refusal::Port => icmpv6::Message::DestinationUnreachable {
                code: icmpv6::unreachable::PORT,
                quote,
            },
            Refusal::Prohibited => icmpv6::Message::DestinationUnreachable {
                code: icmpv6::unreachable::ADMINISTRATIVELY_PROHIBITED,
                quote,
            },
            Refusal::Protocol => icmpv6::Message::ParameterProblem {
                code: icmpv6::UNRECOGNIZED_NEXT_HEADER,
                pointer: next_header_at(packet, at),
                quote,
            },
        };
        if !self.limiter.errors.take(self.now_ns) {
            return None;
        }
        write_v6(&message, header.dst, header.src, out)
    }

    fn neighbour<'p>(
        &self,
        message: icmpv6::Message<'p>,
        header: &ipv6::Header,
    ) -> Result<Incoming<'p>, Drop> {
        let is_ours = if header.dst.is_multicast() {
            is_own_group(header.dst, self.addresses)
        } else {
            self.addresses.is_local(header.dst.into())
        };
        if !is_ours {
            return Err(Drop::Address);
        }
        Ok(Incoming::Neighbour {
            message,
            source: header.src,
        })
    }

    /// Checks that a packet goes to one of our unicast addresses and comes from a possible peer.
    fn check_ends(&self, to: core::net::IpAddr, from: core::net::IpAddr) -> Result<(), Drop> {
        if self.addresses.classify(to) == Destination::Local
            && is_unicast(from)
            && self.addresses.is_valid_source(from)
        {
            return Ok(());
        }
        Err(Drop::Address)
    }

    fn check_echo(&mut self) -> Result<(), Drop> {
        if !self.echo {
            return Err(Drop::EchoOff);
        }
        if !self.limiter.echoes.take(self.now_ns) {
            return Err(Drop::Limit);
        }
        Ok(())
    }

    fn report<'p>(
        &self,
        quote: Result<Quote, WireError>,
        kind: ErrorKind,
    ) -> Result<Incoming<'p>, Drop> {
        let Quote { flow, seq } = quote.map_err(Drop::Wire)?;
        if !self.addresses.is_local(flow.local.to_ip()) {
            return Err(Drop::Address);
        }
        Ok(Incoming::Error(ErrorReport { flow, seq, kind }))
    }
}

/// The least MTU of a link: RFC 791, RFC 8200.
const MTU_MIN_V4: u32 = 68;
const MTU_MIN_V6: u32 = 1280;

/// Plateaus of RFC 1191 section 7.1, for routers that do not report the MTU that fits.
const PLATEAUS: [u16; 10] = [
    32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296, 68,
];

fn too_big_v4(next_hop_mtu: u16, quote: &[u8]) -> Result<ErrorKind, Drop> {
    let mtu = if next_hop_mtu != 0 {
        next_hop_mtu
    } else {
        let sent = ipv4::Header::parse_quoted(quote)
            .map_err(Drop::Wire)?
            .total_len;
        PLATEAUS
            .into_iter()
            .find(|&plateau| plateau < sent)
            .unwrap_or(MTU_MIN_V4 as u16)
    };
    Ok(ErrorKind::PacketTooBig {
        mtu: u32::from(mtu).max(MTU_MIN_V4),
    })
}

/// The error of an IPv4 "destination unreachable" by its code (RFC 792, RFC 1122 section 3.2.2.1,
/// RFC 1812 section 5.2.7.1).
fn unreachable_v4(code: u8) -> Option<IcmpError> {
    Some(match code {
        0 => IcmpError::NetUnreachable,
        1 => IcmpError::HostUnreachable,
        5 => IcmpError::SourceRouteFailed,
        7 => IcmpError::HostUnknown,
        8 => IcmpError::HostIsolated,
        2 => IcmpError::ProtocolUnreachable,
        3 => IcmpError::PortUnreachable,
        6 | 9 | 11 => IcmpError::NetProhibited,
        10 | 12..=15 => IcmpError::Prohibited,
        _ => return None,
    })
}

/// The error of an ICMPv6 "destination unreachable" by its code (RFC 4443 section 3.1).
fn unreachable_v6(code: u8) -> IcmpError {
    match code {
        0 => IcmpError::NetUnreachable,
        2 | 3 => IcmpError::HostUnreachable,
        4 => IcmpError::PortUnreachable,
        1 | 5 | 6 => IcmpError::AccessDenied,
        // Codes defined later count as a parameter problem (Linux).
        _ => IcmpError::ParameterProblem,
    }
}

fn payload(packet: &[u8], at: usize, end: usize) -> Result<&[u8], Drop> {
    packet.get(at..end).ok_or(Drop::Wire(WireError::Truncated))
}

fn echo_v4<'p>(
    asked: &ipv4::Header,
    reply: &icmpv4::Message<'_>,
    out: &mut [u8],
) -> Result<Incoming<'p>, Drop> {
    let len = write_v4(reply, asked.dst, asked.src, out).ok_or(Drop::Limit)?;
    Ok(Incoming::EchoReply { len })
}

fn echo_v6<'p>(
    asked: &ipv6::Header,
    reply: &icmpv6::Message<'_>,
    out: &mut [u8],
) -> Result<Incoming<'p>, Drop> {
    let len = write_v6(reply, asked.dst, asked.src, out).ok_or(Drop::Limit)?;
    Ok(Incoming::EchoReply { len })
}

fn write_v4(
    message: &icmpv4::Message<'_>,
    from: Ipv4Addr,
    to: Ipv4Addr,
    out: &mut [u8],
) -> Option<usize> {
    let len = ipv4::HEADER_LEN + message.emit_len();
    let out = out.get_mut(..len)?;
    let header = ipv4::Header {
        total_len: u16::try_from(len).ok()?,
        ttl: HOP_LIMIT,
        protocol: protocol::ICMP,
        src: from,
        dst: to,
        ..ipv4::Header::default()
    };
    let at = header.emit(out);
    message.emit(&mut out[at..]);
    Some(len)
}

fn write_v6(
    message: &icmpv6::Message<'_>,
    from: core::net::Ipv6Addr,
    to: core::net::Ipv6Addr,
    out: &mut [u8],
) -> Option<usize> {
    let len = ipv6::HEADER_LEN + message.emit_len();
    let out = out.get_mut(..len)?;
    let header = ipv6::Header {
        payload_len: u16::try_from(message.emit_len()).ok()?,
        next_header: protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        src: from,
        dst: to,
        ..ipv6::Header::default()
    };
    let at = header.emit(out);
    message.emit(&mut out[at..], from, to);
    Some(len)
}

/// Offset of the next-header field that names the upper layer at `upper_at`: in the fixed header,
/// or at the start of the last extension header (the pointer of RFC 4443 section 3.4).
fn next_header_at(packet: &[u8], upper_at: usize) -> u32 {
    const FIXED_NEXT_HEADER_AT: usize = 6;
    let (mut field_at, mut at) = (FIXED_NEXT_HEADER_AT, ipv6::HEADER_LEN);
    while at < upper_at {
        let Some(&[_, len8]) = packet.get(at..).and_then(<[u8]>::first_chunk) else {
            break;
        };
        (field_at, at) = (at, at + 8 + usize::from(len8) * 8);
    }
    field_at as u32
}
