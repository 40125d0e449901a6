//! Every value that a context publishes: name, help, unit and kind, from the lists that declare
//! the counters.

use observe::layout::Kind;

/// A published value.
///
/// ```
/// let mut all = millstream::observed::declared();
/// assert!(all.any(|value| value.name == "sockets_in_use" && !value.help.is_empty()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The value's name: a letter, then letters, digits and `_`.
    pub name: &'static str,
    /// The meaning of the value.
    pub help: &'static str,
    /// `bytes`, `frames`, `segments`, `nanoseconds` or nothing.
    pub unit: &'static str,
    /// The kind of its values.
    pub kind: Kind,
}

const NEIGHBOURS: &[(&str, &str)] = &[
    ("neighbour_failed", "Addresses that nobody answered for."),
    ("neighbour_evicted", "Neighbours that gave way to another."),
    (
        "neighbour_table_full",
        "Newcomers refused because no neighbour could give way.",
    ),
    (
        "neighbour_waiting_full",
        "Connections that no neighbour entry had room to note.",
    ),
    (
        "neighbour_frames_dropped",
        "Frames dropped that waited for a neighbour's address.",
    ),
];

const TIMES: &[(&str, &str)] = &[
    (
        "time_busy",
        "Time of turns with work, the application's own work between them included.",
    ),
    ("time_spinning", "Time spent looking for work in vain."),
    ("time_asleep", "Time asleep."),
];

const GAUGES: &[(&str, &str)] = &[
    (
        "sockets_in_use",
        "Connections, listeners, and sockets that the application still holds.",
    ),
    (
        "sockets_packed",
        "Quiet sockets that are packed; they are in use too.",
    ),
    ("packed_blocks_in_use", "Blocks that packed sockets take."),
    ("half_open_in_use", "Handshakes in progress."),
    (
        "time_wait_in_use",
        "Entries in TIME_WAIT, and closed ones in FIN_WAIT_2.",
    ),
    ("fin_wait_2_in_use", "Entries in FIN_WAIT_2."),
    ("flows_in_use", "Flows in the flow table."),
    ("small_chunks_in_use", "Chunks of 256 bytes in streams."),
    ("large_chunks_in_use", "Chunks of 4 KiB in streams."),
    ("segment_records_in_use", "Records of segments in flight."),
    (
        "range_blocks_in_use",
        "Blocks of ranges that are held out of order.",
    ),
    (
        "accept_queue_length",
        "Connections that the application has not accepted yet.",
    ),
    (
        "transmit_queue_length",
        "Connections that have something to send, 16,384 of each list at most.",
    ),
    (
        "control_queue_length",
        "Segments of no connection that wait to leave.",
    ),
    ("sockets_limit", "Sockets at most."),
    ("half_open_limit", "Handshakes in progress at most."),
    (
        "time_wait_limit",
        "Entries in TIME_WAIT and FIN_WAIT_2 at most.",
    ),
    ("small_chunks_limit", "Chunks of 256 bytes at most."),
    ("large_chunks_limit", "Chunks of 4 KiB at most."),
    (
        "memory_hugetlb_bytes",
        "Address space of tables, socket blocks and chunks on reserved huge pages.",
    ),
    (
        "memory_thp_bytes",
        "Address space of theirs that transparent huge pages are advised for.",
    ),
    (
        "memory_ordinary_bytes",
        "Address space of theirs on ordinary pages.",
    ),
    ("wires_up", "Wires of the context that are not gone."),
];

const HISTOGRAMS: &[(&str, &str, &str)] = &[
    (
        "rx_batch",
        "Frames that a turn with work received.",
        "frames",
    ),
    ("tx_batch", "Frames that a turn with work sent.", "frames"),
    (
        "turn_length",
        "Length of a turn, one in sixteen measured.",
        "nanoseconds",
    ),
    (
        "accept_delay",
        "Time that a connection waited in the accept queue, to the turn after its accept.",
        "nanoseconds",
    ),
    (
        "round_trip",
        "Smoothed round trips of active connections, 16 at a look, ten looks a second.",
        "nanoseconds",
    ),
    (
        "job_batch",
        "Jobs and requests of the application that a turn with work took.",
        "",
    ),
    (
        "event_batch",
        "Events that a turn with work published to the application.",
        "",
    ),
];

/// Every value in the order in which contexts publish them. The values of the wire follow them.
///
/// ```
/// let names = millstream::observed::declared().map(|value| value.name);
/// assert!(names.count() > 100);
/// ```
pub fn declared() -> impl Iterator<Item = Declared> {
    let counters = stack::Counters::LIST.iter();
    let counters = counters.chain(tcp::Counters::LIST).chain(NEIGHBOURS);
    let counters = counters.map(|&(name, help)| Declared {
        name,
        help: help.trim(),
        unit: unit_of(name),
        kind: Kind::Counter,
    });
    let times = TIMES.iter().map(|&(name, help)| Declared {
        name,
        help,
        unit: "nanoseconds",
        kind: Kind::Counter,
    });
    let gauges = GAUGES.iter().map(|&(name, help)| Declared {
        name,
        help,
        unit: unit_of(name),
        kind: Kind::Gauge,
    });
    let histograms = HISTOGRAMS.iter().map(|&(name, help, unit)| Declared {
        name,
        help,
        unit,
        kind: Kind::Histogram,
    });
    counters.chain(times).chain(gauges).chain(histograms)
}

/// Counters of frames or segments whose names do not say so.
const UNITS: &[(&str, &str)] = &[
    ("handed_in", "frames"),
    ("handed_over", "frames"),
    ("predicted_in", "segments"),
    ("retransmitted_by_fast_recovery", "segments"),
    ("retransmitted_by_handshake", "segments"),
    ("retransmitted_by_loss_probe", "segments"),
    ("retransmitted_by_path", "segments"),
    ("retransmitted_by_timeout", "segments"),
    ("rx_merged", "segments"),
];

/// The unit of a counter or gauge: the word of its name that is a unit, or its row in [`UNITS`].
pub(super) fn unit_of(name: &str) -> &'static str {
    let listed = UNITS.iter().find(|(listed, _)| *listed == name);
    let of_word = |word| {
        ["bytes", "frames", "segments"]
            .into_iter()
            .find(|unit| *unit == word)
    };
    let named = || name.split('_').find_map(of_word);
    listed.map(|(_, unit)| *unit).or_else(named).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_declared_once_and_says_what_it_counts() {
        let mut names: Vec<&str> = declared().map(|one| one.name).collect();
        assert!(declared().all(|one| one.help.ends_with('.') && one.help.len() > 4));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn unit_is_a_word_of_the_name_or_listed() {
        let units = ["rx_bytes", "tx_frames", "segments_in", "rx_merged", "turns"].map(unit_of);
        assert_eq!(units, ["bytes", "frames", "segments", "segments", ""]);
        for (listed, _) in UNITS {
            assert!(declared().any(|one| one.name == *listed), "{listed}");
        }
    }
}
