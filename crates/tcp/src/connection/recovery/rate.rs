//! Delivery rate: the sample of an ACK, and who limits the sender.

use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::rate::{Busy, RateSample};
use crate::rtt::micros;

impl Connection {
    /// The ACK is understood, it delivered `newly` segments: the sample is complete.
    #[inline]
    pub(crate) fn finish_rate_sample(
        &mut self,
        cx: &Cx<'_>,
        sample: &mut RateSample,
        newly: u32,
        was_reneging: bool,
    ) {
        let delivered = self.recovery.delivered;
        let rate = &mut self.delivery;
        // Bubbles that the application left are out of the pipe.
        if rate.app_limited != 0 && delivered.wrapping_sub(rate.app_limited) as i32 > 0 {
            rate.app_limited = 0;
        }
        if newly != 0 {
            rate.delivered_ns = cx.now_ns;
        }
        if sample.prior_delivered == 0 || was_reneging {
            return;
        }
        sample.segments = delivered.wrapping_sub(sample.prior_delivered);
        let acked_us = micros(cx.now_ns.saturating_sub(sample.prior_ns));
        sample.interval_us = sample.interval_us.max(acked_us);
        // Nothing is delivered in less than a round trip: what seems so was sent twice.
        if sample.interval_us < self.tx.rtt.min_us() {
            sample.interval_us = 0;
        }
        if sample.interval_us == 0 {
            return;
        }
        let faster = u64::from(sample.segments) * u64::from(rate.rate_interval_us)
            >= u64::from(rate.rate_delivered) * u64::from(sample.interval_us);
        if !sample.app_limited || faster {
            rate.rate_delivered = sample.segments;
            rate.rate_interval_us = sample.interval_us;
            rate.rate_app_limited = sample.app_limited;
        }
    }

    /// Sending stops while the window has room: from now on rates say what the application wanted.
    pub(crate) fn note_app_limited(&mut self) {
        let recovery = &self.recovery;
        if self.unsent() < u32::from(self.snd.mss)
            && recovery.in_flight() < self.congestion.window.cwnd
            && !recovery.has_lost()
        {
            let until = recovery.delivered.wrapping_add(recovery.in_flight());
            self.delivery.app_limited = until.max(1);
        }
    }

    /// What the sender waits for, now that it sends nothing more.
    #[inline]
    pub(crate) fn note_busy(&mut self, cx: &Cx<'_>) {
        let unsent = self.unsent();
        if unsent == 0 {
            if self.snd.flight() == 0 {
                return self.delivery.rest(cx.now_ns);
            }
            if !self.delivery.is_held_up() && !self.is_send_buffer_full() {
                return;
            }
        }
        self.note_hold_up(cx, unsent);
    }

    fn note_hold_up(&mut self, cx: &Cx<'_>, unsent: u32) {
        let has_room = self.recovery.in_flight() < self.congestion.window.cwnd;
        // All that the buffer holds is in flight, and the path would take more.
        let full = unsent == 0 && has_room && self.is_send_buffer_full();
        let shut = unsent.min(u32::from(self.snd.mss)) > self.snd.usable() && has_room;
        for (reason, on) in [(Busy::SendBuffer, full), (Busy::PeerWindow, shut)] {
            if on {
                self.delivery.start(cx.now_ns, reason);
            } else {
                self.delivery.stop(cx.now_ns, reason);
            }
        }
    }
}
