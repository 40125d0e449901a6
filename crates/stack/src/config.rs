//! The settings of a new stack, and the check that they are possible.

use std::net::IpAddr;
use std::sync::Arc;

use packetio::spread::Spread;
use ring::huge_pages::{HugePages, MissingPages};
use ring::memory::MemoryError;
use rustix::io::Errno;

use crate::limits::{LimitError, Limits, PORTS_MAX};
use crate::network::addresses::IpCidr;
use crate::network::routes::RouteError;
use crate::rules::{RuleError, RuleSet};

/// Settings of one core's stack. Every context of a process gets a copy.
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// Our addresses on the wire, each with the length of its subnet's prefix. The subnets are on
    /// the link.
    pub addresses: Vec<IpCidr>,
    /// None has to be there at the start: the host behind the wire tells of addresses that it gets
    /// later (`Change::AddressAdded` of `packetio::host`), for example by DHCP.
    pub addresses_may_come: bool,
    /// Gateways for packets that no subnet and no route covers. Of those of one family, the first
    /// that answers is used.
    pub gateways: Vec<IpAddr>,
    /// Further routes: a prefix and the gateway behind which it lies.
    pub routes: Vec<(IpCidr, IpAddr)>,
    /// Further subnets that are reached directly.
    pub on_link: Vec<IpCidr>,
    /// Hosts on the link with known MAC addresses. A host for which the cache has no room is
    /// resolved as usual.
    pub neighbours: Vec<(IpAddr, [u8; 6])>,
    /// Addresses and routes of the ports behind the first, one entry per port. The fields above
    /// describe the first port.
    pub further_ports: Vec<PortConfig>,
    /// 127.0.0.0/8 and ::1 are addresses of this stack; packets to them never leave it.
    pub loopback: bool,
    /// Packet rules; by default everything is allowed.
    pub rules: RuleSet,
    /// Sizes of all tables.
    pub limits: Limits,
    /// The kind of pages under tables, socket blocks and chunks.
    pub hugetlb: HugePages,
    /// Settings of TCP.
    pub tcp: tcp::Config,
    /// Time after which unused memory of buffers and connections returns to the system, in ns; it
    /// may take up to twice as long. 0: memory is never returned.
    pub return_memory_ns: u64,
    /// Local ports for outgoing connections, first and last.
    pub local_ports: (u16, u16),
    /// How the card spreads flows over its queues, and this stack's own queue. Connections choose
    /// local ports by it, so that answers arrive at that queue.
    pub spread: Option<OwnQueue>,
    /// Secret of the hashes, the sequence numbers and the cookies; `None`: from the kernel's random
    /// source. A simulation sets it.
    pub seed: Option<[u64; 4]>,
    /// Answer ICMP echo requests.
    pub echo: bool,
    /// Most segments of one flow that visit their connection together; 1: each segment visits
    /// alone.
    pub aggregation_max: u16,
    /// Send only the last of the ACKs that fall due within a turn, as with Linux's GRO. Off: as
    /// many ACKs leave as if segments had arrived alone, so a peer that counts ACKs grows its
    /// window normally.
    pub merge_acks: bool,
    /// Expand the ACKs that fall due within a run from one template (acknowledgment offload, USENIX
    /// ATC 2008). Off: each ACK is built alone; the bytes are the same.
    pub offload_acks: bool,
    /// One in this many new connections gets a story (`mill ss -v`). 0: only connections that an
    /// observer asks about.
    pub story_one_in: u32,
}

/// The queue of a card at which a stack's flows are to arrive.
#[derive(Clone, Debug)]
pub struct OwnQueue {
    /// How the card spreads flows.
    pub spread: Arc<Spread>,
    /// Index of the queue in the numbering of `spread`.
    pub queue: usize,
}

/// Addresses and routes of one port; see the fields of the same names of [`StackConfig`].
#[derive(Clone, Debug, Default)]
pub struct PortConfig {
    /// Our addresses on the port's link, each with the length of its subnet's prefix.
    pub addresses: Vec<IpCidr>,
    /// Gateways on the link. Of those of one family, the first that answers is used.
    pub gateways: Vec<IpAddr>,
    /// Further routes: a prefix and the gateway on the link behind which it lies.
    pub routes: Vec<(IpCidr, IpAddr)>,
    /// Further subnets that are on the link.
    pub on_link: Vec<IpCidr>,
    /// Hosts on the link with known MAC addresses.
    pub neighbours: Vec<(IpAddr, [u8; 6])>,
}

