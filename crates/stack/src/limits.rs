//! All limits of a stack, with assertions of the relations between them.
//!
//! Each limit has a default, a name by which a configuration sets it, and a defined answer when it
//! is reached. Tables are allocated to their limits when the stack is made, and do not grow.

/// Sizes of one context's tables. The memory is reserved up front and touched on first use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sockets of every kind (connections, listeners, sockets not yet connected). At the limit a
    /// completed handshake stays half-open (`accept_no_socket`), and the application's `connect`
    /// fails with `ENOBUFS`.
    pub sockets_max: usize,
    /// Handshakes in progress over all listeners. At the limit SYNs are answered with cookies.
    pub half_open_max: usize,
    /// Connections in TIME_WAIT, and closed ones in FIN_WAIT_2. At the limit the oldest in
    /// TIME_WAIT is forgotten (`time_wait_evicted`). If all are in FIN_WAIT_2, the oldest of these
    /// gives way to a newer one (`fin_wait_2_evicted`).
    pub time_wait_max: usize,
    /// Connections that their application has closed and whose FIN is not acknowledged. At the
    /// limit a further one is reset at once (`orphans_refused`), as in Linux.
    pub orphans_max: usize,
    /// Listening sockets. At the limit `listen` fails with `ENOBUFS`.
    pub listeners_max: usize,
    /// Largest accept queue. A larger backlog is cut to this, as Linux cuts it to `somaxconn`.
    pub backlog_max: usize,
    /// Chunks of 256 bytes for socket buffers. When they run out, large chunks serve; then segments
    /// are dropped (`rx_no_buffer`).
    pub small_chunks: usize,
    /// Chunks of 4 KiB for socket buffers. When they run out, segments are dropped (`rx_no_buffer`)
    /// and writes wait.
    pub large_chunks: usize,
    /// Segments without a connection (RST, SYN-ACK, challenge ACKs) that wait to leave. At the
    /// limit they are dropped (`control_queue_full`), and the peer asks again.
    pub control_queue_max: usize,
    /// Records of runs of segments in flight over all connections, 40 bytes each; never fewer than
    /// `sockets_max`. At the limit runs share records, so recovery is less precise.
    pub segment_records: usize,
    /// Sockets that stay unpacked. Beyond this number quiet connections are packed. If all are
    /// busy, more stay unpacked, up to `sockets_max`.
    pub warm_sockets: usize,
    /// Time after which a connection counts as quiet and may be packed, in ns. A tenth of it serves
    /// for connections that never carried payload.
    pub pack_after_ns: u64,
    /// Blocks of 64 bytes for packed sockets; each socket takes two or more. At the limit quiet
    /// sockets stay unpacked.
    pub packed_blocks: usize,
    /// Blocks of 25 out-of-order ranges over all connections, 256 bytes each. At the limit a
    /// connection without a block accepts nothing out of order. One with blocks gives up the range
    /// furthest from RCV.NXT (`bytes_drop_ranges_full`).
    pub range_blocks: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sockets_max: 32_768,
            half_open_max: 8_192,
            time_wait_max: 32_768,
            orphans_max: orphans_of(32_768),
            listeners_max: 64,
            backlog_max: 16_384,
            small_chunks: 65_536,
            large_chunks: 16_384,
            control_queue_max: 1_024,
            segment_records: 65_536,
            range_blocks: 4_096,
            warm_sockets: WARM_SOCKETS,
            pack_after_ns: 1_000_000_000,
            packed_blocks: 32_768 * PACKED_BLOCKS_EACH,
        }
    }
}

/// A sixteenth of the sockets stays for connections with an application. A server that closes
/// first, with slow clients, may turn nearly all others into orphans. Resetting orphans would
/// destroy data that their clients wait for.
const fn orphans_of(sockets_max: usize) -> usize {
    sockets_max - sockets_max / 16
}

