//! The TCP header, RFC 9293 section 3.1. On the data path: `stack` parses the header of each
//! segment that arrives and emits the header of each segment that leaves.
//!
//! Nearly every segment of an established flow has either no options or `nop, nop, timestamp`. Both
//! forms are read without a loop; any other goes to [`Options::parse`].

use crate::error::WireError;
use crate::field::{be16, be32, bytes, put16, put32};
use crate::limits::{TCP_HEADER_BYTES_MAX, TCP_HEADER_BYTES_MIN, TCP_OPTION_BYTES_MAX};
use crate::seq::SeqNumber;
use crate::tcp_option::{TIMESTAMP_ALIGNED, TIMESTAMP_ALIGNED_LEN, timestamp};
use core::fmt;
use core::ops::{BitOr, BitOrAssign};

pub use crate::accecn::AccEcn;
pub use crate::tcp_option::{FastOpenCookie, Options, SackBlock, SackBlocks, Timestamp};

/// Bytes of a header without options.
pub const HEADER_LEN: usize = TCP_HEADER_BYTES_MIN;
/// Bytes of the longest header.
pub const HEADER_LEN_MAX: usize = TCP_HEADER_BYTES_MAX;
/// Bytes of a header whose only option is the timestamp.
pub const TIMESTAMP_HEADER_LEN: usize = HEADER_LEN + TIMESTAMP_ALIGNED_LEN;
/// Offset of the checksum in the header.
pub const CHECKSUM_OFFSET: usize = 16;

