//! The network below TCP, as a stack uses it: local addresses, routes, neighbours, and frames of
//! the cold path.

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
use crate::network::addresses::{
    AddressError, Destination, IpCidr, LocalAddresses, is_link_local, is_unicast,
};
use crate::network::arp_nd::{self, Handled, LinkIdentity};
use crate::network::destinations::Destinations;
use crate::network::frame_queue::FrameQueue;
use crate::network::icmp::{Icmp, IcmpLimiter};
use crate::network::neighbours::{
    Link, NeighbourId, NeighbourState, NeighbourTimers, Neighbours, Waiter,
};
use crate::network::routes::{NextHop, Route, RouteError, Routes};

/// The only port of most stacks; addresses added later belong to it.
pub(crate) const FIRST_PORT: u8 = 0;

/// The link behind one port.
pub(crate) struct PortLink {
    mtu: usize,
    pub out: FrameQueue,
    /// Held frames whose neighbour has answered.
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

/// Address of the neighbour entry for all our addresses, when packets stay in the stack. No packet
/// has this destination.
const OURSELVES: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// Address of the neighbour entry for our own addresses when the host delivers such packets. No
/// packet has this destination.
const OUR_HOST: IpAddr = IpAddr::V4(Ipv4Addr::BROADCAST);

pub(crate) struct Network {
    /// The port whose stages process the stack's traffic with itself: the first that is not gone.
    own_port: u8,
    links: Vec<PortLink>,
    /// Our MAC address on each link; separate from `links` because each frame needs one.
    macs: [MacAddr; PORTS_MAX],
    pub(super) addresses: LocalAddresses,
    routes: Routes,
    /// The last question to [`hop`](Self::hop), remote end first, and its answer. Cleared when
    /// routes or addresses change.
    last_hop: Option<(Addr, Addr, NeighbourId)>,
    /// The last question to [`source_to`](Self::source_to) and its answer. Cleared when addresses
    /// change.
    last_source: Option<(IpAddr, IpAddr)>,
    neighbours: Neighbours,
    /// True once a packet went from this stack to itself.
    talks_to_itself: bool,
    /// Packets from this stack to itself. Allocated on first use, so that other stacks pay nothing.
    local: Option<Box<LocalQueue>>,
    destinations: Destinations,
    limiter: IcmpLimiter,
    echo: bool,
    /// True if a host behind the port does ARP and ND for us, and owns addresses and routes.
    has_host: bool,
    /// Destination MAC address of packets that the host delivers between its own addresses, if it
    /// does.
    own_hop: Option<MacAddr>,
    /// Next hops for which to ask the host.
    wanted: Vec<IpAddr>,
    /// Storage for the sockets that [`release`](Self::release) returns; empty between calls.
    released_sockets: Vec<u32>,
    /// Storage for a packet of the cold path while it is parsed.
    scratch: Vec<u8>,
}

impl Network {
    /// Makes a network without addresses and routes, on ports with these capabilities. `keys`:
    /// those of neighbours, ICMP's limiter and destinations.
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

    /// The neighbours.
    #[inline(always)]
    pub fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// The neighbours, to change them.
    #[inline(always)]
    pub fn neighbours_mut(&mut self) -> &mut Neighbours {
        &mut self.neighbours
    }

    /// The knowledge about remote hosts.
    #[inline(always)]
    pub fn destinations(&self) -> &Destinations {
        &self.destinations
    }

    /// The knowledge about remote hosts, to change it.
    #[inline(always)]
    pub fn destinations_mut(&mut self) -> &mut Destinations {
        &mut self.destinations
    }

    /// Adds an address that the stack begins with, and the route to its subnet. Later addresses are
    /// [announced](Self::add_address) at once.
    ///
    /// # Errors
    /// The address cannot become one of ours.
    pub fn add_first_address(&mut self, cidr: IpCidr, port: u8) -> Result<(), AddressError> {
        self.addresses.add(cidr, port)?;
        self.add_on_link(cidr, port);
        Ok(())
    }

    /// Adds a subnet that is directly reachable by `port`, unless it has such a route already.
    pub fn add_on_link(&mut self, subnet: IpCidr, port: u8) {
        // Two addresses in one subnet share its route.
        let _ = self.routes.add(Route {
            prefix: subnet.network(),
            gateway: None,
            port,
        });
    }

    /// Adds a route through a gateway on the link of `port`.
    ///
    /// # Errors
    /// The routing table refuses the route.
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

    /// Adds a permanent neighbour on the link of `port`.
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
        // The modulo saves a bounds check.
        self.macs[usize::from(port) % PORTS_MAX]
    }

    /// Takes over the new MAC address of the host's interface.
    pub fn set_mac(&mut self, mac: MacAddr) {
        self.macs[usize::from(FIRST_PORT)] = mac;
    }

    /// The link behind a port.
    #[inline]
    pub fn link(&self, port: u8) -> &PortLink {
        &self.links[usize::from(port)]
    }

