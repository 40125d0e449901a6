//! Tests of `tcp`.
