//! TCP options: RFC 9293 section 3.2 (MSS), RFC 7323 (window scale, timestamps), RFC 2018 (SACK),
//! RFC 7413 (Fast Open), RFC 9768 (accurate ECN, in [`crate::accecn`]).
//!
//! `tcp::Header` parses and emits options. The `tcp` crate decides which options have a meaning in
//! which segment. The emitted layout is Linux's, byte for byte, because test suites and
//! fingerprinting tools compare it.

use crate::accecn::{self, AccEcn, padded};
use crate::error::WireError;
use crate::field::be32;
use crate::limits::{
    FAST_OPEN_COOKIE_BYTES_MAX, FAST_OPEN_COOKIE_BYTES_MIN, SACK_BLOCKS_MAX, TCP_OPTION_BYTES_MAX,
};
use crate::seq::SeqNumber;
use core::fmt;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMP: u8 = 8;
/// TCP MD5 signature, RFC 2385. The stack has no keys, so it refuses a segment with this option, as
/// Linux does without keys.
const SIGNATURE: u8 = 19;
const FAST_OPEN: u8 = 34;
const EXPERIMENT: u8 = 254;
/// The experiment identifier that Fast Open used before option 34 was assigned, RFC 7413 appendix A
/// and RFC 6994.
const FAST_OPEN_EXPERIMENT: [u8; 2] = [0xf9, 0x89];

/// Bytes of the timestamp option with the two NOPs that align it.
pub(crate) const TIMESTAMP_ALIGNED_LEN: usize = 12;
/// The first word of an aligned timestamp option.
pub(crate) const TIMESTAMP_ALIGNED: u32 = u32::from_be_bytes([NOP, NOP, TIMESTAMP, 10]);
/// First word of a SYN's timestamp option: SACK permitted replaces the padding.
pub(crate) const TIMESTAMP_AFTER_SACK_PERMITTED: u32 =
    u32::from_be_bytes([SACK_PERMITTED, 2, TIMESTAMP, 10]);

/// A timestamp option, RFC 7323 section 3.2.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Timestamp {
    /// TSval: the sender's timestamp clock.
    pub value: u32,
    /// TSecr: the last TSval received, echoed; meaningful with ACK.
    pub echo: u32,
}

/// One block of a SACK option: bytes `left` up to, not including, `right` have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct SackBlock {
    /// The block's first sequence number.
    pub left: SeqNumber,
    /// The sequence number behind the block's last byte.
    pub right: SeqNumber,
}

/// The blocks of a SACK option in wire order, most recent first. Without blocks there is no option.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SackBlocks {
    // Slots from `len` on are zero, so that the derived comparison is right.
    blocks: [SackBlock; SACK_BLOCKS_MAX],
    len: u8,
}

impl SackBlocks {
    /// No blocks.
    pub const EMPTY: SackBlocks = SackBlocks {
        blocks: [SackBlock {
            left: SeqNumber(0),
            right: SeqNumber(0),
        }; SACK_BLOCKS_MAX],
        len: 0,
    };

    /// Appends a block. Returns false and changes nothing if there are four already.
    #[inline]
    pub fn push(&mut self, block: SackBlock) -> bool {
        let Some(slot) = self.blocks.get_mut(usize::from(self.len)) else {
            return false;
        };
        *slot = block;
        self.len += 1;
        true
    }

    /// Drops all SACK blocks after the first `blocks`.
    pub fn truncate(&mut self, blocks: usize) {
        while self.len() > blocks {
            self.len -= 1;
            if let Some(slot) = self.blocks.get_mut(usize::from(self.len)) {
                *slot = SackBlock::default();
            }
        }
    }

    /// The blocks.
    #[inline]
    pub fn as_slice(&self) -> &[SackBlock] {
        // `len` never exceeds the array; `min` lets the compiler remove the bounds check.
        &self.blocks[..self.len().min(SACK_BLOCKS_MAX)]
    }

    /// Number of blocks.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// True if there are no blocks.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// A Fast Open option: a cookie of 4 to 16 bytes, or the request for one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FastOpenCookie {
    bytes: [u8; FAST_OPEN_COOKIE_BYTES_MAX],
    len: u8,
    /// The cookie travels in the experimental option 254, not in option 34. An answer uses the
    /// option of the request.
    pub experimental: bool,
}

