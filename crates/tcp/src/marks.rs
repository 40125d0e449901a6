//! The yes/no facts of a connection, packed in one word of the hot line.
//!
//! Owned by `Connection`; every step reads and sets them. [`Marks::OFF_FAST_PATH`] is what header
//! prediction tests in one comparison.

use core::ops::BitOr;

use crate::pack::Packing;

/// A set of marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(u32);

impl Marks {
    /// None of them.
    pub const NONE: Marks = Marks(0);
    /// Timestamps are in use.
    pub const TIMESTAMPS: Marks = Marks(1);
    /// Window scaling is in use.
    pub const WINDOW_SCALING: Marks = Marks(1 << 1);
    /// Selective acknowledgments are in use.
    pub const SACK: Marks = Marks(1 << 2);
    /// TCP_NODELAY
    pub const NODELAY: Marks = Marks(1 << 3);
    /// TCP_CORK
    pub const CORK: Marks = Marks(1 << 4);
    /// SO_KEEPALIVE
    pub const KEEPALIVE: Marks = Marks(1 << 5);
    /// The application has no more to send: a FIN follows the buffered bytes.
    pub const FIN_QUEUED: Marks = Marks(1 << 6);
    /// The FIN was sent; snd.nxt counts it.
    pub const FIN_SENT: Marks = Marks(1 << 7);
    /// The application is gone.
    pub const ORPHAN: Marks = Marks(1 << 8);
    /// Something arrived that no ACK of ours covers yet.
    pub const ACK_PENDING: Marks = Marks(1 << 9);
    /// An ACK must leave now.
    pub const ACK_NOW: Marks = Marks(1 << 10);
    /// A SYN or SYN-ACK must leave now.
    pub const SYN_DUE: Marks = Marks(1 << 11);
    /// A RST must leave now; the connection is closed.
    pub const RESET_DUE: Marks = Marks(1 << 12);
    /// A RST must answer one segment (its sequence number is `tx.reply_seq`); the connection lives on.
    pub const REPLY_RESET: Marks = Marks(1 << 13);
    /// A probe at snd.una - 1 must leave now.
    pub const PROBE_DUE: Marks = Marks(1 << 14);
    /// The next data segment may be smaller than sender's silly-window avoidance would let pass.
    pub const PUSH_DUE: Marks = Marks(1 << 15);
    /// A FIN arrived ahead of data; `rx.fin_seq` is its sequence number.
    pub const FIN_HELD: Marks = Marks(1 << 16);
    /// Payload or a FIN is held out of order.
    pub const OUT_OF_ORDER: Marks = Marks(1 << 17);
    /// Duplicate ACKs are counted, or loss recovery is under way.
    pub const RECOVERING: Marks = Marks(1 << 18);
    /// A segment is being timed for its round trip.
    pub const TIMING: Marks = Marks(1 << 19);
    /// Header prediction is off (tests compare both ways).
    pub const NO_PREDICTION: Marks = Marks(1 << 21);
    /// The retransmission deadline is the persist timer.
    pub const PERSIST: Marks = Marks(1 << 23);
    /// Urgent data was announced; `rx.urgent_end` says where it ends.
    pub const URGENT: Marks = Marks(1 << 24);

    /// The connection was made of a SYN with a good cookie (RFC 7413), and our SYN-ACK is not acknowledged yet.
    pub const FAST_OPENED: Marks = Marks(1 << 25);
    /// Payload of a SYN was acknowledged in the SYN-ACK: ours by the peer, or the peer's by us.
    pub const SYN_DATA_ACKED: Marks = Marks(1 << 26);
    /// `rx.duplicate` is to be reported by the next ACK (RFC 2883).
    pub const DSACK: Marks = Marks(1 << 20);
    /// Data in order found no memory: the next ACK shuts the window.
    pub const NO_MEMORY: Marks = Marks(1 << 22);
    /// The last write said that more follows (MSG_MORE).
    pub const MORE: Marks = Marks(1 << 27);
    /// The end of the send buffer is the end of a message: PSH goes with it.
    pub const PUSH_AT_END: Marks = Marks(1 << 28);
    /// The application said something of places in the send stream: `cold.record_ends`, where segments must end (MSG_EOR), or `cold.urgent_out` (MSG_OOB).
    pub const RECORDS: Marks = Marks(1 << 29);

