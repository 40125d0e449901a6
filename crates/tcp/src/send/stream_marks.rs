//! Marks that the application set in the send stream: the ends of records (MSG_EOR), which no
//! segment crosses, and the end of urgent data (MSG_OOB). `ConnFlags::RECORDS` says whether there
//! are any.

use wire::SeqNumber;
use wire::tcp::Flags;

use crate::conn_flags::ConnFlags;
use crate::records::{Index, RecordPool, tag};
use crate::segment::SegmentOut;
use crate::send::Sender;
use crate::variables::Snd;

impl Sender {
    /// Forgets marks in the acknowledged part of the stream. 2^31 bytes later they would seem to
    /// lie ahead of SND.UNA.
    #[cold]
    pub(crate) fn forget_stream_marks(&mut self, conn_flags: &mut ConnFlags, snd: &Snd) {
        let una = snd.una();
        self.record_ends.forget_until(una);
        self.urgent_out = self.urgent_out.filter(|end| end.gt(una));
        self.note_stream_marks(conn_flags);
    }

    /// Ends a record `offset` bytes behind SND.UNA. False: there was no room, and this end is
    /// forgotten.
    pub(crate) fn end_record(
        &mut self,
        offset: u32,
        conn_flags: &mut ConnFlags,
        snd: &Snd,
    ) -> bool {
        let mut fits = true;
        if offset > 0 && offset <= snd.buffered() {
            // Linux sets no PSH on data that was announced to continue.
            let is_last = offset == snd.buffered();
            let is_pushed = !is_last || conn_flags.any(ConnFlags::PUSH_AT_END);
            fits = self.record_ends.push(snd.una() + offset, is_pushed);
        }
        self.note_stream_marks(conn_flags);
        fits
    }

    /// Marks the urgent data that ends before `end`.
    pub(crate) fn mark_urgent(&mut self, end: SeqNumber, conn_flags: &mut ConnFlags) {
        self.urgent_out = Some(end);
        conn_flags.set(ConnFlags::RECORDS);
    }

    fn note_stream_marks(&self, conn_flags: &mut ConnFlags) {
        let is_marked = !self.record_ends.is_empty() || self.urgent_out.is_some();
        conn_flags.put(ConnFlags::RECORDS, is_marked);
    }

    /// True if the next `len` bytes end with PSH for a reason other than their burst.
    #[inline]
    pub(crate) fn is_fresh_pushed(&self, len: u32, conn_flags: ConnFlags, snd: &Snd) -> bool {
        let ends_buffer = snd.flight() + len == snd.buffered();
        (ends_buffer && conn_flags.any(ConnFlags::PUSH_AT_END))
            || self.is_pushed_record(snd.nxt() + len, conn_flags)
            || conn_flags.is_pushed_probe()
    }

    #[inline]
    fn is_pushed_record(&self, end: SeqNumber, conn_flags: ConnFlags) -> bool {
        conn_flags.has(ConnFlags::RECORDS) && self.record_ends.is_pushed_at(end)
    }

    /// Sets the urgent pointer of segments that begin before the last urgent byte. As in Linux it
    /// points behind that byte.
    #[cold]
    pub(crate) fn point_to_urgent(&self, out: &mut SegmentOut, snd: &Snd) {
        let Some(end) = self.urgent_out else {
            return;
        };
        if !out.seq.lt(end) {
            return;
        }
        let ahead = end.since(out.seq);
        let reach = u32::from(u16::MAX);
        // An end out of the field's reach is announced as the largest value, unless sent data lies
        // there.
        if ahead <= reach || (out.seq + reach).gt(snd.nxt()) {
            out.urgent = ahead.min(reach) as u16;
            out.flags |= Flags::URG;
        }
    }

    /// Payload length and FIN of the retransmission of a small segment, together with small
    /// segments behind it that fit.
    pub(crate) fn with_neighbours(
        &self,
        records: &RecordPool,
        at: Index,
        len: u32,
        room: u32,
        conn_flags: ConnFlags,
    ) -> (u32, bool) {
        let mut len = len;
        let mut at = records.next(at);
        while let Some(next) = records.get(at) {
            let fits = len + next.payload() <= room && !self.ends_record(next.seq, conn_flags);
            if next.count() > 1 || next.has(tag::SACKED) || !fits {
                break;
            }
            len += next.payload();
            if next.has(tag::FIN) {
                return (len, true);
            }
            at = records.next(at);
        }
        (len, false)
    }
}
