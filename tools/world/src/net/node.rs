//! Actions of switches and routers on a frame.
//!
//! A switch knows the link that leads to each host. A router answers ARP and neighbour
//! solicitations for the gateways and decrements hop counts. A packet too big for the next link
//! gets an ICMP error, or is dropped silently.

use std::net::IpAddr;

use wire::MacAddr;

use crate::plan::{NodePlan, Plan};
use crate::queue::Flying;

use super::packet::{self, Forward, View};
use super::{Addresses, ROUTER_MAC, host_mac};

/// See the module's documentation.
pub(super) struct Node {
    pub host: Option<usize>,
    kind: NodePlan,
    /// The node's links: the link's number, and which of its ends this is.
    pub joints: Vec<(usize, usize)>,
    /// For each host, the place in `joints` of the link that leads to it.
    ways: Vec<usize>,
    /// For each link, the host at the other end, if there is one.
    neighbours: Vec<Option<usize>>,
}

/// The nodes of a plan, with their routes.
pub(super) fn nodes(plan: &Plan, joints: Vec<Vec<(usize, usize)>>) -> Vec<Node> {
    let far = |(link, side): (usize, usize)| plan.links[link].ends[1 - side];
    let node = |(number, kind): (usize, &NodePlan)| {
        let ways = (0..plan.hosts.len())
            .map(|host| {
                let leads =
                    |joint: &(usize, usize)| reaches(&joints, &far, far(*joint), number, host);
                joints[number].iter().position(leads).unwrap_or(0)
            })
            .collect();
        let neighbours = joints[number]
            .iter()
            .map(|joint| match plan.nodes[far(*joint)] {
                NodePlan::Host(host) => Some(host),
                _ => None,
            })
            .collect();
        Node {
            host: match kind {
                NodePlan::Host(host) => Some(*host),
                _ => None,
            },
            kind: *kind,
            joints: joints[number].clone(),
            ways,
            neighbours,
        }
    };
    plan.nodes.iter().enumerate().map(node).collect()
}

/// Whether the tree behind `at`, seen from `from`, contains the node of `host`.
fn reaches(
    joints: &[Vec<(usize, usize)>],
    far: &impl Fn((usize, usize)) -> usize,
    at: usize,
    from: usize,
    host: usize,
) -> bool {
    at == host
        || joints[at]
            .iter()
            .map(|joint| far(*joint))
            .any(|next| next != from && reaches(joints, far, next, at, host))
}

impl Node {
    /// Handles an arrived frame. Adds the frames that leave in response, each with the place of its
    /// link.
    pub fn pass_on(
        &mut self,
        addresses: &Addresses,
        mtu: impl Fn((usize, usize)) -> usize,
        port: usize,
        frame: Flying,
        out: &mut Vec<(usize, Flying)>,
    ) {
        match self.kind {
            NodePlan::Host(_) => {}
            NodePlan::Switch => self.switch(port, frame, out),
            NodePlan::Router { tells_too_big } => {
                self.route(addresses, mtu, tells_too_big, port, frame, out);
            }
        }
    }

    fn switch(&self, port: usize, frame: Flying, out: &mut Vec<(usize, Flying)>) {
        let Some(to) = packet::destination(&frame.bytes) else {
            return;
        };
        if !to.is_multicast() {
            let owner = (0..self.ways.len()).find(|host| host_mac(*host) == to);
            let way = owner.map(|host| self.ways[host]);
            out.extend(way.filter(|way| *way != port).map(|way| (way, frame)));
            return;
        }
        for other in (0..self.joints.len()).filter(|other| *other != port) {
            let copy = Flying {
                bytes: frame.bytes.clone(),
                forged: frame.forged,
                damaged: frame.damaged,
            };
            out.push((other, copy));
        }
    }

    fn route(
        &self,
        addresses: &Addresses,
        mtu: impl Fn((usize, usize)) -> usize,
        tells_too_big: bool,
        port: usize,
        mut frame: Flying,
        out: &mut Vec<(usize, Flying)>,
    ) {
        let answer = |bytes: Vec<u8>| {
            let answer = Flying {
                bytes,
                forged: false,
                damaged: false,
            };
            (port, answer)
        };
        match packet::view(&frame.bytes) {
            Some(View::Question { asked }) if addresses.is_gateway(asked) => {
                out.extend(packet::answer_question(&frame.bytes, ROUTER_MAC).map(answer));
            }
            Some(View::Ip { dst, len, .. }) => {
                let Some(way) = addresses.owner(dst).map(|host| self.ways[host]) else {
                    return;
                };
                let next_mtu = mtu(self.joints[way]);
                if len > next_mtu {
                    let source = self.own_address(addresses, dst.is_ipv6());
                    let too_big = packet::too_big(&frame.bytes, source, next_mtu);
                    out.extend(too_big.filter(|_| tells_too_big).map(answer));
                    return;
                }
                let to = self.next_mac(way);
                if packet::forward(&mut frame.bytes, ROUTER_MAC, to) == Forward::Onward {
                    out.push((way, frame));
                }
            }
            _ => {}
        }
    }

    fn next_mac(&self, way: usize) -> MacAddr {
        self.neighbours[way].map_or(ROUTER_MAC, host_mac)
    }

    /// The source address of a router's ICMP errors.
    fn own_address(&self, addresses: &Addresses, v6: bool) -> IpAddr {
        let host = self.neighbours.iter().flatten().next().copied();
        addresses.gateway(host.unwrap_or(0), v6)
    }
}
