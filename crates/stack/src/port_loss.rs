//! The end of a port, when another is left: its addresses and routes go, and its connections end
//! with `ENETDOWN`. Connections of the other ports go on.

use rustix::io::Errno;
use wire::Addr;

use crate::core::{Core, remove_half_open};
use crate::effects::apply_effects;
use crate::flows::slot::Role;
use crate::network::layer::FIRST_PORT;
use crate::requests::answers::fail_socket;

/// The port is gone for good. `next`: the first one that is not.
#[cold]
pub(crate) fn lose_port(core: &mut Core, port: u8, next: u8) {
    core.counters.ports_lost += 1;
    let held = core.network.addresses().iter();
    let lost: Vec<Addr> = held
        .filter(|own| own.port == port)
        .map(|own| Addr::from(own.cidr.address()))
        .collect();
    core.network.lose_port(port, next);
    // Resets would leave by another port, where nobody knows their source.
    let before = core.schedule.control(FIRST_PORT).len();
    for address in lost {
        end_connections_of(core, address);
        for index in 0..core.flows.half_opens.span() {
            let half_open = core.flows.half_opens.at(index);
            if half_open.is_some_and(|slot| slot.key.local == address) {
                remove_half_open(&mut core.flows, &mut core.schedule, index);
            }
        }
    }
    core.schedule.control(FIRST_PORT).truncate(before);
}

/// The address is gone: nothing more can come or go.
pub(crate) fn end_connections_of(core: &mut Core, address: Addr) {
    for socket in 0..core.flows.sockets.span() {
        if core.flows.sockets.role(socket) != Role::Connection
            || core.flows.sockets.slot(socket).key.local != address
        {
            continue;
        }
        fail_socket(&mut core.flows, &mut core.events, socket, Errno::NETDOWN);
        if let Some(conn) = core.flows.sockets.slot(socket).live_mut() {
            let effects = conn.abort(&mut core.env.cx());
            apply_effects(core, socket, effects);
        }
    }
}
