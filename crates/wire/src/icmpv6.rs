//! ICMPv6: echo and the errors that concern TCP (RFC 4443), neighbour solicitation and
//! advertisement (RFC 4861).
//!
//! `stack`'s neighbour cache and its ICMP stage call it. Router discovery is left to the kernel, so
//! its messages stay [`Message::Other`].

use crate::checksum;
use crate::error::WireError;
use crate::ethernet::MacAddr;
use crate::field::{be16, be32, bytes, put};
use crate::ipv6;
use crate::limits::ICMPV6_ERROR_BYTES_MAX;
use crate::protocol;
use core::net::Ipv6Addr;

/// Bytes before the data, the quote or the target.
pub const HEADER_LEN: usize = 8;

/// Bytes of a quote that an error may carry: the whole packet stays within IPv6's minimum MTU, RFC
/// 4443 section 2.4 (c).
pub const QUOTE_LEN_MAX: usize = ICMPV6_ERROR_BYTES_MAX - ipv6::HEADER_LEN - HEADER_LEN;

/// Bytes of a neighbour solicitation or advertisement with a link-layer address.
pub const NEIGHBOR_LEN_MAX: usize = HEADER_LEN + 16 + LLADDR_OPTION_LEN;

const DESTINATION_UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;

const SOURCE_LLADDR: u8 = 1;
const TARGET_LLADDR: u8 = 2;
/// Bytes of a link-layer address option for Ethernet, RFC 2464 section 6.
const LLADDR_OPTION_LEN: usize = 8;

/// The hop limit that proves that a packet crossed no router (RFC 4861 section 6.1).
const HOP_LIMIT_ON_LINK: u8 = 255;

/// Codes of [`Message::DestinationUnreachable`], RFC 4443 section 3.1.
pub mod unreachable {
    /// No route to the destination.
    pub const NO_ROUTE: u8 = 0;
    /// Forbidden by administration.
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 1;
    /// Beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// The address cannot be reached.
    pub const ADDRESS: u8 = 3;
    /// Nothing listens on the port.
    pub const PORT: u8 = 4;
}

/// Code of [`Message::ParameterProblem`] for a host that does not speak the protocol: a hard error
/// for TCP (RFC 4443 section 3.4).
pub const UNRECOGNIZED_NEXT_HEADER: u8 = 1;

/// The flags of a neighbour advertisement, RFC 4861 section 4.4.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct NeighborFlags {
    /// The sender is a router.
    pub router: bool,
    /// The message answers a solicitation.
    pub solicited: bool,
    /// The message replaces the cached address.
    pub overrides: bool,
}

/// An ICMPv6 message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A ping.
    EchoRequest {
        /// The sender's identifier.
        ident: u16,
        /// The sender's counter.
        seq: u16,
        /// Data to be returned as it is.
        data: &'a [u8],
    },
    /// The answer to a ping.
    EchoReply {
        /// The identifier of the request.
        ident: u16,
        /// The sequence number of the request.
        seq: u16,
        /// The data of the request.
        data: &'a [u8],
    },
    /// A packet of this host did not arrive.
    DestinationUnreachable {
        /// The reason, see [the codes](mod@unreachable).
        code: u8,
        /// The start of the packet, see [`crate::quote::Quote::parse_v6`].
        quote: &'a [u8],
    },
    /// A packet of this host was longer than a link could carry, RFC 8201.
    PacketTooBig {
        /// The link's MTU, bytes.
        mtu: u32,
        /// The start of the packet.
        quote: &'a [u8],
    },
    /// A packet of this host ran out of hops (code 0), or its reassembly out of time (code 1).
    TimeExceeded {
        /// 0: hops; 1: reassembly time.
        code: u8,
        /// The start of the packet.
        quote: &'a [u8],
    },
    /// A header of this host was not understood.
    ParameterProblem {
        /// The kind of problem, RFC 4443 section 3.4.
        code: u8,
        /// The offset of the offending byte.
        pointer: u32,
        /// The start of the packet.
        quote: &'a [u8],
    },
    /// A request for the link address of `target`. From the source `::` it is the probe for a
    /// duplicate address.
    NeighborSolicitation {
        /// The address asked for.
        target: Ipv6Addr,
        /// The asker's hardware address.
        source_lladdr: Option<MacAddr>,
    },
    /// `target` is at `target_lladdr`.
    NeighborAdvertisement {
        /// The kind of answer.
        flags: NeighborFlags,
        /// The address asked for.
        target: Ipv6Addr,
        /// The target's hardware address. It may be missing from an answer to a unicast
        /// solicitation.
        target_lladdr: Option<MacAddr>,
    },
    /// Any other message, such as router discovery and multicast listener reports.
    Other {
        /// The message's type.
        kind: u8,
        /// The message's code.
        code: u8,
        /// The four bytes behind the checksum, whose meaning depends on the type.
        rest_of_header: [u8; 4],
        /// The bytes behind the header.
        body: &'a [u8],
    },
}

