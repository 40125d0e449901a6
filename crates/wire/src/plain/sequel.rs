//! The packet that follows another packet of its flow. Comparing it with the first one recognizes
//! it, so only the fields that may differ are read.
//!
//! `stack`'s stage `aggregation` keeps the first packet's head for as long as a run lasts. Every
//! packet that [`Sequel::read`] accepts is also accepted by [`parse`](super::parse), with the same
//! values; a test compares both.

use super::{
    BYTES_MAX, BYTES_MIN, ENDS_BYTES, ETHERTYPE_AT, FRAGMENT_MASK, IP_AT, IPV4_PLAIN,
    OFFSET_TIMESTAMP, TCP_AT,
};
use crate::checksum::Sum;
use crate::field::{be16, be32, ne32};
use crate::protocol;
use crate::seq::SeqNumber;
use crate::tcp::{Flags, Timestamp};

/// Bytes that are compared, in words of eight.
const COMPARED: usize = 64;
const WORDS: usize = COMPARED / 8;

/// The bits that all packets of a run share: all except lengths, identification, sequence and ACK
/// numbers, PSH, window, timestamps, and checksums. For a head of [`BYTES_MAX`].
const SHARED: [u64; WORDS] = words(&shared(true));
/// The shared bits for a head of [`BYTES_MIN`].
const SHARED_BARE: [u64; WORDS] = words(&shared(false));

const fn shared(with_timestamp: bool) -> [u8; COMPARED] {
    let mut mask = [0xff; COMPARED];
    let fragment = FRAGMENT_MASK.to_be_bytes();
    mask[IP_AT + 6] = fragment[0];
    mask[IP_AT + 7] = fragment[1];
    mask[TCP_AT + 13] = !(Flags::PSH.0 as u8);
    // Fields that may differ: total length and identification, IPv4's checksum, SEQ and ACK, window
    // and checksum.
    let mut free = [
        (IP_AT + 2, 4),
        (IP_AT + 10, 2),
        (TCP_AT + 4, 8),
        (TCP_AT + 14, 4),
        (TCP_AT + 24, COMPARED - TCP_AT - 24),
    ];
    if !with_timestamp {
        free[4] = (BYTES_MIN, COMPARED - BYTES_MIN);
    }
    let mut i = 0;
    while i < free.len() {
        let (from, count) = free[i];
        let mut at = from;
        while at < from + count {
            mask[at] = 0;
            at += 1;
        }
        i += 1;
    }
    mask
}

const fn words(mask: &[u8; COMPARED]) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    let mut i = 0;
    while i < COMPARED {
        let mut word = [0; 8];
        let mut byte = 0;
        while byte < 8 {
            word[byte] = mask[i + byte];
            byte += 1;
        }
        words[i / 8] = u64::from_ne_bytes(word);
        i += 8;
    }
    words
}

/// Fields of a packet that continues a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sequel {
    /// SEG.SEQ.
    pub seq: SeqNumber,
    /// SEG.ACK.
    pub ack: SeqNumber,
    /// True if PSH is set.
    pub push: bool,
    /// SEG.WND, unscaled.
    pub window: u16,
    /// The timestamp; present if the first packet has one.
    pub timestamp: Option<Timestamp>,
    /// Offset of the payload in the frame.
    pub payload_at: usize,
    /// Payload bytes.
    pub payload_len: u32,
    /// The sum of pseudo-header and TCP header: together with the payload's sum it must come to
    /// 0xffff.
    pub sum: u16,
}

