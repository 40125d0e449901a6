//! When to acknowledge (RFC 9293 3.8.6.3, RFC 5681 4.2, and Linux's habits): at once while the connection
//! is young or something is out of order, with every second full segment, else after a delay that follows
//! the pace of arrival, in the hope of a segment to ride on.

use crate::marks::Marks;
use crate::receive::Receiver;
use crate::variables::Rcv;

/// Least number of quick ACKs when the window is small.
const QUICK_ACKS_MIN: u32 = 2;

impl Receiver {
    /// ACKs leave at once: for a while, and unless the application answers what it receives.
    pub(crate) fn in_quick_ack_mode(&self) -> bool {
        self.quick_acks > 0 && !self.interactive
    }

    /// Payload of ours leaves soon after the peer's arrived: a dialogue, in which ACKs find a ride.
    pub(crate) fn note_answer(&mut self, now_ns: u64) {
        let since_ns = now_ns.saturating_sub(self.last_data_ns);
        if self.ato_us > 0 && since_ns < u64::from(self.ato_us) * 1000 {
            self.interactive = true;
        }
    }

    /// The application read `copied` bytes: is an ACK due that waited for it?
    pub(crate) fn read_deserves_ack(&self, rcv: &Rcv, marks: Marks, copied: u32) -> bool {
        if !marks.has(Marks::ACK_PENDING) {
            return false;
        }
        let full = rcv.nxt.since(rcv.acked) > u32::from(self.peer_segment);
        let message_read = copied > 0
            && (self.pushed > 1 || (self.pushed > 0 && !self.interactive))
            && self.charged == 0;
        full || message_read
    }

    pub(crate) fn raise_quick_acks(&mut self, acks_max: u8) {
        let segments = self.wnd / (2 * u32::from(self.peer_segment.max(1)));
        let segments = if segments == 0 {
            QUICK_ACKS_MIN
        } else {
            segments
        };
        let wanted = segments.min(u32::from(acks_max)) as u8;
        self.quick_acks = self.quick_acks.max(wanted);
    }
}
