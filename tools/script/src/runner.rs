//! Execution of a script: its events in order, each at its time.
//!
//! Owns the state of a run: the sockets, the socket that packets belong to, the blocked call.
//! `runner/inbound.rs` and `runner/outbound.rs` handle packets, `runner/calls.rs` and
//! `runner/arguments.rs` handle calls. Times, and the assignment of packets to sockets, follow
//! packetdrill's rules, because existing scripts rely on them.

mod arguments;
mod before;
mod calls;
mod compare;
mod conn;
mod inbound;
mod messages;
mod outbound;
mod pipes;
mod recording;

use std::fmt::Write as _;

use posix::sysctl;

use self::before::Before;
use self::calls::Blocked;
use self::conn::Conn;
use super::ast::{Action, Direction, Event, Micros, Packet, Script, When};
use super::config::Config;
use super::host::Host;
use super::host::kernel::Kernel;
use super::host::stack::Stack;
use super::python::Python;
use super::record::Record;
use super::shell::{self, Allowance, Effect, Status};
use super::{Machine, Mismatch, Options, Report};
use crate::limits::SCRIPT_US_MAX;

/// The longest time that a shell command may sleep, in µs.
const SLEEP_MAX: Micros = 3600 * 1_000_000;

/// How long a new call waits for a blocked one to return, in µs.
const BLOCKED_WAIT: Micros = 1_000_000;

/// Plays `script` on the machine that the options name, and reports what happened.
pub(super) fn play(
    script: &Script,
    mut config: Config,
    options: &Options,
) -> Result<Report, Mismatch> {
    let before = Before::new(script, &mut config, options)?;
    let settings = &before.settings;
    let host: Box<dyn Host> = match options.on {
        Machine::Stack => {
            Stack::new(&config, settings, options.ticks_ms).map(|host| Box::new(host) as _)
        }
        Machine::Kernel => Kernel::new(&config, settings).map(|host| Box::new(host) as _),
    }
    .map_err(|cause| Mismatch::new(1, cause))?;
    let mut runner = Runner {
        script,
        config,
        options,
        host,
        conns: Vec::new(),
        under_test: None,
        pipes: Vec::new(),
        python: Python::default(),
        allowed: before.allowed,
        blocked: None,
        now_playing: Due::default(),
        before: None,
        trace: String::new(),
        record: Record::default(),
        claimed: 0,
        not_done: Vec::new(),
    };
    for (name, value) in &before.made {
        if !runner.host.knows(name, value) {
            runner.setting_ignored(name, value);
        }
    }
    for text in &before.ignored {
        runner.command_ignored(text);
    }
    match runner.all() {
        Ok(()) => Ok(Report {
            events: script.events.len(),
            elapsed_ns: runner.host.now().unsigned_abs() * 1000,
            trace: runner.trace,
            record: runner.record,
        }),
        Err(mut mismatch) => {
            for text in &runner.not_done {
                let _ = write!(mismatch.cause, "\n  not done: {text}");
            }
            mismatch.trace = runner.trace;
            Err(mismatch)
        }
    }
}

/// Fails if the command is known to fail, which ends a script.
fn check_status(text: &str, status: Status) -> Result<(), String> {
    match status {
        Status::Is(0) | Status::Unknown => Ok(()),
        Status::Is(code) => Err(format!("the command `{text}` ends with status {code}")),
    }
}

struct Runner<'s> {
    script: &'s Script,
    config: Config,
    options: &'s Options,
    host: Box<dyn Host>,
    /// Descriptors and connections, closed ones included.
    conns: Vec<Conn>,
    /// Index in `conns` of the connection that packets belong to.
    under_test: Option<usize>,
    /// Bytes held by each pipe.
    pipes: Vec<usize>,
    python: Python,
    /// Actions that the script's commands may still take.
    allowed: Allowance,
    blocked: Option<Blocked<'s>>,
    now_playing: Due,
    /// The event before.
    before: Option<Due>,
    trace: String,
    /// Packets and results that were seen, with `Options::record`.
    record: Record,
    /// Number of recorded packets for which the script has a line.
    claimed: usize,
    /// Settings and commands of the script that have no effect on this host.
    not_done: Vec<String>,
}

/// The times of the event that is played, in script time.
#[derive(Debug, Clone, Copy, Default)]
struct Due {
    line: u32,
    at: Micros,
    /// The end of a range of times.
    until: Option<Micros>,
    /// Any time will do.
    is_any: bool,
    /// The origin of a relative time.
    offset: Micros,
    is_relative: bool,
    /// An inbound packet, however late. The next one's relative time counts from when this was due.
    is_inbound: bool,
}

