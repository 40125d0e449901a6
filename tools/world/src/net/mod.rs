//! The network of a world: nodes, and lines between them. A node sends a frame on one of its links.
//! The frame arrives as an event at the node on the other end.

mod line;
mod node;
pub mod packet;

use std::net::IpAddr;

use wire::MacAddr;

use self::line::Line;
use self::node::Node;
use super::plan::{NodePlan, Plan};
use super::queue::{Event, Flying, Queue};
use super::random::Random;

/// See the module's documentation.
pub struct Net {
    nodes: Vec<Node>,
    links: Vec<Link>,
    addresses: Addresses,
}

struct Link {
    /// For each end, the node and the link's place in the node's list.
    ends: [(usize, usize); 2],
    mtu: usize,
    lines: [Line; 2],
}

/// The addresses of the hosts.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// Whether each host has its own subnet, with a router.
    pub is_routed: bool,
    hosts: usize,
}

impl Addresses {
    /// The addresses of a plan's hosts.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        Self {
            is_routed: matches!(plan.nodes.last(), Some(NodePlan::Router { .. })),
            hosts: plan.hosts.len(),
        }
    }

    /// A host's address.
    #[must_use]
    pub fn host(&self, host: usize, v6: bool) -> IpAddr {
        let number = host as u8 + 1;
        match (self.is_routed, v6) {
            (true, false) => IpAddr::from([10, number, 0, 2]),
            (false, false) => IpAddr::from([10, 0, 0, number]),
            (true, true) => IpAddr::from([0xfd00, 0, 0, number.into(), 0, 0, 0, 2]),
            (false, true) => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, number.into()]),
        }
    }

    /// The router's address in a host's subnet.
    #[must_use]
    pub fn gateway(&self, host: usize, v6: bool) -> IpAddr {
        let number = host as u8 + 1;
        if v6 {
            IpAddr::from([0xfd00, 0, 0, number.into(), 0, 0, 0, 1])
        } else {
            IpAddr::from([10, number, 0, 1])
        }
    }

    /// The host that has this address.
    #[must_use]
    pub fn owner(&self, ip: IpAddr) -> Option<usize> {
        (0..self.hosts).find(|host| self.host(*host, ip.is_ipv6()) == ip)
    }

    /// Whether a router answers for this address.
    #[must_use]
    pub fn is_gateway(&self, ip: IpAddr) -> bool {
        self.is_routed && (0..self.hosts).any(|host| self.gateway(host, ip.is_ipv6()) == ip)
    }
}

/// MAC address of a host.
#[must_use]
pub fn host_mac(host: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host as u8 + 1])
}

/// MAC address of every router. One is enough, since a host's link leads to one router at most.
pub(super) const ROUTER_MAC: MacAddr = MacAddr([2, 1, 0, 0, 0, 1]);

impl Net {
    /// The network of a plan.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let mut joints: Vec<Vec<(usize, usize)>> = vec![Vec::new(); plan.nodes.len()];
        let mut links = Vec::new();
        for (number, link) in plan.links.iter().enumerate() {
            let ends = [0, 1].map(|side| {
                let joint = &mut joints[link.ends[side]];
                joint.push((number, side));
                (link.ends[side], joint.len() - 1)
            });
            let line = |side: usize| {
                let dice = [1_000, 2_000]
                    .map(|first| Random::new(plan.seed, first + number as u64 * 2 + side as u64));
                Line::new(link.lines[side].clone(), plan.heal_ns, dice)
            };
            links.push(Link {
                ends,
                mtu: link.mtu,
                lines: [line(0), line(1)],
            });
        }
        let nodes = node::nodes(plan, joints);
        Self {
            nodes,
            links,
            addresses: Addresses::of(plan),
        }
    }

    /// Puts a frame onto one of a node's links.
    pub fn send(
        &mut self,
        queue: &mut Queue,
        now_ns: u64,
        node: usize,
        port: usize,
        frame: Flying,
    ) {
        let (link, side) = self.nodes[node].joints[port];
        let link = &mut self.links[link];
        let (to, to_port) = link.ends[1 - side];
        link.lines[side].carry(now_ns, frame, |due_ns, frame| {
            let event = Event::Arrive {
                node: to,
                port: to_port,
                frame,
            };
            queue.enter(due_ns, event);
        });
    }

    /// Handles a frame that arrived at a switch or router.
    pub fn pass_on(
        &mut self,
        queue: &mut Queue,
        now_ns: u64,
        node: usize,
        port: usize,
        frame: Flying,
    ) {
        let links = &self.links;
        let mtu = |(link, _): (usize, usize)| links[link].mtu;
        let mut out = Vec::with_capacity(1);
        self.nodes[node].pass_on(&self.addresses, mtu, port, frame, &mut out);
        for (port, frame) in out {
            self.send(queue, now_ns, node, port, frame);
        }
    }

    /// The number of the host at `node`; `None` for a switch or router.
    #[must_use]
    pub fn host_of(&self, node: usize) -> Option<usize> {
        self.nodes[node].host
    }
}
