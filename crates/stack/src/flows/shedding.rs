//! What gives way when memory for socket buffers is exhausted: bytes beyond gaps, of whatever connection, before bytes in order find none.
//!
//! Each connection looks to itself while it receives ([`tcp::Connection`]'s pruning). This is for those that hold much and receive nothing: a walk over the sockets, a
//! bounded part of it in each turn in which memory is exhausted, until it no longer is or nothing is held out of order any more.

use ring::raw::RawSlice;
use tcp::Memory;

use crate::core::{Core, tcp_cx};
use crate::flows::rx_sink::RxSink;
use crate::limits::{MEMORY_SHARED, SHARE_BYTES_MIN, SHED_SOCKETS_PER_TURN};

impl Core {
    /// Called once per turn: what tables refused or forgot, of which they keep count themselves.
    #[inline]
    pub(crate) fn count_refusals(&mut self) {
        self.tcp_counters.records_refused = self.records.refused();
        self.counters.rest_refused = self.sockets.rest_refused();
        self.counters.destinations_evicted = self.destinations.evicted();
    }

    /// Called once per turn: how much memory is left, and while it is low, how much of it each connection may fill with what it sends.
    #[inline]
    pub(crate) fn judge_memory(&mut self) {
        self.memory = self.sockets.judge_memory();
        self.fair_share = match self.memory {
            Memory::Ample => u32::MAX,
            _ => self.share_memory(),
        };
    }

    /// What all of them may fill together, in equal parts. Without it those who have much would get back what they free, for ever.
    fn share_memory(&self) -> u32 {
        let others = self.half_opens.len() + self.time_waits.len();
        let connections = self.flows.len().saturating_sub(others).max(1) as u64;
        let share = self.sockets.memory_bytes() / 64 * MEMORY_SHARED / connections;
        u32::try_from(share).map_or(u32::MAX, |share| share.max(SHARE_BYTES_MIN))
    }

    /// Called once per turn, when its judgement of memory is known.
    #[inline]
    pub(crate) fn relieve_memory(&mut self) {
        if self.memory == Memory::Exhausted && self.ranges.in_use() > 0 {
            self.shed_out_of_order();
        }
    }

    #[cold]
    fn shed_out_of_order(&mut self) {
        let span = self.sockets.span();
        for _ in 0..span.min(SHED_SOCKETS_PER_TURN) {
            self.shed_next = (self.shed_next + 1) % span;
            if self.sockets.warm_slot(self.shed_next).is_none() {
                // Who rests holds nothing.
                continue;
            }
            let (slot, pool, block) = self.sockets.parts(self.shed_next);
            let Some(conn) = slot.conn.as_mut() else {
                continue;
            };
            let mut sink = RxSink::new(&mut slot.rx, pool, block, RawSlice::from(&[][..]));
            if conn.shed_out_of_order(&mut tcp_cx!(self), &mut sink) {
                self.counters.connections_shed += 1;
                self.memory = self.sockets.judge_memory();
                if self.memory != Memory::Exhausted {
                    return;
                }
            }
        }
    }
}
