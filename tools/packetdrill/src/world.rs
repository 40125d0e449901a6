//! The stack's world: its sockets, the wire whose far end packetdrill holds, the time, and the
//! settings that a script makes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use millstream::{Clock, Config, IpCidr, Runtime, TcpConfig, VirtualClock};
use packetio::ip_wire::{self, Departed, IpWireEnd};
use posix::{Address, Errno, Request, Sockets, sysctl};

use crate::counters;
use crate::descriptors::{Held, Placeholders};
use crate::invocation::Invocation;
use crate::limits;
use crate::reservation::Reservations;
use crate::settings::Mirror;
use crate::shims::Shims;

/// See the module's documentation.
pub struct World {
    pub sockets: Sockets,
    clock: Clock,
    wire: IpWireEnd,
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
        let (port, wire) = ip_wire::pair(mtu, clock.clone()).map_err(|e| e.to_string())?;
        let mut config = Config::new(packetio::WireSpec::from(packetio::Backend::Loopback(
            packetio::loopback::LoopbackOptions::default(),
        )));
        config.addresses = invocation.locals.iter().copied().map(on_link).collect();
        config.limits = limits::stack();
        config.clock = clock.clone();
        config.local_ports = LOCAL_PORTS;
        config.seed = invocation.seed;
        let applied = mirror.read(shims.as_ref());
        config.tcp = configured(&applied);
        let runtime =
            Runtime::with_ports(config, vec![Box::new(port)]).map_err(|e| e.to_string())?;
        let context = runtime.context(0).map_err(|e| e.to_string())?;
        let mut world = Self {
            sockets: Sockets::with_descriptors(context, Box::new(Placeholders::new(held))),
            clock,
            wire,
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
        self.clock.now_ns()
    }

    /// The clock, if it is in our hands.
    pub fn virtual_clock(&self) -> Option<&VirtualClock> {
        match &self.clock {
            Clock::Virtual(clock) => Some(clock),
            Clock::System => None,
        }
    }

    /// Lets the stack do what it has to do now.
    pub fn turn(&mut self) {
        self.sockets.turn();
        if let Some(shims) = &mut self.shims {
            shims.publish(&counters::by_linux_name(self.sockets.context()));
        }
    }

    /// When the stack has something to do.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.sockets.context().next_deadline_ns()
    }

    /// A packet arrives. Whom it is for is us.
    ///
    /// # Errors
    /// One line: why it cannot.
    pub fn inject(&mut self, packet: &[u8]) -> Result<(), String> {
        if let Some(destination) = destination(packet) {
            self.own(destination);
        }
        self.wire.inject(packet).map_err(|e| e.to_string())
    }

    /// The next packet that has left, unless the script made the wire a hole.
    pub fn departed(&mut self) -> Option<Departed> {
        loop {
            let departed = self.wire.next()?;
            if !self.shims.as_ref().is_some_and(Shims::is_blackhole) {
                return Some(departed);
            }
        }
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
            let _ = self.sockets.context().add_address(on_link(address));
        }
    }

    /// The script may have run a command: its settings are ours.
    pub fn settings_may_have_changed(&mut self) {
        let is_hole = self.shims.as_ref().is_some_and(Shims::is_blackhole);
        self.wire.set_blocked(is_hole);
        let flushes = self.shims.as_ref().map_or(0, Shims::flushes);
        if flushes != self.flushes {
            // As below.
            let _ = self.sockets.context().forget_peers();
            self.flushes = flushes;
        }
        let settings = self.mirror.read(self.shims.as_ref());
        if settings != self.applied {
            // Without room for the request nothing would work anyway.
            let _ = self.sockets.context().reconfigure(configured(&settings));
            self.applied = settings;
        }
    }
}

/// Everybody else is a neighbour: the far end of the wire answers for every address.
fn on_link(address: IpAddr) -> IpCidr {
    IpCidr::new(address, 0).unwrap_or_else(|_| IpCidr::host(address))
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

/// TCP's settings: what the suites presuppose, and over it what is known. What has no counterpart
/// here is left out.
fn configured(settings: &BTreeMap<String, String>) -> TcpConfig {
    let mut tcp = TcpConfig::default();
    for (name, value) in sysctl::DEFAULTS {
        let _ = sysctl::set(&mut tcp, name, value);
    }
    // A route's words come last by their names, and count more than a setting's.
    for (name, value) in settings {
        match name.strip_prefix("route.") {
            Some(metric) => set_metric(&mut tcp, metric, value),
            None => {
                let _ = sysctl::set(&mut tcp, name, value);
            }
        }
    }
    tcp
}

/// The metrics that `ip route` gives to connections over the device.
fn set_metric(tcp: &mut TcpConfig, metric: &str, value: &str) {
    let _ = match metric {
        "initcwnd" => {
            let segments = value.parse().unwrap_or(tcp.initial_window_segments);
            tcp.initial_window_segments = segments;
            Ok(())
        }
        "rto_min" => sysctl::set(tcp, "net.ipv4.tcp_rto_min_us", &micros(value)),
        "congctl" => sysctl::set(tcp, "net.ipv4.tcp_congestion_control", value),
        "reordering" => sysctl::set(tcp, "net.ipv4.tcp_reordering", value),
        _ => Ok(()),
    };
}

/// `200ms`, `1s`, or `200`, which are milliseconds, in microseconds.
fn micros(time: &str) -> String {
    let (number, unit) = match time.strip_suffix("ms") {
        Some(number) => (number, 1e3),
        None => match time.strip_suffix('s') {
            Some(number) => (number, 1e6),
            None => (time, 1e3),
        },
    };
    let number: f64 = number.parse().unwrap_or(0.0);
    ((number * unit) as u64).to_string()
}

/// As Linux chooses them.
const LOCAL_PORTS: (u16, u16) = (32_768, 60_999);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_a_route_count_more_than_settings() {
        let words = [
            ("net.ipv4.tcp_congestion_control", "cubic"),
            ("net.ipv4.tcp_rto_min_us", "200000"),
            ("route.congctl", "reno"),
            ("route.initcwnd", "20"),
            ("route.mtu", "1400"),
            ("route.rto_min", "50ms"),
        ];
        let words = words.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let tcp = configured(&BTreeMap::from(words));
        assert_eq!(tcp.initial_window_segments, 20);
        let said = |name| sysctl::get(&tcp, name).unwrap();
        assert_eq!(said("net.ipv4.tcp_congestion_control"), "reno");
        assert_eq!(said("net.ipv4.tcp_rto_min_us"), "50000");
    }
}
