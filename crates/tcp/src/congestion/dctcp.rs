//! DCTCP (RFC 8257): the window shrinks in proportion to the share of marked segments.
//!
//! `alpha` estimates that share once a round trip, with a gain of 1/16. A mark reduces the window
//! by `cwnd * alpha / 2`; a loss halves it, as in Reno. The window grows as in Reno. The receiver's
//! part (an ACK at each change of the mark) is in `ecn`.

use wire::SeqNumber;

use super::newreno::NewReno;
use super::{AckSample, Algorithm, CaState, Event, Moment, Window, WindowControl};
use crate::config::Config;
use crate::pack::{Packing, Usual};

/// An `alpha` of 1.
const ALPHA_MAX: u32 = 1 << ALPHA_SHIFT;
const ALPHA_SHIFT: u32 = 10;
/// The gain g = 1/16.
const GAIN_SHIFT: u32 = 4;

/// The estimate, and the round that it is sampled over.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dctcp {
    /// Share of marked segments, with ten fractional bits.
    alpha: u32,
    /// The round ends when this number is acknowledged.
    round_end: SeqNumber,
    /// The connection's counts when the round began.
    delivered: u32,
    delivered_ce: u32,
    /// The window at the last reduction, which an undo restores.
    loss_cwnd: u32,
}

/// DCTCP's part of `TCP_CC_INFO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DctcpInfo {
    /// The peer uses ECN. Without it all values are zero, and DCTCP works as Reno.
    pub has_ecn: bool,
    /// The latest data segment that arrived was marked.
    pub has_latest_mark: bool,
    /// Share of marked segments, in 1/1024.
    pub alpha: u32,
    /// Bytes delivered in this round, counted as full segments.
    pub round_bytes: u32,
    /// The part of `round_bytes` that was marked.
    pub round_marked_bytes: u32,
}

impl Dctcp {
    /// The values for `TCP_CC_INFO`, for a connection with these counts.
    pub fn info(&self, mss: u32, delivered: u32, delivered_ce: u32) -> DctcpInfo {
        DctcpInfo {
            has_ecn: true,
            has_latest_mark: false,
            alpha: self.alpha,
            round_bytes: mss.wrapping_mul(delivered.wrapping_sub(self.delivered)),
            round_marked_bytes: mss.wrapping_mul(delivered_ce.wrapping_sub(self.delivered_ce)),
        }
    }

    /// Packs `algorithm`, or makes it one of this kind.
    pub fn pack_in(algorithm: &mut Algorithm, p: &mut impl Packing, usual: &Usual) {
        if let Algorithm::Dctcp(dctcp) = algorithm {
            return dctcp.pack(p, usual);
        }
        let mut dctcp = Dctcp {
            alpha: 0,
            round_end: SeqNumber(0),
            delivered: 0,
            delivered_ce: 0,
            loss_cwnd: 0,
        };
        dctcp.pack(p, usual);
        *algorithm = Algorithm::Dctcp(dctcp);
    }

    fn pack(&mut self, p: &mut impl Packing, usual: &Usual) {
        let Dctcp {
            alpha,
            round_end,
            delivered,
            delivered_ce,
            loss_cwnd,
        } = self;
        p.u32(alpha, ALPHA_MAX);
        p.seq(round_end, usual.una);
        p.u32(delivered, 1);
        p.u32(delivered_ce, 0);
        p.u32(loss_cwnd, 0);
    }

    /// The state at the start. Alpha is 1 (RFC 8257 4.2), so the first mark halves the window.
    pub fn new(at: &Moment<'_>) -> Self {
        Dctcp {
            alpha: ALPHA_MAX,
            round_end: at.nxt,
            delivered: at.delivered,
            delivered_ce: at.delivered_ce,
            loss_cwnd: 0,
        }
    }

    /// Answers a loss as Reno does (RFC 8257 3.5).
    fn on_loss(&mut self, window: &mut Window) {
        self.loss_cwnd = window.cwnd;
        window.ssthresh = (window.cwnd / 2).max(2);
    }
}

impl WindowControl for Dctcp {
    fn ssthresh(&mut self, _at: &Moment<'_>, window: &Window) -> u32 {
        self.loss_cwnd = window.cwnd;
        let cut = (u64::from(window.cwnd) * u64::from(self.alpha)) >> (ALPHA_SHIFT + 1);
        (window.cwnd - cut as u32).max(2)
    }

    fn grow(&mut self, at: &Moment<'_>, window: &mut Window, ack: &AckSample) {
        NewReno.grow(at, window, ack);
    }

    fn undo_cwnd(&mut self, _config: &Config, window: &Window) -> u32 {
        window.cwnd.max(self.loss_cwnd)
    }

    /// Once a round trip: alpha = (1 - g) alpha + g F.
    fn on_acked(&mut self, at: &Moment<'_>, _window: &mut Window, _ack: &AckSample) {
        if at.una.lt(self.round_end) {
            return;
        }
        let delivered = at.delivered.wrapping_sub(self.delivered);
        let marked = at.delivered_ce.wrapping_sub(self.delivered_ce);
        // A sixteenth of an alpha below 16 would be zero, so all of it decays.
        let decay = match self.alpha >> GAIN_SHIFT {
            0 => self.alpha,
            decay => decay,
        };
        let share = (u64::from(marked) << (ALPHA_SHIFT - GAIN_SHIFT)) / u64::from(delivered.max(1));
        let share = u32::try_from(share).unwrap_or(ALPHA_MAX);
        self.alpha = (self.alpha - decay).saturating_add(share).min(ALPHA_MAX);
        self.round_end = at.nxt;
        self.delivered = at.delivered;
        self.delivered_ce = at.delivered_ce;
    }

    fn on_state(&mut self, _at: &Moment<'_>, window: &mut Window, state: CaState) {
        if state == CaState::Recovery {
            self.on_loss(window);
        }
    }

    fn on_event(&mut self, _at: &Moment<'_>, window: &mut Window, event: Event) {
        if event == Event::Loss {
            self.on_loss(window);
        }
    }
}

#[cfg(test)]
mod tests;
