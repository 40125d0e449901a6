//! Every limit of packetio, with its name and unit.
//!
//! At each the answer is defined where it is used: back-pressure, a drop with a counter, or a refusal at open.

/// Named counters in one [`PortCounters`](crate::PortCounters): a backend's own plus those of the wrappers around it.
pub const NAMED_COUNTERS_MAX: usize = 48;
