//! The Internet checksum (RFC 1071), alone and fused with a copy.
//!
//! Every function here returns a *partial*: the one's complement sum of the bytes as big-endian
//! 16-bit words. An odd last byte is padded with zero on its right; the sum is folded to 16 bits
//! and **not** complemented. It is a number in host order, ready for
//! `wire::checksum::Sum::add_u16`. [`combine`] joins the partials of adjacent pieces, which may
//! have odd lengths.
//!
//! On x86-64 the sum proceeds 32 bytes at a time (AVX2) or 16 (SSE2, part of the architecture); the
//! choice is made once per process. On other machines, under Miri and for short pieces it proceeds
//! 8 bytes at a time.

mod portable_unsafe;
#[cfg(target_arch = "x86_64")]
mod x86_unsafe;

use crate::prefetch::Ahead;
use crate::raw::{RawSlice, RawSliceMut};

/// Partial sum of `bytes`.
#[inline]
pub fn sum(bytes: &[u8]) -> u32 {
    sum_raw(RawSlice::from(bytes))
}

impl RawSlice<'_> {
    /// Partial sum of the bytes.
    #[inline]
    pub fn sum(&self) -> u32 {
        sum_raw(*self)
    }
}

/// Partial sum of raw memory; each byte is loaded once.
#[inline]
pub fn sum_raw(src: RawSlice<'_>) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if src.len() >= x86_unsafe::LEN_MIN {
        return fold(x86_unsafe::sum(src));
    }
    fold(portable_unsafe::sum(src))
}

/// Copies `src` to the start of `dst` and returns the partial sum of the copy, in one pass. The
/// bytes stored are the bytes summed, even if someone rewrites `src` meanwhile. Copies the smaller
/// of the two lengths.
#[inline]
pub fn copy_and_sum(dst: RawSliceMut<'_>, src: RawSlice<'_>) -> u32 {
    copy_and_sum_ahead(dst, src, Ahead::NOTHING)
}

/// [`copy_and_sum`], which also prefetches the bytes that are read next.
#[inline]
pub fn copy_and_sum_ahead(dst: RawSliceMut<'_>, src: RawSlice<'_>, ahead: Ahead) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if src.len().min(dst.len()) >= x86_unsafe::LEN_MIN {
        return fold(x86_unsafe::copy_and_sum(dst, src, ahead));
    }
    // For so few bytes a prefetch would take as long as the copy.
    let _ = ahead;
    fold(portable_unsafe::copy_and_sum(dst, src))
}

/// The partial of two adjacent pieces. `at_odd_offset`: the second piece starts at an odd offset of
/// the message (RFC 1071 section 2(B)).
#[inline]
pub fn combine(first: u32, second: u32, at_odd_offset: bool) -> u32 {
    let second = if at_odd_offset {
        u32::from((second as u16).swap_bytes())
    } else {
        second
    };
    let sum = first + second;
    (sum & 0xffff) + (sum >> 16)
}

/// The form in use, for logs and benches.
pub fn form() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    return x86_unsafe::form();
    #[cfg(not(target_arch = "x86_64"))]
    "portable"
}

/// Each form by name, so that tests and benches can compare them.
#[doc(hidden)]
#[allow(clippy::type_complexity)]
pub fn forms() -> Vec<(&'static str, fn(RawSliceMut<'_>, RawSlice<'_>) -> u32)> {
    let mut forms: Vec<(&'static str, fn(RawSliceMut<'_>, RawSlice<'_>) -> u32)> =
        vec![("portable", |dst, src| {
            fold(portable_unsafe::copy_and_sum(dst, src))
        })];
    #[cfg(target_arch = "x86_64")]
    {
        forms.push(("sse2", |dst, src| {
            fold(x86_unsafe::copy_and_sum_with_sse2(dst, src))
        }));
        if x86_unsafe::form() == "avx2" {
            forms.push(("avx2", |dst, src| {
                fold(x86_unsafe::copy_and_sum(dst, src, Ahead::NOTHING))
            }));
        }
    }
    forms
}

/// Folds a sum of native-order 16-bit words to 16 bits in network order. The one's complement sum
/// does not depend on byte order except for a swap at the end (RFC 1071 section 2(B)), so the loops
/// add words as the machine loads them.
#[inline(always)]
fn fold(native: u64) -> u32 {
    // Adds each half of the word to the other, with the end-around carry.
    let sum = (native.wrapping_add(native.rotate_right(32)) >> 32) as u32;
    let sum = (sum.wrapping_add(sum.rotate_right(16)) >> 16) as u16;
    u32::from(sum.to_be())
}
