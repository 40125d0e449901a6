//! Passive opens, from the SYN through handshake or cookie to the connection in its listener's
//! accept queue.
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
use tcp::{FastOpenKeys, Handshake, SynCookieUse};
use wire::tcp::{FastOpenCookie, Flags};
use wire::{FlowKey, SeqNumber};

use crate::admission::Admission;
use crate::arrivals::Arrivals;
use crate::arrivals::accepted::announce_accepted;
use crate::arrivals::demux::Arrival;
use crate::arrivals::fast_open_in::{choose_fast_open, open_fast, save_syn};
use crate::arrivals::tcp_in::{is_whole, refuse};
use crate::counters::Counters;
use crate::effects::effect_targets;
use crate::engine::{Engine, Parts, remove_half_open, tell_path};
use crate::flows::Flows;
use crate::flows::half_opens::{HalfOpenSlot, ListenerId};
use crate::flows::saved_syns::Saved;
use crate::header_fields::HeaderFields;
use crate::network::layer::FIRST_PORT;
use crate::requests::options::buffers_to_accept;
use crate::schedule::Schedule;
use crate::tcp_env::TcpEnv;
use crate::transfer_lists::Offer;

impl Arrivals {
    /// Processes a segment of a handshake in progress. `may_go_on`: the next frame may continue the
    /// run that this segment begins.
    pub(crate) fn half_open_in(
        &mut self,
        (engine, admission): (&mut Engine, &mut Admission),
        index: u32,
        arrival: &mut Arrival,
        (frame, may_go_on): (&RxFrame, bool),
    ) {
        let parts = engine.parts();
        if !is_whole(parts.counters, arrival, frame) {
            return;
        }
        let Some(slot) = parts.flows.half_open_mut(index) else {
            return;
        };
        let outcome = slot.entry.on_segment(&mut parts.env.cx(), &arrival.segment);
        let listener = slot.listener;
        match outcome {
            HalfOpenOutcome::Complete(handshake) => {
                let (of, frame) = ((Some(index), listener), (frame, may_go_on));
                self.complete_handshake((engine, admission), of, &handshake, arrival, frame);
            }
            HalfOpenOutcome::Reset(_) => {
                // While the queue was full, an earlier copy of the SYN may have been answered with
                // a cookie. The peer then acknowledges that first answer, not this entry's.
                let Some(handshake) = cookie_handshake(engine, admission, listener, arrival, None)
                else {
                    let parts = engine.parts();
                    let dscp = arrival.dscp;
                    return apply_half_open(
                        parts.env,
                        parts.flows,
                        parts.schedule,
                        parts.counters,
                        index,
                        outcome,
                        dscp,
                    );
                };
                let parts = engine.parts();
                remove_half_open(parts.flows, parts.schedule, index);
                let (of, frame) = ((None, listener), (frame, may_go_on));
                self.complete_handshake((engine, admission), of, &handshake, arrival, frame);
            }
            outcome => {
                if let HalfOpenOutcome::Gone(GoneReason::NewSyn) = outcome {
                    refuse(parts.schedule, parts.counters, arrival);
                }
                apply_half_open(
                    parts.env,
                    parts.flows,
                    parts.schedule,
                    parts.counters,
                    index,
                    outcome,
                    arrival.dscp,
                );
            }
        }
    }

