//! TCP Fast Open of a connection (RFC 7413). On the server a SYN alone makes the connection
//! (section 4.1).
//!
//! The server's connection is in SYN_RECEIVED and may be accepted, read and written. SND.UNA lies
//! behind our SYN already, so written data leaves at once. Until the first acceptable ACK the
//! retransmission timer is the SYN-ACK's, and nothing else is retransmitted
//! (`ConnFlags::FAST_OPENED`). A connection that is closed early waits for that ACK in FIN_WAIT_1,
//! and so does one whose SYNs crossed.
use wire::tcp::FastOpenCookie;

use crate::congestion::Congestion;
use crate::conn_flags::ConnFlags;
use crate::connection::{Connection, First};
use crate::context::Cx;
use crate::effects::Effects;
use crate::fast_open::client::FastOpenReply;
use crate::half_open::Granted;
use crate::listen::{PassiveOpen, SynRequest};
use crate::recv_buffer::RecvBuffer;
use crate::segment::Segment;
use crate::state::State;
use crate::timers::NEVER_NS;

impl Connection {
    /// Makes a connection from a SYN with a good cookie: SYN_RECEIVED, with a SYN-ACK due that
    /// carries `cookie` if the client gets a new one. The new connection overwrites the one in this
    /// slot. The caller then gives the SYN to [`Connection::take_syn_text`].
    pub fn accept_fast_in(
        &mut self,
        cx: &mut Cx<'_>,
        syn: &SynRequest,
        open: &PassiveOpen,
        cookie: Option<FastOpenCookie>,
    ) {
        cx.counters.accepts += 1;
        cx.counters.fast_opens_passive += 1;
        let granted = Granted::of(cx.config, syn, open);
        let initial = open.initial_window(cx.config, granted.timestamps, granted.window_scaling);
        let first = First {
            state: State::SynReceived,
            mss: open.mss,
            iss: open.iss,
            una: open.iss + 1,
            ts_offset: open.ts_offset,
            cwnd: Congestion::initial_window(cx.config, false),
        };
        self.begin(cx, &first, &open.buffers, &initial);
        // The window of a SYN is never scaled (RFC 7323 2.2).
        self.snd.begin_window(u32::from(syn.window));
        self.snd.begin_updates(syn.irs);
        self.rx.take_syn(syn.irs);
        self.rx.count_syn();
        self.rcv.begin(syn.irs + 1);
        self.rcv.open(self.rx.wnd());
        self.rcv.set_ts_recent(syn.timestamp.unwrap_or(0));
        self.rx.note_timestamp(cx.now_ns);
        self.path.set_peer_mss(syn.send_mss(cx.config, open.is_v4));
        self.conn_flags
            .put(ConnFlags::TIMESTAMPS, granted.timestamps);
        self.conn_flags.put(ConnFlags::SACK, granted.sack);
        if granted.window_scaling {
            self.conn_flags.set(ConnFlags::WINDOW_SCALING);
            self.rcv.set_shift(initial.shift);
            self.snd.set_shift(syn.window_scale.unwrap_or(0));
        }
        self.ecn.put_ecn_of_fast_open(
            cx,
            granted.ecn,
            syn.ecn,
            cx.config.congestion,
            &mut self.snd,
        );
        self.opening.begin_fast(cookie);
        self.enter_established(cx);
        // No round trip was measured yet, so data waits longer than a SYN-ACK does (RFC 6298 5.7,
        // Linux).
        self.timers
            .forget_round_trip(cx.config.rto_after_syn_loss_ns);
        self.conn_flags
            .set(ConnFlags::FAST_OPENED | ConnFlags::SYN_DUE);
    }

