//! The segments of a batch, one after another, to whom they belong: a connection, a handshake in progress, a TIME_WAIT entry, a listener, or nobody.
//!
//! A segment's sequence and ACK numbers are believed only once its checksum is verified. For the next in-order segment of a connection the payload is
//! copied to the unpublished tail of the receive ring in the same pass that sums it, and published only if the sum is right; every other segment
//! is summed in place first.

use packetio::RxFrame;
use ring::checksum::sum_raw;
use ring::socket_block::{SocketId, SocketState};
use tcp::half_open::{GoneReason, HalfOpen, HalfOpenOutcome};
use tcp::listen::{ListenOutcome, PassiveOpen, SynRequest, defer_timeouts};
use tcp::run::Run;
use tcp::time_wait::TimeWaitOutcome;
use tcp::{Effects, Handshake, SynCookieUse};
use wire::checksum::Sum;
use wire::tcp::FastOpenCookie;
use wire::{Addr, FlowKey, SeqNumber};

use crate::context::Accepted;
use crate::requests::connect::{name_of, socket_addr};

use crate::arrivals::aggregation::WITHIN_RUN;
use crate::arrivals::demux::{Arrival, Unverified};
use crate::arrivals::rx_sink::RxSink;
use crate::core::{Core, tcp_cx};
use crate::departures::packet_out::HeaderFields;
use crate::event_queue::MARK_TELL;
use crate::flows::flow_table::FlowEntry;
use crate::flows::half_opens::{HalfOpenSlot, ListenerId};
use crate::flows::listeners::Listener;
use crate::flows::saved_syns::Saved;
use crate::requests::options::publish_room_of;
use crate::settle::{USUAL, beside, settle_usual};
use crate::timer_stage::note_deadline;

/// What a segment is to the run of segments that visits its connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartOfRun {
    /// All of it: nothing can follow.
    Whole,
    /// Its first segment, unless its effects end it at once.
    First,
    /// One of the run under way.
    Next,
}

impl Core {
    /// Brings one segment to its owner. `may_go_on`: the one behind it may continue its run.
    #[inline]
    pub(crate) fn tcp_in(&mut self, arrival: &mut Arrival, frame: &RxFrame, may_go_on: bool) {
        if self.joins_run(arrival, frame) {
            return;
        }
        let found = match arrival.likely {
            Some(entry) if self.holds(entry, &arrival.key) => Some(entry),
            _ => self.find_flow(&arrival.key, arrival.hash),
        };
        match found {
            Some(FlowEntry::Connection(socket)) => {
                self.connection_in(socket, arrival, frame, may_go_on);
            }
            Some(FlowEntry::HalfOpen(index)) => self.half_open_in(index, arrival, frame),
            Some(FlowEntry::TimeWait(index)) => self.time_wait_in(index, arrival, frame),
            None => self.stranger_in(arrival, frame),
        }
    }

    /// What this core holds of a flow.
    #[inline]
    pub(crate) fn find_flow(&self, key: &FlowKey, hash: u64) -> Option<FlowEntry> {
        self.flows.find(hash, |entry| self.holds(entry, key))
    }

    /// The entry is there, and of this flow.
    #[inline]
    fn holds(&self, entry: FlowEntry, key: &FlowKey) -> bool {
        let held = match entry {
            FlowEntry::Connection(socket) => return self.sockets.is_of(socket, key),
            FlowEntry::HalfOpen(index) => self.half_opens.at(index).map(|slot| &slot.key),
            FlowEntry::TimeWait(index) => self.time_waits.at(index).map(|slot| &slot.key),
        };
        held.is_some_and(|held| held.is_same(key))
    }

    /// A segment of an established flow, the first of a run perhaps.
    #[inline]
    fn connection_in(&mut self, socket: u32, arrival: &Arrival, frame: &RxFrame, may_go_on: bool) {
        let part = match may_go_on && self.may_begin_run(arrival) {
            true => PartOfRun::First,
            false => PartOfRun::Whole,
        };
        if let Some((run, effects)) = self.take_segment(socket, arrival, frame, part) {
            self.begin_run(socket, arrival, run, effects);
        }
    }

