//! ICMP errors and path MTU (RFC 9293 3.9.2.2, RFC 1191, RFC 5927). An error counts only if it
//! quotes a segment in flight, and most errors are remembered without an action.

use wire::SeqNumber;

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::state::{ConnectionError, IcmpError, State};

impl Connection {
    /// Takes an ICMP error that quotes a segment of ours with sequence number `quoted_seq`.
    pub fn on_icmp_error(
        &mut self,
        cx: &mut Cx<'_>,
        kind: IcmpError,
        quoted_seq: SeqNumber,
    ) -> Effects {
        let deadline_ns = self.timers.deadline_ns();
        if !self.is_quoted_in_flight(quoted_seq) {
            cx.counters.drop_icmp_outside_window += 1;
            return self.finish(cx, Effects::NONE, deadline_ns);
        }
        let (hard, error) = meaning(kind);
        // An accepted connection that was opened fast is treated as established.
        let opening = matches!(self.state(), State::SynSent | State::SynReceived)
            && !(self.conn_flags.has(ConnFlags::FAST_OPENED) && self.opening.is_accepted());
        let effects = if opening && (hard || cx.config.soft_errors_end_connect) {
            self.fail(error)
        } else {
            // An ICMP error never ends an established connection (RFC 5927 6); timeouts do.
            self.timers.note_soft_error(error);
            match kind {
                IcmpError::NetUnreachable | IcmpError::HostUnreachable => {
                    self.revert_backoff(cx, quoted_seq)
                }
                _ => Effects::NONE,
            }
        };
        self.finish(cx, effects, deadline_ns)
    }

    /// The last ICMP error, which is forgotten by this call (`SO_ERROR` of a connection that goes
    /// on, as in Linux). A later timeout does not report it again.
    pub fn take_soft_error(&mut self) -> Option<ConnectionError> {
        self.timers.take_soft_error()
    }

    /// True if an ICMP error arrived that was neither reported nor disproved yet.
    #[must_use]
    pub fn has_soft_error(&self) -> bool {
        self.timers.soft_error().is_some()
    }

    /// Notes that the application accepted this connection, which was opened fast.
    pub fn note_accepted(&mut self) {
        self.opening.note_accepted();
    }

    /// Limits segments to `mss` payload bytes without options: the path MTU less headers. The
    /// caller has validated the message (`is_quoted_in_flight`). Segments in flight that are too
    /// long are cut anew and, if `retransmits`, sent again at once, without a reduction of the
    /// congestion window.
    pub fn on_mtu(&mut self, cx: &mut Cx<'_>, mss: u16, retransmits: bool) -> Effects {
        let deadline_ns = self.timers.deadline_ns();
        let old = self.snd.mss();
        self.path
            .narrow_path(cx, mss, &mut self.conn_flags, &mut self.snd, &mut self.tx);
        let new = self.snd.mss();
        if self.state() == State::SynSent {
            self.shrink_syn(cx);
        } else if retransmits && new < old && self.conn_flags.may_send_data(self.state()) {
            self.flight
                .retransmit_too_long(cx, &mut self.conn_flags, &self.snd);
        }
        self.finish(cx, Effects::NONE, deadline_ns)
    }

    /// The SYN was too big, so it carried data. It leaves again at once without the data,
    /// announcing an MSS that the path carries (Linux).
    fn shrink_syn(&mut self, cx: &mut Cx<'_>) {
        self.rx.limit_mss(self.path.path_mss());
        if self.opening.syn_bytes() > 0 && !self.conn_flags.has(ConnFlags::SYN_DUE) {
            self.conn_flags.set(ConnFlags::SYN_DUE);
            self.flight.restart_retransmit_timer(
                cx,
                self.state(),
                self.conn_flags,
                &self.snd,
                &mut self.timers,
            );
        }
    }

    /// True if a quoted sequence number is in flight, so that the message is no blind forgery (RFC
    /// 5927 4.1). SND.NXT is accepted too, because pure ACKs carry it (Linux).
    #[must_use]
    pub fn is_quoted_in_flight(&self, quoted_seq: SeqNumber) -> bool {
        let first = if self.conn_flags.has(ConnFlags::FAST_OPENED) {
            self.tx.iss()
        } else {
            self.snd.una()
        };
        self.state() != State::Closed && quoted_seq.ge(first) && quoted_seq.le(self.snd.nxt())
    }
}

/// Whether the error is hard (RFC 1122 4.2.3.9), and the error that the application receives; from
/// Linux's table.
fn meaning(kind: IcmpError) -> (bool, ConnectionError) {
    match kind {
        IcmpError::NetUnreachable | IcmpError::NetProhibited => {
            (false, ConnectionError::NetUnreachable)
        }
        IcmpError::HostUnreachable
        | IcmpError::NeighbourUnreachable
        | IcmpError::TimeExceeded
        | IcmpError::Prohibited => (false, ConnectionError::HostUnreachable),
        IcmpError::PortUnreachable => (true, ConnectionError::Refused),
        IcmpError::ProtocolUnreachable => (true, ConnectionError::NoProtocol),
        IcmpError::AccessDenied => (true, ConnectionError::AccessDenied),
        IcmpError::HostUnknown => (false, ConnectionError::HostDown),
        IcmpError::HostIsolated => (false, ConnectionError::HostIsolated),
        IcmpError::SourceRouteFailed => (false, ConnectionError::SourceRouteFailed),
        IcmpError::ParameterProblem => (false, ConnectionError::Protocol),
    }
}
