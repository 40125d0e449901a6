//! The delivery rate (the sampler that BBR and `TCP_INFO` use). Each segment remembers how much was
//! delivered when it was sent; its ACK shows how much was delivered since.
//!
//! The sampler also divides the sender's time: sending, waiting for the peer's window, waiting for
//! the application's buffer.

use wire::SeqNumber;

use crate::pack::{Packing, Usual};
use crate::records::{Record, tag};
use crate::rtt::micros;

/// A sample being taken, over the segments that one ACK delivers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateSample {
    /// Segments delivered when the sampled segment was sent; 0 = no sample.
    pub prior_delivered: u32,
    /// When that delivery was.
    pub prior_ns: u64,
    /// Segments delivered since; 0 = no sample.
    pub segments: u32,
    /// The time that it took to send them, or to deliver them, whichever was longer; 0 = it makes
    /// no rate.
    pub interval_us: u32,
    /// The end of the latest segment.
    pub last_end: SeqNumber,
    /// The segment was sent while the application was the limit.
    pub app_limited: bool,
}

impl RateSample {
    /// True if the sample gives a rate: `segments` in `interval_us`.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.segments > 0 && self.interval_us > 0
    }
}

/// The activity of the sender; a larger one takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Busy {
    /// Nothing to send, nothing in flight.
    Idle = 0,
    /// Sending.
    Sending = 1,
    /// The peer's window is the limit.
    PeerWindow = 2,
    /// The application waits for room in the send buffer.
    SendBuffer = 3,
}

/// Delivery rate and the sender's use of time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Delivery {
    /// When something was last delivered.
    delivered_ns: u64,
    /// When the first segment of the sampled flight was sent.
    first_sent_ns: u64,
    /// The application is the limit until this many segments are delivered; 0 = it is not.
    app_limited: u32,
    /// The last good sample: segments, over microseconds.
    rate_delivered: u32,
    rate_interval_us: u32,
    rate_app_limited: bool,
    busy: Busy,
    busy_since_ns: u64,
    busy_ns: [u64; 3],
    /// Payload bytes sent, repetitions included.
    bytes_sent: u64,
    /// Payload bytes sent again.
    bytes_retrans: u64,
    /// When a segment last left, of whatever kind; bursts of one turn are a nanosecond apart.
    last_out_ns: u64,
    /// Segments sent again, the SYN's included.
    segments_retrans: u32,
    /// Segments that remain of the current burst.
    burst_left: u16,
    /// The current segment is the first of its burst.
    burst_begins: bool,
    /// Something new has left since the output last stopped.
    sent_new: bool,
}

const _: () = assert!(size_of::<Delivery>() <= 128);

impl Delivery {
    /// Nothing sent yet.
    pub fn new() -> Self {
        Delivery {
            delivered_ns: 0,
            first_sent_ns: 0,
            app_limited: 0,
            rate_delivered: 0,
            rate_interval_us: 0,
            // Nobody has asked for more yet.
            rate_app_limited: true,
            busy: Busy::Idle,
            busy_since_ns: 0,
            busy_ns: [0; 3],
            bytes_sent: 0,
            bytes_retrans: 0,
            last_out_ns: 0,
            segments_retrans: 0,
            burst_left: 0,
            burst_begins: true,
            sent_new: false,
        }
    }

    /// A segment leaves at `now_ns`; `goes_on`: in a burst that has begun. A turn reads the clock
    /// once, but the order of transmission must be visible. Of two segments that left in one turn,
    /// the first is not lost because the other has arrived (RFC 8985 6.2).
    #[inline]
    pub fn note_out(&mut self, now_ns: u64, goes_on: bool) {
        if !goes_on || self.last_out_ns < now_ns {
            self.last_out_ns = now_ns.max(self.last_out_ns + 1);
        }
    }

    pub fn pack(&mut self, p: &mut impl Packing, usual: &Usual) {
        let Delivery {
            delivered_ns,
            first_sent_ns,
            app_limited,
            rate_delivered,
            rate_interval_us,
            rate_app_limited,
            busy,
            busy_since_ns,
            busy_ns,
            bytes_sent,
            bytes_retrans,
            last_out_ns,
            segments_retrans,
            burst_left,
            burst_begins,
            sent_new,
        } = self;
        p.u64(bytes_sent, u64::from(usual.una.since(usual.first)));
        let used_ns = if *bytes_sent > 0 { usual.now_ns } else { 0 };
        p.u64(delivered_ns, used_ns);
        p.u64(first_sent_ns, *delivered_ns);
        p.u32(app_limited, 0);
        p.u32(rate_delivered, 0);
        p.u32(rate_interval_us, 0);
        let mut was_asked_for_more = !*rate_app_limited;
        p.bool(&mut was_asked_for_more);
        *rate_app_limited = !was_asked_for_more;
        p.one_of(
            busy,
            &[
                Busy::Idle,
                Busy::Sending,
                Busy::PeerWindow,
                Busy::SendBuffer,
            ],
        );
        p.u64(busy_since_ns, *delivered_ns);
        for time_ns in busy_ns {
            p.u64(time_ns, 0);
        }
        p.u64(bytes_retrans, 0);
        p.u64(last_out_ns, usual.now_ns);
        p.u32(segments_retrans, 0);
        p.u16(burst_left, 0);
        let mut is_within = !*burst_begins;
        p.bool(&mut is_within);
        *burst_begins = !is_within;
        p.bool(sent_new);
    }

