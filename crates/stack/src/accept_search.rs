//! Search for another process that accepts, on behalf of connections that wait too long.
//!
//! Processes that share an address have an accept queue each, where Linux has one for all. A
//! process may listen and never accept, or wait for a lock of its own before it accepts. So when a
//! connection has waited for [`SEEK_AGE_NS`], the stack asks the host for a process of which a call
//! waits for connections. If there is one, the oldest connection moves there
//! ([`transfers`](crate::transfers)).
//!
//! ```text
//!   waits too long ──▶ asked ─┬─ refused ──▶ asked again after a pause, which doubles
//!                             └─ granted ──▶ taken back from the application ──▶ sent
//! ```
//!
//! A process that has never accepted a connection, such as a master that starts children, keeps
//! none for longer than [`SEEK_URGENT_NS`] while another one accepts: the others' calls may never
//! find their own queues empty.
//!
//! A granted process may have gone meanwhile. The connection then comes back into the queue.

use std::net::SocketAddr;

use packetio::host::{Host, Transfer, Wish};

use crate::context::Accepted;
use crate::effects::notify;
use crate::engine::{Engine, Parts};
use crate::flows::half_opens::ListenerId;
use crate::leaving_connections::{forget_silently, parcel_of, send_parcel};
use crate::limits::{
    SEEK_AGE_NS, SEEK_PAUSE_NS_MAX, SEEK_URGENT_NS, TRANSFERS_OUT_MAX, UNSHARED_LOOK_NS,
};
use crate::transfer_lists::Transfers;

/// Asks the host about connections that wait too long, and tells it of processes that accept now.
pub(crate) fn seek(engine: &mut Engine, transfers: &mut Transfers, host: &mut dyn Host) {
    let Parts {
        env,
        flows,
        host_wishes,
        ..
    } = engine.parts();
    let listeners = flows.listeners_mut();
    host_wishes.accepts_look_ns = None;
    if !listeners.returned().is_empty() {
        listeners.tell_returned(|local| host.ask(Wish::Accepts(local)));
    }
    for at in 0..listeners.awaited().len() {
        let index = listeners.awaited()[at];
        let endpoint = listeners.endpoint(index);
        let (Some((ip, port)), Some(listener)) = (endpoint, listeners.by_index_mut(index)) else {
            continue;
        };
        let oldest_ns = listener.queue.oldest_ns();
        let search = &mut listener.queue.search;
        let (Some(oldest_ns), None) = (oldest_ns, search.asked) else {
            continue;
        };
        let aged_ns = oldest_ns + SEEK_AGE_NS;
        if aged_ns.max(search.next_ns) <= env.now_ns {
            let local = SocketAddr::new(ip, port);
            if host.is_shared(local) {
                let number = transfers.new_number();
                search.asked = Some(number);
                host.transfer(Transfer::Seek {
                    number,
                    local,
                    accepts: search.has_accepted,
                    is_urgent: !search.has_accepted && env.now_ns - oldest_ns >= SEEK_URGENT_NS,
                });
                continue;
            }
            search.next_ns = env.now_ns + UNSHARED_LOOK_NS;
        }
        let due_ns = Some(aged_ns.max(search.next_ns));
        let look_ns = &mut host_wishes.accepts_look_ns;
        *look_ns = [*look_ns, due_ns].into_iter().flatten().min();
    }
}

/// Answers another stack's search: true if a call waits for a connection at `local`, and none is
/// there or expected. `is_urgent`: true also if the process accepts and is busy.
pub(crate) fn wants_one(engine: &mut Engine, local: SocketAddr, is_urgent: bool) -> bool {
    let Parts { env, flows, .. } = engine.parts();
    let listeners = flows.listeners_mut();
    for index in 0..listeners.span() {
        if listeners.endpoint(index) != Some((local.ip(), local.port())) {
            continue;
        }
        let Some(listener) = listeners.by_index_mut(index) else {
            continue;
        };
        let queue = &mut listener.queue;
        let is_expected = env.now_ns < queue.search.promised_until_ns;
        let is_free = queue.has_calls() && queue.oldest_ns().is_none();
        let is_busy = is_urgent && queue.search.has_accepted && queue.has_room();
        if (is_free || is_busy) && !is_expected {
            queue.search.promised_until_ns = env.now_ns + SEEK_AGE_NS;
            return true;
        }
    }
    false
}

/// Handles the answer to a search. False: the number is none of a search.
pub(crate) fn answered(
    (engine, transfers): (&mut Engine, &mut Transfers),
    host: &mut dyn Host,
    number: u32,
    is_granted: bool,
) -> bool {
    let Parts { env, flows, .. } = engine.parts();
    let now_ns = env.now_ns;
    let listeners = flows.listeners_mut();
    let Some(id) = listeners.asked(number) else {
        return false;
    };
    let endpoint = listeners.endpoint(id.index);
    let (Some((ip, port)), Some(listener)) = (endpoint, listeners.at_mut(id)) else {
        return true;
    };
    let search = &mut listener.queue.search;
    search.asked = None;
    if is_granted {
        search.is_passed_over |= !search.has_accepted;
        search.pause_ns = SEEK_AGE_NS;
        hand_over((engine, transfers), host, id, SocketAddr::new(ip, port));
    } else {
        search.next_ns = now_ns + search.pause_ns;
        search.pause_ns = (2 * search.pause_ns).min(SEEK_PAUSE_NS_MAX);
    }
    true
}

/// Sends the oldest connection of a listener to the process that was found, unless the application
/// has accepted it meanwhile.
fn hand_over(
    (engine, transfers): (&mut Engine, &mut Transfers),
    host: &mut dyn Host,
    id: ListenerId,
    local: SocketAddr,
) {
    if transfers.sent.len() >= TRANSFERS_OUT_MAX {
        return;
    }
    let Parts { flows, .. } = engine.parts();
    let listener = flows.listeners_mut().at_mut(id);
    let Some(accepted) = listener.and_then(|listener| listener.queue.take_back()) else {
        return;
    };
    let socket = flows.resolve(accepted.socket);
    let parcel = socket.and_then(|socket| Some((socket, parcel_of(flows, socket)?)));
    match parcel {
        Some((socket, parcel)) => {
            forget_silently(engine, socket);
            send_parcel((engine, transfers), host, (local, true), parcel);
        }
        None => queue_again(engine, id, accepted),
    }
}

/// Puts a connection that cannot move, such as one that its peer has reset, at the end of its
/// queue.
fn queue_again(engine: &mut Engine, id: ListenerId, accepted: Accepted) {
    let Parts {
        env, flows, events, ..
    } = engine.parts();
    let listeners = flows.listeners_mut();
    listeners.push_accepted(id, accepted, env.now_ns);
    if let Some(socket) = listeners.at(id).map(|listener| listener.socket.index) {
        flows.block(socket).add_in_edge();
        notify(flows, events, socket);
    }
}
