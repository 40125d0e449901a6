//! Accurate ECN on the wire (RFC 9768): the ACE field of the header's flags, and the option of
//! three byte counters.
//!
//! ```text
//!   flags   AE CWR ECE          ACE: segments marked CE, modulo 8; in the handshake a code for the codepoint that arrived
//!   option  174, 2 + 3n, ECT(1) bytes, CE bytes, ECT(0) bytes        n = 0 to 3, each 24 bits; order 1, which we send
//!           172, 2 + 3n, ECT(0) bytes, CE bytes, ECT(1) bytes        order 0
//! ```
//!
//! [`crate::tcp::Options`] holds the option. The `tcp` crate keeps its counters and says how many
//! fields a segment must have. This module decides how the option shares room and padding with the
//! other options of a segment ([`Room`]), as in Linux.

use crate::limits::ACCECN_FIELDS_MAX;

/// Option kind of order 0.
pub(crate) const ORDER_0: u8 = 172;
/// Option kind of order 1.
pub(crate) const ORDER_1: u8 = 174;
/// Bytes of a counter.
const FIELD_BYTES: usize = 3;
/// The greatest value of a counter on the wire.
const COUNTER_MASK: u32 = 0x00ff_ffff;

/// An AccECN option, or none.
///
/// ```
/// use wire::tcp::AccEcn;
/// let option = AccEcn::order_1([1, 0, 0x0012_3456]).truncated(1);
/// assert_eq!(option.counters().collect::<Vec<_>>(), [1]);
/// assert!(option.is_present() && option.is_order_1());
/// assert!(!AccEcn::NONE.is_present());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AccEcn {
    // 0 = no option; otherwise 1 + fields, and `ORDER_BIT`.
    head: u8,
    // Big-endian; bytes beyond the fields are zero, so the derived comparison is right.
    body: [u8; ACCECN_FIELDS_MAX * FIELD_BYTES],
}

const ORDER_BIT: u8 = 0x80;

impl AccEcn {
    /// No option.
    pub const NONE: AccEcn = AccEcn {
        head: 0,
        body: [0; ACCECN_FIELDS_MAX * FIELD_BYTES],
    };

    /// The option that Millstream sends, kind 174: bytes that arrived as ECT(1), CE and ECT(0), in
    /// this order, modulo 2^24.
    #[must_use]
    pub fn order_1(counters: [u32; ACCECN_FIELDS_MAX]) -> AccEcn {
        AccEcn::of(ORDER_BIT, &counters)
    }

    /// The option with the fields in the other order: ECT(0), CE, ECT(1).
    #[must_use]
    pub fn order_0(counters: [u32; ACCECN_FIELDS_MAX]) -> AccEcn {
        AccEcn::of(0, &counters)
    }

    fn of(order: u8, counters: &[u32; ACCECN_FIELDS_MAX]) -> AccEcn {
        let mut option = AccEcn {
            head: (1 + ACCECN_FIELDS_MAX as u8) | order,
            ..AccEcn::NONE
        };
        let (slots, _) = option.body.as_chunks_mut::<FIELD_BYTES>();
        for (slot, counter) in slots.iter_mut().zip(counters) {
            let [_, high, middle, low] = (counter & COUNTER_MASK).to_be_bytes();
            *slot = [high, middle, low];
        }
        option
    }

    /// This option with no more than its first `fields` counters.
    #[must_use]
    pub fn truncated(mut self, fields: usize) -> AccEcn {
        if fields < self.fields() {
            self.body[fields * FIELD_BYTES..].fill(0);
            self.head = (1 + fields as u8) | (self.head & ORDER_BIT);
        }
        self
    }

    /// Reads an option's body. Bytes behind the last whole counter are ignored, and so is a fourth
    /// counter (RFC 9768 section 3.2.3).
    pub(crate) fn parse(kind: u8, body: &[u8]) -> AccEcn {
        let (fields, _) = body.as_chunks::<FIELD_BYTES>();
        let fields = &fields[..fields.len().min(ACCECN_FIELDS_MAX)];
        let order = if kind == ORDER_1 { ORDER_BIT } else { 0 };
        let mut option = AccEcn {
            head: (1 + fields.len() as u8) | order,
            ..AccEcn::NONE
        };
        let bytes = fields.as_flattened();
        option.body[..bytes.len()].copy_from_slice(bytes);
        option
    }

