//! The use of a stack's time, and the sizes of its batches: histograms in powers of two. The stack
//! writes them once per turn, its observer reads them.

/// Histograms and sums of a stack's time and batches.
#[derive(Clone, Debug)]
pub struct Activity {
    /// Time from the begin of each turn with work to the begin of the next, in ns. The
    /// application's time between the two is included.
    pub busy_ns: u64,
    /// Time of turns that found no work, up to the begin of the next turn, in ns. Turns before a
    /// sleep count in `asleep_ns`.
    pub spun_ns: u64,
    /// Time asleep, in ns, including the turn without work that came before the sleep.
    pub asleep_ns: u64,
    /// Frames that a turn received.
    pub rx_batch: Histogram,
    /// Frames that a turn sent.
    pub tx_batch: Histogram,
    /// Jobs of the application that a turn took.
    pub job_batch: Histogram,
    /// Events that a turn published to the application.
    pub event_batch: Histogram,
    /// Lengths of turns, in ns. Only some turns are measured.
    pub turn_ns: Histogram,
    /// Times that connections waited in accept queues, in ns. The turn after the accept records
    /// them.
    pub accept_ns: Histogram,
    /// Smoothed round-trip times of active connections, in ns. Each look of an observer samples a
    /// few.
    pub round_trip_ns: Histogram,
    began_ns: u64,
    last: Last,
}

/// The work of one turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Batch {
    /// Frames that the turn received.
    pub received: usize,
    /// Frames that the turn sent.
    pub sent: usize,
    pub jobs: usize,
    pub events: usize,
}

impl Batch {
    /// True if the turn had work.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.received + self.jobs + self.sent + self.events > 0
    }
}

/// The activity to which the next turn charges the time that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Busy,
    Spun,
    Asleep,
}

/// Bucket *n* counts values below 2^*n*, from 2^(*n*-1) on.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// Values in each bucket.
    pub buckets: [u64; HISTOGRAM_BUCKETS],
    /// The sum of all values.
    pub sum: u64,
}

/// Buckets of a histogram: one for zero, and one for each bit.
pub const HISTOGRAM_BUCKETS: usize = 40;

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: [0; HISTOGRAM_BUCKETS],
            sum: 0,
        }
    }
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        let bits = (u64::BITS - value.leading_zeros()) as usize;
        self.buckets[bits.min(HISTOGRAM_BUCKETS - 1)] += 1;
        self.sum = self.sum.wrapping_add(value);
    }
}

impl Activity {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self {
            busy_ns: 0,
            spun_ns: 0,
            asleep_ns: 0,
            rx_batch: Histogram::default(),
            tx_batch: Histogram::default(),
            job_batch: Histogram::default(),
            event_batch: Histogram::default(),
            turn_ns: Histogram::default(),
            accept_ns: Histogram::default(),
            round_trip_ns: Histogram::default(),
            began_ns: now_ns,
            last: Last::Spun,
        }
    }

    #[inline]
    pub(crate) fn begin(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.began_ns);
        self.began_ns = now_ns;
        match self.last {
            Last::Busy => self.busy_ns += passed_ns,
            Last::Spun => self.spun_ns += passed_ns,
            Last::Asleep => self.asleep_ns += passed_ns,
        }
    }

    /// Ends a turn: records its batch, and whether it had work.
    #[inline]
    pub(crate) fn end(&mut self, batch: Batch) {
        let busy = batch.is_busy();
        self.last = if busy { Last::Busy } else { Last::Spun };
        if busy {
            self.rx_batch.add(batch.received as u64);
            self.tx_batch.add(batch.sent as u64);
            self.job_batch.add(batch.jobs as u64);
            self.event_batch.add(batch.events as u64);
        }
    }

    pub(crate) fn sleeps(&mut self) {
        self.last = Last::Asleep;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_to_what_came_before() {
        let mut activity = Activity::new(0);
        activity.begin(10);
        activity.end(Batch {
            received: 5,
            events: 2,
            ..Batch::default()
        });
        activity.begin(30);
        activity.end(Batch::default());
        activity.sleeps();
        activity.begin(100);
        let times = [activity.busy_ns, activity.spun_ns, activity.asleep_ns];
        assert_eq!(times, [20, 10, 70]);
        assert_eq!(
            (activity.rx_batch.buckets[3], activity.rx_batch.sum),
            (1, 5)
        );
        assert_eq!(activity.tx_batch.buckets[0], 1);
        assert_eq!(activity.job_batch.buckets[0], 1);
        assert_eq!(
            (activity.event_batch.buckets[2], activity.event_batch.sum),
            (1, 2)
        );
    }
}