    /// Processes a segment without a flow in the table.
    #[cold]
    pub(crate) fn stranger_in(
        &mut self,
        (engine, admission): (&mut Engine, &mut Admission),
        arrival: &mut Arrival,
        frame: &RxFrame,
    ) {
        let Parts {
            env,
            counters,
            flows,
            schedule,
            ..
        } = engine.parts();
        if let Some(mesh) = admission.mesh()
            && self.hand_over((flows, counters), mesh, arrival, frame)
        {
            return;
        }
        let rules = admission.rules_mut();
        if !is_whole(counters, arrival, frame)
            || self.is_refused((schedule, counters), rules, arrival, env.now_ns)
        {
            return;
        }
        let (key, now_ns) = (&arrival.key, env.now_ns);
        let Some(listener) = flows
            .listeners()
            .find(key.local, key.local_port, arrival.hash)
        else {
            return no_listener_in(engine, admission, arrival);
        };
        match tcp::listen::on_segment(&arrival.segment) {
            ListenOutcome::Drop => counters.no_connection += 1,
            ListenOutcome::Reset(reset) => {
                // An ACK to a listener earns a reset, unless it brings back a cookie of ours.
                let handshake = cookie_handshake(engine, admission, listener, arrival, None);
                if let Some(handshake) = handshake {
                    let (of, frame) = ((None, listener), (frame, true));
                    self.complete_handshake((engine, admission), of, &handshake, arrival, frame);
                    return;
                }
                let parts = engine.parts();
                if admission.transfers().is_away(&arrival.key) {
                    parts.counters.transfers_quiet += 1;
                    return;
                }
                parts.counters.resets_sent += 1;
                (parts.schedule).reply(&arrival.key, &reset, HeaderFields::of_answer(arrival.dscp));
            }
            ListenOutcome::Syn(request) => {
                let iss = admission.isn().isn(key, now_ns);
                syn_in((engine, admission), listener, arrival, frame, &request, iss);
            }
        }
    }

    /// Makes a connection from the final ACK of a handshake, if the accept queue and the socket
    /// table have room. Otherwise nothing changes, and the peer's next segment tries again.
    /// `may_go_on`: see [`half_open_in`](Self::half_open_in).
    fn complete_handshake(
        &mut self,
        (engine, admission): (&mut Engine, &mut Admission),
        (half_open, listener): (Option<u32>, ListenerId),
        handshake: &Handshake,
        arrival: &mut Arrival,
        (frame, may_go_on): (&RxFrame, bool),
    ) {
        let parts = engine.parts();
        let Some(listening) = parts.flows.listeners_mut().at_mut(listener) else {
            // The listener is gone. Another process gets the connection, or the ACK is answered as
            // if there had never been a listener.
            if let Some(index) = half_open {
                remove_half_open(parts.flows, parts.schedule, index);
                if admission
                    .transfers_mut()
                    .take_handshake(listener, &arrival.key, handshake)
                {
                    return;
                }
            }
            return refuse(parts.schedule, parts.counters, arrival);
        };
        if !listening.has_room() {
            parts.counters.accept_queue_full += 1;
            if parts.env.config.tcp.abort_on_overflow {
                if let Some(index) = half_open {
                    remove_half_open(parts.flows, parts.schedule, index);
                }
                refuse(parts.schedule, parts.counters, arrival);
            }
            return;
        }
        let Some(id) = parts.flows.sockets_mut().reserve() else {
            parts.counters.accept_no_socket += 1;
            return;
        };
        let placed = match half_open {
            Some(index) => {
                parts.schedule.stop_half_open(index);
                parts.flows.accept_half_open(index, id.index)
            }
            None => (parts.flows)
                .add_connection(arrival.hash, id.index, &arrival.key)
                .is_ok(),
        };
        if !placed {
            parts.counters.flow_table_full += 1;
            parts.flows.give_up_connection(id.index);
            return;
        }
        let buffers = buffers_to_accept(parts.flows, &parts.env.config, listener);
        let (slot, _, block) = parts.flows.socket_parts(id.index);
        let now_ns = parts.env.now_ns;
        let conn = slot.become_connection(arrival.key, arrival.hash);
        conn.accept_in(&mut parts.env.cx(), handshake, &buffers);
        // Packets to this peer use the hop of the SYN-ACK. A hop behind another port is left to
        // `tcp_out`.
        let hop = (parts.network).hop(arrival.key.local, arrival.key.remote, now_ns);
        slot.neighbour = hop.ok().filter(|id| id.port() == FIRST_PORT);
        let targets = effect_targets!(parts);
        targets.after_accept(id.index, slot, block);
        tell_path(parts.flows, parts.network, now_ns, id.index);
        parts.flows.sample_story(id.index, now_ns, parts.counters);
        announce_accepted(engine, listener, id, &arrival.key);
        self.segment_in(engine, id.index, arrival, frame, may_go_on);
    }
}

