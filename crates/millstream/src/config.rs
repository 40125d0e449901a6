//! Configuration of a runtime.

use std::net::IpAddr;
use std::path::PathBuf;

use packetio::{Clock, WireSpec};
use stack::config::PortConfig;
use stack::rules::RuleSet;
use stack::{HugePages, IpCidr, Limits, StackConfig};
use tcp::CongestionAlgorithm;
use tcp::congestion_control::{CongestionControl, OutsideAlgorithm, RegisterError};

use crate::heir::Heir;
use crate::limits::{LINGER_NS, SPIN_NS};

/// The thread that turns a stack while the application's own thread is away from it. The
/// application's thread turns it whenever it waits.
///
/// ```
/// let mut config = millstream::Config::new("loopback:".parse().unwrap());
/// config.crank = millstream::Crank::Dedicated;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crank {
    /// The watchdog that all stacks of the process share. It comes after
    /// [`WATCHDOG_TICK_NS`](crate::limits::WATCHDOG_TICK_NS), 5 ms.
    #[default]
    Inline,
    /// A thread of the stack's own, for programs that compute for long between their calls. It
    /// comes after [`STACK_THREAD_TICK_NS`](crate::limits::STACK_THREAD_TICK_NS), 0.5 ms.
    Dedicated,
}

/// The setting for observation by other processes (`mill top`, `mill ss` and the like). Only
/// processes of the same user, and of root, can observe.
///
/// ```
/// let mut config = millstream::Config::new("loopback:".parse().unwrap());
/// config.observe = millstream::Observe::Off;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Observe {
    /// Through a socket in `/run/millstream` for root, in `$XDG_RUNTIME_DIR/millstream` for other
    /// users. The variable `MILLSTREAM_OBSERVE` names another directory, or says `off`.
    #[default]
    Default,
    /// Nobody can observe the process.
    Off,
    /// Through a socket in this directory. The process's first context decides.
    In(PathBuf),
}

/// Settings of a [`Runtime`](crate::Runtime).
///
/// ```
/// use millstream::{Config, Crank};
/// let mut config = Config::new("memif:/run/a.sock,role=server".parse().unwrap());
/// config.addresses.push("10.0.0.2/24".parse().unwrap());
/// config.crank = Crank::Dedicated;
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// The wire, or the first of several. The addresses and routes below are those of this wire.
    pub wire: WireSpec,
    /// The wires behind the first, eight in all. Each context drives one queue of each wire. A
    /// connection uses the wire of its local address. A new connection chooses the wire by route;
    /// routes of the first wire come first.
    pub further_wires: Vec<FurtherWire>,
    /// Our addresses, each with the prefix length of its subnet.
    pub addresses: Vec<IpCidr>,
    /// Routers for everything that no subnet and no route covers. Of those of one family, the first
    /// that answers is used.
    pub gateways: Vec<IpAddr>,
    /// Further routes: a prefix and the router behind which it lies.
    pub routes: Vec<(IpCidr, IpAddr)>,
    /// Further subnets that are reached directly.
    pub on_link: Vec<IpCidr>,
    /// Hosts on the link and their MAC addresses, which the stack then need not ask for.
    pub neighbours: Vec<(IpAddr, [u8; 6])>,
    /// 127.0.0.0/8 and ::1 are addresses of each context's stack: connections between sockets of
    /// one context run within it, and no packet of theirs reaches a wire. No other address is
    /// needed.
    pub loopback: bool,
    /// Packet rules of each context's stack; none by default, so everything is allowed. Each
    /// context has rate limits and counters of its own ([`rules`](crate::rules)).
    pub rules: RuleSet,
    /// The thread that turns the stack while the application is away from it.
    pub crank: Crank,
    /// Number of contexts, each with a stack on its own queue of the wire.
    pub contexts: usize,
    /// Sizes of each stack's tables.
    pub limits: Limits,
    /// The pages under each stack's connections, flow table, socket blocks and chunks.
    pub hugetlb: HugePages,
    /// Settings of TCP.
    pub tcp: tcp::Config,
    /// Time after which unused memory of buffers and connections goes back to the system, in ns; 0:
    /// never. It takes twice that time at most. Counted as `memory_returned_bytes`.
    pub return_memory_ns: u64,
    /// Local ports for outgoing connections, first and last.
    pub local_ports: (u16, u16),
    /// Secret of hashes, sequence numbers and cookies; `None`: from the kernel.
    pub seed: Option<[u64; 4]>,
    /// Largest number of segments of one flow that a turn processes as one run; 1: each alone.
    pub aggregation_max: u16,
    /// Of the ACKs that fall due within a turn the stack sends only the last, as Linux does after
    /// GRO. Off: it sends one for each segment.
    pub merge_acks: bool,
    /// ACKs of one turn are expanded from one template. Off: each is built alone, with the same
    /// bytes. It serves to measure the gain.
    pub offload_acks: bool,
    /// Longest time to look for work before sleeping, in ns; 0: never. It trades CPU time for
    /// latency. A look that finds nothing makes the next ones rarer, so an idle stack uses no CPU.
    pub spin_ns: u64,
    /// Time that a dropped runtime gives its connections to close in order, in ns. The runtime
    /// stops waiting 1 s after the last delivery, even if peers have not sent their FINs.
    pub linger_ns: u64,
    /// The process that delivers for the remainder of `linger_ns`, if this one has to end at once.
    pub heir: Option<Heir>,
    /// The source of time. On a virtual clock nothing sleeps and no watchdog runs. A call that
    /// would have to wait returns `WouldBlock`, and time passes when the clock's holder advances
    /// it, for example to [`Context::next_deadline_ns`](crate::Context::next_deadline_ns). Inline
    /// crank only.
    pub clock: Clock,
    /// The CPU of each context, or of none. The thread that takes context *n*
    /// ([`Runtime::context`](crate::Runtime::context)) is bound to CPU `cores[n]` and stays bound;
    /// so is the context's stack thread, if it has one. The context's memory comes from that CPU's
    /// memory node. The process's shared watchdog is not bound.
    pub cores: Vec<usize>,
    /// One in so many new connections has its story recorded for `mill ss -v`. 0: only connections
    /// that somebody asks about. A stack records 64 stories at a time.
    pub story_one_in: u32,
    /// The access of other processes to this one's values. Never on a virtual clock.
    pub observe: Observe,
}

