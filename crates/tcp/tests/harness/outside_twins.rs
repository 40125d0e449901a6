//! Twins of two built-in algorithms, Reno and DCTCP, over the public trait. They must behave like
//! the built-in ones.

use tcp::congestion_control::{
    AckSample, CaState, CongestionControl, Event, OutsideAlgorithm, SenderView, State, Window,
};
use tcp::{Config, CongestionAlgorithm};
use wire::SeqNumber;

pub static RENO: OutsideAlgorithm = OutsideAlgorithm::new("reno-outside", &Reno);
pub static DCTCP: OutsideAlgorithm = OutsideAlgorithm::new("dctcp-outside", &Dctcp);

/// Replaces a built-in algorithm by its twin, if there is one.
pub fn put_in(config: &mut Config) {
    let twin = match config.congestion {
        CongestionAlgorithm::NewReno => &RENO,
        CongestionAlgorithm::Dctcp => &DCTCP,
        _ => return,
    };
    config.congestion = config.register_congestion(twin).expect("a new name");
}

/// The twin of NewReno, RFC 5681 and 6582.
struct Reno;

impl CongestionControl for Reno {
    fn ssthresh(&self, _: &mut State, _: &SenderView, window: &Window) -> u32 {
        window.cwnd() / 2
    }

    fn grow(&self, _: &mut State, _: &SenderView, window: &mut Window, ack: &AckSample) {
        let mut acked = ack.acked;
        if window.in_slow_start() {
            acked = window.slow_start(acked);
        }
        if acked > 0 {
            window.grow_linearly(window.cwnd(), acked);
        }
    }
}

/// The twin of DCTCP, RFC 8257.
struct Dctcp;

/// Indices of DCTCP's words: alpha in 1/1024, the end of the round, the counts at the round's
/// beginning, and the window at the last reduction.
const ALPHA: usize = 0;
const ROUND_END: usize = 1;
const DELIVERED: usize = 2;
const MARKED: usize = 3;
const LOSS_CWND: usize = 4;

impl Dctcp {
    fn begin_round(state: &mut State, at: &SenderView) {
        state[ROUND_END] = at.nxt.0;
        state[DELIVERED] = at.delivered;
        state[MARKED] = at.delivered_ce;
    }

    fn on_loss(state: &mut State, window: &mut Window) {
        state[LOSS_CWND] = window.cwnd();
        window.set_ssthresh(window.cwnd() / 2);
    }
}

impl CongestionControl for Dctcp {
    fn begin(&self, state: &mut State, at: &SenderView, _: &mut Window) {
        state[ALPHA] = 1024;
        Self::begin_round(state, at);
    }

    fn ssthresh(&self, state: &mut State, _: &SenderView, window: &Window) -> u32 {
        state[LOSS_CWND] = window.cwnd();
        let cut = (u64::from(window.cwnd()) * u64::from(state[ALPHA])) >> 11;
        window.cwnd() - cut as u32
    }

    fn grow(&self, state: &mut State, at: &SenderView, window: &mut Window, ack: &AckSample) {
        Reno.grow(state, at, window, ack);
    }

    fn undo_cwnd(&self, state: &mut State, window: &Window) -> u32 {
        window.cwnd().max(state[LOSS_CWND])
    }

    fn on_acked(&self, state: &mut State, at: &SenderView, _: &mut Window, _: &AckSample) {
        if at.una.lt(SeqNumber(state[ROUND_END])) {
            return;
        }
        let delivered = at.delivered.wrapping_sub(state[DELIVERED]);
        let marked = at.delivered_ce.wrapping_sub(state[MARKED]);
        let decay = match state[ALPHA] >> 4 {
            0 => state[ALPHA],
            decay => decay,
        };
        let share = (u64::from(marked) << 6) / u64::from(delivered.max(1));
        let share = u32::try_from(share).unwrap_or(1024);
        state[ALPHA] = (state[ALPHA] - decay).saturating_add(share).min(1024);
        Self::begin_round(state, at);
    }

    fn on_state(&self, state: &mut State, _: &SenderView, window: &mut Window, next: CaState) {
        if next == CaState::Recovery {
            Self::on_loss(state, window);
        }
    }

    fn on_event(&self, state: &mut State, _: &SenderView, window: &mut Window, event: Event) {
        if event == Event::Loss {
            Self::on_loss(state, window);
        }
    }

    fn wants_ecn(&self) -> bool {
        true
    }
}
