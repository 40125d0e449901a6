//! The play: events in order, each at its time.
//!
//! Owns the state of a run: which sockets there are, which one packets belong to, the blocked call. What packets do is in
//! `runner/inbound.rs` and `runner/outbound.rs`, what calls do in `runner/calls.rs` and `runner/arguments.rs`; the
//! rules of time and of belonging are packetdrill's, since other people's scripts rely on them.

mod arguments;
mod calls;
mod compare;
mod conn;
mod inbound;
mod messages;
mod outbound;
mod pipes;
mod recording;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use posix::sysctl;

use self::calls::Blocked;
use self::conn::Conn;
use super::ast::{Action, Direction, Event, Micros, Packet, Script, When};
use super::config::Config;
use super::host::Host;
use super::host::kernel::Kernel;
use super::host::stack::Stack;
use super::python::Python;
use super::record::Record;
use super::shell::{self, Effect};
use super::{Machine, Mismatch, Options, Report};

/// How long a call that is about to be made waits for a blocked one to return.
const BLOCKED_WAIT: Micros = 1_000_000;

/// Plays `script`.
pub(super) fn play(
    script: &Script,
    mut config: Config,
    options: &Options,
) -> Result<Report, Mismatch> {
    let mut settings: BTreeMap<String, String> = BTreeMap::new();
    let mut ignored = Vec::new();
    apply_defaults(&mut settings);
    if let Some(init) = &script.init {
        for effect in shell::effects(&init.text) {
            match effect {
                Effect::Set { name, value } => {
                    settings.insert(name, value);
                }
                Effect::Defaults => apply_defaults(&mut settings),
                Effect::Mtu(bytes) => config.mtu = bytes,
                Effect::Ignored(text) => ignored.push(text),
                Effect::Restore | Effect::ForgetPeers | Effect::Congested(_) => {}
            }
        }
    }
    let host: Box<dyn Host> = match options.on {
        Machine::Stack => Stack::new(&config, &settings).map(|host| Box::new(host) as _),
        Machine::Kernel => Kernel::new(&config, &settings).map(|host| Box::new(host) as _),
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
        blocked: None,
        now_playing: Due::default(),
        before: None,
        trace: String::new(),
        record: Record::default(),
        claimed: 0,
    };
    for text in ignored {
        runner.note(format_args!("command ignored: {text}"));
    }
    match runner.all() {
        Ok(()) => Ok(Report {
            events: script.events.len(),
            elapsed_ns: runner.host.now().unsigned_abs() * 1000,
            trace: runner.trace,
            record: runner.record,
        }),
        Err(mismatch) => Err(Mismatch {
            trace: runner.trace,
            ..mismatch
        }),
    }
}

fn apply_defaults(settings: &mut BTreeMap<String, String>) {
    for (name, value) in sysctl::DEFAULTS {
        settings.insert((*name).to_owned(), (*value).to_owned());
    }
}

struct Runner<'s> {
    script: &'s Script,
    config: Config,
    options: &'s Options,
    host: Box<dyn Host>,
    /// Descriptors and connections, also closed ones.
    conns: Vec<Conn>,
    /// The one that packets belong to.
    under_test: Option<usize>,
    /// Bytes in each pipe.
    pipes: Vec<usize>,
    python: Python,
    blocked: Option<Blocked<'s>>,
    now_playing: Due,
    /// The event before.
    before: Option<Due>,
    trace: String,
    /// What was seen, if nothing is expected.
    record: Record,
    /// Packets of the record that a line of the script stands for.
    claimed: usize,
}

/// When the event that is played is due, in script time.
#[derive(Debug, Clone, Copy, Default)]
struct Due {
    line: u32,
    at: Micros,
    /// The end of a range.
    until: Option<Micros>,
    /// Whenever.
    is_any: bool,
    /// What its times are relative to.
    offset: Micros,
    is_relative: bool,
    /// An inbound packet: the next one's time counts from its own, however late it was.
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
            self.shell(&cleanup.text);
        }
        Ok(())
    }

    fn event(&mut self, event: &'s Event) -> Result<(), Mismatch> {
        match &event.action {
            Action::Packet(packet) => self.packet(packet),
            Action::Call(call) => self.call(call),
            Action::Shell(text) => {
                self.wait("command")?;
                self.shell(text);
                Ok(())
            }
            Action::Code(text) => {
                self.wait("data collection for code")?;
                self.code(text)
            }
        }
    }

    /// When `event` is due, now that the ones before it have been played.
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

    /// A line of the record.
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

    /// Lets time pass until `at`; what is due in between happens when it is due.
    fn pass_until(&mut self, at: Micros) -> Result<(), Mismatch> {
        while self.host.now() < at {
            self.host.step(at);
            self.carry_on()?;
            self.collect()?;
        }
        Ok(())
    }

    /// Fails if what was due at `due` happened at another time. The tolerance grows with the time since the event before.
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
        self.config.tolerance.max(share)
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

    fn shell(&mut self, text: &str) {
        for effect in shell::effects(text) {
            match effect {
                Effect::Set { name, value } => self.set(&name, &value),
                Effect::Defaults => {
                    for (name, value) in sysctl::DEFAULTS {
                        self.set(name, value);
                    }
                }
                // The settings end with the run.
                Effect::Restore => {}
                Effect::ForgetPeers => {
                    self.note(format_args!("command ignored: ip tcp_metrics flush"))
                }
                Effect::Congested(is_congested) => {
                    self.host.congest(is_congested);
                }
                Effect::Mtu(bytes) => self.note(format_args!("command ignored: mtu {bytes}")),
                Effect::Ignored(text) => self.note(format_args!("command ignored: {text}")),
            }
        }
        self.host.turn();
    }

    fn set(&mut self, name: &str, value: &str) {
        let is_known = self.host.set(name, value);
        let how = if is_known { "set" } else { "setting ignored:" };
        self.note(format_args!("{how} {name} = {value}"));
    }

    /// Runs code with the names of the connection's `tcp_info`.
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
        for line in printed.lines() {
            self.note(format_args!("printed: {line}"));
            self.say(format!("printed: {line}"))?;
        }
        if self.options.record {
            return Ok(());
        }
        outcome
    }
}

/// Microseconds as seconds.
fn seconds(micros: Micros) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let micros = micros.unsigned_abs();
    format!("{sign}{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}
