//! The flight after a segment has left: timers, the use of the window, the algorithm.

use crate::congestion::{CaState, Congestion, Event};
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::flight::Flight;
use crate::receive::Receiver;
use crate::recovery::rate::Busy;
use crate::recovery::{Pending, flag};
use crate::send::Sender;
use crate::state::State;
use crate::timers::Timers;
use crate::variables::Snd;

impl Flight {
    /// Shrinks the congestion window of a sender that paused, because it says little about the path
    /// now (RFC 5681 4.1). Called when there is something to send again: the application wrote, or
    /// the peer's window changed (as in Linux).
    #[inline]
    pub(crate) fn restart_if_idle(
        &mut self,
        cx: &Cx<'_>,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        tx: &Sender,
        timers: &Timers,
    ) {
        let idle_ns = cx.now_ns.saturating_sub(tx.last_sent_ns());
        let rto_ns = timers.rtt().rto_ns();
        if idle_ns > rto_ns && tx.last_sent_ns() != 0 && snd.unsent(state, conn_flags) > 0 {
            self.restart_after_idle(cx, idle_ns, rto_ns, snd);
        }
    }

    #[cold]
    fn restart_after_idle(&mut self, cx: &Cx<'_>, idle_ns: u64, rto_ns: u64, snd: &Snd) {
        let is_at_rest = self.recovery.packets_out() == 0;
        if cx.config.slow_start_after_idle && is_at_rest && !self.congestion.is_model() {
            let moment = self.moment(cx, snd);
            self.congestion.on_idle(&moment, idle_ns, rto_ns);
        }
    }

    /// Notes that bytes of the stream, or its FIN, leave for the first time.
    #[inline]
    pub(crate) fn note_stream_out(
        &mut self,
        cx: &mut Cx<'_>,
        len: u32,
        fin: bool,
        conn_flags: &mut ConnFlags,
        tx: &mut Sender,
        rx: &mut Receiver,
    ) {
        if fin {
            conn_flags.set(ConnFlags::FIN_SENT);
            self.delivery.start(cx.now_ns, Busy::Sending);
        }
        if len > 0 {
            tx.count_text_segments(1);
            tx.note_text_sent(cx.now_ns);
            self.delivery.count_fresh(len);
            rx.note_answer(cx.now_ns);
        }
    }

    /// Tells the algorithm that a flight begins.
    #[inline]
    pub(crate) fn tell_of_start(&mut self, cx: &Cx<'_>, snd: &Snd, tx: &Sender) {
        if self.congestion.heeds_start() {
            let idle_ns = cx.now_ns.saturating_sub(tx.last_sent_ns());
            let app_limited = self.delivery.is_app_limited();
            let event = Event::TxStart {
                idle_ns,
                app_limited,
            };
            self.tell_algorithm(cx, event, snd);
        }
    }

    /// Updates timers and the use of the window after a new segment. `idle`: nothing was in flight
    /// before.
    #[inline]
    pub(crate) fn after_new_sent(
        &mut self,
        cx: &mut Cx<'_>,
        idle: bool,
        state: State,
        conn_flags: &mut ConnFlags,
        snd: &Snd,
        timers: &mut Timers,
    ) {
        if conn_flags.has(ConnFlags::PERSIST) {
            timers.end_persist(conn_flags);
        }
        if idle || self.recovery.pending() == Pending::Probe {
            self.rearm_retransmit(cx, state, *conn_flags, snd, timers);
        }
        self.note_use(false, snd);
        self.delivery.note_new();
        if self.recovery.any(flag::PROBE_NEW) {
            self.note_probe_sent(cx, false, state, conn_flags, snd, timers);
        } else {
            self.schedule_probe(cx, false, *conn_flags, timers);
        }
    }

    /// Notes how far the window is used.
    #[inline]
    fn note_use(&mut self, deferred: bool, snd: &Snd) {
        let limited = deferred || self.recovery.segments_in_flight() >= self.congestion.cwnd();
        let (snd, flight) = (snd, self.recovery.packets_out());
        self.congestion
            .note_flight(snd.una(), snd.nxt(), flight, limited);
    }

    /// Notes how far all sent data uses the window, and lets an unused window decay (RFC 2861).
    #[inline]
    pub(crate) fn validate_window(
        &mut self,
        cx: &Cx<'_>,
        deferred: bool,
        snd: &Snd,
        timers: &Timers,
    ) {
        self.note_use(deferred, snd);
        self.delivery.settle_new();
        let flight = self.recovery.packets_out();
        let rto_ns = timers.rtt().rto_ns();
        let unused = self.congestion.is_unused_for(flight, cx.now_ns, rto_ns);
        let may_decay = cx.config.slow_start_after_idle && !self.congestion.is_model();
        if unused && may_decay {
            self.decay_window(cx);
        }
    }

    #[cold]
    fn decay_window(&mut self, cx: &Cx<'_>) {
        let remembered = self.current_ssthresh();
        let initial = Congestion::initial_window(cx.config, false);
        if self.recovery.ca_state() == CaState::Open {
            self.congestion.decay(initial, remembered, cx.now_ns);
        } else {
            self.congestion.note_use(cx.now_ns);
        }
    }
}
