//! The usual packet: Ethernet without tags, IPv4 without options or fragments, TCP with no option
//! or with an aligned timestamp alone. It is read and written without branches on its layout, each
//! field once. A SYN or SYN-ACK with the four options that Linux and Millstream use, in their
//! order, is read and written in the same way.
//!
//! `stack` tries [`parse`] on every frame, then [`parse_syn`], and calls the general parsers when
//! both return `None`. It emits through [`Headers::emit`] if [`Options::is_plain`] is true, and
//! through [`Headers::emit_syn`] if [`Options::plain_syn`] returns options. A test compares the
//! results with those of the general parsers and emitters.
//!
//! Checksums are sums of 32-bit words in host order: 2^16 is 1 modulo 2^16 - 1, so a word counts as
//! the sum of its halves (RFC 1071).

use core::net::Ipv4Addr;

use crate::checksum::Sum;
use crate::ethernet::{self, MacAddr};
use crate::field::{be16, be32, bytes};
use crate::seq::SeqNumber;
use crate::tcp::{AccEcn, Flags, HEADER_LEN, Options, SackBlocks, TIMESTAMP_HEADER_LEN, Timestamp};
use crate::tcp_option::{TIMESTAMP_AFTER_SACK_PERMITTED, TIMESTAMP_ALIGNED};
use crate::{ipv4, protocol};

mod header_room;
mod sequel;
mod stored_headers;
#[cfg(test)]
mod tests;

pub use header_room::HeaderRoom;
pub use sequel::{Sequel, have_same_ends, may_continue, mix_ends};
pub use stored_headers::{ChangingFields, StoredHeaders};

/// Length of the three headers with timestamps, the longest of a plain segment.
pub const BYTES_MAX: usize = TCP_AT + TIMESTAMP_HEADER_LEN;
/// Length of the three headers without options, the shortest of a plain segment.
pub const BYTES_MIN: usize = TCP_AT + HEADER_LEN;
/// Bytes from the start of the frame to the end of the ports.
pub const ENDS_BYTES: usize = TCP_AT + 4;
/// Bytes of the three headers of a plain SYN.
pub const SYN_BYTES: usize = BYTES_MIN + 20;
/// Offset of the TCP header in the frame.
pub const TCP_AT: usize = IP_AT + ipv4::HEADER_LEN;

const IP_AT: usize = ethernet::HEADER_LEN;
const ETHERTYPE_AT: usize = 12;
/// EtherType IPv4, then version 4, a header of five words, and TOS 0.
const IPV4_PLAIN: u32 = 0x0800_4500;
const DONT_FRAGMENT: u16 = 0x4000;
/// The "more fragments" bit and the fragment offset.
const FRAGMENT_MASK: u16 = 0x3fff;
/// The control bits in the 16-bit word that begins with the data offset.
const FLAGS_MASK: u16 = 0x01ff;
/// Data offset of 5 words, the other bits of its byte zero.
const OFFSET_BARE: u8 = 0x50;
const OFFSET_TIMESTAMP: u8 = 0x80;
/// Data offset of 10 words: that of a plain SYN.
const OFFSET_SYN: u8 = 0xa0;
/// Kind and length of the MSS option; two bytes of value follow.
const MSS_HEAD: u32 = 0x0204;
/// A NOP, and kind and length of the window scale option; one byte of value follows.
const WINDOW_SCALE_HEAD: u32 = 0x01_0303;

/// A plain packet that arrived. Its headers are consistent and the IPv4 checksum is right; the TCP
/// checksum is not verified yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The frame's destination.
    pub dst_mac: MacAddr,
    /// The packet's source.
    pub src: Ipv4Addr,
    /// The packet's destination.
    pub dst: Ipv4Addr,
    /// DSCP and ECN, as on the wire.
    pub dscp_ecn: u8,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// SEG.SEQ.
    pub seq: SeqNumber,
    /// SEG.ACK.
    pub ack: SeqNumber,
    /// Control bits.
    pub flags: Flags,
    /// SEG.WND, unscaled.
    pub window: u16,
    /// SEG.UP, the urgent pointer.
    pub urgent: u16,
    /// The TCP checksum field.
    pub checksum: u16,
    /// The timestamp, the only option that a plain packet may have.
    pub timestamp: Option<Timestamp>,
    /// Offset of the payload in the frame.
    pub payload_at: usize,
    /// Payload bytes.
    pub payload_len: u32,
    /// The pseudo-header's sum.
    pub pseudo: Sum,
    /// The sum of pseudo-header and TCP header: together with the payload's sum it must come to
    /// 0xffff.
    pub sum: Sum,
}

