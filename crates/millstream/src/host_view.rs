//! The host kernel's addresses and routes, copied into the settings of a stack on a wire that takes
//! them from the host (`mux`, `mirror`).
//!
//! Owns nothing. Called when a context is opened.

use std::net::IpAddr;

use packetio::host::HostView;
use stack::{IpCidr, StackConfig};

/// Puts the host's addresses and routes into the settings. Addresses that the user gave only narrow
/// the set. A user who gave none waits for those that the host gets later.
pub(crate) fn take(stack: &mut StackConfig, view: HostView) {
    let wanted: Vec<IpAddr> = stack.addresses.iter().map(IpCidr::address).collect();
    stack.addresses_may_come = wanted.is_empty();
    stack.addresses = view
        .addresses
        .iter()
        .filter(|(address, _)| wanted.is_empty() || wanted.contains(address))
        .filter_map(|(address, prefix)| IpCidr::new(*address, *prefix).ok())
        .collect();
    let mut routes = view.routes;
    routes.sort_by_key(|route| route.metric);
    for route in &routes {
        if let (Ok(prefix), None) = (IpCidr::new(route.destination, route.prefix), route.gateway) {
            stack.on_link.push(prefix);
        }
    }
    for route in &routes {
        let prefix = IpCidr::new(route.destination, route.prefix);
        let (Ok(prefix), Some(gateway)) = (prefix, route.gateway) else {
            continue;
        };
        let subnets = stack.addresses.iter().chain(&stack.on_link);
        let is_near = subnets.into_iter().any(|subnet| subnet.contains(gateway));
        let is_first = !stack.routes.iter().any(|(known, _)| *known == prefix);
        if is_near && is_first {
            stack.routes.push((prefix, gateway));
        }
    }
}
