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
use tcp::half_open::{GoneReason, HalfOpen, HalfOpenOutcome};
use tcp::isn::IsnGenerator;
use tcp::listen::{ListenOutcome, PassiveOpen, SynRequest, defer_timeouts};
use tcp::{Handshake, SynCookieUse};
use wire::tcp::{FastOpenCookie, Flags};
use wire::{FlowKey, SeqNumber};

use crate::arrivals::Arrivals;
use crate::arrivals::accepted::announce_accepted;
use crate::arrivals::demux::Arrival;
use crate::arrivals::fast_open_in::{open_fast, save_syn};
use crate::arrivals::tcp_in::{is_whole, refuse};
use crate::core::{Core, remove_half_open, tell_path};
use crate::counters::Counters;
use crate::effects::effect_targets;
use crate::flows::Flows;
use crate::flows::flow_table::FlowEntry;
use crate::flows::half_opens::{HalfOpenSlot, ListenerId};
use crate::flows::saved_syns::Saved;
use crate::header_fields::HeaderFields;
use crate::network::layer::{FIRST_PORT, Network};
use crate::requests::options::buffers_to_accept;
use crate::schedule::Schedule;
use crate::tcp_env::TcpEnv;
use crate::transfer_lists::Offer;

impl Arrivals {
    /// Takes a segment of a handshake in progress. `may_go_on`: the next frame may continue the run
    /// that it begins.
    pub(crate) fn half_open_in(
        &mut self,
        core: &mut Core,
        index: u32,
        arrival: &mut Arrival,
        (frame, may_go_on): (&RxFrame, bool),
    ) {
        if !is_whole(&mut core.counters, arrival, frame) {
            return;
        }
        let Some(slot) = core.flows.half_opens.at_mut(index) else {
            return;
        };
        let outcome = slot.entry.on_segment(&mut core.env.cx(), &arrival.segment);
        let listener = slot.listener;
        match outcome {
            HalfOpenOutcome::Complete(handshake) => {
                let frame = (frame, may_go_on);
                self.complete_handshake(core, Some(index), listener, &handshake, arrival, frame);
            }
            HalfOpenOutcome::Reset(_) => {
                // While the queue was full an earlier copy of the SYN may have been answered with a
                // cookie. The peer goes by the answer that came first.
                let Some(handshake) = self.cookie_handshake(core, listener, arrival) else {
                    return apply_half_open(
                        &mut core.env,
                        &mut core.flows,
                        &mut core.schedule,
                        &mut core.counters,
                        index,
                        outcome,
                        arrival.dscp,
                    );
                };
                remove_half_open(&mut core.flows, &mut core.schedule, index);
                let frame = (frame, may_go_on);
                self.complete_handshake(core, None, listener, &handshake, arrival, frame);
            }
            HalfOpenOutcome::Gone(GoneReason::NewSyn) => {
                refuse(&mut core.schedule, &mut core.counters, arrival);
                apply_half_open(
                    &mut core.env,
                    &mut core.flows,
                    &mut core.schedule,
                    &mut core.counters,
                    index,
                    outcome,
                    arrival.dscp,
                );
            }
            outcome => apply_half_open(
                &mut core.env,
                &mut core.flows,
                &mut core.schedule,
                &mut core.counters,
                index,
                outcome,
                arrival.dscp,
            ),
        }
    }

    /// Takes a segment of no flow that we know.
    #[cold]
    pub(crate) fn stranger_in(&mut self, core: &mut Core, arrival: &mut Arrival, frame: &RxFrame) {
        if core.mesh.is_some() && self.hand_over(core, arrival, frame) {
            return;
        }
        if !is_whole(&mut core.counters, arrival, frame) || self.is_refused(core, arrival) {
            return;
        }
        let Some(listener) =
            core.flows
                .listeners
                .find(arrival.key.local, arrival.key.local_port, arrival.hash)
        else {
            if self.left_cookie_in(core, arrival) {
                return;
            }
            let (key, now_ns) = (&arrival.key, core.env.now_ns);
            if is_syn(&arrival.segment) && core.transfers.take_stray(key)
                || core.transfers.is_quiet(key, now_ns)
            {
                core.counters.transfers_quiet += 1;
                return;
            }
            return refuse(&mut core.schedule, &mut core.counters, arrival);
        };
        match tcp::listen::on_segment(&arrival.segment) {
            ListenOutcome::Drop => core.counters.no_connection += 1,
            ListenOutcome::Reset(reset) => {
                // An ACK to a listener earns a reset, unless it brings back a cookie of ours.
                if !self.cookie_in(core, listener, arrival, frame) {
                    core.counters.resets_sent += 1;
                    core.schedule.reply(
                        &arrival.key,
                        &reset,
                        HeaderFields::of_answer(arrival.dscp),
                    );
                }
            }
            ListenOutcome::Syn(request) => {
                let iss = core.isn.isn(&arrival.key, core.env.now_ns);
                self.syn_in(core, listener, arrival, frame, &request, iss);
            }
        }
    }