impl Limits {
    /// Limits for `connections` connections at once: every table that depends on their number,
    /// scaled.
    #[must_use]
    pub fn for_connections(connections: usize) -> Self {
        let connections = connections.clamp(64, SOCKETS_CEILING / 2);
        let sockets_max = connections + connections / 8 + SOCKET_STOCK_MAX;
        Self {
            sockets_max,
            warm_sockets: WARM_SOCKETS.max(sockets_max / 64),
            packed_blocks: sockets_max * PACKED_BLOCKS_EACH,
            half_open_max: (connections / 2).max(1_024),
            time_wait_max: connections.max(4_096),
            orphans_max: orphans_of(sockets_max),
            segment_records: (connections * 2).max(16_384),
            small_chunks: (connections * 2).max(8_192),
            backlog_max: connections.clamp(128, BACKLOG_CEILING),
            ..Self::default()
        }
    }

    /// Most flows of all kinds together.
    #[must_use]
    pub fn flows_max(&self) -> usize {
        self.sockets_max + self.half_open_max + self.time_wait_max
    }

    /// Checks the limits.
    pub fn check(&self) -> Result<(), LimitError> {
        let rows = [
            ("sockets_max", self.sockets_max, 2, SOCKETS_CEILING),
            ("half_open_max", self.half_open_max, 1, TABLE_CEILING),
            ("time_wait_max", self.time_wait_max, 1, TABLE_CEILING),
            ("orphans_max", self.orphans_max, 1, TABLE_CEILING),
            ("listeners_max", self.listeners_max, 1, LISTENERS_CEILING),
            ("backlog_max", self.backlog_max, 1, BACKLOG_CEILING),
            ("small_chunks", self.small_chunks, 16, TABLE_CEILING),
            ("large_chunks", self.large_chunks, 16, TABLE_CEILING),
            ("segment_records", self.segment_records, 1, TABLE_CEILING),
            (
                "control_queue_max",
                self.control_queue_max,
                16,
                CONTROL_CEILING,
            ),
            ("range_blocks", self.range_blocks, 1, TABLE_CEILING),
            ("warm_sockets", self.warm_sockets, 1, SOCKETS_CEILING),
            ("packed_blocks", self.packed_blocks, 1, TABLE_CEILING),
        ];
        for (name, value, min, max) in rows {
            if value < min || value > max {
                return Err(LimitError {
                    name,
                    value,
                    min,
                    max,
                });
            }
        }
        Ok(())
    }
}

/// A limit outside the range for which tables can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}: it must lie between {min} and {max}")]
pub struct LimitError {
    /// Name of the field in [`Limits`].
    pub name: &'static str,
    /// The value that was set.
    pub value: usize,
    /// Least allowed value.
    pub min: usize,
    /// Greatest allowed value.
    pub max: usize,
}

/// Largest size of most tables. An index has 30 bits in an entry of the flow table.
const TABLE_CEILING: usize = 1 << 28;
const SOCKETS_CEILING: usize = 1 << 24;
const LISTENERS_CEILING: usize = 4_096;
const BACKLOG_CEILING: usize = 65_536;
const CONTROL_CEILING: usize = 1 << 16;

/// Sockets that stay unpacked by default.
const WARM_SOCKETS: usize = 8_192;
/// Most blocks of one packed socket, and its most bytes in them.
pub(crate) const PACKED_BLOCKS_EACH: usize = 5;
pub(crate) const PACKED_BYTES_MAX: usize = PACKED_BLOCKS_EACH * 60;
/// Each time a slot is taken while too many are in use: slots examined for packing, and how many of
/// them may be packed.
pub(crate) const PACK_LOOKS_MAX: usize = 8;
pub(crate) const PACKED_PER_STEP_MAX: usize = 2;
/// A packing round is wasted if it packs fewer than one slot in this many. A pause then follows, a
/// tenth of `pack_after_ns`.
pub(crate) const PACK_ROUND_WORTH: usize = 16;

/// Default of the most segments in a run, as in the measurements of the ATC 2008 paper.
pub const AGGREGATION_DEFAULT: u16 = 20;
/// ACK trains in one turn. At the limit an ACK merges with the next one of its connection
/// (`acks_merged`).
pub const ACK_TRAINS_MAX: usize = 256;
/// ACKs in one train. A further ACK begins another train.
pub const ACKS_PER_TRAIN_MAX: usize = 16;

/// Turns for which an ACK waits for the application's answer, at least; at most twice as many. The
/// application may get ready sockets in parts (`EVENTS_PER_WAIT_FEW` in `millstream`). An
/// application without an answer should not delay the ACK for long (decision 0037).
pub const ANSWER_TURNS: u32 = 2;
/// Turns of writes that count as one turn for ACKs that wait for an answer. A program that answers
/// a crowd with long texts turns the stack by its writes, each time for other connections than
/// those it has not come to (decision 0037).
pub const WRITER_TURNS: u32 = 32;

