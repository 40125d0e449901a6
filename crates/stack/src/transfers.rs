//! Transfer of unaccepted connections between the stacks of two processes that listen at one
//! address and port.
//!
//! A listener may close while handshakes and connections wait in its queues. Linux has one queue
//! for all processes, so another process accepts them. Here the stack sends each connection to
//! another process. A parcel holds the handshake, the bytes received and perhaps a FIN; an unused
//! connection has nothing more. A handshake in progress stays until it completes.
//!
//! ```text
//!   close ──▶ closed ──▶ shared? ─┬─ no ──▶ reset, as always
//!                                 └─ yes ─▶ sent ──▶ the other stack ──▶ its accept queue, an ACK
//!   final ACK of a handshake whose listener left ──┘        └─ nobody takes it ──▶ reset
//! ```
//!
//! Once the other stack has sent an ACK, the flow's segments go to that stack. Until then they
//! arrive here and must not be answered, so the address stays quiet for a while; peers repeat what
//! was dropped. A SYN to a left address is never answered, since its peer may reach another
//! process. The host is told that the flow is not ours.

use std::net::SocketAddr;

use packetio::host::{Host, Transfer, Wish};
use ring::raw::RawSlice;
use wire::tcp::{Flags, Timestamp};

use crate::accept_search::{answered, seek, wants_one};
use crate::arrivals::accepted::announce_accepted;
use crate::effects::{apply_effects, effect_targets, notify};
use crate::engine::{Engine, Parts, tell_path};
use crate::flows::Flows;
use crate::flows::half_opens::ListenerId;
use crate::flows::listeners::Listener;
use crate::flows::rx_sink::RxSink;
use crate::header_fields::HeaderFields;
use crate::leaving_connections::{ends_of, forget_silently, parcel_of, send_parcel};
use crate::limits::{LEFT_PLACE_QUIET_NS, TRANSFERS_OUT_MAX};
use crate::requests::job_queue::{disown, forget_listener};
use crate::requests::options::{buffers_of_listener, buffers_to_accept};
use crate::transfer_lists::{LeftEndpoint, Offer, Parcel, Sent, Transfers};

/// Sends and receives connections, once per turn.
pub(crate) fn exchange_transfers(
    engine: &mut Engine,
    transfers: &mut Transfers,
    host: &mut dyn Host,
) {
    while let Some(transfer) = host.next_transfer() {
        transfer_came(engine, transfers, host, transfer);
    }
    for key in transfers.strays.drain(..) {
        let (local, remote) = ends_of(&key);
        // A request that finds no room is repeated when the peer repeats its SYN.
        let _ = host.ask(Wish::Forget(local, remote));
    }
    seek(engine, transfers, host);
    transfers.forget_away(engine.now_ns());
    if transfers.closed.is_empty() && transfers.ready.is_empty() && transfers.left.is_empty() {
        return;
    }
    for (id, listener) in std::mem::take(&mut transfers.closed) {
        let endpoint = SocketAddr::new(listener.address().to_ip(), listener.port());
        match host.is_shared(endpoint) {
            true => leave_to_others((engine, transfers), host, (id, &listener), endpoint),
            false => forget_listener(engine, id, &listener),
        }
    }
    for (endpoint, parcel) in std::mem::take(&mut transfers.ready) {
        send_parcel((engine, transfers), host, (endpoint, false), parcel);
    }
    let Parts { env, flows, .. } = engine.parts();
    let now_ns = env.now_ns;
    let half_opens = flows.half_opens();
    let waits = |listener| {
        let mut all = 0..half_opens.span();
        all.any(|at| {
            half_opens
                .at(at)
                .is_some_and(|one| one.listener == listener)
        })
    };
    let is_moving = !transfers.sent.is_empty();
    transfers
        .left
        .retain(|left| is_moving || now_ns < left.quiet_until_ns || waits(left.listener));
    if transfers.left.is_empty() {
        transfers.by_cookie.clear();
    }
}