impl FastOpenCookie {
    /// The request for a cookie.
    pub const REQUEST: FastOpenCookie = FastOpenCookie {
        bytes: [0; FAST_OPEN_COOKIE_BYTES_MAX],
        len: 0,
        experimental: false,
    };

    /// A cookie, or the request for one if `cookie` is empty. `None` if RFC 7413 section 4.1.1
    /// forbids the length, which must be even and 4 to 16.
    pub fn new(cookie: &[u8]) -> Option<FastOpenCookie> {
        let is_cookie = (FAST_OPEN_COOKIE_BYTES_MIN..=FAST_OPEN_COOKIE_BYTES_MAX)
            .contains(&cookie.len())
            && cookie.len().is_multiple_of(2);
        if !is_cookie && !cookie.is_empty() {
            return None;
        }
        let mut made = FastOpenCookie::REQUEST;
        made.bytes[..cookie.len()].copy_from_slice(cookie);
        made.len = cookie.len() as u8;
        Some(made)
    }

    /// This cookie, marked for the experimental option or for option 34.
    #[must_use]
    pub const fn with_experimental(mut self, experimental: bool) -> FastOpenCookie {
        self.experimental = experimental;
        self
    }

    /// The cookie's bytes; none for a request.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len).min(FAST_OPEN_COOKIE_BYTES_MAX)]
    }

    /// True if this is the request for a cookie.
    pub const fn is_request(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the option with its padding.
    const fn option_len(&self) -> usize {
        let head = if self.experimental { 4 } else { 2 };
        (head + self.len as usize).next_multiple_of(4)
    }
}

impl fmt::Debug for FastOpenCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.experimental {
            f.write_str("experimental:")?;
        }
        for byte in self.as_slice() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(if self.is_request() { "request" } else { "" })
    }
}

/// The options of a segment, for the kinds that this crate knows. Values are as on the wire; `tcp`
/// judges them.
// `repr(C)` puts the SACK blocks first. In the compiler's own order a new header is assembled on
// the stack and copied by loads that straddle the stores before them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(C)]
pub struct Options {
    /// Selective acknowledgments.
    pub sack: SackBlocks,
    /// Maximum segment size, bytes; SYN only.
    pub mss: Option<u16>,
    /// Window scale, bits; SYN only. A receiver takes a value above 14 as 14 (RFC 7323 section
    /// 2.3).
    pub window_scale: Option<u8>,
    /// True if the sender accepts SACK; SYN only.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamp: Option<Timestamp>,
    /// Fast Open; SYN only.
    pub fast_open: Option<FastOpenCookie>,
    /// Accurate ECN.
    pub accecn: AccEcn,
}

impl Default for Options {
    #[inline]
    fn default() -> Options {
        Options::NONE
    }
}

const _: () = assert!(size_of::<Options>() <= 84);

impl Options {
    /// No options.
    pub const NONE: Options = Options {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        timestamp: None,
        sack: SackBlocks::EMPTY,
        fast_open: None,
        accecn: AccEcn::NONE,
    };

    /// Bytes that [`Options::emit`] writes: a multiple of 4, at most 40.
    #[inline]
    pub fn emit_len(&self) -> usize {
        let plan = Plan::of(self);
        plan.len
    }

    /// Parses the option bytes of a header. Unknown options are skipped (RFC 9293 MUST-6), and so
    /// are known ones of an impossible length. Of an option that stands twice, the last counts; of
    /// SACK blocks, the first four.
    ///
    /// # Errors
    /// [`WireError::BadOption`] for an option whose length is below 2 or runs past the end
    /// (MUST-7).
    pub fn parse(mut bytes: &[u8]) -> Result<Options, WireError> {
        let mut options = Options::NONE;
        while let Some((&kind, rest)) = bytes.split_first() {
            if kind == END {
                break;
            }
            if kind == NOP {
                bytes = rest;
                continue;
            }
            let len = usize::from(*rest.first().ok_or(WireError::BadOption)?);
            if len < 2 {
                return Err(WireError::BadOption);
            }
            let (option, rest) = bytes.split_at_checked(len).ok_or(WireError::BadOption)?;
            if kind == SIGNATURE {
                return Err(WireError::Signed);
            }
            options.take(kind, &option[2..]);
            bytes = rest;
        }
        Ok(options)
    }

