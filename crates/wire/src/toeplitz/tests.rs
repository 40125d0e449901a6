//! Tests of `toeplitz`.
