//! Waiting connections: one list per reason, sorted by construction.
//!
//! All entries of a list wait for the same time. So a new entry goes to the tail, and the next due
//! entry is at the head. Setting, moving and removing take constant time. Owned by a worker.

use crate::limits::{HEAD_NS, IDLE_NS, LINGER_NS, SEND_NS};

/// The reason why a connection waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The next request.
    Idle,
    /// The remainder of a request's head.
    Head,
    /// Room to send.
    Send,
    /// The end of a refused peer's data.
    Linger,
}

const REASONS: usize = 4;

impl Reason {
    fn wait_ns(self) -> u64 {
        match self {
            Self::Idle => IDLE_NS,
            Self::Head => HEAD_NS,
            Self::Send => SEND_NS,
            Self::Linger => LINGER_NS,
        }
    }
}

const NONE: usize = usize::MAX;

#[derive(Clone, Copy)]
struct Link {
    reason: Option<Reason>,
    previous: usize,
    next: usize,
    due_ns: u64,
}

#[derive(Clone, Copy)]
struct Ends {
    head: usize,
    tail: usize,
}

/// The lists. A connection's key is its index in the worker's slab.
pub struct Timeouts {
    links: Vec<Link>,
    lists: [Ends; REASONS],
}

impl Timeouts {
    pub fn new() -> Self {
        Self {
            links: Vec::new(),
            lists: [Ends {
                head: NONE,
                tail: NONE,
            }; REASONS],
        }
    }

    /// Begins a wait of the connection for this reason.
    pub fn set(&mut self, key: usize, reason: Reason, now_ns: u64) {
        self.remove(key);
        if key >= self.links.len() {
            let none = Link {
                reason: None,
                previous: NONE,
                next: NONE,
                due_ns: 0,
            };
            self.links.resize(key + 1, none);
        }
        let list = &mut self.lists[reason as usize];
        let previous = std::mem::replace(&mut list.tail, key);
        match previous {
            NONE => list.head = key,
            previous => self.links[previous].next = key,
        }
        let due_ns = now_ns.saturating_add(reason.wait_ns());
        self.links[key] = Link {
            reason: Some(reason),
            previous,
            next: NONE,
            due_ns,
        };
    }

    /// The reason why the connection waits; `None` if it does not.
    pub fn reason(&self, key: usize) -> Option<Reason> {
        self.links.get(key)?.reason
    }

    /// Ends the wait of the connection.
    pub fn remove(&mut self, key: usize) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        let Some(reason) = link.reason.take() else {
            return;
        };
        let Link { previous, next, .. } = *link;
        let list = &mut self.lists[reason as usize];
        match previous {
            NONE => list.head = next,
            previous => self.links[previous].next = next,
        }
        match next {
            NONE => list.tail = previous,
            next => self.links[next].previous = previous,
        }
    }

    /// Time at which the next entry is due.
    pub fn next_due_ns(&self) -> Option<u64> {
        let heads = self
            .lists
            .iter()
            .map(|list| list.head)
            .filter(|&head| head != NONE);
        heads.map(|head| self.links[head].due_ns).min()
    }

    /// Removes and returns an entry that is due.
    pub fn pop_due(&mut self, now_ns: u64) -> Option<(usize, Reason)> {
        let heads = self.lists.map(|list| list.head);
        let due = heads
            .into_iter()
            .find(|&head| head != NONE && self.links[head].due_ns <= now_ns)?;
        let reason = self.links[due].reason?;
        self.remove(due);
        Some((due, reason))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn reason() -> impl Strategy<Value = Reason> {
        prop_oneof![
            Just(Reason::Idle),
            Just(Reason::Head),
            Just(Reason::Send),
            Just(Reason::Linger)
        ]
    }

    #[test]
    fn moving_to_another_reason_forgets_the_first() {
        let mut timeouts = Timeouts::new();
        timeouts.set(3, Reason::Idle, 0);
        timeouts.set(3, Reason::Linger, 10);
        assert_eq!(timeouts.next_due_ns(), Some(10 + LINGER_NS));
        assert_eq!(timeouts.pop_due(10 + LINGER_NS), Some((3, Reason::Linger)));
        assert_eq!(timeouts.next_due_ns(), None);
        timeouts.remove(3);
        timeouts.remove(9);
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec((0usize..8, prop::option::of(reason()), 0u64..SEND_NS), 0..60)) {
            let mut timeouts = Timeouts::new();
            let mut map: BTreeMap<usize, (u64, Reason)> = BTreeMap::new();
            let mut now_ns = 0;
            for (key, reason, wait_ns) in steps {
                match reason {
                    Some(reason) => {
                        timeouts.set(key, reason, now_ns);
                        map.insert(key, (now_ns + reason.wait_ns(), reason));
                    }
                    None => {
                        timeouts.remove(key);
                        map.remove(&key);
                    }
                }
                prop_assert_eq!(timeouts.next_due_ns(), map.values().map(|entry| entry.0).min());
                now_ns += wait_ns;
                while let Some((key, reason)) = timeouts.pop_due(now_ns) {
                    let (due_ns, expected) = map.remove(&key).unwrap();
                    prop_assert!(due_ns <= now_ns);
                    prop_assert_eq!(reason, expected);
                }
                prop_assert!(map.values().all(|entry| entry.0 > now_ns));
            }
        }
    }
}
