//! Estimate of ACK aggregation. Receivers, radios and hosts gather ACKs, so the window must also
//! hold the data that is sent between two bunches.
//!
//! An epoch lasts as long as more was acknowledged than BtlBw explains. The window gets the largest
//! excess of the last five to ten rounds.

use super::rate::{Rate, segments_in};

/// Rounds for which each of the two maxima is gathered.
const ROUNDS: u8 = 5;

/// The current epoch, and the largest excess of the current and of the previous window of rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Aggregation {
    epoch_us: u32,
    epoch_acked: u16,
    /// Largest excess of the current window of rounds and of the previous one, in segments.
    excess: [u16; 2],
    rounds: u8,
}

impl Aggregation {
    pub fn new(now_us: u32) -> Self {
        Aggregation {
            epoch_us: now_us,
            epoch_acked: 0,
            excess: [0; 2],
            rounds: 0,
        }
    }

    /// Begins an epoch.
    pub fn restart(&mut self, now_us: u32) {
        self.epoch_us = now_us;
        self.epoch_acked = 0;
    }

    /// Counts a round.
    pub fn on_round(&mut self) {
        self.rounds += 1;
        if self.rounds >= ROUNDS {
            self.rounds = 0;
            self.excess = [0, self.excess[0]];
        }
    }

    /// Records that `delivered` segments were acknowledged. `rate` is the path's estimated rate,
    /// `cwnd` the window.
    pub fn on_ack(&mut self, now_us: u32, delivered: u32, rate: Rate, cwnd: u32) {
        let mut expected = segments_in(rate, now_us.wrapping_sub(self.epoch_us));
        let acked = u32::from(self.epoch_acked);
        // An epoch ends at the latest when its 16-bit counter would overflow.
        if acked <= expected || acked.saturating_add(delivered) > u32::from(u16::MAX) {
            self.restart(now_us);
            expected = 0;
        }
        let acked = u32::from(self.epoch_acked)
            .saturating_add(delivered)
            .min(u32::from(u16::MAX));
        self.epoch_acked = acked as u16;
        let excess = acked.saturating_sub(expected).min(cwnd) as u16;
        self.excess[0] = self.excess[0].max(excess);
    }

    /// Segments that the window should hold beyond what BtlBw and RTprop ask for.
    pub fn excess(&self) -> u32 {
        u32::from(self.excess[0].max(self.excess[1]))
    }
}
