//! Passive opens: SYNs, the handshakes that they begin, and cookies, up to the connection in its
//! listener's accept queue.
//!
//! ```text
//!   SYN ──▶ half-open entry ──▶ ACK ──▶ connection, accept queue
//!    │                                    ▲ ▲
//!    ├──▶ SYN cookie (flooded) ───▶ ACK ──┘ │
//!    └──▶ Fast Open ────────────────────────┘
//! ```

use packetio::RxFrame;
use ring::socket_block::{SocketId, SocketState};
use tcp::half_open::{GoneReason, HalfOpen, HalfOpenOutcome};
use tcp::listen::{ListenOutcome, PassiveOpen, SynRequest, defer_timeouts};
use tcp::{Handshake, SynCookieUse};
use wire::tcp::FastOpenCookie;
use wire::{FlowKey, SeqNumber};

use crate::arrivals::demux::Arrival;
use crate::context::Accepted;
use crate::context::{name_of, socket_addr};
use crate::core::{Core, tcp_cx};
use crate::flows::flow_table::FlowEntry;
use crate::flows::half_opens::{HalfOpenSlot, ListenerId};
use crate::flows::saved_syns::Saved;
use crate::header_fields::HeaderFields;
use crate::settle::door;

impl Core {
    pub(crate) fn half_open_in(&mut self, index: u32, arrival: &mut Arrival, frame: &RxFrame) {
        if !self.is_whole(arrival, frame) {
            return;
        }
        let Some(slot) = self.half_opens.at_mut(index) else {
            return;
        };
        let outcome = slot.entry.on_segment(&mut tcp_cx!(self), &arrival.segment);
        let listener = slot.listener;
        match outcome {
            HalfOpenOutcome::Complete(handshake) => {
                self.complete_handshake(Some(index), listener, &handshake, arrival, frame);
            }
            HalfOpenOutcome::Reset(_) => {
                // While the queue was full an earlier copy of the SYN may have been answered with a cookie; the peer goes by the answer that came first.
                let Some(handshake) = self.cookie_handshake(listener, arrival) else {
                    return self.settle_half_open(index, outcome, arrival.dscp);
                };
                self.remove_half_open(index);
                self.complete_handshake(None, listener, &handshake, arrival, frame);
            }
            HalfOpenOutcome::Gone(GoneReason::NewSyn) => {
                self.refuse(arrival);
                self.settle_half_open(index, outcome, arrival.dscp);
            }
            outcome => self.settle_half_open(index, outcome, arrival.dscp),
        }
    }

    /// Acts on what a segment, which came with `dscp`, or a timer meant for a handshake that is still in progress. A SYN-ACK bears what its listener
    /// chose, other answers the DSCP of what they answer, as in Linux.
    pub(crate) fn settle_half_open(&mut self, index: u32, outcome: HalfOpenOutcome, dscp: u8) {
        let Some(slot) = self.half_opens.at_mut(index) else {
            return;
        };
        let (key, listener) = (slot.key, slot.listener);
        match outcome {
            HalfOpenOutcome::Drop | HalfOpenOutcome::Complete(_) => {}
            HalfOpenOutcome::ChallengeAck(segment) | HalfOpenOutcome::Reset(segment) => {
                self.reply(&key, &segment, HeaderFields::of_answer(dscp));
            }
            HalfOpenOutcome::SendSynAck => {
                let syn_ack = slot.entry.syn_ack(&mut tcp_cx!(self));
                self.reply(&key, &syn_ack, self.header_of(listener));
            }
            HalfOpenOutcome::Gone(reason) => {
                match reason {
                    GoneReason::TimedOut => self.counters.half_open_expired += 1,
                    GoneReason::Reset | GoneReason::NewSyn => self.counters.half_open_reset += 1,
                }
                return self.remove_half_open(index);
            }
        }
        if let Some(slot) = self.half_opens.at(index) {
            let deadline_ns = slot.entry.deadline_ns();
            self.wheel
                .set_at_latest(self.half_open_timer(index), deadline_ns);
        }
    }

    /// A segment of no flow that we know.
    #[cold]
    pub(crate) fn stranger_in(&mut self, arrival: &mut Arrival, frame: &RxFrame) {
        if !self.is_whole(arrival, frame) {
            return;
        }
        let Some(listener) = self
            .listeners
            .find(arrival.key.local, arrival.key.local_port)
        else {
            return self.refuse(arrival);
        };
        match tcp::listen::on_segment(&arrival.segment) {
            ListenOutcome::Drop => self.counters.no_connection += 1,
            ListenOutcome::Reset(reset) => {
                // An ACK to a listener earns a reset, unless it brings back a cookie of ours.
                if !self.cookie_in(listener, arrival, frame) {
                    self.counters.resets_sent += 1;
                    self.reply(&arrival.key, &reset, HeaderFields::of_answer(arrival.dscp));
                }
            }
            ListenOutcome::Syn(request) => {
                let iss = self.isn.isn(&arrival.key, self.now_ns);
                self.syn_in(listener, arrival, frame, &request, iss);
            }
        }
    }