/// Free share of chunk memory, in 1/64ths, below which memory is low: socket buffers stop growing.
pub const MEMORY_LOW: u64 = 32;
/// Free share, in 1/64ths, below which memory is under pressure: windows shrink to a few segments,
/// and data beyond gaps is given up first.
pub const MEMORY_PRESSURE: u64 = 16;
/// Free share, in 1/64ths, below which memory is exhausted: no segment is accepted out of order.
pub const MEMORY_EXHAUSTED: u64 = 4;
/// Part of chunk memory, in 1/64ths, that all send buffers share equally while memory is low.
pub const MEMORY_SHARED: u64 = 48;
/// Least share of a connection's send buffer while memory is low, bytes; it keeps the connection
/// going.
pub const SHARE_BYTES_MIN: u32 = 4_096;
/// Received frames that are examined together: while one is processed, memory of the others is
/// fetched.
pub const RX_GROUP: usize = 8;
/// Most frames of a batch that are ordered by flow at a time.
pub const FLOW_ORDER_FRAMES_MAX: usize = 256;
/// Buckets of the table that finds a frame's flow for ordering: two per frame.
pub const FLOW_ORDER_SLOTS: usize = 2 * FLOW_ORDER_FRAMES_MAX;
/// Buckets probed for one frame. At the limit flows share a bucket, and their frames stay in order
/// of arrival.
pub const FLOW_ORDER_PROBES_MAX: usize = 8;
/// Average frame size of a batch, in bytes, from which frames are ordered by flow. Shorter frames
/// carry messages, and a flow rarely has two of them in one batch.
pub const FLOW_ORDER_BYTES_MIN: u64 = 256;
/// Payload size from which the next frame's payload is prefetched while this one is copied.
pub const AHEAD_BYTES_MIN: u32 = 256;
/// Number of jobs ahead of the current one whose sockets' memory is prefetched.
pub const JOBS_AHEAD: usize = 4;
/// Distance in buckets of an entry of the flow table from its home. The table is at most 70 % full,
/// where the furthest of two million flows lies 11 to 16 buckets away. No flow exceeds the limit by
/// chance; one that would is refused (`flow_table_full`).
pub const FLOW_PROBES_MAX: usize = 32;
/// Frames that one turn takes from a port before the next stage runs, unless more are waiting.
pub const RX_FRAMES_PER_TURN: usize = 256;
/// Most frames that one turn takes from a port if that many wait there, because a full ring loses
/// frames. A crowd's frames are then acknowledged before its retransmission timers expire (decision
/// 0059).
pub const RX_FRAMES_WAITING_MAX: usize = 4_096;
/// Input stops while answers wait for the port. If the port has taken nothing for this long, its
/// other end may be waiting for us. Then as much input is taken as can be answered without loss.
pub const PORT_STUCK_NS: u64 = 10_000_000;
/// Time after which all input is taken. Answers without room are dropped (`control_queue_full`);
/// about then peers repeat their requests.
pub const PORT_DEAD_NS: u64 = 200_000_000;
/// Refusals required besides [`PORT_STUCK_NS`]: time alone misleads if this thread did not run
/// meanwhile.
pub const PORT_STUCK_REFUSALS: u32 = 16;
/// Longest time until the next turn if a turn left frames in the driver.
pub const INPUT_RETRY_NS: u64 = 200_000;
/// Longest time that timers wait while each turn leaves frames in the port. It is half of the least
/// retransmission timeout, and enough for rings of 16,384 frames.
pub const INPUT_BACKLOG_NS_MAX: u64 = 100_000_000;
/// Jobs that one turn applies.
pub const JOBS_PER_TURN: usize = 512;
/// Control requests (listen, connect, options) that one turn applies.
pub const CONTROLS_PER_TURN: usize = 256;
/// Timers that one turn fires.
pub const TIMERS_PER_TURN: usize = 512;
/// Frames that one turn hands to the driver.
pub const TX_FRAMES_PER_TURN: usize = 512;
/// Frames and jobs in a turn from which on its output prefetches connections: with fewer, their
/// memory is still in the cache.
pub const TX_LOOKS_MIN: usize = 64;
/// Least number of slots that a batch reserves in the driver. Otherwise it reserves half as many
/// again as the last batch used.
pub const TX_FRAMES_AHEAD_MIN: usize = 16;
/// Segments in a text from which on it uses the bulk lane of a port; the last one may be short.
/// Each packet of that lane takes a system call, which costs as much as four frames of the other
/// lane (decision 0101).
pub const BULK_SEGMENTS_MIN: u32 = 5;
/// Connections that one turn tells of a full port. Later turns tell the others.
pub const BLOCKED_TOLD_PER_TURN: usize = 64;
/// Segments that a connection sends before the next one has its turn: a run that a receiver with
/// our aggregation merges completely.
pub const SEGMENTS_PER_VISIT: usize = 20;
/// Connections that begin in one turn. Existing connections go first, so that few are open at a
/// time and stay in the second-level cache (decision 0038). A load of connection openings makes
/// full turns of this size and loses nothing.
pub const OPENINGS_PER_TURN: usize = 32;
/// Guaranteed share of each transmit list in a batch, in 1/8ths: control, ACK, data, openings.
pub const TX_SHARES: [usize; 4] = [2, 2, 3, 1];
/// Most small chunks in the application's stock (`ring::stock`). If the stock is empty, a write
/// waits for the next turn.
pub const MAGAZINE_SMALL: usize = 1_024;
/// Most large chunks in the application's stock; see [`MAGAZINE_SMALL`].
pub const MAGAZINE_LARGE: usize = 512;
/// Most socket ids in the application's stock for `connect` and `listen`. If the stock is empty,
/// the call waits for the next turn.
pub const SOCKET_STOCK_MAX: usize = 256;
/// Longest time until the next turn if the event queue was full.
pub const EVENTS_RETRY_NS: u64 = 10_000_000;
/// Batches with fewer frames are too small for shares: the lists take turns in being first.
pub const TX_BATCH_SHARED_MIN: usize = 8;
/// Frames of the cold path (ARP, ICMP) that wait to leave. At the limit the newest is dropped
/// (`control_queue_full`).
pub const COLD_FRAMES_MAX: usize = 64;
/// Most header bytes that are copied out of a frame: Ethernet with one tag, longest IPv4 header,
/// longest TCP header.
pub const HEADER_BYTES_MAX: usize = 18 + 60 + 60;
/// Longest frame of the cold path: a small packet behind its Ethernet header.
pub const COLD_FRAME_BYTES_MAX: usize = SMALL_PACKET_BYTES_MAX + 18;
/// Longest packet that is not TCP and is still parsed (ARP, ICMP, neighbour discovery, echo).
/// Longer ones are dropped (`rx_drop_ip_header`).
pub const SMALL_PACKET_BYTES_MAX: usize = 2_048;

