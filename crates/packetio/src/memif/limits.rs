//! Every limit of the memif backend, with its name and unit. Owns nothing; read by all of `memif`.

/// Frames in one batch, received or reserved.
pub const BATCH_FRAMES_MAX: usize = 256;
/// A received batch ends with the frame that brings it to so many bytes. So the application reads
/// the bytes of large frames before they have left the second-level cache (decision 0049). A batch
/// of 256 frames of an MTU of 1,500 would be three times as much, and would come in three turns.
pub const BATCH_BYTES_MAX: u64 = 128 * 1024;
/// Bytes of one frame, also of one put together from a chain.
pub const FRAME_BYTES_MAX: usize = 65_536;
/// Smallest buffer that we offer, bytes.
pub const BUFFER_BYTES_MIN: usize = 128;
/// Largest buffer that we offer, bytes.
pub const BUFFER_BYTES_MAX: usize = 65_536;
/// Log2 of the most slots in a ring; DPDK's limit as well.
pub const RING_SLOTS_LOG2_MAX: u8 = 14;
/// Log2 of the fewest slots in a ring that we offer.
pub const RING_SLOTS_LOG2_MIN: u8 = 3;
/// Slots of a ring for which no number is given, at most.
pub const RING_SLOTS_DEFAULT_MAX: usize = 1024;
/// Bytes of buffers in a ring for which no number of slots is given, at most.
pub const RING_BYTES_DEFAULT: usize = 8 << 20;
/// Queue pairs of one interface.
pub const QUEUES_MAX: usize = 255;
/// Memory regions that a client may announce.
pub const REGIONS_MAX: usize = 64;
/// Bytes of one region that we map: no descriptor's offset reaches further.
pub const REGION_BYTES_MAX: u64 = 1 << 32;
/// Descriptors in one chained frame; a longer chain is dropped.
pub const CHAIN_SEGMENTS_MAX: usize = 128;
/// Bytes of the side buffer in which one batch's chains are put together.
pub const SIDE_BYTES: usize = BATCH_BYTES_MAX as usize + FRAME_BYTES_MAX;
/// Frames in one staged batch (the peer's buffers are smaller than ours).
pub const STAGED_FRAMES_MAX: usize = 32;
/// Half-open control connections that a server keeps.
pub const HANDSHAKES_MAX: usize = 4;
/// Time in ns after which a server that cannot accept tries again. It cannot accept while no
/// descriptor is free, or while too many that peers sent are still being closed
/// ([`crate::limits::CLOSING_MAX`]). The connection that is up goes on, and so do handshakes that
/// have begun, each of which adds three descriptors at most. A client tries again later.
pub const ACCEPT_PAUSE_NS: u64 = 100_000_000;
/// Control messages handled per look at one connection.
pub const MESSAGES_PER_LOOK_MAX: usize = 32;
/// Time that a peer has for the whole handshake, ns.
pub const HANDSHAKE_NS_MAX: u64 = 5_000_000_000;
/// A client's first pause before it tries to connect again, ns; doubles up to the maximum.
pub const RETRY_NS_MIN: u64 = 20_000_000;
/// A client's longest pause before it tries to connect again, ns.
pub const RETRY_NS_MAX: u64 = 1_000_000_000;
/// How long a client waits for its server before it says so, ns; after that each pause is twice as
/// long, ...
pub const ABSENCE_TOLD_NS_MIN: u64 = 1_000_000_000;
/// ... up to this.
pub const ABSENCE_TOLD_NS_MAX: u64 = 64_000_000_000;
/// How often the control channel is looked at while connected, ns.
pub const CONTROL_LOOK_NS: u64 = 10_000_000;
/// How often the control channel is looked at while not connected, ns.
pub const CONTROL_LOOK_NS_CONNECTING: u64 = 1_000_000;
/// Receive calls between two looks at the clock while connected; a power of two.
pub const POLLS_PER_CLOCK_READ: u32 = 64;
/// First pause of a sleeper who waits for room in a full ring, ns; the protocol has no wake-up for
/// that. Doubles up to the maximum.
pub const TX_ROOM_POLL_NS_MIN: u64 = 50_000;
/// Longest such pause, ns.
pub const TX_ROOM_POLL_NS_MAX: u64 = 2_000_000;
/// Looks at the ring after the wake-up was enabled, for a peer that publishes without a fence.
pub const SLEEP_LOOKS: u32 = 16;
/// A client's memory up to this size is filled with pages at once, bytes.
pub const PREFAULT_BYTES_MAX: usize = 64 << 20;

const _: () = {
    assert!(POLLS_PER_CLOCK_READ.is_power_of_two());
    assert!(BUFFER_BYTES_MAX <= FRAME_BYTES_MAX);
    assert!(
        RING_SLOTS_LOG2_MAX < 15,
        "a full ring must differ from an empty one in u16 cursors"
    );
    assert!(BATCH_FRAMES_MAX <= 1 << RING_SLOTS_LOG2_MAX);
};
