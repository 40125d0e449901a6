//! Rounds that return unused memory to the system: chunks and slots that a crowd of connections
//! needed.
//!
//! ```text
//!   quiet ──▶ round ──▶ quiet ──▶ round …   a round is many steps, one a turn, a millisecond apart
//!             what was unused since the last one goes
//! ```
//!
//! Chunks know which of them were unused since the last round ([`ring::chunk`]); the socket table
//! compares numbers ([`sockets`](crate::flows::sockets)). The timer stage takes the steps. A stack
//! with nothing to return asks for no turn, so an idle one sleeps. Tables without an order (the
//! flow table) are never returned. Neither is memory that a peer or the kernel holds: a memif's
//! regions, the UMEM of AF_XDP.

use crate::flows::sockets::Sockets;
use crate::limits::RETURN_STEP_NS;

/// See the module's documentation.
pub(crate) struct MemoryRounds {
    /// Time between two rounds, ns; 0: there are no rounds.
    quiet_ns: u64,
    /// Time of the next step, ns.
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

    /// Takes a step of the current round or begins one. Returns the number of bytes returned to the
    /// system.
    #[cold]
    pub fn step(&mut self, sockets: &mut Sockets, now_ns: u64) -> u64 {
        if !self.is_under_way {
            sockets.begin_round();
            sockets.pool.begin_round();
        }
        let returned = match sockets.go_round() {
            None => sockets.pool.go_round(),
            some => some,
        };
        self.is_under_way = returned.is_some();
        let pause_ns = match returned {
            Some(_) => RETURN_STEP_NS,
            None => self.quiet_ns,
        };
        self.next_ns = now_ns.saturating_add(pause_ns);
        returned.unwrap_or(0)
    }

    /// When the next step is due, if it may find something to return.
    pub fn due_ns(&self, sockets: &Sockets) -> Option<u64> {
        let has_unused = || sockets.has_unused() || sockets.pool.has_unused();
        let is_due = self.next_ns != u64::MAX && (self.is_under_way || has_unused());
        is_due.then_some(self.next_ns)
    }
}