    /// Takes the text of the SYN that made this connection. The SYN-ACK acknowledges as much as
    /// could be stored.
    pub fn take_syn_text(
        &mut self,
        cx: &mut Cx<'_>,
        seg: &Segment,
        rx: &mut impl RecvBuffer,
    ) -> Effects {
        let deadline_ns = self.timers.deadline_ns();
        let mut effects = Effects::NONE;
        let stored = rx.write_at(0, 0, seg.len).min(seg.len);
        cx.counters.bytes_drop_no_memory += u64::from(seg.len - stored);
        if stored > 0 {
            self.rx.charge(self.conn_flags, stored, true);
            self.rx
                .advance_receive(self.rcv.nxt() + stored, rx, &mut self.rcv);
            self.rcv.note_acked();
            self.rcv.open(self.rx.wnd());
            self.rx.count_text();
            self.conn_flags.set(ConnFlags::SYN_DATA_ACKED);
            effects |= Effects::READABLE;
        }
        self.finish(cx, effects, deadline_ns)
    }

    /// Takes the first acceptable ACK of a connection that was opened fast: the handshake is
    /// complete. False: the ACK is for data that was never sent. It is answered by a RST as in any
    /// SYN_RECEIVED, or by an ACK as in any FIN_WAIT_1.
    pub(crate) fn complete_fast_open(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> bool {
        if seg.ack.lt(self.snd.una()) || seg.ack.gt(self.snd.nxt()) {
            cx.counters.drop_ack_beyond_sent += 1;
            match self.state() {
                State::SynReceived => self.tx.reply_reset(seg, &mut self.conn_flags),
                // The connection was closed early.
                _ => {
                    let _ = self.rx.challenge(cx, &mut self.conn_flags, &mut self.tx);
                }
            }
            return false;
        }
        cx.counters.established += 1;
        if self.state() == State::SynReceived {
            // A connection that was closed early takes no round trip from this ACK, so its FIN has
            // the timeout of a connection without a sample (Linux).
            self.timers
                .note_handshake_rtt(cx, seg, &mut self.conn_flags, &self.snd, &self.tx);
        }
        self.conn_flags
            .clear(ConnFlags::FAST_OPENED | ConnFlags::SYN_DUE | ConnFlags::TIMING);
        self.timers.begin(cx.now_ns);
        self.timers.end_recovery(cx.now_ns);
        if self.state() == State::SynReceived {
            self.state
                .transition_to(match self.conn_flags.fin_unsent() {
                    true => State::FinWait1,
                    false => State::Established,
                });
        }
        self.timers.arm_retransmit(NEVER_NS);
        if self.snd.flight() > 0 {
            self.flight.restart_retransmit_timer(
                cx,
                self.state(),
                self.conn_flags,
                &self.snd,
                &mut self.timers,
            );
        }
        self.timers.arm_keepalive(cx, self.state(), self.conn_flags);
        true
    }

    /// The entry for the cache of cookies, from `seg`, the SYN-ACK of an active open. `None`: no
    /// Fast Open was tried.
    #[must_use]
    pub fn fast_open_reply(&self, seg: &Segment) -> Option<FastOpenReply> {
        let opening = &self.opening;
        if opening.fast_open().is_none() && opening.syn_bytes_max() == 0 {
            return None;
        }
        // A cookie that was not requested is not trusted.
        let asked = opening.fast_open().is_some();
        let cookie = seg
            .options
            .fast_open
            .filter(|cookie| asked && !cookie.is_request());
        let retried = self.flight.delivery().segments_retrans() > 0;
        let ignored = asked && !retried && cookie.is_none() && opening.syn_bytes() == 0;
        let was_experimental = opening
            .fast_open()
            .is_some_and(|option| option.experimental);
        Some(FastOpenReply {
            mss: seg.options.mss.unwrap_or(self.path.peer_mss()),
            cookie,
            experimental: u8::from(ignored) << u8::from(was_experimental),
        })
    }

    /// True if the SYN-ACK acknowledged payload of the SYN (Linux's `TCPI_OPT_SYN_DATA`).
    #[must_use]
    pub fn syn_data_acked(&self) -> bool {
        self.conn_flags.has(ConnFlags::SYN_DATA_ACKED)
    }
}