/// The control bits, RFC 9293 section 3.1, RFC 3168 and RFC 9768.
///
/// ```
/// use wire::tcp::Flags;
/// let flags = Flags::SYN | Flags::ACK;
/// assert!(flags.contains(Flags::SYN) && !flags.contains(Flags::FIN | Flags::ACK));
/// assert!(flags.intersects(Flags::FIN | Flags::ACK));
/// assert_eq!(flags.to_string(), "SA");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Flags(pub u16);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronize sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x04);
    /// Push.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgment field is meaningful.
    pub const ACK: Flags = Flags(0x10);
    /// The urgent pointer is meaningful.
    pub const URG: Flags = Flags(0x20);
    /// ECN echo.
    pub const ECE: Flags = Flags(0x40);
    /// Congestion window reduced.
    pub const CWR: Flags = Flags(0x80);
    /// Accurate ECN.
    pub const AE: Flags = Flags(0x100);
    /// The three bits of the ACE field (RFC 9768 section 3.2.2).
    pub const ACE: Flags = Flags(0x1c0);

    /// True if all flags of `other` are set.
    #[inline(always)]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if any flag of `other` is set.
    #[inline(always)]
    pub const fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// The flags of both sets.
    #[inline(always)]
    #[must_use]
    pub const fn union(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// The flags of this set that are not in `other`.
    #[inline(always)]
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// The ACE field: AE, CWR and ECE as a number from 0 to 7 (RFC 9768 section 3.2.2).
    ///
    /// ```
    /// use wire::tcp::Flags;
    /// assert_eq!((Flags::SYN | Flags::AE | Flags::CWR).ace(), 0b110);
    /// assert_eq!((Flags::ACK | Flags::ECE).with_ace(0b100), Flags::ACK | Flags::AE);
    /// ```
    #[inline(always)]
    #[must_use]
    pub const fn ace(self) -> u8 {
        (self.0 >> ACE_SHIFT & 7) as u8
    }

    /// These flags with the ACE field set to the low three bits of `ace`.
    #[inline(always)]
    #[must_use]
    pub const fn with_ace(self, ace: u8) -> Flags {
        Flags(self.without(Flags::ACE).0 | (ace as u16 & 7) << ACE_SHIFT)
    }

    /// True if no flag is set.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Position of ECE, the lowest bit of the ACE field.
const ACE_SHIFT: u32 = 6;

impl BitOr for Flags {
    type Output = Flags;

    #[inline(always)]
    fn bitor(self, other: Flags) -> Flags {
        self.union(other)
    }
}

impl BitOrAssign for Flags {
    #[inline(always)]
    fn bitor_assign(&mut self, other: Flags) {
        *self = *self | other;
    }
}

/// A letter for each flag: `SA` is SYN and ACK, `FPA` is FIN, PSH and ACK, `-` is none; AE is an
/// `e`.
impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("-");
        }
        for (bit, letter) in ["F", "S", "R", "P", "A", "U", "E", "C", "e"]
            .iter()
            .enumerate()
        {
            if self.0 & (1 << bit) != 0 {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A TCP header with its options.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Header {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// The sequence number of the first byte, or of SYN.
    pub seq: SeqNumber,
    /// The next sequence number that the sender expects; meaningful with ACK.
    pub ack: SeqNumber,
    /// The control bits.
    pub flags: Flags,
    /// The window field, not scaled.
    pub window: u16,
    /// The checksum field; neither verified nor computed here.
    pub checksum: u16,
    /// The urgent pointer; meaningful with URG.
    pub urgent: u16,
    /// The options.
    pub options: Options,
}

impl Header {
    /// Parses a header; the second value is the offset of the data. `segment` holds at least the
    /// header. The caller verifies the checksum, which also covers the payload.
    ///
    /// # Errors
    /// [`WireError::Truncated`] when the bytes end before the header does; [`WireError::BadLength`]
    /// for a data offset below 20 bytes; [`WireError::BadOption`], see [`Options::parse`].
    ///
    /// ```
    /// use wire::tcp::{Flags, Header, Options, Timestamp};
    /// let timestamp = Some(Timestamp { value: 1, echo: 2 });
    /// let sent = Header {
    ///     src_port: 443,
    ///     flags: Flags::ACK,
    ///     options: Options { timestamp, ..Options::NONE },
    ///     ..Header::default()
    /// };
    /// let mut bytes = [0u8; 60];
    /// let len = sent.emit(&mut bytes);
    /// assert_eq!(Header::parse(&bytes[..len])?, (sent, 32));
    /// # Ok::<(), wire::WireError>(())
    /// ```
    #[inline]
    pub fn parse(segment: &[u8]) -> Result<(Header, usize), WireError> {
        let Some(fixed) = segment.first_chunk::<HEADER_LEN>() else {
            return Err(WireError::Truncated);
        };
        let data_offset = data_offset(fixed);
        if data_offset == HEADER_LEN {
            return Ok((Header::fields(fixed, Options::NONE), HEADER_LEN));
        }
        if data_offset == TIMESTAMP_HEADER_LEN
            && let Some(longer) = segment.first_chunk::<TIMESTAMP_HEADER_LEN>()
            && be32(longer, HEADER_LEN) == TIMESTAMP_ALIGNED
        {
            let options = Options {
                timestamp: Some(timestamp(&bytes(longer, HEADER_LEN + 4))),
                ..Options::NONE
            };
            return Ok((Header::fields(fixed, options), TIMESTAMP_HEADER_LEN));
        }
        parse_with_options(segment, fixed)
    }

    /// Writes the header, with the checksum field as given. Returns its length, or 0 if `out` is
    /// too short.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        if let Some(stamp) = self.only_timestamp() {
            let Some(header) = out.first_chunk_mut::<TIMESTAMP_HEADER_LEN>() else {
                return 0;
            };
            self.put_fixed(header, TIMESTAMP_HEADER_LEN);
            put32(header, HEADER_LEN, TIMESTAMP_ALIGNED);
            put32(header, HEADER_LEN + 4, stamp.value);
            put32(header, HEADER_LEN + 8, stamp.echo);
            return TIMESTAMP_HEADER_LEN;
        }
        self.emit_any(out)
    }

    /// Bytes that [`Header::emit`] writes: 20 to 60, a multiple of 4.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.emit_len()
    }

    #[inline(always)]
    fn fields(fixed: &[u8; HEADER_LEN], options: Options) -> Header {
        Header {
            src_port: be16(fixed, 0),
            dst_port: be16(fixed, 2),
            seq: SeqNumber(be32(fixed, 4)),
            ack: SeqNumber(be32(fixed, 8)),
            // AE is the lowest of the bits that RFC 9293 reserves.
            flags: Flags(u16::from(fixed[12] & 1) << 8 | u16::from(fixed[13])),
            window: be16(fixed, 14),
            checksum: be16(fixed, CHECKSUM_OFFSET),
            urgent: be16(fixed, 18),
            options,
        }
    }

    /// The timestamp, if it is the only option.
    #[inline(always)]
    fn only_timestamp(&self) -> Option<Timestamp> {
        if self.options.is_plain() {
            self.options.timestamp
        } else {
            None
        }
    }

    #[inline(always)]
    fn put_fixed<const N: usize>(&self, out: &mut [u8; N], header_len: usize) {
        put16(out, 0, self.src_port);
        put16(out, 2, self.dst_port);
        put32(out, 4, self.seq.0);
        put32(out, 8, self.ack.0);
        let [ae, flags] = self.flags.0.to_be_bytes();
        out[12] = (header_len as u8 / 4) << 4 | ae & 1;
        out[13] = flags;
        put16(out, 14, self.window);
        put16(out, CHECKSUM_OFFSET, self.checksum);
        put16(out, 18, self.urgent);
    }

    #[inline(never)]
    fn emit_any(&self, out: &mut [u8]) -> usize {
        let mut options = [0u8; TCP_OPTION_BYTES_MAX];
        let options_len = self.options.emit(&mut options);
        let header_len = HEADER_LEN + options_len;
        let Some(header) = out.get_mut(..header_len) else {
            return 0;
        };
        let Some((fixed, rest)) = header.split_first_chunk_mut::<HEADER_LEN>() else {
            return 0;
        };
        self.put_fixed(fixed, header_len);
        rest.copy_from_slice(&options[..options_len]);
        header_len
    }
}

/// Source and destination port, for callers that need no more: ICMP quotes and prefetching. `None`
/// if there are fewer than four bytes.
#[inline]
pub fn ports(segment: &[u8]) -> Option<(u16, u16)> {
    let ports = segment.first_chunk::<4>()?;
    Some((be16(ports, 0), be16(ports, 2)))
}

/// Bytes of the header, by its data offset.
#[inline(always)]
fn data_offset(fixed: &[u8; HEADER_LEN]) -> usize {
    usize::from(fixed[12] >> 4) * 4
}

// Not inlined, so that the fast paths are. Not `cold`, because every ACK under loss brings SACK
// blocks.
#[inline(never)]
fn parse_with_options(
    segment: &[u8],
    fixed: &[u8; HEADER_LEN],
) -> Result<(Header, usize), WireError> {
    let data_offset = data_offset(fixed);
    if data_offset < HEADER_LEN {
        return Err(WireError::BadLength);
    }
    let options = segment
        .get(HEADER_LEN..data_offset)
        .ok_or(WireError::Truncated)?;
    let options = Options::parse(options)?;
    Ok((Header::fields(fixed, options), data_offset))
}

#[cfg(test)]
mod tests;
