//! `stat_print`: a line about a context on standard error, at most once a second, while its program
//! waits for events. No line is printed if no frame moved.
//!
//! ```text
//! mtcp: context 0: 1204 descriptors, in 10312/s 118.2 Mbit/s, out 10890/s 950.1 Mbit/s, segments_retransmitted +12, orphans_refused +3
//! ```
//!
//! Owned by the context and called by each wait. Without `stat_print` a wait only checks an option.

use std::fmt::Write;

use posix::Sockets;

const SECOND_NS: u64 = 1_000_000_000;

/// Counters that show trouble, printed if they moved.
const TROUBLE: [&str; 25] = [
    "failed",
    "timed_out",
    "segments_retransmitted",
    "retransmit_timeouts",
    "resets_in",
    "resets_out",
    "resets_sent",
    "syn_cookies_sent",
    "syn_drop_accept_queue_full",
    "accept_queue_full",
    "accept_no_socket",
    "half_open_full",
    "half_open_expired",
    "orphans_refused",
    "time_wait_evicted",
    "fin_wait_2_evicted",
    "fin_wait_2_expired",
    "flow_table_full",
    "rx_no_buffer",
    "rx_drop_tcp_checksum",
    "rx_drop_other_address",
    "bytes_drop_no_memory",
    "connections_shed",
    "control_unroutable",
    "neighbour_drop",
];

/// See the module's documentation.
pub struct Stats {
    index: usize,
    /// Time of the last line, in ns.
    last_ns: u64,
    before: Vec<(&'static str, u64)>,
}

impl Stats {
    /// Begins to count for context `index`.
    pub fn new(index: usize) -> Self {
        Self {
            index,
            last_ns: 0,
            before: Vec::new(),
        }
    }

    /// Prints a line if it is due.
    pub fn print_if_due(&mut self, sockets: &Sockets) {
        let now_ns = sockets.context().now_ns();
        let elapsed_ns = now_ns.saturating_sub(self.last_ns);
        if elapsed_ns < SECOND_NS {
            return;
        }
        self.last_ns = now_ns;
        // If the wire is gone there is no report, and the wait returns the error.
        let Ok(now) = sockets.context().counters() else {
            return;
        };
        if !self.before.is_empty() {
            let line = line(&self.before, &now, elapsed_ns);
            if let Some(line) = line {
                eprintln!(
                    "mtcp: context {}: {} descriptors, {line}",
                    self.index,
                    sockets.count()
                );
            }
        }
        self.before = now;
    }
}

/// The line about counters that moved between two readings; `None`: no frame did.
fn line(
    before: &[(&'static str, u64)],
    now: &[(&'static str, u64)],
    elapsed_ns: u64,
) -> Option<String> {
    let value = |rows: &[(&'static str, u64)], name: &str| {
        let row = rows.iter().find(|(known, _)| *known == name);
        row.map_or(0, |(_, value)| *value)
    };
    let change = |name: &str| value(now, name).saturating_sub(value(before, name));
    let seconds = elapsed_ns as f64 / SECOND_NS as f64;
    if change("rx_frames") + change("tx_frames") == 0 {
        return None;
    }
    let mut line = String::new();
    for (way, frames, bytes) in [
        ("in", "rx_frames", "rx_bytes"),
        (", out", "tx_frames", "tx_bytes"),
    ] {
        let each_s = change(frames) as f64 / seconds;
        let mbit_s = change(bytes) as f64 * 8e-6 / seconds;
        // Writing to a String cannot fail.
        let _ = write!(line, "{way} {each_s:.0}/s {mbit_s:.1} Mbit/s");
    }
    for name in TROUBLE {
        let count = change(name);
        if count > 0 {
            let _ = write!(line, ", {name} +{count}");
        }
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_tells_rates_and_troubles() {
        let before = [
            ("rx_frames", 10),
            ("rx_bytes", 1_000),
            ("orphans_refused", 4),
        ];
        let now = [
            ("rx_frames", 30),
            ("rx_bytes", 1_001_000),
            ("tx_frames", 5),
            ("orphans_refused", 7),
        ];
        let said = line(&before, &now, 2 * SECOND_NS).unwrap();
        let expected = "in 10/s 4.0 Mbit/s, out 2/s 0.0 Mbit/s, orphans_refused +3";
        assert_eq!(said, expected);
        assert_eq!(line(&now, &now, SECOND_NS), None);
    }
}
