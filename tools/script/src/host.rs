//! The machine on which a script is played: a host with sockets, a wire whose far end is ours, and
//! a clock.
//!
//! Two of them: [`stack`], ours in this process on a virtual clock, and [`kernel`], the machine's
//! own in a network namespace and in real time. The runner knows neither; so a script is read,
//! timed and compared in the same way on both.

pub(super) mod kernel;
pub(super) mod stack;
mod ticks;

use posix::{Errno, Reply, Request};

use super::ast::Micros;

/// An IP packet and when it left.
pub(super) struct Departure {
    pub at: Micros,
    pub packet: Vec<u8>,
}

/// The result of a system call, and the data that it gave.
pub(super) type Answer = (Result<i64, Errno>, Reply);

pub(super) trait Host {
    /// Time since the start.
    fn now(&self) -> Micros;

    /// When the script began, on the clock of the host's time stamps.
    fn epoch_ns(&self) -> i64;

    /// Lets the host do what can be done now.
    fn turn(&mut self);

    /// Goes to the next instant at which something may have happened, but not beyond `limit`.
    /// False: nothing happens until `limit`, and that is the time now.
    fn step(&mut self, limit: Micros) -> bool;

    /// Begins a call; there is one at a time. `blocks`: the script goes on while it waits.
    fn begin(&mut self, request: Request, blocks: bool);

    /// The answer of the call that was begun, once the call is over.
    fn outcome(&mut self) -> Option<Answer>;

    /// Nobody waits any more for the call that was begun.
    fn abandon(&mut self);

    /// Makes a call that never blocks, beside the one that was begun. None: it did.
    fn at_once(&mut self, request: Request) -> Option<Answer>;

    /// How long a call may block that the script believes to return at once.
    fn unexpected_block_max(&self) -> Micros;

    /// Whether a segment that aggregation has put together is injected whole, as aggregation left
    /// it, and not the packets that it was made of.
    fn takes_aggregates(&self) -> bool {
        false
    }

    /// Packets arrive, all at once.
    fn inject(&mut self, packets: &[Vec<u8>]) -> Result<(), String>;

    /// The oldest packet that left and was not taken yet.
    fn departed(&mut self) -> Option<Departure>;

    /// Whether a setting has that name and may have that value, as far as that is known before it
    /// is made.
    fn knows(&self, name: &str, value: &str) -> bool;

    /// Changes a setting. False: nothing here has that name, or not that value.
    fn set(&mut self, name: &str, value: &str) -> bool;

    /// Puts a capability among those in force for the calls that follow, or takes it away. It is
    /// back at the end.
    ///
    /// # Errors
    /// The kernel's error: nobody gets what it may not have.
    fn set_capability(&mut self, number: u32, is_on: bool) -> Result<(), Errno>;

    /// Forgets all that connections have taught of their peers: `ip tcp_metrics flush`. False: it
    /// cannot be.
    fn forget_peers(&mut self) -> bool;

    /// The queue below TCP is full, and stays so, or is not. False: it cannot be had.
    fn congest(&mut self, is_congested: bool) -> bool;
}