impl<'a> Message<'a> {
    /// Parses and verifies a message. `packet` is exactly the payload that the IPv6 headers
    /// announce. Neighbour discovery is checked by RFC 4861 sections 7.1.1 and 7.1.2, which need
    /// the packet's `hop_limit`.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::BadChecksum`]; for neighbour discovery
    /// [`WireError::BadHopLimit`], [`WireError::BadCode`], [`WireError::BadAddress`],
    /// [`WireError::BadOption`].
    pub fn parse(
        packet: &'a [u8],
        src: Ipv6Addr,
        dst: Ipv6Addr,
        hop_limit: u8,
    ) -> Result<Message<'a>, WireError> {
        let Some((header, rest)) = packet.split_first_chunk::<HEADER_LEN>() else {
            return Err(WireError::Truncated);
        };
        let mut sum = pseudo_header(src, dst, packet.len());
        sum.add_bytes(packet);
        if !sum.is_valid() {
            return Err(WireError::BadChecksum);
        }
        let (kind, code) = (header[0], header[1]);
        let parsed = match kind {
            ECHO_REQUEST if code == 0 => Message::EchoRequest {
                ident: be16(header, 4),
                seq: be16(header, 6),
                data: rest,
            },
            ECHO_REPLY if code == 0 => Message::EchoReply {
                ident: be16(header, 4),
                seq: be16(header, 6),
                data: rest,
            },
            DESTINATION_UNREACHABLE => Message::DestinationUnreachable { code, quote: rest },
            PACKET_TOO_BIG => Message::PacketTooBig {
                mtu: be32(header, 4),
                quote: rest,
            },
            TIME_EXCEEDED => Message::TimeExceeded { code, quote: rest },
            PARAMETER_PROBLEM => Message::ParameterProblem {
                code,
                pointer: be32(header, 4),
                quote: rest,
            },
            NEIGHBOR_SOLICITATION | NEIGHBOR_ADVERTISEMENT => {
                return parse_neighbor(header, rest, src, dst, hop_limit);
            }
            _ => Message::Other {
                kind,
                code,
                rest_of_header: bytes(header, 4),
                body: rest,
            },
        };
        Ok(parsed)
    }

    /// Bytes that [`Message::emit`] writes. The quote of an error is cut to [`QUOTE_LEN_MAX`].
    pub fn emit_len(&self) -> usize {
        let (_, target, body) = self.parts();
        HEADER_LEN + target.len + body.len()
    }

    /// Writes the message with its checksum; returns its length, or 0 if `out` is too short.
    /// Neighbour discovery must leave with a hop limit of 255.
    ///
    /// ```
    /// use std::net::Ipv6Addr;
    /// use wire::icmpv6::{solicited_node, Message};
    /// let src = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    /// let target = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
    /// let question = Message::NeighborSolicitation { target, source_lladdr: None };
    /// let dst = solicited_node(target);
    /// let mut out = [0u8; 32];
    /// let len = question.emit(&mut out, src, dst);
    /// assert_eq!(Message::parse(&out[..len], src, dst, 255)?, question);
    /// # Ok::<(), wire::WireError>(())
    /// ```
    pub fn emit(&self, out: &mut [u8], src: Ipv6Addr, dst: Ipv6Addr) -> usize {
        let (header, target, body) = self.parts();
        let len = HEADER_LEN + target.len + body.len();
        let Some(out) = out.get_mut(..len) else {
            return 0;
        };
        let (head, rest) = out.split_at_mut(HEADER_LEN);
        head.copy_from_slice(&header);
        let (middle, rest) = rest.split_at_mut(target.len);
        middle.copy_from_slice(&target.bytes[..target.len]);
        rest.copy_from_slice(body);
        let mut sum = pseudo_header(src, dst, len);
        sum.add_bytes(out);
        out[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        len
    }

    /// The message's first eight bytes, their checksum still zero, the target of neighbour
    /// discovery, and the data behind them.
    fn parts(&self) -> ([u8; HEADER_LEN], Target, &'a [u8]) {
        let (header, body) = match *self {
            Message::EchoRequest { ident, seq, data } => {
                (header(ECHO_REQUEST, 0, words(ident, seq)), data)
            }
            Message::EchoReply { ident, seq, data } => {
                (header(ECHO_REPLY, 0, words(ident, seq)), data)
            }
            Message::DestinationUnreachable { code, quote } => {
                (header(DESTINATION_UNREACHABLE, code, 0), cut(quote))
            }
            Message::PacketTooBig { mtu, quote } => (header(PACKET_TOO_BIG, 0, mtu), cut(quote)),
            Message::TimeExceeded { code, quote } => (header(TIME_EXCEEDED, code, 0), cut(quote)),
            Message::ParameterProblem {
                code,
                pointer,
                quote,
            } => (header(PARAMETER_PROBLEM, code, pointer), cut(quote)),
            Message::NeighborSolicitation {
                target,
                source_lladdr,
            } => {
                let target = Target::new(target, SOURCE_LLADDR, source_lladdr);
                return (header(NEIGHBOR_SOLICITATION, 0, 0), target, &[]);
            }
            Message::NeighborAdvertisement {
                flags,
                target,
                target_lladdr,
            } => {
                let target = Target::new(target, TARGET_LLADDR, target_lladdr);
                let header = header(NEIGHBOR_ADVERTISEMENT, 0, flags.to_word());
                return (header, target, &[]);
            }
            Message::Other {
                kind,
                code,
                rest_of_header,
                body,
            } => (header(kind, code, u32::from_be_bytes(rest_of_header)), body),
        };
        (header, Target::NONE, body)
    }
}