/// Options of a plain SYN beside its timestamp and SACK-permitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SynOptions {
    /// Maximum segment size, bytes.
    pub mss: u16,
    /// Window scale, bits, as on the wire.
    pub window_scale: u8,
}

/// Reads the first bytes of a frame of `frame_len` bytes; bytes of `head` behind the frame's end
/// are ignored. `None`: the packet is not plain, or it is faulty; the general parsers tell which.
///
/// ```
/// assert!(wire::plain::parse(&[0; wire::plain::BYTES_MAX], 60).is_none());
/// ```
#[inline(always)]
#[must_use]
pub fn parse(head: &[u8; BYTES_MAX], frame_len: usize) -> Option<Packet> {
    // The lowest bit is AE.
    let (timestamp, payload_at) = match head[TCP_AT + 12] & !1 {
        OFFSET_BARE => (None, BYTES_MIN),
        OFFSET_TIMESTAMP if be32(head, TCP_AT + HEADER_LEN) == TIMESTAMP_ALIGNED => {
            let [value, echo] = [be32(head, TCP_AT + 24), be32(head, TCP_AT + 28)];
            (Some(Timestamp { value, echo }), BYTES_MAX)
        }
        _ => return None,
    };
    let options = match timestamp {
        Some(stamp) => {
            u64::from(TIMESTAMP_ALIGNED) + u64::from(stamp.value) + u64::from(stamp.echo)
        }
        None => 0,
    };
    parse_fixed(head, frame_len, payload_at, timestamp, options)
}

/// Reads the first bytes of a frame that may be a SYN or SYN-ACK with MSS, SACK permitted,
/// timestamp and window scale in Linux's order. `None`: another kind of packet, or a faulty one.
#[inline]
#[must_use]
pub fn parse_syn(head: &[u8; SYN_BYTES], frame_len: usize) -> Option<(Packet, SynOptions)> {
    let word = |at: usize| be32(head, BYTES_MIN + 4 * at);
    let is_plain = head[TCP_AT + 12] & !1 == OFFSET_SYN
        && word(0) >> 16 == MSS_HEAD
        && word(1) == TIMESTAMP_AFTER_SACK_PERMITTED
        && word(4) >> 8 == WINDOW_SCALE_HEAD;
    if !is_plain {
        return None;
    }
    let stamp = Timestamp {
        value: word(2),
        echo: word(3),
    };
    let options = (0..5).map(|at| u64::from(word(at))).sum();
    let packet = parse_fixed(head, frame_len, SYN_BYTES, Some(stamp), options)?;
    let syn = SynOptions {
        mss: word(0) as u16,
        window_scale: word(4) as u8,
    };
    Some((packet, syn))
}

/// Completes a packet from the headers without options. The caller has read the options, whose
/// words sum to `options`.
#[inline(always)]
fn parse_fixed<const N: usize>(
    head: &[u8; N],
    frame_len: usize,
    payload_at: usize,
    timestamp: Option<Timestamp>,
    options: u64,
) -> Option<Packet> {
    let is_plain = be32(head, ETHERTYPE_AT) & 0xffff_ff00 == IPV4_PLAIN
        && be16(head, IP_AT + 6) & FRAGMENT_MASK == 0
        && head[IP_AT + 9] == protocol::TCP;
    if !is_plain || frame_len < BYTES_MIN {
        return None;
    }
    let word = |at| u64::from(be32(head, at));
    let addresses = word(IP_AT + 12) + word(IP_AT + 16);
    let ip = word(IP_AT) + word(IP_AT + 4) + word(IP_AT + 8) + addresses;
    let total_len = usize::from(be16(head, IP_AT + 2));
    if !Sum::of_words(ip).is_valid() || total_len > frame_len - IP_AT {
        return None;
    }
    let payload_len = (IP_AT + total_len).checked_sub(payload_at)?;
    let sum = word(TCP_AT)
        + word(TCP_AT + 4)
        + word(TCP_AT + 8)
        + word(TCP_AT + 12)
        + word(TCP_AT + 16)
        + options;
    let tcp_len = (payload_at - TCP_AT + payload_len) as u64;
    let pseudo = addresses + u64::from(protocol::TCP) + tcp_len;
    Some(Packet {
        dst_mac: MacAddr(bytes(head, 0)),
        src: Ipv4Addr::from_bits(be32(head, IP_AT + 12)),
        dst: Ipv4Addr::from_bits(be32(head, IP_AT + 16)),
        dscp_ecn: head[IP_AT + 1],
        src_port: be16(head, TCP_AT),
        dst_port: be16(head, TCP_AT + 2),
        seq: SeqNumber(be32(head, TCP_AT + 4)),
        ack: SeqNumber(be32(head, TCP_AT + 8)),
        flags: Flags(be16(head, TCP_AT + 12) & FLAGS_MASK),
        window: be16(head, TCP_AT + 14),
        checksum: be16(head, TCP_AT + 16),
        urgent: be16(head, TCP_AT + 18),
        timestamp,
        payload_at,
        payload_len: payload_len as u32,
        pseudo: Sum::of_words(pseudo),
        sum: Sum::of_words(pseudo + sum),
    })
}

