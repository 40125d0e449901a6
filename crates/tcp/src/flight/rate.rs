//! Delivery rate: the sample of an ACK, and the limit that holds the sender.

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::flight::Flight;
use crate::recovery::rate::{Busy, RateSample};
use crate::send::Sender;
use crate::state::State;
use crate::timers::Timers;
use crate::variables::Snd;

impl Flight {
    /// Completes the sample of an ACK that delivered `newly` segments.
    #[inline]
    pub(crate) fn finish_rate_sample(
        &mut self,
        cx: &Cx<'_>,
        sample: &mut RateSample,
        newly: u32,
        was_reneging: bool,
        timers: &Timers,
    ) {
        self.delivery.finish_sample(
            cx.now_ns,
            sample,
            newly,
            self.recovery.delivered(),
            timers.rtt().min_us(),
            was_reneging,
        );
    }

    /// Notes that sending stops while the window has room, so that rates from now on reflect the
    /// application.
    pub(crate) fn note_app_limited(&mut self, state: State, conn_flags: ConnFlags, snd: &Snd) {
        let recovery = &self.recovery;
        if snd.unsent(state, conn_flags) < u32::from(snd.mss())
            && recovery.in_flight() < self.congestion.cwnd()
            && !recovery.has_lost()
        {
            let until = recovery.delivered().wrapping_add(recovery.in_flight());
            self.delivery.limit_by_application(until);
        }
    }

    /// Notes the limit that holds the sender, which has stopped sending.
    #[inline]
    pub(crate) fn note_busy(
        &mut self,
        cx: &Cx<'_>,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        tx: &Sender,
    ) {
        let unsent = snd.unsent(state, conn_flags);
        if unsent == 0 {
            if snd.flight() == 0 {
                return self.delivery.rest(cx.now_ns);
            }
            if !self.delivery.is_held_up() && !tx.is_send_buffer_full(snd) {
                return;
            }
        }
        self.note_hold_up(cx, unsent, snd, tx);
    }

    fn note_hold_up(&mut self, cx: &Cx<'_>, unsent: u32, snd: &Snd, tx: &Sender) {
        let has_room = self.recovery.in_flight() < self.congestion.cwnd();
        // All that the buffer holds is in flight, and the path would take more.
        let full = unsent == 0 && has_room && tx.is_send_buffer_full(snd);
        let shut = unsent.min(u32::from(snd.mss())) > snd.usable() && has_room;
        for (reason, on) in [(Busy::SendBuffer, full), (Busy::PeerWindow, shut)] {
            if on {
                self.delivery.start(cx.now_ns, reason);
            } else {
                self.delivery.stop(cx.now_ns, reason);
            }
        }
    }
}
