//! The time of an acknowledgment (RFC 9293 3.8.6.3, RFC 5681 4.2, and Linux's habits). ACKs leave
//! at once while the connection is young or data is out of order, and with every second full
//! segment. Other ACKs wait for a segment to ride on, with a delay that follows the pace of
//! arrival.

use wire::SeqNumber;

use crate::config::Config;
use crate::marks::Marks;
use crate::receive::Receiver;
use crate::variables::Rcv;

/// Duplicate ACKs that leave at once before SACKs are held back (the peer's threshold of RFC 5681).
const DUP_ACKS_AT_ONCE: u8 = 3;
/// Least number of quick ACKs when the window is small.
const QUICK_ACKS_MIN: u32 = 2;

impl Receiver {
    /// True if ACKs leave at once: for a while, and unless the application answers what it
    /// receives.
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

    /// The delay follows the gap between arrivals, between `min_us` and the timeout.
    #[inline(always)]
    pub(crate) fn learn_pace(&mut self, now_ns: u64, min_us: u32, rto_us: u32, config: &Config) {
        let gap_ns = now_ns.saturating_sub(self.last_data_ns);
        // Most have company in their turn: no division for them.
        let gap_us = if gap_ns == 0 {
            0
        } else {
            (gap_ns / 1000).min(u64::from(u32::MAX)) as u32
        };
        self.last_data_ns = now_ns;
        if self.ato_us == 0 {
            self.raise_quick_acks(config.quick_acks_max);
            self.ato_us = min_us;
        } else if gap_us <= min_us / 2 {
            self.ato_us = self.ato_us / 2 + min_us / 2;
        } else if gap_us < self.ato_us {
            self.ato_us = (self.ato_us / 2 + gap_us).min(rto_us);
        } else if gap_us > rto_us {
            // The peer was idle: it may be in slow start again and wants its ACKs soon.
            self.raise_quick_acks(config.quick_acks_max);
        }
    }

    /// An ACK leaves; `is_owed`: text waited for it.
    #[inline(always)]
    pub(crate) fn note_ack_sent(&mut self, is_owed: bool, min_us: u32) {
        self.compressed = 0;
        self.pushed = 0;
        if is_owed && self.quick_acks > 0 {
            self.quick_acks -= 1;
            if self.quick_acks == 0 {
                self.ato_us = min_us;
            }
        }
    }

    /// No segment came to ride on: the delay grows in a one-way flow, and starts over in a
    /// dialogue.
    pub(crate) fn miss_ride(&mut self, min_us: u32, rto_us: u32) {
        if self.interactive {
            self.restart_pace(min_us);
        } else {
            self.ato_us = self.ato_us.saturating_mul(2).min(rto_us);
        }
    }

    /// No answers are expected, and the delay is the least.
    pub(crate) fn restart_pace(&mut self, min_us: u32) {
        self.interactive = false;
        self.ato_us = min_us;
    }

    /// Notes whether the application answers what it receives, so that ACKs ride on its answers.
    pub(crate) fn expect_answer(&mut self, is_expected: bool) {
        self.interactive = is_expected;
    }

    /// The reader does not keep up: no more quick ACKs.
    pub(crate) fn end_quick_acks(&mut self) {
        self.quick_acks = 0;
    }

    /// The end of a message arrived, or a full segment with PSH.
    #[inline(always)]
    pub(crate) fn note_pushed(&mut self) {
        self.pushed = self.pushed.max(1);
    }

    /// A segment that looks like the end of a message arrived.
    #[inline(always)]
    pub(crate) fn note_end_of_message(&mut self) {
        self.pushed = (self.pushed + 1).min(2);
    }

    /// No message has ended since the last ACK.
    pub(crate) fn settle_pushed(&mut self) {
        self.pushed = 0;
    }

    /// The peer's segments are `len` bytes long, as far as we allow that.
    #[inline(always)]
    pub(crate) fn set_peer_segment(&mut self, len: u32) {
        // The announced size is a u16.
        self.peer_segment = len.min(u32::from(self.advmss)) as u16;
    }

    /// Size of the last segment smaller than the estimate, which is forgotten; 0 = none.
    #[inline(always)]
    pub(crate) fn take_last_small(&mut self) -> u16 {
        core::mem::take(&mut self.last_small)
    }

    /// A segment of `len` bytes, smaller than the estimate, arrived.
    #[inline(always)]
    pub(crate) fn note_small(&mut self, len: u32) {
        self.last_small = len as u16;
    }

    /// Owes one more duplicate ACK.
    #[inline(always)]
    pub(crate) fn owe_dup_ack(&mut self) {
        self.dup_acks_due = self.dup_acks_due.saturating_add(1);
    }

    /// A duplicate ACK that was owed leaves.
    #[inline(always)]
    pub(crate) fn pay_dup_ack(&mut self) {
        self.dup_acks_due = self.dup_acks_due.saturating_sub(1);
    }

    /// RCV.NXT moved: no duplicate ACK is owed.
    #[inline(always)]
    pub(crate) fn settle_dup_acks(&mut self) {
        self.dup_acks_due = 0;
    }

    /// A duplicate ACK for `nxt` may leave at once, and is counted.
    pub(crate) fn sends_dup_ack_at_once(&mut self, nxt: SeqNumber) -> bool {
        if self.dup_acks_at != nxt {
            self.dup_acks_at = nxt;
            self.dup_acks_sent = 0;
        }
        let is_one_of_few = self.dup_acks_sent < DUP_ACKS_AT_ONCE;
        self.dup_acks_sent += u8::from(is_one_of_few);
        is_one_of_few
    }

    /// Holds one more SACK back. True when it is the first since the last ACK.
    pub(crate) fn hold_sack_back(&mut self) -> bool {
        self.compressed += 1;
        self.compressed == 1
    }
}
