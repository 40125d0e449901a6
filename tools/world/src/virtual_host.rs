//! A host with sockets in virtual time: one context behind the BSD socket calls, and a wire of raw
//! IP packets. The wire's far end stands for all peers.
//!
//! ```text
//!   calls ──▶ Sockets ── stack ── ip_wire ──▶ departed()
//!               ▲                    ▲
//!            turn()               inject()         advance(): the clock, from deadline to deadline
//! ```
//!
//! Owns the sockets, the clock and the far end of the wire. The packet scripts and the packetdrill
//! plug-in call it. They turn the stack after each move of the clock, so everything happens at the
//! instant at which it is due. The plug-in may also run it on the system's clock, which cannot be
//! moved. The hosts of random worlds are different: they work below the socket calls, many to a
//! world.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;

use millstream::{Clock, Config, Context, IpCidr, Runtime, TcpConfig, VirtualClock};
use packetio::ip_wire::{self, Departed, IpWireEnd};
use packetio::loopback::LoopbackOptions;
use packetio::{Backend, WireSpec};
use posix::{Sockets, sysctl};

/// Lateness of injected packets in ns, in rotation. Packets of a real peer never arrive exactly a
/// whole number of milliseconds apart, nor take the same time twice. Without lateness a pause of 1
/// ms would not exceed 1 ms, and every round trip would equal the shortest.
const LATENESS_NS: [u64; 8] = [7_000, 3_000, 11_000, 5_000, 13_000, 1_000, 9_000, 15_000];

/// The least move of the clock towards a deadline, in ns. The stack may name a deadline that has
/// already come and do nothing at it.
const STEP_NS: u64 = 1_000;

/// The name of a route's `initcwnd` in segments, for which Linux has no setting.
pub const ROUTE_WINDOW: &str = "route.initcwnd";

/// See the module's documentation.
pub struct VirtualHost {
    /// The socket calls.
    pub sockets: Sockets,
    clock: Clock,
    wire: IpWireEnd,
    /// Number of injections so far, which selects the next lateness.
    injections: usize,
    /// Whether the queue before the device accepts no packet.
    is_congested: bool,
    _runtime: Runtime,
}

impl VirtualHost {
    /// The configuration of a host at these addresses. Every other address is on its link, since
    /// the wire answers for all of them.
    #[must_use]
    pub fn config(locals: &[IpAddr], clock: Clock) -> Config {
        // `open` supplies the port, so this backend is never opened.
        let unused = Backend::Loopback(LoopbackOptions::default());
        let mut config = Config::new(WireSpec::from(unused));
        config.addresses = locals.iter().copied().map(on_link).collect();
        config.clock = clock;
        config
    }

    /// A host on its configuration's clock, whose wire takes packets of `mtu` bytes. `sockets`
    /// makes its socket calls from the context.
    ///
    /// # Errors
    /// The part that could not be made, and the reason.
    pub fn open(
        config: Config,
        mtu: usize,
        sockets: impl FnOnce(Context) -> Sockets,
    ) -> Result<Self, String> {
        let clock = config.clock.clone();
        let (port, wire) =
            ip_wire::pair(mtu, clock.clone()).map_err(|error| format!("wire: {error}"))?;
        let stack = |error| format!("stack: {error}");
        let runtime = Runtime::with_ports(config, vec![Box::new(port)]).map_err(stack)?;
        let context = runtime.context(0).map_err(stack)?;
        Ok(Self {
            sockets: sockets(context),
            clock,
            wire,
            injections: 0,
            is_congested: false,
            _runtime: runtime,
        })
    }

    /// The time of the host's clock, in ns.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// The clock, if it is virtual.
    #[must_use]
    pub fn virtual_clock(&self) -> Option<&VirtualClock> {
        match &self.clock {
            Clock::Virtual(clock) => Some(clock),
            Clock::System => None,
        }
    }

    /// Lets the stack do everything that is due at this instant.
    pub fn turn(&mut self) {
        self.sockets.turn();
    }

