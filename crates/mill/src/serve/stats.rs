//! Counts of a worker, added up after all workers have stopped.

use std::collections::BTreeMap;

use serde::Serialize;

/// Counts of one worker, or of all workers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stats {
    /// Connections accepted.
    pub connections: u64,
    /// Requests that named a document, whether or not there was one.
    pub requests: u64,
    /// Requests that were refused without looking for a document.
    pub refusals: u64,
    /// Bytes of answers, including heads.
    pub bytes_sent: u64,
    /// Connections that waited longer than a limit allows.
    pub timeouts: u64,
    /// Connections that failed or were reset.
    pub aborted: u64,
    /// Answers that could not be completed because the file changed.
    pub cut_short: u64,
    /// Times that the worker reached its limit of connections and stopped accepting.
    pub full: u64,
    /// The stack's counters other than zero.
    pub stack: BTreeMap<&'static str, u64>,
}

impl Stats {
    /// Adds the counts of another worker.
    pub fn add(&mut self, other: &Self) {
        let Self {
            connections,
            requests,
            refusals,
            bytes_sent,
            timeouts,
            aborted,
            cut_short,
            full,
            stack,
        } = other;
        self.connections += connections;
        self.requests += requests;
        self.refusals += refusals;
        self.bytes_sent += bytes_sent;
        self.timeouts += timeouts;
        self.aborted += aborted;
        self.cut_short += cut_short;
        self.full += full;
        for (name, value) in stack {
            *self.stack.entry(name).or_default() += value;
        }
    }
}
