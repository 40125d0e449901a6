//! Rare events as `tracing` events. Each is logged at most once a second, with a count.
//!
//! Comparing the counters once a second keeps logging off the path of packets. The subscriber runs
//! on the thread that turns the stack.

use stack::Stack;

/// An event that is logged.
///
/// ```
/// use millstream::observed::{EVENTS, EVENTS_AT_START};
/// let all = || EVENTS.iter().chain(EVENTS_AT_START);
/// assert!(all().any(|event| event.name == "wire_lost" && !event.remedy.is_empty()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The stable name: the field `event`.
    pub name: &'static str,
    /// The counter whose growth is the field `count`; `None`: the event occurs once.
    pub counter: Option<&'static str>,
    /// The meaning.
    pub meaning: &'static str,
    /// The remedy.
    pub remedy: &'static str,
}

macro_rules! events {
    ($($name:literal, $counter:expr, $meaning:literal, $remedy:literal;)*) => {
        /// Every event, in the order in which they are looked for.
        pub const EVENTS: &[Event] = &[$(Event {
            name: $name,
            counter: $counter,
            meaning: $meaning,
            remedy: $remedy,
        },)*];
    };
}

events! {
    "listen_overflow", Some("accept_queue_full"),
        "handshakes wait: the accept queue is full", "accept faster, or give listen a longer backlog";
    "syn_dropped", Some("syn_drop_accept_queue_full"),
        "SYNs dropped: the accept queue is full", "accept faster, or give listen a longer backlog";
    "syn_cookies", Some("syn_cookies_sent"),
        "the SYN queue is full: a flood, or a short backlog", "raise the backlog and Limits::half_open_max";
    "socket_limit", Some("accept_no_socket"),
        "no socket is free", "raise Limits::sockets_max";
    "flow_table_full", Some("flow_table_full"),
        "new flows refused", "raise Limits::sockets_max";
    "memory_shed", Some("connections_shed"),
        "bytes beyond gaps given up: memory is exhausted", "raise Limits::large_chunks, or read faster";
    "memory_full", Some("rx_no_buffer"),
        "segments dropped for want of chunks", "raise Limits::large_chunks, or read faster";
    "neighbour_unreachable", Some("neighbour_failed"),
        "a neighbour does not answer", "look whether it is up and in this subnet";
    "orphans_refused", Some("orphans_refused"),
        "closed connections reset: too many are not over", "raise Limits::orphans_max";
    "port_lost", Some("ports_lost"),
        "a wire is gone for good, and others are left", "open it anew: start the program again";
    "wire_lost", None,
        "the wire is gone for good", "open it anew: start the program again";
}

/// Events of the level `info` that occur when a context begins.
pub const EVENTS_AT_START: &[Event] = &[
    Event {
        name: "observe_unavailable",
        counter: None,
        meaning: "nobody can look in: the socket could not be made, for the reason in `error`",
        remedy: "make the directory, or name another by MILLSTREAM_OBSERVE",
    },
    Event {
        name: "observe_full",
        counter: None,
        meaning: "nobody can look into this context: the process has 128 others",
        remedy: "use fewer contexts in a process",
    },
];

/// The name of the event that is logged for each lost wire, under that wire's name.
const PORT_LOST: &str = "port_lost";

/// The state that was reported last.
#[derive(Default)]
pub(super) struct Events {
    /// The counter values at the last report of each event.
    told: [u64; EVENTS.len()],
    /// The wires whose loss was reported, by number.
    lost: Vec<usize>,
}

impl Events {
    /// Logs events that occurred since the last look. `port` names the stack's wires.
    pub(super) fn log_new(&mut self, stack: &Stack, port: &str) {
        let Self { told, lost } = self;
        for (event, told) in EVENTS.iter().zip(told) {
            let now = match event.counter {
                Some(counter) => count(stack, counter).unwrap_or(0),
                None => u64::from(stack.is_gone()),
            };
            let count = now.saturating_sub(*told);
            if count == 0 {
                continue;
            }
            *told = now;
            if event.name != PORT_LOST {
                warn(event, port, count);
                continue;
            }
            for (number, gone) in stack.each_port().enumerate().filter(|(_, it)| it.is_gone()) {
                if !lost.contains(&number) {
                    lost.push(number);
                    warn(event, gone.name(), 1);
                }
            }
        }
    }
}

fn warn(event: &Event, port: &str, count: u64) {
    let Event {
        name,
        meaning,
        remedy,
        ..
    } = event;
    tracing::warn!(target: "millstream", event = name, port, count, "{meaning}: {remedy}");
}

/// The names of a stack's wires, as the log has them.
pub(super) fn names(stack: &Stack) -> String {
    let names: Vec<String> = stack.each_port().map(|it| it.name().to_owned()).collect();
    names.join(" ")
}

/// A counter of the stack, of TCP or of the neighbours; `None` for an unknown name.
fn count(stack: &Stack, counter: &str) -> Option<u64> {
    let rows = stack.counters().rows().chain(stack.tcp_counters().rows());
    let neighbours = [("neighbour_failed", stack.neighbour_counters().failed)];
    let mut all = rows.chain(neighbours);
    Some(all.find(|(name, _)| *name == counter)?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_has_a_counter() {
        // The lists that `count` looks in.
        let listed = stack::Counters::LIST.iter().chain(tcp::Counters::LIST);
        let mut names: Vec<&str> = listed.map(|(name, _)| *name).collect();
        names.push("neighbour_failed");
        for event in EVENTS {
            let is_known = |counter| names.contains(&counter);
            assert!(event.counter.is_none_or(is_known), "{event:?}");
        }
    }
}
