//! Our stack as the host of a script: the whole of it in this process, its clock, and the far end
//! of its wire.
//!
//! Owns the virtual clock. Between two events the clock goes from one deadline of the stack to the
//! next, and the stack is turned at each, so that everything happens at the instant at which it is
//! due.

use std::collections::BTreeMap;
use std::str::FromStr;

use millstream::{Clock, Runtime, TcpConfig, VirtualClock, WireSpec};
use packetio::ip_wire::{self, IpWireEnd};
use posix::{Call, Errno, Outcome, Request, Sockets, sysctl};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::ticks::Ticks;
use super::{Answer, Departure, Host};
use crate::ast::Micros;
use crate::config::Config;
use crate::shell::ROUTE_WINDOW;

/// Where the clock stands when a script starts: long after boot, in the middle of a millisecond.
const START_NS: u64 = 1_000_000_250_000;

/// The step of the clock when the stack names a deadline that has come and does nothing at it.
const NUDGE_NS: u64 = 50_000;

/// How late injected packets are, in turn. No packet of a real peer arrives exactly a whole number
/// of milliseconds after another, nor takes the same time twice: with a packet on the instant, a
/// pause of 1 ms is not longer than 1 ms, and every round trip is the shortest one.
const LATENESS_US: [Micros; 8] = [7, 3, 11, 5, 13, 1, 9, 15];

/// How long a call may block that the script believes to return at once: its own timeout may end
/// it.
const UNEXPECTED_BLOCK_MAX: Micros = 600 * 1_000_000;

pub(crate) struct Stack {
    sockets: Sockets,
    /// The call that was begun.
    call: Option<Call>,
    clock: VirtualClock,
    wire: IpWireEnd,
    /// Packets were injected so many times.
    injections: usize,
    /// Timers fire when Linux's would.
    ticks: Option<Ticks>,
    /// Those in force, by name.
    settings: BTreeMap<String, String>,
    /// The queue before the device takes nothing.
    is_congested: bool,
    /// Capabilities of this thread before the script changed them.
    capabilities: Option<CapabilitySets>,
    _runtime: Runtime,
}

impl Stack {
    /// A stack with these addresses and settings; the other side is everybody else. With `ticks_ms`
    /// its timers are as late as Linux's whose clock ticks first after so many ms.
    pub(crate) fn new(
        config: &Config,
        settings: &BTreeMap<String, String>,
        ticks_ms: Option<u16>,
    ) -> Result<Stack, String> {
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
        // What Linux's aggregation has put together is acknowledged once.
        made.merge_acks = config.mss > 0;
        let runtime =
            Runtime::with_ports(made, vec![Box::new(port)]).map_err(|e| said("stack", &e))?;
        let context = runtime.context(0).map_err(|e| said("stack", &e))?;
        let mut made = Stack {
            sockets: Sockets::new(context),
            call: None,
            clock,
            wire,
            injections: 0,
            ticks: ticks_ms.map(Ticks::new),
            settings: settings.clone(),
            is_congested: false,
            capabilities: None,
            _runtime: runtime,
        };
        made.turn();
        Ok(made)
    }

    /// Lets the few microseconds pass by which the next injection is late.
    fn be_late(&mut self) {
        let until = self.now() + LATENESS_US[self.injections % LATENESS_US.len()];
        self.injections += 1;
        while self.now() < until {
            self.step(until);
        }
    }