    /// A router said that the path takes less than the link; its word ages.
    pub const PATH_NARROWED: Marks = Marks(1 << 31);
    /// The path is searched for its MTU (RFC 4821).
    pub const PATH_PROBING: Marks = Marks(1 << 30);

    /// Any of these sends a segment down the numbered steps.
    pub const OFF_FAST_PATH: Marks = Marks(
        Self::OUT_OF_ORDER.0
            | Self::RECOVERING.0
            | Self::URGENT.0
            | Self::NO_PREDICTION.0
            | Self::FAST_OPENED.0,
    );

    /// With any of these an ACK says more than how far the text has come.
    pub const ACK_TELLS_MORE: Marks = Marks(Self::OUT_OF_ORDER.0 | Self::DSACK.0);

    /// Any of these needs the full plan for what to send.
    pub const SEND_NOW: Marks = Marks(
        Self::ACK_NOW.0
            | Self::SYN_DUE.0
            | Self::RESET_DUE.0
            | Self::REPLY_RESET.0
            | Self::PROBE_DUE.0
            | Self::RECOVERING.0,
    );

    /// These and `more`.
    pub const fn with(self, more: Marks) -> Marks {
        Marks(self.0 | more.0)
    }

    /// Of `marks`, those that are set.
    #[inline]
    pub const fn of(self, marks: Marks) -> Marks {
        Marks(self.0 & marks.0)
    }

    /// All of `marks` are set.
    #[inline]
    pub const fn has(self, marks: Marks) -> bool {
        self.0 & marks.0 == marks.0
    }

    /// At least one of `marks` is set.
    #[inline]
    pub const fn any(self, marks: Marks) -> bool {
        self.0 & marks.0 != 0
    }

    /// Sets `marks`.
    #[inline]
    pub fn set(&mut self, marks: Marks) {
        self.0 |= marks.0;
    }

    /// Clears `marks`.
    #[inline]
    pub fn clear(&mut self, marks: Marks) {
        self.0 &= !marks.0;
    }

    /// Timestamps, window scaling and SACK are what most peers agree on.
    pub fn pack(&mut self, p: &mut impl Packing) {
        let usual = Self::TIMESTAMPS | Self::WINDOW_SCALING | Self::SACK;
        p.u32(&mut self.0, usual.0);
    }

    /// Sets or clears `marks`.
    #[inline]
    pub fn put(&mut self, marks: Marks, on: bool) {
        if on {
            self.set(marks)
        } else {
            self.clear(marks)
        }
    }
}

impl BitOr for Marks {
    type Output = Marks;
    fn bitor(self, other: Marks) -> Marks {
        Marks(self.0 | other.0)
    }
}

/// Every mark, once: no two share a bit.
const ALL: &[Marks] = &[
    Marks::TIMESTAMPS,
    Marks::WINDOW_SCALING,
    Marks::SACK,
    Marks::NODELAY,
    Marks::CORK,
    Marks::KEEPALIVE,
    Marks::FIN_QUEUED,
    Marks::FIN_SENT,
    Marks::ORPHAN,
    Marks::ACK_PENDING,
    Marks::ACK_NOW,
    Marks::SYN_DUE,
    Marks::RESET_DUE,
    Marks::REPLY_RESET,
    Marks::PROBE_DUE,
    Marks::PUSH_DUE,
    Marks::FIN_HELD,
    Marks::OUT_OF_ORDER,
    Marks::RECOVERING,
    Marks::TIMING,
    Marks::NO_PREDICTION,
    Marks::PERSIST,
    Marks::URGENT,
    Marks::FAST_OPENED,
    Marks::SYN_DATA_ACKED,
    Marks::DSACK,
    Marks::NO_MEMORY,
    Marks::MORE,
    Marks::PUSH_AT_END,
    Marks::RECORDS,
    Marks::PATH_NARROWED,
    Marks::PATH_PROBING,
];

const _: () = {
    let mut seen = 0u32;
    let mut at = 0;
    while at < ALL.len() {
        assert!(ALL[at].0.count_ones() == 1 && seen & ALL[at].0 == 0);
        seen |= ALL[at].0;
        at += 1;
    }
};
