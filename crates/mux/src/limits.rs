//! Every limit of the service, with its name and unit.
//!
//! At each the answer is defined: a refusal with an errno, or the end of the connection that reached it.

/// Virtual ports of one service, unless `--ports` says fewer. The next application is refused (EBUSY).
pub const SLOTS_MAX: u16 = 254;

/// Bytes of one context's memory file. A larger one is refused (EINVAL).
pub const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Slots of one ring of a context. More are refused (EINVAL).
pub const RING_SLOTS_MAX: u32 = 65_536;
