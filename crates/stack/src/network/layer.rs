//! The network below TCP, as one stack sees it: its addresses, its routes, its neighbours, and the
//! frames of the cold path.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packetio::Capabilities;
use packetio::local_queue::{LOCAL_MAC, LocalQueue};
use rustix::io::Errno;
use wire::icmpv6::Message;
use wire::{Addr, MacAddr, WireError};

use crate::header_fields::{HeaderFields, LinkEnds};
use crate::limits::{
    COLD_FRAME_BYTES_MAX, COLD_FRAMES_MAX, CONTROL_FRAME_BYTES_MAX, NEIGHBOUR_FRAMES_EACH_MAX,
    NEIGHBOUR_WAITING_MAX, PORTS_MAX, SMALL_PACKET_BYTES_MAX,
};
use crate::network::addresses::{AddressError, Destination, IpCidr, LocalAddresses, is_unicast};
use crate::network::arp_nd::{self, Handled, LinkIdentity};
use crate::network::destinations::Destinations;
use crate::network::frame_queue::FrameQueue;
use crate::network::icmp::{Icmp, IcmpLimiter};
use crate::network::neighbours::{
    Link, NeighbourId, NeighbourState, NeighbourTimers, Neighbours, Waiter,
};
use crate::network::routes::{NextHop, Route, RouteError, Routes};

/// The port of a stack that has one, and of the addresses that come later.
pub(crate) const FIRST_PORT: u8 = 0;

/// The link behind one port.
pub(crate) struct PortLink {
    mtu: usize,
    pub out: FrameQueue,
    /// Frames that waited for neighbours that have answered.
    pub released: FrameQueue,
}

impl PortLink {
    fn new(port: &Capabilities) -> Self {
        Self {
            mtu: port.mtu,
            out: FrameQueue::new(COLD_FRAMES_MAX, COLD_FRAME_BYTES_MAX),
            released: FrameQueue::new(NEIGHBOUR_FRAMES_EACH_MAX, CONTROL_FRAME_BYTES_MAX),
        }
    }
}

/// The neighbour that stands for all addresses of ours. No packet has this destination.
const OURSELVES: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// The neighbour that stands for the same addresses while the host has a way to them. No packet has
/// this destination either.
const OUR_HOST: IpAddr = IpAddr::V4(Ipv4Addr::BROADCAST);

pub(crate) struct Network {
    /// The port whose stages move what the stack sends to itself: the first that is not gone.
    own_port: u8,
    links: Vec<PortLink>,
    /// Our MAC address on each link, apart from it because each frame needs one.
    macs: [MacAddr; PORTS_MAX],
    pub(super) addresses: LocalAddresses,
    routes: Routes,
    /// The ends of the last question to [`hop`](Self::hop), the remote one first, and the answer;
    /// void when a route comes or goes.
    last_hop: Option<(Addr, Addr, NeighbourId)>,
    /// The last answer of [`source_to`](Self::source_to); void when an address comes.
    last_source: Option<(IpAddr, IpAddr)>,
    pub neighbours: Neighbours,
    /// Packets go from this stack to itself, or did.
    talks_to_itself: bool,
    /// Those packets. Made with the first of them, so that other stacks pay nothing.
    local: Option<Box<LocalQueue>>,
    pub destinations: Destinations,
    limiter: IcmpLimiter,
    echo: bool,
    /// A host behind the port does ARP and ND for us, and owns addresses and routes.
    has_host: bool,
    /// The host takes packets between its own addresses that have this destination MAC address.
    own_hop: Option<MacAddr>,
    /// Next hops to ask the host for.
    wanted: Vec<IpAddr>,
    /// Sockets that waited for neighbours that have answered: storage, empty between calls.
    released_sockets: Vec<u32>,
    /// Storage for a packet of the cold path that is being parsed.
    scratch: Vec<u8>,
}