    fn syn_in(
        &mut self,
        core: &mut Core,
        listener: ListenerId,
        arrival: &Arrival,
        frame: &RxFrame,
        request: &SynRequest,
        iss: SeqNumber,
    ) {
        core.counters.syn_received += 1;
        let open = passive_open(
            &core.env,
            &core.flows,
            &mut core.network,
            &mut core.isn,
            listener,
            &arrival.key,
            iss,
        );
        let is_full = core.flows.half_opens.is_full();
        let Some(listening) = core.flows.listeners.at_mut(listener) else {
            return;
        };
        let is_flooded = is_full || listening.is_flooded();
        let has_room = listening.has_room();
        let use_of_cookies = core.env.config.tcp.syn_cookies;
        let with_cookie = is_flooded || use_of_cookies == SynCookieUse::Always;
        if with_cookie && use_of_cookies == SynCookieUse::Never {
            core.counters.half_open_full += 1;
            return;
        }
        if !has_room {
            // A peer that cannot be accepted need not shake hands, as in Linux.
            core.counters.syn_drop_accept_queue_full += 1;
            return;
        }
        if with_cookie {
            core.counters.syn_cookies_sent += 1;
            let syn_ack =
                core.handshakes
                    .cookies
                    .syn_ack(&mut core.env.cx(), &arrival.key, request, &open);
            return core.schedule.reply(
                &arrival.key,
                &syn_ack,
                core.flows.listeners.header_of(listener),
            );
        }
        self.shake_hands(core, listener, arrival, frame, (request, &open));
    }

    /// Begins a handshake with a SYN that there is room for, or a connection if it brings a Fast
    /// Open cookie.
    pub(crate) fn shake_hands(
        &mut self,
        core: &mut Core,
        listener: ListenerId,
        arrival: &Arrival,
        frame: &RxFrame,
        (request, open): (&SynRequest, &PassiveOpen),
    ) {
        let choice =
            self.choose_fast_open(core, listener, &arrival.key, request, arrival.segment.len);
        if choice.now
            && open_fast(
                core,
                listener,
                arrival,
                frame,
                (request, open),
                choice.cookie,
            )
        {
            return;
        }
        if let Some(index) = half_open(core, listener, arrival, request, open, choice.cookie) {
            save_syn(
                &mut core.flows,
                &mut core.counters,
                listener,
                arrival,
                frame,
                Saved::HalfOpen(index),
            );
        }
    }

    /// Completes a handshake by an ACK that belongs to nothing but brings back a cookie of ours.
    /// False: it does not.
    fn cookie_in(
        &mut self,
        core: &mut Core,
        listener: ListenerId,
        arrival: &mut Arrival,
        frame: &RxFrame,
    ) -> bool {
        let Some(handshake) = self.cookie_handshake(core, listener, arrival) else {
            return false;
        };
        self.complete_handshake(core, None, listener, &handshake, arrival, (frame, true));
        true
    }

    /// An ACK brings back a cookie of a listener that was left to other processes: one of them gets
    /// the connection. False: it does not.
    #[cold]
    fn left_cookie_in(&mut self, core: &mut Core, arrival: &Arrival) -> bool {
        let Some((listener, offer)) = core.transfers.listener_at(&arrival.key) else {
            return false;
        };
        let handshake = self.cookie_handshake_of(core, listener, arrival, Some(&offer));
        let handshake = handshake.as_ref();
        handshake.is_some_and(|one| core.transfers.take_cookie(listener, &arrival.key, one))
    }

