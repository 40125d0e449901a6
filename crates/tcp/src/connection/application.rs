//! The application's calls, as the stack reports them: bytes written and read, close, abort,
//! options (RFC 9293 3.9.1 and 3.10.2 to 3.10.5).
//!
//! An application that reads usually answers, and may close after the answer. The stack reports
//! such calls together, by `note_read`, `note_write` and similar calls between
//! [`begin_run`](Connection::begin_run) and [`end_run`](Connection::end_run), and the consequences
//! are computed once.

use crate::config::{Config, CongestionAlgorithm};
use crate::conn_flags::ConnFlags;
use crate::connection::{Connection, Keepalive};
use crate::context::Cx;
use crate::effects::Effects;
use crate::receive::delayed_ack::AckKind;
use crate::recovery::Pending;
use crate::recovery::rate::Busy;
use crate::state::{ConnectionError, State};
use crate::timers::NEVER_NS;

impl Connection {
    /// The application wrote: the send buffer holds `buffered` bytes from SND.UNA on, sent and
    /// unsent.
    #[inline]
    pub fn on_write(&mut self, cx: &mut Cx<'_>, buffered: u32) -> Effects {
        let run = self.begin_run();
        self.note_write(cx, buffered);
        self.end_run(cx, Effects::NONE, run)
    }

    /// [`on_write`](Self::on_write) as one of several calls.
    #[inline]
    pub fn note_write(&mut self, cx: &mut Cx<'_>, buffered: u32) {
        self.conn_flags.clear(ConnFlags::MORE);
        self.conn_flags.set(ConnFlags::PUSH_AT_END);
        self.take_written(cx, buffered);
    }

    /// Like [`note_write`](Self::note_write) for a write with MSG_MORE: more data follows. A
    /// partial segment waits for that data until the next ACK, or as long as a corked one.
    pub fn note_write_more(&mut self, cx: &mut Cx<'_>, buffered: u32) {
        if self.snd.unsent(self.state(), self.conn_flags) == 0 {
            self.conn_flags.clear(ConnFlags::PUSH_AT_END);
        }
        self.conn_flags.set(ConnFlags::MORE);
        self.take_written(cx, buffered);
    }

    /// True if the last write said MSG_MORE, and no further write came since.
    #[must_use]
    pub fn announces_more(&self) -> bool {
        self.conn_flags.has(ConnFlags::MORE)
    }

    /// Ends a record (MSG_EOR) `offset` bytes behind SND.UNA: no segment crosses that point. If
    /// there are too many record ends, this one is forgotten.
    pub fn end_record(&mut self, cx: &mut Cx<'_>, offset: u32) {
        self.planned.forget();
        let fits = self.tx.end_record(offset, &mut self.conn_flags, &self.snd);
        cx.counters.record_ends_forgotten += u64::from(!fits);
    }

    #[inline]
    fn take_written(&mut self, cx: &Cx<'_>, buffered: u32) {
        // Bytes behind a FIN are an error of the caller and would move the FIN.
        if !self.conn_flags.has(ConnFlags::FIN_QUEUED) {
            self.flight
                .note_app_limited(self.state(), self.conn_flags, &self.snd);
            self.flight.delivery_mut().start(cx.now_ns, Busy::Sending);
            self.snd.queue(buffered);
            self.flight.restart_if_idle(
                cx,
                self.state(),
                self.conn_flags,
                &self.snd,
                &self.tx,
                &self.timers,
            );
        }
    }

