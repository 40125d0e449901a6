//! Bounds and conversions that rows of the option table name.

use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use rustix::io::Errno;

use super::{SocketOptions, Stage, invalid};

/// The bits of a traffic class that belong to ECN (RFC 3168).
pub(super) const ECN_BITS: u8 = 3;
pub(super) const MAX_SEGMENT: RangeInclusive<u16> = 88..=32_767;
pub(super) const KEEPALIVE_S: RangeInclusive<u32> = 1..=32_767;
/// Probes of a silent peer, or retransmissions of a SYN.
pub(super) const PROBES: RangeInclusive<u8> = 1..=127;
pub(super) const FIN_WAIT_2_S_MAX: i32 = 120;
pub(super) const RTO_MAX_MS: RangeInclusive<u32> = 1_000..=120_000;
/// Range of timers whose least value is two ticks of a kernel's clock, as in Linux.
pub(super) const TIMER_US: RangeInclusive<u32> = 2_000..=200_000;
/// `TCP_SAVE_SYN` value that saves the link header as well.
pub(super) const SAVE_SYN_FROM_LINK: u8 = 2;

/// `EINVAL` unless `is_good`.
pub(super) fn within(is_good: bool) -> io::Result<()> {
    is_good.then_some(()).ok_or_else(invalid)
}

/// `EINVAL` unless the socket is in one of these stages.
pub(super) fn if_stage(options: &SocketOptions<'_>, stages: &[Stage]) -> io::Result<()> {
    within(stages.contains(&options.stage()))
}

/// An error unless the socket can still delay its SYN until the first write, and the stack allows
/// Fast Open.
pub(super) fn if_opens_fast(options: &SocketOptions<'_>) -> io::Result<()> {
    if !options.inner.tcp_config().fast_open.client {
        return Err(Errno::OPNOTSUPP.into());
    }
    if_stage(options, &[Stage::Idle])
}

pub(super) fn whole_seconds(ns: u64) -> u32 {
    (ns / tcp::SECOND_NS) as u32
}

pub(super) fn micros(ns: u64) -> u32 {
    let us = Duration::from_nanos(ns).as_micros();
    u32::try_from(us).unwrap_or(u32::MAX)
}

/// Seconds of the first wait for the answer to a SYN-ACK, and of the longest. Linux counts
/// `TCP_DEFER_ACCEPT` in such retransmissions.
const SYN_ACK_WAIT_S: (i32, i32) = (1, 120);

/// Rounds `seconds` up to the time that a whole number of SYN-ACK retransmissions takes.
pub(super) fn whole_retransmissions_s(seconds: i32) -> i32 {
    let (mut wait_s, mut sum_s) = (SYN_ACK_WAIT_S.0, 0);
    for _ in 0..u8::MAX {
        if sum_s >= seconds {
            break;
        }
        sum_s += wait_s;
        wait_s = (wait_s * 2).min(SYN_ACK_WAIT_S.1);
    }
    sum_s
}

#[test]
fn defer_accept_is_rounded_up_to_whole_retransmissions() {
    for (asked_s, kept_s) in [(0, 0), (-1, 0), (1, 1), (2, 3), (5, 7), (7, 7), (8, 15)] {
        assert_eq!(whole_retransmissions_s(asked_s), kept_s, "{asked_s} s");
    }
    // The time of 255 retransmissions, the most that Linux counts.
    assert_eq!(whole_retransmissions_s(i32::MAX), 127 + 248 * 120);
}