    /// The handshake that an ACK completes by bringing back a cookie of ours.
    fn cookie_handshake(
        &mut self,
        core: &mut Core,
        listener: ListenerId,
        arrival: &Arrival,
    ) -> Option<Handshake> {
        self.cookie_handshake_of(core, listener, arrival, None)
    }

    /// The same; `offer` is what a listener that is gone has offered.
    fn cookie_handshake_of(
        &mut self,
        core: &mut Core,
        listener: ListenerId,
        arrival: &Arrival,
        offer: Option<&Offer>,
    ) -> Option<Handshake> {
        if !core.handshakes.cookies.are_out(core.env.now_ns) {
            return None;
        }
        let mut open = passive_open(
            &core.env,
            &core.flows,
            &mut core.network,
            &mut core.isn,
            listener,
            &arrival.key,
            SeqNumber(0),
        );
        if let Some(offer) = offer {
            let (key, now_ns) = (&arrival.key, core.env.now_ns);
            open.mss = (core.network).path_mss(key.local, key.remote, offer.mss_max, now_ns);
            open.buffers = offer.buffers;
            open.congestion = offer.congestion.unwrap_or(open.congestion);
        }
        let handshake = core.handshakes.cookies.check(
            &mut core.env.cx(),
            &arrival.key,
            &arrival.segment,
            &open,
        );
        match handshake {
            Some(_) => core.counters.syn_cookies_accepted += 1,
            None => core.counters.syn_cookies_refused += 1,
        }
        handshake
    }

    /// Makes a connection with a socket of the final ACK of a handshake, if the accept queue and
    /// the socket table have room. Otherwise nothing changes, and the peer's next segment tries
    /// again. `may_go_on`: see [`half_open_in`](Self::half_open_in).
    fn complete_handshake(
        &mut self,
        core: &mut Core,
        half_open: Option<u32>,
        listener: ListenerId,
        handshake: &Handshake,
        arrival: &mut Arrival,
        (frame, may_go_on): (&RxFrame, bool),
    ) {
        let Some(listening) = core.flows.listeners.at_mut(listener) else {
            // The listener is gone: another process gets the connection, or the ACK is answered as
            // if there had never been a listener.
            if let Some(index) = half_open {
                remove_half_open(&mut core.flows, &mut core.schedule, index);
                if (core.transfers).take_handshake(listener, &arrival.key, handshake) {
                    return;
                }
            }
            return refuse(&mut core.schedule, &mut core.counters, arrival);
        };
        if !listening.has_room() {
            core.counters.accept_queue_full += 1;
            if core.env.config.tcp.abort_on_overflow {
                if let Some(index) = half_open {
                    remove_half_open(&mut core.flows, &mut core.schedule, index);
                }
                refuse(&mut core.schedule, &mut core.counters, arrival);
            }
            return;
        }
        let Some(id) = core.flows.sockets.reserve() else {
            core.counters.accept_no_socket += 1;
            return;
        };
        let entry = FlowEntry::Connection(id.index);
        core.flows.ledger.begin(id.index, &arrival.key);
        let placed = match half_open {
            Some(index) => {
                core.schedule.stop_half_open(index);
                core.flows.accept_half_open(index, id.index);
                if let Some(listening) = core.flows.listeners.at_mut(listener) {
                    listening.half_open = listening.half_open.saturating_sub(1);
                }
                core.flows
                    .replace_flow(arrival.hash, FlowEntry::HalfOpen(index), entry)
            }
            None => core.flows.insert_flow(arrival.hash, entry).is_ok(),
        };
        if !placed {
            core.counters.flow_table_full += 1;
            core.flows.ledger.end(id.index);
            core.flows.saved_syns.forget(Saved::Connection(id.index));
            core.flows.sockets.release(id.index);
            return;
        }
        let buffers = buffers_to_accept(&core.flows, &core.env.config, listener);
        let (slot, _, block) = core.flows.sockets.parts(id.index);
        let now_ns = core.env.now_ns;
        let conn = slot.become_connection(arrival.key, arrival.hash);
        conn.accept_in(&mut core.env.cx(), handshake, &buffers);
        // The SYN-ACK went the same way. Output finds the hop behind another port.
        let hop = (core.network).hop(arrival.key.local, arrival.key.remote, now_ns);
        slot.neighbour = hop.ok().filter(|id| id.port() == FIRST_PORT);
        effect_targets!(core).after_accept(id.index, slot, block);
        tell_path(&mut core.flows, &mut core.network, now_ns, id.index);
        (core.flows).sample_story(id.index, now_ns, &mut core.counters);
        announce_accepted(core, listener, id, &arrival.key);
        self.segment_in(core, id.index, arrival, frame, may_go_on);
    }
}