    /// Room that these options leave for an AccECN option.
    #[must_use]
    pub fn accecn_room(&self) -> accecn::Room {
        let rest = Options {
            accecn: AccEcn::NONE,
            ..*self
        };
        let plan = Plan::of(&rest);
        accecn::Room {
            bytes: TCP_OPTION_BYTES_MAX - plan.len,
            sack_blocks: plan.sack_blocks,
            padding: plan.padding,
        }
    }

    /// Takes one option's body.
    fn take(&mut self, kind: u8, body: &[u8]) {
        match (kind, body) {
            (MSS, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMP, body) => {
                if let Ok(body) = <&[u8; 8]>::try_from(body) {
                    self.timestamp = Some(timestamp(body));
                }
            }
            (SACK, body) => self.take_sack(body),
            (accecn::ORDER_0 | accecn::ORDER_1, body) => self.accecn = AccEcn::parse(kind, body),
            (FAST_OPEN, cookie) => self.take_cookie(cookie, false),
            (EXPERIMENT, body) => {
                if let Some(cookie) = body.strip_prefix(&FAST_OPEN_EXPERIMENT) {
                    self.take_cookie(cookie, true);
                }
            }
            _ => {}
        }
    }

    fn take_sack(&mut self, body: &[u8]) {
        let (blocks, rest) = body.as_chunks::<8>();
        if !rest.is_empty() {
            return;
        }
        for block in blocks {
            self.sack.push(SackBlock {
                left: SeqNumber(be32(block, 0)),
                right: SeqNumber(be32(block, 4)),
            });
        }
    }

    fn take_cookie(&mut self, cookie: &[u8], experimental: bool) {
        if let Some(cookie) = FastOpenCookie::new(cookie) {
            self.fast_open = Some(cookie.with_experimental(experimental));
        }
    }

    /// Writes the options in Linux's layout, padded with NOPs; returns the number of bytes. Options
    /// that do not fit into 40 bytes are left out: the last SACK blocks, then the Fast Open cookie,
    /// then the AccECN option. The last bytes of the AccECN option replace padding of other
    /// options.
    pub fn emit(&self, out: &mut [u8; TCP_OPTION_BYTES_MAX]) -> usize {
        let plan = Plan::of(self);
        let mut out = Out { bytes: out, at: 0 };
        let mut tail = Tail::NONE;
        if let Some(mss) = self.mss {
            let [a, b] = mss.to_be_bytes();
            out.put([MSS, 4, a, b]);
        }
        if let Some(stamp) = self.timestamp {
            let aligner = if self.sack_permitted {
                [SACK_PERMITTED, 2]
            } else {
                [NOP, NOP]
            };
            out.put([aligner[0], aligner[1], TIMESTAMP, 10]);
            out.put(stamp.value.to_be_bytes());
            out.put(stamp.echo.to_be_bytes());
        }
        if plan.accecn {
            tail = out.put_accecn(&self.accecn);
        }
        if self.sack_permitted && self.timestamp.is_none() {
            let [a, b] = tail.take();
            out.put([a, b, SACK_PERMITTED, 2]);
        }
        if let Some(shift) = self.window_scale {
            out.put([tail.take_one(), WINDOW_SCALE, 3, shift]);
        }
        if plan.sack_blocks > 0 {
            let [a, b] = tail.take();
            out.put([a, b, SACK, 2 + 8 * plan.sack_blocks as u8]);
            for block in self.sack.as_slice().iter().take(plan.sack_blocks) {
                out.put(block.left.0.to_be_bytes());
                out.put(block.right.0.to_be_bytes());
            }
        }
        if tail.len > 0 {
            let [a, b] = tail.take();
            out.put([a, b, NOP, NOP]);
        }
        if let (true, Some(cookie)) = (plan.fast_open, &self.fast_open) {
            out.put_cookie(cookie);
        }
        debug_assert_eq!(out.at, plan.len);
        out.at
    }
}

/// Reads the eight bytes of a timestamp option's body.
#[inline(always)]
pub(crate) fn timestamp(body: &[u8; 8]) -> Timestamp {
    Timestamp {
        value: be32(body, 0),
        echo: be32(body, 4),
    }
}

/// The part of a segment's options that fits into 40 bytes.
struct Plan {
    len: usize,
    sack_blocks: usize,
    fast_open: bool,
    accecn: bool,
    /// NOPs that the end of the AccECN option may replace.
    padding: usize,
}