const _: () = assert!(MEMORY_EXHAUSTED < MEMORY_PRESSURE && MEMORY_PRESSURE < MEMORY_LOW);
const _: () = assert!(TX_SHARES[0] + TX_SHARES[1] + TX_SHARES[2] + TX_SHARES[3] == 8);
const _: () = assert!(SOCKETS_CEILING <= TABLE_CEILING);

/// Local IP addresses over all ports. At the limit `LocalAddresses::add` fails with `Full`.
pub const LOCAL_ADDRESSES_MAX: usize = 64;
/// Hosts whose path MTU or Fast Open cookie is remembered between connections. At the limit the
/// least recently used entry of its set is forgotten.
pub const DESTINATIONS_MAX: usize = 2_048;
/// Entries in one set of the table of destinations.
pub const DESTINATIONS_EACH_SET: usize = 4;
/// Pending Fast Opens of one listener; a larger `TCP_FASTOPEN` is cut to this. At the limit the
/// plain handshake serves (`fast_open_queue_full`).
pub const FAST_OPEN_PENDING_MAX: u32 = 4_096;
/// Time for which a Fast Open that the client reset counts against its listener's limit, so that
/// spoofed SYNs are not free.
pub const FAST_OPEN_RESET_NS: u64 = 60_000_000_000;
/// Ports of a stack. More are refused when the stack is made (`ConfigError::Ports`).
pub const PORTS_MAX: usize = 8;
/// Packet rules of a stack. More are refused when the configuration is read (`RuleError::TooMany`).
pub const RULES_MAX: usize = 32_768;
/// Most rules of one source prefix that are compared one by one. More are divided by our port.
pub const RULES_UNSORTED_MAX: usize = 8;
/// Bytes of a rule's name that `mill rules` shows; longer names are cut.
pub const RULE_NAME_BYTES_MAX: usize = 63;
/// Entries in all lists of rules by port, 2 bytes each. If a prefix's lists find no room, its rules
/// are compared one by one.
pub const RULE_LISTS_MAX: usize = 1 << 20;
/// Routes over both families. At the limit `Routes::add` fails with `Full`.
pub const ROUTES_MAX: usize = 1_024;
/// Entries of the neighbour cache. At the limit the least recently used entry gives way
/// (`neighbours.evicted`). If none may, the newcomer is refused (`neighbours.table_full`).
pub const NEIGHBOURS_MAX: usize = 1_024;
/// Connections that wait for neighbours, over all neighbours. At the limit a connection is not
/// noted, and its own timer wakes it.
pub const NEIGHBOUR_WAITING_MAX: usize = 8_192;
/// Control frames held for neighbours, over all neighbours. At the limit a frame is dropped.
pub const NEIGHBOUR_FRAMES_MAX: usize = 2_048;
/// Control frames held for one neighbour. At the limit the oldest is dropped (RFC 4861 section
/// 7.2.2). Behind a gateway a crowd may send SYNs before the gateway is resolved, and a dropped
/// SYN-ACK costs its peer a second.
pub const NEIGHBOUR_FRAMES_EACH_MAX: usize = 1_024;
/// Longest control frame that is held for a neighbour, with its Ethernet header, bytes.
pub const CONTROL_FRAME_BYTES_MAX: usize = 160;
/// ICMP errors sent per second, on average (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4(f)).
/// Above it none is sent.
pub const ICMP_ERRORS_PER_SECOND_MAX: u32 = 1_000;
/// ICMP errors sent in one burst.
pub const ICMP_ERRORS_BURST_MAX: u32 = 50;
/// Echo requests answered per second, on average. Further ones are not answered.
pub const ECHO_REPLIES_PER_SECOND_MAX: u32 = 10_000;
/// Echo requests answered in one burst.
pub const ECHO_REPLIES_BURST_MAX: u32 = 1_000;
/// Default time after which unused memory goes back to the system, in ns.
pub const RETURN_MEMORY_NS: u64 = 3_000_000_000;
/// Time between two steps of a round that returns memory, in ns. A step takes 30 to 130 µs.
pub const RETURN_STEP_NS: u64 = 1_000_000;
/// Free slots of the socket table whose memory is never returned.
pub const SLOTS_SPARE: usize = 256;
/// Slots that one step returns, at least.
pub const SLOTS_PER_STEP: usize = 256;
/// Share of the slots that one step of a large table returns (one in this many), because each step
/// walks the list of free slots.
pub const SLOTS_STEP_SHARE: usize = 16;
/// Bound sockets, listening ones included. At the limit `bind` fails with `ENOBUFS`.
pub const BINDS_MAX: usize = 16_384;

