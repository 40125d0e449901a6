//! The machine on which a script is played: a host with sockets, a wire whose far end is ours, and
//! a clock.
//!
//! There are two hosts. [`stack`] is our stack in this process on a virtual clock. [`kernel`] is
//! the machine's own, in a network namespace and in real time. The runner treats both alike, so a
//! script is read, timed and compared in the same way.

pub(super) mod kernel;
pub(super) mod stack;
mod ticks;

use posix::{Errno, Reply, Request};

use super::ast::Micros;

/// An IP packet, and the time at which it left.
pub(super) struct Departure {
    pub at: Micros,
    pub packet: Vec<u8>,
}

/// The result of a system call, and the data that it gave.
pub(super) type Answer = (Result<i64, Errno>, Reply);

pub(super) trait Host {
    /// Script time: microseconds since the start.
    fn now(&self) -> Micros;

    /// The script's start in ns, on the clock of the host's time stamps.
    fn epoch_ns(&self) -> i64;

    /// Lets the host do all work that is due now.
    fn turn(&mut self);

    /// Goes to the next instant at which something may have happened, but not beyond `limit`.
    /// Returns false if nothing happened; the time is then `limit`.
    fn step(&mut self, limit: Micros) -> bool;

    /// Starts a call. There is one call at a time. With `blocks` the script goes on while the call
    /// waits.
    fn begin(&mut self, request: Request, blocks: bool);

    /// The answer of the started call, once the call is over.
    fn outcome(&mut self) -> Option<Answer>;

    /// Gives up waiting for the started call.
    fn abandon(&mut self);

    /// Makes a call that never blocks, beside the one that was started. None: the call did block.
    fn at_once(&mut self, request: Request) -> Option<Answer>;

    /// Longest time that a call may block although the script expects it to return at once.
    fn unexpected_block_max(&self) -> Micros;

    /// Whether an aggregate that a script injects arrives as one packet. Otherwise the segments
    /// that it was merged from arrive.
    fn takes_aggregates(&self) -> bool {
        false
    }

    /// Lets packets arrive, all at once.
    fn inject(&mut self, packets: &[Vec<u8>]) -> Result<(), String>;

    /// The oldest packet that left and was not yet taken.
    fn departed(&mut self) -> Option<Departure>;

    /// Whether the host knows this setting and may accept this value, as far as that is known
    /// before it is set.
    fn knows(&self, name: &str, value: &str) -> bool;

    /// Changes a setting. False: the host does not know the name, or refuses the value.
    fn set(&mut self, name: &str, value: &str) -> bool;

    /// Grants or drops a capability for the calls that follow. The end of the run restores it.
    ///
    /// # Errors
    /// The kernel's error: the process may not have this capability.
    fn set_capability(&mut self, number: u32, is_on: bool) -> Result<(), Errno>;

    /// Forgets what connections taught about their peers: `ip tcp_metrics flush`. False: this host
    /// cannot.
    fn forget_peers(&mut self) -> bool;

    /// Makes the queue below TCP permanently full, or removes that queue. False: this host has no
    /// such queue.
    fn congest(&mut self, is_congested: bool) -> bool;
}