    /// The stack's next deadline, or that of a blocked call.
    fn deadline_ns(&self) -> Option<u64> {
        let of_stack = self.sockets.context().next_deadline_ns();
        match (of_stack, self.call.as_ref().and_then(Call::deadline_ns)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

impl Host for Stack {
    fn now(&self) -> Micros {
        (self.clock.now_ns().saturating_sub(START_NS) / 1000) as Micros
    }

    fn epoch_ns(&self) -> i64 {
        START_NS as i64
    }

    fn turn(&mut self) {
        self.sockets.turn();
    }

    /// The clock goes to the next deadline, and the stack is turned there.
    fn step(&mut self, limit: Micros) -> bool {
        let now_ns = self.clock.now_ns();
        let limit_ns = START_NS + limit.max(0) as u64 * 1000;
        let deadline_ns = self.deadline_ns();
        let fires_ns = match &mut self.ticks {
            Some(ticks) => deadline_ns.map(|deadline_ns| ticks.fires_ns(deadline_ns, now_ns)),
            None => deadline_ns,
        };
        let next_ns = fires_ns
            .map(|deadline_ns| match deadline_ns > now_ns {
                true => deadline_ns,
                false => now_ns + NUDGE_NS,
            })
            .filter(|next_ns| *next_ns <= limit_ns);
        self.clock.advance_to_ns(next_ns.unwrap_or(limit_ns));
        // A timer that is due and has not fired yet would fire in any turn.
        if next_ns.is_some() || self.ticks.is_none() {
            self.turn();
        }
        next_ns.is_some()
    }

    fn begin(&mut self, request: Request, _blocks: bool) {
        self.call = Some(Call::start(request));
    }

    fn outcome(&mut self) -> Option<Answer> {
        let Outcome::Done(result) = self.call.as_mut()?.poll(&mut self.sockets) else {
            return None;
        };
        let reply = self.call.take()?.into_reply();
        self.turn();
        Some((result, reply))
    }

    fn abandon(&mut self) {
        self.call = None;
    }

    fn at_once(&mut self, request: Request) -> Option<Answer> {
        match self.sockets.call(request) {
            (Outcome::Done(result), reply) => Some((result, reply)),
            (Outcome::Pending, _) => None,
        }
    }

    fn unexpected_block_max(&self) -> Micros {
        UNEXPECTED_BLOCK_MAX
    }

    fn inject(&mut self, packets: &[Vec<u8>]) -> Result<(), String> {
        self.be_late();
        for packet in packets {
            self.wire
                .inject(packet)
                .map_err(|error| error.to_string())?;
        }
        self.turn();
        Ok(())
    }

    fn departed(&mut self) -> Option<Departure> {
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

    fn knows(&self, name: &str, value: &str) -> bool {
        configure(&mut TcpConfig::default(), name, value)
    }

    fn set(&mut self, name: &str, value: &str) -> bool {
        self.settings.insert(name.to_owned(), value.to_owned());
        let is_known = self.knows(name, value);
        let taken = self
            .sockets
            .context()
            .reconfigure(configured(&self.settings));
        is_known && taken.is_ok()
    }

    /// The stack asks the kernel what the calling thread may.
    fn set_capability(&mut self, number: u32, is_on: bool) -> Result<(), Errno> {
        let mut sets = capabilities(None)?;
        self.capabilities.get_or_insert(sets);
        let one = 1_u64.checked_shl(number).ok_or(Errno::INVAL)?;
        sets.effective
            .set(CapabilitySet::from_bits_retain(one), is_on);
        set_capabilities(None, sets)
    }

    fn forget_peers(&mut self) -> bool {
        self.sockets.context().forget_peers().is_ok()
    }

    fn congest(&mut self, is_congested: bool) -> bool {
        self.is_congested = is_congested;
        self.wire.set_blocked(is_congested);
        true
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if let Some(sets) = self.capabilities {
            // They were in force, so they may be again.
            let _ = set_capabilities(None, sets);
        }
    }
}

/// The settings as TCP knows them; what has no counterpart is left out.
fn configured(settings: &BTreeMap<String, String>) -> TcpConfig {
    let mut tcp = TcpConfig::default();
    for (name, value) in settings {
        // The runner says which ones are not known.
        configure(&mut tcp, name, value);
    }
    tcp
}

/// Makes one setting. False: there is none of that name, or it cannot have that value.
fn configure(tcp: &mut TcpConfig, name: &str, value: &str) -> bool {
    fn put<T: FromStr>(value: &str, field: &mut T) -> bool {
        value.trim().parse().map(|value| *field = value).is_ok()
    }
    match name {
        ROUTE_WINDOW => put(value, &mut tcp.initial_window_segments),
        // Not TCP's own, but what a socket may ask for hangs on them.
        "net.core.rmem_max" => put(value, &mut tcp.recv_buffer_option_max),
        "net.core.wmem_max" => put(value, &mut tcp.send_buffer_option_max),
        _ => sysctl::set(tcp, name, value).is_ok(),
    }
}
