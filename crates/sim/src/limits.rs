//! The limits of this crate, and the answer at each.

/// Bytes of a packet script. A longer one is refused.
pub const SCRIPT_BYTES_MAX: usize = 4 << 20;

/// How deep expressions may nest, in calls and in code. Deeper ones are refused.
pub const NESTING_MAX: usize = 64;

/// Members of a list in code. A longer one is refused.
pub const MEMBERS_MAX: usize = 100_000;
