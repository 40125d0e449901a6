//! Tests of `addr`.
