//! Recovery without selective acknowledgments: RFC 5681's fast retransmit, RFC 6582's partial ACKs,
//! RFC 3042's limited transmit.
//!
//! The RFCs inflate the window with each duplicate ACK. Here the window stays and the estimate of what is
//! in the network shrinks instead, which sends the same segments and fits the methods that know more.
//!
//! ```text
//!   una          rexmit        lost_end             recover ≤ nxt
//!    │ sent again  │ presumed lost │ sent, not yet known │
//! ```

use wire::SeqNumber;

use super::{InFlight, LossRecovery, Phase, Repeat, Verdict};

/// State of NewReno's recovery.
#[derive(Clone, Debug)]
pub(crate) struct NewReno {
    /// Recovery ends when this is acknowledged.
    recover: SeqNumber,
    /// Next to be sent again.
    rexmit: SeqNumber,
    /// End of what is presumed lost.
    lost_end: SeqNumber,
    /// Duplicate ACKs: segments that have left the network.
    pub dup_acks: u32,
    phase: Phase,
    forced: bool,
    /// A timeout's repetitions may still cause duplicates: up to `recover` they show no loss.
    guarded: bool,
}

impl NewReno {
    /// Nothing sent yet.
    pub fn new(iss: SeqNumber) -> Self {
        NewReno {
            recover: iss,
            rexmit: iss,
            lost_end: iss,
            dup_acks: 0,
            phase: Phase::Open,
            forced: false,
            guarded: false,
        }
    }

    /// Bytes presumed lost and not yet sent again.
    pub fn lost(&self) -> u32 {
        self.lost_end.since(self.rexmit)
    }

    /// Bytes sent again and not yet acknowledged.
    pub fn repeated(&self, una: SeqNumber) -> u32 {
        if self.rexmit.gt(una) && self.phase != Phase::Open {
            self.rexmit.since(una)
        } else {
            0
        }
    }

    fn start_repeat(&mut self, seq: SeqNumber, end: SeqNumber) {
        self.rexmit = seq;
        self.lost_end = end;
        self.forced = true;
    }

    fn settle(&mut self, una: SeqNumber) {
        self.phase = Phase::Open;
        self.dup_acks = 0;
        self.rexmit = una;
        self.lost_end = una;
        self.forced = false;
    }

    /// No more duplicates count than segments can have left the network, or a receiver that invents them
    /// would lift every limit on what is in flight.
    fn count_duplicate(&mut self, flight: InFlight, threshold: u32) {
        let counted = self.dup_acks.saturating_mul(flight.mss);
        if self.dup_acks < threshold || counted < flight.len() {
            self.dup_acks += 1;
        }
    }

    fn first_segment_end(flight: InFlight) -> SeqNumber {
        flight.una + flight.len().min(flight.mss)
    }
}

impl LossRecovery for NewReno {
    fn on_ack(&mut self, flight: InFlight, acked: u32) -> Verdict {
        let una = flight.una;
        match self.phase {
            Phase::Open | Phase::Disorder => {
                self.settle(una);
                self.guarded = self.guarded && una.le(self.recover);
                Verdict::Steady
            }
            Phase::Recovery if una.ge(self.recover) => {
                // At most one needless repetition is behind us, too little for three duplicates: no
                // guard, the next loss may be recovered fast at once.
                self.settle(una);
                Verdict::Leave
            }
            Phase::Recovery => {
                // Partial ACK (RFC 6582 3.2 step 3): the next hole starts here. What it covers beyond the
                // repeated segment was counted by duplicate ACKs before.
                let counted = (acked / flight.mss.max(1)).saturating_sub(1);
                self.dup_acks = self.dup_acks.saturating_sub(counted);
                self.start_repeat(una, Self::first_segment_end(flight));
                Verdict::Recovering
            }
            Phase::Loss if una.ge(self.recover) => {
                self.settle(una);
                self.guarded = una == self.recover;
                Verdict::SlowStart
            }
            Phase::Loss => {
                self.rexmit = self.rexmit.max(una);
                self.lost_end = self.lost_end.max(self.rexmit);
                self.forced = false;
                Verdict::SlowStart
            }
        }
    }

    fn on_duplicate(&mut self, flight: InFlight, threshold: u32) -> Verdict {
        match self.phase {
            Phase::Loss => return Verdict::Recovering,
            Phase::Recovery => {
                self.count_duplicate(flight, threshold);
                return Verdict::Recovering;
            }
            Phase::Open | Phase::Disorder => {}
        }
        self.count_duplicate(flight, threshold);
        self.phase = Phase::Disorder;
        // RFC 6582 3.2 step 1: repetitions after a timeout cause duplicates that show no loss.
        if self.dup_acks < threshold || self.guarded {
            return Verdict::Steady;
        }
        self.phase = Phase::Recovery;
        self.recover = flight.nxt;
        self.start_repeat(flight.una, Self::first_segment_end(flight));
        Verdict::Enter
    }

    fn on_all_lost(&mut self, flight: InFlight) {
        self.phase = Phase::Loss;
        self.recover = flight.nxt;
        self.dup_acks = 0;
        self.start_repeat(flight.una, flight.nxt);
    }

    fn next_repeat(&self) -> Option<Repeat> {
        if self.rexmit == self.lost_end {
            return None;
        }
        Some(Repeat {
            seq: self.rexmit,
            end: self.lost_end,
            forced: self.forced,
        })
    }

    fn on_repeated(&mut self, end: SeqNumber) {
        self.rexmit = end;
        self.forced = false;
    }

    fn pipe(&self, flight: InFlight) -> u32 {
        let left_network = self.dup_acks.saturating_mul(flight.mss);
        flight
            .len()
            .saturating_sub(self.lost())
            .saturating_sub(left_network)
    }

    fn phase(&self) -> Phase {
        self.phase
    }

    fn is_active(&self) -> bool {
        self.phase != Phase::Open || self.guarded
    }
}
