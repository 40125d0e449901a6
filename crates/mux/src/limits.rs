//! Every limit of the service, with its name and unit.
//!
//! At each the answer is defined: a refusal with an errno, or the end of the connection that reached it.

/// Virtual ports of one service, unless `--ports` says fewer. The next application is refused (EBUSY).
pub const SLOTS_MAX: u16 = 254;
