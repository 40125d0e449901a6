//! Rounds that return unused memory to the system: after a crowd has gone, the chunks and slots
//! that it needed.
//!
//! ```text
//!   quiet ──▶ round ──▶ quiet ──▶ round …   a round is many steps, one a turn, a millisecond apart
//!             what was unused since the last one goes
//! ```
//!
//! Chunks know for themselves what was not needed since the last round ([`ring::chunk`]), the
//! socket table compares numbers ([`sockets`](crate::flows::sockets)). Called by the timer stage. A stack
//! that has nothing to return asks for no turn, so an idle one sleeps for good. Never returned are
//! tables whose entries have no order (the flow table), and memory that a peer or the kernel holds:
//! a memif's regions, the UMEM of AF_XDP.

use crate::core::Core;
use crate::limits::RETURN_STEP_NS;

/// See the module's documentation.
pub(crate) struct MemoryRounds {
    /// Between two rounds; 0: there are none.
    quiet_ns: u64,
    /// When the next step is due.
    pub next_ns: u64,
    is_under_way: bool,
}

impl MemoryRounds {
    pub fn new(quiet_ns: u64, now_ns: u64) -> Self {
        Self {
            quiet_ns,
            next_ns: match quiet_ns {
                0 => u64::MAX,
                _ => now_ns.saturating_add(quiet_ns),
            },
            is_under_way: false,
        }
    }
}

impl Core {
    /// A step of a round, which begins with it if none is under way.
    #[cold]
    pub(crate) fn memory_round(&mut self) {
        let rounds = &mut self.memory_rounds;
        if !rounds.is_under_way {
            self.sockets.begin_round();
            self.sockets.pool.begin_round();
        }
        let returned = match self.sockets.go_round() {
            None => self.sockets.pool.go_round(),
            some => some,
        };
        rounds.is_under_way = returned.is_some();
        let pause_ns = match returned {
            Some(_) => RETURN_STEP_NS,
            None => rounds.quiet_ns,
        };
        rounds.next_ns = self.now_ns.saturating_add(pause_ns);
        self.counters.memory_returned_bytes += returned.unwrap_or(0);
    }

    /// When the next step is due, if it may find something to return.
    pub(crate) fn memory_round_ns(&self) -> Option<u64> {
        let rounds = &self.memory_rounds;
        let has_unused = || self.sockets.has_unused() || self.sockets.pool.has_unused();
        let is_due = rounds.next_ns != u64::MAX && (rounds.is_under_way || has_unused());
        is_due.then_some(rounds.next_ns)
    }
}
