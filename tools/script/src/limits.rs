//! The limits of this crate, and the answer at each.

/// Bytes of a packet script. A longer one is refused.
pub const SCRIPT_BYTES_MAX: usize = 4 << 20;

/// Microseconds that a script lasts, ten years, and that any time in it may be. A longer one is
/// refused.
pub const SCRIPT_US_MAX: i64 = 10 * 366 * 86_400 * 1_000_000;

/// How deep expressions may nest, in calls and in code. Deeper ones are refused.
pub const NESTING_MAX: usize = 64;

/// Calls of functions in one text of shell commands, those of the shells in it too. Further ones
/// are ignored, as what is not known is.
pub const SHELL_CALLS_MAX: usize = 256;

/// Words and letters of the shell commands of a script, those of a function at each call. A script
/// of more is refused at the text where it passes this.
pub const SHELL_WORK_MAX: usize = 1_000_000;

/// Members of a list in code. A longer one is refused.
pub const MEMBERS_MAX: usize = 100_000;

/// Values that the code of a script may make, members and letters counted. What would make more is
/// refused where it does.
pub const VALUES_MAX: usize = 4_000_000;

/// Operators, indices and methods in one line of code, or `|` between two commas of a call. More of
/// them are refused: each may be a level of its tree.
pub const OPERATORS_MAX: usize = 256;