/// The multicast group that hears solicitations for `addr`, RFC 4291 section 2.7.1.
pub const fn solicited_node(addr: Ipv6Addr) -> Ipv6Addr {
    const PREFIX: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    Ipv6Addr::from_bits(PREFIX | (addr.to_bits() & 0xff_ffff))
}

impl NeighborFlags {
    const ROUTER: u32 = 1 << 31;
    const SOLICITED: u32 = 1 << 30;
    const OVERRIDE: u32 = 1 << 29;

    const fn from_word(word: u32) -> NeighborFlags {
        NeighborFlags {
            router: word & Self::ROUTER != 0,
            solicited: word & Self::SOLICITED != 0,
            overrides: word & Self::OVERRIDE != 0,
        }
    }

    const fn to_word(self) -> u32 {
        (self.router as u32 * Self::ROUTER)
            | (self.solicited as u32 * Self::SOLICITED)
            | (self.overrides as u32 * Self::OVERRIDE)
    }
}

/// The target address of neighbour discovery and the one option that may follow it, as bytes.
struct Target {
    bytes: [u8; 16 + LLADDR_OPTION_LEN],
    len: usize,
}

impl Target {
    const NONE: Target = Target {
        bytes: [0; 16 + LLADDR_OPTION_LEN],
        len: 0,
    };

