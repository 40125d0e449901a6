//! Counters of TCP, one set per stack, declared in one list with names for export.
//!
//! The stack owns the counters, lends them through `Cx` and publishes them. Every drop has its own
//! counter.

macro_rules! counters {
    ($($(#[doc = $help:literal])* $name:ident,)*) => {
        /// TCP's counters, one set per stack. All start at zero and only grow.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[doc = $help])* pub $name: u64,)* }

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
    /// Segments given to a connection.
    segments_in,
    /// Segments given out by connections.
    segments_out,
    /// Segments that took the established fast path.
    predicted_in,
    /// Segments sent again, for whatever reason.
    segments_retransmitted,
    /// Segments sent again after a retransmission timeout.
    retransmitted_by_timeout,
    /// Segments sent again by fast retransmit and fast recovery.
    retransmitted_by_fast_recovery,
    /// Segments sent again as tail loss probes.
    retransmitted_by_loss_probe,
    /// Segments sent again because the path takes only shorter ones, or because the data
    /// of a Fast Open's SYN did not arrive.
    retransmitted_by_path,
    /// SYNs sent again, and SYN-ACKs of connections that have a socket already.
    retransmitted_by_handshake,
    /// Retransmission timeouts.
    retransmit_timeouts,
    /// Fast retransmits begun.
    fast_retransmits,
    /// Duplicate ACKs received.
    dup_acks_in,
    /// Segments with text that arrived marked Congestion Experienced (RFC 3168).
    ce_marks_in,
    /// SACK blocks that made no sense, dropped.
    sack_blocks_discarded,
    /// Receivers that dropped data that they had SACKed.
    sack_reneged,
    /// D-SACKs received.
    dsacks_in,
    /// Times that reordering was seen.
    reordering_seen,
    /// Retransmissions that were lost in turn.
    retransmissions_lost,
    /// Times that records became less precise because the pool had no free one.
    records_refused,
    /// Tail loss probes sent.
    loss_probes_out,
    /// Losses that only a tail loss probe repaired.
    loss_probes_repaired,
    /// Reductions undone at the end of recovery.
    undone_full,
    /// Reductions undone by a partial ACK.
    undone_partial,
    /// Reductions undone by D-SACKs.
    undone_dsack,
    /// Reductions undone after a timeout.
    undone_loss,
    /// Timeouts that F-RTO found spurious.
    timeouts_spurious,
    /// Zero-window (and held-segment) probes sent.
    window_probes_out,
    /// Keep-alive probes sent.
    keepalive_probes_out,
    /// Acknowledgments delayed until their timer fired.
    delayed_acks_out,
    /// Challenge ACKs granted (RFC 5961).
    challenge_acks_out,
    /// Challenge ACKs withheld by the rate limits.
    challenge_acks_limited,
    /// RSTs sent by connections.
    resets_out,
    /// RSTs that ended a connection.
    resets_in,
    /// RSTs outside the window, dropped.
    drop_reset_outside_window,
    /// RSTs in the window but not at its left edge, challenged.
    drop_reset_in_window,
    /// SYNs in a synchronized state, challenged.
    drop_syn_synchronized,
    /// Segments outside the receive window, dropped (and acknowledged).
    drop_outside_window,
    /// Segments with an old timestamp (RFC 7323 PAWS), dropped.
    drop_paws,
    /// Segments without ACK in a synchronized state, dropped.
    drop_no_ack,
    /// Segments whose ACK is for data never sent, dropped.
    drop_ack_beyond_sent,
    /// Segments whose ACK is older than the largest window, dropped.
    drop_ack_too_old,
    /// Segments that no rule of SYN_SENT accepts, dropped.
    drop_syn_sent,
    /// Segments for a connection that is closed already, dropped.
    drop_closed,
    /// Bytes of segments that lay outside the window and were cut off.
    bytes_outside_window,
    /// Bytes received a second time.
    bytes_duplicate,
    /// Bytes that arrived out of order and were held.
    bytes_out_of_order,
    /// Bytes out of order that were held and given up again for want of memory.
    bytes_out_of_order_shed,
    /// Times that a receive buffer held more than it is meant to.
    receive_pruned,
    /// SACKs that were not sent because a later one stood for them.
    acks_compressed,
    /// Bytes out of order that were not held: no range was free.
    bytes_drop_ranges_full,
    /// Segments in order that the receive buffer had no memory for, dropped.
    drop_in_order_no_memory,
    /// Bytes that the receive buffer had no memory for.
    bytes_drop_no_memory,
    /// Bytes that claim to follow the peer's FIN.
    bytes_drop_beyond_fin,
    /// Bytes on a SYN-ACK: they are to be sent again.
    bytes_drop_syn_ack,
    /// Bytes that arrived after the application had closed; answered by a RST.
    bytes_drop_orphan,
    /// Segments sent to probe the path for a larger MTU (RFC 4821).
    path_probes_out,
    /// Probes of the path MTU that arrived.
    path_probes_acked,
    /// Probes of the path MTU that were lost.
    path_probes_lost,
    /// ICMP errors that name no sequence number in flight, dropped.
    drop_icmp_outside_window,
    /// Connections opened actively.
    connects,
    /// Connections accepted.
    accepts,
    /// Connections that reached ESTABLISHED.
    established,
    /// Connections ended by a time-out.
    timed_out,
    /// Connections that entered TIME_WAIT.
    time_waits,
    /// Orphans given up in FIN_WAIT_2.
    fin_wait_2_expired,
    /// Ends of records (MSG_EOR) that were forgotten, since too many waited to be acknowledged: two
    /// records became one.
    record_ends_forgotten,
    /// Changes of the mark within one turn that DCTCP's receiver could not report by separate ACKs
    /// (RFC 8257 3.2).
    mark_changes_merged,
    /// Urgent pointers seen; the data is delivered in line.
    urgent_in,
    /// Connections made of a SYN with a good cookie (RFC 7413).
    fast_opens_passive,
    /// SYNs of ours whose data was acknowledged by the SYN-ACK.
    fast_opens_active,
    /// SYNs of ours whose data had to be sent again.
    fast_opens_active_failed,
    /// SYN-ACKs sent again, by timer or for a repeated SYN.
    syn_acks_retransmitted,
    /// SYNs of half-open connections received again.
    syns_repeated,
    /// Half-open connections ended by another SYN inside the window.
    half_open_new_syn,
    /// Bare final ACKs of handshakes that wait for data (TCP_DEFER_ACCEPT).
    half_open_deferred,
    /// ACKs of half-open connections for data that was never sent, answered by a RST.
    half_open_bad_ack,
    /// ACKs of half-open connections that echo a timestamp never sent, challenged.
    half_open_bad_echo,
    /// FINs received again in TIME_WAIT.
    time_wait_fins_in,
}