    /// The application has read: `unread` published bytes are left. One of several calls.
    #[inline]
    pub fn note_read(&mut self, cx: &mut Cx<'_>, unread: u32) {
        let copied = self.rx.unread().saturating_sub(unread);
        if copied > 0 {
            let out_of_order = self.rx.held().bytes(cx.ranges);
            self.rx.discharge(
                self.rx.unread().saturating_add(out_of_order),
                unread.saturating_add(out_of_order),
            );
            self.rx.set_unread(unread);
            self.rx.adjust_receive_space(cx, &self.rcv);
            let update = self
                .rx
                .read_deserves_ack(&self.rcv, self.conn_flags, copied)
                || (self.state().receives_data() && self.rx.wants_window_update(cx, &self.rcv));
            if update {
                self.rx
                    .request_ack(AckKind::WindowUpdate, &mut self.conn_flags);
            }
        }
    }

    /// The application reads no more. Arriving data is still accepted until the other direction
    /// ends too.
    pub fn shutdown_read(&mut self) {
        self.rx.shut_read();
    }

    /// Ends the application's data: a FIN follows the buffered bytes. One of several calls.
    pub fn note_shutdown_write(&mut self) {
        self.queue_fin();
    }

    /// The application is gone: a FIN follows the buffered bytes, and the rules for orphans apply.
    pub fn close(&mut self, cx: &mut Cx<'_>) -> Effects {
        let run = self.begin_run();
        let effects = self.note_close(cx);
        self.end_run(cx, effects, run)
    }

    /// Like [`close`](Self::close), as the last of several calls.
    #[inline]
    pub fn note_close(&mut self, cx: &mut Cx<'_>) -> Effects {
        self.conn_flags.set(ConnFlags::ORPHAN);
        match self.state() {
            State::SynSent | State::Closed => return self.finish_closed(),
            // An orphan in FIN_WAIT_2 or TIME_WAIT has no timer but that of its state.
            State::FinWait2 => return self.await_fin(cx, false),
            State::TimeWait => return Effects::TIME_WAIT,
            State::SynReceived if self.may_close_crossed() => self.close_crossed(cx),
            _ => self.queue_fin(),
        }
        Effects::NONE
    }

    /// True if the SYNs crossed, nothing waits to be sent, and no loss holds back the next segment.
    fn may_close_crossed(&self) -> bool {
        !self.conn_flags.has(ConnFlags::FAST_OPENED)
            && self.snd.buffered() == 0
            && self.timers.retransmits() == 0
    }

    /// Sends the FIN at once, because nothing waits to be sent (RFC 9293 3.10.4). The rest of the
    /// handshake is that of a Fast Open closed early: SND.UNA lies behind our SYN, and the timer is
    /// the SYN-ACK's.
    #[cold]
    fn close_crossed(&mut self, cx: &Cx<'_>) {
        let at_ns = self.timers.retransmit_ns();
        let due = self.conn_flags.of(ConnFlags::SYN_DUE);
        self.snd.pass_syn(self.tx.iss());
        self.begin_established(cx, false);
        self.conn_flags.set(due | ConnFlags::FAST_OPENED);
        self.flight
            .arm_pending(Pending::Timeout, at_ns, &mut self.timers);
        self.queue_fin();
    }

    /// `TCP_CONGESTION`: changes to another algorithm; possible at any time.
    pub fn set_congestion(&mut self, cx: &Cx<'_>, choice: CongestionAlgorithm) {
        self.planned.forget();
        let moment = self.flight.moment(cx, &self.snd);
        self.flight.congestion_mut().choose(&moment, choice);
        self.flight.begin_model(cx, &self.snd, &self.timers);
        if self.state() == State::SynSent && self.opening.is_first_syn() {
            self.ecn.ask_for_ecn(cx.config, choice, &mut self.snd);
        } else {
            self.ecn.refresh_ecn(choice, &self.snd);
        }
    }

    /// The congestion control algorithm in use, according to the stack's settings.
    #[must_use]
    pub fn congestion(&self, config: &Config) -> CongestionAlgorithm {
        self.flight.congestion().choice(config)
    }

    /// Ends the connection with a RST where the state asks for one (RFC 9293 3.10.5).
    pub fn abort(&mut self, cx: &mut Cx<'_>) -> Effects {
        let is_told = !matches!(self.state(), State::Closing | State::LastAck);
        self.abort_as(cx, is_told)
    }