    /// The link behind a port, by mutable reference.
    pub fn link_mut(&mut self, port: u8) -> &mut PortLink {
        &mut self.links[usize::from(port)]
    }

    /// The port whose stages process the stack's traffic with itself.
    pub fn own_port(&self) -> u8 {
        self.own_port
    }

    /// Number of ports.
    #[inline]
    pub fn ports(&self) -> u8 {
        self.links.len() as u8
    }

    /// Removes the addresses and routes of a lost port. `next`: the first port that remains.
    pub fn lose_port(&mut self, port: u8, next: u8) {
        if self.own_port == port {
            self.own_port = next;
        }
        (self.last_hop, self.last_source) = (None, None);
        self.routes.remove_port(port);
        self.addresses.remove_port(port);
    }

    /// The port for packets with the source `local`: the one that has the address.
    fn port_of(&self, local: Addr) -> Option<u8> {
        match self.links.len() {
            1 => Some(FIRST_PORT),
            _ => self.addresses.port_of(local),
        }
    }

    /// The scope id of a peer, as a `connect` to it needs: of a link-local peer of a stack with
    /// several ports it is the number of our address's port, counted from 1; otherwise 0.
    pub fn scope_id(&self, local: Addr, remote: Addr) -> u32 {
        if self.links.len() == 1 || !is_link_local(remote) {
            return 0;
        }
        self.port_of(local).map_or(0, |port| u32::from(port) + 1)
    }

    /// The link on which a connection's frames leave, if it is known, fresh and behind `port`.
    /// `news_ns`: time of the peer's last news.
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

    /// Removes an address, and its subnet's route unless another address lies in that subnet.
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

    /// Replaces the route for a prefix by the host's. If the table refuses it, the prefix is
    /// unreachable.
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

    /// Sets the MTU of the host's link, bytes.
    pub fn set_mtu(&mut self, mtu: usize) {
        self.link_mut(FIRST_PORT).mtu = mtu;
    }

    /// True if packets to this MAC address stay on the host, for peers at our own addresses.
    #[inline]
    pub fn is_own_hop(&self, mac: MacAddr) -> bool {
        self.own_hop == Some(mac)
    }

    /// Sets the host's MAC address for peers at our own addresses; `None`: the host delivers no
    /// such packets.
    pub fn set_own_hop(&mut self, mac: Option<MacAddr>) {
        self.own_hop = mac;
        self.last_hop = None;
        self.addresses.set_own_peers(mac.is_some());
    }

    /// Notes the host's answer for a next hop. Returns the neighbour if it is now known.
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

    /// Announces our addresses on their links, so that neighbours forget previous owners. A host
    /// behind the port has done so itself.
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

    /// Adds the addresses of the loopback device, 127.0.0.0/8 and ::1.
    pub fn add_loopback(&mut self) {
        self.addresses.add_loopback();
    }

    /// True if a host behind the port does ARP and ND for us, and owns addresses and routes.
    #[inline]
    pub fn has_host(&self) -> bool {
        self.has_host
    }

    /// Notes a next hop for which to ask the host.
    pub fn ask_host(&mut self, target: IpAddr) {
        self.wanted.push(target);
    }

