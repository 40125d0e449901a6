//! A quiet connection in a few dozen bytes: the difference of each field from its usual value.
//!
//! Most fields of a quiet connection follow from others (SND.NXT is SND.UNA, nothing is lost, the
//! times are the same). Each field is therefore written as its difference from its *usual* value:
//! one bit when there is none, else a number of as few bytes as it needs.
//!
//! ```text
//!   flags of 8 fields │ differences of those that have one │ flags of 8 fields │ …
//! ```
//!
//! For each structure one function walks over the fields in both directions ([`Packing`]), so
//! writing and reading cannot disagree. The function destructures the value, so a new field
//! compiles only once its usual value is stated. Nothing is lost: a value that cannot be written
//! [refuses](Packing::refuse), and the connection stays as it is. The stack packs its own part of a
//! socket in the same way.

use wire::SeqNumber;

/// One direction of packing: each call writes a field, or sets it from what was written.
pub trait Packing {
    /// A difference from the usual value.
    fn difference(&mut self, difference: i64) -> i64;

    /// Refuses to pack this value. Only the writer calls it.
    fn refuse(&mut self);

    /// True if fields are set, not written.
    fn is_reading(&self) -> bool;

    /// A condition that every packed connection fulfils. The writer refuses unless it `holds`. The
    /// reader gets true, and then makes the condition hold.
    #[inline]
    fn must(&mut self, holds: bool) -> bool {
        if !holds && !self.is_reading() {
            self.refuse();
        }
        self.is_reading()
    }

    /// A field of 64 bits.
    #[inline]
    fn u64(&mut self, field: &mut u64, usual: u64) {
        let found = self.difference(field.wrapping_sub(usual) as i64);
        *field = usual.wrapping_add(found as u64);
    }

    /// A field of 32 bits.
    #[inline]
    fn u32(&mut self, field: &mut u32, usual: u32) {
        let found = self.difference(i64::from(field.wrapping_sub(usual) as i32));
        *field = usual.wrapping_add(found as u32);
    }

    /// A field of 16 bits.
    #[inline]
    fn u16(&mut self, field: &mut u16, usual: u16) {
        let found = self.difference(i64::from(field.wrapping_sub(usual) as i16));
        *field = usual.wrapping_add(found as u16);
    }

    /// A field of 8 bits.
    #[inline]
    fn u8(&mut self, field: &mut u8, usual: u8) {
        let found = self.difference(i64::from(field.wrapping_sub(usual) as i8));
        *field = usual.wrapping_add(found as u8);
    }

    /// A sequence number.
    #[inline]
    fn seq(&mut self, field: &mut SeqNumber, usual: SeqNumber) {
        self.u32(&mut field.0, usual.0);
    }

    /// A flag that is usually false.
    #[inline]
    fn bool(&mut self, field: &mut bool) {
        *field = self.difference(i64::from(*field)) != 0;
    }

    /// One of `all`, usually the first.
    #[inline]
    fn one_of<T: Copy + PartialEq>(&mut self, field: &mut T, all: &[T])
    where
        Self: Sized,
    {
        let place = all.iter().position(|one| one == field);
        self.must(place.is_some());
        let found = self.difference(place.unwrap_or(0) as i64);
        if self.is_reading()
            && let Some(one) = all.get(found as usize)
        {
            *field = *one;
        }
    }

    /// An optional part; `absent` is its value if it is missing. True: the part is present, and its
    /// fields follow.
    #[inline]
    fn is_there<T: PartialEq>(&mut self, field: &mut T, absent: T) -> bool {
        let mut there = *field != absent;
        self.bool(&mut there);
        if !there {
            *field = absent;
        }
        there
    }
}

/// Number of fields that share a byte of flags.
const GROUP: u8 = 8;
/// Bits of a difference in one byte; the byte's upper bit says that more follow.
const BITS: u32 = 7;

/// Writes fields into bytes.
#[derive(Debug)]
pub struct Packer<'a> {
    bytes: &'a mut [u8],
    len: usize,
    group_at: usize,
    in_group: u8,
    is_refused: bool,
}

impl<'a> Packer<'a> {
    /// A writer into `bytes`, which may prove too short.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Packer {
            bytes,
            len: 0,
            group_at: 0,
            in_group: GROUP,
            is_refused: false,
        }
    }

    /// Number of bytes used; `None` when a value refused, or the space was too small.
    #[must_use]
    pub fn finish(self) -> Option<usize> {
        (!self.is_refused && self.len <= self.bytes.len()).then_some(self.len)
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
        }
        self.len += 1;
    }
}

impl Packing for Packer<'_> {
    #[inline]
    fn difference(&mut self, difference: i64) -> i64 {
        if self.in_group == GROUP {
            (self.in_group, self.group_at) = (0, self.len);
            self.push(0);
        }
        if difference != 0 {
            if let Some(flags) = self.bytes.get_mut(self.group_at) {
                *flags |= 1 << self.in_group;
            }
            // Zigzag code: small numbers of either sign are short.
            let mut left = (difference << 1 ^ difference >> 63) as u64;
            while left >> BITS != 0 {
                self.push(left as u8 | 1 << BITS);
                left >>= BITS;
            }
            self.push(left as u8);
        }
        self.in_group += 1;
        difference
    }

    fn refuse(&mut self) {
        self.is_refused = true;
    }

    #[inline]
    fn is_reading(&self) -> bool {
        false
    }
}

/// Reads what a [`Packer`] wrote.
#[derive(Debug)]
pub struct Unpacker<'a> {
    bytes: &'a [u8],
    at: usize,
    flags: u8,
    in_group: u8,
}

impl<'a> Unpacker<'a> {
    /// Reads from the beginning of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Unpacker {
            bytes,
            at: 0,
            flags: 0,
            in_group: GROUP,
        }
    }

    #[inline]
    fn next(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }
}

impl Packing for Unpacker<'_> {
    #[inline]
    fn difference(&mut self, _: i64) -> i64 {
        if self.in_group == GROUP {
            (self.in_group, self.flags) = (0, self.next());
        }
        let is_set = self.flags >> self.in_group & 1 != 0;
        self.in_group += 1;
        if !is_set {
            return 0;
        }
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let byte = self.next();
            value |= u64::from(byte & !(1 << BITS)).wrapping_shl(shift);
            shift += BITS;
            if byte >> BITS == 0 {
                return (value >> 1) as i64 ^ -((value & 1) as i64);
            }
        }
    }

    fn refuse(&mut self) {}

    #[inline]
    fn is_reading(&self) -> bool {
        true
    }
}

/// Usual values of a connection's fields: times and sequence numbers from which most other fields
/// follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usual {
    /// Time at which anything last arrived.
    pub now_ns: u64,
    /// SND.UNA.
    pub una: SeqNumber,
    /// The first sequence number after the SYN.
    pub first: SeqNumber,
    /// RCV.NXT.
    pub rcv_nxt: SeqNumber,
}

impl Usual {
    /// `now_ns` in milliseconds that wrap; [`us`](Self::us) gives microseconds that wrap.
    pub fn ms(&self) -> u32 {
        (self.now_ns / 1_000_000) as u32
    }

    pub fn us(&self) -> u32 {
        (self.now_ns / 1_000) as u32
    }
}
