//! The checksum in plain 8-byte words, for short pieces and other machines. Called by
//! [`checksum`](super), and by its SIMD forms for the bytes behind the last vector.

use crate::raw::{RawSlice, RawSliceMut};

/// Sum of the native-order 16-bit words, not folded.
#[inline]
pub(super) fn sum(src: RawSlice<'_>) -> u64 {
    // SAFETY: a `RawSlice` is readable for its length.
    unsafe { sum_at(src.as_ptr(), src.len()) }
}

/// Copies the smaller of the two lengths; returns the sum, not folded.
#[inline]
pub(super) fn copy_and_sum(mut dst: RawSliceMut<'_>, src: RawSlice<'_>) -> u64 {
    let len = src.len().min(dst.len());
    // SAFETY: both are valid for `len`, which is at most the length of each.
    unsafe { copy_and_sum_at(dst.as_mut_ptr(), src.as_ptr(), len) }
}

/// Adds a word of four 16-bit words. The carry out is added back (RFC 1071 section 2), because 2^64
/// is 1 modulo 2^16 - 1.
#[inline(always)]
pub(super) fn add(total: u64, word: u64) -> u64 {
    let (sum, carry) = total.overflowing_add(word);
    sum + u64::from(carry)
}

/// # Safety
/// `src` must be readable for `len` bytes.
#[inline]
pub(super) unsafe fn sum_at(mut src: *const u8, mut len: usize) -> u64 {
    let mut total = 0;
    while len >= 8 {
        // SAFETY: at least 8 readable bytes are left; unaligned reads are asked for as such.
        unsafe {
            total = add(total, src.cast::<u64>().read_unaligned());
            src = src.add(8);
        }
        len -= 8;
    }
    if len > 0 {
        // SAFETY: `len` in 1..8 readable bytes are left.
        total = add(total, unsafe { load_short(src, len) });
    }
    total
}

/// # Safety
/// `src` must be readable and `dst` writable for `len` bytes.
#[inline]
pub(super) unsafe fn copy_and_sum_at(mut dst: *mut u8, mut src: *const u8, mut len: usize) -> u64 {
    let mut total = 0;
    // SAFETY: as many bytes as are moved are left on both sides; unaligned access is asked for as
    // such. The stored word is the word that was summed, not a second load from `src`.
    unsafe {
        while len >= 16 {
            let [first, second] = src.cast::<[u64; 2]>().read_unaligned();
            dst.cast::<[u64; 2]>().write_unaligned([first, second]);
            total = add(add(total, first), second);
            (src, dst) = (src.add(16), dst.add(16));
            len -= 16;
        }
        if len >= 8 {
            let word = src.cast::<u64>().read_unaligned();
            dst.cast::<u64>().write_unaligned(word);
            total = add(total, word);
            (src, dst) = (src.add(8), dst.add(8));
            len -= 8;
        }
        if len > 0 {
            let word = load_short(src, len);
            store_short(dst, word, len);
            total = add(total, word);
        }
    }
    total
}

/// The next `len` (1..8) bytes in memory order, zeros after them; each byte loaded once.
///
/// # Safety
/// `src` must be readable for `len` bytes.
#[inline(always)]
unsafe fn load_short(src: *const u8, len: usize) -> u64 {
    let mut bytes = [0u8; 8];
    let mut at = 0;
    // SAFETY: the three steps read 4, 2 and 1 bytes as the bits of `len` say, `len` in all.
    unsafe {
        if len & 4 != 0 {
            let word = src.cast::<[u8; 4]>().read();
            bytes[..4].copy_from_slice(&word);
            at = 4;
        }
        if len & 2 != 0 {
            let word = src.add(at).cast::<[u8; 2]>().read();
            bytes[at..at + 2].copy_from_slice(&word);
            at += 2;
        }
        if len & 1 != 0 {
            bytes[at] = src.add(at).read();
        }
    }
    u64::from_ne_bytes(bytes)
}

/// Stores the first `len` (1..8) bytes of `word` in memory order.
///
/// # Safety
/// `dst` must be writable for `len` bytes.
#[inline(always)]
unsafe fn store_short(dst: *mut u8, word: u64, len: usize) {
    let bytes = word.to_ne_bytes();
    let mut at = 0;
    // SAFETY: as in `load_short`, `len` bytes in all.
    unsafe {
        if len & 4 != 0 {
            dst.cast::<[u8; 4]>()
                .write([bytes[0], bytes[1], bytes[2], bytes[3]]);
            at = 4;
        }
        if len & 2 != 0 {
            dst.add(at)
                .cast::<[u8; 2]>()
                .write([bytes[at], bytes[at + 1]]);
            at += 2;
        }
        if len & 1 != 0 {
            dst.add(at).write(bytes[at]);
        }
    }
}
