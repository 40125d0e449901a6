//! A segment in SYN_SENT (RFC 9293 3.10.7.3), and the two ways onward: ESTABLISHED, or SYN_RECEIVED
//! when both sides open at once.

use wire::tcp::Flags;

use super::without_syn;
use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::limits::{SEND_MSS_MIN, SYN_AGAIN_NS, WINDOW_SHIFT_MAX};
use crate::receive::delayed_ack::AckKind;
use crate::recv_buffer::RecvBuffer;
use crate::segment::Segment;
use crate::state::{ConnectionError, State};

impl Connection {
    pub(super) fn syn_sent(
        &mut self,
        cx: &mut Cx<'_>,
        seg: &Segment,
        rx: &mut impl RecvBuffer,
    ) -> Effects {
        let acks = seg.has(Flags::ACK);
        let acceptable = acks && seg.ack.gt(self.tx.iss()) && seg.ack.le(self.snd.nxt());
        if acks && !acceptable {
            return self.reject_ack(cx, seg);
        }
        if acks && self.is_echo_foreign(cx, seg) {
            cx.counters.drop_paws += 1;
            if !seg.has(Flags::RST) {
                self.tx.reply_reset(seg, &mut self.conn_flags);
            }
            return Effects::NONE;
        }
        if seg.has(Flags::RST) {
            if acceptable {
                cx.counters.resets_in += 1;
                return self.fail(ConnectionError::Refused);
            }
            cx.counters.drop_syn_sent += 1;
            return Effects::NONE;
        }
        if !seg.has(Flags::SYN) {
            cx.counters.drop_syn_sent += 1;
            return Effects::NONE;
        }
        self.learn_syn(cx, seg);
        if !acceptable {
            return self.enter_syn_received(cx);
        }
        let is_fast = self.opening.is_fast_open_answered(seg, &self.snd);
        let mut effects = self.syn_acknowledged(cx, seg);
        if is_fast && seg.seq_len() > 1 {
            self.conn_flags.set(ConnFlags::SYN_DATA_ACKED);
            effects |= self.text_and_fin(cx, &without_syn(seg), rx);
            if self.state() == State::CloseWait {
                // A peer whose FIN came with the SYN-ACK may expect an answer, so the ACK waits for
                // a segment to ride on (Linux). Reading does not make such an ACK due.
                self.rx.enter_quick_ack(cx, cx.config.quick_acks_max);
                self.conn_flags.clear(ConnFlags::ACK_NOW);
                self.rx.request_ack(AckKind::Owed, &mut self.conn_flags);
                self.rx.settle_pushed();
                self.timers.arm_delayed_ack(
                    cx.now_ns
                        .saturating_add(self.timers.delayed_ack_ns_max(cx.config)),
                );
                return effects;
            }
        } else {
            // Text or a FIN behind the SYN is not taken, and the peer sends it again, as with
            // Linux. RFC 9293 3.10.7.3 would continue with the sixth step.
            cx.counters.bytes_drop_syn_ack += u64::from(seg.len);
        }
        if self.snd.unsent(self.state(), self.conn_flags) > 0 {
            // The ACK rides on data that a pending write left, and an answer of the peer is
            // expected (Linux).
            self.rx.note_data(cx.now_ns);
            self.rx.enter_quick_ack(cx, cx.config.quick_acks_max);
        }
        self.rx
            .request_ack(AckKind::Handshake, &mut self.conn_flags);
        effects
    }

    /// Takes the ACK of our SYN in SYN_RECEIVED and SYN_SENT (fifth step). The state becomes
    /// ESTABLISHED, or another one that the application's calls lead to.
    pub(super) fn syn_acknowledged(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        cx.counters.established += 1;
        self.timers
            .note_handshake_rtt(cx, seg, &mut self.conn_flags, &self.snd, &self.tx);
        // The count includes the SYN, as in Linux.
        let numbers = seg.ack.since(self.snd.una());
        let bytes = self.snd.acknowledge_syn(self.tx.iss(), seg);
        self.tx.note_acked(bytes, numbers);
        self.rx.note_ack(cx.now_ns);
        let syn = seg.has(Flags::SYN);
        self.set_send_window(if syn {
            u32::from(seg.window)
        } else {
            self.snd.scaled_window(seg)
        });
        // The state changes before `begin_established`, which arms keep-alive depending on it.
        self.state
            .transition_to(if self.conn_flags.has(ConnFlags::FIN_QUEUED) {
                State::FinWait1
            } else {
                State::Established
            });
        let answers_first = self.answers_first_syn(seg);
        self.begin_established(cx, answers_first);
        self.timers.end_recovery(cx.now_ns);
        self.flight.recovery_mut().begin_count();
        if syn {
            self.flight
                .take_feedback_of_syn_ack(seg, &mut self.snd, &mut self.ecn);
        } else if self.snd.ecn().is_accurate() {
            self.flight
                .take_third_ack(cx, seg, &mut self.snd, &mut self.ecn);
        }
        self.flight.note_syn_data(
            cx,
            &mut self.conn_flags,
            &self.snd,
            &mut self.opening,
            &self.timers,
        );
        if bytes > 0 {
            Effects::CONNECTED | Effects::WRITABLE
        } else {
            Effects::CONNECTED
        }
    }

