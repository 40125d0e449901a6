//! Tests of `tcp_option`.