    /// The first segment of a flight leaves, in a new record: ages count from it.
    #[inline(always)]
    pub fn on_first_sent(&mut self, record: &mut Record, delivered: u32) {
        self.first_sent_ns = record.sent_ns;
        self.delivered_ns = record.sent_ns;
        record.delivered = delivered;
        if self.app_limited != 0 {
            record.tags |= tag::APP_LIMITED;
        }
    }

    /// A segment leaves while others are in flight.
    pub fn on_sent(&mut self, record: &mut Record, delivered: u32) {
        record.delivered = delivered;
        record.delivered_age_us = micros(record.sent_ns.saturating_sub(self.delivered_ns));
        record.first_sent_age_us = micros(record.sent_ns.saturating_sub(self.first_sent_ns));
        record.tags &= !(tag::APP_LIMITED | tag::SAMPLED);
        if self.app_limited != 0 {
            record.tags |= tag::APP_LIMITED;
        }
    }

    /// A segment was delivered: the latest sent of an ACK's is its sample.
    pub fn on_delivered(&mut self, record: &Record, sample: &mut RateSample) {
        if record.has(tag::SAMPLED) {
            return;
        }
        let later = record.sent_ns > self.first_sent_ns
            || (record.sent_ns == self.first_sent_ns && record.end.gt(sample.last_end));
        if sample.prior_delivered != 0 && !later {
            return;
        }
        sample.prior_delivered = record.delivered;
        sample.prior_ns = record
            .sent_ns
            .saturating_sub(u64::from(record.delivered_age_us) * 1000);
        sample.app_limited = record.has(tag::APP_LIMITED);
        sample.last_end = record.end;
        sample.interval_us = record.first_sent_age_us;
        self.first_sent_ns = record.sent_ns;
    }

    /// An ACK that delivered `newly` segments is understood: its sample is complete. `delivered`
    /// segments have been delivered in all; no round trip took less than `min_rtt_us`.
    #[inline]
    pub fn finish_sample(
        &mut self,
        now_ns: u64,
        sample: &mut RateSample,
        newly: u32,
        delivered: u32,
        min_rtt_us: u32,
        was_reneging: bool,
    ) {
        // Bubbles that the application left are out of the pipe.
        if self.app_limited != 0 && delivered.wrapping_sub(self.app_limited) as i32 > 0 {
            self.app_limited = 0;
        }
        if newly != 0 {
            self.delivered_ns = now_ns;
        }
        if sample.prior_delivered == 0 || was_reneging {
            return;
        }
        sample.segments = delivered.wrapping_sub(sample.prior_delivered);
        let acked_us = micros(now_ns.saturating_sub(sample.prior_ns));
        sample.interval_us = sample.interval_us.max(acked_us);
        // Nothing is delivered in less than a round trip: what seems so was sent twice.
        if sample.interval_us < min_rtt_us {
            sample.interval_us = 0;
        }
        if sample.interval_us == 0 {
            return;
        }
        let faster = u64::from(sample.segments) * u64::from(self.rate_interval_us)
            >= u64::from(self.rate_delivered) * u64::from(sample.interval_us);
        if !sample.app_limited || faster {
            self.rate_delivered = sample.segments;
            self.rate_interval_us = sample.interval_us;
            self.rate_app_limited = sample.app_limited;
        }
    }

    /// The application is the limit until `delivered` segments have been delivered.
    #[inline]
    pub fn limit_by_application(&mut self, delivered: u32) {
        self.app_limited = delivered.max(1);
    }

    /// The application is the limit.
    #[inline(always)]
    pub fn is_app_limited(&self) -> bool {
        self.app_limited != 0
    }

    /// The last good sample was limited by the application.
    pub fn is_rate_app_limited(&self) -> bool {
        self.rate_app_limited
    }

    /// When something was last delivered.
    #[inline(always)]
    pub fn delivered_ns(&self) -> u64 {
        self.delivered_ns
    }

    /// Payload bytes sent, repetitions included.
    #[inline(always)]
    pub fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    /// Payload bytes sent again.
    pub fn bytes_retrans(&self) -> u64 {
        self.bytes_retrans
    }

    /// Segments sent again, the SYN's included.
    pub fn segments_retrans(&self) -> u32 {
        self.segments_retrans
    }

    /// The SYN-ACK was sent again `segments` times before the connection began.
    pub fn begin_retrans(&mut self, segments: u32) {
        self.segments_retrans = segments;
    }

