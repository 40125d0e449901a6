//! Drop reasons that a capture names: the counters of dropped frames.
//!
//! Reasons are numbered from 1 on: those of received frames in the order of [`NAMES`], then those
//! of segments that were not sent.

use crate::counters::Counters;
use crate::unsent_notes::UnsentReason;

macro_rules! reasons {
    ($stack:ident, $tcp:ident: $($set:ident.$name:ident,)*) => {
        /// Names of the reasons of received frames: the names of their counters.
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name),)*];

        /// The current count of each reason for received frames.
        pub(crate) fn counts($stack: &Counters, $tcp: &tcp::Counters) -> [u64; NAMES.len()] {
            [$($set.$name,)*]
        }

        /// The sum of all counts.
        fn sum($stack: &Counters, $tcp: &tcp::Counters) -> u64 {
            [$($set.$name,)*].into_iter().fold(0, u64::wrapping_add)
        }
    };
}

reasons! {
    stack, tcp:
    stack.rx_drop_ethernet,
    stack.rx_drop_ethertype,
    stack.rx_drop_other_mac,
    stack.rx_drop_source_mac,
    stack.rx_drop_vlan,
    stack.rx_drop_ip_header,
    stack.rx_drop_fragment,
    stack.rx_drop_other_address,
    stack.rx_drop_source_address,
    stack.rx_drop_tcp_header,
    stack.rx_drop_tcp_checksum,
    stack.rx_drop_rule,
    stack.rx_drop_rule_limit,
    stack.rx_drop_rule_reject,
    stack.rx_drop_protocol,
    stack.rx_drop_arp,
    stack.rx_drop_icmp,
    stack.rx_no_buffer,
    stack.syn_cookies_refused,
    stack.half_open_full,
    stack.syn_drop_accept_queue_full,
    stack.accept_queue_full,
    stack.accept_no_socket,
    stack.flow_table_full,
    stack.no_connection,
    stack.transfers_quiet,
    tcp.drop_reset_outside_window,
    tcp.drop_reset_in_window,
    tcp.drop_syn_synchronized,
    tcp.drop_outside_window,
    tcp.drop_paws,
    tcp.drop_no_ack,
    tcp.drop_ack_beyond_sent,
    tcp.drop_ack_too_old,
    tcp.drop_syn_sent,
    tcp.drop_closed,
    tcp.drop_in_order_no_memory,
    tcp.drop_icmp_outside_window,
}

/// Counters of segments that were not sent, in the order of [`UnsentReason`].
const UNSENT: [&str; 2] = ["neighbour_drop", "control_unroutable"];

/// All names, in the order of their numbers.
pub(crate) fn log_names() -> Vec<&'static str> {
    NAMES.iter().chain(&UNSENT).copied().collect()
}

/// The number of an [`UnsentReason`].
pub(crate) fn of_unsent(reason: UnsentReason) -> usize {
    NAMES.len() + 1 + reason as usize
}

/// Finds the counter that rose since the last look. As long as the sum of all is unchanged, single
/// counters are not compared.
pub(crate) struct Watch {
    sum: u64,
    counts: [u64; NAMES.len()],
}

impl Watch {
    pub fn new(stack: &Counters, tcp: &tcp::Counters) -> Self {
        Self {
            sum: sum(stack, tcp),
            counts: counts(stack, tcp),
        }
    }

    /// The number of the first reason whose count has risen since the last look.
    pub fn risen(&mut self, stack: &Counters, tcp: &tcp::Counters) -> Option<usize> {
        let sum = sum(stack, tcp);
        if sum == self.sum {
            return None;
        }
        let counts = counts(stack, tcp);
        let mut pairs = self.counts.iter().zip(&counts);
        let at = pairs.position(|(old, new)| old != new);
        (self.sum, self.counts) = (sum, counts);
        at.map(|at| at + 1)
    }
}

#[cfg(test)]
mod tests {
    use ring::limits::{LOG_REASON_BYTES, LOG_REASONS_MAX};

    use super::*;

    /// A counter of frames dropped on the way out, which is no reason for a received frame.
    const STUCK: &str = "tx_drop_stuck";

    #[test]
    fn each_counter_of_dropped_frames_is_a_reason() {
        let lists = Counters::LIST.iter().chain(tcp::Counters::LIST);
        let is_drop = |name: &str| name.split('_').any(|word| word == "drop");
        for (name, _) in lists.filter(|(name, _)| is_drop(name) && !name.contains("bytes")) {
            assert!(log_names().contains(name) || *name == STUCK, "{name}");
        }
        assert!(log_names().len() <= LOG_REASONS_MAX);
        let mut names = log_names().into_iter();
        assert!(names.all(|name| name.len() <= LOG_REASON_BYTES));
        for (reason, name) in [
            (UnsentReason::Neighbour, "neighbour_drop"),
            (UnsentReason::Unroutable, "control_unroutable"),
        ] {
            assert_eq!(log_names()[of_unsent(reason) - 1], name);
        }
    }

    #[test]
    fn count_that_rose_is_named_once() {
        let (stack, mut tcp) = (Counters::default(), tcp::Counters::default());
        let mut watch = Watch::new(&stack, &tcp);
        assert_eq!(watch.risen(&stack, &tcp), None);
        tcp.drop_paws = 1;
        let reason = watch.risen(&stack, &tcp);
        assert_eq!(reason.map(|at| NAMES[at - 1]), Some("drop_paws"));
        assert_eq!(watch.risen(&stack, &tcp), None);
        tcp.drop_closed = 3;
        let reason = watch.risen(&stack, &tcp);
        assert_eq!(reason.map(|at| NAMES[at - 1]), Some("drop_closed"));
    }
}
