//! Timestamp arithmetic (RFC 7323): comparison of values that wrap, and the round trip that an echo
//! gives.

use wire::tcp::Flags;

use crate::MILLISECOND_NS;
use crate::segment::Segment;

/// Our timestamp clock, in milliseconds without the offset.
pub(crate) fn clock_ms(now_ns: u64) -> u32 {
    (now_ns / MILLISECOND_NS) as u32
}

/// Difference by which timestamps of one host may go back from one segment to the next (Linux's
/// `TCP_PAWS_WINDOW`).
pub(crate) const PAWS_SLACK: i32 = 1;

/// Age from which on an echo gives no round trip, because a signed 32-bit word does not hold its
/// microseconds (Linux). Echoes from the future count as older.
const ECHO_MS_MAX: u32 = i32::MAX as u32 / 1_000;

/// The round trip of an echo that is `elapsed_ms` old.
pub(crate) fn elapsed_ns(elapsed_ms: u32) -> Option<u64> {
    (elapsed_ms < ECHO_MS_MAX).then(|| u64::from(elapsed_ms.max(1)) * MILLISECOND_NS)
}

/// True for a segment that is nothing but an ACK.
pub(crate) fn is_bare_ack(seg: &Segment) -> bool {
    seg.has(Flags::ACK) && seg.seq_len() == 0
}

/// True if `a` is older than `b` on the circle of timestamps.
pub(crate) fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
