//! The loss of one port among several: its addresses and routes are removed, and its connections
//! end with `ENETDOWN`. Connections on other ports continue.

use rustix::io::Errno;
use wire::Addr;

use crate::effects::apply_effects;
use crate::engine::{Engine, Parts, remove_half_open};
use crate::flows::slot::Role;
use crate::network::layer::FIRST_PORT;
use crate::requests::answers::fail_socket;

/// Handles a port that is gone for good. `next`: the first port that remains.
#[cold]
pub(crate) fn lose_port(engine: &mut Engine, port: u8, next: u8) {
    let parts = engine.parts();
    parts.counters.ports_lost += 1;
    let held = parts.network.addresses().iter();
    let lost: Vec<Addr> = held
        .filter(|own| own.port == port)
        .map(|own| Addr::from(own.cidr.address()))
        .collect();
    parts.network.lose_port(port, next);
    // Resets of these connections are not sent: they would leave by another port, from unknown
    // addresses.
    let before = parts.schedule.control(FIRST_PORT).len();
    for address in lost {
        end_connections_of(engine, address);
        let parts = engine.parts();
        for index in 0..parts.flows.half_opens().span() {
            let half_open = parts.flows.half_opens().at(index);
            if half_open.is_some_and(|slot| slot.key.local == address) {
                remove_half_open(parts.flows, parts.schedule, index);
            }
        }
    }
    let Parts { schedule, .. } = engine.parts();
    schedule.control(FIRST_PORT).truncate(before);
}

/// Ends all connections from an address that is gone.
pub(crate) fn end_connections_of(engine: &mut Engine, address: Addr) {
    for socket in 0..engine.view().flows.sockets().span() {
        let parts = engine.parts();
        if parts.flows.role(socket) != Role::Connection
            || parts.flows.slot(socket).key.local != address
        {
            continue;
        }
        fail_socket(parts.flows, parts.events, socket, Errno::NETDOWN);
        if let Some(conn) = parts.flows.slot(socket).live_mut() {
            let effects = conn.abort(&mut parts.env.cx());
            apply_effects(engine, socket, effects);
        }
    }
}