impl Plan {
    #[inline]
    fn of(options: &Options) -> Plan {
        let mut len = 0;
        len += 4 * usize::from(options.mss.is_some());
        if options.timestamp.is_some() {
            len += TIMESTAMP_ALIGNED_LEN;
        } else {
            len += 4 * usize::from(options.sack_permitted);
        }
        len += 4 * usize::from(options.window_scale.is_some());
        // At most 20 bytes are used so far, so at least two blocks fit.
        let sack_blocks = options.sack.len().min((TCP_OPTION_BYTES_MAX - 4 - len) / 8);
        if sack_blocks > 0 {
            len += 4 + 8 * sack_blocks;
        }
        let mut fast_open = false;
        if let Some(cookie) = &options.fast_open
            && len + cookie.option_len() <= TCP_OPTION_BYTES_MAX
        {
            len += cookie.option_len();
            fast_open = true;
        }
        let aligned_by_nops = options.sack_permitted && options.timestamp.is_none();
        let padding = if aligned_by_nops || sack_blocks > 0 {
            2
        } else {
            usize::from(options.window_scale.is_some())
        };
        let mut accecn = false;
        if options.accecn.is_present() {
            let (_, bare) = options.accecn.bytes();
            accecn = len + padded(bare, padding) <= TCP_OPTION_BYTES_MAX;
            len += if accecn { padded(bare, padding) } else { 0 };
        }
        Plan {
            len,
            sack_blocks,
            fast_open,
            accecn,
            padding,
        }
    }
}

/// Option bytes under construction, written in words of four bytes, because every option is aligned
/// to a word.
struct Out<'a> {
    bytes: &'a mut [u8; TCP_OPTION_BYTES_MAX],
    at: usize,
}

impl Out<'_> {
    #[inline]
    fn put(&mut self, word: [u8; 4]) {
        if let Some(slot) = self.bytes.get_mut(self.at..self.at + 4) {
            slot.copy_from_slice(&word);
            self.at += 4;
        }
    }

    /// Writes the whole words of an AccECN option. Its remaining one or two bytes replace another
    /// option's padding, or stand at the end.
    fn put_accecn(&mut self, option: &AccEcn) -> Tail {
        let (bare, len) = option.bytes();
        // Three remaining bytes are written as a word with one NOP.
        let mut bytes = [NOP; accecn::BYTES_MAX + 1];
        bytes[..len].copy_from_slice(&bare[..len]);
        let (words, _) = bytes.as_chunks::<4>();
        let whole = (len + 1) / 4;
        for word in &words[..whole] {
            self.put(*word);
        }
        let left = len.saturating_sub(whole * 4);
        match words.get(whole) {
            Some(&[a, b, ..]) if left > 0 => Tail {
                bytes: [a, b],
                len: left,
            },
            _ => Tail::NONE,
        }
    }

    fn put_cookie(&mut self, cookie: &FastOpenCookie) {
        let mut option = [NOP; FAST_OPEN_COOKIE_BYTES_MAX + 4];
        let body = cookie.as_slice();
        let head = if cookie.experimental {
            let [a, b] = FAST_OPEN_EXPERIMENT;
            option[..4].copy_from_slice(&[EXPERIMENT, 4 + cookie.len, a, b]);
            4
        } else {
            option[..2].copy_from_slice(&[FAST_OPEN, 2 + cookie.len]);
            2
        };
        option[head..head + body.len()].copy_from_slice(body);
        let (words, _) = option.as_chunks::<4>();
        for word in &words[..cookie.option_len() / 4] {
            self.put(*word);
        }
    }
}

/// The last one or two bytes of an AccECN option, which wait for padding to replace.
struct Tail {
    bytes: [u8; 2],
    len: usize,
}

impl Tail {
    const NONE: Tail = Tail {
        bytes: [NOP; 2],
        len: 0,
    };

    /// Takes both bytes, a missing one as NOP.
    fn take(&mut self) -> [u8; 2] {
        core::mem::replace(self, Tail::NONE).bytes
    }

    /// Takes the byte if there is exactly one; a NOP otherwise.
    fn take_one(&mut self) -> u8 {
        if self.len == 1 { self.take()[0] } else { NOP }
    }
}

#[cfg(test)]
mod tests;
