//! The captured ports: starts, renews and reads the logs of all ports of all contexts.
//!
//! A process may be hostile or stuck. It must not delay frames of others for long, so a round takes
//! a bounded number of frames from each log, and waits only briefly for an answer.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use observe::client::Client;
use observe::message::kind;
use observe::place;
use observe::reader::ContextValues;
use ring::frame_log::FrameLogReader;
use rustix::fd::AsFd;
use rustix::io::Errno;

use super::driver_drops::DriverDrops;
use crate::failure::Failure;
use crate::limits::{CAPTURE_ROUND_FRAMES, PUBLISH_MS_MAX};
use crate::processes::{is_of, why};

/// The processes to capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All processes, including later ones.
    All,
    /// The process with this number.
    One(u32),
    /// The only process.
    Only,
}

/// A port of a context, as an interface of a capture.
#[derive(Debug)]
pub struct Interface {
    /// The interface's number in the capture, from 0 on.
    pub id: usize,
    /// Process, context and wire: `4711/0 xdp:eth0`.
    pub name: String,
    /// The command of the process.
    pub description: String,
}

/// See the module's documentation.
pub struct Sources {
    processes: Vec<Process>,
    ports: Vec<CapturedPort>,
    which: Which,
    wish: Wish,
    /// Number of interfaces so far.
    interfaces: usize,
    /// Number of times that a port stopped logging because no request came.
    pub gaps: u64,
    /// Processes that could not be asked at the last look, a line for each.
    unseen: Vec<String>,
}

struct Process {
    pid: u32,
    client: Client,
    command: String,
    /// Frames that drivers had dropped when the capture began.
    before: DriverDrops,
}

struct CapturedPort {
    pid: u32,
    place: Place,
    interface: Rc<Interface>,
    log: FrameLogReader,
    /// Logging has ended. The port is removed once its log is read.
    is_over: bool,
}

/// The identity of a port in its process.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    /// The slot of its context, which answers requests for the port.
    slot: u16,
    /// The port's number in the context.
    number: u8,
}

impl Place {
    /// Reads it from a context's values; `None` if the port's number is invalid.
    fn of(values: &ContextValues) -> Option<Self> {
        Some(match values.behind_first {
            None => Self {
                slot: values.slot,
                number: 0,
            },
            Some(behind) => Self {
                slot: behind.owner,
                number: u8::try_from(behind.number).ok()?,
            },
        })
    }

    /// The request for the port's log.
    fn request(self, wish: &Wish) -> Vec<u8> {
        let mut body = wish.snap.to_le_bytes().to_vec();
        body.push(self.number);
        body.extend_from_slice(&wish.filter);
        body
    }
}

/// The contents of the requests for logs.
pub struct Wish {
    /// Bytes to log of each frame.
    pub snap: u32,
    /// The filter program for frames to log; empty: all. Other readers of the port may have asked
    /// for others, so the frames must be filtered again after reading.
    pub filter: Vec<u8>,
}

impl Sources {
    /// Connects to the processes, and switches their captures on. With [`Which::All`] there may be
    /// none yet.
    ///
    /// # Errors
    /// There is no such process, or all refuse.
    pub fn open(which: Which, wish: Wish) -> Result<Self, Failure> {
        let mut sources = Self {
            processes: Vec::new(),
            ports: Vec::new(),
            which,
            wish,
            interfaces: 0,
            gaps: 0,
            unseen: Vec::new(),
        };
        let found = sources.look_for_new();
        let mut refusal = None;
        for why in sources.unseen.drain(..) {
            tracing::warn!("{why}");
            refusal = Some(why);
        }
        let mut processes = std::mem::take(&mut sources.processes);
        for process in &mut processes {
            if let Err(errno) = sources.ask(process) {
                let why = format!("process {}: {}", process.pid, why(errno));
                tracing::warn!("{why}");
                refusal = Some(why);
            }
        }
        sources.processes = processes;
        let refused = |why| Err(Failure::Run(why));
        match (which, sources.ports.is_empty(), refusal) {
            (Which::Only, ..) if found != 1 => {
                let why = format!("{found} processes that this user may look into: name one");
                refused(why)
            }
            (_, true, Some(why)) => refused(why),
            (Which::One(pid), true, None) => {
                let what = "no context of Millstream's that this user may look into";
                refused(format!("process {pid}: {what}"))
            }
            (Which::Only, true, None) => refused("no process with a context".to_owned()),
            (Which::All, true, None) | (_, false, _) => Ok(sources),
        }
    }

    /// Frames that drivers dropped since the capture began, by counter, of processes that are still
    /// there.
    pub fn driver_drops(&mut self) -> Vec<(String, u64)> {
        let grown = self.processes.iter_mut().flat_map(|process| {
            let now = DriverDrops::of(&mut process.client);
            now.since(&process.before)
        });
        grown.collect()
    }

