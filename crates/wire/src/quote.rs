//! The quote in an ICMP error: the start of a packet that this host sent. `stack` finds the
//! connection by it.

use crate::addr::Addr;
use crate::error::WireError;
use crate::field::{be16, be32};
use crate::flow::FlowKey;
use crate::protocol;
use crate::seq::SeqNumber;
use crate::{ipv4, ipv6};

/// The quoted start of a TCP segment. RFC 792 promises eight bytes of the segment, which end with
/// the sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quote {
    /// The flow as this host sees it: the quoted source is the local address.
    pub flow: FlowKey,
    /// The segment's sequence number. An error counts only if this number lies between snd.una and
    /// snd.nxt (RFC 5927 section 4.1).
    pub seq: SeqNumber,
}

impl Quote {
    /// Parses the quote of an ICMP error for IPv4.
    ///
    /// # Errors
    /// Errors of [`ipv4::Header::parse_quoted`]; [`WireError::Unsupported`] if the quoted packet is
    /// not TCP; [`WireError::Fragment`] if it is not a first fragment.
    ///
    /// ```
    /// use wire::quote::Quote;
    /// assert!(Quote::parse_v4(&[0x45, 0, 0]).is_err());
    /// ```
    pub fn parse_v4(quote: &[u8]) -> Result<Quote, WireError> {
        let header = ipv4::Header::parse_quoted(quote)?;
        if header.fragment_offset != 0 {
            return Err(WireError::Fragment);
        }
        let transport = usize::from(header.header_len);
        Quote::at(
            quote,
            transport,
            header.protocol,
            header.src.into(),
            header.dst.into(),
        )
    }

    /// Parses the quote of an ICMPv6 error.
    ///
    /// # Errors
    /// Errors of [`ipv6::upper_layer`]; [`WireError::Unsupported`] if the quoted packet is not TCP.
    pub fn parse_v6(quote: &[u8]) -> Result<Quote, WireError> {
        let header = ipv6::Header::parse(quote, usize::MAX)?;
        let (protocol, transport) = ipv6::upper_layer(&header, quote)?;
        Quote::at(
            quote,
            transport,
            protocol,
            header.src.into(),
            header.dst.into(),
        )
    }

    fn at(
        quote: &[u8],
        transport: usize,
        protocol: u8,
        src: Addr,
        dst: Addr,
    ) -> Result<Quote, WireError> {
        if protocol != protocol::TCP {
            return Err(WireError::Unsupported);
        }
        let tcp = quote
            .get(transport..)
            .and_then(<[u8]>::first_chunk::<8>)
            .ok_or(WireError::Truncated)?;
        Ok(Quote {
            flow: FlowKey {
                local: src,
                remote: dst,
                local_port: be16(tcp, 0),
                remote_port: be16(tcp, 2),
            },
            seq: SeqNumber(be32(tcp, 4)),
        })
    }
}

#[cfg(test)]
mod tests;
