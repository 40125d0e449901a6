//! Shedding: when memory for socket buffers is exhausted, connections give up bytes beyond gaps, so
//! that bytes in order find room.
//!
//! Each connection prunes itself while it receives ([`tcp::Connection`]). Shedding is for
//! connections that hold much and receive nothing. It walks over the sockets, a bounded part in
//! each turn, until memory suffices or no bytes beyond gaps are left.

use ring::raw::RawSlice;
use tcp::Memory;

use crate::counters::Counters;
use crate::flows::rx_sink::RxSink;
use crate::flows::sockets::Sockets;
use crate::limits::SHED_SOCKETS_PER_TURN;
use crate::tcp_env::TcpEnv;

/// The walk over the sockets.
#[derive(Default)]
pub(crate) struct Shedding {
    /// The last socket that the walk visited.
    last: u32,
}

impl Shedding {
    /// Sheds once per turn, after the turn has judged memory.
    #[inline]
    pub fn relieve(&mut self, env: &mut TcpEnv, sockets: &mut Sockets, counters: &mut Counters) {
        if env.memory == Memory::Exhausted && env.ranges.in_use() > 0 {
            self.shed(env, sockets, counters);
        }
    }

    #[cold]
    fn shed(&mut self, env: &mut TcpEnv, sockets: &mut Sockets, counters: &mut Counters) {
        let span = sockets.span();
        for _ in 0..span.min(SHED_SOCKETS_PER_TURN) {
            self.last = (self.last + 1) % span;
            if sockets.warm_slot(self.last).is_none() {
                // A packed connection holds no received bytes.
                continue;
            }
            let (slot, pool, block) = sockets.parts(self.last);
            let Some(conn) = slot.conn.as_mut() else {
                continue;
            };
            let mut sink = RxSink::new(&mut slot.rx, pool, block, RawSlice::from(&[][..]));
            if conn.shed_out_of_order(&mut env.cx(), &mut sink) {
                counters.connections_shed += 1;
                env.memory = sockets.judge_memory();
                if env.memory != Memory::Exhausted {
                    return;
                }
            }
        }
    }
}
