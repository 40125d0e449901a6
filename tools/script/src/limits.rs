//! Limits of this crate, and the answer at each.

/// Bytes of a packet script. A longer one is refused.
pub const SCRIPT_BYTES_MAX: usize = 4 << 20;

/// Longest script in µs, ten years, and the largest time in one. A longer one is refused.
pub const SCRIPT_US_MAX: i64 = 10 * 366 * 86_400 * 1_000_000;

/// Nesting depth of expressions, in calls and in code. Deeper ones are refused.
pub const NESTING_MAX: usize = 64;

/// Function calls in one text of shell commands, nested shells included. Further ones are ignored,
/// like unknown commands.
pub const SHELL_CALLS_MAX: usize = 256;

/// Words and letters of a script's shell commands; a function counts at each call. The command text
/// that exceeds this is refused.
pub const SHELL_WORK_MAX: usize = 1_000_000;

/// Members of a list in code. A longer one is refused.
pub const MEMBERS_MAX: usize = 100_000;

/// Values that a script's code may make, members and letters included. The statement that would
/// make more is refused.
pub const VALUES_MAX: usize = 4_000_000;

/// Operators, indices and methods in one line of code, or `|` between two commas of a call. More
/// are refused, since each may be a level of the syntax tree.
pub const OPERATORS_MAX: usize = 256;
