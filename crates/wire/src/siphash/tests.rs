//! SipHash against its authors' vectors (2-4) and the standard library (1-3).

use super::*;
use core::hash::Hasher;
use proptest::prelude::*;
use std::collections::hash_map::DefaultHasher;
use std::vec::Vec;

const KEY: [u64; 2] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];

/// The authors' `vectors_sip64` for inputs of 0, 1, 2 … bytes: 00, 01, 02 …
const VECTORS: [u64; 16] = [
    0x726f_db47_dd0e_0e31,
    0x74f8_39c5_93dc_67fd,
    0x0d6c_8009_d9a9_4f5a,
    0x8567_6696_d7fb_7e2d,
    0xcf27_94e0_2771_87b7,
    0x1876_5564_cd99_a68d,
    0xcbc9_466e_58fe_e3ce,
    0xab02_00f5_8b01_d137,
    0x93f5_f579_9a93_2462,
    0x9e00_82df_0ba9_e4b0,
    0x7a5d_bbc5_94dd_b9f3,
    0xf4b3_2f46_226b_ada7,
    0x751e_8fbc_860e_e5fb,
    0x14ea_5627_c084_3d90,
    0xf723_ca90_8e7a_f2ee,
    0xa129_ca61_49be_45e5,
];

#[test]
fn published_vectors_match() {
    let input: Vec<u8> = (0..16).collect();
    for (len, &hash) in VECTORS.iter().enumerate() {
        assert_eq!(siphash24(KEY, &input[..len]), hash, "{len} bytes");
    }
}

proptest! {
    #[test]
    fn one_three_is_the_standard_librarys(bytes: Vec<u8>) {
        let mut theirs = DefaultHasher::new(); // SipHash-1-3 with a key of zeros
        theirs.write(&bytes);
        prop_assert_eq!(siphash13([0, 0], &bytes), theirs.finish());
    }

    #[test]
    fn words_are_their_bytes(key: [u64; 2], words: Vec<u64>) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        prop_assert_eq!(siphash13_words(key, &words), siphash13(key, &bytes));
        prop_assert_eq!(siphash24_words(key, &words), siphash24(key, &bytes));
    }
}
