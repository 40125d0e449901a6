//! RACK: a segment is lost when one that was sent later has arrived, and the time that reordering may take
//! has passed (RFC 8985 6, with Linux's choices).

use wire::SeqNumber;

use super::records::Record;
use crate::pack::{Packing, Usual};

/// What RACK remembers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rack {
    /// When the latest sent of the delivered segments was sent.
    pub sent_ns: u64,
    /// Where it ends.
    pub end: SeqNumber,
    /// The round trip of the latest delivery.
    pub rtt_us: u32,
    /// Segments delivered when the reordering window was last widened.
    pub last_delivered: u32,
    /// The reordering window in quarters of the least round trip.
    pub steps: u8,
    /// Recoveries for which a widened window still holds.
    pub persist: u8,
    /// Something was delivered since losses were last looked for.
    pub advanced: bool,
    /// A D-SACK arrived that reordering may explain.
    pub dsack_seen: bool,
}

impl Rack {
    /// Nothing delivered yet.
    pub fn new(una: SeqNumber) -> Self {
        Rack {
            sent_ns: 0,
            end: una,
            rtt_us: 0,
            last_delivered: 0,
            steps: 1,
            persist: 0,
            advanced: false,
            dsack_seen: false,
        }
    }

    pub fn pack(&mut self, p: &mut impl Packing, delivered: u32, usual: &Usual) {
        let Rack {
            sent_ns,
            end,
            rtt_us,
            last_delivered,
            steps,
            persist,
            advanced,
            dsack_seen,
        } = self;
        let was_used = delivered > 1;
        p.u64(sent_ns, if was_used { usual.now_ns } else { 0 });
        p.seq(end, usual.una);
        p.u32(rtt_us, 0);
        p.u32(last_delivered, 0);
        p.u8(steps, 1);
        p.u8(persist, 0);
        p.bool(advanced);
        p.bool(dsack_seen);
    }

    /// The latest delivered segment was sent after `record` was. Only segments of one burst were sent at the same moment (`Delivery::note_out`).
    #[inline]
    pub(crate) fn is_after(&self, record: &Record) -> bool {
        if self.sent_ns != record.sent_ns {
            return self.sent_ns > record.sent_ns;
        }
        self.end.gt(record.end)
    }
}

/// Since the record was sent, by a clock of microseconds: bursts of one turn, which are a nanosecond apart, have one age.
#[inline]
pub(crate) fn age_us(now_ns: u64, record: &Record) -> u32 {
    let age_us = (now_ns / 1000).saturating_sub(record.sent_ns / 1000);
    u32::try_from(age_us).unwrap_or(u32::MAX)
}
