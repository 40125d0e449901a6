//! Tests of `icmpv6`.