const _: () = assert!(NEIGHBOUR_FRAMES_EACH_MAX <= NEIGHBOUR_FRAMES_MAX);
const _: () = assert!(NEIGHBOURS_MAX <= NEIGHBOUR_WAITING_MAX);

/// Sockets that one turn examines for bytes beyond gaps when memory is exhausted. The next turn
/// continues behind them.
pub(crate) const SHED_SOCKETS_PER_TURN: u32 = 1_024;

/// ICMP errors that a stack holds for its applications, of each of two kinds. At the limit the
/// oldest is lost and counted.
pub(crate) const ICMP_NOTES_MAX: usize = 1024;

/// SYNs whose headers a stack keeps for its applications (`TCP_SAVE_SYN`). Further ones are counted
/// and not kept.
pub(crate) const SAVED_SYNS_MAX: usize = 4096;

/// Stamps of sent bytes that a socket holds for its application, and bytes that it may wait for.
/// Further ones are lost and counted.
pub(crate) const STAMPS_HELD_MAX: usize = 512;
/// Arrivals that a socket remembers for its application. At the limit the oldest is forgotten, and
/// its bytes count as having arrived with the next.
pub(crate) const ARRIVALS_HELD_MAX: usize = 64;

/// Connections whose stories a stack keeps. At the limit a sampled connection goes without
/// (`stories_refused`). An observer's request takes the place of a story not asked about for
/// [`STORY_KEPT_NS`], or is answered `Full`.
pub(crate) const STORIES_MAX: usize = 64;
/// Events of one story. At the limit the oldest is overwritten.
pub const STORY_EVENTS: usize = 64;
/// Time for which a story keeps its place after an observer asked about it, in ns.
pub(crate) const STORY_KEPT_NS: u64 = 60_000_000_000;

