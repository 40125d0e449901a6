//! When to acknowledge (RFC 9293 3.8.6.3, RFC 5681 4.2, and Linux's habits): at once while the connection
//! is young or something is out of order, with every second full segment, else after a delay that follows
//! the pace of arrival, in the hope of a segment to ride on.

use crate::connection::{Connection, Cx};
use crate::marks::Marks;

/// Least number of quick ACKs when the window is small.
const QUICK_ACKS_MIN: u8 = 2;

impl Connection {
    /// Payload arrived: learn the peer's segment size and pace, then decide when to acknowledge.
    pub(crate) fn schedule_ack(&mut self, cx: &mut Cx<'_>, len: u32) {
        self.learn_segment_size(len);
        self.learn_pace(cx);
        self.marks.set(Marks::ACK_PENDING);
        // MAY hold more than one full segment's worth (SHLD-19); the FIN and out-of-order steps ask
        // for an ACK themselves.
        let unacked = self.rcv.nxt.since(self.rcv.acked);
        let full = unacked > u32::from(self.rx.peer_segment);
        let quick = self.rx.quick_acks > 0 && !self.rx.interactive;
        if full || quick {
            self.marks.set(Marks::ACK_NOW);
        } else if self.tx.timers.delayed_ack_ns == super::NEVER_NS {
            let delay_ns = self.ack_delay_ns(cx);
            self.arm_delayed_ack(cx.now_ns.saturating_add(delay_ns));
        }
    }

    /// Something unexpected arrived: acknowledge at once for a while, so that the peer recovers fast.
    pub(crate) fn enter_quick_ack(&mut self, cx: &Cx<'_>) {
        self.rx.quick_acks = self.quick_ack_quota(cx);
        self.rx.interactive = false;
        self.rx.ato_us = min_us(cx);
    }

    /// Payload of ours leaves soon after the peer's arrived: a dialogue, in which ACKs find a ride.
    pub(crate) fn note_answer(&mut self, cx: &Cx<'_>) {
        let since_ns = cx.now_ns.saturating_sub(self.rx.last_data_ns);
        if self.rx.ato_us > 0 && since_ns < u64::from(self.rx.ato_us) * 1000 {
            self.rx.interactive = true;
        }
    }

    /// A segment with the ACK flag leaves.
    pub(crate) fn note_ack_sent(&mut self, cx: &Cx<'_>) {
        self.rcv.acked = self.rcv.nxt;
        if self.marks.any(Marks::ACK_PENDING | Marks::ACK_NOW) {
            self.marks.clear(Marks::ACK_PENDING | Marks::ACK_NOW);
            if self.rx.quick_acks > 0 {
                self.rx.quick_acks -= 1;
                if self.rx.quick_acks == 0 {
                    self.rx.ato_us = min_us(cx);
                }
            }
        }
        if self.tx.timers.delayed_ack_ns != super::NEVER_NS {
            self.arm_delayed_ack(super::NEVER_NS);
        }
    }

    pub(super) fn on_delayed_ack_timer(&mut self, cx: &mut Cx<'_>) {
        self.arm_delayed_ack(super::NEVER_NS);
        if !self.marks.has(Marks::ACK_PENDING) {
            return;
        }
        // No ride came in time: wait longer in a one-way flow, start over in a dialogue.
        if self.rx.interactive {
            self.rx.interactive = false;
            self.rx.ato_us = min_us(cx);
        } else {
            self.rx.ato_us = self.rx.ato_us.saturating_mul(2).min(self.tx.rtt.rto_us);
        }
        self.marks.set(Marks::ACK_NOW);
        cx.counters.delayed_acks_out += 1;
    }

    fn learn_segment_size(&mut self, len: u32) {
        if len >= u32::from(self.rx.peer_segment) {
            // `mss` is a u16, so the minimum fits one.
            self.rx.peer_segment = len.min(u32::from(self.rx.mss)) as u16;
        }
    }

    /// The delay follows the gap between arrivals, between its minimum and the timeout.
    fn learn_pace(&mut self, cx: &Cx<'_>) {
        let gap_us =
            (cx.now_ns.saturating_sub(self.rx.last_data_ns) / 1000).min(u64::from(u32::MAX)) as u32;
        let min_us = min_us(cx);
        self.rx.last_data_ns = cx.now_ns;
        if self.rx.ato_us == 0 {
            self.rx.quick_acks = self.quick_ack_quota(cx);
            self.rx.ato_us = min_us;
        } else if gap_us <= min_us / 2 {
            self.rx.ato_us = self.rx.ato_us / 2 + min_us / 2;
        } else if gap_us < self.rx.ato_us {
            self.rx.ato_us = (self.rx.ato_us / 2 + gap_us).min(self.tx.rtt.rto_us);
        } else if gap_us > self.tx.rtt.rto_us {
            // The peer was idle: it may be in slow start again and wants its ACKs soon.
            self.rx.quick_acks = self.quick_ack_quota(cx);
        }
    }

    fn quick_ack_quota(&self, cx: &Cx<'_>) -> u8 {
        let max = cx.config.quick_acks_max;
        let segments = self.rcv.wnd() / (2 * u32::from(self.rx.peer_segment.max(1)));
        segments.clamp(u32::from(QUICK_ACKS_MIN.min(max)), u32::from(max)) as u8
    }

    fn ack_delay_ns(&self, cx: &Cx<'_>) -> u64 {
        let min_ns = cx.config.delayed_ack_ns_min;
        let mut max_ns = cx.config.delayed_ack_ns_max;
        if self.tx.rtt.srtt_us > 0 {
            max_ns = max_ns.min(self.tx.rtt.srtt_ns().max(min_ns));
        }
        (u64::from(self.rx.ato_us) * 1000).clamp(min_ns.min(max_ns), max_ns)
    }
}

fn min_us(cx: &Cx<'_>) -> u32 {
    (cx.config.delayed_ack_ns_min / 1000).clamp(1, u64::from(u32::MAX)) as u32
}