    /// Aborts because the application leaves text unread, or because there is no room for its data.
    /// A RST leaves in every state, so that the peer does not believe that all data arrived (RFC
    /// 1122 4.2.2.13, RFC 2525 2.17).
    pub fn abort_with_loss(&mut self, cx: &mut Cx<'_>) -> Effects {
        self.abort_as(cx, true)
    }

    fn abort_as(&mut self, cx: &mut Cx<'_>, is_told: bool) -> Effects {
        let deadline_ns = self.timers.deadline_ns();
        self.conn_flags.set(ConnFlags::ORPHAN);
        let effects = match self.state() {
            State::Closed => Effects::CLOSED,
            State::SynSent | State::TimeWait => self.finish_closed(),
            _ if !is_told => self.finish_closed(),
            _ => self.send_reset_and_close(),
        };
        self.error = self.error.or(Some(ConnectionError::Aborted));
        self.finish(cx, effects, deadline_ns)
    }

    /// TCP_NODELAY: turns Nagle's algorithm off (RFC 9293 MUST-17) and sends the waiting data.
    pub fn set_nodelay(&mut self, cx: &mut Cx<'_>, on: bool) -> Effects {
        let deadline_ns = self.timers.deadline_ns();
        self.conn_flags.put(ConnFlags::NODELAY, on);
        if on {
            // Data held by a cork leaves too (Linux).
            self.push();
        }
        self.finish(cx, Effects::NONE, deadline_ns)
    }

    /// TCP_CORK: hold partial segments, for a retransmission timeout at most.
    pub fn set_cork(&mut self, cx: &mut Cx<'_>, on: bool) -> Effects {
        let deadline_ns = self.timers.deadline_ns();
        self.conn_flags.put(ConnFlags::CORK, on);
        if !on {
            // Without the cork, Nagle's algorithm still holds what it would hold (Linux).
            self.push();
            self.conn_flags.put(
                ConnFlags::PUSH_DUE,
                self.conn_flags.has(ConnFlags::NODELAY)
                    && self.snd.unsent(self.state(), self.conn_flags) > 0,
            );
        }
        self.finish(cx, Effects::NONE, deadline_ns)
    }

    /// TCP_QUICKACK: on, ACKs leave at once from now on; off, they wait for answers to ride on.
    /// Neither is permanent (Linux).
    pub fn set_quick_ack(&mut self, cx: &mut Cx<'_>, on: bool) -> Effects {
        let deadline_ns = self.timers.deadline_ns();
        self.rx.put_quick_ack(on, &mut self.conn_flags, &self.rcv);
        self.finish(cx, Effects::NONE, deadline_ns)
    }

    /// SO_KEEPALIVE with its settings; `None` turns it off (RFC 9293 MUST-24, MUST-25).
    pub fn set_keepalive(&mut self, cx: &mut Cx<'_>, keepalive: Option<Keepalive>) -> Effects {
        let deadline_ns = self.timers.deadline_ns();
        let owned = self.conn_flags.keeps_alive(self.state());
        let was_on = self.conn_flags.has(ConnFlags::KEEPALIVE);
        self.conn_flags
            .put(ConnFlags::KEEPALIVE, keepalive.is_some());
        match keepalive {
            Some(settings) => {
                self.timers.set_keepalive(
                    settings.idle_ns,
                    settings.interval_ns,
                    settings.probes_max,
                );
                // A change while keep-alive is on takes effect at the timer's next expiry (Linux).
                if !was_on {
                    self.timers.arm_keepalive(cx, self.state(), self.conn_flags);
                }
            }
            None if owned => self.timers.arm_slow(NEVER_NS),
            None => {}
        }
        self.finish(cx, Effects::NONE, deadline_ns)
    }