    /// A segment leaves again.
    pub fn count_segment_repeated(&mut self) {
        self.segments_retrans = self.segments_retrans.wrapping_add(1);
    }

    /// When a segment last left, of whatever kind.
    #[inline(always)]
    pub fn last_out_ns(&self) -> u64 {
        self.last_out_ns
    }

    /// `bytes` of payload leave for the first time.
    #[inline(always)]
    pub fn count_fresh(&mut self, bytes: u32) {
        self.bytes_sent += u64::from(bytes);
    }

    /// `bytes` of payload leave again.
    #[inline]
    pub fn count_repeated(&mut self, bytes: u32) {
        self.bytes_sent += u64::from(bytes);
        self.bytes_retrans += u64::from(bytes);
    }

    /// A segment with payload is about to leave. True when no burst has begun, so this segment may
    /// begin one.
    #[inline(always)]
    pub fn begin_segment(&mut self) -> bool {
        self.burst_begins = self.burst_left == 0;
        self.burst_begins
    }

    /// The current segment begins a burst of `segments`. False when it is alone.
    #[inline(always)]
    pub fn begin_burst(&mut self, segments: u32) -> bool {
        let is_burst = segments > 1;
        self.burst_left = match is_burst {
            true => segments.min(u32::from(u16::MAX)) as u16,
            false => 0,
        };
        is_burst
    }

    /// A segment of the burst leaves. True when it was the last.
    #[inline(always)]
    pub fn take_of_burst(&mut self) -> bool {
        self.burst_left -= 1;
        self.burst_left == 0
    }

    /// `segments` that follow the first, at most as many as are left, leave together.
    #[inline(always)]
    pub fn take_tail(&mut self, segments: u32) {
        self.burst_begins = false;
        self.burst_left -= segments as u16;
    }

    /// The burst ends here, whatever was planned.
    #[inline(always)]
    pub fn end_burst(&mut self) {
        self.burst_left = 0;
    }

    /// Segments that remain of the current burst.
    #[inline(always)]
    pub fn burst_left(&self) -> u16 {
        self.burst_left
    }

    /// True if the current segment is the first of its burst.
    #[inline(always)]
    pub fn begins_burst(&self) -> bool {
        self.burst_begins
    }

    /// A segment leaves that is no part of a burst.
    #[inline(always)]
    pub fn note_lone_out(&mut self, now_ns: u64) {
        self.burst_begins = true;
        self.note_out(now_ns, false);
    }

    /// Something new has left.
    #[inline(always)]
    pub fn note_new(&mut self) {
        self.sent_new = true;
    }

    /// Notes how far the sent data uses the window.
    #[inline(always)]
    pub fn settle_new(&mut self) {
        self.sent_new = false;
    }

    /// Something new has left since the use of the window was judged.
    #[inline(always)]
    pub fn has_sent_new(&self) -> bool {
        self.sent_new
    }

    fn switch(&mut self, now_ns: u64, to: Busy) {
        let spent_ns = now_ns.saturating_sub(self.busy_since_ns);
        if let Some(total_ns) = (self.busy as usize)
            .checked_sub(1)
            .and_then(|kind| self.busy_ns.get_mut(kind))
        {
            *total_ns += spent_ns;
        }
        self.busy = to;
        self.busy_since_ns = now_ns;
    }

    /// The activity of the sender.
    pub(crate) fn busy(&self) -> Busy {
        self.busy
    }

    /// Something other than sending takes the time.
    #[inline]
    pub(crate) fn is_held_up(&self) -> bool {
        self.busy > Busy::Sending
    }

    /// Something keeps the sender busy; only what matters more than the present reason changes it.
    #[inline]
    pub fn start(&mut self, now_ns: u64, reason: Busy) {
        if reason > self.busy {
            self.switch(now_ns, reason);
        }
    }

    /// `reason` is over, and something is in flight or waits.
    #[inline]
    pub fn stop(&mut self, now_ns: u64, reason: Busy) {
        if reason == self.busy {
            self.switch(now_ns, Busy::Sending);
        }
    }

    /// Nothing waits and nothing is in flight.
    #[inline]
    pub fn rest(&mut self, now_ns: u64) {
        if self.busy != Busy::Idle {
            self.switch(now_ns, Busy::Idle);
        }
    }

    /// The best recent rate of delivery, in bytes per second, for segments of `mss` bytes.
    pub fn bytes_per_second(&self, mss: u32) -> u64 {
        match self.rate_interval_us {
            0 => 0,
            us => u64::from(self.rate_delivered) * u64::from(mss) * 1_000_000 / u64::from(us),
        }
    }

    /// Time spent busy in all, limited by the peer's window, and by the send buffer, in
    /// nanoseconds.
    pub fn busy_times_ns(&self, now_ns: u64) -> [u64; 3] {
        let mut now = self.clone();
        now.switch(now_ns, self.busy);
        let [sending, window, buffer] = now.busy_ns;
        [sending + window + buffer, window, buffer]
    }
}
