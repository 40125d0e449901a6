//! The delivery rate, sampled for BBR and `TCP_INFO`. Each segment remembers how much was delivered
//! when it was sent; its ACK shows how much was delivered since.
//!
//! This file also divides the sender's time into sending, waiting for the peer's window, and
//! waiting for the send buffer.

use wire::SeqNumber;

use crate::pack::{Packing, Usual};
use crate::records::{Record, tag};
use crate::rtt::micros;

/// A delivery rate sample, taken over the segments that one ACK delivers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateSample {
    /// Segments delivered when the sampled segment was sent; 0 = no sample.
    pub prior_delivered: u32,
    /// Time of the last delivery before the sampled segment was sent, ns.
    pub prior_ns: u64,
    /// Segments delivered since `prior_delivered`; 0: no sample.
    pub segments: u32,
    /// The longer of the times that it took to send these segments and to deliver them, in
    /// microseconds; 0: no valid rate.
    pub interval_us: u32,
    /// The end of the sampled segment, the latest one sent.
    pub last_end: SeqNumber,
    /// True if the segment was sent while the application was the limit.
    pub app_limited: bool,
}

impl RateSample {
    /// True if the sample gives a rate: `segments` in `interval_us`.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.segments > 0 && self.interval_us > 0
    }
}

/// The activity of the sender. A larger value takes precedence.
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

/// Delivery rate, bursts, and the sender's use of time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Delivery {
    /// Time of the last delivery, ns.
    delivered_ns: u64,
    /// Transmission time of the first segment of the sampled flight, ns.
    first_sent_ns: u64,
    /// The application is the limit until `delivered` exceeds this count; 0: it is not.
    app_limited: u32,
    /// The last valid sample: segments, and the microseconds in which they were delivered.
    rate_delivered: u32,
    rate_interval_us: u32,
    rate_app_limited: bool,
    busy: Busy,
    busy_since_ns: u64,
    busy_ns: [u64; 3],
    /// Payload bytes sent, retransmissions included.
    bytes_sent: u64,
    /// Payload bytes retransmitted.
    bytes_retrans: u64,
    /// Time at which a segment of any kind last left, ns; bursts of one turn are a nanosecond
    /// apart.
    last_out_ns: u64,
    /// Segments retransmitted, the SYN included.
    segments_retrans: u32,
    /// Segments that remain of the current burst.
    burst_left: u16,
    /// The current segment is the first of its burst.
    burst_begins: bool,
    /// New data has left since the output last stopped.
    sent_new: bool,
}

const _: () = assert!(size_of::<Delivery>() <= 128);