/// Opens that wait for a host to lend local ports. A further one fails (`EADDRNOTAVAIL`).
pub(crate) const PORT_WAITS_MAX: usize = 65_536;
/// Interval at which the stack checks whether the address of a closed socket still has connections,
/// in ns.
pub(crate) const PLACE_LOOK_NS: u64 = 1_000_000_000;
/// Interval at which the stack looks for an unused block of lent local ports and returns it, in ns.
/// Returning one block at a time leaves most ports for a burst of connections that recurs.
pub(crate) const LENT_PORTS_LOOK_NS: u64 = 10_000_000_000;

/// Connections whose round trip one look of an observer adds to the histogram.
pub(crate) const ROUND_TRIPS_PER_LOOK: usize = 16;
/// Connections that an observer counts on each transmit list. Further ones are not counted.
pub(crate) const QUEUE_LOOKS_MAX: usize = 16_384;
/// Segments given up in one turn that a capture logs. Further ones are only counted.
pub(crate) const UNSENT_NOTES_MAX: usize = 64;
/// Words of a capture's log (8 MiB); slow readers may miss older frames than these.
pub(crate) const CAPTURE_WORDS: usize = 1 << 20;

/// Table positions that a walk over all flows examines per row. In a nearly empty table the walk
/// therefore takes more steps, not longer ones.
pub(crate) const SURVEY_LOOKS_PER_ROW: usize = 16;

/// Unanswered connections that this stack has sent to other processes. Further ones are reset.
pub const TRANSFERS_OUT_MAX: usize = 1024;
/// Addresses left to other processes that the stack remembers. At the limit the oldest is
/// forgotten, and a late SYN to it is reset.
pub const LEFT_HISTORY_MAX: usize = 256;
/// SYNs to left addresses that one turn reports to the host. Further ones are reported when their
/// peers repeat them.
pub const STRAYS_PER_TURN: usize = 64;
/// Time for which a connection waits to be accepted before the host is asked for a process that
/// accepts it, in ns. After a refusal the stack asks again after the same time, and after further
/// ones after twice the last pause.
pub const SEEK_AGE_NS: u64 = 20_000_000;
/// Longest time between two such questions, in ns.
pub const SEEK_PAUSE_NS_MAX: u64 = 80_000_000;
/// Time after which a connection of a process that has never accepted one goes to a process that
/// accepts, even if that process is busy, in ns.
pub const SEEK_URGENT_NS: u64 = 160_000_000;
/// Time after which the stack looks again whether other processes may have an address, in ns.
pub const UNSHARED_LOOK_NS: u64 = 1_000_000_000;
/// Flows that went to other processes while their listener stays, and whose segments get no answer
/// for a while. At the limit the oldest is forgotten, and late segments of it are reset.
pub const FLOWS_AWAY_MAX: usize = 1024;
/// Time for which a left address answers no segment of an unknown flow, in ns. By then the host has
/// removed the listener, and segments on the way have arrived.
pub const LEFT_PLACE_QUIET_NS: u64 = 2_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_ranges() {
        assert_eq!(Limits::default().check(), Ok(()));
        assert_eq!(Limits::for_connections(1_000_000).check(), Ok(()));
        assert_eq!(Limits::for_connections(1).check(), Ok(()));
    }

    #[test]
    fn a_limit_out_of_range_is_named() {
        let limits = Limits {
            backlog_max: 0,
            ..Limits::default()
        };
        let error = limits.check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "backlog_max is 0: it must lie between 1 and 65536"
        );
    }
}
