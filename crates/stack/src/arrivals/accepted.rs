//! Last step of a passive open: a connection gets its listener's options and enters the accept
//! queue.

use std::net::SocketAddr;

use ring::socket_block::{SocketId, SocketState};
use wire::FlowKey;

use crate::context::{Accepted, name_of, socket_addr};
use crate::effects::{apply_effects, notify};
use crate::engine::{Engine, Parts};
use crate::flows::half_opens::ListenerId;
use crate::requests::options::inherit_option;

/// Puts a new connection into its listener's accept queue, which has room. This must be the last
/// step: the application may use the connection at once.
pub(crate) fn announce_accepted(
    engine: &mut Engine,
    listener: ListenerId,
    id: SocketId,
    key: &FlowKey,
) {
    let Parts { flows, .. } = engine.parts();
    let block = flows.block(id.index);
    block.set_names(
        name_of(key.local, key.local_port),
        name_of(key.remote, key.remote_port),
    );
    block.add_state(SocketState::CONNECTED);
    let mut next = 0;
    while let Some(listening) = engine.view().flows.listeners().at(listener)
        && let Some(&option) = listening.options.get(next)
    {
        let effects = inherit_option(engine, id.index, option);
        apply_effects(engine, id.index, effects);
        next += 1;
    }
    let parts = engine.parts();
    let Some(listening) = parts.flows.listeners().at(listener) else {
        return;
    };
    let local = socket_addr(key.local, key.local_port);
    let mut remote = socket_addr(key.remote, key.remote_port);
    if let SocketAddr::V6(remote) = &mut remote {
        remote.set_scope_id(parts.network.scope_id(key.local, key.remote));
    }
    let listener_socket = listening.socket.index;
    let accepted = Accepted {
        socket: id,
        remote,
        local,
    };
    let now_ns = parts.env.now_ns;
    (parts.flows.listeners_mut()).push_accepted(listener, accepted, now_ns);
    parts.counters.accepted += 1;
    parts.flows.block(listener_socket).add_in_edge();
    notify(parts.flows, parts.events, listener_socket);
}
