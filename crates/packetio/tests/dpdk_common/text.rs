//! A TCP text as one packet and as its segments, for both directions of a DPDK port.

#![allow(dead_code, reason = "each test file uses a part")]

use std::net::{Ipv4Addr, Ipv6Addr};

use packetio::MacAddr;
use wire::tcp::{Flags, Header};
use wire::{SeqNumber, checksum, ethernet, ipv4, ipv6};

const LINK: usize = 14;
const TCP: usize = 20;
const HERE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const THERE: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const SEQ: u32 = 0xffff_f000;

/// A text with the segment size into which it is cut.
#[derive(Clone, Debug)]
pub struct Text {
    pub is_v6: bool,
    pub size: usize,
    pub flags: Flags,
    pub payload: Vec<u8>,
}

/// The kind of checksum in a header.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sum {
    Whole,
    PseudoHeader,
}

impl Text {
    pub fn new(is_v6: bool, size: usize, len: usize, flags: Flags) -> Self {
        Self {
            is_v6,
            size,
            flags,
            payload: (0..len).map(|at| (at / 7 + at / 1000) as u8).collect(),
        }
    }

    /// Offset of the TCP header in a frame.
    pub fn tcp_at(&self) -> usize {
        match self.is_v6 {
            true => LINK + ipv6::HEADER_LEN,
            false => LINK + ipv4::HEADER_LEN,
        }
    }

    /// The text as one packet whose checksum is left to a card.
    pub fn large(&self) -> Vec<u8> {
        self.frame(0, &self.payload, self.flags, Sum::PseudoHeader)
    }

    /// The text as separate segments. PSH and FIN are on the last one.
    pub fn segments(&self) -> Vec<Vec<u8>> {
        let parts = self.payload.chunks(self.size);
        let last = parts.len() - 1;
        let one = |(n, part)| {
            let flags = match n == last {
                true => self.flags,
                false => self.flags.without(Flags::PSH | Flags::FIN),
            };
            self.frame(n * self.size, part, flags, Sum::Whole)
        };
        parts.enumerate().map(one).collect()
    }

    fn frame(&self, at: usize, payload: &[u8], flags: Flags, sum: Sum) -> Vec<u8> {
        let mut out = vec![0; self.tcp_at() + TCP + payload.len()];
        let ethertype = match self.is_v6 {
            true => ethernet::EtherType::IPV6,
            false => ethernet::EtherType::IPV4,
        };
        let link = ethernet::Header {
            dst: THERE,
            src: HERE,
            vlan: None,
            ethertype,
        };
        link.emit(&mut out);
        let pseudo = self.network(&mut out[LINK..], TCP + payload.len());
        out[self.tcp_at() + TCP..].copy_from_slice(payload);
        let mut header = Header {
            src_port: 80,
            dst_port: 4000,
            seq: SeqNumber(SEQ) + at as u32,
            ack: SeqNumber(77),
            flags,
            window: 500,
            ..Header::default()
        };
        let tcp = &mut out[self.tcp_at()..];
        header.emit(tcp);
        header.checksum = match sum {
            Sum::PseudoHeader => pseudo.fold(),
            Sum::Whole => {
                let mut sum = pseudo;
                sum.add_bytes(tcp);
                sum.finish()
            }
        };
        header.emit(tcp);
        out
    }

    /// Writes the IP header of a packet with `len` bytes behind it; returns the pseudo-header's
    /// sum.
    fn network(&self, out: &mut [u8], len: usize) -> checksum::Sum {
        if self.is_v6 {
            let (src, dst) = (Ipv6Addr::from(1), Ipv6Addr::from(2));
            let header = ipv6::Header {
                payload_len: len as u16,
                next_header: 6,
                src,
                dst,
                ..ipv6::Header::default()
            };
            header.emit(out);
            return checksum::pseudo_header_v6(src, dst, 6, len as u32);
        }
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let header = ipv4::Header {
            total_len: (ipv4::HEADER_LEN + len) as u16,
            protocol: 6,
            src,
            dst,
            ..ipv4::Header::default()
        };
        header.emit(out);
        checksum::pseudo_header_v4(src, dst, 6, len as u32)
    }
}

/// The IPv4 frames with identification zero. A card counts it up in the segments that it cuts, and
/// it has no meaning with DF (RFC 6864). The header checksum must be right before; it becomes zero.
pub fn without_identification(mut frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for frame in &mut frames {
        if frame[12..14] == [8, 0] {
            assert!(checksum::of(&frame[LINK..LINK + ipv4::HEADER_LEN]).is_valid());
            frame[18..20].fill(0);
            frame[24..26].fill(0);
        }
    }
    frames
}
