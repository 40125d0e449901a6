//! The checksum in AVX2 and SSE2. SSE2 widens 32-bit words into 64-bit lanes, which cannot
//! overflow; AVX2 adds 16-bit words in pairs into 32-bit lanes, a bounded number of times. So the
//! loops need neither carries nor folding. Called by [`checksum`](super) for pieces of [`LEN_MIN`]
//! bytes or more.

use core::arch::x86_64::*;

use super::portable_unsafe;
use crate::prefetch::{self, Ahead, LINE_BYTES};
use crate::raw::{RawSlice, RawSliceMut};

/// Below this many bytes the portable loop is as fast.
pub(super) const LEN_MIN: usize = 96;
/// Bytes of a block, the whole vectors that are summed into 32-bit lanes without a carry. A word
/// counts 2^15 at most, so all lanes of a block together come to at most 2^30.
const BLOCK_BYTES: usize = 1 << 16;

/// True if the machine has AVX2. `std` caches the answer.
#[inline(always)]
fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

pub(super) fn form() -> &'static str {
    if has_avx2() { "avx2" } else { "sse2" }
}

#[inline]
pub(super) fn sum(src: RawSlice<'_>) -> u64 {
    if has_avx2() {
        // SAFETY: AVX2 is there, and a `RawSlice` is readable for its length.
        return unsafe { sum_avx2(src.as_ptr(), src.len()) };
    }
    // SAFETY: a `RawSlice` is readable for its length.
    unsafe { sum_sse2(src.as_ptr(), src.len()) }
}

#[inline]
pub(super) fn copy_and_sum(mut dst: RawSliceMut<'_>, src: RawSlice<'_>, ahead: Ahead) -> u64 {
    if has_avx2() {
        let len = src.len().min(dst.len());
        // SAFETY: AVX2 is there, and both sides are valid for `len`.
        return unsafe { copy_and_sum_avx2(dst.as_mut_ptr(), src.as_ptr(), len, ahead) };
    }
    copy_and_sum_with_sse2(dst, src)
}

pub(super) fn copy_and_sum_with_sse2(mut dst: RawSliceMut<'_>, src: RawSlice<'_>) -> u64 {
    let len = src.len().min(dst.len());
    // SAFETY: both sides are valid for `len`.
    unsafe { copy_and_sum_sse2(dst.as_mut_ptr(), src.as_ptr(), len) }
}

/// Adds the sixteen 16-bit words of a vector, less 2^15 each, to eight 32-bit lanes. The bias makes
/// the words signed numbers, which one instruction adds in pairs.
#[inline]
#[target_feature(enable = "avx2")]
fn add_avx2(total: __m256i, words: __m256i) -> __m256i {
    let signed = _mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN));
    _mm256_add_epi32(total, _mm256_madd_epi16(signed, _mm256_set1_epi16(1)))
}

/// The sum of the words in `bytes` bytes of vectors that [`add_avx2`] added to these two totals.
#[inline]
#[target_feature(enable = "avx2")]
fn total_avx2(a: __m256i, b: __m256i, bytes: usize) -> u64 {
    let lanes = _mm256_add_epi32(a, b);
    let four = _mm_add_epi32(
        _mm256_castsi256_si128(lanes),
        _mm256_extracti128_si256::<1>(lanes),
    );
    let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
    let one = _mm_add_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two));
    // Takes the bias of each word back: the result is never negative.
    let biased = i64::from(_mm_cvtsi128_si32(one));
    (biased + ((bytes as i64 / 2) << 15)) as u64
}

#[inline]
#[target_feature(enable = "sse2")]
fn widen_sse2(total: __m128i, words: __m128i) -> __m128i {
    let low = _mm_and_si128(words, _mm_set1_epi64x(0xffff_ffff));
    let high = _mm_srli_epi64::<32>(words);
    _mm_add_epi64(total, _mm_add_epi64(low, high))
}

#[inline]
#[target_feature(enable = "sse2")]
fn total_sse2(total: __m128i) -> u64 {
    let high = _mm_unpackhi_epi64(total, total);
    // Both lanes are sums of 32-bit words, far below 2^63.
    (_mm_cvtsi128_si64(total) as u64).wrapping_add(_mm_cvtsi128_si64(high) as u64)
}