fn syn_in(
    (engine, admission): (&mut Engine, &mut Admission),
    listener: ListenerId,
    arrival: &Arrival,
    frame: &RxFrame,
    request: &SynRequest,
    iss: SeqNumber,
) {
    let open = passive_open(engine, admission.isn(), listener, &arrival.key, iss);
    let parts = engine.parts();
    parts.counters.syn_received += 1;
    let is_full = parts.flows.half_opens().is_full();
    let Some(listening) = parts.flows.listeners_mut().at_mut(listener) else {
        return;
    };
    let is_flooded = is_full || listening.is_flooded();
    let has_room = listening.has_room();
    let use_of_cookies = parts.env.config.tcp.syn_cookies;
    let with_cookie = is_flooded || use_of_cookies == SynCookieUse::Always;
    if with_cookie && use_of_cookies == SynCookieUse::Never {
        parts.counters.half_open_full += 1;
        return;
    }
    if !has_room {
        // A SYN is not answered while the accept queue is full, as in Linux.
        parts.counters.syn_drop_accept_queue_full += 1;
        return;
    }
    if with_cookie {
        parts.counters.syn_cookies_sent += 1;
        let now_ns = parts.env.now_ns;
        let cookies = admission.cookies(now_ns);
        let syn_ack = cookies.syn_ack(&mut parts.env.cx(), &arrival.key, request, &open);
        admission.tell_of_cookie(now_ns);
        return parts.schedule.reply(
            &arrival.key,
            &syn_ack,
            (parts.flows.listeners()).header_of(listener, arrival.key.local.is_v4()),
        );
    }
    shake_hands(
        (engine, admission.fast_open_keys()),
        listener,
        arrival,
        frame,
        (request, &open),
    );
}

/// Answers a SYN for which there is room: begins a handshake, or makes a connection if the SYN
/// carries a valid Fast Open cookie.
pub(crate) fn shake_hands(
    (engine, keys): (&mut Engine, &FastOpenKeys),
    listener: ListenerId,
    arrival: &Arrival,
    frame: &RxFrame,
    (request, open): (&SynRequest, &PassiveOpen),
) {
    let parts = engine.parts();
    let choice = choose_fast_open(
        (parts.env, parts.flows, parts.counters),
        keys,
        listener,
        &arrival.key,
        request,
        arrival.segment.len,
    );
    if choice.now
        && open_fast(
            engine,
            listener,
            arrival,
            frame,
            (request, open),
            choice.cookie,
        )
    {
        return;
    }
    if let Some(index) = half_open(engine, listener, arrival, request, open, choice.cookie) {
        let parts = engine.parts();
        save_syn(
            parts.flows,
            parts.counters,
            listener,
            arrival,
            frame,
            Saved::HalfOpen(index),
        );
    }
}

/// Processes a segment without a flow and without a listener.
#[cold]
fn no_listener_in(engine: &mut Engine, admission: &mut Admission, arrival: &Arrival) {
    if left_cookie_in(engine, admission, arrival) {
        return;
    }
    let parts = engine.parts();
    let (key, transfers) = (&arrival.key, admission.transfers_mut());
    if is_syn(&arrival.segment) && transfers.take_stray(key)
        || transfers.is_quiet(key, parts.env.now_ns)
    {
        parts.counters.transfers_quiet += 1;
        return;
    }
    refuse(parts.schedule, parts.counters, arrival);
}

/// Handles an ACK that returns a cookie of a listener left to other processes; one of them gets the
/// connection. False: none does.
#[cold]
fn left_cookie_in(engine: &mut Engine, admission: &mut Admission, arrival: &Arrival) -> bool {
    let Some((listener, offer)) = admission.transfers().listener_at(&arrival.key) else {
        return false;
    };
    let handshake = cookie_handshake(engine, admission, listener, arrival, Some(&offer));
    let handshake = handshake.as_ref();
    handshake.is_some_and(|one| {
        admission
            .transfers_mut()
            .take_cookie(listener, &arrival.key, one)
    })
}