    fn syn_in(
        &mut self,
        listener: ListenerId,
        arrival: &Arrival,
        frame: &RxFrame,
        request: &SynRequest,
        iss: SeqNumber,
    ) {
        self.counters.syn_received += 1;
        let open = self.passive_open(listener, &arrival.key, iss);
        let is_full = self.half_opens.is_full();
        let Some(listening) = self.listeners.at_mut(listener) else {
            return;
        };
        let is_flooded = is_full || listening.is_flooded();
        let has_room = listening.has_room();
        let use_of_cookies = self.config.tcp.syn_cookies;
        let with_cookie = is_flooded || use_of_cookies == SynCookieUse::Always;
        if with_cookie && use_of_cookies == SynCookieUse::Never {
            self.counters.half_open_full += 1;
            return;
        }
        if !has_room {
            // Linux: who cannot be accepted need not shake hands.
            self.counters.syn_drop_accept_queue_full += 1;
            return;
        }
        if with_cookie {
            self.counters.syn_cookies_sent += 1;
            let syn_ack = self
                .cookies
                .syn_ack(&mut tcp_cx!(self), &arrival.key, request, &open);
            return self.reply(&arrival.key, &syn_ack, self.header_of(listener));
        }
        self.shake_hands(listener, arrival, frame, (request, &open));
    }

    /// A SYN that there is room for begins a handshake, or, if it bears a Fast Open's cookie, a connection.
    pub(crate) fn shake_hands(
        &mut self,
        listener: ListenerId,
        arrival: &Arrival,
        frame: &RxFrame,
        (request, open): (&SynRequest, &PassiveOpen),
    ) {
        let choice = self.choose_fast_open(listener, &arrival.key, request, arrival.segment.len);
        if choice.now && self.open_fast(listener, arrival, frame, (request, open), choice.cookie) {
            return;
        }
        if let Some(index) = self.half_open(listener, arrival, request, open, choice.cookie) {
            self.save_syn(listener, arrival, frame, Saved::HalfOpen(index));
        }
    }

    /// Makes an entry of a SYN and answers it, with a Fast Open cookie if there is one to give. Its index, if there was room for it.
    fn half_open(
        &mut self,
        listener: ListenerId,
        arrival: &Arrival,
        request: &SynRequest,
        open: &PassiveOpen,
        cookie: Option<FastOpenCookie>,
    ) -> Option<u32> {
        let mut cx = tcp_cx!(self);
        let mut entry = HalfOpen::new(&mut cx, request, open);
        let mut syn_ack = entry.syn_ack(&mut cx);
        syn_ack.options.fast_open = cookie;
        let deadline_ns = entry.deadline_ns();
        let slot = HalfOpenSlot {
            key: arrival.key,
            hash: arrival.hash,
            entry,
            listener,
        };
        let index = self.half_opens.insert(slot).ok()?;
        if self
            .flows
            .insert(arrival.hash, FlowEntry::HalfOpen(index))
            .is_err()
        {
            self.half_opens.remove(index);
            self.counters.flow_table_full += 1;
            return None;
        }
        if let Some(listening) = self.listeners.at_mut(listener) {
            listening.half_open += 1;
        }
        self.wheel
            .set_at_latest(self.half_open_timer(index), deadline_ns);
        self.reply(&arrival.key, &syn_ack, self.header_of(listener));
        Some(index)
    }

    /// What a listener chose of the network headers of its SYN-ACKs (`IP_TOS`, `IP_TTL`, `IP_MTU_DISCOVER`).
    fn header_of(&self, listener: ListenerId) -> HeaderFields {
        self.listeners
            .at(listener)
            .map_or_else(HeaderFields::default, |listening| listening.header)
    }

    /// Whether an ACK that belongs to nothing completed a handshake by its cookie.
    fn cookie_in(&mut self, listener: ListenerId, arrival: &mut Arrival, frame: &RxFrame) -> bool {
        let Some(handshake) = self.cookie_handshake(listener, arrival) else {
            return false;
        };
        self.complete_handshake(None, listener, &handshake, arrival, frame);
        true
    }