    /// TCP_KEEPIDLE, together with the other settings of SO_KEEPALIVE. The silence so far counts,
    /// even if the value did not change (Linux).
    pub fn set_keepalive_idle(&mut self, cx: &mut Cx<'_>, keepalive: Option<Keepalive>) -> Effects {
        let deadline_ns = self.timers.deadline_ns();
        let effects = self.set_keepalive(cx, keepalive);
        self.rearm_keepalive(cx);
        self.finish(cx, effects, deadline_ns)
    }

    /// TCP_USER_TIMEOUT: how long sent data may stay unacknowledged; 0 = the default rules
    /// (MUST-21).
    pub fn set_user_timeout(&mut self, timeout_ns: u64) {
        self.timers.set_user_timeout(timeout_ns);
    }

    /// TCP_SYNCNT: retransmissions of a SYN before the open fails; 0 = the stack's setting.
    pub fn set_syn_retries(&mut self, retries: u8) {
        self.timers.set_syn_retries(retries);
    }

    /// TCP_LINGER2: how long FIN_WAIT_2 of a closed connection waits for the peer's FIN; 0 = the
    /// stack's setting, `None` = not at all: a RST ends it at once.
    pub fn set_fin_wait_2(&mut self, wait_ns: Option<u64>) {
        self.timers.set_fin_wait_2(wait_ns);
    }

    /// TCP_MAXSEG: limits segments to `mss` payload bytes, options included.
    pub fn set_max_segment(&mut self, cx: &mut Cx<'_>, mss: u16) -> Effects {
        if mss == 0 {
            return Effects::NONE;
        }
        let deadline_ns = self.timers.deadline_ns();
        self.path
            .bound_path(mss, self.conn_flags, &mut self.snd, &mut self.tx);
        self.finish(cx, Effects::NONE, deadline_ns)
    }

    /// Marks the byte before `offset` in the send buffer as urgent (RFC 9293 3.10.3, `MSG_OOB`).
    /// Segments up to it carry the urgent pointer, and it does not wait to fill a segment.
    pub fn mark_urgent(&mut self, cx: &mut Cx<'_>, offset: u32) -> Effects {
        let end = self.snd.una() + offset.min(self.snd.buffered());
        if offset == 0 || end.le(self.snd.una()) {
            return Effects::NONE;
        }
        let deadline_ns = self.timers.deadline_ns();
        self.tx.mark_urgent(end, &mut self.conn_flags);
        self.push();
        self.finish(cx, Effects::NONE, deadline_ns)
    }

    /// Sends the waiting partial segment as far as the window allows. A persist timer that probes a
    /// shut window keeps running (Linux).
    fn push(&mut self) {
        self.conn_flags.clear(ConnFlags::MORE);
        let first = self
            .snd
            .unsent(self.state(), self.conn_flags)
            .min(u32::from(self.snd.mss()));
        if self.snd.usable() >= first {
            self.timers.end_persist(&mut self.conn_flags);
        }
        if !self.conn_flags.has(ConnFlags::PERSIST) {
            self.conn_flags.put(
                ConnFlags::PUSH_DUE,
                self.snd.unsent(self.state(), self.conn_flags) > 0,
            );
        }
    }

    fn queue_fin(&mut self) {
        match self.state() {
            State::Established => self.state.transition_to(State::FinWait1),
            State::CloseWait => self.state.transition_to(State::LastAck),
            // With no application, the FIN of a Fast Open does not wait for the handshake (Linux).
            State::SynReceived
                if self.conn_flags.has(ConnFlags::FAST_OPENED)
                    && self.conn_flags.has(ConnFlags::ORPHAN) =>
            {
                self.state.transition_to(State::FinWait1);
            }
            // Any other FIN waits for the handshake.
            State::SynSent | State::SynReceived => {}
            _ => return,
        }
        self.conn_flags.set(ConnFlags::FIN_QUEUED);
    }
}
