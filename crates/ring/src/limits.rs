//! Every limit of the crate, by name.

/// Sockets that one context's memory file can hold at most: an index must leave bits free in the
/// 32-bit words that carry it.
pub const SOCKETS_MAX: u32 = 1 << 26;

/// Chunks of one class that a memory file can hold at most: in a chunk id the top bit is the class,
/// and zero means "none".
pub const CHUNKS_MAX: u32 = (1 << 31) - 2;

/// Bytes from the published tail to which an out-of-order write may reach: the
/// largest window of TCP (RFC 7323 section 2.3), 1 GiB.
pub const REACH_BYTES_MAX: u32 = 1 << 30;

/// Slots of a queue at most, so that 32-bit positions stay unambiguous.
pub const QUEUE_SLOTS_MAX: u32 = 1 << 30;

/// Bytes waiting in a stream from which on new chunks are large, whatever the size of the write: a
/// stream this full is not a request or its response.
pub const SMALL_CHUNK_STREAM_BYTES_MAX: u32 = 2 * crate::chunk_format::SMALL_DATA_BYTES;

/// Bytes of a piece of a send stream from which on the next piece is prefetched while this one is
/// copied.
pub const AHEAD_BYTES_MIN: u32 = 512;

/// Items that a rarely used stock keeps ready, if its queue holds as many.
pub const STOCK_LEVEL_MIN: usize = 64;

/// Free chunks of each class that stay ready for use: those used last. Their pages are never
/// returned to the system.
pub const READY_CHUNKS_KEPT: usize = 256;

/// Pages of 4 KiB that one step of a round returns to the system, at most. The kernel takes 1 µs
/// for each, or 4 µs if its neighbours stay (measured on a busy virtual machine).
pub const ROUND_PAGES_PER_STEP: u32 = 32;

/// Units of whole pages that one step of a round examines, at most.
pub const ROUND_UNITS_PER_STEP: u32 = 4_096;

/// Chunks that one step of a round moves to `resting`, at most.
pub const ROUND_SORTED_PER_STEP: u32 = 4_096;

const _: () = assert!(SOCKETS_MAX.is_power_of_two() && QUEUE_SLOTS_MAX.is_power_of_two());

/// Bytes of a frame that a frame log keeps at most; the remainder is cut off.
pub const LOG_FRAME_BYTES_MAX: usize = 0xffff;
/// Words for records in the largest frame log. A larger one is refused (`INVAL`).
pub const LOG_RECORD_WORDS_MAX: usize = 1 << 24;
/// Drop reasons that a frame log names. Further reasons have no name.
pub const LOG_REASONS_MAX: usize = 64;
/// Bytes of a drop reason's name in a frame log. A longer one is cut.
pub const LOG_REASON_BYTES: usize = 32;
