//! The routing table: the next hop of a packet by its destination.
//!
//! The table holds static IPv4 and IPv6 routes and finds the longest matching prefix. Configuration
//! fills it. Active opens ask it, and so does every answer to a packet without a connection.
//!
//! ```text
//! sorted by (length descending, network, port):   /32 /32 | /24 /24 /24 | /8 | /0
//! groups, one per length in use:                  [32: 0..2] [24: 2..5] [8: 5..6] [0: 6..7]
//! look-up: binary search in each group, longest first; the first hit is the answer
//! ```
//!
//! Each port may have routes for the same prefix. The first port's route wins, unless the caller
//! asks for a port or skips a gateway that does not answer. A port may have several gateways for
//! one prefix, in the order in which they were added.

use core::net::IpAddr;
use core::ops::Range;

use thiserror::Error;

use crate::limits::ROUTES_MAX;
use crate::network::addresses::{IpCidr, is_unicast};

#[cfg(test)]
mod tests;

/// A route. Without a gateway the prefix is on the link of `port`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Destinations that the route covers; host bits are ignored.
    pub prefix: IpCidr,
    /// The router for these destinations; `None`: they are on the link.
    pub gateway: Option<IpAddr>,
    /// Index of the port by which packets leave.
    pub port: u8,
}

impl Route {
    fn next_hop(&self, destination: IpAddr) -> NextHop {
        NextHop {
            address: self.gateway.unwrap_or(destination),
            port: self.port,
        }
    }
}

/// The next hop of a packet: the neighbour's address, and the port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NextHop {
    /// The gateway, or the destination itself if it is on the link.
    pub address: IpAddr,
    /// Index of the port by which the packet leaves.
    pub port: u8,
}

/// The reason why a route was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RouteError {
    /// The table holds [`ROUTES_MAX`] routes already.
    #[error("too many routes (ROUTES_MAX)")]
    Full,
    /// The table holds this route already, or the prefix is on the link of this port.
    #[error("a route for this prefix exists")]
    Duplicate,
    /// Prefix and gateway are of different families.
    #[error("gateway of another address family than its prefix")]
    GatewayFamily,
    /// The gateway is unspecified, multicast or broadcast.
    #[error("gateway is not a unicast address")]
    GatewayNotUnicast,
}

/// The routing table, with at most [`ROUTES_MAX`] routes over both families.
#[derive(Debug)]
pub struct Routes {
    v4: Table,
    v6: Table,
    /// The last question to [`lookup`](Self::lookup) and its answer, for bursts to one destination.
    last: Option<(IpAddr, NextHop)>,
    /// True if a port has several gateways for one prefix.
    has_choices: bool,
}

impl Default for Routes {
    fn default() -> Self {
        Self::new()
    }
}

impl Routes {
    /// An empty table: nothing is reachable.
    pub fn new() -> Routes {
        Routes {
            v4: Table::new(),
            v6: Table::new(),
            last: None,
            has_choices: false,
        }
    }

    /// Adds a route. A further gateway for a prefix and port comes behind the others.
    ///
    /// # Errors
    /// [`RouteError`] if the table is full, holds the route already, or the gateway is invalid.
    pub fn add(&mut self, route: Route) -> Result<(), RouteError> {
        if let Some(gateway) = route.gateway {
            if gateway.is_ipv4() != route.prefix.address().is_ipv4() {
                return Err(RouteError::GatewayFamily);
            }
            if !is_unicast(gateway) {
                return Err(RouteError::GatewayNotUnicast);
            }
        }
        if self.len() == ROUTES_MAX {
            return Err(RouteError::Full);
        }
        let route = Route {
            prefix: route.prefix.network(),
            ..route
        };
        self.table_mut(route.prefix.address()).insert(route)?;
        self.changed();
        Ok(())
    }

    /// Removes the routes of `port` for exactly this prefix, and returns the first.
    pub fn remove(&mut self, prefix: IpCidr, port: u8) -> Option<Route> {
        let prefix = prefix.network();
        let removed = self.table_mut(prefix.address()).remove(prefix, port)?;
        self.changed();
        Some(removed)
    }

    /// Removes all routes of a port.
    pub fn remove_port(&mut self, port: u8) {
        for table in [&mut self.v4, &mut self.v6] {
            table.routes.retain(|route| route.port != port);
            table.regroup();
        }
        self.changed();
    }

    /// The next hop for `destination` by longest-prefix match; `None`: the network is unreachable.
    #[inline]
    pub fn lookup(&mut self, destination: IpAddr) -> Option<NextHop> {
        if let Some((address, hop)) = self.last
            && address == destination
        {
            return Some(hop);
        }
        let hop = self.hops(destination).next()?;
        self.last = Some((destination, hop));
        Some(hop)
    }