impl PortConfig {
    fn check(&self) -> Result<(), ConfigError> {
        for address in &self.addresses {
            let ip = address.address();
            if ip.is_multicast() || ip.is_unspecified() || ip == IpAddr::from([255; 4]) {
                return Err(ConfigError::BadAddress(*address));
            }
        }
        let routers = self.routes.iter().map(|(_, gateway)| gateway);
        for gateway in self.gateways.iter().chain(routers) {
            let mut subnets = self.addresses.iter().chain(&self.on_link);
            if !subnets.any(|subnet| subnet.contains(*gateway)) {
                return Err(ConfigError::UnreachableGateway(*gateway));
            }
        }
        Ok(())
    }
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            addresses_may_come: false,
            gateways: Vec::new(),
            routes: Vec::new(),
            on_link: Vec::new(),
            neighbours: Vec::new(),
            further_ports: Vec::new(),
            loopback: false,
            rules: RuleSet::default(),
            limits: Limits::default(),
            hugetlb: HugePages::default(),
            tcp: tcp::Config::default(),
            return_memory_ns: crate::limits::RETURN_MEMORY_NS,
            local_ports: (16_384, 65_535),
            spread: None,
            seed: None,
            echo: true,
            aggregation_max: crate::limits::AGGREGATION_DEFAULT,
            merge_acks: false,
            offload_acks: true,
            story_one_in: 0,
        }
    }
}

/// The reason why a stack cannot be made: the setting and its fault.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration has no address, so no peer could reach the stack.
    #[error("addresses: at least one is needed")]
    NoAddress,
    /// The number of ports does not match the settings, or exceeds what a stack may have.
    #[error("wires: {0} are open; a stack has 1 to {PORTS_MAX}, each with settings of its own")]
    Ports(usize),
    /// An address that no host can have.
    #[error("addresses: {0} cannot be a host's address")]
    BadAddress(IpCidr),
    /// A gateway outside every subnet of ours.
    #[error("gateway {0}: not within the subnet of any of our addresses")]
    UnreachableGateway(IpAddr),
    /// The first local port lies above the last, or is zero.
    #[error("local_ports {0}-{1}: must be a range from 1 to 65535")]
    BadPorts(u16, u16),
    /// A packet rule that the stack cannot apply.
    #[error("rules: {0}")]
    Rule(#[from] RuleError),
    /// A limit out of range.
    #[error("limits: {0}")]
    Limit(#[from] LimitError),
    /// A route that the routing table refuses.
    #[error("route {prefix}: {source}")]
    Route {
        /// The route's prefix.
        prefix: IpCidr,
        /// The fault.
        source: RouteError,
    },
    /// No memory for sockets and buffers.
    #[error("{0}")]
    Memory(MemoryError),
    /// Reserved huge pages are required, and too few are free.
    #[error("{0}")]
    HugePages(#[from] MissingPages),
    /// The kernel refused a request.
    #[error("{what}: {errno}")]
    System {
        /// The request that the kernel refused.
        what: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
}

impl StackConfig {
    /// Checks that the settings are consistent and within range.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.limits.check()?;
        if self.addresses.is_empty() && !self.loopback && !self.addresses_may_come {
            return Err(ConfigError::NoAddress);
        }
        self.rules.check()?;
        self.first_port().check()?;
        self.further_ports.iter().try_for_each(PortConfig::check)?;
        if self.further_ports.len() >= PORTS_MAX {
            return Err(ConfigError::Ports(1 + self.further_ports.len()));
        }
        let (first, last) = self.local_ports;
        if first == 0 || first > last {
            return Err(ConfigError::BadPorts(first, last));
        }
        Ok(())
    }

    /// The settings of the first port.
    pub(crate) fn first_port(&self) -> PortConfig {
        PortConfig {
            addresses: self.addresses.clone(),
            gateways: self.gateways.clone(),
            routes: self.routes.clone(),
            on_link: self.on_link.clone(),
            neighbours: self.neighbours.clone(),
        }
    }
}