impl Sequel {
    /// Reads the head of a frame of `frame_len` bytes, given the head of the first packet, which
    /// [`parse`](super::parse) has accepted. `None`: the packet differs from the first in more than
    /// these fields, or it is faulty.
    #[inline(always)]
    #[must_use]
    pub fn read(first: &[u8; BYTES_MAX], head: &[u8; BYTES_MAX], frame_len: usize) -> Option<Self> {
        let has_timestamp = first[TCP_AT + 12] & !1 == OFFSET_TIMESTAMP;
        let (mask, payload_at) = match has_timestamp {
            true => (&SHARED, BYTES_MAX),
            false => (&SHARED_BARE, BYTES_MIN),
        };
        let total_len = usize::from(be16(head, IP_AT + 2));
        let payload_len = (IP_AT + total_len).checked_sub(payload_at)?;
        if differs(first, head, mask) || IP_AT + total_len > frame_len {
            return None;
        }
        // The words are summed in the machine's order, and the result is byte-swapped once.
        let word = |at| u64::from(ne32(head, at));
        let addresses = word(IP_AT + 12) + word(IP_AT + 16);
        let ip = word(IP_AT) + word(IP_AT + 4) + word(IP_AT + 8) + addresses;
        if !Sum::of_words(ip).is_valid() {
            return None;
        }
        let tcp_len = (payload_at - TCP_AT + payload_len) as u16;
        let mut sum = addresses
            + u64::from(u16::from(protocol::TCP).to_be())
            + u64::from(tcp_len.to_be())
            + word(TCP_AT)
            + word(TCP_AT + 4)
            + word(TCP_AT + 8)
            + word(TCP_AT + 12)
            + word(TCP_AT + 16);
        let mut timestamp = None;
        if has_timestamp {
            sum += word(TCP_AT + 20) + word(TCP_AT + 24) + word(TCP_AT + 28);
            timestamp = Some(Timestamp {
                value: be32(head, TCP_AT + 24),
                echo: be32(head, TCP_AT + 28),
            });
        }
        Some(Self {
            seq: SeqNumber(be32(head, TCP_AT + 4)),
            ack: SeqNumber(be32(head, TCP_AT + 8)),
            push: u16::from(head[TCP_AT + 13]) & Flags::PSH.0 != 0,
            window: be16(head, TCP_AT + 14),
            timestamp,
            payload_at,
            payload_len: payload_len as u32,
            sum: Sum::of_words(sum).fold().to_be(),
        })
    }
}

/// True if two plain packets, given their heads, are of one flow. A quick check before a closer
/// one.
#[inline]
#[must_use]
pub fn have_same_ends(one: &[u8; BYTES_MAX], other: &[u8; BYTES_MAX]) -> bool {
    let ends = IP_AT + 12..TCP_AT + 4;
    one[ends.clone()] == other[ends]
}

/// True if a packet may be a [`Sequel`] of a plain one, given their heads: one flow, the same
/// header length, and the same flags but PSH. A quick check before a closer one.
#[inline]
#[must_use]
pub fn may_continue(first: &[u8; BYTES_MAX], next: &[u8; BYTES_MAX]) -> bool {
    let control = |head| be16(head, TCP_AT + 12) | Flags::PSH.0;
    have_same_ends(first, next) && control(first) == control(next)
}

/// A mix of addresses and ports of a TCP packet over IPv4 without options: equal results nearly
/// always mean one flow. `None`: another kind of packet. The upper bits are mixed best.
///
/// ```
/// assert!(wire::plain::mix_ends(&[0; wire::plain::ENDS_BYTES]).is_none());
/// ```
#[inline]
#[must_use]
pub fn mix_ends(head: &[u8; ENDS_BYTES]) -> Option<u64> {
    let is_tcp = be32(head, ETHERTYPE_AT) & 0xffff_ff00 == IPV4_PLAIN
        && head[IP_AT + 9] == protocol::TCP
        && be16(head, IP_AT + 6) & FRAGMENT_MASK == 0;
    let addresses = u64::from(ne32(head, IP_AT + 12)) << 32 | u64::from(ne32(head, IP_AT + 16));
    let ports = u64::from(ne32(head, TCP_AT));
    // Multipliers: odd, and with no pattern in their bits.
    let mixed =
        (addresses.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ports).wrapping_mul(0xd6e8_feb8_6659_fd93);
    is_tcp.then_some(mixed)
}

#[inline(always)]
fn differs(first: &[u8; BYTES_MAX], second: &[u8; BYTES_MAX], mask: &[u64; WORDS]) -> bool {
    let (first, _) = first.as_chunks::<8>();
    let (second, _) = second.as_chunks::<8>();
    let mut difference = 0;
    for ((first, second), mask) in first.iter().zip(second).zip(mask) {
        difference |= (u64::from_ne_bytes(*first) ^ u64::from_ne_bytes(*second)) & mask;
    }
    difference != 0
}
