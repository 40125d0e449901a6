//! What a script is played on: the stack, its clock, and the far end of its wire.
//!
//! Owns the virtual clock. Between two events the clock goes from one deadline of the stack to the next, and the stack is
//! turned at each, so that everything happens at the instant at which it is due.

use std::collections::BTreeMap;

use millstream::{Clock, Runtime, TcpConfig, VirtualClock, WireSpec};
use packetio::ip_wire::{self, IpWireEnd};
use posix::{Sockets, sysctl};

use super::ast::Micros;
use super::config::Config;

/// Where the clock stands when a script starts: long after boot, in the middle of a millisecond.
pub(super) const START_NS: u64 = 1_000_000_250_000;

/// The step of the clock when the stack names a deadline that has come and does nothing at it.
const NUDGE_NS: u64 = 50_000;

pub(super) struct World {
    pub sockets: Sockets,
    clock: VirtualClock,
    wire: IpWireEnd,
    /// Those in force, by name.
    pub settings: BTreeMap<String, String>,
    /// The queue before the device takes nothing.
    pub is_congested: bool,
    _runtime: Runtime,
}

/// An IP packet and when it left.
pub(super) struct Departure {
    pub at: Micros,
    pub packet: Vec<u8>,
}

impl World {
    /// A stack with these addresses and settings; the other side is everybody else.
    pub(super) fn new(
        config: &Config,
        settings: &BTreeMap<String, String>,
    ) -> Result<World, String> {
        let said = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let clock = VirtualClock::new(START_NS);
        let (port, wire) = ip_wire::pair(config.mtu, Clock::Virtual(clock.clone()))
            .map_err(|e| said("wire", &e))?;
        // The name is never opened: the port comes ready made.
        let spec: WireSpec = "loopback:script".parse().map_err(|e| said("wire", &e))?;
        let mut made = millstream::Config::new(spec);
        made.clock = Clock::Virtual(clock.clone());
        made.seed = Some([1, 2, 3, 4]);
        // Everybody is a neighbour: the wire answers for every address.
        let subnet = format!("{}/0", config.local);
        made.addresses
            .push(subnet.parse().map_err(|e| said("address", &e))?);
        made.tcp = configured(settings);
        let runtime =
            Runtime::with_ports(made, vec![Box::new(port)]).map_err(|e| said("stack", &e))?;
        let context = runtime.context(0).map_err(|e| said("stack", &e))?;
        let mut world = World {
            sockets: Sockets::new(context),
            clock,
            wire,
            settings: settings.clone(),
            is_congested: false,
            _runtime: runtime,
        };
        world.turn();
        Ok(world)
    }

    /// Time since the start.
    pub(super) fn now(&self) -> Micros {
        (self.clock.now_ns().saturating_sub(START_NS) / 1000) as Micros
    }

    pub(super) fn elapsed_ns(&self) -> u64 {
        self.clock.now_ns().saturating_sub(START_NS)
    }

    /// Lets the stack do what can be done now.
    pub(super) fn turn(&mut self) {
        self.sockets.turn();
    }

    /// The stack's next deadline, or that of a blocked call.
    fn deadline_ns(&self, of_call: Option<u64>) -> Option<u64> {
        let of_stack = self.sockets.context().next_deadline_ns();
        match (of_stack, of_call) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Goes to the next deadline, but not beyond `limit`, and turns the stack there. False: nothing happens until `limit`, and
    /// the clock stands there; without a limit it stands where it stood.
    pub(super) fn step(&mut self, limit: Option<Micros>, of_call: Option<u64>) -> bool {
        let now_ns = self.clock.now_ns();
        let limit_ns = limit.map(|limit| START_NS + limit.max(0) as u64 * 1000);
        let next_ns = self
            .deadline_ns(of_call)
            .map(|deadline_ns| match deadline_ns > now_ns {
                true => deadline_ns,
                false => now_ns + NUDGE_NS,
            });
        match (next_ns, limit_ns) {
            (Some(next_ns), limit_ns) if limit_ns.is_none_or(|limit_ns| next_ns <= limit_ns) => {
                self.clock.advance_to_ns(next_ns);
                self.turn();
                true
            }
            (_, Some(limit_ns)) => {
                self.clock.advance_to_ns(limit_ns);
                self.turn();
                false
            }
            (_, None) => false,
        }
    }

    /// The queue below the stack is full, and stays so, or is not.
    pub(super) fn congest(&mut self, is_congested: bool) {
        self.is_congested = is_congested;
        self.wire.set_blocked(is_congested);
    }

    /// A packet arrives.
    pub(super) fn inject(&mut self, packet: &[u8]) -> Result<(), String> {
        self.wire
            .inject(packet)
            .map_err(|error| error.to_string())?;
        self.turn();
        Ok(())
    }

    /// The oldest packet that left and was not taken yet.
    pub(super) fn departed(&mut self) -> Option<Departure> {
        loop {
            let departed = self.wire.next()?;
            if !self.is_congested {
                return Some(Departure {
                    at: (departed.at_ns.saturating_sub(START_NS) / 1000) as Micros,
                    packet: departed.packet,
                });
            }
        }
    }

    /// Changes a setting while the stack runs. False: nothing here has that name, or not that value.
    pub(super) fn set(&mut self, name: &str, value: &str) -> bool {
        self.settings.insert(name.to_owned(), value.to_owned());
        let is_known = sysctl::set(&mut TcpConfig::default(), name, value).is_ok();
        let taken = self
            .sockets
            .context()
            .reconfigure(configured(&self.settings));
        is_known && taken.is_ok()
    }
}

/// The settings as TCP knows them; what has no counterpart is left out.
fn configured(settings: &BTreeMap<String, String>) -> TcpConfig {
    let mut tcp = TcpConfig::default();
    for (name, value) in settings {
        // Unknown names are said when they are set.
        let _ = sysctl::set(&mut tcp, name, value);
    }
    tcp
}