    /// Verifies a segment and hands it to its connection. `None`: it was dropped and counted; or it was a run of its own, be it that it had effects which end
    /// one, and nothing is left to do.
    pub(crate) fn take_segment(
        &mut self,
        socket: u32,
        arrival: &Arrival,
        frame: &RxFrame,
        part: PartOfRun,
    ) -> Option<(Run, Effects)> {
        let Some(payload) = frame.slice(arrival.payload_at as usize, arrival.segment.len as usize)
        else {
            self.counters.rx_drop_tcp_header += 1;
            return None;
        };
        let (mut slot, mut pool, mut block) = self.sockets.parts(socket);
        if slot.conn.as_ref()?.has_ack_due() {
            self.take_due_ack(socket);
            (slot, pool, block) = self.sockets.parts(socket);
        }
        let conn = slot.conn.as_mut()?;
        let mut sink = RxSink::new(&mut slot.rx, pool, block, payload);
        if let Some(unverified) = arrival.unverified {
            if conn.expects(&arrival.segment) {
                let sum = sink.copy_in_order(self.ahead);
                if !unverified.holds_with(sum) {
                    sink.clear_tail();
                    self.counters.rx_drop_tcp_checksum += 1;
                    return None;
                }
                self.counters.rx_fused_bytes += u64::from(arrival.segment.len);
            } else if !unverified.holds_with(Sum::from_folded(sum_raw(payload) as u16)) {
                self.counters.rx_drop_tcp_checksum += 1;
                return None;
            } else {
                self.counters.rx_verified_bytes += u64::from(arrival.segment.len);
            }
        }
        let run = conn.begin_run();
        let mut cx = tcp_cx!(self);
        let effects = conn.on_segment_of_run(&mut cx, &arrival.segment, &mut sink);
        sink.clear_tail();
        self.counters.rx_no_buffer += u64::from(sink.starved);
        if effects.contains(Effects::CONNECTED)
            && let Some(reply) = conn.fast_open_reply(&arrival.segment)
        {
            self.destinations
                .learn_fast_open(arrival.key.remote, &reply);
        }
        let goes_on = part == PartOfRun::First && effects.without(WITHIN_RUN).is_empty();
        if goes_on || part == PartOfRun::Next || slot.stamps.is_some() {
            return Some((run, effects));
        }
        let effects = conn.end_run(&mut cx, effects, run);
        if effects.without(USUAL).is_empty() {
            settle_usual(socket, (slot, pool, block), effects, beside!(self, cx));
        } else {
            self.settle_unusual(socket, effects);
        }
        None
    }

    /// Whether a segment that is not for a connection's fast path is whole; drops and counts it otherwise.
    fn is_whole(&mut self, arrival: &mut Arrival, frame: &RxFrame) -> bool {
        let whole = match arrival.unverified.take() {
            None => true,
            Some(unverified) => payload_holds(unverified, arrival, frame),
        };
        self.counters.rx_drop_tcp_checksum += u64::from(!whole);
        whole
    }

