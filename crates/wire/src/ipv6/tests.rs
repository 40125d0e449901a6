//! Tests of `ipv6`.
