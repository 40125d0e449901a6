//! Tests of `icmpv4`.