/// True while connections are on their way, or handshakes that will go to another process are in
/// progress.
pub(crate) fn is_transferring(flows: &Flows, transfers: &Transfers) -> bool {
    let is_moving = !transfers.sent.is_empty() || !transfers.ready.is_empty();
    let half_opens = flows.half_opens();
    let mut entries = (0..half_opens.span()).filter_map(|at| half_opens.at(at));
    is_moving
        || !transfers.closed.is_empty()
        || entries.any(|entry| transfers.endpoint_of(entry.listener).is_some())
}

/// Sends the unaccepted connections of closed listeners. Handshakes in progress stay.
fn leave_to_others(
    (engine, transfers): (&mut Engine, &mut Transfers),
    host: &mut dyn Host,
    (id, listener): (ListenerId, &Listener),
    local: SocketAddr,
) {
    let Parts { env, .. } = engine.parts();
    transfers.leave(LeftEndpoint {
        local,
        listener: id,
        quiet_until_ns: env.now_ns + LEFT_PLACE_QUIET_NS,
        offer: Offer {
            buffers: buffers_of_listener(&env.config, listener),
            congestion: listener.congestion,
            mss_max: listener.mss_max,
        },
    });
    let waiting: Vec<_> = listener.queue.waiting().collect();
    for id in waiting {
        let Parts { flows, .. } = engine.parts();
        let Some(socket) = flows.resolve(id) else {
            continue;
        };
        match parcel_of(flows, socket) {
            Some(parcel) if transfers.sent.len() < TRANSFERS_OUT_MAX => {
                forget_silently(engine, socket);
                send_parcel((engine, transfers), host, (local, false), parcel);
            }
            _ => disown(engine, socket),
        }
    }
}

#[cold]
fn transfer_came(
    engine: &mut Engine,
    transfers: &mut Transfers,
    host: &mut dyn Host,
    transfer: Transfer,
) {
    match transfer {
        Transfer::Connection {
            number,
            local,
            bytes,
            ..
        } => {
            let is_taken = Parcel::decode(&bytes)
                .is_some_and(|parcel| take_parcel(engine, local, &parcel).is_some());
            let Parts { counters, .. } = engine.parts();
            counters.transfers_taken += u64::from(is_taken);
            host.transfer(match is_taken {
                true => Transfer::Taken { number },
                false => Transfer::Refused { number },
            });
        }
        Transfer::Seek {
            number,
            local,
            is_urgent,
            ..
        } => {
            host.transfer(match wants_one(engine, local, is_urgent) {
                true => Transfer::Taken { number },
                false => Transfer::Refused { number },
            });
        }
        Transfer::Taken { number } => {
            if !answered((engine, transfers), host, number, true) {
                // Segments of the peer for this stack may still be on their way.
                transfers.taken(number, engine.now_ns());
            }
        }
        Transfer::Refused { number } => {
            if !answered((engine, transfers), host, number, false)
                && let Some(at) = (transfers.sent.iter()).position(|sent| sent.number == number)
            {
                let sent = transfers.sent.swap_remove(at);
                refused((engine, transfers), host, sent);
            }
        }
    }
}

/// Handles a connection that the other process did not take: its listener takes it back, the
/// processes to which a listener that was closed meanwhile left its own get it, or the peer is
/// reset.
fn refused((engine, transfers): (&mut Engine, &mut Transfers), host: &mut dyn Host, sent: Sent) {
    if let Some((local, parcel)) = sent.back.map(|back| *back) {
        if take_parcel(engine, local, &parcel).is_some() {
            engine.parts().counters.transfers_back += 1;
            return;
        }
        if transfers.listener_at(&sent.key).is_some() {
            return send_parcel((engine, transfers), host, (local, false), parcel);
        }
    }
    let parts = engine.parts();
    parts.counters.transfers_refused += 1;
    parts.counters.resets_sent += 1;
    let reset = tcp::reset::refuse(sent.seq);
    (parts.schedule).reply(&sent.key, &reset, HeaderFields::default());
}

