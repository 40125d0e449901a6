//! Options of a connection or a listener, as the application's side sends them to the stack.
//!
//! Owns nothing. One table makes of each row the message and, for an option that TCP obeys, the
//! call that sets it. So an option of TCP takes one row here, next to its row in `millstream`'s
//! `option_table`, and the code in `tcp` that obeys it. Other options take effect in
//! `requests::options`, in `flows::listeners`, or in the headers that the stack writes.

use tcp::connection::{Connection, Keepalive};
use tcp::{Cx, Effects};

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

/// Rows: in `tcp` the option, its value, and the call on the connection; in `others` the option.
macro_rules! socket_options {
    (
        tcp {
            $($(#[$doc:meta])* $name:ident($value:ident: $type:ty): |$conn:ident, $cx:ident| $call:expr;)*
        }
        others {
            $($(#[$other_doc:meta])* $other:ident $fields:tt;)*
        }
    ) => {
        /// An option of a connection or a listener.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum SocketOption {
            $($(#[$doc])* $name($type),)*
            $($(#[$other_doc])* $other $fields,)*
        }

        impl SocketOption {
            /// Sets the option if TCP obeys it.
            pub(crate) fn set_in_tcp(self, conn: &mut Connection, cx: &mut Cx<'_>) -> Effects {
                match self {
                    $(SocketOption::$name($value) => {
                        let ($conn, $cx) = (conn, cx);
                        Outcome::effects($call)
                    })*
                    $(SocketOption::$other { .. })|* => Effects::NONE,
                }
            }
        }
    };
}

socket_options! {
    tcp {
        /// `TCP_NODELAY`.
        NoDelay(on: bool): |conn, cx| conn.set_nodelay(cx, on);
        /// `TCP_CORK`.
        Cork(on: bool): |conn, cx| conn.set_cork(cx, on);
        /// `SO_SNDBUF`: the send buffer gets twice these bytes, and grows by itself no more.
        SendBuffer(bytes: u32): |conn, cx| conn.set_send_buffer(cx, bytes);
        /// `SO_RCVBUF`: the receive buffer, likewise.
        RecvBuffer(bytes: u32): |conn, cx| conn.set_recv_buffer(cx, bytes);
        /// `TCP_NOTSENT_LOWAT`: writable when fewer bytes are unsent; 0: the stack's.
        NotSentLowat(bytes: u32): |conn, _cx| conn.set_notsent_lowat(bytes);
        /// `TCP_QUICKACK`: acknowledge at once, or wait for answers to ride on; neither lasts.
        QuickAck(on: bool): |conn, cx| conn.set_quick_ack(cx, on);
        /// `SO_KEEPALIVE` with its three times: idle and interval in ns, number of probes. `None`:
        /// off.
        KeepAlive(times: Option<Keepalive>): |conn, cx| conn.set_keepalive(cx, times);
        /// `TCP_KEEPIDLE`: the same, and the silence so far counts.
        KeepAliveIdle(times: Option<Keepalive>): |conn, cx| conn.set_keepalive_idle(cx, times);
        /// `SO_MAX_PACING_RATE` in bytes per second.
        MaxPacingRate(rate: u64): |conn, cx| conn.set_max_pacing_rate(cx, rate);
        /// `TCP_CONGESTION`.
        Congestion(choice: tcp::CongestionAlgorithm): |conn, cx| conn.set_congestion(cx, choice);
        /// `TCP_USER_TIMEOUT` in ns; 0: the default rule of retries.
        UserTimeout(ns: u64): |conn, _cx| conn.set_user_timeout(ns);
        /// `TCP_MAXSEG`: segments no larger than this, announced too if set before the SYN.
        MaxSegment(bytes: u16): |conn, cx| conn.set_max_segment(cx, bytes);
        /// `TCP_WINDOW_CLAMP`: the most that is advertised; 0: no bound.
        WindowClamp(bytes: u32): |conn, _cx| conn.set_window_clamp(bytes);
        /// `TCP_SYNCNT`: retransmissions of the SYN.
        SynRetries(retries: u8): |conn, _cx| conn.set_syn_retries(retries);
        /// `TCP_LINGER2`: FIN_WAIT_2 of a closed connection in ns; `None`: do not wait for the
        /// peer's FIN at all.
        FinWait2(wait_ns: Option<u64>): |conn, _cx| conn.set_fin_wait_2(wait_ns);
        /// `TCP_RTO_MAX_MS`: the longest retransmission timeout; 0: the stack's.
        RtoMax(ms: u32): |conn, _cx| conn.set_rto_max_ms(ms);
        /// `TCP_RTO_MIN_US`: the shortest; 0: the stack's.
        RtoMin(us: u32): |conn, _cx| conn.set_rto_min_us(us);
        /// `TCP_DELACK_MAX_US`: the longest that an ACK is held back; 0: the stack's.
        DelayedAckMax(us: u32): |conn, _cx| conn.set_delayed_ack_max_us(us);
        /// `TCP_THIN_LINEAR_TIMEOUTS`
        ThinLinearTimeouts(on: bool): |conn, _cx| conn.set_thin_linear_timeouts(on);
    }
    others {
        /// `MSG_EOR`: the data up to this position of the writer is a record, and no segment
        /// crosses its end.
        EndOfRecord(u32);
        /// `MSG_OOB`: the byte before this position of the writer's is urgent.
        Urgent(u32);
        /// `SO_TIMESTAMPING`: stamps are wanted of the byte before this position of the writer's.
        StampSent(u32, StampKinds);
        /// `SO_TIMESTAMPING`: it is to be remembered when bytes arrived.
        StampArrivals(bool);
        /// `IP_RECVERR`, `IPV6_RECVERR`: the next call fails with an ICMP error about a live
        /// connection.
        ReceiveErrors {
            /// `IP_RECVERR`.
            v4: bool,
            /// `IPV6_RECVERR`.
            v6: bool,
        };
        /// `IP_TOS`, `IPV6_TCLASS`: the DSCP of sent packets, in the upper six bits; ECN's two
        /// belong to TCP.
        TrafficClass(u8);
        /// `IP_TTL`, `IPV6_UNICAST_HOPS` of sent packets.
        HopLimit(u8);
        /// `IP_MTU_DISCOVER`
        MtuDiscover {
            /// The rule for DF in IPv4 packets.
            dont_fragment: DontFragment,
            /// Segments in flight that are too long are sent again when a router reports it.
            /// Otherwise the report counts from the next segment on. IPv6 always sends them again.
            resends: bool,
            /// Over IPv6 what routers say of the path counts.
            heeds_v6: bool,
        };
        /// `IPV6_V6ONLY` of a listener: off, an unspecified IPv6 address accepts from IPv4 too. The
        /// default is on.
        V6Only(bool);
        /// `TCP_FASTOPEN` of a listener: how many connections may at once have been made of a SYN
        /// alone; 0: off.
        FastOpen(u32);
        /// `TCP_FASTOPEN_KEY` of a listener: makes its cookies in place of the stack's key.
        FastOpenKey(tcp::FastOpenKeys);
        /// `TCP_FASTOPEN_NO_COOKIE`: data in SYNs needs no cookie, here as client and as listener.
        FastOpenNoCookie(bool);
        /// `TCP_DEFER_ACCEPT` of a listener, in seconds: accept with the first data; 0: off.
        DeferAccept(u32);
        /// `TCP_SAVE_SYN` of a listener: 1 keeps the headers of SYNs from the network's on, 2 from
        /// the link's; 0: off.
        SaveSyn(u8);
    }
}

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
