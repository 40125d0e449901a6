//! The part of a stack that other processes observe. At the end of a turn it copies the stack's
//! values to the statistics file every few ms, and answers requests.
//!
//! Owned by the stack. One shared word tells each turn whether there is anything to do.

mod answers;
mod declared;
mod events;
mod port_values;
mod remedies;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use events::Events;
use observe::agent::{Joined, of_process};
use observe::layout::{Kind, bucket_of};
use observe::limits::{ANSWERS_PER_TURN, BUCKETS};
use observe::message::kind;
use observe::place;
use observe::segment::Entry;
use packetio::counter_list::port_counter;
use port_values::PortValues;
use ring::doorbell::StackBell;
use ring::due::Due;
use stack::activity::{HISTOGRAM_BUCKETS, Histogram};
use stack::{Observer, Stack};

use crate::config::{Config, Observe};
use crate::limits::{ANSWERS_ONE_IN, PUBLISH_NS, PUBLISH_PORT_NS, ROUND_TRIP_RECENT_NS};

pub use declared::{Declared, declared};
pub use events::{EVENTS, EVENTS_AT_START, Event};
pub use remedies::remedy;

const _: () = assert!(BUCKETS == HISTOGRAM_BUCKETS && bucket_of(5) == 3);

/// Makes `stack`, which belongs to context `index`, visible to other processes, unless `config`
/// turns that off.
pub(crate) fn join(stack: &mut Stack, bell: &StackBell, config: &Config, index: usize) {
    let directory: Option<PathBuf> = match &config.observe {
        Observe::Off => None,
        // A simulation is not visible to other processes unless its configuration names a
        // directory.
        Observe::Default if config.clock.is_virtual() => None,
        Observe::Default => own_directory(),
        Observe::In(directory) => Some(directory.clone()),
    };
    match directory.and_then(|directory| joined(&directory, stack, bell, index)) {
        Some(joined) => publish(stack, joined),
        None if config.clock.is_virtual() => {}
        None => log_only(stack),
    }
}

/// The directory for this user's sockets. `None` is logged, unless the environment wishes it.
fn own_directory() -> Option<PathBuf> {
    let directory = place::directory();
    if directory.is_none() && !place::is_off() {
        let (event, error) = ("observe_unavailable", "no directory is this user's");
        tracing::info!(target: "millstream", event, error, "nobody can look in");
    }
    directory
}

/// The stack's place with the agent of the process. `None`: no observer can connect, and the log
/// says why.
fn joined(directory: &Path, stack: &Stack, bell: &StackBell, index: usize) -> Option<Joined> {
    let agent = of_process(directory).inspect_err(|error| {
        let (directory, event) = (directory.display(), "observe_unavailable");
        tracing::info!(target: "millstream", event, %directory, %error, "nobody can look in");
    });
    let joined = agent.ok()?.join(index, stack.port_name(), bell.clone());
    if joined.is_none() {
        let event = "observe_full";
        tracing::info!(target: "millstream", event, context = index, "nobody can look in here");
    }
    joined
}

/// Publishes the stack's values, answers requests, and logs rare events.
fn publish(stack: &mut Stack, joined: Joined) {
    let due = joined.due.clone();
    let publisher = Publisher {
        places: places(&joined, stack),
        ports: PortValues::join(&joined, stack),
        values: Vec::new(),
        values_due_ns: 0,
        port_due_ns: 0,
        answers_due_ns: 0,
        events: Events::default(),
        port: events::names(stack),
        joined,
    };
    stack.set_observer(due, Box::new(publisher));
}

/// Logs the rare events of a stack that no process observes.
fn log_only(stack: &mut Stack) {
    let due = Arc::new(Due::never());
    let logger = Logger {
        events: Events::default(),
        port: events::names(stack),
        due: due.clone(),
    };
    stack.set_observer(due, Box::new(logger));
}

struct Logger {
    events: Events,
    port: String,
    due: Arc<Due>,
}

impl Observer for Logger {
    #[cold]
    fn observe(&mut self, stack: &mut Stack, now_ns: u64) {
        self.due.rearm(now_ns.saturating_add(PUBLISH_PORT_NS));
        self.events.log_new(stack, &self.port);
    }
}

struct Publisher {
    joined: Joined,
    /// The place of each value in the statistics file, in the order of [`values`]. `None`: the
    /// file's directory of names is full.
    places: Vec<Option<usize>>,
    /// The last copy of the values. Kept so that a copy allocates nothing.
    values: Vec<u64>,
    /// Values of each port behind the first, in a stack with several ports.
    ports: PortValues,
    /// When the stack's values are copied next.
    values_due_ns: u64,
    /// When the wires' counters are copied next, and rare events are looked for.
    port_due_ns: u64,
    /// Requests wait until then: answers take a share of the time.
    answers_due_ns: u64,
    events: Events,
    /// The wires' names, for the log.
    port: String,
}

impl Observer for Publisher {
    #[cold]
    fn observe(&mut self, stack: &mut Stack, now_ns: u64) {
        // Clear the flag before looking for requests: a request that arrives later makes the stack
        // due again.
        self.joined
            .due
            .rearm(now_ns.saturating_add(PUBLISH_NS).max(1));
        self.copy(stack, now_ns);
        stack.end_old_capture(now_ns);
        self.answer(stack, now_ns);
        if self.joined.mailbox.has_more() {
            self.joined.due.ask();
        }
    }
}

