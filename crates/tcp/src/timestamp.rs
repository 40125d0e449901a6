//! Comparisons of timestamps (RFC 7323): values that wrap, and what an echo says of the round trip.

use wire::tcp::Flags;

use crate::MILLISECOND_NS;
use crate::segment::Segment;

/// Our timestamp clock without the offset.
pub(crate) fn clock_ms(now_ns: u64) -> u32 {
    (now_ns / MILLISECOND_NS) as u32
}

/// Stamps of one host may be off by so much from one segment to the next (Linux's
/// `TCP_PAWS_WINDOW`).
pub(crate) const PAWS_SLACK: i32 = 1;

/// An echo as old as this, or from the future, tells nothing: so many microseconds a signed word
/// does not hold (Linux).
const ECHO_MS_MAX: u32 = i32::MAX as u32 / 1_000;

/// The round trip that an echo tells which is `elapsed_ms` old.
pub(crate) fn elapsed_ns(elapsed_ms: u32) -> Option<u64> {
    (elapsed_ms < ECHO_MS_MAX).then(|| u64::from(elapsed_ms.max(1)) * MILLISECOND_NS)
}

/// Nothing but an ACK.
pub(crate) fn is_bare_ack(seg: &Segment) -> bool {
    seg.has(Flags::ACK) && seg.seq_len() == 0
}

/// `a` is older than `b` on the timestamp circle.
pub(crate) fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