    /// True if the echo is the timestamp of the first SYN. The later ones were needless, so no SYN
    /// was lost (Eifel, RFC 3522).
    fn answers_first_syn(&self, seg: &Segment) -> bool {
        let echo = seg.options.timestamp.map(|timestamp| timestamp.echo);
        self.conn_flags.has(ConnFlags::TIMESTAMPS)
            && echo == Some(self.tx.ts_value(self.timers.progress_ns()))
    }

    /// Takes the values that only a SYN carries.
    fn learn_syn(&mut self, cx: &Cx<'_>, seg: &Segment) {
        let options = &seg.options;
        self.rx.take_syn(seg.seq);
        self.rcv.begin(seg.seq + 1);
        if let Some(mss) = options.mss.filter(|&mss| mss > 0) {
            self.path.set_peer_mss(mss.max(SEND_MSS_MIN));
        }
        match options.window_scale {
            Some(shift) if self.conn_flags.has(ConnFlags::WINDOW_SCALING) => {
                self.snd.set_shift(shift.min(WINDOW_SHIFT_MAX));
            }
            _ => {
                self.conn_flags.clear(ConnFlags::WINDOW_SCALING);
                self.rcv.set_shift(0);
                // The window field can never advertise more.
                self.rx.limit_window(self.rcv.window_ceiling());
            }
        }
        // With scaling, our next segment announces a window that is larger than a SYN can express.
        self.rcv.open(self.rx.wnd());
        match options.timestamp {
            Some(stamp) if self.conn_flags.has(ConnFlags::TIMESTAMPS) => {
                self.rcv.set_ts_recent(stamp.value);
                self.rx.note_timestamp(cx.now_ns);
            }
            _ => self.conn_flags.clear(ConnFlags::TIMESTAMPS),
        }
        if !options.sack_permitted {
            self.conn_flags.clear(ConnFlags::SACK);
        }
        let choice = self.flight.congestion().choice(cx.config);
        self.ecn.learn_ecn(cx, seg, choice, &mut self.snd);
        // The window of a SYN is never scaled (RFC 7323 2.2).
        self.snd.begin_window(u32::from(seg.window));
        self.path
            .refresh_mss(self.conn_flags, &mut self.snd, &mut self.tx);
    }

    /// Simultaneous open: the SYNs crossed (RFC 9293 3.5, figure 8). Our SYN leaves again, with an
    /// ACK.
    fn enter_syn_received(&mut self, cx: &Cx<'_>) -> Effects {
        self.state.transition_to(State::SynReceived);
        // Crossing SYNs lose the result of a Fast Open; the SYN-ACK is plain.
        self.opening.forget_fast_open();
        self.timers.settle_retransmits();
        self.rx.guess_peer_segment(&self.snd);
        self.conn_flags.set(ConnFlags::SYN_DUE);
        self.flight.restart_retransmit_timer(
            cx,
            self.state(),
            self.conn_flags,
            &self.snd,
            &mut self.timers,
        );
        Effects::SYNS_CROSSED
    }

    /// True if the echo is no timestamp of our SYNs, so that the segment answers another connection
    /// (Linux; RFC 7323 5.8).
    fn is_echo_foreign(&self, cx: &Cx<'_>, seg: &Segment) -> bool {
        let Some(stamp) = seg.options.timestamp.filter(|stamp| stamp.echo != 0) else {
            return false;
        };
        let first = self.tx.ts_value(self.timers.progress_ns());
        let span = self.tx.ts_value(cx.now_ns).wrapping_sub(first);
        self.conn_flags.has(ConnFlags::TIMESTAMPS) && stamp.echo.wrapping_sub(first) > span
    }

    /// Rejects an ACK of data that was never sent. It belongs to an old connection, which a RST
    /// ends. If the segment is no RST itself, our SYN leaves again soon, without waiting a second
    /// for its timeout, because the RST has made room for it (Linux).
    fn reject_ack(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        cx.counters.drop_syn_sent += 1;
        if !seg.has(Flags::RST) {
            self.tx.reply_reset(seg, &mut self.conn_flags);
        }
        if self.timers.retransmits() == 0 {
            let soon_ns = cx.now_ns + SYN_AGAIN_NS;
            self.timers
                .arm_retransmit(soon_ns.min(self.timers.retransmit_ns()));
        }
        Effects::NONE
    }
}