    /// All captured ports.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.ports.iter().map(|port| &*port.interface)
    }

    /// True if no port is left.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty() && self.which != Which::All
    }

    /// Asks every context to continue logging, and finds new contexts.
    pub fn renew(&mut self) {
        if self.which == Which::All {
            self.look_for_new();
        }
        let mut processes = std::mem::take(&mut self.processes);
        for process in &mut processes {
            // Only the first request may take long. Later, frames of other processes would wait.
            let patience = Duration::from_millis(PUBLISH_MS_MAX);
            process.client.set_patience(patience);
        }
        processes.retain_mut(|process| match self.ask(process) {
            // A process that is stuck or stopped may recover: its answer is awaited from now on.
            Ok(()) | Err(Errno::TIMEDOUT) => true,
            Err(_) => false,
        });
        self.processes = processes;
        let is_known = |pid| self.processes.iter().any(|process| process.pid == pid);
        for port in &mut self.ports {
            port.is_over |= !is_known(port.pid);
        }
    }

    /// Takes the next frames of every log, sorted by time.
    pub fn read(&mut self, round: &mut Round) {
        round.begin();
        self.ports.retain_mut(|port| {
            let taken = round.take(port);
            taken > 0 || !port.is_over
        });
        round.sort();
    }

    /// Connects to new processes; returns the number of processes that it found.
    fn look_for_new(&mut self) -> usize {
        let mut count = 0;
        let files = self.processes.iter().filter_map(|one| one.client.file());
        let found = place::agents_but(&files.collect());
        let wanted = self.which;
        let is_wanted = |named: &dyn Fn(u32) -> bool| match wanted {
            Which::One(pid) => named(pid),
            Which::All | Which::Only => true,
        };
        self.unseen.clear();
        for (socket, errno) in found.unseen {
            if is_wanted(&|pid| is_of(&socket, pid)) {
                count += 1;
                let why = format!("{}: {}", socket.display(), why(errno));
                self.unseen.push(why);
            }
        }
        for client in found.agents {
            let pid = client.pid();
            if !is_wanted(&|wanted| wanted == pid) {
                continue;
            }
            count += 1;
            if self.processes.iter().all(|process| process.pid != pid) {
                match Process::open(client) {
                    Ok(process) => self.processes.push(process),
                    Err(errno) => {
                        let why = format!("process {pid}: {}", why(errno));
                        self.unseen.push(why);
                    }
                }
            }
        }
        count
    }

    /// Starts or renews the captures of a process.
    fn ask(&mut self, process: &mut Process) -> Result<(), Errno> {
        let statistics = process.client.statistics()?;
        for found in statistics.ports(&[]) {
            let Some(place) = Place::of(&found) else {
                continue;
            };
            let body = place.request(&self.wish);
            let file = match process.client.ask(place.slot, kind::CAPTURE, &body) {
                // The context is gone.
                Err(Errno::SRCH) => continue,
                answer => answer?.file.ok_or(Errno::PROTO)?,
            };
            let mut known = (self.ports.iter_mut())
                .filter(|one| one.pid == process.pid && one.place == place && !one.is_over);
            let interface = match known.next() {
                Some(known) if known.log.is_of(file.as_fd()) => continue,
                Some(known) => {
                    known.is_over = true;
                    self.gaps += 1;
                    known.interface.clone()
                }
                None => {
                    self.interfaces += 1;
                    Rc::new(Interface {
                        id: self.interfaces - 1,
                        name: format!("{}/{} {}", process.pid, found.context, found.port),
                        description: process.command.clone(),
                    })
                }
            };
            self.ports.push(CapturedPort {
                pid: process.pid,
                place,
                interface,
                log: FrameLogReader::open(file)?,
                is_over: false,
            });
        }
        Ok(())
    }
}

impl Process {
    fn open(mut client: Client) -> Result<Self, Errno> {
        let statistics = client.statistics()?;
        let command = statistics.command();
        let before = DriverDrops::read(&statistics);
        Ok(Self {
            pid: client.pid(),
            client,
            command,
            before,
        })
    }
}

/// Frames that one round read from all logs.
#[derive(Default)]
pub struct Round {
    held: Vec<Held>,
    bytes: Vec<u8>,
    is_full: bool,
    unread_share: f64,
}

struct Held {
    at_ns: u64,
    interface: Rc<Interface>,
    is_outbound: bool,
    wire_bytes: usize,
    bytes: Range<usize>,
    reason: Option<String>,
    missed: u64,
}

/// A frame of a round.
#[derive(Debug)]
pub struct Frame<'a> {
    pub interface: &'a Interface,
    pub at_ns: u64,
    pub is_outbound: bool,
    pub wire_bytes: usize,
    pub bytes: &'a [u8],
    /// The reason if the stack dropped the frame.
    pub reason: Option<&'a str>,
    /// Frames of this interface that were missed since the previous one.
    pub missed: u64,
}

impl Round {
    /// The frames of the round.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        self.held.iter().map(|held| Frame {
            interface: &held.interface,
            at_ns: held.at_ns,
            is_outbound: held.is_outbound,
            wire_bytes: held.wire_bytes,
            bytes: &self.bytes[held.bytes.clone()],
            reason: held.reason.as_deref(),
            missed: held.missed,
        })
    }

    /// True if a log had more frames than the round took.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// True if there was no frame.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    fn begin(&mut self) {
        self.held.clear();
        self.bytes.clear();
        self.is_full = false;
        self.unread_share = 0.0;
    }

    /// The part of the fullest log, from 0 to 1, that the round found unread.
    pub fn unread_share(&self) -> f64 {
        self.unread_share
    }

    /// Takes frames of a port; returns their number.
    fn take(&mut self, port: &mut CapturedPort) -> usize {
        self.unread_share = self.unread_share.max(port.log.unread_share());
        let before = self.held.len();
        while self.held.len() < before + CAPTURE_ROUND_FRAMES {
            let Some(frame) = port.log.next_frame() else {
                break;
            };
            let begin = self.bytes.len();
            self.bytes.extend_from_slice(frame.bytes);
            self.held.push(Held {
                at_ns: frame.at_ns,
                interface: port.interface.clone(),
                is_outbound: frame.is_outbound,
                wire_bytes: frame.wire_bytes,
                bytes: begin..self.bytes.len(),
                reason: frame.reason.map(str::to_owned),
                missed: frame.missed,
            });
        }
        let taken = self.held.len() - before;
        self.is_full |= taken == CAPTURE_ROUND_FRAMES;
        taken
    }

    fn sort(&mut self) {
        self.held.sort_by_key(|held| held.at_ns);
    }
}
