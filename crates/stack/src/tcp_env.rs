//! The surroundings of every call into `tcp`: time, settings, counters, and the pools that all
//! connections of a stack share.

use std::sync::Arc;

use tcp::{ChallengeLimiter, Cx, Memory, RangePool, RecordPool};

use crate::config::StackConfig;

pub(crate) struct TcpEnv {
    /// The time of this turn, ns.
    pub now_ns: u64,
    pub config: Arc<StackConfig>,
    pub tcp_counters: tcp::Counters,
    pub challenge: ChallengeLimiter,
    /// Records of segments in flight, of all connections.
    pub records: RecordPool,
    /// Ranges received out of order, of all connections.
    pub ranges: RangePool,
    /// State of the memory for socket buffers, judged once per turn.
    pub memory: Memory,
    /// Largest send buffer of one connection at present, bytes; judged once per turn.
    pub fair_share: u32,
}

impl TcpEnv {
    pub fn new(config: Arc<StackConfig>, challenge_key: u64, now_ns: u64) -> Self {
        let limits = &config.limits;
        Self {
            now_ns,
            tcp_counters: tcp::Counters::default(),
            challenge: ChallengeLimiter::new(challenge_key),
            records: RecordPool::new(limits.segment_records, limits.sockets_max),
            ranges: RangePool::new(limits.range_blocks),
            memory: Memory::Ample,
            fair_share: u32::MAX,
            config,
        }
    }

    /// The context of a call into `tcp`.
    #[inline(always)]
    pub fn cx(&mut self) -> Cx<'_> {
        Cx {
            now_ns: self.now_ns,
            config: &self.config.tcp,
            challenge: &mut self.challenge,
            counters: &mut self.tcp_counters,
            records: &mut self.records,
            ranges: &mut self.ranges,
            memory: self.memory,
        }
    }
}