impl<'s> Runner<'s> {
    fn all(&mut self) -> Result<(), Mismatch> {
        let script = self.script;
        for event in &script.events {
            self.now_playing = self.due(event)?;
            self.event(event)?;
            self.before = Some(self.now_playing);
        }
        self.await_blocked()?;
        if self.options.record {
            self.collect()?;
            return Ok(());
        }
        if let Some(blocked) = &self.blocked {
            return Err(Mismatch::new(
                blocked.line(),
                "the script ends while this call is blocked",
            ));
        }
        if self.options.nothing_left {
            self.nothing_left()?;
        }
        if let Some(cleanup) = &script.cleanup {
            self.shell(&cleanup.text)
                .map_err(|cause| Mismatch::new(cleanup.line, cause.cause))?;
        }
        Ok(())
    }

    fn event(&mut self, event: &'s Event) -> Result<(), Mismatch> {
        match &event.action {
            Action::Packet(packet) => self.packet(packet),
            Action::Call(call) => self.call(call),
            Action::Shell(text) => {
                self.wait("command")?;
                self.shell(text)
            }
            Action::Code(text) => {
                self.wait("data collection for code")?;
                self.code(text)
            }
        }
    }

    /// The time at which `event` is due, after the ones before it have been played.
    fn due(&self, event: &Event) -> Result<Due, Mismatch> {
        let is_inbound = matches!(
            &event.action,
            Action::Packet(packet) if packet.direction == Direction::Inbound
        );
        let offset = match self.before {
            Some(before) if before.is_inbound && is_inbound => before.at,
            _ => self.host.now(),
        };
        let mut due = Due {
            line: event.line,
            is_inbound,
            ..Due::default()
        };
        match event.when {
            When::At(at) => due.at = at,
            When::Between(from, to) => (due.at, due.until) = (from, Some(to)),
            When::After(wait) => {
                (due.at, due.offset, due.is_relative) = (offset + wait, offset, true)
            }
            When::Any => (due.at, due.offset, due.is_any) = (offset, offset, true),
            When::BetweenAfter(from, to) => {
                (due.at, due.until) = (offset + from, Some(offset + to));
                (due.offset, due.is_relative) = (offset, true);
            }
        }
        if due.at > SCRIPT_US_MAX {
            let cause = format!("later than a script lasts: {}", seconds(due.at));
            return Err(Mismatch::new(event.line, cause));
        }
        if self.before.is_none() && due.at != 0 {
            return Err(Mismatch::new(
                event.line,
                "the first event should be at time 0",
            ));
        }
        if let (Some(before), When::At(_) | When::Between(..)) = (self.before, event.when)
            && due.at < before.at
            && !before.is_relative
            && !before.is_any
        {
            let cause = format!(
                "time goes backward from {} to {}",
                seconds(before.at),
                seconds(due.at)
            );
            return Err(Mismatch::new(event.line, cause));
        }
        Ok(due)
    }

    fn mismatch(&self, cause: impl Into<String>) -> Mismatch {
        Mismatch::new(self.now_playing.line, cause)
    }

    /// Adds a line to the trace.
    fn note(&mut self, line: std::fmt::Arguments<'_>) {
        if self.options.trace {
            let _ = writeln!(self.trace, "{} {line}", seconds(self.host.now()));
        }
    }

    /// Lets time pass until the event is due.
    fn wait(&mut self, what: &str) -> Result<(), Mismatch> {
        let due = self.now_playing;
        self.pass_until(due.at)?;
        if self.before.is_some() && !self.options.record {
            self.check_time(due, self.host.now(), what)?;
        }
        Ok(())
    }

    /// Lets time pass until `at`. Everything due in between happens on time.
    fn pass_until(&mut self, at: Micros) -> Result<(), Mismatch> {
        while self.host.now() < at {
            self.host.step(at);
            self.carry_on()?;
            self.collect()?;
        }
        Ok(())
    }

