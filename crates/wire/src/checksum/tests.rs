//! Tests of `checksum`.
