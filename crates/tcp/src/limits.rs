//! Every fixed limit of the crate, and the relations between them.

/// Time between the RST that clears an old connection and the next SYN: two ticks of a Linux kernel
/// with 1000 Hz.
pub const SYN_AGAIN_NS: u64 = 2 * crate::MILLISECOND_NS;

/// Largest window scale; a larger offer counts as this one (RFC 7323 2.3).
pub const WINDOW_SHIFT_MAX: u8 = 14;
/// Smallest send MSS accepted from a peer, bytes: the remainder of the smallest IPv4 MTU, as in
/// Linux.
pub const SEND_MSS_MIN: u16 = 48;
/// Out-of-order ranges in one block of the stack's [`RangePool`](crate::RangePool).
pub const RANGE_BLOCK_RANGES: usize = 25;
/// Blocks of out-of-order ranges that one connection may hold. At the limit, or when the pool is
/// empty, the range furthest from RCV.NXT is dropped (`bytes_drop_ranges_full`), and the peer sends
/// it again.
pub const RANGE_BLOCKS_EACH_MAX: usize = 32;
/// Ranges that a SACK option can report (RFC 2018 section 3).
pub const SACK_BLOCKS_MAX: usize = 4;
/// Largest congestion window in bytes, so that sums of windows fit 32 bits.
pub const CWND_MAX: u32 = 1 << 30;
/// Largest congestion window in segments: a gigabyte of the smallest segments that real paths have.
pub const CWND_SEGMENTS_MAX: u32 = 1 << 22;
/// Least slow-start threshold that an algorithm from outside may set (RFC 5681 section 3.1,
/// equation 4).
pub const SSTHRESH_SEGMENTS_MIN: u32 = 2;
/// Least pacing rate that an algorithm from outside may set, in bytes per second: at this rate the
/// longest burst waits a second. For slower senders there are the window and SO_MAX_PACING_RATE.
pub const OUTSIDE_PACING_RATE_MIN: u64 = BURST_BYTES_MAX;
/// Congestion controls from outside that a stack can know. Further ones are refused
/// ([`RegisterError::TooMany`](crate::congestion_control::RegisterError::TooMany)).
pub const OUTSIDE_ALGORITHMS_MAX: usize = 8;
/// Bytes of the longest name of a congestion control: Linux's `TCP_CA_NAME_MAX` without the
/// terminating 0.
pub const ALGORITHM_NAME_BYTES_MAX: usize = 15;
/// Recoveries for which a reordering window stays widened after a D-SACK (RFC 8985 6.2,
/// RACK.reo_wnd_persist).
pub const RACK_RECOVERIES_MAX: u8 = 16;
/// Time added to the timers of RACK and of loss probes: two of Linux's milliseconds.
pub const TIMER_SLACK_NS: u64 = 2 * crate::MILLISECOND_NS;
/// Bytes of the longest burst that leaves back to back: the largest packet that Linux hands to a
/// device.
pub const BURST_BYTES_MAX: u64 = 65_536;
/// Largest receive window that can be advertised, bytes.
pub const RECV_WINDOW_MAX: u32 = (u16::MAX as u32) << WINDOW_SHIFT_MAX;
/// Bytes of a timestamp option with its two NOPs, as data segments carry it.
pub const TIMESTAMP_OPTION_LEN: u16 = 12;
/// Bytes that the timestamp option takes from every segment.
#[must_use]
pub const fn timestamp_bytes(timestamps: bool) -> u16 {
    if timestamps { TIMESTAMP_OPTION_LEN } else { 0 }
}

/// Longest wait of a compact entry in FIN_WAIT_2. The connection itself first waits for the time
/// beyond it (Linux's `TCP_TIMEWAIT_LEN`, which has no setting either).
pub const FIN_WAIT_2_ENTRY_NS_MAX: u64 = 60 * crate::SECOND_NS;
/// Age of TS.Recent beyond which PAWS does not apply to a RST: 60 s (Linux), in [`coarse`] units.
pub const TS_RECENT_AGE_MAX_OF_RESET: u32 = ((60 * crate::SECOND_NS) >> COARSE_SHIFT) as u32;
/// Age of TS.Recent beyond which PAWS no longer trusts it: 24 days (RFC 7323 5.5), in [`coarse`]
/// units.
pub const TS_RECENT_AGE_MAX: u32 = ((24 * 86_400 * crate::SECOND_NS) >> COARSE_SHIFT) as u32;
/// Shift from nanoseconds to coarse time, whose unit is 2^30 ns, about a second. Coarse time wraps
/// after 146 years.
pub const COARSE_SHIFT: u32 = 30;

/// Coarse time for ages that need no precision.
#[must_use]
pub const fn coarse(now_ns: u64) -> u32 {
    (now_ns >> COARSE_SHIFT) as u32
}

const _: () = assert!(RECV_WINDOW_MAX <= CWND_MAX);
const _: () = assert!(SEND_MSS_MIN > TIMESTAMP_OPTION_LEN);

/// Ends of records (MSG_EOR) that a connection keeps. Further ones are forgotten.
pub const RECORD_ENDS_MAX: usize = 11;
