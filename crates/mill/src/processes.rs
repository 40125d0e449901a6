//! The Millstream processes that this user may observe, and their values.
//!
//! Owns a connection to the agent of each. Removes a process that ends or does not answer. Called
//! by `mill top` and `mill metrics`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use observe::client::Client;
use observe::place;
use observe::reader::{ContextValues, Name, Statistics, Value};

use crate::failure::Failure;
use crate::limits::PUBLISH_MS_MAX;

/// See the module's documentation.
#[derive(Default)]
pub struct Processes {
    all: Vec<Process>,
    /// The process that is asked for; `None`: all.
    only: Option<u32>,
}

struct Process {
    client: Client,
    statistics: Statistics,
    /// The directory of names, and its epoch. It is read again when it has grown.
    names: Arc<[Name]>,
    epoch: Option<u64>,
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
            all: Vec::new(),
            only,
        };
        processes.look_for_new();
        match only {
            Some(pid) if processes.all.is_empty() => Err(Failure::Run(format!(
                "process {pid}: no socket of Millstream's that this user may use"
            ))),
            _ => Ok(processes),
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
        for client in place::agents_but(&files.collect()) {
            let pid = client.pid();
            let is_wanted = self.only.is_none_or(|only| only == pid);
            if is_wanted && !known.contains(&pid) {
                self.all.extend(Process::open(client));
            }
        }
        self.all.sort_by_key(pid_of);
    }
}

impl Process {
    fn open(mut client: Client) -> Option<Self> {
        client.set_patience(Duration::from_millis(PUBLISH_MS_MAX));
        let statistics = client.statistics().ok()?;
        Some(Self {
            client,
            statistics,
            names: Arc::from([]),
            epoch: None,
        })
    }

    /// Asks each context for fresh values. For a context that does not answer in time, returns its
    /// last values.
    fn snapshot(&mut self) -> Option<Snapshot> {
        let names = self.names()?;
        for context in self.statistics.contexts(&[]) {
            match self.client.publish(context.slot) {
                Err(rustix::io::Errno::TIMEDOUT) => {
                    // The answer may still come, and the agent accepts no other request before
                    // that.
                    self.client.reconnect().ok()?;
                }
                Err(rustix::io::Errno::PIPE) => return None,
                _ => {}
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
