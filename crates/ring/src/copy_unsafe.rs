//! Copies of payload with vector instructions. The C library copies pieces of this size with `rep
//! movsb`, which takes twice as long while the bytes are in the caches. The bytes of a stream are:
//! a chunk is read shortly after it was filled. Called by [`raw`](crate::raw).

/// Pieces shorter than this the C library copies with vectors itself.
const LEN_MIN: usize = 2_048;
/// Longest piece copied here; the caches do not hold more.
const LEN_MAX: usize = 1 << 17;

/// Copies `len` bytes; source and destination may overlap.
///
/// # Safety
/// `src` must be readable and `dst` writable for `len` bytes. Other threads or processes may write
/// either meanwhile.
#[inline]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if (LEN_MIN..LEN_MAX).contains(&len)
        && (dst as usize).abs_diff(src as usize) >= len
        && std::arch::is_x86_feature_detected!("avx2")
    {
        // SAFETY: AVX2 is there, both sides are valid for `len`, and they do not overlap.
        return unsafe { x86::copy_avx2(dst, src, len) };
    }
    // SAFETY: both sides are valid for `len`.
    unsafe { core::ptr::copy(src, dst, len) }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use core::arch::x86_64::*;

    /// Bytes of a vector, and of one iteration of the loop.
    const VECTOR: usize = 32;
    const TURN: usize = 4 * VECTOR;

    /// Copies `len` bytes.
    ///
    /// # Safety
    /// `src` must be readable and `dst` writable for `len` bytes, a turn's or more, and they must
    /// not overlap.
    #[inline(never)]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn copy_avx2(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: each load and store is of a vector at `at`, and both sides have `at + VECTOR`
        // bytes. That holds for the first, for a turn within the loop, and for the last turn, which
        // ends where both sides end. Stores are aligned where `at` was made so.
        unsafe {
            let load = |at: usize| _mm256_loadu_si256(src.add(at).cast());
            let store = |at: usize, vector| _mm256_storeu_si256(dst.add(at).cast(), vector);
            let turn = |at: usize| {
                let vectors = [0, 1, 2, 3].map(|n| load(at + n * VECTOR));
                store(at, vectors[0]);
                store(at + VECTOR, vectors[1]);
                store(at + 2 * VECTOR, vectors[2]);
                store(at + 3 * VECTOR, vectors[3]);
            };
            store(0, load(0));
            // Aligns the stores: a store across two cache lines costs as much as two stores.
            let mut at = VECTOR - (dst as usize & (VECTOR - 1));
            while at + TURN <= len {
                turn(at);
                at += TURN;
            }
            turn(len - TURN);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::raw::{RawSlice, RawSliceMut};

    #[test]
    fn any_piece_arrives_and_nothing_beside_it() {
        let source: Vec<u8> = (0..9_000u32).map(|n| (n * 7 / 3) as u8).collect();
        for len in [0, 1, 2_047, 2_048, 2_049, 2_175, 2_176, 4_080, 8_191] {
            for (from, to) in [(0, 0), (16, 1), (3, 31), (66, 32), (1, 63)] {
                let mut target = vec![0xa5; len + to + 64];
                let piece = &source[from..from + len];
                let copied = RawSliceMut::from(&mut target[to..]).copy_from(RawSlice::from(piece));
                assert_eq!(copied, len);
                assert!(target[..to].iter().all(|&byte| byte == 0xa5));
                assert!(target[to..to + len] == *piece, "{len} from {from} to {to}");
                assert!(target[to + len..].iter().all(|&byte| byte == 0xa5));
            }
        }
    }
}
