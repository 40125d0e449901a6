//! The states of a connection (RFC 9293 3.3.2) and the ways it can fail.

use crate::pack::Packing;

/// State of a connection. LISTEN is in `listen`, the passive SYN_RECEIVED in `half_open`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Our SYN is out.
    SynSent,
    /// The SYNs crossed (simultaneous open), and neither is acknowledged.
    SynReceived,
    /// Data flows both ways.
    Established,
    /// We closed; our FIN is not acknowledged.
    FinWait1,
    /// We closed, our FIN is acknowledged; the peer may still send.
    FinWait2,
    /// The peer closed; we may still send.
    CloseWait,
    /// Both sides closed at once; our FIN is not acknowledged.
    Closing,
    /// The peer closed, then we; our FIN is not acknowledged.
    LastAck,
    /// Both sides closed; old segments expire.
    TimeWait,
    /// The connection is over.
    Closed,
}

impl State {
    /// True if the state may change to `next` (RFC 9293 3.3.2, figure 5, without LISTEN and the
    /// passive SYN_RECEIVED, which have entries of their own). Every state may end at once, by a
    /// RST, an error or an abort. Ending twice changes nothing.
    const fn may_become(self, next: State) -> bool {
        use State::*;
        match self {
            SynSent => matches!(next, SynReceived | Established | FinWait1 | Closed),
            SynReceived => matches!(next, Established | FinWait1 | Closed),
            Established => matches!(next, FinWait1 | CloseWait | Closed),
            // FIN_WAIT_1 does not reach TIME_WAIT in one step: the ACK of our FIN is processed
            // before the FIN in the same segment.
            FinWait1 => matches!(next, FinWait2 | Closing | Closed),
            FinWait2 => matches!(next, TimeWait | Closed),
            CloseWait => matches!(next, LastAck | Closed),
            Closing => matches!(next, TimeWait | Closed),
            LastAck | TimeWait | Closed => matches!(next, Closed),
        }
    }

    /// True if both sides know each other's sequence numbers.
    #[must_use]
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, State::SynSent | State::SynReceived | State::Closed)
    }

    /// True if the peer may still send data.
    #[must_use]
    pub const fn receives_data(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// True if payload or a FIN of ours may be sent or may be in flight.
    #[must_use]
    pub const fn sends_data(self) -> bool {
        matches!(
            self,
            State::Established
                | State::CloseWait
                | State::FinWait1
                | State::Closing
                | State::LastAck
        )
    }
}

/// A connection's state, which only one function changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CurrentState(State);

impl CurrentState {
    /// The state in which a connection begins.
    pub const fn first(state: State) -> Self {
        CurrentState(state)
    }

    #[inline]
    pub const fn get(self) -> State {
        self.0
    }

    /// The only writer of a connection's state.
    #[inline]
    pub fn transition_to(&mut self, next: State) {
        debug_assert!(self.0.may_become(next), "{:?} to {next:?}", self.0);
        self.0 = next;
    }

    /// Packs the state. Only ESTABLISHED connections are packed.
    pub fn pack(&mut self, p: &mut impl Packing) {
        p.one_of(&mut self.0, &[State::Established]);
    }
}

/// The reason why a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ConnectionError {
    /// The peer, or an ICMP message for it, refused the open (ECONNREFUSED).
    Refused,
    /// The peer reset the connection (ECONNRESET).
    Reset,
    /// No answer in time (ETIMEDOUT).
    TimedOut,
    /// A router or the neighbour cache found no host (EHOSTUNREACH).
    HostUnreachable,
    /// A router found no network (ENETUNREACH).
    NetUnreachable,
    /// The application aborted the connection (ECONNABORTED).
    Aborted,
    /// The host does not speak TCP (ENOPROTOOPT).
    NoProtocol,
    /// A router forbids it, IPv6 (EACCES).
    AccessDenied,
    /// A router does not know the host (EHOSTDOWN).
    HostDown,
    /// A router says that this host is isolated (ENONET).
    HostIsolated,
    /// The source route failed (EOPNOTSUPP).
    SourceRouteFailed,
    /// A header of ours was not understood (EPROTO).
    Protocol,
}

/// An ICMP error about a segment of this connection, IPv4 and IPv6 alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IcmpError {
    /// Net unreachable or no route: soft.
    NetUnreachable,
    /// Host unreachable or address unreachable: soft.
    HostUnreachable,
    /// A neighbour did not answer: as host unreachable, but not reported by a router (RFC 6069).
    NeighbourUnreachable,
    /// Net unknown, prohibited, or unreachable for this type of service: as net unreachable.
    NetProhibited,
    /// Protocol unreachable: hard.
    ProtocolUnreachable,
    /// Port unreachable: hard.
    PortUnreachable,
    /// Prohibited by an administrator, or unreachable for this type of service: as host
    /// unreachable.
    Prohibited,
    /// Hop limit exceeded in transit: soft.
    TimeExceeded,
    /// A header field was not understood: soft.
    ParameterProblem,
    /// Prohibited by an administrator or by policy, IPv6.
    AccessDenied,
    /// The destination host is not known: soft.
    HostUnknown,
    /// The source host is isolated: soft.
    HostIsolated,
    /// The source route failed: soft.
    SourceRouteFailed,
}

#[cfg(test)]
mod tests;