    /// Fails if an event due at `due` happened at another time. The tolerance grows with the time
    /// since the event before.
    fn check_time(&self, due: Due, happened: Micros, what: &str) -> Result<(), Mismatch> {
        if due.is_any {
            return Ok(());
        }
        let waited = self.before.map(|before| due.at - before.at);
        let tolerance = self.tolerance(waited.unwrap_or(0));
        let until = due.until.unwrap_or(due.at);
        if (due.at - tolerance..=until + tolerance).contains(&happened) {
            return Ok(());
        }
        let cause = match due.until {
            Some(until) => format!(
                "timing: {what} expected from {} to {}, happened at {}",
                seconds(due.at),
                seconds(until),
                seconds(happened)
            ),
            None => format!(
                "timing: {what} expected at {}, happened at {} (tolerance {})",
                seconds(due.at),
                seconds(happened),
                seconds(tolerance)
            ),
        };
        Err(Mismatch::new(due.line, cause))
    }

    fn tolerance(&self, waited: Micros) -> Micros {
        let share = (self.config.tolerance_percent / 100.0 * waited as f64) as Micros;
        self.config.tolerance.max(share.min(SCRIPT_US_MAX))
    }

    fn packet(&mut self, packet: &Packet) -> Result<(), Mismatch> {
        let at = self
            .conn_for(packet)
            .map_err(|cause| self.mismatch(cause))?;
        match packet.direction {
            Direction::Inbound => {
                self.wait("inbound packet")?;
                self.inbound(packet, at)
            }
            Direction::Outbound if self.options.record => self.await_any(),
            Direction::Outbound => self.outbound(packet, at),
        }
    }

    fn shell(&mut self, text: &str) -> Result<(), Mismatch> {
        let outcome =
            shell::outcome(text, &mut self.allowed).map_err(|cause| self.mismatch(cause))?;
        for effect in outcome.effects {
            match effect {
                Effect::Set { name, value } => self.set(&name, &value),
                Effect::Defaults => {
                    self.note(format_args!("set the suites' defaults"));
                    for (name, value) in sysctl::DEFAULTS {
                        self.host.set(name, value);
                    }
                }
                // Settings end with the run, so there is nothing to restore.
                Effect::Restore => {}
                Effect::ForgetPeers => match self.host.forget_peers() {
                    true => self.note(format_args!("peers are forgotten")),
                    false => self.command_ignored("ip tcp_metrics flush"),
                },
                Effect::Congested(is_congested) => {
                    self.host.congest(is_congested);
                }
                Effect::Mtu(bytes) => {
                    self.command_ignored(&format!("an MTU of {bytes} from now on"))
                }
                Effect::Sleep(wait) => {
                    let wait = Micros::try_from(wait.as_micros()).unwrap_or(SLEEP_MAX);
                    self.pass_until(self.host.now() + wait.min(SLEEP_MAX))?;
                }
                Effect::Ignored(text) => self.command_ignored(&text),
            }
        }
        self.host.turn();
        if self.options.record {
            return Ok(());
        }
        check_status(text, outcome.status).map_err(|cause| self.mismatch(cause))
    }

    fn set(&mut self, name: &str, value: &str) {
        match self.host.set(name, value) {
            true => self.note(format_args!("set {name} = {value}")),
            false => self.setting_ignored(name, value),
        }
    }

    /// Reports an ignored setting even without a trace: the script runs under other settings than
    /// it asks for.
    fn setting_ignored(&mut self, name: &str, value: &str) {
        let text = format!("setting ignored: {name} = {value}");
        let _ = writeln!(self.trace, "{} {text}", seconds(self.host.now()));
        self.not_done.push(text);
    }

    fn command_ignored(&mut self, text: &str) {
        self.note(format_args!("command ignored: {text}"));
        self.not_done.push(format!("command ignored: {text}"));
    }

    /// Runs code after defining the names of the connection's `tcp_info`.
    fn code(&mut self, text: &str) -> Result<(), Mismatch> {
        let line = self.now_playing.line;
        let Some(at) = self.under_test else {
            return Err(self.mismatch("no socket to use for code"));
        };
        match self.define_names(self.conns[at].live_fd) {
            Err(why) if self.options.record => return self.say(why.cause),
            other => other?,
        }
        let outcome = self.python.run(line, text);
        let printed = std::mem::take(&mut self.python.output);
        for (at, line) in printed.lines().enumerate() {
            self.note(format_args!("printed: {line}"));
            if self.options.record {
                let names = recording::names_of(text, at);
                let now = self.host.now();
                self.record.printed(now, format!("printed: {line}"), names);
            }
        }
        if self.options.record {
            return Ok(());
        }
        outcome
    }
}

/// Microseconds as text in seconds.
fn seconds(micros: Micros) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let micros = micros.unsigned_abs();
    format!("{sign}{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}