/// Header fields of a plain packet to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// The frame's destination.
    pub dst_mac: MacAddr,
    /// The frame's source.
    pub src_mac: MacAddr,
    /// The packet's source.
    pub src: Ipv4Addr,
    /// The packet's destination.
    pub dst: Ipv4Addr,
    /// DSCP and ECN, as on the wire.
    pub dscp_ecn: u8,
    /// Hop limit.
    pub ttl: u8,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
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

impl Headers {
    /// Bytes of the three headers, the offset of the payload.
    #[inline]
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        if self.timestamp.is_some() {
            BYTES_MAX
        } else {
            BYTES_MIN
        }
    }

    /// Writes the headers, with DF set and identification zero (RFC 6864). `payload` is the
    /// payload's sum, from which the TCP checksum is made. With `None` the port makes the checksum,
    /// and the field holds the pseudo-header's sum.
    #[inline]
    pub fn emit(&self, out: &mut impl HeaderRoom, payload: Option<u16>) {
        let pseudo = self.emit_network(out, self.header_bytes());
        let (offset, options) = match self.timestamp {
            Some(stamp) => {
                out.put32(TCP_AT + HEADER_LEN, TIMESTAMP_ALIGNED);
                out.put32(TCP_AT + HEADER_LEN + 4, stamp.value);
                out.put32(TCP_AT + HEADER_LEN + 8, stamp.echo);
                let words = [TIMESTAMP_ALIGNED, stamp.value, stamp.echo];
                (OFFSET_TIMESTAMP, words.map(u64::from).iter().sum())
            }
            None => (OFFSET_BARE, 0),
        };
        self.emit_transport(out, pseudo, offset, options, payload);
    }

    /// Like [`emit`](Self::emit), for a SYN or SYN-ACK. Without a timestamp the option carries
    /// zeros.
    #[inline]
    pub fn emit_syn(&self, out: &mut impl HeaderRoom, syn: SynOptions, payload: Option<u16>) {
        let pseudo = self.emit_network(out, SYN_BYTES);
        let stamp = self.timestamp.unwrap_or_default();
        let words = [
            MSS_HEAD << 16 | u32::from(syn.mss),
            TIMESTAMP_AFTER_SACK_PERMITTED,
            stamp.value,
            stamp.echo,
            WINDOW_SCALE_HEAD << 8 | u32::from(syn.window_scale),
        ];
        let mut options = 0;
        for (at, word) in words.into_iter().enumerate() {
            out.put32(BYTES_MIN + 4 * at, word);
            options += u64::from(word);
        }
        self.emit_transport(out, pseudo, OFFSET_SYN, options, payload);
    }

    /// Writes the Ethernet and IPv4 headers, where all headers have `header_bytes`. Returns the
    /// pseudo-header's sum.
    #[inline(always)]
    fn emit_network(&self, out: &mut impl HeaderRoom, header_bytes: usize) -> u64 {
        out.put(0, &self.dst_mac.0);
        out.put(6, &self.src_mac.0);
        let tcp_len = (header_bytes - TCP_AT) as u16 + self.payload_len;
        let total_len = tcp_len + ipv4::HEADER_LEN as u16;
        let (src, dst) = (self.src.to_bits(), self.dst.to_bits());
        let addresses = u64::from(src) + u64::from(dst);
        let version_tos = IPV4_PLAIN | u32::from(self.dscp_ecn);
        let ttl_protocol = u16::from_be_bytes([self.ttl, protocol::TCP]);
        let ip = u64::from(version_tos & 0xffff)
            + u64::from(total_len)
            + u64::from(DONT_FRAGMENT)
            + u64::from(ttl_protocol);
        out.put32(ETHERTYPE_AT, version_tos);
        out.put32(IP_AT + 2, u32::from(total_len) << 16);
        out.put16(IP_AT + 6, DONT_FRAGMENT);
        out.put16(IP_AT + 8, ttl_protocol);
        out.put16(IP_AT + 10, Sum::of_words(ip + addresses).finish());
        out.put32(IP_AT + 12, src);
        out.put32(IP_AT + 16, dst);
        addresses + u64::from(protocol::TCP) + u64::from(tcp_len)
    }

    /// Writes the TCP header without its options, whose words sum to `options`.
    #[inline(always)]
    fn emit_transport(
        &self,
        out: &mut impl HeaderRoom,
        pseudo: u64,
        offset: u8,
        options: u64,
        payload: Option<u16>,
    ) {
        let ports = (u32::from(self.src_port) << 16) | u32::from(self.dst_port);
        let control =
            (u32::from(offset) << 24) | (u32::from(self.flags.0) << 16) | u32::from(self.window);
        out.put32(TCP_AT, ports);
        out.put32(TCP_AT + 4, self.seq.0);
        out.put32(TCP_AT + 8, self.ack.0);
        out.put32(TCP_AT + 12, control);
        let sum = pseudo
            + u64::from(ports)
            + u64::from(self.seq.0)
            + u64::from(self.ack.0)
            + u64::from(control)
            + options;
        let checksum = match payload {
            Some(payload) => Sum::of_words(sum + u64::from(payload)).finish(),
            None => Sum::of_words(pseudo).fold(),
        };
        out.put32(TCP_AT + 16, u32::from(checksum) << 16);
    }
}

