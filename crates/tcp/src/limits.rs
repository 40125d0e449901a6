//! Every fixed limit of the crate, in one place, with the relations between them.

/// Time between the RST that clears an old connection and the next SYN (two ticks of a kernel of
/// 1000 Hz).
pub const SYN_AGAIN_NS: u64 = 2 * crate::MILLISECOND_NS;

/// Largest window scale that may be used; an offer above it means this (RFC 7323 2.3).
pub const WINDOW_SHIFT_MAX: u8 = 14;
/// Smallest send MSS accepted from a peer: what remains of the least IPv4 MTU, as in Linux.
pub const SEND_MSS_MIN: u16 = 48;
/// Out-of-order ranges in one block of the stack's [`RangePool`](crate::RangePool).
pub const RANGE_BLOCK_RANGES: usize = 25;
/// Blocks of out-of-order ranges that one connection may hold. At the limit, or when the pool is
/// empty, the range furthest from RCV.NXT is dropped (`bytes_drop_ranges_full`), and the peer sends
/// it again.
pub const RANGE_BLOCKS_EACH_MAX: usize = 32;
/// Ranges that a SACK option can report (RFC 2018 section 3).
pub const SACK_BLOCKS_MAX: usize = 4;
/// Largest congestion window in bytes: keeps sums of windows within 32 bits.
pub const CWND_MAX: u32 = 1 << 30;
/// Largest congestion window in segments: a gigabyte of the smallest ones that paths really have.
pub const CWND_SEGMENTS_MAX: u32 = 1 << 22;
/// Least slow-start threshold that an algorithm from outside may set (RFC 5681 section 3.1,
/// equation 4).
pub const SSTHRESH_SEGMENTS_MIN: u32 = 2;
/// Least pacing rate that an algorithm from outside may set, in bytes per second: the longest burst
/// waits a second. Slower senders are for the window, or for SO_MAX_PACING_RATE.
pub const OUTSIDE_PACING_RATE_MIN: u64 = BURST_BYTES_MAX;
/// Congestion controls from outside that a stack knows; more are refused
/// ([`RegisterError::TooMany`](crate::congestion_control::RegisterError::TooMany)).
pub const OUTSIDE_ALGORITHMS_MAX: usize = 8;
/// Longest name of a congestion control: Linux's `TCP_CA_NAME_MAX` with the 0 that ends it.
pub const ALGORITHM_NAME_BYTES_MAX: usize = 15;
/// Recoveries for which a reordering window that D-SACKs have widened holds (RFC 8985 6.2,
/// RACK.reo_wnd_persist).
pub const RACK_RECOVERIES_MAX: u8 = 16;
/// Added to the timers of RACK and of loss probes: two of Linux's milliseconds.
pub const TIMER_SLACK_NS: u64 = 2 * crate::MILLISECOND_NS;
/// Bytes of the longest burst that leaves back to back: the largest packet that Linux hands to a
/// device.
pub const BURST_BYTES_MAX: u64 = 65_536;
/// Largest receive window that can be advertised.
pub const RECV_WINDOW_MAX: u32 = (u16::MAX as u32) << WINDOW_SHIFT_MAX;
/// Bytes of a timestamp option with its two NOPs, as data segments carry it.
pub const TIMESTAMP_OPTION_LEN: u16 = 12;
/// Bytes that the timestamp option takes of every segment.
#[must_use]
pub const fn timestamp_bytes(timestamps: bool) -> u16 {
    if timestamps { TIMESTAMP_OPTION_LEN } else { 0 }
}

/// Longest wait of a compact entry in FIN_WAIT_2. The connection itself waits for the time beyond
/// it first (Linux's `TCP_TIMEWAIT_LEN`, which has no setting either).
pub const FIN_WAIT_2_ENTRY_NS_MAX: u64 = 60 * crate::SECOND_NS;
/// Age of TS.Recent beyond which a RST is not put to PAWS: 60 s (Linux), in [`coarse`] units.
pub const TS_RECENT_AGE_MAX_OF_RESET: u32 = ((60 * crate::SECOND_NS) >> COARSE_SHIFT) as u32;
/// Age of TS.Recent beyond which PAWS no longer trusts it: 24 days (RFC 7323 5.5), in [`coarse`]
/// units.
pub const TS_RECENT_AGE_MAX: u32 = ((24 * 86_400 * crate::SECOND_NS) >> COARSE_SHIFT) as u32;
/// Nanoseconds to coarse time: units of 2^30 ns, about a second, which wrap after 146 years.
pub const COARSE_SHIFT: u32 = 30;

/// Coarse time for ages that need no precision.
#[must_use]
pub const fn coarse(now_ns: u64) -> u32 {
    (now_ns >> COARSE_SHIFT) as u32
}

const _: () = assert!(RECV_WINDOW_MAX <= CWND_MAX);
const _: () = assert!(SEND_MSS_MIN > TIMESTAMP_OPTION_LEN);

/// Ends of records (MSG_EOR) that a connection keeps; beyond it the newest is forgotten.
pub const RECORD_ENDS_MAX: usize = 11;
