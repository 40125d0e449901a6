//! Removal of the records that SEG.ACK covers: counts, and signs of reneging.

use crate::connection::Connection;
use crate::context::Cx;
use crate::records::tag;
use crate::recovery::ack::Ack;
use crate::recovery::acked::RemovedRecords;
use crate::recovery::rate::Busy;

impl Connection {
    /// Removes the records up to SND.UNA, which may have moved.
    #[inline]
    pub(crate) fn take_acked_records(&mut self, cx: &mut Cx<'_>, ack: &mut Ack) {
        let mut removed = RemovedRecords {
            first_sent_ns: 0,
            last_sent_ns: 0,
            lowest: self.snd.nxt(),
            whole: true,
            prior_sacked: self.flight.recovery().sacked_out(),
        };
        let head = self.flight.take_acked(
            cx,
            ack,
            &mut removed,
            self.conn_flags,
            &self.snd,
            &self.timers,
        );
        match &head {
            None if self.snd.unsent(self.state(), self.conn_flags) == 0 => {
                self.flight.delivery_mut().rest(cx.now_ns)
            }
            None => self.flight.delivery_mut().stop(cx.now_ns, Busy::Sending),
            Some(head) => ack.reneging = head.has(tag::SACKED),
        }
        let (flight, mut parts) = self.flight_and_parts();
        flight.take_round_trips(cx, ack, &removed, head.as_ref(), &mut parts);
    }
}
