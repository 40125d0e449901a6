//! A stack's counters, declared once: the list makes the struct, the names and the snapshot. Every
//! drop has a name here.

macro_rules! counters {
    ($($(#[doc = $help:literal])* $name:ident,)*) => {
        /// One context's counters: plain words that only its stack writes.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[doc = $help])* pub $name: u64,)*
        }

        impl Counters {
            /// Every counter's name and meaning, in the order of declaration.
            pub const LIST: &'static [(&'static str, &'static str)] =
                &[$((stringify!($name), concat!($($help),*)),)*];

            /// Every counter's name and value, in the order of declaration.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Turns of the crank.
    turns,
    /// Bytes of unused buffers and connections that went back to the system.
    memory_returned_bytes,
    /// Frames taken from the driver.
    rx_frames,
    /// Bytes of those frames.
    rx_bytes,
    /// TCP segments addressed to us, with a sound header; the payload is not verified yet.
    rx_segments,
    /// Segments that joined those before them in a run.
    rx_merged,
    /// Segments that came in frames of several, as the wire merged them.
    rx_segments_in_large,
    /// ACKs that had to merge with their connection's next, since trains were full.
    acks_merged,
    /// ACKs that left in trains, behind a first of their connection or alone.
    acks_in_trains,
    /// Segments that left in frames of several, which the port cuts.
    tx_segments_in_large,
    /// Frames handed to the driver.
    tx_frames,
    /// Bytes of those frames.
    tx_bytes,
    /// Frames that the stack sent to itself. They count as handed to the driver and taken from it.
    local_frames,
    /// Lost: frames to the stack itself that found its queue full, or were too long for it.
    local_frames_lost,
    /// Dropped: frames for a wire that has taken nothing for long, of a stack that talks to itself.
    tx_drop_stuck,
    /// Turns in which the driver had no room for all that was ready.
    tx_backpressure,
    /// Connections that nobody had accepted and that were sent to another process.
    transfers_sent,
    /// Those that no other process took: their peers were reset.
    transfers_refused,
    /// Connections that came back, because the other process did not take them.
    transfers_back,
    /// Connections that came from another process.
    transfers_taken,
    /// Dropped: of an unknown flow, at a place that was left to other processes.
    transfers_quiet,
    /// Frames handed to the context that has their flow, or listens, since they reached this one.
    handed_over,
    /// Frames that other contexts handed to this one. They count as taken from the driver at both.
    handed_in,
    /// Copies for other contexts of what all learn from: ARP, neighbour discovery, ICMP errors.
    handed_copies,
    /// Lost: frames to another context that is behind, or copies for one.
    hand_over_full,
    /// Lost: frames to another context that are longer than a slot.
    hand_over_too_long,
    /// Flows that other contexts cannot look up, since the table of owners had no room.
    hand_over_unlisted,
    /// Dropped: shorter than an Ethernet header.
    rx_drop_ethernet,
    /// Dropped: an Ethernet type that is not IP or ARP.
    rx_drop_ethertype,
    /// Dropped: not for our MAC address and not multicast.
    rx_drop_other_mac,
    /// Dropped: from a group's address.
    rx_drop_source_mac,
    /// Dropped: tagged for a VLAN.
    rx_drop_vlan,
    /// Dropped: an IP header that is cut, lies about its lengths, has a bad version or a bad
    /// checksum.
    rx_drop_ip_header,
    /// Dropped: an IP fragment.
    rx_drop_fragment,
    /// Dropped: an address that is not ours.
    rx_drop_other_address,
    /// Dropped: a source address that cannot be a peer's (multicast, broadcast, unspecified, our
    /// own).
    rx_drop_source_address,
    /// Dropped: a TCP header that is cut, lies about its length or has malformed options.
    rx_drop_tcp_header,
    /// Dropped: a TCP checksum that is wrong.
    rx_drop_tcp_checksum,
    /// Dropped: denied by a packet rule, or by the default of the rules.
    rx_drop_rule,
    /// Dropped: above the rate of a packet rule.
    rx_drop_rule_limit,
    /// Dropped: rejected by a packet rule, or by the default of the rules.
    rx_drop_rule_reject,
    /// Dropped: an IP protocol that we do not speak.
    rx_drop_protocol,
    /// Dropped: an ARP message that is malformed or not for us.
    rx_drop_arp,
    /// Dropped: an ICMP message that is malformed, unknown or not for us.
    rx_drop_icmp,
    /// Dropped: no chunk for the payload; the peer sends it again.
    rx_no_buffer,
    /// Payload bytes copied and summed in one pass.
    rx_fused_bytes,
    /// Payload bytes verified in place before they were copied.
    rx_verified_bytes,
    /// SYNs to a listener.
    syn_received,
    /// SYNs answered with a cookie because the SYN queue was full.
    syn_cookies_sent,
    /// Handshakes completed by a cookie.
    syn_cookies_accepted,
    /// ACKs that bore no valid cookie.
    syn_cookies_refused,
    /// SYNs dropped because the queue of half-open connections was full and cookies are turned off.
    half_open_full,
    /// SYNs dropped because the accept queue was full.
    syn_drop_accept_queue_full,
    /// SYNs that asked for a Fast Open cookie.
    fast_open_cookies_asked,
    /// SYNs with a Fast Open cookie that was not ours.
    fast_open_cookies_bad,
    /// SYNs that could have opened fast, but too many of their listener's were pending.
    fast_open_queue_full,
    /// SYNs that qualified for Fast Open, but no socket or no slot in the flow table was free: the
    /// plain handshake serves.
    fast_open_no_room,
    /// Times that Fast Open was paused because a black hole was suspected.
    fast_open_paused,
    /// Handshakes completed, by peers.
    accepted,
    /// Final ACKs left without answer because the accept queue was full; the peer sends again.
    accept_queue_full,
    /// Final ACKs left without answer because no socket was free.
    accept_no_socket,
    /// Half-open handshakes given up.
    half_open_expired,
    /// Half-open handshakes ended by the peer's reset.
    half_open_reset,
    /// Connections opened by us that reached ESTABLISHED.
    connected,
    /// Connections that failed: reset, refused, timed out, unreachable.
    failed,
    /// New flows refused because the flow table was full.
    flow_table_full,
    /// Frames of the driver that were too small for a segment of its own MTU.
    tx_frame_too_small,
    /// Entries made of connections in TIME_WAIT, or in FIN_WAIT_2 when their application had gone.
    time_wait_entered,
    /// Entries among them in FIN_WAIT_2.
    fin_wait_2_entered,
    /// Entries in TIME_WAIT forgotten early, or not made, because the table was full.
    time_wait_evicted,
    /// Entries in FIN_WAIT_2 forgotten early because the table was full of such.
    fin_wait_2_evicted,
    /// TIME_WAIT entries taken over by a new SYN (RFC 6191).
    time_wait_reused,
    /// Closed connections reset because too many were not over yet, those in FIN_WAIT_2 apart.
    orphans_refused,
    /// Resets sent for segments that belong to nothing.
    resets_sent,
    /// Segments that belong to nothing and earn no reset.
    no_connection,
    /// Turns that left frames to the driver because answers to earlier ones had not left yet.
    input_held,
    /// Turns whose timers waited because the port held more frames than the turn took.
    timers_waited,
    /// Segments of no connection dropped because their queue was full.
    control_queue_full,
    /// Ports that are gone for good, while another is left.
    ports_lost,
    /// Segments of no connection dropped for want of a route or a neighbour.
    control_unroutable,
    /// Frames waiting for a neighbour that were dropped: too many of them, or no answer came.
    neighbour_drop,
    /// ARP requests and neighbour solicitations sent.
    neighbour_requests,
    /// Echo requests answered.
    echo_replies,
    /// Destinations forgotten, with their path MTUs and cookies, in favour of others.
    destinations_evicted,
    /// Times that a quiet connection kept its slot because no blocks were free to pack it into.
    pack_refused,
    /// ICMP errors about one of our connections.
    icmp_errors,
    /// Connections whose bytes beyond gaps were given up because memory was exhausted.
    connections_shed,
    /// Time stamps of sent bytes that an application asked for and did not fetch in time.
    stamps_lost,
    /// Connections of the sample whose story was not written, because too many others were.
    stories_refused,
    /// ICMP errors that applications did not fetch in time.
    icmp_notes_lost,
    /// SYNs whose headers were not saved at the limit, though a listener asked for them.
    saved_syns_lost,
    /// Half-open handshakes ended by an ICMP error.
    half_open_icmp,
    /// Jobs applied for the application.
    jobs,
    /// Jobs that named a socket that is gone.
    jobs_stale,
    /// Events published to the application.
    events,
    /// Timers that fired and found something due.
    timers_fired,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_name_each_counter() {
        let counters = Counters {
            rx_drop_arp: 3,
            ..Counters::default()
        };
        assert!(counters.rows().any(|row| row == ("rx_drop_arp", 3)));
        assert_eq!(counters.rows().map(|(_, n)| n).sum::<u64>(), 3);
    }
}