    /// The stack's next deadline on the host's clock, in ns.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.sockets.context().next_deadline_ns()
    }

    /// Moves a virtual clock to `due_ns`, by a step at least, or to `limit_ns` if that comes first.
    /// True: `due_ns` was reached.
    pub fn advance(&self, due_ns: Option<u64>, limit_ns: u64) -> bool {
        let Some(clock) = self.virtual_clock() else {
            return false;
        };
        let least_ns = clock.now_ns() + STEP_NS;
        let next_ns = due_ns.map(|due_ns| due_ns.max(least_ns));
        let next_ns = next_ns.filter(|next_ns| *next_ns <= limit_ns);
        clock.advance_to_ns(next_ns.unwrap_or(limit_ns));
        next_ns.is_some()
    }

    /// The lateness of the next injection, in ns. The caller lets this time pass first.
    pub fn take_lateness_ns(&mut self) -> u64 {
        let lateness_ns = LATENESS_NS[self.injections % LATENESS_NS.len()];
        self.injections += 1;
        lateness_ns
    }

    /// Lets a packet arrive at this instant.
    ///
    /// # Errors
    /// The bytes are no packet, or the stack has not taken earlier packets.
    pub fn inject(&self, packet: &[u8]) -> Result<(), String> {
        self.wire.inject(packet).map_err(|error| error.to_string())
    }

    /// The oldest packet that left and was not taken yet.
    pub fn departed(&self) -> Option<Departed> {
        loop {
            let departed = self.wire.next()?;
            if !self.is_congested {
                return Some(departed);
            }
        }
    }

    /// Blocks the queue before the device, or unblocks it. Packets that leave meanwhile are lost.
    pub fn set_congested(&mut self, is_congested: bool) {
        self.is_congested = is_congested;
        self.wire.set_blocked(is_congested);
    }
}

/// An address with a prefix of 0 bits, so that every other address is on its link.
#[must_use]
pub fn on_link(address: IpAddr) -> IpCidr {
    IpCidr::new(address, 0).unwrap_or_else(|_| IpCidr::host(address))
}

/// TCP's configuration with these settings by name. Unknown names are skipped. Route metrics
/// (`route.…`) sort behind the settings, so they override them.
#[must_use]
pub fn configured(settings: &BTreeMap<String, String>) -> TcpConfig {
    let mut tcp = TcpConfig::default();
    for (name, value) in settings {
        configure(&mut tcp, name, value);
    }
    tcp
}

/// Makes one setting. False: the name is unknown, or the value is refused.
pub fn configure(tcp: &mut TcpConfig, name: &str, value: &str) -> bool {
    fn put<T: FromStr>(value: &str, field: &mut T) -> bool {
        value.trim().parse().map(|value| *field = value).is_ok()
    }
    let mut set = |name: &str, value: &str| sysctl::set(tcp, name, value).is_ok();
    match name {
        ROUTE_WINDOW => put(value, &mut tcp.initial_window_segments),
        "route.congctl" => set("net.ipv4.tcp_congestion_control", value),
        "route.reordering" => set("net.ipv4.tcp_reordering", value),
        "route.rto_min" => {
            micros(value).is_some_and(|micros| set("net.ipv4.tcp_rto_min_us", &micros.to_string()))
        }
        // Not TCP settings, but they limit the buffers that a socket may ask for.
        "net.core.rmem_max" => put(value, &mut tcp.recv_buffer_option_max),
        "net.core.wmem_max" => put(value, &mut tcp.send_buffer_option_max),
        _ => set(name, value),
    }
}

/// Microseconds of `200ms`, `1s`, or `200`; a number without unit counts milliseconds.
#[must_use]
pub fn micros(time: &str) -> Option<u64> {
    let (number, unit) = match time.strip_suffix("ms") {
        Some(number) => (number, 1e3),
        None => match time.strip_suffix('s') {
            Some(number) => (number, 1e6),
            None => (time, 1e3),
        },
    };
    let number: f64 = number.parse().ok()?;
    Some((number * unit) as u64)
}

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
