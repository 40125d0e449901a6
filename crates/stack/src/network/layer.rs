//! The network below TCP, as one stack sees it: its addresses, its routes, its neighbours, and the
//! frames of the cold path.

use std::net::IpAddr;

use packetio::Capabilities;
use rustix::io::Errno;
use wire::{Addr, MacAddr};

use crate::header_fields::{HeaderFields, LinkEnds};
use crate::limits::{
    COLD_FRAME_BYTES_MAX, COLD_FRAMES_MAX, CONTROL_FRAME_BYTES_MAX, NEIGHBOUR_FRAMES_EACH_MAX,
    NEIGHBOUR_WAITING_MAX, SMALL_PACKET_BYTES_MAX,
};
use crate::network::addresses::{AddressError, Destination, IpCidr, LocalAddresses, is_unicast};
use crate::network::arp_nd::{self, LinkIdentity};
use crate::network::destinations::Destinations;
use crate::network::frame_queue::FrameQueue;
use crate::network::icmp::IcmpLimiter;
use crate::network::neighbours::{Link, NeighbourId, NeighbourTimers, Neighbours};
use crate::network::routes::{Route, RouteError, Routes};

/// A stack has one port as yet.
const PORT: u8 = 0;

pub(crate) struct Network {
    pub mac: MacAddr,
    mtu: usize,
    pub addresses: LocalAddresses,
    routes: Routes,
    /// The last answer of [`hop`](Self::hop); void when a route comes.
    last_hop: Option<(Addr, NeighbourId)>,
    /// The last answer of [`source_to`](Self::source_to); void when an address comes.
    last_source: Option<(IpAddr, IpAddr)>,
    pub neighbours: Neighbours,
    pub destinations: Destinations,
    pub limiter: IcmpLimiter,
    pub echo: bool,
    /// A host behind the port does ARP and ND for us, and owns addresses and routes.
    pub has_host: bool,
    /// Next hops to ask the host for.
    pub wanted: Vec<IpAddr>,
    pub out: FrameQueue,
    /// Frames that waited for neighbours that have answered.
    pub released: FrameQueue,
    /// Sockets that waited for them: storage, empty between calls.
    pub released_sockets: Vec<u32>,
    /// Storage for a packet of the cold path that is being parsed.
    pub scratch: Vec<u8>,
}

impl Network {
    /// A network without addresses and routes. `keys`: of neighbours, ICMP's limiter and
    /// destinations.
    pub fn new(port: &Capabilities, echo: bool, has_host: bool, keys: [[u64; 2]; 3]) -> Self {
        Self {
            mac: MacAddr(port.mac.0),
            mtu: port.mtu,
            addresses: LocalAddresses::new(),
            routes: Routes::new(),
            last_hop: None,
            last_source: None,
            neighbours: Neighbours::new(NeighbourTimers::default(), keys[0]),
            destinations: Destinations::new(keys[2]),
            limiter: IcmpLimiter::new(keys[1][0]),
            echo,
            has_host,
            wanted: Vec::new(),
            out: FrameQueue::new(COLD_FRAMES_MAX, COLD_FRAME_BYTES_MAX),
            released: FrameQueue::new(NEIGHBOUR_FRAMES_EACH_MAX, CONTROL_FRAME_BYTES_MAX),
            released_sockets: Vec::with_capacity(NEIGHBOUR_WAITING_MAX),
            scratch: vec![0; SMALL_PACKET_BYTES_MAX],
        }
    }

    /// Adds one of the addresses that the stack begins with, and the route to its subnet. Later
    /// ones are [announced](Self::add_address) at once.
    ///
    /// # Errors
    /// The address cannot be one of ours.
    pub fn add_first_address(&mut self, cidr: IpCidr) -> Result<(), AddressError> {
        self.addresses.add(cidr, PORT)?;
        self.add_on_link(cidr);
        Ok(())
    }

    /// Adds a subnet that is reached directly, unless it has a route already.
    pub fn add_on_link(&mut self, subnet: IpCidr) {
        // Two addresses of one subnet share its route.
        let _ = self.routes.add(Route {
            prefix: subnet.network(),
            gateway: None,
            port: PORT,
        });
    }

