//! Options of a connection or a listener, as the application's side sends them to the stack.
//!
//! Owns nothing. The option table makes the message of each row and, for an option that TCP obeys,
//! the call that sets it. Other options take effect in `requests::options`, in `flows::listeners`,
//! or in the headers that the stack writes.

use tcp::connection::{Connection, Keepalive};
use tcp::{CongestionAlgorithm, Cx, Effects, FastOpenKeys};

use crate::header_fields::{DontFragment, ECN_BITS, HeaderFields};

/// A set of stamps that are wanted of a byte, or one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampKinds(u8);

impl StampKinds {
    /// When its segment was made (`SOF_TIMESTAMPING_TX_SCHED`).
    pub const SCHEDULED: StampKinds = StampKinds(1);
    /// When that went to the driver (`SOF_TIMESTAMPING_TX_SOFTWARE`).
    pub const SENT: StampKinds = StampKinds(2);
    /// When the peer had acknowledged it (`SOF_TIMESTAMPING_TX_ACK`).
    pub const ACKED: StampKinds = StampKinds(4);
    /// Each stamp comes with the connection's state (`SOF_TIMESTAMPING_OPT_STATS`).
    pub const STATS: StampKinds = StampKinds(8);

    /// All of `other` is among these.
    #[must_use]
    pub const fn contains(self, other: StampKinds) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if no stamp is wanted, statistics aside.
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

/// The consequences of a call that sets an option: many have none.
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

/// Makes the messages from the option table: a variant for each, and the calls of those that TCP
/// obeys.
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
            /// Sets the option if TCP obeys it.
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
                    // Code elsewhere obeys the others.
                    _ => Effects::NONE,
                }
            }
        }
    };
}
crate::socket_options!(messages);

impl SocketOption {
    /// Sets the network header field that this option chooses. False: it chooses none.
    pub(crate) fn sets_header(self, header: &mut HeaderFields) -> bool {
        match self {
            SocketOption::TrafficClass(class) => header.dscp = class & !ECN_BITS,
            SocketOption::HopLimit(limit) => header.hop_limit = limit,
            SocketOption::MtuDiscover {
                dont_fragment,
                resends,
                heeds_v6,
            } => {
                header.set_dont_fragment(dont_fragment);
                header.resends_for_mtu = resends;
                header.heeds_mtu_v6 = heeds_v6;
            }
            _ => return false,
        }
        true
    }
}