    /// Takes the next hops for which to ask the host.
    #[inline]
    pub fn take_wanted(&mut self) -> impl Iterator<Item = IpAddr> + '_ {
        self.wanted.drain(..)
    }

    /// Processes an ARP packet from the link of `port`.
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

    /// Processes a neighbour discovery message from the link of `port`.
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

    /// The ICMP processor, at this time.
    pub fn icmp(&mut self, now_ns: u64) -> Icmp<'_> {
        Icmp {
            addresses: &self.addresses,
            limiter: &mut self.limiter,
            echo: self.echo,
            now_ns,
        }
    }

    /// Lends storage for a packet of the cold path, until [`put_scratch`](Self::put_scratch).
    pub fn take_scratch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.scratch)
    }

    /// Takes the storage back.
    pub fn put_scratch(&mut self, scratch: Vec<u8>) {
        self.scratch = scratch;
    }

    /// True once a packet went from this stack to itself.
    #[inline]
    pub fn talks_to_itself(&self) -> bool {
        self.talks_to_itself
    }

    /// The queue of packets from this stack to itself; made on first use.
    pub fn local_queue(&mut self, frame_bytes: usize) -> &mut LocalQueue {
        let local = &mut self.local;
        local.get_or_insert_with(|| Box::new(LocalQueue::new(frame_bytes)))
    }

    /// Lends the queue of packets from this stack to itself, until [`put_local`](Self::put_local).
    #[inline]
    pub fn take_local(&mut self) -> Option<Box<LocalQueue>> {
        self.local.take()
    }

    /// Takes the queue back.
    #[inline]
    pub fn put_local(&mut self, local: Box<LocalQueue>) {
        self.local = Some(local);
    }

    /// True if frames from this stack to itself wait for the next turn.
    #[inline]
    pub fn hears_itself(&self) -> bool {
        self.local.as_ref().is_some_and(|local| !local.is_empty())
    }

    /// Releases everything that waited for a neighbour; frames go to its port. Returns the
    /// connections, in storage for [`put_released`](Self::put_released), and the number of frames
    /// without room.
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

    /// Takes the storage for released connections back, empty.
    pub fn put_released(&mut self, sockets: Vec<u32>) {
        self.released_sockets = sockets;
    }

    /// Queues a frame of the cold path. Without room the frame is dropped and counted.
    pub fn send_cold(&mut self, port: u8, frame: &[u8]) {
        self.link_mut(port).out.push(frame);
    }

    /// Number of frames of the cold path that found no room.
    pub fn cold_refused(&self) -> u64 {
        self.links.iter().map(|link| link.out.refused()).sum()
    }

    /// True if frames of the cold path wait to leave by `port`.
    pub fn has_frames(&self, port: u8) -> bool {
        let link = self.link(port);
        !link.out.is_empty() || !link.released.is_empty()
    }

    /// Moves frames of the cold path into the driver's.
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

    /// The neighbour for packets from `local` to `remote`. Applications often open many connections
    /// to one peer, so the last answer is cached.
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
        // Which of several gateways answers may be another one soon.
        self.last_hop = (!self.routes.has_choices()).then_some((remote, local, id));
        Ok(id)
    }

    /// True if a port has several gateways for one prefix: a connection whose gateway does not
    /// answer may look up its next hop again.
    pub fn has_choices(&self) -> bool {
        self.routes.has_choices()
    }

    /// The first next hop that is not known to be silent, or the first if all are.
    fn first_that_answers(&self, hops: impl Iterator<Item = NextHop> + Clone) -> Option<NextHop> {
        let is_silent = |hop: &NextHop| {
            let known = self.neighbours.known(hop.port, hop.address);
            let state = known.and_then(|id| self.neighbours.state(id));
            state == Some(NeighbourState::Failed)
        };
        let answers = hops.clone().find(|hop| !is_silent(hop));
        answers.or_else(|| hops.into_iter().next())
    }

    /// Looks up the neighbour. A packet leaves by the port of its source address if a route leads
    /// there. A source without a port leaves by the best route of all. Of several gateways for one
    /// prefix and port the first that is not known to be silent is taken.
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
        let port = self.port_of(local).filter(|_| self.links.len() > 1);
        let hop = if self.routes.has_choices() {
            self.first_that_answers(self.routes.choices(destination, port))
        } else if port.is_some() {
            self.routes.choices(destination, port).next()
        } else {
            self.routes.lookup(destination)
        };
        let hop = hop.ok_or(Errno::NETUNREACH)?;
        self.neighbours
            .resolve(hop.port, hop.address, now_ns)
            .map_err(|_| Errno::NOBUFS)
    }

    /// The port for a new connection to `remote`: that of the best route whose next hop is not
    /// known to be silent. `None`: there is only one port, or no route.
    fn port_to(&mut self, remote: IpAddr) -> Option<u8> {
        if self.links.len() == 1 {
            return None;
        }
        let hops = self.routes.hops(remote);
        self.first_that_answers(hops).map(|hop| hop.port)
    }

    /// True if `remote` is the address of a single host, a peer or ourselves.
    pub fn may_reach(&self, remote: IpAddr) -> bool {
        let is_last = self.last_source.is_some_and(|(last, _)| last == remote);
        let is_host = |kind| matches!(kind, Destination::Foreign | Destination::Local);
        is_last || (is_unicast(remote) && is_host(self.addresses.classify(remote)))
    }

    /// The source address for `remote`, which [may be reached](Self::may_reach).
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

    /// The source address for a link-local `remote` on the link of `port`.
    pub fn source_on(&self, remote: IpAddr, port: u8) -> Option<IpAddr> {
        let source = self.addresses.source_for(remote, Some(port))?;
        (self.addresses.port_of(Addr::from(source)) == Some(port)).then_some(source)
    }

    /// Largest segment for the link of `local`, to a peer of its family, bytes (RFC 9293 section
    /// 3.7.1, RFC 6691).
    pub fn mss_for(&self, local: Addr) -> u16 {
        let headers = if local.is_v4() { 40 } else { 60 };
        let port = self.port_of(local).unwrap_or(FIRST_PORT);
        let mtu = self.link(port).mtu;
        mtu.saturating_sub(headers).min(usize::from(u16::MAX)) as u16
    }

    /// The path MTU as far as a connection knows it, bytes: a router's report, or the MTU of our
    /// link.
    pub fn path_mtu(&self, info: &tcp::Info, local: Addr) -> u32 {
        let mss = match info.narrow_mss {
            0 => u32::from(self.mss_for(local)),
            narrow => narrow,
        };
        mss + if local.is_v4() { 40 } else { 60 }
    }
}