/// The segment asks for a connection.
fn is_syn(segment: &tcp::Segment) -> bool {
    segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK)
}

/// Acts on the outcome of a segment, which came with `dscp`, or of a timer for a handshake in
/// progress. A SYN-ACK has the header fields that its listener chose, any other answer the DSCP
/// of the segment that it answers, as in Linux.
pub(crate) fn apply_half_open(
    env: &mut TcpEnv,
    flows: &mut Flows,
    schedule: &mut Schedule,
    counters: &mut Counters,
    index: u32,
    outcome: HalfOpenOutcome,
    dscp: u8,
) {
    let Some(slot) = flows.half_opens.at_mut(index) else {
        return;
    };
    let (key, listener) = (slot.key, slot.listener);
    match outcome {
        HalfOpenOutcome::Drop | HalfOpenOutcome::Complete(_) => {}
        HalfOpenOutcome::ChallengeAck(segment) | HalfOpenOutcome::Reset(segment) => {
            schedule.reply(&key, &segment, HeaderFields::of_answer(dscp));
        }
        HalfOpenOutcome::SendSynAck => {
            let syn_ack = slot.entry.syn_ack(&mut env.cx());
            schedule.reply(&key, &syn_ack, flows.listeners.header_of(listener));
        }
        HalfOpenOutcome::Gone(reason) => {
            match reason {
                GoneReason::TimedOut => counters.half_open_expired += 1,
                GoneReason::Reset | GoneReason::NewSyn => counters.half_open_reset += 1,
            }
            return remove_half_open(flows, schedule, index);
        }
    }
    if let Some(slot) = flows.half_opens.at(index) {
        let deadline_ns = slot.entry.deadline_ns();
        schedule.set_half_open(index, deadline_ns);
    }
}

/// Makes an entry of a SYN and answers it, with a Fast Open cookie if there is one to give.
/// Returns the entry's index, if there was room for it.
fn half_open(
    core: &mut Core,
    listener: ListenerId,
    arrival: &Arrival,
    request: &SynRequest,
    open: &PassiveOpen,
    cookie: Option<FastOpenCookie>,
) -> Option<u32> {
    let mut cx = core.env.cx();
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
    let index = core.flows.half_opens.insert(slot).ok()?;
    if core
        .flows
        .insert_flow(arrival.hash, FlowEntry::HalfOpen(index))
        .is_err()
    {
        core.flows.half_opens.remove(index);
        core.counters.flow_table_full += 1;
        return None;
    }
    if let Some(listening) = core.flows.listeners.at_mut(listener) {
        listening.half_open += 1;
    }
    core.flows.ledger.begin_half_open(index, &arrival.key);
    core.schedule.set_half_open(index, deadline_ns);
    core.schedule.reply(
        &arrival.key,
        &syn_ack,
        core.flows.listeners.header_of(listener),
    );
    Some(index)
}

/// Our side of a handshake that a peer began: numbers, sizes and settings.
pub(crate) fn passive_open(
    env: &TcpEnv,
    flows: &Flows,
    network: &mut Network,
    isn: &mut IsnGenerator,
    listener: ListenerId,
    key: &FlowKey,
    iss: SeqNumber,
) -> PassiveOpen {
    let (mss_max, defer_accept_seconds, retries_max, congestion) =
        match flows.listeners.at(listener) {
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
        ts_offset: isn.timestamp_offset(key),
        mss: network.path_mss(key.local, key.remote, mss_max, env.now_ns),
        buffers: buffers_to_accept(flows, &env.config, listener),
        is_v4: key.remote.is_v4(),
        congestion: congestion.unwrap_or(env.config.tcp.congestion),
        defer_accept: defer_timeouts(&env.config.tcp, defer_accept_seconds),
        retries_max,
    }
}
