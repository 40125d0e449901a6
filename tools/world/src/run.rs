//! One seed from its first event to its last, and the report of a failure.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use stack::Usage;

use super::app::ledger::Outcome;
use super::app::stream::Name;
use super::draw::draw;
use super::fairness;
use super::faults::{FaultKind, FaultSet};
use super::host::{Host, Shared};
use super::lies;
use super::plan::Plan;
use super::queue::Event;

const SECOND: u64 = 1_000_000_000;
/// Time in ns after the last application is done, in which orphans must give up and TIME_WAIT must
/// end, however slowly.
const AFTERMATH_NS: u64 = 3_000 * SECOND;
/// Time in ns until a connection that found no socket is tried again.
const RETRY_NS: u64 = SECOND / 20;
/// Most events of a world. One with more will never end.
const EVENTS_MAX: u64 = 20_000_000;

/// Options of a seed's run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Print everything that happens.
    pub trace: bool,
    /// Kinds of faults that are switched off.
    pub off: FaultSet,
    /// Runs it twice, the second time without packing quiet sockets, and compares the traces.
    /// Neither chance nor packing may change anything.
    pub twice: bool,
    /// On failure, looks for faults without which the seed still fails.
    pub shrink: bool,
}

/// Figures of a run without a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Hash of the trace.
    pub trace: u64,
    /// Number of events.
    pub events: u64,
    /// The world's time at its end, in ns.
    pub ended_ns: u64,
    /// Number of connection ends that began.
    pub ends: usize,
    /// Ends that finished well.
    pub done: usize,
    /// Ends that failed in a way that their world excuses.
    pub failed: usize,
    /// Ends whose peer had gone without a word.
    pub abandoned: usize,
}

/// A failed run, with everything needed to reproduce it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The first error.
    pub cause: String,
    /// The world's time of the failure, in ns.
    pub at_ns: u64,
    /// The world's description.
    pub world: String,
    /// The last events.
    pub tail: String,
    /// Faults that were off, without which it fails as well.
    pub off: FaultSet,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {} fails at {} ns: {}",
            self.seed, self.at_ns, self.cause
        )?;
        write!(f, "{}", self.world)?;
        writeln!(f, "last events:\n{}", self.tail)?;
        let off = if self.off == FaultSet::NONE {
            String::new()
        } else {
            format!(" --off {}", self.off)
        };
        write!(
            f,
            "again: cargo xtask sim --seed {}{off} --trace",
            self.seed
        )
    }
}

/// Runs a seed.
///
/// # Errors
/// The first fault found.
pub fn check(seed: u64, options: &Options) -> Result<Summary, Box<Failure>> {
    let first = run_once(seed, options.off, options.trace, true);
    let failure = match first {
        Ok(summary) if !options.twice => return Ok(summary),
        Ok(summary) => match run_once(seed, options.off, false, false) {
            Ok(again) if again == summary => return Ok(summary),
            Ok(again) => Box::new(differs(seed, options.off, summary, again)),
            Err(failure) => failure,
        },
        Err(failure) => failure,
    };
    if options.shrink {
        return Err(shrink(failure));
    }
    Err(failure)
}

fn differs(seed: u64, off: FaultSet, first: Summary, again: Summary) -> Failure {
    Failure {
        seed,
        cause: format!("two runs differ: {first:?} and {again:?}"),
        at_ns: first.ended_ns.min(again.ended_ns),
        world: draw(seed).without(off).to_string(),
        tail: String::new(),
        off,
    }
}

/// Switches off one kind of fault after another, as long as the seed still fails.
fn shrink(mut failure: Box<Failure>) -> Box<Failure> {
    for kind in FaultKind::ALL {
        if failure.off.contains(*kind) {
            continue;
        }
        if let Err(smaller) = run_once(failure.seed, failure.off.with(*kind), false, true) {
            failure = smaller;
        }
    }
    failure
}