    fn half_open_in(&mut self, index: u32, arrival: &mut Arrival, frame: &RxFrame) {
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

    fn time_wait_in(&mut self, index: u32, arrival: &mut Arrival, frame: &RxFrame) {
        if !self.is_whole(arrival, frame) {
            return;
        }
        let Some(slot) = self.time_waits.at_mut(index) else {
            return;
        };
        let (deadline_ns, in_fin_wait_2) = (slot.entry.deadline_ns(), slot.entry.is_fin_wait_2());
        let outcome = slot.entry.on_segment(&mut tcp_cx!(self), &arrival.segment);
        let entered = in_fin_wait_2 && !slot.entry.is_fin_wait_2();
        let restarted = slot.entry.deadline_ns() != deadline_ns;
        match outcome {
            TimeWaitOutcome::Drop => {}
            TimeWaitOutcome::Ack(ack) => {
                let header = HeaderFields::of_answer(slot.dscp);
                self.reply(&arrival.key, &ack, header);
            }
            TimeWaitOutcome::Gone => {
                self.remove_time_wait(index);
                return;
            }
            TimeWaitOutcome::Reset => {
                self.remove_time_wait(index);
                return self.refuse(arrival);
            }
            TimeWaitOutcome::Reuse { syn, iss_floor } => {
                let Some(listener) = self
                    .listeners
                    .find(arrival.key.local, arrival.key.local_port)
                else {
                    return self.refuse_reuse(index, arrival);
                };
                if !self.may_reopen(listener) {
                    return;
                }
                self.remove_time_wait(index);
                self.counters.time_wait_reused += 1;
                let iss = self.isn.isn_above(&arrival.key, self.now_ns, iss_floor);
                let open = self.passive_open(listener, &arrival.key, iss);
                return self.shake_hands(listener, arrival, frame, (&syn, &open));
            }
        }
        if entered {
            self.time_waits.entered_time_wait(index);
        } else if restarted {
            self.time_waits.restarted(index);
        }
    }

    /// Whether there is room for a connection to begin in the place of an entry in TIME_WAIT; else the SYN is dropped and the entry stays. Its numbers must lie above
    /// the old ones (RFC 6191 2), which no cookie's do: there is none, however many handshakes the listener has (Linux).
    #[cold]
    fn may_reopen(&mut self, listener: ListenerId) -> bool {
        self.counters.syn_received += 1;
        if self.half_opens.is_full() {
            self.counters.half_open_full += 1;
            return false;
        }
        let has_room = (self.listeners.at_mut(listener)).is_some_and(Listener::has_room);
        self.counters.syn_drop_accept_queue_full += u64::from(!has_room);
        has_room
    }

    /// Only a listener can take a flow over. Without one the entry stays, for a SYN to nobody proves nothing, and answers as to an old one (Linux).
    #[cold]
    fn refuse_reuse(&mut self, index: u32, arrival: &Arrival) {
        let Some(slot) = self.time_waits.at_mut(index) else {
            return;
        };
        if let TimeWaitOutcome::Ack(ack) = slot.entry.challenge(&mut tcp_cx!(self)) {
            let header = HeaderFields::of_answer(slot.dscp);
            self.reply(&arrival.key, &ack, header);
        }
    }

    /// A segment of no flow that we know.
    #[cold]
    fn stranger_in(&mut self, arrival: &mut Arrival, frame: &RxFrame) {
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
    fn shake_hands(
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
    fn passive_open(&mut self, listener: ListenerId, key: &FlowKey, iss: SeqNumber) -> PassiveOpen {
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

    /// The largest segment on the way to `remote`: what the link takes, less what a router said of the path and the application asked for
    /// (`TCP_MAXSEG`; 0: nothing).
    pub(crate) fn mss_for(&mut self, remote: Addr, mss_max: u16) -> u16 {
        let link_mss = self.network.mss_for(remote);
        let path_mss = self
            .destinations
            .path(remote, self.now_ns)
            .map_or(link_mss, |word| word.mtu.saturating_sub(headers_of(remote)));
        let asked = if mss_max == 0 { u16::MAX } else { mss_max };
        link_mss.min(path_mss).min(asked)
    }

    /// A connection that begins while a router's word of its path counts learns how long it does, and what our link takes beyond.
    #[inline]
    pub(crate) fn tell_path(&mut self, socket: u32) {
        if self.destinations.heeds_routers(self.now_ns) {
            self.tell_word(socket);
        }
    }

    #[cold]
    fn tell_word(&mut self, socket: u32) {
        let slot = self.sockets.slot(socket);
        let remote = slot.key.remote;
        let word = self.destinations.path(remote, self.now_ns);
        let (Some(conn), Some(word)) = (slot.conn.as_mut(), word) else {
            return;
        };
        let mss = word.mtu.saturating_sub(headers_of(remote));
        conn.know_path(self.network.mss_for(remote), mss, word.until_ns);
        if word.too_narrow {
            slot.header.narrow_too_far(word.until_ns);
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
        if let Some(conn) = slot.conn.as_mut() {
            publish_room_of(conn, &slot.tx, block, &cx, self.fair_share);
            note_deadline(&mut self.wheel, &mut self.departures, id.index, conn);
        }
        self.tell_path(id.index);
        self.announce_accepted(listener, id, &arrival.key);
        self.connection_in(id.index, arrival, frame, true);
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
        let (slot, _, block) = self.sockets.parts(listener_socket);
        block.add_in_edge();
        self.events
            .mark(listener_socket, &mut slot.marks, MARK_TELL);
    }

    fn refuse(&mut self, arrival: &Arrival) {
        match tcp::reset::reply(&arrival.segment) {
            Some(reset) => {
                self.counters.resets_sent += 1;
                self.reply(&arrival.key, &reset, HeaderFields::of_answer(arrival.dscp));
            }
            None => self.counters.no_connection += 1,
        }
    }
}

/// Bytes of IP and TCP header on the way to `remote`, options apart.
pub(crate) fn headers_of(remote: Addr) -> u16 {
    if remote.is_v4() { 40 } else { 60 }
}

fn payload_holds(unverified: Unverified, arrival: &Arrival, frame: &RxFrame) -> bool {
    match frame.slice(arrival.payload_at as usize, arrival.segment.len as usize) {
        Some(payload) => unverified.holds_with(Sum::from_folded(sum_raw(payload) as u16)),
        None => false,
    }
}
