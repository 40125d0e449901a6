//! What gives way when memory for socket buffers is exhausted: bytes beyond gaps, of whatever connection, before bytes in order find none.
//!
//! Each connection looks to itself while it receives ([`tcp::Connection`]'s pruning). This is for those that hold much and receive nothing: a walk over the sockets, a
//! bounded part of it in each turn in which memory is exhausted, until it no longer is or nothing is held out of order any more.

use ring::raw::RawSlice;
use tcp::Memory;

use crate::core::{Core, tcp_cx};
use crate::limits::SHED_SOCKETS_PER_TURN;
use crate::rx_sink::RxSink;

impl Core {
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
