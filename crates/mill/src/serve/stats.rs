//! Counts of a worker. They are added up when all workers have stopped.

use std::collections::BTreeMap;

use serde::Serialize;

/// Counts of one worker, or of all.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stats {
    /// Connections accepted.
    pub connections: u64,
    /// Requests that named a document, whether or not there was one.
    pub requests: u64,
    /// Requests that were refused before a document was looked for.
    pub refusals: u64,
    /// Bytes of answers, heads included.
    pub bytes_sent: u64,
    /// Connections that waited longer than a limit allows.
    pub timeouts: u64,
    /// Connections that failed or were reset.
    pub aborted: u64,
    /// Answers that could not be completed because the file changed.
    pub cut_short: u64,
    /// Times that the worker had as many connections as it may and stopped accepting.
    pub full: u64,
    /// The stack's counters, without the zeros.
    pub stack: BTreeMap<&'static str, u64>,
}

impl Stats {
    /// Adds another worker's.
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
