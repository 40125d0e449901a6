//! The Millstream processes that this user may observe, and their values.
//!
//! Owns a connection to the agent of each. Removes a process that ends, and keeps the last values
//! of one that does not answer. Called by `mill top` and `mill metrics`.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use observe::client::Client;
use observe::place;
use observe::reader::{ContextValues, Name, Statistics, Value};
use rustix::io::Errno;

use crate::failure::Failure;
use crate::limits::PUBLISH_MS_MAX;

/// See the module's documentation.
#[derive(Default)]
pub struct Processes {
    all: Vec<Process>,
    /// The process that is asked for; `None`: all.
    only: Option<u32>,
    /// Processes that could not be asked at the last look: their sockets, and the reason in one
    /// line.
    unseen: BTreeMap<PathBuf, String>,
    /// Sockets in `unseen` that a warning has told of.
    told: HashSet<PathBuf>,
}

struct Process {
    client: Client,
    statistics: Statistics,
    /// The directory of names, and its epoch. It is read again when it has grown.
    names: Arc<[Name]>,
    epoch: Option<u64>,
    /// The whole process does not answer, not one of its contexts alone.
    is_silent: bool,
}

/// The values of a process at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub pid: u32,
    pub command: String,
    /// Time at which it began to publish, in ns since 1970.
    pub start_ns: u64,
    pub names: Arc<[Name]>,
    /// The values of each context, and of each port behind a context's first.
    pub contexts: Vec<ContextValues>,
}

impl Processes {
    /// Finds all processes, or process `only`.
    ///
    /// # Errors
    /// There is no such process, or this user may not observe it.
    pub fn find(only: Option<u32>) -> Result<Self, Failure> {
        let mut processes = Self {
            only,
            ..Self::default()
        };
        processes.look_for_new();
        let unseen = processes.unseen().next().map(str::to_owned);
        match only {
            Some(pid) if processes.all.is_empty() => {
                Err(Failure::Run(unseen.unwrap_or_else(|| {
                    format!("process {pid}: no socket of Millstream's that this user may use")
                })))
            }
            _ => Ok(processes),
        }
    }

    /// The processes that could not be asked at the last look, a line for each.
    pub fn unseen(&self) -> impl Iterator<Item = &str> {
        self.unseen.values().map(String::as_str)
    }

    /// Warns of processes that could not be asked at the last look, once of each.
    pub fn warn_of_unseen(&mut self) {
        self.told.retain(|socket| self.unseen.contains_key(socket));
        for (socket, why) in &self.unseen {
            if self.told.insert(socket.clone()) {
                tracing::warn!("{why}");
            }
        }
    }

    /// The present values of all processes. Forgets processes that have ended, and finds new ones.
    pub fn snapshots(&mut self) -> Vec<Snapshot> {
        self.look_for_new();
        let mut snapshots = Vec::new();
        self.all.retain_mut(|process| match process.snapshot() {
            Some(snapshot) => {
                snapshots.push(snapshot);
                true
            }
            None => false,
        });
        snapshots
    }

    fn look_for_new(&mut self) {
        // The process that is asked for is connected.
        if self.only.is_some() && !self.all.is_empty() {
            return;
        }
        let pid_of = |process: &Process| process.client.pid();
        let known: HashSet<u32> = self.all.iter().map(pid_of).collect();
        let files = self.all.iter().filter_map(|process| process.client.file());
        let found = place::agents_but(&files.collect());
        self.unseen.clear();
        for (socket, errno) in found.unseen {
            let is_wanted = self.only.is_none_or(|only| is_of(&socket, only));
            if is_wanted {
                let why = format!("{}: {}", socket.display(), why(errno));
                self.unseen.insert(socket, why);
            }
        }
        for client in found.agents {
            let pid = client.pid();
            let is_wanted = self.only.is_none_or(|only| only == pid);
            if is_wanted && !known.contains(&pid) {
                let socket = client.path().to_owned();
                match Process::open(client) {
                    Ok(process) => self.all.push(process),
                    Err(errno) => {
                        let why = format!("process {pid}: {}", why(errno));
                        self.unseen.insert(socket, why);
                    }
                }
            }
        }
        self.all.sort_by_key(pid_of);
    }
}

/// True if the socket is named for process `pid`.
pub fn is_of(socket: &Path, pid: u32) -> bool {
    let name = socket.file_stem().and_then(|name| name.to_str());
    name == Some(&*pid.to_string())
}

/// Why a process cannot be asked.
pub fn why(errno: Errno) -> String {
    match errno {
        Errno::PIPE => "it ends, or serves as many readers as it can".to_owned(),
        Errno::TIMEDOUT => "it does not answer".to_owned(),
        // Its queue of connections is full.
        Errno::AGAIN => "it does not answer, and others wait".to_owned(),
        errno => errno.to_string(),
    }
}

impl Process {
    fn open(mut client: Client) -> Result<Self, Errno> {
        client.set_patience(Duration::from_millis(PUBLISH_MS_MAX));
        let statistics = client.statistics()?;
        Ok(Self {
            client,
            statistics,
            names: Arc::from([]),
            epoch: None,
            is_silent: false,
        })
    }

    /// Asks each context for fresh values. For a context that does not answer in time, returns its
    /// last values.
    fn snapshot(&mut self) -> Option<Snapshot> {
        let names = self.names()?;
        for context in self.statistics.contexts(&[]) {
            match self.client.publish(context.slot) {
                // The answer may still come, and the agent accepts no other request of this
                // connection before that. A stopped process takes no further connection either.
                Err(Errno::TIMEDOUT) => {
                    self.is_silent = self.is_silent || self.client.reconnect().is_err();
                    if self.is_silent {
                        break;
                    }
                }
                Err(Errno::PIPE) => return None,
                _ => self.is_silent = false,
            }
        }
        Some(Snapshot {
            pid: self.client.pid(),
            command: self.statistics.command(),
            start_ns: self.statistics.start_ns(),
            contexts: self.statistics.ports(&names),
            names,
        })
    }

    /// The directory of names.
    fn names(&mut self) -> Option<Arc<[Name]>> {
        let epoch = Some(self.statistics.epoch());
        if self.epoch != epoch {
            self.names = self.statistics.names()?.into();
            self.epoch = epoch;
        }
        Some(self.names.clone())
    }
}

impl Snapshot {
    /// The number with this name in a context; 0 if it has none.
    pub fn number(&self, context: &ContextValues, name: &str) -> u64 {
        let at = self.names.iter().position(|one| one.name == name);
        match at.and_then(|at| context.values.get(at)) {
            Some(Some(Value::Number(number))) => *number,
            _ => 0,
        }
    }

    /// The sum of a context's numbers for whose names `is_one` is true.
    pub fn sum(&self, context: &ContextValues, is_one: impl Fn(&str) -> bool) -> u64 {
        let rows = self.names.iter().zip(&context.values);
        rows.filter_map(|(name, value)| match value {
            Some(Value::Number(number)) if is_one(&name.name) => Some(*number),
            _ => None,
        })
        .fold(0, u64::wrapping_add)
    }
}

/// True if a counter counts dropped frames or segments.
pub fn is_drop(name: &str) -> bool {
    name.split('_')
        .any(|word| matches!(word, "drop" | "dropped"))
        && !name.contains("bytes")
}