/// Makes a connection from a parcel of another stack and puts it into the accept queue. `None`: no
/// listener, no room, or the flow exists already.
fn take_parcel(engine: &mut Engine, local: SocketAddr, parcel: &Parcel) -> Option<()> {
    let parts = engine.parts();
    let key = parcel.key;
    let hash = parts.flows.hash(&key);
    let listener = (parts.flows.listeners()).find(key.local, key.local_port, hash)?;
    let is_right = local.port() == key.local_port;
    let listening = parts.flows.listeners_mut().at_mut(listener)?;
    listening.queue.search.promised_until_ns = 0;
    let has_room = listening.has_room();
    if !is_right || !has_room || parts.flows.find(&key, hash).is_some() {
        return None;
    }
    let id = parts.flows.sockets_mut().reserve()?;
    if parts.flows.add_connection(hash, id.index, &key).is_err() {
        parts.counters.flow_table_full += 1;
        parts.flows.sockets_mut().release(id.index);
        return None;
    }
    let buffers = buffers_to_accept(parts.flows, &parts.env.config, listener);
    let (slot, _, block) = parts.flows.socket_parts(id.index);
    let mut cx = parts.env.cx();
    slot.become_connection(key, hash)
        .accept_in(&mut cx, &parcel.handshake, &buffers);
    let targets = effect_targets!(parts);
    targets.after_accept(id.index, slot, block);
    tell_path(parts.flows, parts.network, parts.env.now_ns, id.index);
    replay(engine, id.index, parcel);
    if !is_whole_again(engine.parts().flows, id.index, parcel) {
        forget_silently(engine, id.index);
        return None;
    }
    announce_accepted(engine, listener, id, &key);
    let parts = engine.parts();
    notify(parts.flows, parts.events, id.index);
    Some(())
}

/// Gives a new connection the bytes that its peer has sent, and lets it send an ACK, which directs
/// the peer's segments here.
fn replay(engine: &mut Engine, socket: u32, parcel: &Parcel) {
    let handshake = &parcel.handshake;
    let shift = handshake.window_scales.map_or(0, |scales| scales.peers);
    let mut segment = tcp::Segment {
        seq: handshake.irs + 1,
        ack: handshake.una,
        flags: Flags::ACK | Flags::PSH,
        window: (handshake.snd_wnd >> shift).min(u16::MAX.into()) as u16,
        urgent: 0,
        len: parcel.bytes.len() as u32,
        options: wire::tcp::Options::default(),
        ecn: wire::Ecn::NotEct,
    };
    if handshake.timestamps {
        let (value, echo) = (handshake.ts_recent, 0);
        segment.options.timestamp = Some(Timestamp { value, echo });
    }
    let mut probe = segment.clone();
    if parcel.has_fin {
        segment.flags |= Flags::FIN;
    }
    segment_again(engine, socket, &segment, &parcel.bytes);
    // A segment before the expected one, like a keep-alive probe, is answered at once.
    (probe.seq, probe.len) = (parcel.end() - 1, 0);
    segment_again(engine, socket, &probe, &[]);
}

/// True if the connection holds everything that the peer has had acknowledged. Bytes cut off for
/// want of memory would never be sent again.
fn is_whole_again(flows: &mut Flows, socket: u32, parcel: &Parcel) -> bool {
    let conn = flows.slot(socket).live_mut();
    let found = conn.and_then(|conn| conn.untouched(parcel.bytes.len() as u32));
    found.is_some_and(|found| {
        found.handshake.irs == parcel.handshake.irs && found.has_fin == parcel.has_fin
    })
}

fn segment_again(engine: &mut Engine, socket: u32, segment: &tcp::Segment, bytes: &[u8]) {
    let parts = engine.parts();
    let (slot, pool, block) = parts.flows.socket_parts(socket);
    let Some(conn) = slot.conn.as_mut() else {
        return;
    };
    let mut sink = RxSink::new(&mut slot.rx, pool, block, RawSlice::from(bytes));
    let effects = conn.on_segment(&mut parts.env.cx(), segment, &mut sink);
    sink.clear_tail();
    parts.counters.rx_no_buffer += u64::from(sink.starved);
    apply_effects(engine, socket, effects);
}
