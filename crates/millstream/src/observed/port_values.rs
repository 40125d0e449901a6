//! The values of each port behind the first, in a stack with several ports: frames and bytes, drops
//! by reason, and the port's own counters.
//!
//! The stack counts for all ports together. The context's own vector bears the first port's name
//! and publishes the stack's counts less the other ports' parts. The sum over the ports is thus the
//! stack's count.

use observe::agent::Joined;
use observe::segment::{Entry, Vector};
use stack::{PortView, Stack};

use super::{declared, port_entry};

/// The stack's names for counts of frames and bytes.
const TRAFFIC: [&str; 4] = ["rx_frames", "rx_bytes", "tx_frames", "tx_bytes"];

/// See the module's documentation. Empty in a stack with one port.
#[derive(Default)]
pub(super) struct PortValues {
    behind_first: Vec<OnePort>,
    /// Positions in [`declared`] of the values that each port has a part of: frames and bytes, then
    /// drops.
    shared: Vec<usize>,
}

struct OnePort {
    vector: Vector,
    /// The port's number in its context.
    number: usize,
    /// The place of each shared value, then of each counter of the port's own.
    places: Vec<Option<usize>>,
    /// The last copy of both. Kept so that a copy allocates nothing.
    values: Vec<u64>,
}

impl PortValues {
    /// Takes a vector for each port behind the first. If none is free, the port counts as part of
    /// the first one.
    pub fn join(joined: &Joined, stack: &Stack) -> Self {
        let mut all = Self::default();
        for (number, port) in stack.each_port().enumerate().skip(1) {
            let Some(vector) = joined.port(number, port.name()) else {
                continue;
            };
            let mut entries = Vec::new();
            let mut shared = Vec::new();
            let drops = port.drops().map(|(name, _)| name);
            for name in TRAFFIC.into_iter().chain(drops) {
                for (at, one) in declared().enumerate().filter(|(_, one)| one.name == name) {
                    shared.push(at);
                    entries.push(Entry {
                        name: one.name,
                        help: one.help,
                        unit: one.unit,
                        kind: one.kind,
                    });
                }
            }
            let counters = port.counters();
            entries.extend(counters.named().iter().map(|(name, _)| port_entry(name)));
            let places = entries.iter().map(|entry| joined.segment().place(entry));
            all.shared = shared;
            all.behind_first.push(OnePort {
                vector,
                number,
                places: places.collect(),
                values: Vec::new(),
            });
        }
        all
    }

    /// True if several ports have a part of the value at this position of [`declared`]. It is then
    /// published only when the ports' counters are read.
    pub fn is_shared(&self, at: usize) -> bool {
        self.shared.contains(&at)
    }

    /// Publishes the values of the ports behind the first and subtracts their parts from `values`,
    /// which are in the order of [`declared`]. Reads each port's counters.
    pub fn publish(&mut self, stack: &Stack, now_ns: u64, values: &mut [u64]) {
        for (number, port) in stack.each_port().enumerate().skip(1) {
            let mut held = self.behind_first.iter_mut();
            let Some(one) = held.find(|one| one.number == number) else {
                continue;
            };
            one.read(&port);
            for (at, part) in self.shared.iter().zip(&one.values) {
                if let Some(value) = values.get_mut(*at) {
                    *value = value.saturating_sub(*part);
                }
            }
            let rows = one.places.iter().zip(&one.values);
            let rows = rows.filter_map(|(place, value)| Some(((*place)?, *value)));
            one.vector.publish(now_ns, rows);
        }
    }
}

impl OnePort {
    fn read(&mut self, port: &PortView<'_>) {
        let counters = port.counters();
        let traffic = [
            counters.rx_frames,
            counters.rx_bytes,
            counters.tx_frames,
            counters.tx_bytes,
        ];
        self.values.clear();
        self.values.extend(traffic);
        self.values.extend(port.drops().map(|(_, count)| count));
        let own = counters.named().iter();
        self.values.extend(own.map(|(_, value)| value));
    }
}
