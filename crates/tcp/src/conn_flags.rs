//! The yes/no facts of a connection, packed in one word of the hot line.
//!
//! `Connection` owns the flags; every step reads and sets them. One table declares them and says,
//! for each shortcut, whether a flag sends the segment the general way. Each guard is a column of
//! the table, so a new flag compiles only once its row answers for every shortcut.

use core::ops::BitOr;

use crate::limits::timestamp_bytes;
use crate::pack::Packing;
use crate::plan::Plan;
use crate::state::State;

/// A set of flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnFlags(u32);

/// Declares one row: the flag, its bit, and, for each shortcut in the order of [`Stops`], whether
/// the flag stops it.
macro_rules! conn_flags {
    ($($(#[$doc:meta])* $name:ident = $bit:literal: $prediction:ident $whole_flight:ident
        $short_plan:ident $lone:ident $burst_tail:ident $plain_ack:ident;)*) => {
        impl ConnFlags {
            $($(#[$doc])* pub const $name: ConnFlags = ConnFlags(1 << $bit);)*
        }

        /// Every flag with its column entries.
        const TABLE: &[(ConnFlags, Stops)] = &[$((ConnFlags::$name, Stops {
            prediction: $prediction,
            whole_flight: $whole_flight,
            short_plan: $short_plan,
            lone: $lone,
            burst_tail: $burst_tail,
            plain_ack: $plain_ack,
        })),*];
    };
}

/// The shortcuts that a flag stops.
struct Stops {
    /// `segment_arrives::prediction`: one segment, or a sequel of a run.
    prediction: bool,
    /// `recovery::whole_flight`: the ACK of everything in flight.
    whole_flight: bool,
    /// `output::next`: the plan when nothing waits to be sent, which follows from these flags
    /// alone.
    short_plan: bool,
    /// `output::lone`: one segment that carries all waiting data.
    lone: bool,
    /// `output::burst_tail`: full segments behind the first of a burst.
    burst_tail: bool,
    /// `output::plain_ack`: an ACK that reports only how far the text has arrived.
    plain_ack: bool,
}

/// Entry of a flag that sends the segment the general way.
#[allow(non_upper_case_globals, reason = "a word in the table")]
const stops: bool = true;
/// Entry of a flag that has no effect on the shortcut.
#[allow(non_upper_case_globals, reason = "a word in the table")]
const passes: bool = false;

//                       columns: prediction whole_flight short_plan lone burst_tail plain_ack
conn_flags! {
    /// Timestamps are in use.
    TIMESTAMPS = 0: passes passes passes passes passes passes;
    /// Window scaling is in use.
    WINDOW_SCALING = 1: passes passes passes passes passes passes;
    /// Selective acknowledgments are in use.
    SACK = 2: passes passes passes passes passes passes;
    /// TCP_NODELAY is set.
    NODELAY = 3: passes passes passes passes passes passes;
    /// TCP_CORK is set.
    CORK = 4: passes passes passes stops passes passes;
    /// SO_KEEPALIVE is set.
    KEEPALIVE = 5: passes passes passes passes passes passes;
    /// The application has no more to send: a FIN follows the buffered bytes.
    FIN_QUEUED = 6: passes passes passes passes passes passes;
    /// The FIN was sent; `snd.nxt()` counts it.
    FIN_SENT = 7: passes passes passes stops passes passes;
    /// The application is gone.
    ORPHAN = 8: passes passes passes passes passes passes;
    /// Text arrived that no ACK of ours covers yet.
    ACK_PENDING = 9: passes passes passes passes passes passes;
    /// An ACK must leave now.
    ACK_NOW = 10: passes passes stops passes stops passes;
    /// A SYN or SYN-ACK must leave now.
    SYN_DUE = 11: passes passes stops stops stops passes;
    /// A RST must leave now; the connection is closed.
    RESET_DUE = 12: passes passes stops stops stops passes;
    /// A RST must answer one segment (its sequence number is `Sender::reply_seq`); the connection
    /// goes on.
    REPLY_RESET = 13: passes passes stops stops stops passes;
    /// A probe at snd.una() - 1 must leave now.
    PROBE_DUE = 14: passes passes stops stops stops passes;
    /// The next data segment may be smaller than the sender's silly-window avoidance would allow.
    PUSH_DUE = 15: passes passes passes stops passes passes;
    /// A FIN arrived ahead of data; `Receiver::fin_seq` is its sequence number.
    FIN_HELD = 16: passes passes passes passes passes passes;
    /// Payload or a FIN is held out of order.
    OUT_OF_ORDER = 17: stops passes passes stops stops stops;
    /// Duplicate ACKs are counted, or loss recovery is in progress.
    RECOVERING = 18: stops stops stops stops stops passes;
    /// A segment is being timed for its round trip.
    TIMING = 19: passes passes passes passes passes passes;
    /// `Receiver::duplicate` is to be reported by the next ACK (RFC 2883).
    DSACK = 20: passes passes passes stops stops stops;
    /// Data in order found no memory, so the next ACK shuts the window.
    NO_MEMORY = 22: passes passes passes stops stops passes;
    /// The retransmission deadline belongs to the persist timer.
    PERSIST = 23: passes passes passes stops stops passes;
    /// Urgent data was announced; `Receiver::urgent_end` says where it ends.
    URGENT = 24: stops passes passes passes passes passes;
    /// A SYN with a good cookie made the connection (RFC 7413), and our SYN-ACK is not acknowledged
    /// yet.
    FAST_OPENED = 25: stops stops passes stops passes passes;
    /// The SYN-ACK acknowledged payload of the SYN, on either side.
    SYN_DATA_ACKED = 26: passes passes passes passes passes passes;
    /// The last write said that more follows (MSG_MORE).
    MORE = 27: passes passes passes stops passes passes;
    /// The end of the send buffer is the end of a message, so its segment carries PSH.
    PUSH_AT_END = 28: passes passes passes passes passes passes;
    /// The application marked places in the send stream: `Sender::record_ends`, where segments must
    /// end (MSG_EOR), or `Sender::urgent_out` (MSG_OOB).
    RECORDS = 29: passes passes passes stops stops stops;
    /// The path is being searched for its MTU (RFC 4821).
    PATH_PROBING = 30: passes passes passes stops stops passes;
    /// A router reported an MTU below the link's, and the report is not outdated yet.
    PATH_NARROWED = 31: passes passes passes stops passes passes;
}

/// The set of flags whose row has `true` in a column.
macro_rules! column {
    ($column:ident) => {{
        let (mut set, mut at) = (0, 0);
        while at < TABLE.len() {
            if TABLE[at].1.$column {
                set |= TABLE[at].0.0;
            }
            at += 1;
        }
        ConnFlags(set)
    }};
}

impl ConnFlags {
    /// The empty set.
    pub const NONE: ConnFlags = ConnFlags(0);
    /// Flag of the twin, with which tests compare: it sends every segment the general way. Without
    /// the feature no connection has such a flag.
    #[cfg(feature = "twin")]
    pub const NO_SHORTCUTS: ConnFlags = ConnFlags(1 << 21);
    /// The empty set; only builds with the feature `twin` have the flag.
    #[cfg(not(feature = "twin"))]
    pub const NO_SHORTCUTS: ConnFlags = ConnFlags::NONE;

    /// Flags with which a segment goes through the numbered steps.
    pub const STOPS_PREDICTION: ConnFlags = column!(prediction).with(Self::NO_SHORTCUTS);
    /// Flags with which loss recovery examines an ACK of the whole flight.
    pub const STOPS_WHOLE_FLIGHT: ConnFlags = column!(whole_flight).with(Self::NO_SHORTCUTS);
    /// Flags that need the full plan for the next segment.
    pub const NEEDS_FULL_PLAN: ConnFlags = column!(short_plan);
    /// Flags that hold the next segment back or change its form.
    pub const STOPS_LONE: ConnFlags = column!(lone).with(Self::NO_SHORTCUTS);
    /// Flags with which the segments of a burst leave one by one.
    pub const STOPS_BURST_TAIL: ConnFlags = column!(burst_tail);
    /// Flags with which an ACK of a run is built like any segment.
    pub const STOPS_PLAIN_ACK: ConnFlags = column!(plain_ack);

    /// Flags with which an ACK reports more than the end of the received text.
    pub const ACK_TELLS_MORE: ConnFlags = ConnFlags(Self::OUT_OF_ORDER.0 | Self::DSACK.0);

    /// The union of these flags and `more`.
    pub const fn with(self, more: ConnFlags) -> ConnFlags {
        ConnFlags(self.0 | more.0)
    }

    /// The subset of `flags` that is set.
    #[inline]
    pub const fn of(self, flags: ConnFlags) -> ConnFlags {
        ConnFlags(self.0 & flags.0)
    }

    /// True if all of `flags` are set.
    #[inline]
    pub const fn has(self, flags: ConnFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// True if at least one of `flags` is set.
    #[inline]
    pub const fn any(self, flags: ConnFlags) -> bool {
        self.0 & flags.0 != 0
    }

    /// Sets `flags`.
    #[inline]
    pub fn set(&mut self, flags: ConnFlags) {
        self.0 |= flags.0;
    }

    /// Clears `flags`.
    #[inline]
    pub fn clear(&mut self, flags: ConnFlags) {
        self.0 &= !flags.0;
    }

    /// Packs the flags. Timestamps, window scaling and SACK are usual, because most peers use them.
    pub fn pack(&mut self, p: &mut impl Packing) {
        let usual = Self::TIMESTAMPS | Self::WINDOW_SCALING | Self::SACK;
        p.u32(&mut self.0, usual.0);
    }

    /// Sets or clears `flags`.
    #[inline]
    pub fn put(&mut self, flags: ConnFlags, on: bool) {
        if on {
            self.set(flags)
        } else {
            self.clear(flags)
        }
    }
}

impl BitOr for ConnFlags {
    type Output = ConnFlags;
    fn bitor(self, other: ConnFlags) -> ConnFlags {
        ConnFlags(self.0 | other.0)
    }
}

/// No two flags share a bit.
const _: () = {
    let mut seen = 0u32;
    let mut at = 0;
    while at < TABLE.len() {
        assert!(TABLE[at].0.0.count_ones() == 1 && seen & TABLE[at].0.0 == 0);
        seen |= TABLE[at].0.0;
        at += 1;
    }
};

impl ConnFlags {
    /// True if data may leave, by the state or because a good cookie made the connection.
    #[inline]
    pub(crate) fn may_send_data(self, state: State) -> bool {
        state.sends_data() || (state == State::SynReceived && self.has(ConnFlags::FAST_OPENED))
    }

    /// True if a FIN is queued and was never sent.
    #[inline]
    pub(crate) fn fin_unsent(self) -> bool {
        self.has(ConnFlags::FIN_QUEUED) && !self.has(ConnFlags::FIN_SENT)
    }

    /// True for data that the persist timer sends into a nearly shut window, which carries PSH
    /// (Linux).
    #[inline]
    pub(crate) fn is_pushed_probe(self) -> bool {
        self.has(ConnFlags::PERSIST | ConnFlags::PUSH_DUE)
    }

    pub(crate) fn plan_control(self) -> Option<Plan> {
        if self.has(ConnFlags::RESET_DUE) {
            Some(Plan::Reset)
        } else if self.has(ConnFlags::REPLY_RESET) {
            Some(Plan::ReplyReset)
        } else if self.has(ConnFlags::SYN_DUE) {
            Some(Plan::Syn)
        } else {
            None
        }
    }

    pub(crate) fn option_bytes(self) -> u16 {
        timestamp_bytes(self.has(ConnFlags::TIMESTAMPS))
    }

    /// True if the peer does not SACK, so that duplicate ACKs are counted instead.
    #[inline]
    pub(crate) fn is_reno(self) -> bool {
        !self.has(ConnFlags::SACK)
    }

    /// True if the slow timer belongs to keep-alive.
    pub(crate) fn keeps_alive(self, state: State) -> bool {
        self.has(ConnFlags::KEEPALIVE)
            && match state {
                State::Established | State::CloseWait | State::FinWait1 => true,
                State::FinWait2 => !self.has(ConnFlags::ORPHAN),
                _ => false,
            }
    }
}