impl Network {
    /// A network without addresses and routes, on ports of these capabilities. `keys`: of
    /// neighbours, ICMP's limiter and destinations.
    pub fn new<'a>(
        ports: impl Iterator<Item = &'a Capabilities>,
        echo: bool,
        has_host: bool,
        keys: [[u64; 2]; 3],
    ) -> Self {
        let (mut links, mut macs) = (Vec::new(), [MacAddr::UNSPECIFIED; PORTS_MAX]);
        for (port, mac) in ports.zip(&mut macs) {
            *mac = MacAddr(port.mac.0);
            links.push(PortLink::new(port));
        }
        Self {
            own_port: FIRST_PORT,
            links,
            macs,
            addresses: LocalAddresses::new(),
            routes: Routes::new(),
            last_hop: None,
            last_source: None,
            neighbours: Neighbours::new(NeighbourTimers::default(), keys[0]),
            talks_to_itself: false,
            local: None,
            destinations: Destinations::new(keys[2]),
            limiter: IcmpLimiter::new(keys[1][0]),
            echo,
            has_host,
            own_hop: None,
            wanted: Vec::new(),
            released_sockets: Vec::with_capacity(NEIGHBOUR_WAITING_MAX),
            scratch: vec![0; SMALL_PACKET_BYTES_MAX],
        }
    }

    /// Adds one of the addresses that the stack begins with, and the route to its subnet. Later
    /// ones are [announced](Self::add_address) at once.
    ///
    /// # Errors
    /// The address cannot be one of ours.
    pub fn add_first_address(&mut self, cidr: IpCidr, port: u8) -> Result<(), AddressError> {
        self.addresses.add(cidr, port)?;
        self.add_on_link(cidr, port);
        Ok(())
    }

    /// Adds a subnet that is reached directly by `port`, unless it has a route there already.
    pub fn add_on_link(&mut self, subnet: IpCidr, port: u8) {
        // Two addresses of one subnet share its route.
        let _ = self.routes.add(Route {
            prefix: subnet.network(),
            gateway: None,
            port,
        });
    }

    /// Adds a route through a gateway on the link of `port`.
    ///
    /// # Errors
    /// The route cannot be added.
    pub fn add_route(
        &mut self,
        prefix: IpCidr,
        gateway: IpAddr,
        port: u8,
    ) -> Result<(), RouteError> {
        self.routes.add(Route {
            prefix,
            gateway: Some(gateway),
            port,
        })
    }

    /// Adds a neighbour on the link of `port` that is known for good.
    pub fn add_neighbour(&mut self, address: IpAddr, mac: MacAddr, port: u8) {
        let _ = self.neighbours.set_permanent(port, address, mac, 0);
    }

    /// An address of the first port that comes later, or that has another prefix now. Nothing
    /// changes if it is held already or cannot be held.
    pub fn add_address(&mut self, cidr: IpCidr) {
        if let Some(before) = self.addresses.replace_prefix(cidr, FIRST_PORT) {
            (self.last_hop, self.last_source) = (None, None);
            self.remove_on_link(before);
            self.add_on_link(cidr, FIRST_PORT);
            return;
        }
        if self.addresses.add(cidr, FIRST_PORT).is_err() {
            return;
        }
        (self.last_hop, self.last_source) = (None, None);
        self.add_on_link(cidr, FIRST_PORT);
        if self.has_host {
            return;
        }
        let frame = arp_nd::announcement_frame(cidr.address(), self.identity(FIRST_PORT));
        self.send_cold(FIRST_PORT, frame.as_slice());
    }

    /// Our MAC address on the link of a port.
    #[inline]
    pub fn mac(&self, port: u8) -> MacAddr {
        // The mask saves a check of bounds.
        self.macs[usize::from(port) % PORTS_MAX]
    }

    /// The host's interface has another MAC address.
    pub fn set_mac(&mut self, mac: MacAddr) {
        self.macs[usize::from(FIRST_PORT)] = mac;
    }

    /// The link behind a port.
    #[inline]
    pub fn link(&self, port: u8) -> &PortLink {
        &self.links[usize::from(port)]
    }

    /// The link behind a port, to change it.
    pub fn link_mut(&mut self, port: u8) -> &mut PortLink {
        &mut self.links[usize::from(port)]
    }

    /// See the field.
    pub fn own_port(&self) -> u8 {
        self.own_port
    }

    /// Number of ports.
    #[inline]
    pub fn ports(&self) -> u8 {
        self.links.len() as u8
    }

    /// A port is gone for good, and its addresses and routes with it.
    pub fn lose_port(&mut self, port: u8, next: u8) {
        if self.own_port == port {
            self.own_port = next;
        }
        (self.last_hop, self.last_source) = (None, None);
        self.routes.remove_port(port);
        self.addresses.remove_port(port);
    }

    /// The port from which packets with the source `local` leave: the one that has the address.
    fn port_of(&self, local: Addr) -> Option<u8> {
        match self.links.len() {
            1 => Some(FIRST_PORT),
            _ => self.addresses.port_of(local),
        }
    }

    /// The link on which a connection's frames leave, if it is known, fresh and behind `port`.
    /// `news_ns`: when its peer was last heard of.
    #[inline]
    pub fn link_to(
        &mut self,
        neighbour: Option<NeighbourId>,
        port: u8,
        header: HeaderFields,
        (news_ns, now_ns): (u64, u64),
    ) -> Option<LinkEnds> {
        let neighbour = neighbour.filter(|id| id.port() == port)?;
        match (self.neighbours).link_to_peer(neighbour, now_ns, news_ns) {
            Link::Ready(destination) => Some(LinkEnds {
                source: self.mac(port),
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
        self.remove_on_link(cidr);
    }

    /// Removes the route of a subnet, unless another address of ours is in it.
    fn remove_on_link(&mut self, subnet: IpCidr) {
        let prefix = subnet.network();
        let is_shared = self
            .addresses
            .iter()
            .any(|own| own.cidr.network() == prefix);
        if !is_shared {
            self.routes.remove(prefix, FIRST_PORT);
        }
    }

    /// Replaces the route for a prefix by the host's. A route that the table refuses leaves its
    /// prefix unreachable.
    pub fn replace_route(&mut self, prefix: IpCidr, gateway: Option<IpAddr>) {
        self.remove_route(prefix);
        let _ = self.routes.add(Route {
            prefix,
            gateway,
            port: FIRST_PORT,
        });
    }

    /// Removes the route for a prefix.
    pub fn remove_route(&mut self, prefix: IpCidr) {
        self.last_hop = None;
        self.routes.remove(prefix, FIRST_PORT);
    }

    /// Sets the size of packet that the host's link takes, bytes.
    pub fn set_mtu(&mut self, mtu: usize) {
        self.link_mut(FIRST_PORT).mtu = mtu;
    }

    /// Packets to this MAC address stay on the host: they are for peers at our own addresses.
    #[inline]
    pub fn is_own_hop(&self, mac: MacAddr) -> bool {
        self.own_hop == Some(mac)
    }

    /// Takes or loses the way to peers at our own addresses, which the host has.
    pub fn set_own_hop(&mut self, mac: Option<MacAddr>) {
        self.own_hop = mac;
        self.last_hop = None;
        self.addresses.set_own_peers(mac.is_some());
    }

    /// Takes the host's answer for a next hop; `None` if no packet waits for that address.
    pub fn next_hop(
        &mut self,
        address: IpAddr,
        mac: Option<MacAddr>,
        now_ns: u64,
    ) -> Option<NeighbourId> {
        let id = self.neighbours.known(FIRST_PORT, address)?;
        match mac {
            Some(mac) => self
                .neighbours
                .set_permanent(FIRST_PORT, address, mac, now_ns)
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
        for own in self.addresses.iter() {
            let link = &mut self.links[usize::from(own.port)];
            let identity = LinkIdentity {
                port: own.port,
                mac: self.macs[usize::from(own.port)],
            };
            let frame = arp_nd::announcement_frame(own.cidr.address(), identity);
            link.out.push(frame.as_slice());
        }
    }

    /// Our addresses on all links.
    #[inline]
    pub fn addresses(&self) -> &LocalAddresses {
        &self.addresses
    }

    /// Adds the addresses of the kernel's loopback device.
    pub fn add_loopback(&mut self) {
        self.addresses.add_loopback();
    }

    /// True if a host behind the port does ARP and ND for us, and owns addresses and routes.
    #[inline]
    pub fn has_host(&self) -> bool {
        self.has_host
    }

    /// Notes a next hop that the host is to be asked for.
    pub fn ask_host(&mut self, target: IpAddr) {
        self.wanted.push(target);
    }

    /// The next hops to ask the host for.
    #[inline]
    pub fn take_wanted(&mut self) -> impl Iterator<Item = IpAddr> + '_ {
        self.wanted.drain(..)
    }

    /// Takes an ARP packet of the link of `port`.
    ///
    /// # Errors
    /// The packet is malformed or not for us.
    pub fn on_arp(&mut self, packet: &[u8], port: u8, now_ns: u64) -> Result<Handled, WireError> {
        let identity = self.identity(port);
        arp_nd::on_arp(
            packet,
            identity,
            &self.addresses,
            &mut self.neighbours,
            now_ns,
        )
    }

    /// Takes a message of neighbour discovery from the link of `port`.
    ///
    /// # Errors
    /// The message is malformed or not for us.
    pub fn on_nd(
        &mut self,
        message: &Message<'_>,
        source: Ipv6Addr,
        port: u8,
        now_ns: u64,
    ) -> Result<Handled, WireError> {
        let identity = self.identity(port);
        arp_nd::on_nd(
            message,
            source,
            identity,
            &self.addresses,
            &mut self.neighbours,
            now_ns,
        )
    }

    /// ICMP at this instant.
    pub fn icmp(&mut self, now_ns: u64) -> Icmp<'_> {
        Icmp {
            addresses: &self.addresses,
            limiter: &mut self.limiter,
            echo: self.echo,
            now_ns,
        }
    }

    /// Storage for a packet of the cold path, until [`put_scratch`](Self::put_scratch).
    pub fn take_scratch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.scratch)
    }

    /// Gives the storage back.
    pub fn put_scratch(&mut self, scratch: Vec<u8>) {
        self.scratch = scratch;
    }

    /// True if packets go from this stack to itself, or did.
    #[inline]
    pub fn talks_to_itself(&self) -> bool {
        self.talks_to_itself
    }

    /// The queue of packets from this stack to itself, made if there is none.
    pub fn local_queue(&mut self, frame_bytes: usize) -> &mut LocalQueue {
        let local = &mut self.local;
        local.get_or_insert_with(|| Box::new(LocalQueue::new(frame_bytes)))
    }

    /// That queue, if there is one, until [`put_local`](Self::put_local).
    #[inline]
    pub fn take_local(&mut self) -> Option<Box<LocalQueue>> {
        self.local.take()
    }

    /// Gives the queue back.
    #[inline]
    pub fn put_local(&mut self, local: Box<LocalQueue>) {
        self.local = Some(local);
    }

    /// Frames from this stack to itself wait for the next turn.
    #[inline]
    pub fn hears_itself(&self) -> bool {
        self.local.as_ref().is_some_and(|local| !local.is_empty())
    }

    /// Releases everything that waited for a neighbour: frames go to its port. Returns the
    /// connections, in storage for [`put_released`](Self::put_released), and the number of frames
    /// that found no room.
    pub fn release(&mut self, id: NeighbourId) -> (Vec<u32>, u64) {
        let mut sockets = std::mem::take(&mut self.released_sockets);
        let out = &mut self.links[usize::from(id.port())].released;
        let mut dropped = 0;
        self.neighbours.release(id, |waiter| match waiter {
            Waiter::Token(socket) => sockets.push(socket),
            Waiter::Frame(frame) => dropped += u64::from(!out.push(frame)),
        });
        (sockets, dropped)
    }

    /// Gives the storage of released connections back, empty.
    pub fn put_released(&mut self, sockets: Vec<u32>) {
        self.released_sockets = sockets;
    }

    /// Queues a frame of the cold path. Without room the frame is dropped and counted.
    pub fn send_cold(&mut self, port: u8, frame: &[u8]) {
        self.link_mut(port).out.push(frame);
    }

    /// Frames of the cold path that found no room.
    pub fn cold_refused(&self) -> u64 {
        self.links.iter().map(|link| link.out.refused()).sum()
    }

    /// Frames of the cold path wait to leave by `port`.
    pub fn has_frames(&self, port: u8) -> bool {
        let link = self.link(port);
        !link.out.is_empty() || !link.released.is_empty()
    }

    /// Moves those frames to the driver's.
    pub fn fill_frames(&mut self, port: u8, frames: &[packetio::TxFrame]) -> usize {
        let link = self.link_mut(port);
        let used = link.out.fill(frames);
        used + link.released.fill(&frames[used..])
    }

    pub fn identity(&self, port: u8) -> LinkIdentity {
        LinkIdentity {
            port,
            mac: self.mac(port),
        }
    }

    /// The neighbour to which packets from `local` to `remote` go. An application that talks to one
    /// peer opens many connections to it, so the last answer is remembered.
    #[inline]
    pub fn hop(&mut self, local: Addr, remote: Addr, now_ns: u64) -> Result<NeighbourId, Errno> {
        if let Some((last_remote, last_local, id)) = self.last_hop
            && last_remote == remote
            && (self.links.len() == 1 || last_local == local)
            && self.neighbours.is_current(id)
        {
            return Ok(id);
        }
        let id = self.look_up_hop(local, remote, now_ns)?;
        self.last_hop = Some((remote, local, id));
        Ok(id)
    }

    /// A packet leaves by the port of its source address, if a route leads there. A source that no
    /// port has leaves by the best route of all.
    fn look_up_hop(
        &mut self,
        local: Addr,
        remote: Addr,
        now_ns: u64,
    ) -> Result<NeighbourId, Errno> {
        let destination = remote.to_ip();
        if let Some(mac) = self.own_hop
            && self.addresses.is_own(remote)
        {
            return (self.neighbours)
                .set_permanent(FIRST_PORT, OUR_HOST, mac, now_ns)
                .map_err(|_| Errno::NOBUFS);
        }
        if self.addresses.is_local(destination) {
            self.talks_to_itself = true;
            return (self.neighbours)
                .set_permanent(self.own_port, OURSELVES, LOCAL_MAC, now_ns)
                .map_err(|_| Errno::NOBUFS);
        }
        let hop = match self.port_of(local) {
            Some(port) if self.links.len() > 1 => {
                let mut hops = self.routes.hops(destination);
                hops.find(|hop| hop.port == port)
            }
            _ => self.routes.lookup(destination),
        };
        let hop = hop.ok_or(Errno::NETUNREACH)?;
        self.neighbours
            .resolve(hop.port, hop.address, now_ns)
            .map_err(|_| Errno::NOBUFS)
    }

    /// The port by which a new connection to `remote` leaves: that of the best route whose next hop
    /// is not known to be silent. `None`: there is one port, or no route.
    fn port_to(&mut self, remote: IpAddr) -> Option<u8> {
        if self.links.len() == 1 {
            return None;
        }
        let neighbours = &self.neighbours;
        let is_silent = |hop: &NextHop| {
            let known = neighbours.known(hop.port, hop.address);
            let state = known.and_then(|id| neighbours.state(id));
            state == Some(NeighbourState::Failed)
        };
        let mut hops = self.routes.hops(remote);
        let first = hops.next()?;
        let better = match is_silent(&first) {
            true => hops.find(|hop| !is_silent(hop)),
            false => None,
        };
        Some(better.unwrap_or(first).port)
    }

    /// The address of one host: a peer, or ourselves.
    pub fn may_reach(&self, remote: IpAddr) -> bool {
        let is_last = self.last_source.is_some_and(|(last, _)| last == remote);
        let is_host = |kind| matches!(kind, Destination::Foreign | Destination::Local);
        is_last || (is_unicast(remote) && is_host(self.addresses.classify(remote)))
    }

    /// The address of ours from which `remote`, which we [may reach](Self::may_reach), is talked
    /// to.
    pub fn source_to(&mut self, remote: IpAddr) -> Option<IpAddr> {
        if let Some((last, source)) = self.last_source
            && last == remote
            && self.links.len() == 1
        {
            return Some(source);
        }
        let port = self.port_to(remote);
        let source = self.addresses.source_for(remote, port)?;
        self.last_source = Some((remote, source));
        Some(source)
    }

    /// The address from which a link-local `remote` on the link of `port` is talked to.
    pub fn source_on(&self, remote: IpAddr, port: u8) -> Option<IpAddr> {
        let source = self.addresses.source_for(remote, Some(port))?;
        (self.addresses.port_of(Addr::from(source)) == Some(port)).then_some(source)
    }

    /// The largest segment that the link of `local` takes, for a peer of its family (RFC 9293
    /// 3.7.1, RFC 6691).
    pub fn mss_for(&self, local: Addr) -> u16 {
        let headers = if local.is_v4() { 40 } else { 60 };
        let port = self.port_of(local).unwrap_or(FIRST_PORT);
        let mtu = self.link(port).mtu;
        mtu.saturating_sub(headers).min(usize::from(u16::MAX)) as u16
    }

    /// The path's MTU as far as a connection knows it: a router's word, or what our link takes.
    pub fn path_mtu(&self, info: &tcp::Info, local: Addr) -> u32 {
        let mss = match info.narrow_mss {
            0 => u32::from(self.mss_for(local)),
            narrow => narrow,
        };
        mss + if local.is_v4() { 40 } else { 60 }
    }
}
