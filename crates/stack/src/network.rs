//! The network below TCP, as one stack sees it: its addresses, its routes, its neighbours, and the frames of the cold path.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packetio::Capabilities;
use rustix::io::Errno;
use tcp::Connection;
use wire::{Addr, MacAddr};

use crate::addresses::{Destination, IpCidr, LocalAddresses};
use crate::arp_nd::{self, LinkIdentity};
use crate::config::{ConfigError, StackConfig};
use crate::core::Secrets;
use crate::frame_queue::FrameQueue;
use crate::icmp::IcmpLimiter;
use crate::limits::{
    COLD_FRAME_BYTES_MAX, COLD_FRAMES_MAX, CONTROL_FRAME_BYTES_MAX, NEIGHBOUR_FRAMES_EACH_MAX,
};
use crate::neighbours::{Link, NeighbourId, NeighbourTimers, Neighbours};
use crate::packet_out::LinkEnds;
use crate::routes::{Route, Routes};
use crate::sockets::Slot;

/// A stack has one port as yet.
const PORT: u8 = 0;

pub(crate) struct Network {
    pub mac: MacAddr,
    mtu: usize,
    pub addresses: LocalAddresses,
    routes: Routes,
    /// What [`hop`](Self::hop) found last; void when a route comes.
    last_hop: Option<(Addr, NeighbourId)>,
    /// What [`source_to`](Self::source_to) found last; void when an address comes.
    last_source: Option<(IpAddr, IpAddr)>,
    pub neighbours: Neighbours,
    pub limiter: IcmpLimiter,
    pub echo: bool,
    /// A host does ARP and ND for us, and owns addresses and routes.
    pub has_host: bool,
    /// Next hops to ask the host for.
    pub wanted: Vec<IpAddr>,
    pub out: FrameQueue,
    /// What waited for neighbours that have answered.
    pub released: FrameQueue,
    /// Where a packet of the cold path is copied to be parsed.
    pub scratch: Vec<u8>,
}

impl Network {
    pub fn new(
        config: &StackConfig,
        port: &Capabilities,
        has_host: bool,
        secrets: &Secrets,
    ) -> Result<Self, ConfigError> {
        let mut addresses = LocalAddresses::new();
        let mut routes = Routes::new();
        for &cidr in &config.addresses {
            addresses
                .add(cidr, PORT)
                .map_err(|_| ConfigError::BadAddress(cidr))?;
            let route = Route {
                prefix: cidr.network(),
                gateway: None,
                port: PORT,
            };
            // Two addresses of one subnet share its route.
            let _ = routes.add(route);
        }
        add_on_link(&mut routes, &config.on_link);
        for &gateway in &config.gateways {
            let any = if gateway.is_ipv4() {
                IpAddr::from(Ipv4Addr::UNSPECIFIED)
            } else {
                Ipv6Addr::UNSPECIFIED.into()
            };
            let prefix =
                IpCidr::new(any, 0).map_err(|_| ConfigError::UnreachableGateway(gateway))?;
            add_route(
                &mut routes,
                Route {
                    prefix,
                    gateway: Some(gateway),
                    port: PORT,
                },
            )?;
        }
        for &(prefix, gateway) in &config.routes {
            add_route(
                &mut routes,
                Route {
                    prefix,
                    gateway: Some(gateway),
                    port: PORT,
                },
            )?;
        }
        let mut network = Self {
            mac: MacAddr(port.mac.0),
            mtu: port.mtu,
            addresses,
            routes,
            last_hop: None,
            last_source: None,
            neighbours: Neighbours::new(NeighbourTimers::default(), secrets.key(6)),
            limiter: IcmpLimiter::new(secrets.key(7)[0]),
            echo: config.echo,
            has_host,
            wanted: Vec::new(),
            out: FrameQueue::new(COLD_FRAMES_MAX, COLD_FRAME_BYTES_MAX),
            released: FrameQueue::new(NEIGHBOUR_FRAMES_EACH_MAX, CONTROL_FRAME_BYTES_MAX),
            scratch: vec![0; crate::limits::SMALL_PACKET_BYTES_MAX],
        };
        for &(address, mac) in &config.neighbours {
            let mac = MacAddr(mac);
            let _ = network.neighbours.set_permanent(PORT, address, mac, 0);
        }
        if !has_host {
            network.announce();
        }
        Ok(network)
    }

    /// An address that comes later. Nothing changes if it is held already or cannot be held.
    pub fn add_address(&mut self, cidr: IpCidr) {
        if self.addresses.add(cidr, PORT).is_err() {
            return;
        }
        (self.last_hop, self.last_source) = (None, None);
        // The route may be there already, for another address of the subnet.
        let _ = self.routes.add(Route {
            prefix: cidr.network(),
            gateway: None,
            port: PORT,
        });
        if self.has_host {
            return;
        }
        let frame = arp_nd::announcement_frame(cidr.address(), self.identity());
        self.out.push(frame.as_slice());
    }

    /// An address that is ours no more, and its subnet's route unless another address has it too.
    pub fn remove_address(&mut self, cidr: IpCidr) {
        (self.last_hop, self.last_source) = (None, None);
        self.addresses.remove(cidr.address());
        let prefix = cidr.network();
        let is_shared = self
            .addresses
            .iter()
            .any(|own| own.cidr.network() == prefix);
        if !is_shared {
            self.routes.remove(prefix);
        }
    }