/// A wire behind the first, and our addresses and routes on it.
#[derive(Clone, Debug)]
pub struct FurtherWire {
    /// The wire.
    pub wire: WireSpec,
    /// Our addresses and routes on it.
    pub port: PortConfig,
}

impl Config {
    /// Default settings on several wires. Each wire that shall carry connections still needs an
    /// address. `None` without a wire.
    ///
    /// ```
    /// use millstream::Config;
    /// let wires = ["packet:eth0", "packet:eth1"].map(|spec| spec.parse().unwrap());
    /// let mut config = Config::wires(wires).unwrap();
    /// config.addresses.push("10.0.0.2/24".parse().unwrap());
    /// config.further_wires[0].port.addresses.push("10.0.1.2/24".parse().unwrap());
    /// ```
    #[must_use]
    pub fn wires(wires: impl IntoIterator<Item = WireSpec>) -> Option<Self> {
        let mut wires = wires.into_iter();
        let mut config = Self::new(wires.next()?);
        config.further_wires.extend(wires.map(|wire| FurtherWire {
            wire,
            port: PortConfig::default(),
        }));
        Some(config)
    }

    /// Adds a congestion control of the caller's own under a name of 1 to 15 printable characters.
    /// The result makes it the default of new connections (`tcp.congestion`) or that of a socket
    /// ([`set_congestion`](crate::SocketOptions::set_congestion)), as the name does
    /// ([`set_congestion_named`](crate::SocketOptions::set_congestion_named), `TCP_CONGESTION`).
    /// Eight may be added. They stay in memory until the process ends.
    ///
    /// # Errors
    /// A name that is bad or taken, or a ninth algorithm.
    ///
    /// ```
    /// use millstream::congestion_control::{AckSample, CongestionControl, SenderView, State, Window};
    ///
    /// /// So many segments, whatever happens.
    /// struct Fixed(u32);
    ///
    /// impl CongestionControl for Fixed {
    ///     fn begin(&self, _: &mut State, _: &SenderView, window: &mut Window) {
    ///         window.set_cwnd(self.0);
    ///     }
    ///
    ///     fn ssthresh(&self, _: &mut State, _: &SenderView, _: &Window) -> u32 {
    ///         self.0
    ///     }
    ///
    ///     fn grow(&self, _: &mut State, _: &SenderView, window: &mut Window, _: &AckSample) {
    ///         window.set_cwnd(self.0);
    ///     }
    /// }
    ///
    /// let mut config = millstream::Config::new("loopback:".parse().unwrap());
    /// config.tcp.congestion = config.add_congestion_control("fixed", Fixed(40))?;
    /// assert_eq!(config.tcp.congestion.name(), "fixed");
    /// # Ok::<(), millstream::congestion_control::RegisterError>(())
    /// ```
    pub fn add_congestion_control(
        &mut self,
        name: &str,
        algorithm: impl CongestionControl,
    ) -> Result<CongestionAlgorithm, RegisterError> {
        self.tcp.may_register_congestion(name)?;
        let name = Box::leak(Box::<str>::from(name));
        let control = Box::leak(Box::new(algorithm));
        let algorithm = Box::leak(Box::new(OutsideAlgorithm::new(name, control)));
        self.tcp.register_congestion(algorithm)
    }

