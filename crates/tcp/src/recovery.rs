//! Loss recovery: what is presumed lost, what to send again, how much is still in the network.
//!
//! [`LossRecovery`] is the interface that a method implements (a file each under `recovery/`). The
//! connection feeds it acknowledgments and timeouts and asks for the next range to repeat; it decides
//! nothing about windows: that is `congestion`'s part, told by [`Verdict`].

use wire::SeqNumber;

mod newreno;
pub(crate) mod records;

/// The method in use. Another one, chosen by what the handshake agreed on, makes this an enum.
pub(crate) type Recovery = newreno::NewReno;

/// Where recovery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No sign of loss.
    Open,
    /// Duplicate ACKs, fewer than it takes.
    Disorder,
    /// Fast recovery.
    Recovery,
    /// After a timeout.
    Loss,
}

/// What an event means for congestion control.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing changes; new data may grow the window.
    Steady,
    /// Recovery goes on; the window stays.
    Recovering,
    /// After a timeout, new data was acknowledged: slow start goes on.
    SlowStart,
    /// Loss was detected by duplicates: reduce.
    Enter,
    /// Fast recovery is complete.
    Leave,
}

/// What the next repetition covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeat {
    pub seq: SeqNumber,
    /// The range presumed lost ends here; the segment may be shorter.
    pub end: SeqNumber,
    /// To be sent whatever the congestion window says.
    pub forced: bool,
}

/// The send sequence space as a method sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub una: SeqNumber,
    pub nxt: SeqNumber,
    pub mss: u32,
}

impl InFlight {
    /// Sequence numbers not acknowledged.
    pub fn len(&self) -> u32 {
        self.nxt.since(self.una)
    }
}

/// A method of loss recovery.
pub(crate) trait LossRecovery {
    /// `acked` new sequence numbers were acknowledged; `flight` is what remains.
    fn on_ack(&mut self, flight: InFlight, acked: u32) -> Verdict;
    /// A duplicate ACK (RFC 5681 2); `threshold` of them show a loss.
    fn on_duplicate(&mut self, flight: InFlight, threshold: u32) -> Verdict;
    /// The timeout fired, or all in flight must be cut anew: everything is presumed lost.
    fn on_all_lost(&mut self, flight: InFlight);
    /// What to send again next.
    fn next_repeat(&self) -> Option<Repeat>;
    /// The range up to `end` was sent again.
    fn on_repeated(&mut self, end: SeqNumber);
    /// Bytes presumed to be in the network.
    fn pipe(&self, flight: InFlight) -> u32;
    /// Where recovery stands.
    fn phase(&self) -> Phase;
    /// It wants to see every ACK; otherwise it is asked about duplicates and timeouts only.
    fn is_active(&self) -> bool;
}

#[cfg(test)]
mod tests;
