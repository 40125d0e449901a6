//! The settings of a new stack, and the check that they can be obeyed.

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
    /// Gateways for packets that no subnet and no route covers; at most one per family.
    pub gateways: Vec<IpAddr>,
    /// Further routes: a prefix and the gateway behind which it lies.
    pub routes: Vec<(IpCidr, IpAddr)>,
    /// Further subnets that are reached directly.
    pub on_link: Vec<IpCidr>,
    /// Hosts on the link with known MAC addresses. One that finds no room in the cache is resolved
    /// as usual.
    pub neighbours: Vec<(IpAddr, [u8; 6])>,
    /// Addresses and routes of the ports behind the first, one entry for each. The fields above are
    /// those of the first.
    pub further_ports: Vec<PortConfig>,
    /// 127.0.0.0/8 and ::1 are addresses of this stack: their packets never leave it.
    pub loopback: bool,
    /// Packet rules; by default everything is allowed.
    pub rules: RuleSet,
    /// Sizes of all tables.
    pub limits: Limits,
    /// The pages under the tables, the sockets' blocks and the chunks.
    pub hugetlb: HugePages,
    /// Settings of TCP.
    pub tcp: tcp::Config,
    /// Time after which unused memory of buffers and connections is returned to the system, in ns,
    /// and twice that at the most; 0: never.
    pub return_memory_ns: u64,
    /// Local ports for outgoing connections, first and last.
    pub local_ports: (u16, u16),
    /// How the card spreads flows over its queues, and the queue at which this stack's are to
    /// arrive: local ports of connections are chosen by it.
    pub spread: Option<OwnQueue>,
    /// Secret of the hashes, the sequence numbers and the cookies; `None`: from the kernel's random
    /// source. A simulation sets it.
    pub seed: Option<[u64; 4]>,
    /// Answer echo requests.
    pub echo: bool,
    /// Segments of one flow that visit their connection together at most; 1: each alone.
    pub aggregation_max: u16,
    /// Only the last of the ACKs that fall due within a turn leaves, as with Linux's GRO. Off: as
    /// many leave as if each segment had come alone, by which a peer that counts ACKs grows its
    /// window.
    pub merge_acks: bool,
    /// The ACKs that fall due within a run leave as one template, expanded (ATC'08's acknowledgment
    /// offload). Off: each is made alone, to the same bytes.
    pub offload_acks: bool,
    /// The stack writes the story of one in so many new connections (`mill ss -v`); 0: only of
    /// those that somebody asks about.
    pub story_one_in: u32,
}

/// The queue of a card at which a stack's flows are to arrive.
#[derive(Clone, Debug)]
pub struct OwnQueue {
    /// How the card spreads flows.
    pub spread: Arc<Spread>,
    /// The queue, as the spread numbers it.
    pub queue: usize,
}

/// Addresses and routes of one port; see the fields of the same names of [`StackConfig`].
#[derive(Clone, Debug, Default)]
pub struct PortConfig {
    /// Our addresses on the port's link, each with the length of its subnet's prefix.
    pub addresses: Vec<IpCidr>,
    /// Gateways on the link; at most one per family.
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

/// The reason why a stack cannot be made: the setting, and the fault.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration has no address, so no peer could reach the stack.
    #[error("addresses: at least one is needed")]
    NoAddress,
    /// Another number of ports than the settings describe, or more than a stack may have.
    #[error("wires: {0} are open; a stack has 1 to {PORTS_MAX}, each with settings of its own")]
    Ports(usize),
    /// An address that no host can have.
    #[error("addresses: {0} cannot be a host's address")]
    BadAddress(IpCidr),
    /// A gateway outside every subnet of ours.
    #[error("gateway {0}: not within the subnet of any of our addresses")]
    UnreachableGateway(IpAddr),
    /// First above last, or zero.
    #[error("local_ports {0}-{1}: must be a range from 1 to 65535")]
    BadPorts(u16, u16),
    /// A packet rule that cannot be obeyed.
    #[error("rules: {0}")]
    Rule(#[from] RuleError),
    /// A limit out of range.
    #[error("limits: {0}")]
    Limit(#[from] LimitError),
    /// A route that the table does not take.
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
    /// Something was refused by the kernel.
    #[error("{what}: {errno}")]
    System {
        /// The value asked for.
        what: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
}

impl StackConfig {
    /// Checks that the configuration can be obeyed.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.limits.check()?;
        if self.addresses.is_empty() && !self.loopback {
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
