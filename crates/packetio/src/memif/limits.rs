//! All limits of the memif backend, with their units.

/// Frames in one batch, received or reserved. Further ones come in the next batch.
pub const BATCH_FRAMES_MAX: usize = 256;
/// A received batch ends with the frame that brings it to this many bytes. The application then
/// reads large frames while they are in the second-level cache (decision 0049). A full batch of 256
/// frames of 1,500 bytes is three times as long and would take three turns.
pub const BATCH_BYTES_MAX: u64 = 128 * 1024;
/// Bytes of one frame, assembled ones included.
pub const FRAME_BYTES_MAX: usize = 65_536;
/// Smallest buffer that we offer, bytes.
pub const BUFFER_BYTES_MIN: usize = 128;
/// Largest buffer that we offer, bytes.
pub const BUFFER_BYTES_MAX: usize = 65_536;
/// Log2 of the most slots in a ring, which is DPDK's limit too.
pub const RING_SLOTS_LOG2_MAX: u8 = 14;
/// Log2 of the fewest slots in a ring that we offer.
pub const RING_SLOTS_LOG2_MIN: u8 = 3;
/// Most slots of a ring by default.
pub const RING_SLOTS_DEFAULT_MAX: usize = 1024;
/// Most bytes of buffers in a ring by default.
pub const RING_BYTES_DEFAULT: usize = 8 << 20;
/// Queue pairs of one interface.
pub const QUEUES_MAX: usize = 255;
/// Memory regions that a client may announce.
pub const REGIONS_MAX: usize = 64;
/// Bytes of one mapped region: descriptors' offsets reach no further.
pub const REGION_BYTES_MAX: u64 = 1 << 32;
/// Descriptors in one chained frame. A longer chain is dropped.
pub const CHAIN_SEGMENTS_MAX: usize = 128;
/// Bytes of the side buffer in which the chains of one batch are assembled.
pub const SIDE_BYTES: usize = BATCH_BYTES_MAX as usize + FRAME_BYTES_MAX;
/// Frames in one staged batch, which serves a peer with smaller buffers than ours.
pub const STAGED_FRAMES_MAX: usize = 32;
/// Half-open control connections of a server. At the limit the oldest is refused.
pub const HANDSHAKES_MAX: usize = 4;
/// Time after which a server that cannot accept tries again, ns: no descriptor is free, or too many
/// from peers are still being closed ([`crate::limits::CLOSING_MAX`]). The established connection
/// continues. So do handshakes in progress, which add at most three descriptors each. A client
/// tries again later.
pub const ACCEPT_PAUSE_NS: u64 = 100_000_000;
/// Control messages of one connection that are processed in a row.
pub const MESSAGES_PER_LOOK_MAX: usize = 32;
/// Longest time for a whole handshake, ns.
pub const HANDSHAKE_NS_MAX: u64 = 5_000_000_000;
/// First pause of a client between two attempts to connect, ns; it doubles up to the maximum.
pub const RETRY_NS_MIN: u64 = 20_000_000;
/// Longest pause of a client between two attempts to connect, ns.
pub const RETRY_NS_MAX: u64 = 1_000_000_000;
/// Time after which a client first reports an absent server, ns. Each further pause between reports
/// is twice as long.
pub const ABSENCE_TOLD_NS_MIN: u64 = 1_000_000_000;
/// Longest pause between two reports of an absent server, ns.
pub const ABSENCE_TOLD_NS_MAX: u64 = 64_000_000_000;
/// Interval at which the control channel is read while connected, ns.
pub const CONTROL_LOOK_NS: u64 = 10_000_000;
/// Interval at which the control channel is read while not connected, ns.
pub const CONTROL_LOOK_NS_CONNECTING: u64 = 1_000_000;
/// Receive calls between two looks at the clock while connected; a power of two.
pub const POLLS_PER_CLOCK_READ: u32 = 64;
/// First pause of a sleeper that waits for room in a full ring, ns; it doubles up to the maximum.
/// The protocol has no wake-up for room.
pub const TX_ROOM_POLL_NS_MIN: u64 = 50_000;
/// Longest pause of a sleeper that waits for room in a full ring, ns.
pub const TX_ROOM_POLL_NS_MAX: u64 = 2_000_000;
/// Reads of the ring after wake-ups were enabled, because a peer may publish without a fence.
pub const SLEEP_LOOKS: u32 = 16;
/// Largest memory of a client whose pages are all touched at once, bytes.
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
