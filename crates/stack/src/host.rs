//! The exchange with the host behind the port: its news for the stack, and the stack's requests
//! (`packetio::host`).
//!
//! A host such as `mill mux` does ARP and ND, and owns addresses and routes. Each turn calls the
//! module once, between timers and output.

use packetio::host::{Change, Host, NoPorts, Wish};
use rustix::io::Errno;
use tcp::isn::IsnGenerator;
use wire::{Addr, MacAddr};

use crate::arrivals::other_in::release_waiters;
use crate::core::Core;
use crate::effects::apply_effects;
use crate::engine::{Engine, Parts};
use crate::flows::Flows;
use crate::flows::slot::Role;
use crate::host_wishes::HostWishes;
use crate::limits::{LENT_PORTS_LOOK_NS, PLACE_LOOK_NS};
use crate::network::addresses::IpCidr;
use crate::port_loss::end_connections_of;
use crate::requests::answers::answer;
use crate::requests::connect::connect;
use crate::transfer_lists::Transfers;
use crate::transfers::{exchange_transfers, is_transferring};

/// Applies the host's news, and sends it the stack's requests.
pub(crate) fn exchange(core: &mut Core, host: &mut dyn Host) {
    let (engine, admission) = core.split();
    let mut are_links_old = false;
    while let Some(change) = host.next_change() {
        are_links_old |= matches!(
            change,
            Change::Mac(_) | Change::RouteAdded(_) | Change::RouteRemoved(_) | Change::OwnHop(_)
        );
        host_changed(engine, change);
    }
    if are_links_old {
        forget_links(engine.parts().flows);
    }
    exchange_transfers(engine, admission.transfers_mut(), host);
    while let Some(lease) = host.next_lease() {
        ports_came(engine, admission.isn(), lease);
    }
    let Parts {
        env,
        flows: _,
        network,
        host_wishes,
        ..
    } = engine.parts();
    for address in network.take_wanted() {
        // A request that finds no room is repeated, like one without an answer.
        let _ = host.ask(Wish::NextHop(address));
    }
    let wishes = &mut *host_wishes;
    if !wishes.waiting.is_empty() && !wishes.is_asked {
        wishes.is_asked = host.ask(Wish::LocalPorts);
    }
    let now_ns = env.now_ns;
    let is_due = |at: Option<u64>| at.is_some_and(|due_ns| due_ns <= now_ns);
    let (places, ports) = (wishes.places_due_ns(), wishes.ports_look_ns);
    if is_due(places) {
        let parts = engine.parts();
        let places = (&*parts.flows, parts.host_wishes, now_ns);
        release_places(places, admission.transfers(), host);
    }
    if is_due(ports) {
        let parts = engine.parts();
        return_ports(parts.flows, parts.host_wishes, now_ns, host);
    }
}

/// Handles the host's answer about local ports: waiting opens begin, or fail if there are none.
#[cold]
fn ports_came(engine: &mut Engine, isn: &mut IsnGenerator, lease: Result<(u16, u16), NoPorts>) {
    let parts = engine.parts();
    parts.host_wishes.is_asked = false;
    if let Ok(ports) = lease {
        parts.flows.take_lent_ports(ports);
        parts.host_wishes.ports_look_ns = Some(parts.env.now_ns + LENT_PORTS_LOOK_NS);
    }
    for open in std::mem::take(&mut parts.host_wishes.waiting) {
        if lease.is_ok() {
            connect(engine, isn, open);
            continue;
        }
        let Parts { flows, events, .. } = engine.parts();
        if let Some(socket) = flows.resolve(open.socket)
            && flows.role(socket) == Role::Reserved
        {
            let refusal = Err(Errno::ADDRNOTAVAIL);
            answer(flows, events, socket, refusal, open.answer);
        }
    }
}

/// Returns one unused block of lent ports to the host, if enough others are free.
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

/// Releases addresses at which no connection is left. A request that finds no room is repeated
/// later.
#[cold]
fn release_places(
    (flows, wishes, now_ns): (&Flows, &mut HostWishes, u64),
    transfers: &Transfers,
    host: &mut dyn Host,
) {
    let is_transferring = is_transferring(flows, transfers);
    wishes.left.retain_mut(|left| {
        let local = left.local;
        left.is_told = left.is_told || host.ask(Wish::Leave(local));
        let is_used = flows.has_flow_at((local.ip(), false), local.port());
        is_used || is_transferring || !left.is_told || !host.ask(Wish::Release(local))
    });
    wishes.look_ns = now_ns + PLACE_LOOK_NS;
}

#[cold]
fn host_changed(engine: &mut Engine, change: Change) {
    let parts = engine.parts();
    match change {
        Change::NextHop { address, mac } => {
            let mac = mac.map(|mac| MacAddr(mac.0));
            if let Some(id) = parts.network.next_hop(address, mac, parts.env.now_ns) {
                release_waiters(engine, id, None);
            }
        }
        Change::AddressAdded { address, prefix } => {
            if let Ok(cidr) = IpCidr::new(address, prefix) {
                parts.network.add_address(cidr);
            }
        }
        Change::AddressRemoved { address, prefix } => {
            if let Ok(cidr) = IpCidr::new(address, prefix) {
                parts.network.remove_address(cidr);
                end_connections_of(engine, Addr::from(address));
            }
        }
        Change::RouteAdded(route) => {
            if let Ok(prefix) = IpCidr::new(route.destination, route.prefix) {
                parts.network.replace_route(prefix, route.gateway);
            }
        }
        Change::RouteRemoved(route) => {
            if let Ok(prefix) = IpCidr::new(route.destination, route.prefix) {
                parts.network.remove_route(prefix);
            }
        }
        Change::Mac(mac) => parts.network.set_mac(MacAddr(mac.0)),
        Change::OwnHop(mac) => {
            parts.network.set_own_hop(mac.map(|mac| MacAddr(mac.0)));
            parts.flows.set_own_peers(mac.is_some());
        }
        Change::Mtu(mtu) => {
            parts.network.set_mtu(mtu as usize);
            narrow_connections(engine);
        }
        Change::Complete | Change::Link { .. } | Change::Gone => {}
    }
}

/// Makes connections look up their next hop again and rebuild their stored headers.
#[cold]
fn forget_links(flows: &mut Flows) {
    for slot in flows.sockets_mut().warm_slots_mut() {
        slot.conn.forget_headers();
        // A connection that waits for a next hop looks again when the wait ends.
        if !slot.awaits_neighbour {
            slot.neighbour = None;
        }
    }
}

/// Limits connections to segments that fit the link; the service drops longer ones.
fn narrow_connections(engine: &mut Engine) {
    for socket in 0..engine.view().flows.sockets().span() {
        let parts = engine.parts();
        if parts.flows.role(socket) != Role::Connection {
            continue;
        }
        let slot = parts.flows.slot(socket);
        let mss = parts.network.mss_for(slot.key.local);
        if let Some(conn) = slot.live_mut() {
            let effects = conn.on_link_mss(&mut parts.env.cx(), mss);
            apply_effects(engine, socket, effects);
        }
    }
}
