//! The host behind the port: its news for the stack, and the stack's requests to it
//! (`packetio::host`).
//!
//! Such a host does ARP and ND, and owns addresses and routes: `mill mux`. The turn calls it once,
//! between timers and output.

use packetio::host::{Change, Host, NoPorts, Wish};
use rustix::io::Errno;
use wire::{Addr, MacAddr};

use crate::arrivals::other_in::release_waiters;
use crate::core::Core;
use crate::effects::apply_effects;
use crate::flows::Flows;
use crate::flows::slot::Role;
use crate::host_wishes::HostWishes;
use crate::limits::{LENT_PORTS_LOOK_NS, PLACE_LOOK_NS};
use crate::network::addresses::IpCidr;
use crate::port_loss::end_connections_of;
use crate::requests::answers::answer;
use crate::requests::connect::connect;
use crate::transfers::{exchange_transfers, is_transferring};

/// Applies what changed, and asks for next hops.
pub(crate) fn exchange(core: &mut Core, host: &mut dyn Host) {
    let mut are_links_old = false;
    while let Some(change) = host.next_change() {
        are_links_old |= matches!(
            change,
            Change::Mac(_) | Change::RouteAdded(_) | Change::RouteRemoved(_) | Change::OwnHop(_)
        );
        host_changed(core, change);
    }
    if are_links_old {
        forget_links(&mut core.flows);
    }
    exchange_transfers(core, host);
    while let Some(lease) = host.next_lease() {
        ports_came(core, lease);
    }
    for address in core.network.take_wanted() {
        // A question that finds no room is asked again, like one that is not answered.
        let _ = host.ask(Wish::NextHop(address));
    }
    let wishes = &mut core.host_wishes;
    if !wishes.waiting.is_empty() && !wishes.is_asked {
        wishes.is_asked = host.ask(Wish::LocalPorts);
    }
    let now_ns = core.env.now_ns;
    let is_due = |at: Option<u64>| at.is_some_and(|due_ns| due_ns <= now_ns);
    let (places, ports) = (wishes.places_due_ns(), wishes.ports_look_ns);
    if is_due(places) {
        release_places(core, host);
    }
    if is_due(ports) {
        return_ports(&mut core.flows, &mut core.host_wishes, now_ns, host);
    }
}

/// The host has lent more local ports, or has none: opens that wait begin, or fail.
#[cold]
fn ports_came(core: &mut Core, lease: Result<(u16, u16), NoPorts>) {
    core.host_wishes.is_asked = false;
    if let Ok(ports) = lease {
        core.flows.take_lent_ports(ports);
        core.host_wishes.ports_look_ns = Some(core.env.now_ns + LENT_PORTS_LOOK_NS);
    }
    for open in std::mem::take(&mut core.host_wishes.waiting) {
        if lease.is_ok() {
            connect(core, open);
        } else if let Some(socket) = core.flows.sockets.resolve(open.socket)
            && core.flows.sockets.role(socket) == Role::Reserved
        {
            answer(
                &mut core.flows,
                &mut core.events,
                socket,
                Err(Errno::ADDRNOTAVAIL),
                open.answer,
            );
        }
    }
}

/// Gives one block of lent ports back that nothing uses, if the others are plenty.
#[cold]
fn return_ports(flows: &mut Flows, host_wishes: &mut HostWishes, now_ns: u64, host: &mut dyn Host) {
    let idle = flows.idle_lent_ports();
    if let Some(ports) = idle.filter(|_| host_wishes.waiting.is_empty())
        && host.ask(Wish::ReturnPorts(ports.0, ports.1))
    {
        flows.give_lent_ports_back(ports);
    }
    let next = now_ns + LENT_PORTS_LOOK_NS;
    host_wishes.ports_look_ns = flows.has_lent_ports().then_some(next);
}

/// Releases places at which no connection is left. A wish that finds no room is made again.
#[cold]
fn release_places(core: &mut Core, host: &mut dyn Host) {
    let is_transferring = is_transferring(&core.flows, &core.transfers);
    let flows = &core.flows;
    core.host_wishes.left.retain_mut(|left| {
        let local = left.local;
        left.is_told = left.is_told || host.ask(Wish::Leave(local));
        let is_used = flows.has_flow_at((local.ip(), false), local.port());
        is_used || is_transferring || !left.is_told || !host.ask(Wish::Release(local))
    });
    core.host_wishes.look_ns = core.env.now_ns + PLACE_LOOK_NS;
}

#[cold]
fn host_changed(core: &mut Core, change: Change) {
    match change {
        Change::NextHop { address, mac } => {
            let mac = mac.map(|mac| MacAddr(mac.0));
            if let Some(id) = core.network.next_hop(address, mac, core.env.now_ns) {
                release_waiters(core, id, None);
            }
        }
        Change::AddressAdded { address, prefix } => {
            if let Ok(cidr) = IpCidr::new(address, prefix) {
                core.network.add_address(cidr);
            }
        }
        Change::AddressRemoved { address, prefix } => {
            if let Ok(cidr) = IpCidr::new(address, prefix) {
                core.network.remove_address(cidr);
                end_connections_of(core, Addr::from(address));
            }
        }
        Change::RouteAdded(route) => {
            if let Ok(prefix) = IpCidr::new(route.destination, route.prefix) {
                core.network.replace_route(prefix, route.gateway);
            }
        }
        Change::RouteRemoved(route) => {
            if let Ok(prefix) = IpCidr::new(route.destination, route.prefix) {
                core.network.remove_route(prefix);
            }
        }
        Change::Mac(mac) => core.network.set_mac(MacAddr(mac.0)),
        Change::OwnHop(mac) => {
            core.network.set_own_hop(mac.map(|mac| MacAddr(mac.0)));
            core.flows.ledger.set_own_peers(mac.is_some());
        }
        Change::Mtu(mtu) => {
            core.network.set_mtu(mtu as usize);
            narrow_connections(core);
        }
        Change::Complete | Change::Link { .. } | Change::Gone => {}
    }
}

/// Connections look for their next hop again, and make the headers of their frames anew.
#[cold]
fn forget_links(flows: &mut Flows) {
    for slot in flows.sockets.warm_slots_mut() {
        slot.conn.forget_headers();
        // One that waits for a next hop looks again when the wait is over.
        if !slot.awaits_neighbour {
            slot.neighbour = None;
        }
    }
}

/// Connections send no longer segments than the link takes; the service drops longer ones.
fn narrow_connections(core: &mut Core) {
    for socket in 0..core.flows.sockets.span() {
        if core.flows.sockets.role(socket) != Role::Connection {
            continue;
        }
        let slot = core.flows.sockets.slot(socket);
        let mss = core.network.mss_for(slot.key.local);
        if let Some(conn) = slot.live_mut() {
            let effects = conn.on_link_mss(&mut core.env.cx(), mss);
            apply_effects(core, socket, effects);
        }
    }
}
