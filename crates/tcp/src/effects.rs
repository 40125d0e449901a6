//! Results of a call into a connection: a small set of flags that the caller acts on.

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

/// The actions that the stack must take after a call. Flags combine.
#[must_use]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Effects(u16);

impl Effects {
    /// No action is needed.
    pub const NONE: Effects = Effects(0);
    /// New bytes were published to the receive buffer.
    pub const READABLE: Effects = Effects(1);
    /// Sent bytes were acknowledged: `take_acked()` says how many leave the send buffer.
    pub const WRITABLE: Effects = Effects(1 << 1);
    /// The handshake is complete.
    pub const CONNECTED: Effects = Effects(1 << 2);
    /// The peer's FIN arrived in order: nothing follows the bytes published so far.
    pub const EOF: Effects = Effects(1 << 3);
    /// The connection failed: `error()` says why.
    pub const FAILED: Effects = Effects(1 << 4);
    /// `poll_transmit` has something to send now.
    pub const TRANSMIT: Effects = Effects(1 << 5);
    /// `deadline_ns()` must be armed: it is earlier than before the call, or a timer was consumed.
    pub const TIMER: Effects = Effects(1 << 6);
    /// TIME_WAIT was entered, or FIN_WAIT_2 by a connection without an application: `time_wait()`
    /// gives the compact entry.
    pub const TIME_WAIT: Effects = Effects(1 << 7);
    /// The connection is over; remove it. With `TRANSMIT` one last segment (a RST) must be polled
    /// first.
    pub const CLOSED: Effects = Effects(1 << 8);
    /// The peer announced urgent data: `urgent()` says where it ends.
    pub const URGENT: Effects = Effects(1 << 9);

    /// A SYN, or what followed it, was lost so often that Fast Open is suspected. The stack then
    /// pauses Fast Open (RFC 7413 7.3, Linux).
    pub const FAST_OPEN_LOST: Effects = Effects(1 << 10);

    /// Bytes wait that may not leave now. The caller calls `poll_transmit` once at the end of its
    /// turn, even if nothing can leave, so that the engine notes the limit (Linux does so in
    /// `tcp_write_xmit`).
    pub const HELD: Effects = Effects(1 << 11);

    /// Our FIN is acknowledged, and the peer's FIN has not come. Linux reports this change of state
    /// to edge-triggered waiters.
    pub const FIN_WAIT_2: Effects = Effects(1 << 12);

    /// The peer's SYN crossed ours: SYN_RECEIVED was entered (RFC 9293 3.5).
    pub const SYNS_CROSSED: Effects = Effects(1 << 13);

    const NAMES: [&'static str; 14] = [
        "READABLE",
        "WRITABLE",
        "CONNECTED",
        "EOF",
        "FAILED",
        "TRANSMIT",
        "TIMER",
        "TIME_WAIT",
        "CLOSED",
        "URGENT",
        "FAST_OPEN_LOST",
        "HELD",
        "FIN_WAIT_2",
        "SYNS_CROSSED",
    ];

    /// True if all flags of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Effects) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if any flag of `other` is set.
    #[must_use]
    pub const fn intersects(self, other: Effects) -> bool {
        self.0 & other.0 != 0
    }

    /// True if no flag is set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The flags that are not in `other`.
    pub const fn without(self, other: Effects) -> Effects {
        Effects(self.0 & !other.0)
    }

    /// The flags of both sets.
    pub const fn union(self, other: Effects) -> Effects {
        Effects(self.0 | other.0)
    }

    /// Sets the flags of `other`.
    pub fn insert(&mut self, other: Effects) {
        self.0 |= other.0;
    }

    /// The raw bits, for tables.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }
}

impl BitOr for Effects {
    type Output = Effects;
    fn bitor(self, other: Effects) -> Effects {
        Effects(self.0 | other.0)
    }
}

impl BitOrAssign for Effects {
    fn bitor_assign(&mut self, other: Effects) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Effects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (bit, name) in Self::NAMES.iter().enumerate() {
            if self.0 & (1 << bit) != 0 {
                write!(f, "{separator}{name}")?;
                separator = "|";
            }
        }
        if separator.is_empty() {
            f.write_str("NONE")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Effects;

    #[test]
    fn union_has_what_either_has_and_what_both_have() {
        let (one, other) = (
            Effects::READABLE | Effects::EOF,
            Effects::EOF | Effects::TIMER,
        );
        assert_eq!(one.union(other), one | other);
        assert_eq!(
            one.union(other),
            Effects::READABLE | Effects::EOF | Effects::TIMER
        );
    }
}