fn run_once(seed: u64, off: FaultSet, trace: bool, rest: bool) -> Result<Summary, Box<Failure>> {
    let mut plan = draw(seed).without(off);
    if !rest {
        let limits = plan.hosts.iter_mut().map(|host| &mut host.limits);
        limits.for_each(|limits| limits.warm_sockets = limits.sockets_max + 1);
    }
    let description = plan.to_string();
    let failure = |cause: String, at_ns: u64, tail: String| {
        Box::new(Failure {
            seed,
            cause,
            at_ns,
            world: description.clone(),
            tail,
            off,
        })
    };
    let mut world = World::new(plan, trace).map_err(|cause| failure(cause, 0, String::new()))?;
    // A panic is a failed debug assertion of the engine, or a bug of this crate. Its seed must be
    // shown.
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    let cause = match outcome {
        Ok(Ok(())) => return Ok(world.summary()),
        Ok(Err(cause)) => cause,
        Err(panic) => panic_text(panic.as_ref()),
    };
    let shared = &world.shared;
    Err(failure(cause, shared.now_ns, shared.trace.tail()))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a text"))
}

struct World {
    shared: Shared,
    hosts: Vec<Host>,
    events: u64,
    /// Number of connections that have yet to begin.
    to_begin: usize,
}

impl World {
    fn new(plan: Plan, live: bool) -> Result<Self, String> {
        let hosts: Result<Vec<Host>, String> = (0..plan.hosts.len())
            .map(|number| Host::new(&plan, number))
            .collect();
        Ok(Self {
            shared: Shared::new(plan, live),
            hosts: hosts?,
            events: 0,
            to_begin: 0,
        })
    }

    fn summary(&self) -> Summary {
        let ledger = &self.shared.ledger;
        Summary {
            trace: self.shared.trace.hash(),
            events: self.events,
            ended_ns: self.shared.now_ns,
            ends: ledger.begun(),
            done: ledger.count(|outcome| outcome == Outcome::Done),
            failed: ledger.count(|outcome| matches!(outcome, Outcome::Failed(_))),
            abandoned: ledger.count(|outcome| outcome == Outcome::Abandoned),
        }
    }

    fn run(&mut self) -> Result<(), String> {
        self.enter_plan();
        for host in &mut self.hosts {
            host.listen(&mut self.shared)?;
        }
        if self.shared.plan.fair {
            return self.run_fair();
        }
        let plan = &self.shared.plan;
        let bounds = plan.flows.iter().map(|flow| plan.bound_ns(flow));
        let bound_ns = bounds.max().unwrap_or(0);
        while self.is_open() {
            if !self.step_until(bound_ns)? {
                self.shared.now_ns = self.shared.now_ns.max(bound_ns);
                self.abandon()?;
            }
        }
        self.finish()
    }

    /// Enters the plan's events into the queue.
    fn enter_plan(&mut self) {
        let shared = &mut self.shared;
        for (number, flow) in shared.plan.flows.iter().enumerate() {
            for connection in 0..flow.count {
                let at_ns = flow.start_ns + u64::from(connection) * flow.gap_ns;
                shared.queue.enter(at_ns, Event::Begin(number, connection));
                self.to_begin += 1;
            }
        }
        for (at_ns, host, by_ns) in &shared.plan.jumps {
            shared.queue.enter(*at_ns, Event::Jump(*host, *by_ns));
        }
        for (number, lie) in shared.plan.lies.iter().enumerate() {
            shared.queue.enter(lie.at_ns, Event::Lie(number));
        }
    }

    fn is_open(&self) -> bool {
        self.to_begin > 0 || self.hosts.iter().any(|host| host.open() > 0)
    }