impl Delivery {
    /// The state before anything is sent.
    pub fn new() -> Self {
        Delivery {
            delivered_ns: 0,
            first_sent_ns: 0,
            app_limited: 0,
            rate_delivered: 0,
            rate_interval_us: 0,
            // The application has not asked for more yet.
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

    /// Notes that a segment leaves at `now_ns`; `goes_on`: it belongs to a burst that has begun. A
    /// turn reads the clock once, but the order of transmission must be visible: RACK would
    /// otherwise take the first of two segments of a turn for lost because the other has arrived
    /// (RFC 8985 6.2).
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

    /// Takes a delivered segment. Of the segments that an ACK delivers, the one sent last is the
    /// sample.
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

    /// Completes the sample of an ACK that delivered `newly` segments. `delivered`: segments
    /// delivered in all; `min_rtt_us`: the least round trip.
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
        // The gaps that the application left in the flight are behind us.
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
        // A shorter interval than the least round trip comes from a segment that was sent twice.
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

    /// Lets the application count as the limit until `delivered` segments have been delivered.
    #[inline]
    pub fn limit_by_application(&mut self, delivered: u32) {
        self.app_limited = delivered.max(1);
    }

    /// True if the application is the limit.
    #[inline(always)]
    pub fn is_app_limited(&self) -> bool {
        self.app_limited != 0
    }

    /// True if the application limited the last valid sample.
    pub fn is_rate_app_limited(&self) -> bool {
        self.rate_app_limited
    }

    /// Time of the last delivery, ns.
    #[inline(always)]
    pub fn delivered_ns(&self) -> u64 {
        self.delivered_ns
    }

    /// Payload bytes sent, retransmissions included.
    #[inline(always)]
    pub fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    /// Payload bytes retransmitted.
    pub fn bytes_retrans(&self) -> u64 {
        self.bytes_retrans
    }

    /// Segments retransmitted, the SYN included.
    pub fn segments_retrans(&self) -> u32 {
        self.segments_retrans
    }

    /// Counts `segments` repetitions of the SYN-ACK before the connection began.
    pub fn begin_retrans(&mut self, segments: u32) {
        self.segments_retrans = segments;
    }

    /// Counts a retransmitted segment.
    pub fn count_segment_retransmitted(&mut self) {
        self.segments_retrans = self.segments_retrans.wrapping_add(1);
    }

    /// Time at which a segment of any kind last left, ns.
    #[inline(always)]
    pub fn last_out_ns(&self) -> u64 {
        self.last_out_ns
    }

    /// Counts `bytes` of payload that leave for the first time.
    #[inline(always)]
    pub fn count_fresh(&mut self, bytes: u32) {
        self.bytes_sent += u64::from(bytes);
    }

    /// Counts `bytes` of payload that are retransmitted.
    #[inline]
    pub fn count_retransmitted(&mut self, bytes: u32) {
        self.bytes_sent += u64::from(bytes);
        self.bytes_retrans += u64::from(bytes);
    }

    /// Begins a segment with payload. True if no burst is in progress, so that this segment may
    /// begin one.
    #[inline(always)]
    pub fn begin_segment(&mut self) -> bool {
        self.burst_begins = self.burst_left == 0;
        self.burst_begins
    }

    /// Begins a burst of `segments` with the current segment. False if it is alone.
    #[inline(always)]
    pub fn begin_burst(&mut self, segments: u32) -> bool {
        let is_burst = segments > 1;
        self.burst_left = match is_burst {
            true => segments.min(u32::from(u16::MAX)) as u16,
            false => 0,
        };
        is_burst
    }

    /// Takes a segment of the burst. True if it was the last.
    #[inline(always)]
    pub fn take_of_burst(&mut self) -> bool {
        self.burst_left -= 1;
        self.burst_left == 0
    }

    /// Takes `segments` more segments of the burst, at most as many as are left.
    #[inline(always)]
    pub fn take_tail(&mut self, segments: u32) {
        self.burst_begins = false;
        self.burst_left -= segments as u16;
    }

    /// Ends the burst, whatever was planned.
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

    /// Notes a segment that leaves outside a burst.
    #[inline(always)]
    pub fn note_lone_out(&mut self, now_ns: u64) {
        self.burst_begins = true;
        self.note_out(now_ns, false);
    }

    /// Notes that new data has left.
    #[inline(always)]
    pub fn note_new(&mut self) {
        self.sent_new = true;
    }

    /// Notes that the use of the window was judged for all new data.
    #[inline(always)]
    pub fn settle_new(&mut self) {
        self.sent_new = false;
    }

    /// True if new data has left since the use of the window was last judged.
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

    /// True if the sender is held up by something other than sending.
    #[inline]
    pub(crate) fn is_held_up(&self) -> bool {
        self.busy > Busy::Sending
    }

    /// Begins a time with this reason, unless the present reason takes precedence.
    #[inline]
    pub fn start(&mut self, now_ns: u64, reason: Busy) {
        if reason > self.busy {
            self.switch(now_ns, reason);
        }
    }

    /// Ends a time with this reason, while something is in flight or waits.
    #[inline]
    pub fn stop(&mut self, now_ns: u64, reason: Busy) {
        if reason == self.busy {
            self.switch(now_ns, Busy::Sending);
        }
    }

    /// Begins a time in which nothing waits and nothing is in flight.
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

    /// Times in nanoseconds: busy in all, limited by the peer's window, limited by the send buffer.
    pub fn busy_times_ns(&self, now_ns: u64) -> [u64; 3] {
        let mut now = self.clone();
        now.switch(now_ns, self.busy);
        let [sending, window, buffer] = now.busy_ns;
        [sending + window + buffer, window, buffer]
    }
}
