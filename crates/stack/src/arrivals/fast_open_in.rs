//! Fast Open (RFC 7413) of listeners: which SYNs make a connection at once, and how many such
//! connections may be pending.

use packetio::RxFrame;
use tcp::fast_open::Verdict;
use tcp::listen::{PassiveOpen, SynRequest};
use tcp::{Effects, FastOpenKeys};
use wire::FlowKey;
use wire::tcp::FastOpenCookie;

use crate::arrivals::accepted::announce_accepted;
use crate::arrivals::demux::Arrival;
use crate::counters::Counters;
use crate::effects::apply_effects;
use crate::engine::{Engine, tell_path};
use crate::flows::Flows;
use crate::flows::half_opens::ListenerId;
use crate::flows::rx_sink::RxSink;
use crate::flows::saved_syns::Saved;
use crate::tcp_env::TcpEnv;

/// The treatment of a SYN by the rules of Fast Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FastOpenChoice {
    /// True if the SYN makes a connection at once, before the handshake completes.
    pub now: bool,
    /// The cookie that the SYN-ACK carries.
    pub cookie: Option<FastOpenCookie>,
}

impl FastOpenChoice {
    const PLAIN: FastOpenChoice = FastOpenChoice {
        now: false,
        cookie: None,
    };
}

/// Decides whether a SYN makes a connection at once. The limit is checked before the cookie, so
/// that a flood costs no hashing. As in Linux, a client cannot tell a full listener from one
/// without Fast Open.
#[inline]
pub(crate) fn choose_fast_open(
    (env, flows, counters): (&TcpEnv, &mut Flows, &mut Counters),
    stack_keys: &FastOpenKeys,
    listener: ListenerId,
    key: &FlowKey,
    request: &SynRequest,
    len: u32,
) -> FastOpenChoice {
    let settings = &env.config.tcp.fast_open;
    let Some(listening) = flows.listeners_mut().at_mut(listener) else {
        return FastOpenChoice::PLAIN;
    };
    let pending_max = listening.fast_open_max(settings.every_listener);
    if !settings.server || pending_max == 0 || (len == 0 && request.fast_open.is_none()) {
        return FastOpenChoice::PLAIN;
    }
    if !listening.fast_open.has_room(pending_max, env.now_ns) {
        counters.fast_open_queue_full += 1;
        return FastOpenChoice::PLAIN;
    }
    let without_cookie = FastOpenChoice {
        now: true,
        cookie: None,
    };
    if settings.server_without_cookie || listening.no_cookie {
        return without_cookie;
    }
    let Some(presented) = request.fast_open else {
        return FastOpenChoice::PLAIN;
    };
    let keys = listening.fast_open.keys.or(settings.keys);
    let keys = keys.unwrap_or(*stack_keys);
    let cookie = Some(keys.cookie(key, presented.experimental));
    if presented.is_request() {
        counters.fast_open_cookies_asked += 1;
        return FastOpenChoice { now: false, cookie };
    }
    match keys.judge(key, &presented) {
        Verdict::Good => without_cookie,
        Verdict::Outdated => FastOpenChoice { now: true, cookie },
        Verdict::Bad => {
            counters.fast_open_cookies_bad += 1;
            FastOpenChoice { now: false, cookie }
        }
    }
}

/// Makes a connection from a SYN with a valid cookie, stores its payload, and puts it into the
/// accept queue. False: there is no room, and the SYN gets the plain handshake.
pub(crate) fn open_fast(
    engine: &mut Engine,
    listener: ListenerId,
    arrival: &Arrival,
    frame: &RxFrame,
    passive: (&SynRequest, &PassiveOpen),
    cookie: Option<FastOpenCookie>,
) -> bool {
    let parts = engine.parts();
    let (request, open) = passive;
    let Some(payload) = frame.slice(arrival.payload_at as usize, arrival.segment.len as usize)
    else {
        return false;
    };
    let Some(id) = parts.flows.sockets_mut().reserve() else {
        parts.counters.fast_open_no_room += 1;
        return false;
    };
    let added = (parts.flows).add_connection(arrival.hash, id.index, &arrival.key);
    if added.is_err() {
        parts.counters.fast_open_no_room += 1;
        parts.flows.sockets_mut().release(id.index);
        return false;
    }
    let (slot, pool, block) = parts.flows.socket_parts(id.index);
    slot.become_connection(arrival.key, arrival.hash)
        .accept_fast_in(&mut parts.env.cx(), request, open, cookie);
    let mut effects = Effects::TRANSMIT | Effects::TIMER;
    slot.fast_opened_by = Some(listener);
    if let Some(conn) = slot.conn.as_mut() {
        let mut sink = RxSink::new(&mut slot.rx, pool, block, payload);
        effects |= conn.take_syn_text(&mut parts.env.cx(), &arrival.segment, &mut sink);
        parts.counters.rx_no_buffer += u64::from(sink.starved);
    }
    if let Some(listening) = parts.flows.listeners_mut().at_mut(listener) {
        listening.fast_open.pending += 1;
    }
    save_syn(
        parts.flows,
        parts.counters,
        listener,
        arrival,
        frame,
        Saved::Connection(id.index),
    );
    tell_path(parts.flows, parts.network, parts.env.now_ns, id.index);
    (parts.flows).sample_story(id.index, parts.env.now_ns, parts.counters);
    announce_accepted(engine, listener, id, &arrival.key);
    apply_effects(engine, id.index, effects);
    true
}

/// Saves the headers of a SYN if its listener wants them.
pub(crate) fn save_syn(
    flows: &mut Flows,
    counters: &mut Counters,
    listener: ListenerId,
    arrival: &Arrival,
    frame: &RxFrame,
    of: Saved,
) {
    if let Some(listening) = flows.listeners().at(listener)
        && listening.save_syn != 0
    {
        let (how, headers_end) = (listening.save_syn, arrival.payload_at as usize);
        let saved = flows.save_syn(how, frame, headers_end, of);
        counters.saved_syns_lost += u64::from(!saved);
    }
}
