//! The headers of a flow's segments: the constant fields are stored once and completed for each
//! segment.
//!
//! Two sums are stored with the headers, so a checksum costs only the segment's own fields. `stack`
//! keeps one such value beside each connection.

use super::{
    BYTES_MAX, BYTES_MIN, DONT_FRAGMENT, ETHERTYPE_AT, HeaderRoom, Headers, IP_AT, IPV4_PLAIN,
    OFFSET_BARE, OFFSET_TIMESTAMP, TCP_AT,
};
use crate::checksum::Sum;
use crate::ethernet::MacAddr;
use crate::field::{be32, bytes};
use crate::seq::SeqNumber;
use crate::tcp::{Flags, HEADER_LEN, Timestamp};
use crate::tcp_option::TIMESTAMP_ALIGNED;
use crate::{ipv4, protocol};

/// Stored headers of one flow. DF is set and the identification is zero, as in [`Headers::emit`].
#[derive(Clone, Copy, Debug)]
pub struct StoredHeaders {
    /// The headers, in which lengths, sums, sequence and ACK numbers, and window are zero.
    bytes: [u8; BYTES_MIN],
    /// The sum of the IPv4 header without its length.
    ip: u16,
    /// The sum of addresses, protocol and ports.
    tcp: u16,
}

/// Header fields that differ between segments of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangingFields {
    /// SEG.SEQ.
    pub seq: SeqNumber,
    /// SEG.ACK.
    pub ack: SeqNumber,
    /// Control bits.
    pub flags: Flags,
    /// SEG.WND, unscaled.
    pub window: u16,
    /// The timestamp, the only option that a plain packet may have.
    pub timestamp: Option<Timestamp>,
    /// Payload bytes; headers and payload together have at most 65,535.
    pub payload_len: u16,
}

impl ChangingFields {
    /// Bytes of the three headers, the offset of the payload.
    #[inline]
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        match self.timestamp {
            Some(_) => BYTES_MAX,
            None => BYTES_MIN,
        }
    }
}

impl StoredHeaders {
    /// Headers that belong to no flow; [`fits`](Self::fits) is false for them.
    pub const NONE: Self = Self {
        bytes: [0; BYTES_MIN],
        ip: 0,
        tcp: 0,
    };

    /// Stores the constant fields of these headers in place.
    pub fn store(&mut self, headers: &Headers) {
        let (src, dst) = (headers.src.to_bits(), headers.dst.to_bits());
        let version_tos = IPV4_PLAIN | u32::from(headers.dscp_ecn);
        let ttl_protocol = u16::from_be_bytes([headers.ttl, protocol::TCP]);
        let ports = u32::from(headers.src_port) << 16 | u32::from(headers.dst_port);
        let out = &mut self.bytes;
        *out = [0; BYTES_MIN];
        out.put(0, &headers.dst_mac.0);
        out.put(6, &headers.src_mac.0);
        out.put32(ETHERTYPE_AT, version_tos);
        out.put16(IP_AT + 6, DONT_FRAGMENT);
        out.put16(IP_AT + 8, ttl_protocol);
        out.put32(IP_AT + 12, src);
        out.put32(IP_AT + 16, dst);
        out.put32(TCP_AT, ports);
        // The sum leaves out the length field and the checksum field.
        let ip =
            u64::from(version_tos & 0xffff) + u64::from(DONT_FRAGMENT) + u64::from(ttl_protocol);
        let addresses = u64::from(src) + u64::from(dst);
        self.ip = Sum::of_words(ip + addresses).fold();
        self.tcp = Sum::of_words(addresses + u64::from(protocol::TCP) + u64::from(ports)).fold();
    }

    /// True if the headers belong to a flow that sends to `dst_mac` with this DSCP, ECN and hop
    /// limit.
    #[inline]
    #[must_use]
    pub fn fits(&self, dst_mac: MacAddr, dscp_ecn: u8, ttl: u8) -> bool {
        let version_tos = IPV4_PLAIN | u32::from(dscp_ecn);
        bytes::<6, _>(&self.bytes, 0) == dst_mac.0
            && be32(&self.bytes, ETHERTYPE_AT) == version_tos
            && self.bytes[IP_AT + 8] == ttl
    }

    /// True if the headers belong to a flow.
    #[inline]
    #[must_use]
    pub fn is_made(&self) -> bool {
        self.bytes[ETHERTYPE_AT] != 0
    }

    /// Marks the headers as those of no flow.
    #[inline]
    pub fn forget(&mut self) {
        self.bytes[ETHERTYPE_AT] = 0;
    }

    /// Writes the headers of one segment, as [`Headers::emit`] would.
    #[inline]
    pub fn emit(&self, out: &mut impl HeaderRoom, one: &ChangingFields, payload: Option<u16>) {
        out.put(0, &self.bytes);
        let (offset, options) = match one.timestamp {
            Some(stamp) => {
                out.put32(TCP_AT + HEADER_LEN, TIMESTAMP_ALIGNED);
                out.put32(TCP_AT + HEADER_LEN + 4, stamp.value);
                out.put32(TCP_AT + HEADER_LEN + 8, stamp.echo);
                let [value, echo] = [u64::from(stamp.value), u64::from(stamp.echo)];
                let options = u64::from(TIMESTAMP_ALIGNED) + value + echo;
                (OFFSET_TIMESTAMP, options)
            }
            None => (OFFSET_BARE, 0),
        };
        let tcp_len = (one.header_bytes() - TCP_AT) as u16 + one.payload_len;
        let total_len = tcp_len + ipv4::HEADER_LEN as u16;
        out.put16(IP_AT + 2, total_len);
        let ip = u64::from(self.ip) + u64::from(total_len);
        out.put16(IP_AT + 10, Sum::of_words(ip).finish());
        let control =
            (u32::from(offset) << 24) | (u32::from(one.flags.0) << 16) | u32::from(one.window);
        out.put32(TCP_AT + 4, one.seq.0);
        out.put32(TCP_AT + 8, one.ack.0);
        out.put32(TCP_AT + 12, control);
        let checksum = match payload {
            Some(payload) => {
                let sum = u64::from(self.tcp)
                    + u64::from(tcp_len)
                    + u64::from(one.seq.0)
                    + u64::from(one.ack.0)
                    + u64::from(control)
                    + options
                    + u64::from(payload);
                Sum::of_words(sum).finish()
            }
            None => self.pseudo(tcp_len),
        };
        out.put16(TCP_AT + 16, checksum);
    }

    /// The pseudo-header's sum, for a port that makes the checksum.
    fn pseudo(&self, tcp_len: u16) -> u16 {
        let addresses =
            u64::from(be32(&self.bytes, IP_AT + 12)) + u64::from(be32(&self.bytes, IP_AT + 16));
        Sum::of_words(addresses + u64::from(protocol::TCP) + u64::from(tcp_len)).fold()
    }
}
