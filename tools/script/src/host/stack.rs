//! Our stack as the host of a script: a virtual host in this process.
//!
//! Owns the started call and the settings. Between two events the clock goes from one deadline of
//! the stack to the next. The stack is turned at each, so everything happens at the instant at
//! which it is due.

use std::collections::BTreeMap;

use millstream::{Clock, TcpConfig, VirtualClock};
use posix::{Call, Errno, Outcome, Request, Sockets};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use world::virtual_host::{VirtualHost, configure, configured};

use super::ticks::Ticks;
use super::{Answer, Departure, Host};
use crate::ast::Micros;
use crate::config::Config;

/// The clock in ns when a script starts: long after boot, in the middle of a millisecond.
const START_NS: u64 = 1_000_000_250_000;

/// Longest time that a call may block although the script expects it to return at once. It is long
/// enough for the call's own timeout.
const UNEXPECTED_BLOCK_MAX: Micros = 600 * 1_000_000;

pub(crate) struct Stack {
    host: VirtualHost,
    /// The started call.
    call: Option<Call>,
    /// Linux's tick rules, if timers are to fire when Linux's would.
    ticks: Option<Ticks>,
    /// The settings in force, by name.
    settings: BTreeMap<String, String>,
    /// Capabilities of this thread before the script changed them.
    capabilities: Option<CapabilitySets>,
}

impl Stack {
    /// A stack with these addresses and settings; every other address is the peer's. With
    /// `ticks_ms` its timers are as late as Linux's with a first tick after so many ms.
    pub(crate) fn new(
        config: &Config,
        settings: &BTreeMap<String, String>,
        ticks_ms: Option<u16>,
    ) -> Result<Stack, String> {
        let clock = Clock::Virtual(VirtualClock::new(START_NS));
        let mut made = VirtualHost::config(&[config.local], clock);
        made.seed = Some([1, 2, 3, 4]);
        made.tcp = configured(settings);
        // Segments that Linux's aggregation has merged are acknowledged once.
        made.merge_acks = config.mss > 0;
        let mut made = Stack {
            host: VirtualHost::open(made, config.mtu, Sockets::new)?,
            call: None,
            ticks: ticks_ms.map(Ticks::new),
            settings: settings.clone(),
            capabilities: None,
        };
        made.turn();
        Ok(made)
    }

    /// Moves the virtual clock by the few microseconds by which the next injected packet is late.
    fn be_late(&mut self) {
        let until = self.now() + (self.host.take_lateness_ns() / 1000) as Micros;
        while self.now() < until {
            self.step(until);
        }
    }

    /// The stack's next deadline, or that of the started call, whichever is earlier.
    fn deadline_ns(&self) -> Option<u64> {
        match (
            self.host.next_deadline_ns(),
            self.call.as_ref().and_then(Call::deadline_ns),
        ) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

impl Host for Stack {
    fn now(&self) -> Micros {
        (self.host.now_ns().saturating_sub(START_NS) / 1000) as Micros
    }

    fn epoch_ns(&self) -> i64 {
        START_NS as i64
    }

    fn turn(&mut self) {
        self.host.turn();
    }

    /// Advances the clock to the next deadline, and turns the stack there.
    fn step(&mut self, limit: Micros) -> bool {
        let now_ns = self.host.now_ns();
        let limit_ns = START_NS + limit.max(0) as u64 * 1000;
        let deadline_ns = self.deadline_ns();
        let fires_ns = match &mut self.ticks {
            Some(ticks) => deadline_ns.map(|deadline_ns| ticks.fires_ns(deadline_ns, now_ns)),
            None => deadline_ns,
        };
        let is_due = self.host.advance(fires_ns, limit_ns);
        // With ticks, a turn would fire a due timer too early. Only the clock moves then.
        if is_due || self.ticks.is_none() {
            self.turn();
        }
        is_due
    }

    fn begin(&mut self, request: Request, _blocks: bool) {
        self.call = Some(Call::start(request));
    }

    fn outcome(&mut self) -> Option<Answer> {
        let Outcome::Done(result) = self.call.as_mut()?.poll(&mut self.host.sockets) else {
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
        match self.host.sockets.call(request) {
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
            self.host.inject(packet)?;
        }
        self.turn();
        Ok(())
    }

    fn departed(&mut self) -> Option<Departure> {
        let departed = self.host.departed()?;
        Some(Departure {
            at: (departed.at_ns.saturating_sub(START_NS) / 1000) as Micros,
            packet: departed.packet,
        })
    }

    fn knows(&self, name: &str, value: &str) -> bool {
        configure(&mut TcpConfig::default(), name, value)
    }

    fn set(&mut self, name: &str, value: &str) -> bool {
        self.settings.insert(name.to_owned(), value.to_owned());
        let is_known = self.knows(name, value);
        let context = self.host.sockets.context();
        let taken = context.reconfigure(configured(&self.settings));
        is_known && taken.is_ok()
    }

    /// Changes the calling thread's own capabilities, since the stack asks the kernel for those.
    fn set_capability(&mut self, number: u32, is_on: bool) -> Result<(), Errno> {
        let mut sets = capabilities(None)?;
        self.capabilities.get_or_insert(sets);
        let one = 1_u64.checked_shl(number).ok_or(Errno::INVAL)?;
        sets.effective
            .set(CapabilitySet::from_bits_retain(one), is_on);
        set_capabilities(None, sets)
    }

    fn forget_peers(&mut self) -> bool {
        self.host.sockets.context().forget_peers().is_ok()
    }

    fn congest(&mut self, is_congested: bool) -> bool {
        self.host.set_congested(is_congested);
        true
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if let Some(sets) = self.capabilities {
            // The old capabilities were in force before, so the kernel permits them again.
            let _ = set_capabilities(None, sets);
        }
    }
}
