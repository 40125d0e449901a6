//! State of the machine of loss recovery. `flight::machine` draws the states and moves between
//! them.

use wire::SeqNumber;

use crate::recovery::ack::Ack;
use crate::recovery::{CaState, Pending, PrrInput, Recovery, flag};

impl Recovery {
    /// True if this ACK needs the machine.
    pub(crate) fn is_dubious(&self, ack: &Ack) -> bool {
        let alerts = ack.sacked || ack.dsack || ack.ece;
        !ack.is_no_duplicate() || alerts || self.ca_state != CaState::Open
    }
}

impl Recovery {
    /// Sets the state of the machine.
    pub(crate) fn set_state(&mut self, state: CaState) {
        self.ca_state = state;
    }

    /// Lets the state, or one of its steps, end when `nxt` is acknowledged.
    pub(crate) fn await_ack_of(&mut self, nxt: SeqNumber) {
        self.high_seq = nxt;
    }

    /// Begins a reduction of the window, which ends when `nxt` is acknowledged.
    pub(crate) fn begin_reduction(&mut self, nxt: SeqNumber) {
        self.high_seq = nxt;
        self.put(flag::TLP, false);
        (self.prr_delivered, self.prr_out) = (0, 0);
    }

    /// Counts `delivered` segments for a reduction, and returns the input of PRR.
    pub(crate) fn take_reduction(&mut self, delivered: u32, may_catch_up: bool) -> PrrInput {
        self.prr_delivered = self.prr_delivered.saturating_add(delivered);
        PrrInput {
            delivered,
            prr_delivered: self.prr_delivered,
            prr_out: self.prr_out,
            in_flight: self.in_flight(),
            may_catch_up,
        }
    }

    /// Forgets SACKs if nothing is in flight.
    pub(crate) fn forget_sacks_of_nothing(&mut self) {
        if self.packets_out == 0 {
            self.sacked_out = 0;
        }
    }

    /// Ends the episode, so that the next retransmission counts as a first one.
    pub(crate) fn forget_retrans_stamp(&mut self) {
        self.retrans_stamp_ms = 0;
    }

    /// Sets the purpose of the deadline.
    #[inline(always)]
    pub(crate) fn set_pending(&mut self, pending: Pending) {
        self.pending = pending;
    }

    /// True if the deadline is for `pending`.
    #[inline(always)]
    pub(crate) fn is_pending(&self, pending: Pending) -> bool {
        self.pending == pending
    }
}