    /// True if there is an option.
    #[inline]
    #[must_use]
    pub const fn is_present(&self) -> bool {
        self.head != 0
    }

    /// True if the fields are ECT(1), CE, ECT(0) (kind 174), false if they are ECT(0), CE, ECT(1).
    #[inline]
    #[must_use]
    pub const fn is_order_1(&self) -> bool {
        self.head & ORDER_BIT != 0
    }

    /// Number of counters.
    #[inline]
    #[must_use]
    pub fn fields(&self) -> usize {
        usize::from((self.head & !ORDER_BIT).saturating_sub(1)).min(ACCECN_FIELDS_MAX)
    }

    /// The counters in the order of the wire.
    pub fn counters(&self) -> impl Iterator<Item = u32> + '_ {
        let (fields, _) = self.body.as_chunks::<FIELD_BYTES>();
        let present = fields.iter().take(self.fields());
        present.map(|&[high, middle, low]| u32::from_be_bytes([0, high, middle, low]))
    }

    /// Kind, length and body in wire format, without padding, and the number of these bytes.
    pub(crate) fn bytes(&self) -> ([u8; BYTES_MAX], usize) {
        let mut bytes = [0; BYTES_MAX];
        let len = option_len(self.fields());
        bytes[0] = if self.is_order_1() { ORDER_1 } else { ORDER_0 };
        bytes[1] = len as u8;
        bytes[2..].copy_from_slice(&self.body);
        (bytes, len)
    }
}

/// Bytes of the longest option.
pub(crate) const BYTES_MAX: usize = option_len(ACCECN_FIELDS_MAX);

/// Bytes of an option with `fields` counters.
const fn option_len(fields: usize) -> usize {
    2 + fields * FIELD_BYTES
}

/// Room that the other options leave, and the padding in them that the AccECN option may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes left of the forty that all options share.
    pub bytes: usize,
    /// SACK blocks among the other options.
    pub sack_blocks: usize,
    /// NOPs before a later option that the last bytes of the AccECN option can replace: 0 to 2.
    pub padding: usize,
}

/// Size of an AccECN option that fits, and the SACK blocks that leave room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Counters that the option gets.
    pub fields: usize,
    /// SACK blocks that stay.
    pub sack_blocks: usize,
    /// Growth of the options in bytes; negative if SACK blocks were dropped.
    pub growth: isize,
}

impl Room {
    /// The longest option that fits and has at least `required` counters. SACK blocks beyond the
    /// second are dropped if the required counters need their room. `None` if that is not enough
    /// (RFC 9768 section 3.2.3.3).
    #[must_use]
    pub fn fit(self, required: usize) -> Option<Fit> {
        let mut blocks = self.sack_blocks;
        let mut bytes = self.bytes;
        loop {
            for fields in (required..=ACCECN_FIELDS_MAX).rev() {
                let size = padded(option_len(fields), self.padding);
                if size <= bytes {
                    let freed = (self.sack_blocks - blocks) * SACK_BLOCK_BYTES;
                    return Some(Fit {
                        fields,
                        sack_blocks: blocks,
                        growth: size as isize - freed as isize,
                    });
                }
            }
            if blocks <= SACK_BLOCKS_KEPT || required == 0 {
                return None;
            }
            blocks -= 1;
            bytes += SACK_BLOCK_BYTES;
        }
    }
}

const SACK_BLOCK_BYTES: usize = 8;
/// SACK blocks that are never dropped.
const SACK_BLOCKS_KEPT: usize = 2;

/// Bytes by which an option of `len` bytes lengthens the options, a multiple of 4. Its last bytes
/// may replace `padding` bytes of another option.
pub(crate) const fn padded(len: usize, padding: usize) -> usize {
    if len % 4 > padding {
        len.next_multiple_of(4)
    } else {
        len - len % 4
    }
}

#[cfg(test)]
mod tests;