    fn new(target: Ipv6Addr, option: u8, lladdr: Option<MacAddr>) -> Target {
        let mut bytes = [0; 16 + LLADDR_OPTION_LEN];
        put(&mut bytes, 0, &target.octets());
        let Some(MacAddr(mac)) = lladdr else {
            return Target { bytes, len: 16 };
        };
        // The option's length counts units of 8 bytes.
        put(&mut bytes, 16, &[option, 1]);
        put(&mut bytes, 18, &mac);
        Target {
            bytes,
            len: 16 + LLADDR_OPTION_LEN,
        }
    }
}

fn parse_neighbor<'a>(
    header: &[u8; HEADER_LEN],
    rest: &[u8],
    src: Ipv6Addr,
    dst: Ipv6Addr,
    hop_limit: u8,
) -> Result<Message<'a>, WireError> {
    if hop_limit != HOP_LIMIT_ON_LINK {
        return Err(WireError::BadHopLimit);
    }
    if header[1] != 0 {
        return Err(WireError::BadCode);
    }
    let Some((target, options)) = rest.split_first_chunk::<16>() else {
        return Err(WireError::Truncated);
    };
    let target = Ipv6Addr::from_octets(*target);
    if target.is_multicast() {
        return Err(WireError::BadAddress);
    }
    if header[0] == NEIGHBOR_SOLICITATION {
        let source_lladdr = find_lladdr(options, SOURCE_LLADDR)?;
        let is_probe_wrong = source_lladdr.is_some() || dst != solicited_node(target);
        if src.is_unspecified() && is_probe_wrong {
            return Err(WireError::BadAddress);
        }
        return Ok(Message::NeighborSolicitation {
            target,
            source_lladdr,
        });
    }
    let flags = NeighborFlags::from_word(be32(header, 4));
    if dst.is_multicast() && flags.solicited {
        return Err(WireError::BadAddress);
    }
    Ok(Message::NeighborAdvertisement {
        flags,
        target,
        target_lladdr: find_lladdr(options, TARGET_LLADDR)?,
    })
}

/// Searches neighbour discovery options for a link-layer address. Each option takes at least 8
/// bytes, so the packet's length bounds the search.
fn find_lladdr(mut options: &[u8], wanted: u8) -> Result<Option<MacAddr>, WireError> {
    let mut found = None;
    while !options.is_empty() {
        let &[kind, len8] = options.first_chunk().ok_or(WireError::BadOption)?;
        let len = usize::from(len8) * 8;
        if len == 0 {
            return Err(WireError::BadOption);
        }
        let (option, rest) = options.split_at_checked(len).ok_or(WireError::BadOption)?;
        if kind == wanted
            && let Ok(option) = <&[u8; LLADDR_OPTION_LEN]>::try_from(option)
        {
            found = Some(MacAddr(bytes(option, 2)));
        }
        options = rest;
    }
    match found {
        // A group's address in the neighbour cache would send all frames for that neighbour to the
        // whole link.
        Some(mac) if mac.is_multicast() => Err(WireError::BadAddress),
        found => Ok(found),
    }
}

fn pseudo_header(src: Ipv6Addr, dst: Ipv6Addr, len: usize) -> checksum::Sum {
    checksum::pseudo_header_v6(src, dst, protocol::ICMPV6, len as u32)
}

fn header(kind: u8, code: u8, rest: u32) -> [u8; HEADER_LEN] {
    let mut header = [kind, code, 0, 0, 0, 0, 0, 0];
    put(&mut header, 4, &rest.to_be_bytes());
    header
}

fn words(first: u16, second: u16) -> u32 {
    (u32::from(first) << 16) | u32::from(second)
}

fn cut(quote: &[u8]) -> &[u8] {
    &quote[..quote.len().min(QUOTE_LEN_MAX)]
}

#[cfg(test)]
mod tests;
