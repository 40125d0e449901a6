//! The stack and its surroundings: sockets, the wire whose far end packetdrill holds, the clock,
//! and the script's settings.

use std::collections::BTreeMap;
use std::net::IpAddr;

use millstream::{Clock, TcpConfig, VirtualClock};
use packetio::ip_wire::Departed;
use posix::{Address, Errno, Request, Sockets, sysctl};
use world::virtual_host::{VirtualHost, configured, on_link};

use crate::counters;
use crate::descriptors::{Held, Placeholders};
use crate::invocation::Invocation;
use crate::limits;
use crate::reservation::Reservations;
use crate::settings::Mirror;
use crate::shims::Shims;

/// See the module's documentation.
pub struct World {
    pub host: VirtualHost,
    mirror: Mirror,
    shims: Option<Shims>,
    reservations: Reservations,
    /// Number of flushes of `ip tcp_metrics` on which the stack has acted.
    flushes: u64,
    /// The settings last applied to the stack.
    applied: BTreeMap<String, String>,
}

impl World {
    /// A stack with the current settings.
    ///
    /// # Errors
    /// A line that names the reason.
    pub fn open(
        invocation: &Invocation,
        clock: Clock,
        mirror: Mirror,
        shims: Option<Shims>,
        held: Held,
    ) -> Result<Self, String> {
        let mtu = shims.as_ref().and_then(Shims::mtu);
        let mtu = mtu.unwrap_or(invocation.mtu);
        let mut config = VirtualHost::config(&invocation.locals, clock);
        config.limits = limits::stack();
        config.local_ports = LOCAL_PORTS;
        config.seed = invocation.seed;
        let applied = mirror.read(shims.as_ref());
        config.tcp = with_defaults(&applied);
        let descriptors = Box::new(Placeholders::new(held));
        let host = VirtualHost::open(config, mtu, |context| {
            Sockets::with_descriptors(context, descriptors)
        })?;
        let mut world = Self {
            host,
            mirror,
            shims,
            reservations: Reservations::default(),
            // Flushes before the first call found no peers to forget.
            flushes: 0,
            applied,
        };
        world.turn();
        Ok(world)
    }

    /// The time of the stack's clock, in ns.
    pub fn now_ns(&self) -> u64 {
        self.host.now_ns()
    }

    /// The clock, if it is virtual.
    pub fn virtual_clock(&self) -> Option<&VirtualClock> {
        self.host.virtual_clock()
    }

    /// Lets the stack do everything due now, and publishes its counters.
    pub fn turn(&mut self) {
        self.host.turn();
        if let Some(shims) = &mut self.shims {
            shims.publish(&counters::by_linux_name(self.host.sockets.context()));
        }
    }

    /// The stack's next deadline, in ns.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.host.next_deadline_ns()
    }

    /// Lets a packet arrive. Its destination becomes an address of the stack.
    ///
    /// # Errors
    /// A line that names the reason.
    pub fn inject(&mut self, packet: &[u8]) -> Result<(), String> {
        if let Some(destination) = destination(packet) {
            self.own(destination);
        }
        self.host.inject(packet)
    }

    /// The next packet that has left. While the script's `tc` blocks the wire there is none.
    pub fn departed(&mut self) -> Option<Departed> {
        self.follow_hole();
        self.host.departed()
    }

    /// Gives the stack the address to which a call wants to bind.
    pub fn prepare(&mut self, request: &Request) {
        if let Request::Bind {
            address: Address::Inet(address),
            ..
        } = request
        {
            self.own(address.ip());
        }
    }

    /// Applies the effects of a finished call on the reservations.
    pub fn finish(&mut self, request: &Request, result: Result<i64, Errno>) {
        match (request, result) {
            (Request::Bind { fd, address }, Ok(_)) => self.reservations.bound(*fd, address),
            (Request::Listen { fd, .. }, Ok(_)) => self.reservations.listens(*fd),
            (Request::Close { fd }, Ok(_)) => self.reservations.closed(*fd),
            _ => {}
        }
    }

    fn own(&mut self, address: IpAddr) {
        let address = address.to_canonical();
        if !address.is_unspecified() && !address.is_multicast() {
            // Fails only when the queue of requests is full. Nothing works then anyway.
            let _ = self.host.sockets.context().add_address(on_link(address));
        }
    }

    /// Blocks the wire as long as the script's `tc` does.
    fn follow_hole(&mut self) {
        let is_hole = self.shims.as_ref().is_some_and(Shims::is_blackhole);
        self.host.set_congested(is_hole);
    }

    /// Follows the script's commands, of which one may have run: settings, flushes, the blocked
    /// wire.
    pub fn settings_may_have_changed(&mut self) {
        self.follow_hole();
        let flushes = self.shims.as_ref().map_or(0, Shims::flushes);
        if flushes != self.flushes {
            // See below for the ignored error.
            let _ = self.host.sockets.context().forget_peers();
            self.flushes = flushes;
        }
        let settings = self.mirror.read(self.shims.as_ref());
        if settings != self.applied {
            // Fails only when the queue of requests is full. Nothing works then anyway.
            let _ = self
                .host
                .sockets
                .context()
                .reconfigure(with_defaults(&settings));
            self.applied = settings;
        }
    }
}

/// The destination of an IP packet.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => {
            let octets: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            Some(octets.into())
        }
        6 => {
            let octets: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            Some(octets.into())
        }
        _ => None,
    }
}

/// The configuration of TCP: the defaults of the suites, overridden by the known settings.
fn with_defaults(known: &BTreeMap<String, String>) -> TcpConfig {
    let defaults = sysctl::DEFAULTS.iter();
    let mut settings: BTreeMap<String, String> = defaults
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    settings.extend(known.clone());
    configured(&settings)
}

/// The range of local ports, Linux's default.
const LOCAL_PORTS: (u16, u16) = (32_768, 60_999);
