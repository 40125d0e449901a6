//! Tests of `siphash`.
