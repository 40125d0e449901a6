//! The surroundings of a connection: the parts of the stack that every call may use.

use crate::buffers::Memory;
use crate::challenge::ChallengeLimiter;
use crate::config::Config;
use crate::counters::Counters;
use crate::reassembly::RangePool;
use crate::records::RecordPool;

/// The parts of the stack that every call borrows.
#[derive(Debug)]
pub struct Cx<'a> {
    /// Time of this turn.
    pub now_ns: u64,
    /// The stack's settings.
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
