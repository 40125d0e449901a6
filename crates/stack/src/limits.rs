//! Every limit of a stack, in one place, with the relations between them asserted.
//!
//! Each has a default here, a name under which a configuration sets it, and an answer that holds
//! when it is reached. Tables are allocated to their limits when the stack is made; nothing grows
//! afterwards.

/// Sizes of one context's tables. The memory is reserved up front and touched on first use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sockets of every kind (connections, listeners, sockets not yet connected). At the limit a
    /// handshake that completes is left half-open (`accept_no_socket`), and the application's
    /// `connect` fails with `ENOBUFS`.
    pub sockets_max: usize,
    /// Handshakes in progress over all listeners. At the limit SYNs are answered with cookies.
    pub half_open_max: usize,
    /// Connections in TIME_WAIT, and those in FIN_WAIT_2 that their application has closed. At the
    /// limit the oldest in TIME_WAIT is forgotten (`time_wait_evicted`); where all are in
    /// FIN_WAIT_2, the oldest of these for a newer one (`fin_wait_2_evicted`).
    pub time_wait_max: usize,
    /// Connections that their application has closed and whose FIN is not acknowledged. At the
    /// limit one more is reset at once (`orphans_refused`), as in Linux.
    pub orphans_max: usize,
    /// Listening sockets. At the limit `listen` fails with `ENOBUFS`.
    pub listeners_max: usize,
    /// The largest accept queue; a larger backlog is cut to this, as Linux cuts it to `somaxconn`.
    pub backlog_max: usize,
    /// Chunks of 256 bytes for socket buffers. At the limit large ones serve, then segments are
    /// dropped (`rx_no_buffer`).
    pub small_chunks: usize,
    /// Chunks of 4 KiB for socket buffers. At the limit segments are dropped (`rx_no_buffer`) and
    /// writes wait.
    pub large_chunks: usize,
    /// Segments that belong to no connection (RST, SYN-ACK, challenge ACKs) waiting to leave. At
    /// the limit they are dropped (`control_queue_full`): the peer asks again.
    pub control_queue_max: usize,
    /// Records of runs of segments in flight, all connections together, 40 bytes each; never fewer
    /// than `sockets_max`. At the limit runs are not told apart: recovery gets less precise.
    pub segment_records: usize,
    /// Sockets that stay unpacked. Beyond that number quiet connections are packed; if all are busy
    /// there are more, up to `sockets_max`.
    pub warm_sockets: usize,
    /// Time after which a connection counts as quiet and may be packed, in ns; a tenth of that if
    /// it never carried any payload.
    pub pack_after_ns: u64,
    /// Blocks of 64 bytes for sockets that are packed, of which each takes two or more. At the
    /// limit quiet sockets stay as they are.
    pub packed_blocks: usize,
    /// Blocks of 25 out-of-order ranges, all connections together, 256 bytes each. At the limit a
    /// connection that holds none takes nothing out of order, and one that holds some gives up the
    /// range furthest from what it waits for (`bytes_drop_ranges_full`).
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

/// A sixteenth of the sockets stays for connections with an application. Where the server closes
/// first and its clients are slow, nearly all others may be orphans, and a reset would destroy data
/// that their clients wait for.
const fn orphans_of(sockets_max: usize) -> usize {
    sockets_max - sockets_max / 16
}

impl Limits {
    /// Limits for a context that will hold `connections` at once: every table that follows from
    /// that number, scaled.
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

    /// Flows of all kinds at once.
    #[must_use]
    pub fn flows_max(&self) -> usize {
        self.sockets_max + self.half_open_max + self.time_wait_max
    }

