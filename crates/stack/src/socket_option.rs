//! Options of a connection or listener, as messages from the application to the stack.
//!
//! The option table defines the message of each row and, for options of TCP, the call that sets it.
//! Other options take effect in `requests::options`, in `flows::listeners`, or in the headers that
//! the stack writes.

use tcp::connection::{Connection, Keepalive};
use tcp::{CongestionAlgorithm, Cx, Effects, FastOpenKeys};

use crate::header_fields::{DontFragment, ECN_BITS, HeaderFields};

/// A set of time stamps requested for a byte, or one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampKinds(u8);

impl StampKinds {
    /// Time at which the byte's segment was made (`SOF_TIMESTAMPING_TX_SCHED`).
    pub const SCHEDULED: StampKinds = StampKinds(1);
    /// Time at which the segment went to the driver (`SOF_TIMESTAMPING_TX_SOFTWARE`).
    pub const SENT: StampKinds = StampKinds(2);
    /// Time at which the peer had acknowledged the byte (`SOF_TIMESTAMPING_TX_ACK`).
    pub const ACKED: StampKinds = StampKinds(4);
    /// Flag: each stamp comes with the connection's state (`SOF_TIMESTAMPING_OPT_STATS`).
    pub const STATS: StampKinds = StampKinds(8);

    /// True if all stamps of `other` are in this set.
    #[must_use]
    pub const fn contains(self, other: StampKinds) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if the set requests no stamp; the flag `STATS` does not count.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 & !Self::STATS.0 == 0
    }
}

impl std::ops::BitOr for StampKinds {
    type Output = StampKinds;

    fn bitor(self, other: StampKinds) -> StampKinds {
        StampKinds(self.0 | other.0)
    }
}

/// The result of a call that sets an option, as effects; many calls return nothing.
trait Outcome {
    fn effects(self) -> Effects;
}

impl Outcome for () {
    fn effects(self) -> Effects {
        Effects::NONE
    }
}

impl Outcome for Effects {
    fn effects(self) -> Effects {
        self
    }
}

/// Makes messages from the option table: one variant per option, and the calls for TCP's options.
macro_rules! messages {
    (
        local { $($local:tt)* }
        sent_to_stack { $(
            $(#[$doc:meta])* [$($number:tt)*] $sent:ident / $set_sent:ident: $type:ty, eg $eg:expr
            $(, valid $valid:expr)? $(, fit $fit:expr)? $(, unset $unset:expr)? $(, reads $reads:expr)?
            $(, late $late:expr)? $(, tells $tells:expr)? $(, tells_later $later:expr)?
            $(, message $(#[$mdoc:meta])* $message:ident $fields:tt
                $(, sets |$conn:ident, $cx:ident, $value:ident| $call:expr)?)?;
        )* }
        shaped { $(
            [$sname:ident = $slevel:ident $sid:literal] reads $sread:expr, writes $swrite:expr
            $(, message $(#[$sdoc:meta])* $smessage:ident $sfields:tt,
                sets |$sconn:ident, $scx:ident, $svalue:ident| $scall:expr)?;
        )* }
        of_a_write { $($(#[$wdoc:meta])* $wmessage:ident $wfields:tt;)* }
    ) => {
        /// An option of a connection or a listener, as a message to the stack.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum SocketOption {
            $($(
                #[doc = concat!("The value of millstream's `SocketOptions::", stringify!($set_sent), "`.")]
                $(#[$mdoc])* $message $fields,
            )?)*
            $($(
                #[doc = concat!("`", stringify!($sname), "` in bytes.")]
                $(#[$sdoc])* $smessage $sfields,
            )?)*
            $($(#[$wdoc])* $wmessage $wfields,)*
        }

        impl SocketOption {
            /// Sets the option if it is TCP's.
            pub(crate) fn set_in_tcp(self, conn: &mut Connection, cx: &mut Cx<'_>) -> Effects {
                match self {
                    $($($(SocketOption::$message($value) => {
                        let ($conn, $cx) = (conn, cx);
                        Outcome::effects($call)
                    })?)?)*
                    $($(SocketOption::$smessage($svalue) => {
                        let ($sconn, $scx) = (conn, cx);
                        Outcome::effects($scall)
                    })?)*
                    // Other options take effect elsewhere.
                    _ => Effects::NONE,
                }
            }
        }
    };
}
crate::socket_options!(messages);

impl SocketOption {
    /// Sets the network header field of this option for packets of a family. False: the option has
    /// none.
    pub(crate) fn sets_header(self, header: &mut HeaderFields, is_v4: bool) -> bool {
        match self {
            SocketOption::TrafficClass { v4, v6 } => {
                header.dscp = if is_v4 { v4 } else { v6 } & !ECN_BITS;
            }
            SocketOption::HopLimit { v4, v6 } => header.hop_limit = if is_v4 { v4 } else { v6 },
            SocketOption::MtuDiscover {
                dont_fragment,
                retransmits,
                heeds_v6,
            } => {
                header.set_dont_fragment(dont_fragment);
                header.retransmits_for_mtu = retransmits;
                header.heeds_mtu_v6 = heeds_v6;
            }
            _ => return false,
        }
        true
    }
}
