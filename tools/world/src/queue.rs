//! A queue of events in the order of their times. Events of the same nanosecond keep the order in
//! which they were entered.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A frame under way.
#[derive(Debug)]
pub struct Flying {
    /// Bytes from the Ethernet header on.
    pub bytes: Vec<u8>,
    /// An attacker made the frame: no stack of this world sent it.
    pub forged: bool,
    /// A bit was already flipped. A second flip could cancel the first in the checksum, which no
    /// receiver can detect.
    pub damaged: bool,
}

/// An event of a world.
#[derive(Debug)]
pub enum Event {
    /// A frame arrives at a node.
    Arrive {
        /// The node.
        node: usize,
        /// Place of the link in the node's list.
        port: usize,
        /// The frame.
        frame: Flying,
    },
    /// The stack of this host takes a turn.
    Turn(usize),
    /// A connection begins: flow, and number in the flow.
    Begin(usize, u32),
    /// The clock of this host jumps by so many ns.
    Jump(usize, u64),
    /// A lie is sent: its number in the plan.
    Lie(usize),
}

/// See the module's documentation.
#[derive(Default)]
pub struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    entered: u64,
}

struct Entry {
    at_ns: u64,
    order: u64,
    event: Event,
}

impl Queue {
    /// Enters `event` for the time `at_ns`.
    pub fn enter(&mut self, at_ns: u64, event: Event) {
        self.entered += 1;
        self.heap.push(Reverse(Entry {
            at_ns,
            order: self.entered,
            event,
        }));
    }

    /// The next event and its time.
    pub fn pop(&mut self) -> Option<(u64, Event)> {
        let Reverse(entry) = self.heap.pop()?;
        Some((entry.at_ns, entry.event))
    }

    /// The time of the next event, in ns.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.at_ns)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at_ns, self.order) == (other.at_ns, other.order)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.order).cmp(&(other.at_ns, other.order))
    }
}
