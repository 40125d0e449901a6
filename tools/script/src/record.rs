//! A record: everything that a host did in a play without expectations.
//!
//! The runner makes a [`Record`] when [`Options::record`](super::Options) says so; `cargo xtask
//! script --compare` plays a script on two hosts and shows how the two records
//! [differ](super::differences). Packets are in the script's sequence numbers, so that records of
//! different connections compare.

use std::fmt::Write as _;

use super::ast::Micros;
use super::datagram::Segment;

/// The recorded value of the first timestamp that leaves, which scripts echo.
pub(super) const FIRST_TIMESTAMP: u32 = 100;

/// All that a host did, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    at: Micros,
    what: What,
}

/// A packet, and the time at which it left.
pub(super) type Left = (Micros, Segment);

#[derive(Debug, Clone, PartialEq)]
enum What {
    /// A packet that left. Timestamps count from [`FIRST_TIMESTAMP`].
    Packet(Segment),
    /// A call and its result, or a line that code printed.
    Said(Said),
}

/// A line of the record that is no packet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Said {
    pub text: String,
    /// Names of the words of a printed line. Empty if the line was not printed by code, or if its
    /// words have no names.
    pub names: Vec<String>,
}

impl Record {
    pub(super) fn packet(&mut self, at: Micros, segment: Segment) {
        let what = What::Packet(segment);
        self.entries.push(Entry { at, what });
    }

    pub(super) fn said(&mut self, at: Micros, text: String) {
        self.printed(at, text, Vec::new());
    }

    pub(super) fn printed(&mut self, at: Micros, text: String, names: Vec<String>) {
        let what = What::Said(Said { text, names });
        self.entries.push(Entry { at, what });
    }

    /// Number of packets so far.
    pub(super) fn packets(&self) -> usize {
        let is_packet = |entry: &&Entry| matches!(entry.what, What::Packet(_));
        self.entries.iter().filter(is_packet).count()
    }

    /// The packets that left, each with its time.
    pub(super) fn departed(&self) -> impl Iterator<Item = (Micros, &Segment)> {
        self.entries.iter().filter_map(|entry| match &entry.what {
            What::Packet(segment) => Some((entry.at, segment)),
            What::Said(_) => None,
        })
    }

    /// The packets, and the other entries, each in order.
    pub(super) fn parts(&self) -> (Vec<Left>, Vec<(Micros, &Said)>) {
        let (mut packets, mut said) = (Vec::new(), Vec::new());
        for entry in &self.entries {
            match &entry.what {
                What::Packet(segment) => packets.push((entry.at, segment.clone())),
                What::Said(line) => said.push((entry.at, line)),
            }
        }
        (packets, said)
    }

    /// The record as text, an entry a line.
    pub fn display(&self) -> String {
        let mut text = String::new();
        for Entry { at, what } in &self.entries {
            let _ = match what {
                What::Packet(segment) => {
                    writeln!(text, "{} > {}", seconds(*at), segment.display(false, true))
                }
                What::Said(said) => writeln!(text, "{} {}", seconds(*at), said.text),
            };
        }
        text
    }
}

pub(super) fn seconds(at: Micros) -> String {
    format!("{:.4}", at as f64 / 1e6)
}
