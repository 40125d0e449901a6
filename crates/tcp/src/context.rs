//! The surroundings of a connection: what of the stack every call may use.

use crate::buffers::Memory;
use crate::challenge::ChallengeLimiter;
use crate::config::Config;
use crate::counters::Counters;
use crate::reassembly::RangePool;
use crate::records::RecordPool;

/// The surroundings that every call needs.
#[derive(Debug)]
pub struct Cx<'a> {
    /// The time of this turn.
    pub now_ns: u64,
    /// Settings of the stack.
    pub config: &'a Config,
    /// The stack's limit on challenge ACKs.
    pub challenge: &'a mut ChallengeLimiter,
    /// The stack's counters.
    pub counters: &'a mut Counters,
    /// The stack's records of data in flight.
    pub records: &'a mut RecordPool,
    /// The stack's blocks of out-of-order ranges.
    pub ranges: &'a mut RangePool,
    /// The memory that the stack has left.
    pub memory: Memory,
}