/// # Safety
/// `src` must be readable for `len` bytes.
#[target_feature(enable = "avx2")]
unsafe fn sum_avx2(src: *const u8, len: usize) -> u64 {
    // SAFETY: 32 readable bytes are left at `at` whenever a vector is loaded.
    let load = |at: usize| unsafe { _mm256_loadu_si256(src.add(at).cast()) };
    let (mut total, mut at) = (0, 0);
    while len - at >= 32 {
        let block = (len - at).min(BLOCK_BYTES) & !31;
        let end = at + block;
        let (mut a, mut b) = (_mm256_setzero_si256(), _mm256_setzero_si256());
        while end - at >= 64 {
            a = add_avx2(a, load(at));
            b = add_avx2(b, load(at + 32));
            at += 64;
        }
        if at < end {
            a = add_avx2(a, load(at));
            at += 32;
        }
        total += total_avx2(a, b, block);
    }
    // SAFETY: `len - at` readable bytes are left at `at`.
    portable_unsafe::add(total, unsafe {
        portable_unsafe::sum_at(src.add(at), len - at)
    })
}

/// Asks for the lines from `ahead` on as it goes.
///
/// # Safety
/// `src` must be readable and `dst` writable for `len` bytes.
#[target_feature(enable = "avx2")]
unsafe fn copy_and_sum_avx2(dst: *mut u8, src: *const u8, len: usize, ahead: Ahead) -> u64 {
    let ahead = ahead.or(src);
    // SAFETY: as many bytes as are copied are left at `at` on both sides.
    let copy = |at: usize| unsafe {
        let words = _mm256_loadu_si256(src.add(at).cast());
        _mm256_storeu_si256(dst.add(at).cast(), words);
        words
    };
    let (mut total, mut at) = (0, 0);
    while len - at >= 32 {
        let block = (len - at).min(BLOCK_BYTES) & !31;
        let end = at + block;
        let (mut a, mut b) = (_mm256_setzero_si256(), _mm256_setzero_si256());
        while end - at >= 2 * LINE_BYTES {
            prefetch::line(ahead.wrapping_add(at));
            prefetch::line(ahead.wrapping_add(at + LINE_BYTES));
            a = add_avx2(a, copy(at));
            b = add_avx2(b, copy(at + 32));
            a = add_avx2(a, copy(at + 64));
            b = add_avx2(b, copy(at + 96));
            at += 2 * LINE_BYTES;
        }
        prefetch::line(ahead.wrapping_add(at));
        while at < end {
            a = add_avx2(a, copy(at));
            at += 32;
        }
        total += total_avx2(a, b, block);
    }
    // SAFETY: `len - at` bytes are left at `at` on both sides.
    portable_unsafe::add(total, unsafe {
        portable_unsafe::copy_and_sum_at(dst.add(at), src.add(at), len - at)
    })
}

/// # Safety
/// `src` must be readable for `len` bytes.
#[target_feature(enable = "sse2")]
unsafe fn sum_sse2(src: *const u8, len: usize) -> u64 {
    let mut a = _mm_setzero_si128();
    let mut b = _mm_setzero_si128();
    let mut at = 0;
    while len - at >= 32 {
        // SAFETY: 32 readable bytes are left at `at`.
        let (first, second) = unsafe {
            let from = src.add(at);
            (
                _mm_loadu_si128(from.cast()),
                _mm_loadu_si128(from.add(16).cast()),
            )
        };
        a = widen_sse2(a, first);
        b = widen_sse2(b, second);
        at += 32;
    }
    // SAFETY: `len - at` readable bytes are left at `at`.
    let rest = unsafe { portable_unsafe::sum_at(src.add(at), len - at) };
    portable_unsafe::add(total_sse2(_mm_add_epi64(a, b)), rest)
}

/// # Safety
/// `src` must be readable and `dst` writable for `len` bytes.
#[target_feature(enable = "sse2")]
unsafe fn copy_and_sum_sse2(dst: *mut u8, src: *const u8, len: usize) -> u64 {
    let mut a = _mm_setzero_si128();
    let mut b = _mm_setzero_si128();
    let mut at = 0;
    while len - at >= 32 {
        // SAFETY: 32 bytes are left at `at` on both sides.
        let (first, second) = unsafe {
            let (to, from) = (dst.add(at), src.add(at));
            let first = _mm_loadu_si128(from.cast());
            let second = _mm_loadu_si128(from.add(16).cast());
            _mm_storeu_si128(to.cast(), first);
            _mm_storeu_si128(to.add(16).cast(), second);
            (first, second)
        };
        a = widen_sse2(a, first);
        b = widen_sse2(b, second);
        at += 32;
    }
    // SAFETY: `len - at` bytes are left at `at` on both sides.
    let rest = unsafe { portable_unsafe::copy_and_sum_at(dst.add(at), src.add(at), len - at) };
    portable_unsafe::add(total_sse2(_mm_add_epi64(a, b)), rest)
}
