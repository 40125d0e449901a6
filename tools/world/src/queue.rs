//! A queue of events in the order of their times. Events of the same nanosecond happen in the order
//! in which they were entered.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A frame under way: its bytes, and whether it is a liar's.
#[derive(Debug)]
pub struct Flying {
    /// From the Ethernet header on.
    pub bytes: Vec<u8>,
    /// Made up by an attacker: no stack of this world sent it.
    pub forged: bool,
    /// A bit was flipped. One is enough: two can cancel out in the checksum, which no receiver can
    /// tell.
    pub damaged: bool,
}

/// Something that happens.
#[derive(Debug)]
pub enum Event {
    /// A frame arrives at a node, by its link of this place in its list.
    Arrive {
        /// The node.
        node: usize,
        /// Which of the node's links.
        port: usize,
        /// The frame.
        frame: Flying,
    },
    /// A host's stack is due.
    Turn(usize),
    /// A connection of a flow begins.
    Begin(usize, u32),
    /// A host's clock jumps.
    Jump(usize, u64),
    /// A liar speaks: number in the plan.
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
    /// `event` will happen at `at_ns`.
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

    /// When the next event is.
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
