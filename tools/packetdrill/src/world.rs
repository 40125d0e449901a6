//! The stack's world: its sockets, the wire whose far end packetdrill holds, the time, and the
//! settings that a script makes.

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
    /// How often the script has had peers forgotten, as far as the stack has done so.
    flushes: u64,
    /// The settings as they were last applied.
    applied: BTreeMap<String, String>,
}

impl World {
    /// A stack with the settings of this moment.
    ///
    /// # Errors
    /// One line: why not.
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
            // Those before the first call found nothing to be forgotten.
            flushes: 0,
            applied,
        };
        world.turn();
        Ok(world)
    }

    /// The time.
    pub fn now_ns(&self) -> u64 {
        self.host.now_ns()
    }

    /// The clock, if it is in our hands.
    pub fn virtual_clock(&self) -> Option<&VirtualClock> {
        self.host.virtual_clock()
    }

    /// Lets the stack do what it has to do now.
    pub fn turn(&mut self) {
        self.host.turn();
        if let Some(shims) = &mut self.shims {
            shims.publish(&counters::by_linux_name(self.host.sockets.context()));
        }
    }

    /// When the stack has something to do.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.host.next_deadline_ns()
    }

    /// A packet arrives. Whom it is for is us.
    ///
    /// # Errors
    /// One line: why it cannot.
    pub fn inject(&mut self, packet: &[u8]) -> Result<(), String> {
        if let Some(destination) = destination(packet) {
            self.own(destination);
        }
        self.host.inject(packet)
    }

    /// The next packet that has left, unless the script made the wire a hole.
    pub fn departed(&mut self) -> Option<Departed> {
        self.follow_hole();
        self.host.departed()
    }

    /// Prepares what a call needs before it begins: an address.
    pub fn prepare(&mut self, request: &Request) {
        if let Request::Bind {
            address: Address::Inet(address),
            ..
        } = request
        {
            self.own(address.ip());
        }
    }

    /// Applies the effects of a call that is over.
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
            // Without room for the request nothing would work anyway.
            let _ = self.host.sockets.context().add_address(on_link(address));
        }
    }

    /// The wire takes nothing while the script makes it a hole.
    fn follow_hole(&mut self) {
        let is_hole = self.shims.as_ref().is_some_and(Shims::is_blackhole);
        self.host.set_congested(is_hole);
    }

    /// The script may have run a command: its settings are ours.
    pub fn settings_may_have_changed(&mut self) {
        self.follow_hole();
        let flushes = self.shims.as_ref().map_or(0, Shims::flushes);
        if flushes != self.flushes {
            // As below.
            let _ = self.host.sockets.context().forget_peers();
            self.flushes = flushes;
        }
        let settings = self.mirror.read(self.shims.as_ref());
        if settings != self.applied {
            // Without room for the request nothing would work anyway.
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

/// TCP's settings: those that the suites presuppose, and over them the ones that are known.
fn with_defaults(known: &BTreeMap<String, String>) -> TcpConfig {
    let defaults = sysctl::DEFAULTS.iter();
    let mut settings: BTreeMap<String, String> = defaults
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    settings.extend(known.clone());
    configured(&settings)
}

/// The range of local ports, as Linux chooses them.
const LOCAL_PORTS: (u16, u16) = (32_768, 60_999);