    /// The fault of these limits, if any: the field and its range.
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

/// A limit outside the range that the tables can be built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}: it must lie between {min} and {max}")]
pub struct LimitError {
    /// The field of [`Limits`].
    pub name: &'static str,
    /// The value that was set.
    pub value: usize,
    /// The least it may be.
    pub min: usize,
    /// The most it may be.
    pub max: usize,
}

/// A flow table's value keeps two bits for the kind of its target.
const TABLE_CEILING: usize = 1 << 28;
const SOCKETS_CEILING: usize = 1 << 24;
const LISTENERS_CEILING: usize = 4_096;
const BACKLOG_CEILING: usize = 65_536;
const CONTROL_CEILING: usize = 1 << 16;

/// Sockets that are held ready by default.
const WARM_SOCKETS: usize = 8_192;
/// Blocks that a packed socket takes at most, and how many bytes that is.
pub(crate) const PACKED_BLOCKS_EACH: usize = 5;
pub(crate) const PACKED_BYTES_MAX: usize = PACKED_BLOCKS_EACH * 60;
/// Slots that are looked at for something to pack whenever a slot is needed while there are many,
/// and how many of them are packed.
pub(crate) const PACK_LOOKS_MAX: usize = 8;
pub(crate) const PACKED_PER_STEP_MAX: usize = 2;
/// A round is wasted if it packs fewer than one slot in this many. The next one then begins after a
/// tenth of the time that makes a connection quiet.
pub(crate) const PACK_ROUND_WORTH: usize = 16;

/// Segments that aggregation merges by default, as in the paper's measurements.
pub const AGGREGATION_DEFAULT: u16 = 20;
/// Trains of ACKs in one turn. At the limit an ACK merges with its connection's next
/// (`acks_merged`).
pub const ACK_TRAINS_MAX: usize = 256;
/// ACKs in one train; one more begins another.
pub const ACKS_PER_TRAIN_MAX: usize = 16;

/// Number of turns for which an ACK waits for the application's answer to ride on, at least; twice
/// as many at most. The application may get ready sockets in parts (`EVENTS_PER_WAIT_FEW` in
/// `millstream`), and an application without an answer should not delay the ACK for long
/// (decision 0037).
pub const ANSWER_TURNS: u32 = 2;

/// The free share of the bytes in chunks, in 1/64ths, below which memory counts as low: socket
/// buffers stop growing.
pub const MEMORY_LOW: u64 = 32;
/// The share below which memory is under pressure: windows shrink to a few segments, and data
/// beyond gaps is given up first.
pub const MEMORY_PRESSURE: u64 = 16;
/// Below which it is exhausted: nothing is taken out of order any more.
pub const MEMORY_EXHAUSTED: u64 = 4;
/// While memory is low: the 64ths of all bytes in chunks that send buffers share, an equal part for
/// each connection.
pub const MEMORY_SHARED: u64 = 48;
/// The least part: it keeps a connection going.
pub const SHARE_BYTES_MIN: u32 = 4_096;
/// Received frames that are examined together: while one is processed, the memory of the others is
/// prefetched.
pub const RX_GROUP: usize = 8;
/// Frames of a batch that are put in the order of their flows at a time.
pub const FLOW_ORDER_FRAMES_MAX: usize = 256;
/// Places of the table that finds the flow of a frame meanwhile: two for each frame.
pub const FLOW_ORDER_SLOTS: usize = 2 * FLOW_ORDER_FRAMES_MAX;
/// Buckets that are probed for one frame. At the limit flows share a bucket, and their frames are
/// taken in the order of their arrival.
pub const FLOW_ORDER_PROBES_MAX: usize = 8;
/// Average size of a batch's frames above which their flows are ordered: short frames carry
/// messages, of which a flow seldom has two in one batch.
pub const FLOW_ORDER_BYTES_MIN: u64 = 256;
/// Payload size from which the next frame's payload is prefetched while this one is copied.
pub const AHEAD_BYTES_MIN: u32 = 256;
/// Number of jobs ahead of the current one whose sockets' memory is prefetched.
pub const JOBS_AHEAD: usize = 4;
/// Distance in buckets of an entry of the flow table from its home. The table is at most 70 % full,
/// where the furthest of two million flows lies 11 to 16 buckets away. No flow exceeds the limit by
/// chance; one that would is refused (`flow_table_full`).
pub const FLOW_PROBES_MAX: usize = 32;
/// Frames that one turn takes from the driver before it goes on to the next stage.
pub const RX_FRAMES_PER_TURN: usize = 256;
/// ... or as many as wait in the port, up to this many, where a full ring loses frames. So a
/// crowd's frames are acknowledged before the crowd's retransmission timers run out, and wait as
/// events and not as frames (decision 0059).
pub const RX_FRAMES_WAITING_MAX: usize = 4_096;
/// Input stops while answers wait for the port, unless the port has taken nothing for this long:
/// its other end may be waiting for us in turn. From then on as much input is taken as can be
/// answered without loss.
pub const PORT_STUCK_NS: u64 = 10_000_000;
/// Time after which input is taken in any case, and answers that find no room are dropped
/// (`control_queue_full`): peers repeat their requests about then.
pub const PORT_DEAD_NS: u64 = 200_000_000;
/// Refusals that are needed as well: a core that was not running meanwhile cannot judge by time
/// alone.
pub const PORT_STUCK_REFUSALS: u32 = 16;
/// When a turn has left frames to the driver, the next one comes no later than after this time.
pub const INPUT_RETRY_NS: u64 = 200_000;
/// While each turn leaves frames in the port, timers wait for them this long. Half of the least
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
/// Frames and jobs of a turn from which on its output asks for the memory of connections ahead:
/// those of fewer have just been worked at.
pub const TX_LOOKS_MIN: usize = 64;
/// Slots that a turn reserves in its driver at least; otherwise half as many more as the last batch
/// used.
pub const TX_FRAMES_AHEAD_MIN: usize = 16;
/// Segments from which on a text asks for the bulk lane of a port that has one; the last of them
/// may be short. The lane takes a system call for each packet, which costs as much as four frames
/// of the other lane do (decision 0101).
pub const BULK_SEGMENTS_MIN: u32 = 5;
/// Connections that one turn tells that the port has no room; later turns tell the others.
pub const BLOCKED_TOLD_PER_TURN: usize = 64;
/// Segments that a connection sends before it is another's turn: a run that a receiver with our
/// aggregation merges whole.
pub const SEGMENTS_PER_VISIT: usize = 20;
/// Connections that begin in one turn. Existing connections go first, so that few are open at any
/// time and their lines stay in the second-level cache (decision 0038). A load that only begins
/// connections makes turns of this size, and loses nothing.
pub const OPENINGS_PER_TURN: usize = 32;
/// The share of the transmit budget, in 1/8ths, that each list has for certain: control, ACK, data,
/// openings.
pub const TX_SHARES: [usize; 4] = [2, 2, 3, 1];
/// Largest number of small and of large chunks in the application's stock (`ring::stock`); an empty
/// stock makes a write wait for the next turn.
pub const MAGAZINE_SMALL: usize = 1_024;
/// See [`MAGAZINE_SMALL`].
pub const MAGAZINE_LARGE: usize = 512;
/// Socket ids that lie ready for the application's `connect` and `listen`, at most; an empty stock
/// makes it wait for the next turn.
pub const SOCKET_STOCK_MAX: usize = 256;
/// Time after which the next turn comes at the latest when the event queue was full.
pub const EVENTS_RETRY_NS: u64 = 10_000_000;
/// Batches with fewer frames than this are too small to be shared: whose turn it is to be first
/// goes round.
pub const TX_BATCH_SHARED_MIN: usize = 8;
/// Frames of the cold path (ARP, ICMP) that wait for the transmit stage. At the limit the newest is
/// dropped (`control_queue_full`).
pub const COLD_FRAMES_MAX: usize = 64;
/// Header bytes copied out of a frame before they are parsed: Ethernet with one tag, the longest
/// IPv4 header, the longest TCP header.
pub const HEADER_BYTES_MAX: usize = 18 + 60 + 60;
/// The longest of those frames: a small packet behind its Ethernet header.
pub const COLD_FRAME_BYTES_MAX: usize = SMALL_PACKET_BYTES_MAX + 18;
/// The longest packet that is not TCP and is looked at (ARP, ICMP, neighbour discovery, echo);
/// longer ones are dropped (`rx_drop_ip_header`).
pub const SMALL_PACKET_BYTES_MAX: usize = 2_048;

const _: () = assert!(MEMORY_EXHAUSTED < MEMORY_PRESSURE && MEMORY_PRESSURE < MEMORY_LOW);
const _: () = assert!(TX_SHARES[0] + TX_SHARES[1] + TX_SHARES[2] + TX_SHARES[3] == 8);
const _: () = assert!(SOCKETS_CEILING <= TABLE_CEILING);

/// Local IP addresses over all ports. At the limit `LocalAddresses::add` answers `Full`.
pub const LOCAL_ADDRESSES_MAX: usize = 64;
/// Hosts whose path MTU or Fast Open cookie is remembered between connections. At the limit the
/// least recently used entry of its set is forgotten.
pub const DESTINATIONS_MAX: usize = 2_048;
/// Places of one set of that table.
pub const DESTINATIONS_EACH_SET: usize = 4;
/// Incomplete Fast Open connections of one listener; a larger `TCP_FASTOPEN` means this. At the
/// limit Fast Open falls back to the plain handshake (`fast_open_queue_full`).
pub const FAST_OPEN_PENDING_MAX: u32 = 4_096;
/// Time for which a Fast Open that the client reset counts against its listener's limit, so that
/// spoofed SYNs are not free.
pub const FAST_OPEN_RESET_NS: u64 = 60_000_000_000;
/// Ports of a stack. More wires are refused when the stack is made (`ConfigError::Ports`).
pub const PORTS_MAX: usize = 8;
/// Packet rules of a stack. More are refused when the configuration is read (`RuleError::TooMany`).
pub const RULES_MAX: usize = 32_768;
/// Rules for one source prefix that are compared one by one. More are divided by our port.
pub const RULES_UNSORTED_MAX: usize = 8;
/// Bytes of a rule's name that `mill rules` shows. What is beyond is cut off.
pub const RULE_NAME_BYTES_MAX: usize = 63;
/// Places of all lists of rules by port, 2 bytes each. Rules of a source prefix whose lists find no
/// room are compared one by one.
pub const RULE_LISTS_MAX: usize = 1 << 20;
/// Routes over both families. At the limit `Routes::add` answers `Full`.
pub const ROUTES_MAX: usize = 1_024;
/// Entries of the neighbour cache. At the limit the entry least recently used gives way
/// (`neighbours.evicted`); if none may, the newcomer is refused (`neighbours.table_full`).
pub const NEIGHBOURS_MAX: usize = 1_024;
/// Connections that wait for neighbours, over all neighbours. At the limit a connection is not
/// noted and relies on its timer.
pub const NEIGHBOUR_WAITING_MAX: usize = 8_192;
/// Control frames held for neighbours, over all neighbours. At the limit a frame is dropped.
pub const NEIGHBOUR_FRAMES_MAX: usize = 2_048;
/// Control frames held for one neighbour. At the limit the oldest is dropped (RFC 4861 7.2.2). A
/// proxy or a gateway may forward a crowd whose SYNs all come before it has answered; a dropped
/// SYN-ACK costs its peer a second.
pub const NEIGHBOUR_FRAMES_EACH_MAX: usize = 1_024;
/// The longest control frame that is held for a neighbour, Ethernet header included.
pub const CONTROL_FRAME_BYTES_MAX: usize = 160;
/// ICMP errors sent in a second, on average (RFC 1812 4.3.2.8, RFC 4443 2.4(f)). At the limit none
/// is sent.
pub const ICMP_ERRORS_PER_SECOND_MAX: u32 = 1_000;
/// ICMP errors sent in one burst.
pub const ICMP_ERRORS_BURST_MAX: u32 = 50;
/// Echo requests answered in a second, on average. At the limit none is answered.
pub const ECHO_REPLIES_PER_SECOND_MAX: u32 = 10_000;
/// Echo requests answered in one burst.
pub const ECHO_REPLIES_BURST_MAX: u32 = 1_000;
/// Default time after which unused memory goes back to the system, in ns.
pub const RETURN_MEMORY_NS: u64 = 3_000_000_000;
/// Between two steps of a round that returns memory, in ns. A step takes 30 to 130 µs.
pub const RETURN_STEP_NS: u64 = 1_000_000;
/// Free slots of the socket table whose memory always stays.
pub const SLOTS_SPARE: usize = 256;
/// Slots that one step returns, if the table is small, ...
pub const SLOTS_PER_STEP: usize = 256;
/// Otherwise a share of the slots, since each step walks the list of its free slots.
pub const SLOTS_STEP_SHARE: usize = 16;
/// Sockets that are bound to an address at once, listening ones included. At the limit `bind` fails
/// with `ENOBUFS`.
pub const BINDS_MAX: usize = 16_384;

const _: () = assert!(NEIGHBOUR_FRAMES_EACH_MAX <= NEIGHBOUR_FRAMES_MAX);
const _: () = assert!(NEIGHBOURS_MAX <= NEIGHBOUR_WAITING_MAX);

/// Sockets that one turn looks at for bytes beyond gaps, when memory is exhausted; the next turn
/// goes on from there.
pub(crate) const SHED_SOCKETS_PER_TURN: u32 = 1_024;

/// ICMP errors that the sockets of a stack hold for their applications, of each of two kinds; the
/// oldest is lost and counted.
pub(crate) const ICMP_NOTES_MAX: usize = 1024;

/// SYNs whose headers a stack keeps for its applications (`TCP_SAVE_SYN`). Further ones are not
/// kept, and counted.
pub(crate) const SAVED_SYNS_MAX: usize = 4096;

/// Stamps of sent bytes that a socket holds for its application, and as many bytes that it waits
/// for; further ones are lost and counted.
pub(crate) const STAMPS_HELD_MAX: usize = 512;
/// Arrivals that a socket remembers for its application; the oldest is forgotten, and its bytes
/// count as having come with the next.
pub(crate) const ARRIVALS_HELD_MAX: usize = 64;

/// Connections whose stories a stack writes or keeps. At the limit one of the sample goes without
/// (`stories_refused`). Somebody who asks about another gets the place of one that nobody has asked
/// about for [`STORY_KEPT_NS`], or the answer `Full`.
pub(crate) const STORIES_MAX: usize = 64;
/// Events of one story; the oldest is overwritten.
pub const STORY_EVENTS: usize = 64;
/// Time for which a story stays after somebody asked about it, in ns.
pub(crate) const STORY_KEPT_NS: u64 = 60_000_000_000;

/// Opens that wait for a host to lend local ports. A further one fails (EADDRNOTAVAIL).
pub(crate) const PORT_WAITS_MAX: usize = 65_536;
/// Interval at which the stack checks whether the address of a closed socket still has connections,
/// in ns.
pub(crate) const PLACE_LOOK_NS: u64 = 1_000_000_000;
/// Interval at which the stack looks for a block of lent local ports that no connection uses, and
/// gives it back, in ns. One block in each interval, so that a burst of connections that comes
/// again finds most of its ports.
pub(crate) const LENT_PORTS_LOOK_NS: u64 = 10_000_000_000;

/// Connections whose round trip one look of an observer adds to the histogram.
pub(crate) const ROUND_TRIPS_PER_LOOK: usize = 16;
/// Connections of one transmit list that an observer counts. More are not counted.
pub(crate) const QUEUE_LOOKS_MAX: usize = 16_384;
/// Segments of one turn that a capture shows as given up. More are only counted.
pub(crate) const UNSENT_NOTES_MAX: usize = 64;
/// Words of a capture's log, 8 MiB: the newest frames that a slow reader may still have.
pub(crate) const CAPTURE_WORDS: usize = 1 << 20;

/// Places of a table that a walk over all flows looks at for each row that it may give. A table
/// that is mostly empty takes more steps, and none of them longer.
pub(crate) const SURVEY_LOOKS_PER_ROW: usize = 16;

/// Connections that this stack has sent to other processes and that are not answered. Further ones
/// are reset.
pub const TRANSFERS_OUT_MAX: usize = 1024;
/// Places that were left to other processes and that the stack remembers. Of more, the oldest is
/// forgotten: a SYN that still comes there is reset.
pub const FORSAKEN_PLACES_MAX: usize = 256;
/// SYNs of one turn at places that were left, of which the host is told. It hears of further ones
/// when their peers send again.
pub const STRAYS_PER_TURN: usize = 64;
/// How long a place that was left to other processes answers no segment of an unknown flow. By then
/// the host has taken it off the list of listeners, and the last segments on the way have come.
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
