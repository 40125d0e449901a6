//! Rare events as `tracing` events, told at most once a second each, with a count.
//!
//! The counters are compared while they are copied, so nothing is logged per packet. The subscriber
//! runs on the thread that turns the stack.

use stack::Stack;

/// An event: its stable name, the counter that counts it, and what it means.
pub const EVENTS: &[(&str, &str, &str)] = &[
    (
        "listen_overflow",
        "accept_queue_full",
        "the accept queue is full: accept faster",
    ),
    (
        "syn_dropped",
        "syn_drop_accept_queue_full",
        "SYNs dropped: the accept queue is full",
    ),
    (
        "syn_cookies",
        "syn_cookies_sent",
        "the SYN queue is full: a flood, or a short backlog",
    ),
    (
        "socket_limit",
        "accept_no_socket",
        "no socket is free: raise Limits::sockets_max",
    ),
    (
        "flow_table_full",
        "flow_table_full",
        "new flows refused: raise Limits::sockets_max",
    ),
    (
        "memory_shed",
        "connections_shed",
        "bytes beyond gaps given up: raise Limits::large_chunks",
    ),
    (
        "memory_full",
        "rx_no_buffer",
        "segments dropped for want of chunks",
    ),
    (
        "neighbour_unreachable",
        "neighbour_failed",
        "a neighbour does not answer",
    ),
    (
        "orphans_refused",
        "orphans_refused",
        "closed connections reset: too many are not over",
    ),
];

/// Counts that were last reported for each event.
#[derive(Default)]
pub(super) struct Events {
    told: [u64; EVENTS.len()],
    is_lost: bool,
}

impl Events {
    /// Tells of events since the last look. `port` is the wire's name.
    pub(super) fn look(&mut self, stack: &Stack, port: &str) {
        let neighbours = stack.neighbour_counters();
        for ((name, counter, meaning), told) in EVENTS.iter().zip(&mut self.told) {
            let mut rows = stack.counters().rows();
            let row = rows.find(|(name, _)| name == counter);
            let now = row.map_or(neighbours.failed, |(_, count)| count);
            let count = now.saturating_sub(*told);
            if count > 0 {
                *told = now;
                tracing::warn!(target: "millstream", event = name, port, count, "{meaning}");
            }
        }
        if stack.is_gone() && !self.is_lost {
            self.is_lost = true;
            tracing::warn!(target: "millstream", event = "wire_lost", port, "the wire is gone");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_has_a_counter() {
        for (name, counter, _) in EVENTS {
            let is_known = crate::observed::declared().any(|one| one.name == *counter);
            assert!(is_known, "{name} counts {counter}");
        }
    }
}