impl Publisher {
    /// Copies what is due by the clock. Requests do not make this more frequent: log lines have an
    /// interval of their own, and round trips are sampled evenly.
    fn copy(&mut self, stack: &mut Stack, now_ns: u64) {
        if now_ns < self.values_due_ns && !stack.is_gone() {
            return;
        }
        self.values_due_ns = now_ns.saturating_add(PUBLISH_NS);
        stack.sample_round_trips(ROUND_TRIP_RECENT_NS);
        // A wire may have to ask the kernel for its counters.
        let with_port = now_ns >= self.port_due_ns;
        if with_port || stack.is_gone() {
            self.port_due_ns = now_ns.saturating_add(PUBLISH_PORT_NS);
            self.events.log_new(stack, &self.port);
        }
        self.publish(stack, now_ns, with_port);
    }

    /// Answers requests, unless the last answers took so long that it is the network's turn.
    fn answer(&mut self, stack: &mut Stack, now_ns: u64) {
        if now_ns < self.answers_due_ns || !self.joined.mailbox.has_more() {
            return;
        }
        let begin = Instant::now();
        for _ in 0..ANSWERS_PER_TURN {
            let Some(mut request) = self.joined.mailbox.take() else {
                break;
            };
            if request.kind == kind::PUBLISH {
                self.publish(stack, now_ns, true);
            }
            let outcome = answers::answer(stack, &mut request, now_ns);
            self.joined.mailbox.answer(request, outcome);
        }
        let took_ns = begin.elapsed().as_nanos() as u64;
        self.answers_due_ns = now_ns.saturating_add(took_ns.saturating_mul(ANSWERS_ONE_IN));
    }

    fn publish(&mut self, stack: &Stack, now_ns: u64, with_port: bool) {
        self.values.clear();
        values(stack, &mut self.values);
        if with_port {
            self.ports.publish(stack, now_ns, &mut self.values);
            let port = stack.each_port().next().map(|port| port.counters());
            let port = port.unwrap_or_default();
            self.values
                .extend(port.named().iter().map(|(_, value)| value));
        }
        let ports = &self.ports;
        let rows = self.places.iter().zip(&self.values).enumerate();
        let rows = rows.filter(|(at, _)| with_port || !ports.is_shared(*at));
        let rows = rows.filter_map(|(_, (place, value))| Some(((*place)?, *value)));
        self.joined.vector.publish(now_ns, rows);
    }
}

/// Registers the names of a stack's values, with one place for each word.
fn places(joined: &Joined, stack: &Stack) -> Vec<Option<usize>> {
    let mut places = Vec::new();
    let mut add = |entry: &Entry<'_>| {
        let place = joined.segment().place(entry);
        places.extend((0..entry.kind.words()).map(|word| place.map(|place| place + word)));
    };
    for one in declared() {
        add(&Entry {
            name: one.name,
            help: one.help,
            unit: one.unit,
            kind: one.kind,
        });
    }
    let port = stack.each_port().next().map(|port| port.counters());
    for (name, _) in port.unwrap_or_default().named() {
        add(&port_entry(name));
    }
    places
}

/// The directory's entry for a counter that a driver declares.
fn port_entry(name: &'static str) -> Entry<'static> {
    Entry {
        name,
        help: port_counter(name).map_or("", |counter| counter.help),
        unit: declared::unit_of(name),
        kind: Kind::Counter,
    }
}

/// The values in the order of [`declared`].
fn values(stack: &Stack, values: &mut Vec<u64>) {
    values.extend(stack.counters().rows().map(|(_, value)| value));
    values.extend(stack.tcp_counters().rows().map(|(_, value)| value));
    let neighbours = stack.neighbour_counters();
    values.extend([
        neighbours.failed,
        neighbours.evicted,
        neighbours.table_full,
        neighbours.waiting_full,
        neighbours.frames_dropped,
    ]);
    let (usage, limits, activity) = (stack.usage(), stack.limits(), stack.activity());
    let queues = stack.queues();
    values.extend([activity.busy_ns, activity.spun_ns, activity.asleep_ns]);
    values.extend(
        [
            usage.sockets,
            usage.dormant,
            usage.packed_blocks,
            usage.half_open,
            usage.time_wait,
            usage.fin_wait_2,
            usage.flows,
            usage.small_chunks as usize,
            usage.large_chunks as usize,
            usage.segment_records,
            usage.range_blocks,
            queues.accept,
            queues.transmit,
            queues.control,
            limits.sockets_max,
            limits.half_open_max,
            limits.time_wait_max,
            limits.small_chunks,
            limits.large_chunks,
        ]
        .map(|size| size as u64),
    );
    let pages = stack.pages();
    values.extend([pages.hugetlb_bytes, pages.thp_bytes, pages.ordinary_bytes]);
    values.push(stack.each_port().filter(|port| !port.is_gone()).count() as u64);
    let histograms = [
        &activity.rx_batch,
        &activity.tx_batch,
        &activity.turn_ns,
        &activity.accept_ns,
        &activity.round_trip_ns,
        &activity.job_batch,
        &activity.event_batch,
    ];
    for histogram in histograms {
        histogram_words(histogram, values);
    }
}

fn histogram_words(histogram: &Histogram, values: &mut Vec<u64>) {
    values.extend_from_slice(&histogram.buckets);
    values.push(histogram.sum);
}
