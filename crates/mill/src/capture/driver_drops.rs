//! Frames that a driver dropped after a stack had sent them. Such frames are in the capture.
//!
//! Drivers count them and do not say which they were, so a capture can tell their number only.

use std::collections::BTreeMap;

use observe::client::Client;
use observe::reader::{Statistics, Value};
use packetio::counter_list::port_counter;

use crate::processes::is_drop;

/// Counts of a process by the counters' names, over all of its ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverDrops(BTreeMap<String, u64>);

impl DriverDrops {
    /// The counts that a process published last, at most a second ago; none if it does not answer.
    pub fn of(client: &mut Client) -> Self {
        let statistics = client.statistics();
        statistics.map_or_else(|_| Self::default(), |statistics| Self::read(&statistics))
    }

    /// The counts in a statistics file.
    pub fn read(statistics: &Statistics) -> Self {
        let mut counts = BTreeMap::new();
        let mut names = statistics.names().unwrap_or_default();
        names.retain(|name| is_driver_drop(&name.name));
        for port in statistics.ports(&names) {
            for (name, value) in names.iter().zip(&port.values) {
                if let Some(Value::Number(count)) = value {
                    let sum: &mut u64 = counts.entry(name.name.clone()).or_default();
                    *sum = sum.saturating_add(*count);
                }
            }
        }
        Self(counts)
    }

    /// Growth since `before`, by name; counters that did not grow are left out.
    pub fn since(&self, before: &Self) -> Vec<(String, u64)> {
        let grown = |(name, count): (&String, &u64)| {
            let earlier = before.0.get(name).copied().unwrap_or(0);
            let more = count.saturating_sub(earlier);
            (more > 0).then(|| (name.clone(), more))
        };
        self.0.iter().filter_map(grown).collect()
    }
}

/// True if a port's counter counts frames that left the stack and were dropped.
fn is_driver_drop(name: &str) -> bool {
    let is_sent = name.contains("_tx_") || name.contains("_bulk_");
    let is_lost = is_drop(name) || name.ends_with("_refused") || name.ends_with("_errors");
    port_counter(name).is_some() && is_sent && is_lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_behind_the_port_are_those_of_sent_frames() {
        let yes = [
            "xdp_tx_refused",
            "interface_tx_dropped",
            "packet_tx_dropped_link_down",
            "xdp_bulk_dropped_refused",
            "dpdk_device_tx_errors",
        ];
        // The stack's own drops, received frames, frames that were only held back.
        let no = [
            "tx_drop_stuck",
            "packet_rx_dropped_too_long",
            "xdp_tx_pushed_back",
            "xdp_bulk_held",
        ];
        assert!(yes.iter().all(|name| is_driver_drop(name)));
        assert!(!no.iter().any(|name| is_driver_drop(name)));
    }

    #[test]
    fn growth_is_told_of_counters_that_grew() {
        let of = |counts: [(&str, u64); 2]| {
            let counts = counts.map(|(name, count)| (name.to_owned(), count));
            DriverDrops(counts.into())
        };
        let (before, now) = (of([("a", 1), ("b", 5)]), of([("a", 4), ("b", 5)]));
        assert_eq!(now.since(&before), [("a".to_owned(), 3)]);
        assert_eq!(now.since(&DriverDrops::default()).len(), 2);
    }
}