    /// The CPU of context `index`, if contexts have CPUs.
    pub(crate) fn core(&self, index: usize) -> Option<usize> {
        self.cores.get(index).copied()
    }

    /// The specifications of all wires.
    pub(crate) fn all_wires(&self) -> impl Iterator<Item = &WireSpec> {
        let further = self.further_wires.iter().map(|one| &one.wire);
        std::iter::once(&self.wire).chain(further)
    }

    /// Our addresses on wire `index`.
    pub(crate) fn addresses_on(&self, index: usize) -> &[IpCidr] {
        match index.checked_sub(1) {
            None => &self.addresses,
            Some(index) => &self.further_wires[index].port.addresses,
        }
    }

    /// Default settings on this wire, which still needs an address.
    ///
    /// ```
    /// let config = millstream::Config::new("loopback:".parse().unwrap());
    /// assert_eq!(config.contexts, 1);
    /// ```
    #[must_use]
    pub fn new(wire: WireSpec) -> Self {
        let stack = StackConfig::default();
        Self {
            wire,
            further_wires: Vec::new(),
            addresses: Vec::new(),
            gateways: Vec::new(),
            routes: Vec::new(),
            on_link: Vec::new(),
            neighbours: Vec::new(),
            loopback: false,
            rules: stack.rules,
            crank: Crank::default(),
            contexts: 1,
            limits: stack.limits,
            hugetlb: stack.hugetlb,
            tcp: stack.tcp,
            return_memory_ns: stack.return_memory_ns,
            local_ports: stack.local_ports,
            seed: None,
            aggregation_max: stack.aggregation_max,
            merge_acks: stack.merge_acks,
            offload_acks: stack.offload_acks,
            spin_ns: SPIN_NS,
            linger_ns: LINGER_NS,
            heir: None,
            clock: Clock::System,
            cores: Vec::new(),
            story_one_in: stack.story_one_in,
            observe: Observe::Default,
        }
    }

    /// The addresses of context `index` where each context is a host of its own: the addresses of
    /// the first context, counted on by `index`.
    pub(crate) fn addresses_of(&self, index: usize) -> Vec<IpCidr> {
        let next = |cidr: &IpCidr| {
            let address = match cidr.address() {
                IpAddr::V4(ip) => {
                    IpAddr::from(ip.to_bits().wrapping_add(index as u32).to_be_bytes())
                }
                IpAddr::V6(ip) => {
                    IpAddr::from(ip.to_bits().wrapping_add(index as u128).to_be_bytes())
                }
            };
            // The prefix length was valid for the first context's address.
            IpCidr::new(address, cidr.prefix_len()).unwrap_or(*cidr)
        };
        self.addresses.iter().map(next).collect()
    }

    pub(crate) fn stack(&self, index: usize) -> StackConfig {
        StackConfig {
            addresses: self.addresses.clone(),
            addresses_may_come: false,
            gateways: self.gateways.clone(),
            routes: self.routes.clone(),
            on_link: self.on_link.clone(),
            neighbours: self.neighbours.clone(),
            further_ports: self
                .further_wires
                .iter()
                .map(|one| one.port.clone())
                .collect(),
            loopback: self.loopback,
            rules: self.rules.clone(),
            limits: self.limits.clone(),
            hugetlb: self.hugetlb,
            tcp: self.tcp.clone(),
            return_memory_ns: self.return_memory_ns,
            local_ports: self.local_ports,
            spread: None,
            // Contexts that share a configured seed must still have different secrets.
            seed: self.seed.map(|[a, b, c, d]| [a, b, c, d ^ index as u64]),
            echo: true,
            aggregation_max: self.aggregation_max,
            merge_acks: self.merge_acks,
            offload_acks: self.offload_acks,
            story_one_in: self.story_one_in,
        }
    }
}
