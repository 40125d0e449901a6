//! ICMP for IPv4, RFC 792: echo, and the errors that concern TCP. `stack` answers echoes, reports
//! errors to connections and sends its own.

use crate::checksum;
use crate::error::WireError;
use crate::field::{be16, bytes, put};
use crate::ipv4;
use crate::limits::ICMPV4_ERROR_BYTES_MAX;

/// Bytes before the data or the quote.
pub const HEADER_LEN: usize = 8;

/// Bytes of a quote that an error may carry: the whole packet stays within 576 bytes, RFC 1812
/// section 4.3.2.3.
pub const QUOTE_LEN_MAX: usize = ICMPV4_ERROR_BYTES_MAX - ipv4::HEADER_LEN - HEADER_LEN;

const ECHO_REPLY: u8 = 0;
const DESTINATION_UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// Codes of [`Message::DestinationUnreachable`] that TCP tells apart, RFC 1122 section 4.2.3.9.
pub mod unreachable {
    /// No route to the network: a soft error.
    pub const NET: u8 = 0;
    /// No route to the host: a soft error.
    pub const HOST: u8 = 1;
    /// The host does not speak the protocol: a hard error.
    pub const PROTOCOL: u8 = 2;
    /// Nothing listens on the port: a hard error.
    pub const PORT: u8 = 3;
    /// The packet is too big and may not be fragmented: path MTU discovery, RFC 1191.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// A source route failed: a soft error.
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    /// Forbidden by administration, RFC 1812 section 5.2.7.1.
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 13;
}

/// An ICMP message.
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
        /// With [`unreachable::FRAGMENTATION_NEEDED`]: the MTU of the next hop in bytes, 0 from
        /// routers older than RFC 1191.
        next_hop_mtu: u16,
        /// The start of the packet, see [`crate::quote::Quote::parse_v4`].
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
        /// The kind of problem, RFC 792.
        code: u8,
        /// The offset of the offending byte.
        pointer: u8,
        /// The start of the packet.
        quote: &'a [u8],
    },
    /// Any other message: source quench (RFC 6633), redirects, timestamps. A TCP host ignores them.
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
    /// Parses and verifies a message. `packet` is exactly the payload that the IP header announces.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::BadChecksum`].
    pub fn parse(packet: &'a [u8]) -> Result<Message<'a>, WireError> {
        let Some((header, rest)) = packet.split_first_chunk::<HEADER_LEN>() else {
            return Err(WireError::Truncated);
        };
        if !checksum::of(packet).is_valid() {
            return Err(WireError::BadChecksum);
        }
        let (kind, code) = (header[0], header[1]);
        Ok(match (kind, code) {
            (ECHO_REQUEST, 0) => Message::EchoRequest {
                ident: be16(header, 4),
                seq: be16(header, 6),
                data: rest,
            },
            (ECHO_REPLY, 0) => Message::EchoReply {
                ident: be16(header, 4),
                seq: be16(header, 6),
                data: rest,
            },
            (DESTINATION_UNREACHABLE, code) => Message::DestinationUnreachable {
                code,
                next_hop_mtu: be16(header, 6),
                quote: rest,
            },
            (TIME_EXCEEDED, code) => Message::TimeExceeded { code, quote: rest },
            (PARAMETER_PROBLEM, code) => Message::ParameterProblem {
                code,
                pointer: header[4],
                quote: rest,
            },
            (kind, code) => Message::Other {
                kind,
                code,
                rest_of_header: bytes(header, 4),
                body: rest,
            },
        })
    }

    /// Bytes that [`Message::emit`] writes. The quote of an error is cut to [`QUOTE_LEN_MAX`].
    pub fn emit_len(&self) -> usize {
        let (_, body) = self.parts();
        HEADER_LEN + body.len()
    }

    /// Writes the message with its checksum; returns its length, or 0 if `out` is too short.
    ///
    /// ```
    /// use wire::icmpv4::Message;
    /// let mut out = [0u8; 64];
    /// let pong = Message::EchoReply { ident: 1, seq: 2, data: b"abc" };
    /// let len = pong.emit(&mut out);
    /// assert_eq!(Message::parse(&out[..len])?, pong);
    /// # Ok::<(), wire::WireError>(())
    /// ```
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let (header, body) = self.parts();
        let len = HEADER_LEN + body.len();
        let Some(out) = out.get_mut(..len) else {
            return 0;
        };
        out[..HEADER_LEN].copy_from_slice(&header);
        out[HEADER_LEN..].copy_from_slice(body);
        let checksum = checksum::of(out).finish();
        out[2..4].copy_from_slice(&checksum.to_be_bytes());
        len
    }

    /// The message's first eight bytes, their checksum still zero, and the data behind them.
    fn parts(&self) -> ([u8; HEADER_LEN], &'a [u8]) {
        match *self {
            Message::EchoRequest { ident, seq, data } => {
                (header(ECHO_REQUEST, 0, words(ident, seq)), data)
            }
            Message::EchoReply { ident, seq, data } => {
                (header(ECHO_REPLY, 0, words(ident, seq)), data)
            }
            Message::DestinationUnreachable {
                code,
                next_hop_mtu,
                quote,
            } => {
                let rest = words(0, next_hop_mtu);
                (header(DESTINATION_UNREACHABLE, code, rest), cut(quote))
            }
            Message::TimeExceeded { code, quote } => {
                (header(TIME_EXCEEDED, code, [0; 4]), cut(quote))
            }
            Message::ParameterProblem {
                code,
                pointer,
                quote,
            } => {
                let rest = [pointer, 0, 0, 0];
                (header(PARAMETER_PROBLEM, code, rest), cut(quote))
            }
            Message::Other {
                kind,
                code,
                rest_of_header,
                body,
            } => (header(kind, code, rest_of_header), body),
        }
    }
}

fn header(kind: u8, code: u8, rest: [u8; 4]) -> [u8; HEADER_LEN] {
    let mut header = [kind, code, 0, 0, 0, 0, 0, 0];
    put(&mut header, 4, &rest);
    header
}

fn words(first: u16, second: u16) -> [u8; 4] {
    ((u32::from(first) << 16) | u32::from(second)).to_be_bytes()
}

fn cut(quote: &[u8]) -> &[u8] {
    &quote[..quote.len().min(QUOTE_LEN_MAX)]
}

#[cfg(test)]
mod tests;