    /// A route of the host's, in place of one for the same prefix.
    pub fn add_route(&mut self, prefix: IpCidr, gateway: Option<IpAddr>) {
        self.last_hop = None;
        self.routes.remove(prefix);
        // One that the table does not take is unreachable for us.
        let _ = self.routes.add(Route {
            prefix,
            gateway,
            port: PORT,
        });
    }

    /// The host has no such route any more.
    pub fn remove_route(&mut self, prefix: IpCidr) {
        self.last_hop = None;
        self.routes.remove(prefix);
    }

    /// The host's link takes packets of this size.
    pub fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
    }

    /// What the host says of a next hop; `None` if nobody has asked for it here.
    pub fn next_hop(
        &mut self,
        address: IpAddr,
        mac: Option<MacAddr>,
        now_ns: u64,
    ) -> Option<NeighbourId> {
        let id = self.neighbours.known(PORT, address)?;
        match mac {
            Some(mac) => self
                .neighbours
                .set_permanent(PORT, address, mac, now_ns)
                .ok(),
            None => {
                self.neighbours.ask_again(id, now_ns);
                None
            }
        }
    }

    /// Where the frames of a connection go, if that is known and fresh.
    #[inline]
    pub fn link_of(&mut self, slot: &Slot, now_ns: u64) -> Option<LinkEnds> {
        let news_ns = slot.conn.as_ref().map_or(0, Connection::last_news_ns);
        match (self.neighbours).link_to_peer(slot.neighbour?, now_ns, news_ns) {
            Link::Ready(destination) => Some(LinkEnds {
                source: self.mac,
                destination,
                header: slot.header,
            }),
            _ => None,
        }
    }

    /// Tells the link of our addresses, so that neighbours drop what they knew of whoever had them before.
    fn announce(&mut self) {
        let identity = self.identity();
        for own in self.addresses.iter() {
            self.out
                .push(arp_nd::announcement_frame(own.cidr.address(), identity).as_slice());
        }
    }

    /// Frames of the cold path wait to leave.
    pub fn has_frames(&self) -> bool {
        !self.out.is_empty() || !self.released.is_empty()
    }

    /// Moves those frames to the driver's.
    pub fn fill_frames(&mut self, frames: &[packetio::TxFrame]) -> usize {
        let used = self.out.fill(frames);
        used + self.released.fill(&frames[used..])
    }

    pub fn identity(&self) -> LinkIdentity {
        LinkIdentity {
            port: PORT,
            mac: self.mac,
        }
    }

    /// The neighbour to which packets for `remote` go. Whoever talks to one peer opens many connections to it, so the last answer is kept.
    #[inline]
    pub fn hop(&mut self, remote: Addr, now_ns: u64) -> Result<NeighbourId, Errno> {
        if let Some((last, id)) = self.last_hop
            && last == remote
            && self.neighbours.is_current(id)
        {
            return Ok(id);
        }
        let id = self.look_up_hop(remote, now_ns)?;
        self.last_hop = Some((remote, id));
        Ok(id)
    }

    fn look_up_hop(&mut self, remote: Addr, now_ns: u64) -> Result<NeighbourId, Errno> {
        let hop = self
            .routes
            .lookup(remote.to_ip())
            .ok_or(Errno::NETUNREACH)?;
        self.neighbours
            .resolve(hop.port, hop.address, now_ns)
            .map_err(|_| Errno::NOBUFS)
    }

    /// A peer's address, and not one of ours.
    pub fn may_reach(&self, remote: IpAddr) -> bool {
        let is_last = self.last_source.is_some_and(|(last, _)| last == remote);
        is_last
            || (crate::addresses::is_unicast(remote)
                && self.addresses.classify(remote) == Destination::Foreign)
    }

    /// The address of ours from which `remote`, which we [may reach](Self::may_reach), is talked to.
    pub fn source_to(&mut self, remote: IpAddr) -> Option<IpAddr> {
        if let Some((last, source)) = self.last_source
            && last == remote
        {
            return Some(source);
        }
        let source = self.addresses.source_for(remote, None)?;
        self.last_source = Some((remote, source));
        Some(source)
    }

    /// The largest segment that our link takes, for a peer of this family (RFC 9293 3.7.1, RFC 6691).
    pub fn mss_for(&self, remote: Addr) -> u16 {
        let headers = if remote.is_v4() { 40 } else { 60 };
        self.mtu.saturating_sub(headers).min(usize::from(u16::MAX)) as u16
    }
}

/// Subnets that are reached directly. One of our own is so already.
fn add_on_link(routes: &mut Routes, subnets: &[IpCidr]) {
    for prefix in subnets {
        let _ = routes.add(Route {
            prefix: prefix.network(),
            gateway: None,
            port: PORT,
        });
    }
}

fn add_route(routes: &mut Routes, route: Route) -> Result<(), ConfigError> {
    routes.add(route).map_err(|source| ConfigError::Route {
        prefix: route.prefix,
        source,
    })
}