    /// The handshake that an ACK completes by bringing back a cookie of ours.
    fn cookie_handshake(&mut self, listener: ListenerId, arrival: &Arrival) -> Option<Handshake> {
        if !self.cookies.are_out(self.now_ns) {
            return None;
        }
        let open = self.passive_open(listener, &arrival.key, SeqNumber(0));
        let handshake =
            self.cookies
                .check(&mut tcp_cx!(self), &arrival.key, &arrival.segment, &open);
        match handshake {
            Some(_) => self.counters.syn_cookies_accepted += 1,
            None => self.counters.syn_cookies_refused += 1,
        }
        handshake
    }

    /// What we bring to a handshake that a peer began.
    pub(crate) fn passive_open(
        &mut self,
        listener: ListenerId,
        key: &FlowKey,
        iss: SeqNumber,
    ) -> PassiveOpen {
        let (mss_max, defer_accept_seconds, retries_max, congestion) =
            match self.listeners.at(listener) {
                Some(listening) => (
                    listening.mss_max,
                    listening.defer_accept_seconds,
                    listening.syn_retries,
                    listening.congestion,
                ),
                None => (0, 0, 0, None),
            };
        PassiveOpen {
            iss,
            ts_offset: self.isn.timestamp_offset(key),
            mss: self.mss_for(key.remote, mss_max),
            buffers: self.buffers_to_accept(listener),
            is_v4: key.remote.is_v4(),
            congestion: congestion.unwrap_or(self.config.tcp.congestion),
            defer_accept: defer_timeouts(&self.config.tcp, defer_accept_seconds),
            retries_max,
        }
    }

    /// The final ACK of a handshake: it becomes a connection with a socket, if the accept queue and the socket table have room. Otherwise nothing
    /// changes, and the peer's next segment tries again.
    fn complete_handshake(
        &mut self,
        half_open: Option<u32>,
        listener: ListenerId,
        handshake: &Handshake,
        arrival: &mut Arrival,
        frame: &RxFrame,
    ) {
        let Some(listening) = self.listeners.at_mut(listener) else {
            // Whoever listened is gone: as if nobody ever had.
            if let Some(index) = half_open {
                self.remove_half_open(index);
            }
            return self.refuse(arrival);
        };
        if !listening.has_room() {
            self.counters.accept_queue_full += 1;
            if self.config.tcp.abort_on_overflow {
                if let Some(index) = half_open {
                    self.remove_half_open(index);
                }
                self.refuse(arrival);
            }
            return;
        }
        let Some(id) = self.sockets.reserve() else {
            self.counters.accept_no_socket += 1;
            return;
        };
        let entry = FlowEntry::Connection(id.index);
        let placed = match half_open {
            Some(index) => {
                self.wheel.stop(self.half_open_timer(index));
                self.half_opens.remove(index);
                self.saved_syns.accept(index, id.index);
                if let Some(listening) = self.listeners.at_mut(listener) {
                    listening.half_open = listening.half_open.saturating_sub(1);
                }
                self.flows
                    .replace(arrival.hash, FlowEntry::HalfOpen(index), entry)
            }
            None => self.flows.insert(arrival.hash, entry).is_ok(),
        };
        if !placed {
            self.counters.flow_table_full += 1;
            self.saved_syns.forget(Saved::Connection(id.index));
            self.sockets.release(id.index);
            return;
        }
        let buffers = self.buffers_to_accept(listener);
        let (slot, _, block) = self.sockets.parts(id.index);
        let mut cx = tcp_cx!(self);
        slot.become_connection(arrival.key, arrival.hash)
            .accept_in(&mut cx, handshake, &buffers);
        door!(self, cx).settle_accepted(id.index, slot, block);
        self.tell_path(id.index);
        self.announce_accepted(listener, id, &arrival.key);
        self.segment_in(id.index, arrival, frame, true);
    }

    /// Puts a new connection into its listener's accept queue, which has room. Last, when all that the application may ask of it is in place.
    pub(crate) fn announce_accepted(&mut self, listener: ListenerId, id: SocketId, key: &FlowKey) {
        let block = self.sockets.block(id.index);
        block.set_names(
            name_of(key.local, key.local_port),
            name_of(key.remote, key.remote_port),
        );
        block.add_state(SocketState::CONNECTED);
        let mut next = 0;
        while let Some(listening) = self.listeners.at_mut(listener)
            && let Some(&option) = listening.options.get(next)
        {
            let effects = self.inherit_option(id.index, option);
            self.settle(id.index, effects);
            next += 1;
        }
        let Some(listening) = self.listeners.at_mut(listener) else {
            return;
        };
        let (local, remote) = (
            socket_addr(key.local, key.local_port),
            socket_addr(key.remote, key.remote_port),
        );
        listening.queue.push(Accepted {
            socket: id,
            remote,
            local,
        });
        let listener_socket = listening.socket.index;
        self.counters.accepted += 1;
        self.sockets.block(listener_socket).add_in_edge();
        self.tell(listener_socket);
    }
}