    /// Adds a route through a gateway.
    ///
    /// # Errors
    /// The route cannot be added.
    pub fn add_route(&mut self, prefix: IpCidr, gateway: IpAddr) -> Result<(), RouteError> {
        self.routes.add(Route {
            prefix,
            gateway: Some(gateway),
            port: PORT,
        })
    }

    /// Adds a neighbour that is known for good.
    pub fn add_neighbour(&mut self, address: IpAddr, mac: MacAddr) {
        let _ = self.neighbours.set_permanent(PORT, address, mac, 0);
    }

    /// An address that comes later. Nothing changes if it is held already or cannot be held.
    pub fn add_address(&mut self, cidr: IpCidr) {
        if self.addresses.add(cidr, PORT).is_err() {
            return;
        }
        (self.last_hop, self.last_source) = (None, None);
        self.add_on_link(cidr);
        if self.has_host {
            return;
        }
        let frame = arp_nd::announcement_frame(cidr.address(), self.identity());
        self.out.push(frame.as_slice());
    }

    /// The link on which a connection's frames leave, if it is known and fresh. `news_ns`: when its
    /// peer was last heard of.
    #[inline]
    pub fn link_to(
        &mut self,
        neighbour: Option<NeighbourId>,
        header: HeaderFields,
        (news_ns, now_ns): (u64, u64),
    ) -> Option<LinkEnds> {
        match (self.neighbours).link_to_peer(neighbour?, now_ns, news_ns) {
            Link::Ready(destination) => Some(LinkEnds {
                source: self.mac,
                destination,
                header,
            }),
            _ => None,
        }
    }

    /// Removes an address, and its subnet's route unless another address is in that subnet.
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

    /// Replaces the route for a prefix by the host's. A route that the table refuses leaves its
    /// prefix unreachable.
    pub fn replace_route(&mut self, prefix: IpCidr, gateway: Option<IpAddr>) {
        self.remove_route(prefix);
        let _ = self.routes.add(Route {
            prefix,
            gateway,
            port: PORT,
        });
    }

    /// Removes the route for a prefix.
    pub fn remove_route(&mut self, prefix: IpCidr) {
        self.last_hop = None;
        self.routes.remove(prefix);
    }

    /// Sets the size of packet that the link takes, bytes.
    pub fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
    }

    /// Takes the host's answer for a next hop; `None` if no packet waits for that address.
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

    /// Tells the link of our addresses, so that neighbours forget who had them before. A host
    /// behind the port has done so.
    pub fn announce(&mut self) {
        if self.has_host {
            return;
        }
        let identity = self.identity();
        for own in self.addresses.iter() {
            self.out
                .push(arp_nd::announcement_frame(own.cidr.address(), identity).as_slice());
        }
    }

    /// Queues a frame of the cold path. Without room the frame is dropped and counted.
    pub fn send_cold(&mut self, frame: &[u8]) {
        self.out.push(frame);
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

    /// The neighbour to which packets for `remote` go. An application that talks to one peer opens
    /// many connections to it, so the last answer is remembered.
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
        is_last || (is_unicast(remote) && self.addresses.classify(remote) == Destination::Foreign)
    }

    /// The address of ours from which `remote`, which we [may reach](Self::may_reach), is talked
    /// to.
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

    /// The largest segment that our link takes, for a peer of this family (RFC 9293 3.7.1, RFC
    /// 6691).
    pub fn mss_for(&self, remote: Addr) -> u16 {
        let headers = if remote.is_v4() { 40 } else { 60 };
        self.mtu.saturating_sub(headers).min(usize::from(u16::MAX)) as u16
    }

    /// The path's MTU as far as a connection knows it: a router's word, or what our link takes.
    pub fn path_mtu(&self, info: &tcp::Info, remote: Addr) -> u32 {
        let mss = match info.narrow_mss {
            0 => u32::from(self.mss_for(remote)),
            narrow => narrow,
        };
        mss + if remote.is_v4() { 40 } else { 60 }
    }
}
