//! The Internet checksum (RFC 1071) in portable code, eight bytes a step, and the pseudo-headers of
//! RFC 9293 section 3.1 and RFC 8200 section 8.1.
//!
//! Header checksums use it directly. `ring` sums payload with SIMD instructions, and its folded
//! results enter here through [`Sum::from_folded`] and [`Sum::combine`]. A test in `ring` shows
//! that both agree.
//!
//! The sum does not depend on byte order: swapping the bytes of every word swaps the bytes of the
//! result (RFC 1071 section 2 (B)). Words are therefore added in the machine's order, and the
//! folded result is swapped once.

use crate::addr::Addr;
use core::net::{Ipv4Addr, Ipv6Addr};

/// A one's complement sum of big-endian 16-bit words, not yet folded.
///
/// ```
/// use wire::Sum;
/// let mut sum = Sum::new();
/// sum.add_bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]); // RFC 1071 section 3
/// assert_eq!(sum.fold(), 0xddf2);
/// assert_eq!(sum.finish(), !0xddf2);
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct Sum(u64);

/// Two sums are equal if they fold to the same 16 bits.
impl PartialEq for Sum {
    #[inline]
    fn eq(&self, other: &Sum) -> bool {
        self.fold() == other.fold()
    }
}

impl Eq for Sum {}

impl Sum {
    /// The empty sum.
    #[inline]
    pub const fn new() -> Sum {
        Sum(0)
    }

    /// The sum of 32-bit words that were added as numbers. A 32-bit word counts as the sum of its
    /// two halves, because 2^16 is 1 modulo 2^16 - 1.
    #[inline]
    #[must_use]
    pub(crate) const fn of_words(total: u64) -> Sum {
        Sum(total)
    }

    /// A sum computed elsewhere: the folded 16-bit sum in host order, not complemented.
    #[inline]
    pub const fn from_folded(folded: u16) -> Sum {
        Sum(folded as u64)
    }

    /// Adds one 16-bit word.
    #[inline]
    pub const fn add_u16(&mut self, word: u16) {
        self.0 += word as u64;
    }

    /// Adds two 16-bit words.
    #[inline]
    pub const fn add_u32(&mut self, words: u32) {
        self.0 += (words >> 16) as u64 + (words & 0xffff) as u64;
    }

    /// Adds bytes that start at an even offset of the summed data. An odd last byte is the upper
    /// half of a word whose lower half is zero, so only the last piece may be odd; for others see
    /// [`Sum::combine`].
    #[inline]
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        self.0 += u64::from(sum_native(bytes).to_be());
    }

    /// Adds the sum of a piece. `at_odd_offset`: the piece starts at an odd offset of the summed
    /// data, so the halves of its words are swapped.
    #[inline]
    pub const fn combine(&mut self, piece: Sum, at_odd_offset: bool) {
        let folded = piece.fold();
        let turned = if at_odd_offset {
            folded.swap_bytes()
        } else {
            folded
        };
        self.0 += turned as u64;
    }

    /// The sum in 16 bits, not complemented. A port with partial checksum offload wants this value
    /// in the checksum field.
    #[inline]
    #[must_use]
    pub const fn fold(self) -> u16 {
        fold(self.0)
    }

    /// The checksum to write into the packet.
    #[inline]
    #[must_use]
    pub const fn finish(self) -> u16 {
        !self.fold()
    }

    /// True if these bytes, the checksum field among them, sum to all ones: the packet is intact.
    #[inline]
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.fold() == 0xffff
    }
}

/// The sum of `bytes` alone, as [`Sum`].
#[inline]
pub fn of(bytes: &[u8]) -> Sum {
    let mut sum = Sum::new();
    sum.add_bytes(bytes);
    sum
}

/// The pseudo-header of IPv4, RFC 9293 section 3.1. `len`: bytes of transport header and payload.
#[inline]
pub const fn pseudo_header_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, len: u32) -> Sum {
    let mut sum = Sum::new();
    sum.add_u32(src.to_bits());
    sum.add_u32(dst.to_bits());
    sum.add_u16(protocol as u16);
    sum.add_u32(len);
    sum
}

/// The pseudo-header of IPv6, RFC 8200 section 8.1. `len`: bytes of transport header and payload.
#[inline]
pub const fn pseudo_header_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, len: u32) -> Sum {
    let mut sum = Sum::new();
    sum.add_u128(src.to_bits());
    sum.add_u128(dst.to_bits());
    sum.add_u16(protocol as u16);
    sum.add_u32(len);
    sum
}

/// The pseudo-header for addresses of either family; `src` and `dst` belong to the same family.
#[inline]
pub fn pseudo_header(src: Addr, dst: Addr, protocol: u8, len: u32) -> Sum {
    match (src.to_v4(), dst.to_v4()) {
        (Some(src), Some(dst)) => pseudo_header_v4(src, dst, protocol, len),
        _ => pseudo_header_v6(src.to_v6(), dst.to_v6(), protocol, len),
    }
}

/// The checksum of a packet in which one aligned word changed from `old` to `new`, RFC 1624 section
/// 3, equation 3.
#[inline]
#[must_use]
pub const fn adjust_u16(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(!checksum as u64 + !old as u64 + new as u64)
}

/// The checksum of a packet in which two aligned words changed from `old` to `new`.
#[inline]
#[must_use]
pub const fn adjust_u32(checksum: u16, old: u32, new: u32) -> u16 {
    let halfway = adjust_u16(checksum, (old >> 16) as u16, (new >> 16) as u16);
    adjust_u16(halfway, old as u16, new as u16)
}

impl Sum {
    #[inline]
    const fn add_u128(&mut self, words: u128) {
        self.add_u32((words >> 96) as u32);
        self.add_u32((words >> 64) as u32);
        self.add_u32((words >> 32) as u32);
        self.add_u32(words as u32);
    }
}

/// The folded sum of `bytes` as words in the machine's own order.
#[inline]
fn sum_native(bytes: &[u8]) -> u16 {
    // The two halves of each word are added separately. 2^32 steps cannot overflow, no carry is
    // chained, and the loop vectorises.
    let (mut low, mut high) = (0u64, 0u64);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = u64::from_ne_bytes(*word);
        low += word & 0xffff_ffff;
        high += word >> 32;
    }
    let (words, rest) = rest.as_chunks::<4>();
    if let [word] = words {
        low += u64::from(u32::from_ne_bytes(*word));
    }
    let (words, rest) = rest.as_chunks::<2>();
    if let [word] = words {
        high += u64::from(u16::from_ne_bytes(*word));
    }
    if let [byte] = rest {
        high += u64::from(u16::from_ne_bytes([*byte, 0]));
    }
    fold(add_with_end_around_carry(low, high))
}

/// The one's complement sum of two 64-bit numbers.
#[inline(always)]
const fn add_with_end_around_carry(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u64
}

/// Adds the upper half to the lower one until 16 bits remain. A number added to itself with its
/// halves exchanged has, in its upper half, the sum of both halves and the end-around carry.
#[inline(always)]
pub(crate) const fn fold(sum: u64) -> u16 {
    let sum = (sum.wrapping_add(sum.rotate_right(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_right(16)) >> 16) as u16
}

#[cfg(test)]
mod tests;