    /// Plays the next event. False: it is later than `until_ns`, or there is none.
    fn step_until(&mut self, until_ns: u64) -> Result<bool, String> {
        let queue = &mut self.shared.queue;
        if queue.next_ns().is_none_or(|at_ns| at_ns > until_ns) {
            return Ok(false);
        }
        let Some((at_ns, event)) = queue.pop() else {
            return Ok(false);
        };
        self.shared.now_ns = at_ns;
        self.events += 1;
        if self.events > EVENTS_MAX {
            return Err("no end in sight".to_owned());
        }
        let shared = &mut self.shared;
        match event {
            Event::Turn(host) => self.hosts[host].turn(shared)?,
            Event::Arrive { node, port, frame } => match shared.net.host_of(node) {
                Some(host) => self.hosts[host].arrive(shared, frame),
                None => {
                    let now_ns = shared.now_ns;
                    let Shared { net, queue, .. } = shared;
                    net.pass_on(queue, now_ns, node, port, frame);
                }
            },
            Event::Begin(flow, number) => self.begin(flow, number),
            Event::Jump(host, by_ns) => self.hosts[host].jump(shared, by_ns),
            Event::Lie(number) => {
                let lie = shared.plan.lies[number];
                if let Some((host, frame)) = lies::forge(shared, &self.hosts, &lie) {
                    self.hosts[host].arrive(shared, frame);
                }
            }
        }
        Ok(true)
    }

    fn begin(&mut self, flow: usize, number: u32) {
        let plan = &self.shared.plan.flows[flow];
        let (client, server, both) = (plan.client, plan.server, plan.simultaneous);
        if !self.hosts[client].begin(&mut self.shared, flow, 0, number) {
            let at_ns = self.shared.now_ns + RETRY_NS;
            return self.shared.queue.enter(at_ns, Event::Begin(flow, number));
        }
        self.to_begin -= 1;
        if both && !self.hosts[server].begin(&mut self.shared, flow, 1, number) {
            // The client then fails without a peer, which the ledger excuses.
            self.shared
                .trace
                .note(self.shared.now_ns, server, "no socket", [flow as u64, 0]);
        }
    }

    /// Ends all connections when the world's time is up.
    fn abandon(&mut self) -> Result<(), String> {
        if self.to_begin > 0 && !self.shared.plan.strain.scarce {
            return Err(format!(
                "{} connections never found a socket",
                self.to_begin
            ));
        }
        self.to_begin = 0;
        for host in &mut self.hosts {
            host.abandon(&mut self.shared)?;
        }
        Ok(())
    }

    /// Checks that every host frees all memory after its applications are done.
    fn finish(&mut self) -> Result<(), String> {
        for host in &mut self.hosts {
            host.end_listeners(&mut self.shared);
        }
        let until_ns = self.shared.now_ns + AFTERMATH_NS;
        while !self.is_empty() {
            if !self.step_until(until_ns)? {
                let held: Vec<Usage> = self.hosts.iter().map(Host::usage).collect();
                return Err(format!("all is over, and this is held: {held:?}"));
            }
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.hosts
            .iter()
            .all(|host| host.usage() == Usage::default())
    }

    fn run_fair(&mut self) -> Result<(), String> {
        while self.step_until(fairness::FROM_NS)? {}
        let before = self.carried();
        while self.step_until(fairness::TO_NS)? {}
        let shares: Vec<f64> = self
            .carried()
            .iter()
            .zip(before)
            .map(|(after, before)| after - before)
            .collect();
        let index = fairness::jain(&shares);
        let alike = self.shared.plan.hosts[0].tcp.congestion;
        if index < fairness::index_min(alike) {
            return Err(format!("unfair: {shares:?} bytes, an index of {index:.3}"));
        }
        let lines = self.shared.plan.links.iter().flat_map(|link| &link.lines);
        let rate_bits = lines.map(|line| line.rate_bits).max().unwrap_or(0);
        let seconds = (fairness::TO_NS - fairness::FROM_NS) as f64 / SECOND as f64;
        let used = shares.iter().sum::<f64>() * 8.0 / (rate_bits as f64 * seconds);
        if used < fairness::USE_MIN {
            return Err(format!("slow: {shares:?} bytes, {used:.3} of the rate"));
        }
        Ok(())
    }

    /// Bytes that each flow has carried so far.
    fn carried(&self) -> Vec<f64> {
        let flows = 0..self.shared.plan.flows.len();
        flows
            .map(|flow| self.shared.ledger.look(Name { flow, number: 0 }, 1).read as f64)
            .collect()
    }
}
