//! ICMP errors and path MTU (RFC 9293 3.9.2.2, RFC 1191, RFC 5927): believed only if they quote a segment
//! in flight, and even then mostly remembered, not obeyed.

use wire::SeqNumber;

use crate::connection::{Connection, Cx};
use crate::effects::Effects;
use crate::limits::SEND_MSS_MIN;
use crate::recovery::LossRecovery;
use crate::state::{ConnectionError, IcmpError, State};

impl Connection {
    /// An ICMP error quotes a segment of ours with sequence number `quoted_seq`.
    pub fn on_icmp_error(
        &mut self,
        cx: &mut Cx<'_>,
        kind: IcmpError,
        quoted_seq: SeqNumber,
    ) -> Effects {
        let deadline_ns = self.deadline_ns;
        if !self.is_quoted_in_flight(quoted_seq) {
            cx.counters.drop_icmp_outside_window += 1;
            return self.finish(cx, Effects::NONE, deadline_ns);
        }
        let (hard, error) = meaning(kind);
        let opening = matches!(self.state, State::SynSent | State::SynReceived);
        let effects = match error {
            // A live connection outlasts any ICMP error (RFC 5927 6); timeouts tell what is true.
            Some(error) if opening && (hard || cx.config.soft_errors_end_connect) => {
                self.fail(error)
            }
            Some(error) => {
                self.tx.soft_error = Some(error);
                Effects::NONE
            }
            None => Effects::NONE,
        };
        self.finish(cx, effects, deadline_ns)
    }

    /// The path takes segments of at most `mss` payload bytes without options: path MTU less headers. The
    /// caller has validated the message (`is_quoted_in_flight`). Segments in flight that are too long are
    /// cut anew and sent again, without a reduction of the congestion window.
    pub fn on_mtu(&mut self, cx: &mut Cx<'_>, mss: u16) -> Effects {
        let deadline_ns = self.deadline_ns;
        let old = self.snd.mss;
        // Never up: no message says that more fits than was thought (RFC 1191 3, RFC 8201 4).
        self.tx.path_mss = mss.max(SEND_MSS_MIN).min(self.tx.path_mss);
        self.refresh_mss();
        let new = self.snd.mss;
        if new != old && self.state.is_synchronized() {
            if new < old && self.snd.flight() > u32::from(new) {
                self.resend_in_flight();
            }
        }
        self.finish(cx, Effects::NONE, deadline_ns)
    }

    /// What is in flight was lost, and the congestion window is not to blame: it is sent again at once.
    pub(crate) fn resend_in_flight(&mut self) {
        self.tx.recovery.on_all_lost(self.in_flight());
        self.after_recovery_event();
    }

    /// A quoted sequence number lies in flight: the message is not a blind forgery (RFC 5927 4.1).
    #[must_use]
    pub fn is_quoted_in_flight(&self, quoted_seq: SeqNumber) -> bool {
        self.state != State::Closed && quoted_seq.in_window(self.snd.una, self.snd.flight())
    }
}

/// Whether the error is hard (RFC 1122 4.2.3.9), and what the application would be told.
fn meaning(kind: IcmpError) -> (bool, Option<ConnectionError>) {
    match kind {
        IcmpError::NetUnreachable => (false, Some(ConnectionError::NetUnreachable)),
        IcmpError::HostUnreachable | IcmpError::TimeExceeded | IcmpError::Prohibited => {
            (false, Some(ConnectionError::HostUnreachable))
        }
        IcmpError::PortUnreachable | IcmpError::ProtocolUnreachable => {
            (true, Some(ConnectionError::Refused))
        }
        IcmpError::ParameterProblem => (false, None),
    }
}