/// Template for segments of equal length that follow each other. Headers and sum are made once;
/// each segment overwrites its own fields.
#[derive(Clone, Debug)]
pub struct DataTemplate {
    bytes: [u8; BYTES_MAX],
    len: usize,
    /// Data offset and window. Together with the flags they are the fourth word of the TCP header.
    control: u32,
    /// The sum of pseudo-header and TCP header, without the fields that [`emit`](Self::emit) adds.
    /// `None`: the port makes the checksum.
    sum: Option<u64>,
}

impl DataTemplate {
    /// Makes the template from the headers of one segment. With `offload` the port makes the
    /// checksum.
    #[must_use]
    pub fn new(headers: &Headers, offload: bool) -> Self {
        let one = Headers {
            seq: SeqNumber(0),
            flags: Flags::NONE,
            ..*headers
        };
        let mut bytes = [0; BYTES_MAX];
        one.emit(&mut bytes, (!offload).then_some(0));
        let checksum = be16(&bytes, TCP_AT + 16);
        Self {
            len: one.header_bytes(),
            control: be32(&bytes, TCP_AT + 12),
            sum: (!offload).then_some(u64::from(!checksum)),
            bytes,
        }
    }

    /// Bytes of the headers.
    #[inline]
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        self.len
    }

    /// Writes the headers of the segment at `seq`, given the sum of its payload.
    #[inline]
    pub fn emit(&self, out: &mut impl HeaderRoom, seq: SeqNumber, flags: Flags, payload: u16) {
        put_headers(out, &self.bytes, self.len);
        out.put32(TCP_AT + 4, seq.0);
        out.put32(TCP_AT + 12, self.control | (u32::from(flags.0) << 16));
        if let Some(sum) = self.sum {
            let added = u64::from(seq.0) + (u64::from(flags.0) << 16) + u64::from(payload);
            out.put16(TCP_AT + 16, Sum::of_words(sum + added).finish());
        }
    }
}

/// Template for ACKs without payload that differ in their acknowledgments. Headers and sum are made
/// once; each ACK overwrites its own fields.
#[derive(Clone, Debug)]
pub struct AckTemplate {
    bytes: [u8; BYTES_MAX],
    len: usize,
    /// Data offset. Together with flags and window it is the fourth word of the TCP header.
    control: u32,
    /// The sum of pseudo-header and TCP header, without the fields that [`emit`](Self::emit) adds.
    /// `None`: the port makes the checksum.
    sum: Option<u64>,
}

