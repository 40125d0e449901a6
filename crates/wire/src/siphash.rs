//! SipHash, the keyed hash of short inputs (Aumasson and Bernstein, 2012).
//!
//! SipHash-1-3 serves tables off the data path, where a secret key must keep an attacker from
//! choosing collisions. SipHash-2-4 serves values that an attacker sees and must not predict:
//! `tcp`'s initial sequence numbers, cookies and timestamp offsets.

/// SipHash-1-3 of bytes.
///
/// ```
/// use wire::siphash::siphash24;
/// let key = [0x0706050403020100, 0x0f0e0d0c0b0a0908];
/// let input: Vec<u8> = (0..15).collect();
/// assert_eq!(siphash24(key, &input), 0xa129ca6149be45e5); // the paper's appendix A
/// ```
#[inline]
#[must_use]
pub fn siphash13(key: [u64; 2], bytes: &[u8]) -> u64 {
    hash_bytes::<1, 3>(key, bytes)
}

/// SipHash-2-4 of bytes.
#[inline]
#[must_use]
pub fn siphash24(key: [u64; 2], bytes: &[u8]) -> u64 {
    hash_bytes::<2, 4>(key, bytes)
}

/// SipHash-1-3 of whole words: the hash of their bytes, least significant first.
#[inline]
#[must_use]
pub fn siphash13_words(key: [u64; 2], words: &[u64]) -> u64 {
    hash_words::<1, 3>(key, words)
}

/// SipHash-2-4 of whole words: the hash of their bytes, least significant first.
#[inline]
#[must_use]
pub fn siphash24_words(key: [u64; 2], words: &[u64]) -> u64 {
    hash_words::<2, 4>(key, words)
}

/// SipHash-2-4 of whole words and seven more bytes, `tail` (below 2^56), least significant first.
/// The tail shares the last word with the length, so it costs no further round.
///
/// ```
/// use wire::siphash::{siphash24, siphash24_tail};
/// let input: Vec<u8> = (0..15).collect();
/// let word = u64::from_le_bytes(*input.first_chunk().unwrap());
/// assert_eq!(siphash24_tail([1, 2], &[word], 0x0e_0d0c_0b0a_0908), siphash24([1, 2], &input));
/// ```
#[inline]
#[must_use]
pub fn siphash24_tail(key: [u64; 2], words: &[u64], tail: u64) -> u64 {
    debug_assert!(tail < 1 << 56, "seven bytes");
    let mut state = State::<2, 4>::new(key);
    for word in words {
        state.word(*word);
    }
    state.finish(tail, words.len() * 8 + 7)
}

/// SipHash state between words: `C` rounds for each word, `D` at the end.
#[derive(Clone, Copy)]
struct State<const C: usize, const D: usize>([u64; 4]);

impl<const C: usize, const D: usize> State<C, D> {
    #[inline(always)]
    const fn new(key: [u64; 2]) -> Self {
        State([
            key[0] ^ 0x736f_6d65_7073_6575,
            key[1] ^ 0x646f_7261_6e64_6f6d,
            key[0] ^ 0x6c79_6765_6e65_7261,
            key[1] ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline(always)]
    fn word(&mut self, word: u64) {
        self.0[3] ^= word;
        for _ in 0..C {
            self.round();
        }
        self.0[0] ^= word;
    }

    /// Adds the last bytes and returns the hash. `tail`: fewer than 8 bytes, least significant
    /// first; `len`: bytes of the whole input.
    #[inline(always)]
    fn finish(mut self, tail: u64, len: usize) -> u64 {
        self.word(tail | (len as u64) << 56);
        self.0[2] ^= 0xff;
        for _ in 0..D {
            self.round();
        }
        self.0[0] ^ self.0[1] ^ self.0[2] ^ self.0[3]
    }

    #[inline(always)]
    fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        b = b.rotate_left(13) ^ a;
        a = a.rotate_left(32);
        c = c.wrapping_add(d);
        d = d.rotate_left(16) ^ c;
        a = a.wrapping_add(d);
        d = d.rotate_left(21) ^ a;
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
        self.0 = [a, b, c, d];
    }
}

#[inline(always)]
fn hash_bytes<const C: usize, const D: usize>(key: [u64; 2], bytes: &[u8]) -> u64 {
    let mut state = State::<C, D>::new(key);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        state.word(u64::from_le_bytes(*word));
    }
    let mut tail = [0u8; 8];
    tail[..rest.len()].copy_from_slice(rest);
    state.finish(u64::from_le_bytes(tail), bytes.len())
}

#[inline(always)]
fn hash_words<const C: usize, const D: usize>(key: [u64; 2], words: &[u64]) -> u64 {
    let mut state = State::<C, D>::new(key);
    for word in words {
        state.word(*word);
    }
    state.finish(0, words.len() * 8)
}

#[cfg(test)]
mod tests;
