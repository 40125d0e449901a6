//! A segment arrives in SYN_SENT (RFC 9293 3.10.7.3), and the two ways onward: ESTABLISHED, or
//! SYN_RECEIVED when both sides open at once.

use wire::tcp::Flags;

use super::without_syn;
use crate::connection::Connection;
use crate::connection::timers::AckKind;
use crate::context::Cx;
use crate::effects::Effects;
use crate::limits::{SEND_MSS_MIN, SYN_AGAIN_NS, WINDOW_SHIFT_MAX};
use crate::marks::Marks;
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
        let acceptable = acks && seg.ack.gt(self.tx.iss) && seg.ack.le(self.snd.nxt);
        if acks && !acceptable {
            return self.reject_ack(cx, seg);
        }
        if acks && self.is_echo_foreign(cx, seg) {
            cx.counters.drop_paws += 1;
            if !seg.has(Flags::RST) {
                self.reply_reset(seg);
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
        let is_fast = self.is_fast_open_answered(seg);
        let mut effects = self.syn_acknowledged(cx, seg);
        if is_fast && seg.seq_len() > 1 {
            self.marks.set(Marks::SYN_DATA_ACKED);
            effects |= self.text_and_fin(cx, &without_syn(seg), rx);
            if self.state() == State::CloseWait {
                // A peer whose FIN came with the SYN-ACK may expect an answer. The ACK waits for a
                // segment to ride on as long as one can come; reading brings none (Linux).
                self.enter_quick_ack(cx, cx.config.quick_acks_max);
                self.marks.clear(Marks::ACK_NOW);
                self.request_ack(AckKind::Owed);
                self.rx.settle_pushed();
                self.arm_delayed_ack(
                    cx.now_ns
                        .saturating_add(self.cold.own_timers.delayed_ack_ns_max(cx.config)),
                );
                return effects;
            }
        } else {
            // Text or a FIN behind the SYN is left to be sent again, as Linux does it: RFC 9293
            // 3.10.7.3 would go on with the sixth step.
            cx.counters.bytes_drop_syn_ack += u64::from(seg.len);
        }
        if self.unsent() > 0 {
            // The ACK rides on data, and the peer's answer is to be expected (Linux: a write is
            // pending).
            self.rx.note_data(cx.now_ns);
            self.enter_quick_ack(cx, cx.config.quick_acks_max);
        }
        self.request_ack(AckKind::Handshake);
        effects
    }

    /// Fifth step in SYN_RECEIVED and SYN_SENT: our SYN is acknowledged. The state becomes
    /// ESTABLISHED, or the one that the application's calls lead to.
    pub(super) fn syn_acknowledged(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        cx.counters.established += 1;
        self.note_handshake_rtt(cx, seg);
        let bytes = seg.ack.since(self.tx.iss + 1).min(self.snd.buffered);
        self.snd.buffered -= bytes;
        self.tx.acked += bytes;
        // The SYN included, as Linux counts.
        self.tx.bytes_acked += u64::from(seg.ack.since(self.snd.una));
        self.rx.note_ack(cx.now_ns);
        self.snd.una = seg.ack;
        self.snd.wl1 = seg.seq;
        self.snd.wl2 = seg.ack;
        let syn = seg.has(Flags::SYN);
        self.set_send_window(if syn {
            u32::from(seg.window)
        } else {
            self.scaled_window(seg)
        });
        // The state changes before `begin_established`, which arms keep-alive by the state.
        self.state
            .transition_to(if self.marks.has(Marks::FIN_QUEUED) {
                State::FinWait1
            } else {
                State::Established
            });
        let answers_first = self.answers_first_syn(seg);
        self.begin_established(cx, answers_first);
        self.cold.tally.end(self.clock_ms(cx.now_ns));
        self.recovery.begin_count();
        if syn {
            self.take_feedback_of_syn_ack(seg);
        } else if self.snd.ecn.is_accurate() {
            self.take_third_ack(cx, seg);
        }
        self.note_syn_data(cx);
        if bytes > 0 {
            Effects::CONNECTED | Effects::WRITABLE
        } else {
            Effects::CONNECTED
        }
    }

    /// The echo is the timestamp of the SYN that left first: those that followed were needless, and
    /// their loss is none (Eifel, RFC 3522).
    fn answers_first_syn(&self, seg: &Segment) -> bool {
        let echo = seg.options.timestamp.map(|timestamp| timestamp.echo);
        self.marks.has(Marks::TIMESTAMPS) && echo == Some(self.ts_value(self.tx.progress_ns))
    }

    /// Takes the values that only a SYN carries.
    fn learn_syn(&mut self, cx: &Cx<'_>, seg: &Segment) {
        let options = &seg.options;
        self.rx.take_syn(seg.seq);
        self.rcv.nxt = seg.seq + 1;
        self.rcv.acked = self.rcv.nxt;
        if let Some(mss) = options.mss.filter(|&mss| mss > 0) {
            self.tx.peer_mss = mss.max(SEND_MSS_MIN);
        }
        match options.window_scale {
            Some(shift) if self.marks.has(Marks::WINDOW_SCALING) => {
                self.snd.shift = shift.min(WINDOW_SHIFT_MAX);
            }
            _ => {
                self.marks.clear(Marks::WINDOW_SCALING);
                self.rcv_shift = 0;
                // No more can ever be advertised.
                self.rx.limit_window(self.window_ceiling());
            }
        }
        // If we scale, our next segment announces a window that is larger than a SYN can express.
        self.rcv.adv = self.rcv.nxt + self.rx.wnd();
        match options.timestamp {
            Some(stamp) if self.marks.has(Marks::TIMESTAMPS) => {
                self.rcv.ts_recent = stamp.value;
                self.rx.note_timestamp(cx.now_ns);
            }
            _ => self.marks.clear(Marks::TIMESTAMPS),
        }
        if !options.sack_permitted {
            self.marks.clear(Marks::SACK);
        }
        self.learn_ecn(cx, seg);
        // The window of a SYN is never scaled (RFC 7323 2.2).
        self.snd.wnd = u32::from(seg.window);
        self.tx.max_wnd = self.snd.wnd;
        self.refresh_mss();
    }

    /// Simultaneous open: the SYNs crossed (RFC 9293 3.5, figure 8). Our SYN goes out again, with
    /// an ACK.
    fn enter_syn_received(&mut self, cx: &Cx<'_>) -> Effects {
        self.state.transition_to(State::SynReceived);
        // Crossing SYNs lose the result of a Fast Open; the SYN-ACK is plain.
        self.cold.fast_open = None;
        self.cold.syn_bytes_max = 0;
        self.tx.retransmits = 0;
        self.rx.guess_peer_segment(&self.snd);
        self.marks.set(Marks::SYN_DUE);
        self.restart_retransmit_timer(cx);
        Effects::SYNS_CROSSED
    }

    /// The echo is of no timestamp that one of our SYNs bore: an answer to another connection's
    /// (Linux; RFC 7323 5.8).
    fn is_echo_foreign(&self, cx: &Cx<'_>, seg: &Segment) -> bool {
        let Some(stamp) = seg.options.timestamp.filter(|stamp| stamp.echo != 0) else {
            return false;
        };
        let first = self.ts_value(self.tx.progress_ns);
        let span = self.ts_value(cx.now_ns).wrapping_sub(first);
        self.marks.has(Marks::TIMESTAMPS) && stamp.echo.wrapping_sub(first) > span
    }

    /// Rejects an ACK of data that we never sent: it belongs to an old connection, which a RST
    /// ends. If the segment is no RST itself, our SYN leaves again soon, because the RST has made
    /// room for it and a wait of a second would be wasted (Linux).
    fn reject_ack(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        cx.counters.drop_syn_sent += 1;
        if !seg.has(Flags::RST) {
            self.reply_reset(seg);
        }
        if self.tx.retransmits == 0 {
            let soon_ns = cx.now_ns + SYN_AGAIN_NS;
            self.arm_retransmit(soon_ns.min(self.tx.timers.retransmit_ns));
        }
        Effects::NONE
    }

    pub(crate) fn note_handshake_rtt(&mut self, cx: &Cx<'_>, seg: &Segment) {
        if self.marks.has(Marks::TIMING) {
            self.marks.clear(Marks::TIMING);
            let rtt_ns = cx.now_ns.saturating_sub(self.tx.rtt.timed_at_ns);
            self.note_round_trip(cx, rtt_ns);
        } else if let Some(rtt_ns) = self.rtt_by_timestamp(cx.now_ns, seg) {
            self.note_round_trip(cx, rtt_ns);
        } else if self.tx.retransmits > 0 {
            // RFC 6298 5.7: the SYN was lost and nothing was measured.
            self.tx.rtt = crate::rtt::RoundTrip::new(cx.config.rto_after_syn_loss_ns);
        }
    }
}