impl AckTemplate {
    /// Makes the template from the headers of one ACK. With `offload` the port makes the checksum.
    #[must_use]
    pub fn new(headers: &Headers, offload: bool) -> Self {
        let one = Headers {
            ack: SeqNumber(0),
            flags: Flags::NONE,
            window: 0,
            timestamp: headers
                .timestamp
                .map(|stamp| Timestamp { echo: 0, ..stamp }),
            payload_len: 0,
            ..*headers
        };
        let mut bytes = [0; BYTES_MAX];
        one.emit(&mut bytes, (!offload).then_some(0));
        let checksum = be16(&bytes, TCP_AT + 16);
        Self {
            len: one.header_bytes(),
            control: be32(&bytes, TCP_AT + 12),
            sum: (!offload).then_some(u64::from(!checksum)),
            bytes,
        }
    }

    /// Bytes of the headers.
    #[inline]
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        self.len
    }

    /// Writes the headers of one ACK; `echo` is ignored if the template has no timestamp.
    #[inline]
    pub fn emit(
        &self,
        out: &mut impl HeaderRoom,
        ack: SeqNumber,
        flags: Flags,
        window: u16,
        echo: u32,
    ) {
        put_headers(out, &self.bytes, self.len);
        let control = (u32::from(flags.0) << 16) | u32::from(window);
        out.put32(TCP_AT + 8, ack.0);
        out.put32(TCP_AT + 12, self.control | control);
        let mut added = u64::from(ack.0) + u64::from(control);
        if self.len == BYTES_MAX {
            out.put32(TCP_AT + HEADER_LEN + 8, echo);
            added += u64::from(echo);
        }
        if let Some(sum) = self.sum {
            out.put16(TCP_AT + 16, Sum::of_words(sum + added).finish());
        }
    }
}

/// Writes the first `len` bytes of a template: either the bare headers or all of it, so each copy
/// has a length that the compiler knows.
#[inline(always)]
fn put_headers(out: &mut impl HeaderRoom, bytes: &[u8; BYTES_MAX], len: usize) {
    if let Some(bare) = bytes.first_chunk::<BYTES_MIN>() {
        out.put(0, bare);
    }
    if len > BYTES_MIN
        && let Some(options) = bytes.last_chunk::<{ BYTES_MAX - BYTES_MIN }>()
    {
        out.put(BYTES_MIN, options);
    }
}

impl Options {
    /// Sets the options to those of a plain packet. Slots that no count or tag makes valid keep
    /// their old bytes, which saves writing them.
    #[inline]
    pub fn reset_to(&mut self, timestamp: Option<Timestamp>) {
        self.mss = None;
        self.window_scale = None;
        self.sack_permitted = false;
        self.timestamp = timestamp;
        self.fast_open = None;
        if !self.sack.is_empty() {
            self.sack = SackBlocks::EMPTY;
        }
        if self.accecn.is_present() {
            self.accecn = AccEcn::NONE;
        }
    }

    /// Sets the options to those of a plain SYN.
    #[inline]
    pub fn reset_to_syn(&mut self, timestamp: Option<Timestamp>, syn: SynOptions) {
        self.reset_to(timestamp);
        self.mss = Some(syn.mss);
        self.window_scale = Some(syn.window_scale);
        self.sack_permitted = true;
    }

    /// The options that [`Headers::emit_syn`] writes beside the timestamp. `None` if these are not
    /// the options of a plain SYN.
    #[inline]
    #[must_use]
    pub fn plain_syn(&self) -> Option<SynOptions> {
        let has_more =
            !self.sack.is_empty() || self.fast_open.is_some() || self.accecn.is_present();
        match (self.mss, self.window_scale) {
            (Some(mss), Some(window_scale))
                if self.sack_permitted && self.timestamp.is_some() && !has_more =>
            {
                Some(SynOptions { mss, window_scale })
            }
            _ => None,
        }
    }

    /// True if there is no option, or only a timestamp.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let Options {
            mss,
            window_scale,
            sack_permitted,
            timestamp: _,
            sack,
            fast_open,
            accecn,
        } = self;
        mss.is_none()
            && window_scale.is_none()
            && !sack_permitted
            && sack.is_empty()
            && fast_open.is_none()
            && !accecn.is_present()
    }
}