    /// All next hops for `destination`, longest prefix first, then in order of ports.
    pub fn hops(&self, destination: IpAddr) -> impl Iterator<Item = NextHop> + Clone {
        self.table(destination)
            .matches(key(destination))
            .map(move |route| route.next_hop(destination))
    }

    /// True if a port has several gateways for one prefix, so that [`choices`](Self::choices) may
    /// differ from [`lookup`](Self::lookup).
    #[inline]
    pub fn has_choices(&self) -> bool {
        self.has_choices
    }

    /// The next hops for `destination` by its longest prefix and by one port: `port`, or the first
    /// that has a route. Several are gateways, in the order of preference.
    pub fn choices(
        &self,
        destination: IpAddr,
        port: Option<u8>,
    ) -> impl Iterator<Item = NextHop> + Clone {
        let mut routes = self
            .table(destination)
            .matches(key(destination))
            .skip_while(move |route| port.is_some_and(|port| route.port != port))
            .peekable();
        let first = routes.peek().map(|route| (route.prefix, route.port));
        routes
            .take_while(move |route| first == Some((route.prefix, route.port)))
            .map(move |route| route.next_hop(destination))
    }

    /// Number of routes held.
    pub fn len(&self) -> usize {
        self.v4.routes.len() + self.v6.routes.len()
    }

    fn table(&self, address: IpAddr) -> &Table {
        match address {
            IpAddr::V4(_) => &self.v4,
            IpAddr::V6(_) => &self.v6,
        }
    }

    fn table_mut(&mut self, address: IpAddr) -> &mut Table {
        if address.is_ipv4() {
            &mut self.v4
        } else {
            &mut self.v6
        }
    }

    fn changed(&mut self) {
        self.last = None;
        self.has_choices = [&self.v4, &self.v6].iter().any(|table| {
            let mut pairs = table.routes.windows(2);
            pairs.any(|pair| order(&pair[0]) == order(&pair[1]))
        });
    }
}

/// Routes of one family. Addresses are 128-bit keys, left-aligned, so both families share the code.
#[derive(Debug)]
struct Table {
    routes: Vec<Route>,
    groups: Vec<Group>,
}

/// Routes `start..end`, which share the prefix length of `mask`.
#[derive(Clone, Copy, Debug)]
struct Group {
    mask: u128,
    start: usize,
    end: usize,
}

impl Table {
    fn new() -> Table {
        Table {
            routes: Vec::new(),
            groups: Vec::new(),
        }
    }

    fn insert(&mut self, route: Route) -> Result<(), RouteError> {
        let held = self.range(&route);
        let is_held = |known: &Route| {
            known.gateway == route.gateway || known.gateway.is_none() || route.gateway.is_none()
        };
        if self.routes[held.clone()].iter().any(is_held) {
            return Err(RouteError::Duplicate);
        }
        self.routes.insert(held.end, route);
        self.regroup();
        Ok(())
    }

    fn remove(&mut self, prefix: IpCidr, port: u8) -> Option<Route> {
        let held = self.range(&Route {
            prefix,
            gateway: None,
            port,
        });
        let first = self.routes.drain(held).next()?;
        self.regroup();
        Some(first)
    }

    /// Routes whose prefix contains the destination, longest prefix first.
    fn matches(&self, key_of_destination: u128) -> impl Iterator<Item = &Route> + Clone {
        self.groups.iter().flat_map(move |group| {
            let wanted = key_of_destination & group.mask;
            let routes = &self.routes[group.start..group.end];
            let network = |route: &Route| key(route.prefix.address());
            let first = routes.partition_point(|route| network(route) < wanted);
            routes[first..]
                .iter()
                .take_while(move |route| network(route) == wanted)
        })
    }

    /// The routes with the prefix and port of `route`, or the place for them.
    fn range(&self, route: &Route) -> Range<usize> {
        let wanted = order(route);
        let start = self.routes.partition_point(|one| order(one) < wanted);
        let same = self.routes[start..].partition_point(|one| order(one) == wanted);
        start..start + same
    }

    fn regroup(&mut self) {
        self.groups.clear();
        let mut start = 0;
        for same_length in self
            .routes
            .chunk_by(|a, b| a.prefix.prefix_len() == b.prefix.prefix_len())
        {
            let end = start + same_length.len();
            let length = u32::from(same_length[0].prefix.prefix_len());
            self.groups.push(Group {
                mask: u128::MAX.checked_shl(128 - length).unwrap_or(0),
                start,
                end,
            });
            start = end;
        }
    }
}

/// The order of the table: longest prefix first.
fn order(route: &Route) -> (u8, u128, u8) {
    let prefix = route.prefix;
    let length = u8::MAX - prefix.prefix_len();
    (length, key(prefix.address()), route.port)
}

/// The address left-aligned in 128 bits.
fn key(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}
