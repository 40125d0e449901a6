//! New connections of listeners: into the accept queue, with the options of their listener.

use ring::socket_block::{SocketId, SocketState};
use wire::FlowKey;

use crate::context::{Accepted, name_of, socket_addr};
use crate::core::Core;
use crate::effects::{apply_effects, notify};
use crate::flows::half_opens::ListenerId;
use crate::requests::options::inherit_option;

/// Puts a new connection into its listener's accept queue, which has room. This is the last
/// step, when everything that the application may ask of the connection is ready.
pub(crate) fn announce_accepted(
    core: &mut Core,
    listener: ListenerId,
    id: SocketId,
    key: &FlowKey,
) {
    let block = core.flows.sockets.block(id.index);
    block.set_names(
        name_of(key.local, key.local_port),
        name_of(key.remote, key.remote_port),
    );
    block.add_state(SocketState::CONNECTED);
    let mut next = 0;
    while let Some(listening) = core.flows.listeners.at_mut(listener)
        && let Some(&option) = listening.options.get(next)
    {
        let effects = inherit_option(core, id.index, option);
        apply_effects(core, id.index, effects);
        next += 1;
    }
    let Some(listening) = core.flows.listeners.at(listener) else {
        return;
    };
    let (local, remote) = (
        socket_addr(key.local, key.local_port),
        socket_addr(key.remote, key.remote_port),
    );
    let listener_socket = listening.socket.index;
    let accepted = Accepted {
        socket: id,
        remote,
        local,
    };
    let now_ns = core.env.now_ns;
    (core.flows.listeners).push_accepted(listener, accepted, now_ns);
    core.counters.accepted += 1;
    core.flows.sockets.block(listener_socket).add_in_edge();
    notify(&mut core.flows, &mut core.events, listener_socket);
}