/// The handshake that an ACK completes by returning one of our SYN cookies. `offer`: the options
/// that a listener offered which is gone now.
fn cookie_handshake(
    engine: &mut Engine,
    admission: &mut Admission,
    listener: ListenerId,
    arrival: &Arrival,
    offer: Option<&Offer>,
) -> Option<Handshake> {
    let now_ns = engine.now_ns();
    if !admission.expects_cookies(now_ns) {
        return None;
    }
    let isn = admission.isn();
    let mut open = passive_open(engine, isn, listener, &arrival.key, SeqNumber(0));
    let parts = engine.parts();
    if let Some(offer) = offer {
        let key = &arrival.key;
        open.mss = (parts.network).path_mss(key.local, key.remote, offer.mss_max, now_ns);
        open.buffers = offer.buffers;
        open.congestion = offer.congestion.unwrap_or(open.congestion);
    }
    let handshake =
        admission
            .cookies(now_ns)
            .check(&mut parts.env.cx(), &arrival.key, &arrival.segment, &open);
    match handshake {
        Some(_) => parts.counters.syn_cookies_accepted += 1,
        None => parts.counters.syn_cookies_refused += 1,
    }
    handshake
}

/// True for a SYN without ACK.
fn is_syn(segment: &tcp::Segment) -> bool {
    segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK)
}

/// Acts on the outcome of a segment (received with `dscp`) or of a timer for a handshake in
/// progress. A SYN-ACK gets its listener's header fields; any other answer gets the DSCP of the
/// segment answered, as in Linux.
pub(crate) fn apply_half_open(
    env: &mut TcpEnv,
    flows: &mut Flows,
    schedule: &mut Schedule,
    counters: &mut Counters,
    index: u32,
    outcome: HalfOpenOutcome,
    dscp: u8,
) {
    let Some(slot) = flows.half_open_mut(index) else {
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
            let header = (flows.listeners()).header_of(listener, key.local.is_v4());
            schedule.reply(&key, &syn_ack, header);
        }
        HalfOpenOutcome::Gone(reason) => {
            match reason {
                GoneReason::TimedOut => counters.half_open_expired += 1,
                GoneReason::Reset | GoneReason::NewSyn => counters.half_open_reset += 1,
            }
            return remove_half_open(flows, schedule, index);
        }
    }
    if let Some(slot) = flows.half_opens().at(index) {
        let deadline_ns = slot.entry.deadline_ns();
        schedule.set_half_open(index, deadline_ns);
    }
}

/// Makes a half-open entry from a SYN and answers it, with a Fast Open cookie if one is to be
/// given. Returns the entry's index, or `None` without room.
fn half_open(
    engine: &mut Engine,
    listener: ListenerId,
    arrival: &Arrival,
    request: &SynRequest,
    open: &PassiveOpen,
    cookie: Option<FastOpenCookie>,
) -> Option<u32> {
    let parts = engine.parts();
    let mut cx = parts.env.cx();
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
    let Ok(index) = parts.flows.add_half_open(slot) else {
        parts.counters.flow_table_full += 1;
        return None;
    };
    parts.schedule.set_half_open(index, deadline_ns);
    parts.schedule.reply(
        &arrival.key,
        &syn_ack,
        (parts.flows.listeners()).header_of(listener, arrival.key.local.is_v4()),
    );
    Some(index)
}

/// Our parameters for a passive open: initial sequence number, sizes and settings.
pub(crate) fn passive_open(
    engine: &mut Engine,
    isn: &mut IsnGenerator,
    listener: ListenerId,
    key: &FlowKey,
    iss: SeqNumber,
) -> PassiveOpen {
    let Parts {
        env,
        flows,
        network,
        ..
    } = engine.parts();
    let (mss_max, defer_accept_seconds, retries_max, congestion) =
        match flows.listeners().at(listener) {
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
