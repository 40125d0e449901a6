//! Remedies for growing counters: for every drop, and for other signs of trouble.

/// The remedy for a growing counter; empty if nothing is wrong, or nothing can be done on this
/// host.
///
/// ```
/// use millstream::observed::remedy;
/// assert!(remedy("accept_queue_full").starts_with("Accept faster"));
/// assert_eq!(remedy("turns"), "");
/// ```
#[must_use]
pub fn remedy(counter: &str) -> &'static str {
    let found = REMEDIES.iter().find(|(name, _)| *name == counter);
    found.map_or("", |(_, remedy)| remedy)
}

const FOREIGN: &str = "Usual: frames for others. Many on a quiet link: look at the switch.";
const BROKEN: &str = "Look at cable, NIC and sender: `pcap=FILE` behind the wire shows the frames.";
const ATTACK: &str = "A few are usual. Many: a broken or hostile peer; `pcap=FILE` shows it.";
const RULED: &str = "`mill rules` shows which rule refused them.";
const MEMORY: &str = "Raise `Limits::large_chunks` and `Limits::small_chunks`, or read faster.";
const BACKLOG: &str = "Accept faster, or give `listen` a longer backlog.";

/// Counters and remedies, in the order in which the counters are declared.
pub(super) const REMEDIES: &[(&str, &str)] = &[
    (
        "local_frames_lost",
        "A few are repaired by TCP. Many: write less at once.",
    ),
    (
        "ports_lost",
        "Look why the wire went, and restart the program to use it again.",
    ),
    ("tx_drop_stuck", "Look at the wire's other end."),
    (
        "tx_backpressure",
        "The wire is full: send less, or use more queues.",
    ),
    (
        "transfers_refused",
        "Start new workers before the old ones end: no other process listened in time.",
    ),
    (
        "transfers_quiet",
        "Usual while workers are replaced: the peers send again.",
    ),
    ("rx_drop_ethernet", BROKEN),
    ("rx_drop_ethertype", FOREIGN),
    ("rx_drop_other_mac", FOREIGN),
    ("rx_drop_source_mac", BROKEN),
    ("rx_drop_vlan", "Take the tag off in the NIC or the switch."),
    ("rx_drop_ip_header", BROKEN),
    (
        "rx_drop_fragment",
        "Lower the sender's MTU, or let ICMP through so that it learns the path's.",
    ),
    (
        "rx_drop_other_address",
        "Look at `--addr` and its prefix; on a shared link it is usual.",
    ),
    ("rx_drop_source_address", ATTACK),
    ("rx_drop_tcp_header", BROKEN),
    (
        "rx_drop_tcp_checksum",
        "A virtual device leaves checksums open: `checksum=partial`. Otherwise look at cable and NIC.",
    ),
    ("rx_drop_rule", RULED),
    ("rx_drop_rule_limit", RULED),
    ("rx_drop_rule_reject", RULED),
    ("rx_drop_protocol", FOREIGN),
    (
        "rx_drop_arp",
        "Look for a host with a broken ARP; a few are usual.",
    ),
    ("rx_drop_icmp", ATTACK),
    ("rx_no_buffer", MEMORY),
    (
        "syn_cookies_sent",
        "Raise the backlog and `Limits::half_open_max`, or look for a SYN flood.",
    ),
    ("syn_cookies_refused", ATTACK),
    (
        "half_open_full",
        "Raise the backlog and `Limits::half_open_max`, or turn cookies on.",
    ),
    ("syn_drop_accept_queue_full", BACKLOG),
    (
        "fast_open_queue_full",
        "Raise `TCP_FASTOPEN` of the listener.",
    ),
    ("fast_open_no_room", "Raise `Limits::sockets_max`."),
    (
        "fast_open_paused",
        "A middlebox drops SYNs with data: turn Fast Open off on this path.",
    ),
    ("accept_queue_full", BACKLOG),
    ("accept_no_socket", "Raise `Limits::sockets_max`."),
    ("flow_table_full", "Raise `Limits::sockets_max`."),
    (
        "tx_frame_too_small",
        "Report it: the port lends frames below its own MTU.",
    ),
    ("time_wait_evicted", "Raise `Limits::time_wait_max`."),
    (
        "fin_wait_2_evicted",
        "Raise `Limits::time_wait_max`, or lower `fin_wait_2_ns`.",
    ),
    ("orphans_refused", "Raise `Limits::orphans_max`."),
    (
        "input_held",
        "The wire is full: send less, or use more queues.",
    ),
    ("timers_waited", "Give the stack more CPU time."),
    (
        "control_queue_full",
        "Raise `Limits::control_queue_max`, or look for a flood of segments.",
    ),
    (
        "control_unroutable",
        "Look at gateways and routes, and whether the next hop answers.",
    ),
    (
        "neighbour_drop",
        "Look whether the next hop is up and answers ARP.",
    ),
    ("pack_refused", "Raise `Limits::packed_blocks`."),
    ("connections_shed", MEMORY),
    ("stamps_lost", "Fetch time stamps sooner."),
    (
        "stories_refused",
        "Sample fewer connections: a larger `story_one_in`.",
    ),
    ("icmp_notes_lost", "Read the error queue sooner."),
    (
        "saved_syns_lost",
        "Accept faster, or fetch `TCP_SAVED_SYN` sooner.",
    ),
    (
        "retransmit_timeouts",
        "Look for loss or long delays on the path: `mill ss -ti`, `mill ss -v`.",
    ),
    (
        "sack_reneged",
        "Look at the peer: it drops what it has acknowledged.",
    ),
    ("records_refused", "Raise `Limits::segment_records`."),
    ("challenge_acks_limited", ATTACK),
    ("drop_reset_outside_window", ATTACK),
    ("drop_reset_in_window", ATTACK),
    ("drop_syn_synchronized", ATTACK),
    (
        "drop_outside_window",
        "Usual after loss: repeated segments. Many: duplicates on the path.",
    ),
    (
        "drop_paws",
        "Usual after loss: old repetitions. Many: a peer with a broken clock.",
    ),
    ("drop_no_ack", ATTACK),
    ("drop_ack_beyond_sent", ATTACK),
    ("drop_ack_too_old", ATTACK),
    ("drop_syn_sent", ATTACK),
    (
        "drop_closed",
        "Usual: segments that were under way when the connection ended.",
    ),
    ("bytes_out_of_order_shed", MEMORY),
    ("receive_pruned", MEMORY),
    (
        "bytes_drop_ranges_full",
        "Raise `Limits::range_blocks`; look for loss on the path.",
    ),
    ("drop_in_order_no_memory", MEMORY),
    ("bytes_drop_no_memory", MEMORY),
    ("bytes_drop_beyond_fin", ATTACK),
    ("bytes_drop_syn_ack", "Usual: the peer sends them again."),
    (
        "bytes_drop_orphan",
        "Have the application read to the end before it closes.",
    ),
    (
        "path_probes_lost",
        "Usual: the path's MTU is below the probe.",
    ),
    ("drop_icmp_outside_window", ATTACK),
    ("timed_out", "Look whether peers and path are up."),
    (
        "neighbour_failed",
        "Look whether the neighbour is up and in this subnet.",
    ),
    (
        "neighbour_table_full",
        "Use a gateway: more than 1,024 neighbours are in use at once.",
    ),
    (
        "neighbour_waiting_full",
        "Look whether the next hop is up: 8,192 connections wait for it.",
    ),
    (
        "neighbour_frames_dropped",
        "Look whether the next hop is up and answers ARP.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::declared;

    #[test]
    fn every_drop_has_a_remedy_and_every_remedy_a_counter() {
        for one in declared() {
            let is_drop = |word| matches!(word, "drop" | "dropped" | "refused");
            let is_drop = one.name.split('_').any(is_drop);
            assert!(!is_drop || !remedy(one.name).is_empty(), "{}", one.name);
        }
        for (name, remedy) in REMEDIES {
            assert!(declared().any(|one| one.name == *name), "no counter {name}");
            assert!(remedy.ends_with('.'), "{name}: {remedy}");
        }
    }
}
