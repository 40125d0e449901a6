//! The partial segments that wait: Nagle's algorithm in Minshall's variant, the cork, records and
//! urgent data.

use wire::SeqNumber;

use crate::marks::Marks;
use crate::send::Sender;
use crate::variables::Snd;

impl Sender {
    /// Bytes from SND.NXT to the end of the record that it is in.
    #[inline]
    pub(crate) fn record_room(&self, marks: Marks, snd: &Snd) -> u32 {
        if !marks.has(Marks::RECORDS) {
            return u32::MAX;
        }
        let end = self.record_ends.next_after(snd.nxt());
        end.map_or(u32::MAX, |end| end.since(snd.nxt()))
    }

    /// The application ended a record before `seq` (MSG_EOR): no segment goes on there.
    pub(crate) fn ends_record(&self, seq: SeqNumber, marks: Marks) -> bool {
        marks.has(Marks::RECORDS) && self.record_ends.contains(seq)
    }

    /// A partial segment waits: a small one is in flight already (Minshall), or the cork is in.
    pub(crate) fn held_by_nagle(&self, marks: Marks, snd: &Snd) -> bool {
        self.is_small_held(marks, snd) && !self.is_urgent(marks)
    }

    fn is_small_held(&self, marks: Marks, snd: &Snd) -> bool {
        if marks.any(Marks::CORK | Marks::MORE) {
            return true;
        }
        if marks.has(Marks::NODELAY) {
            return false;
        }
        self.small_end.gt(snd.una()) && self.small_end.le(snd.nxt())
    }

    /// Something urgent is not acknowledged yet: nothing waits for the end of a segment meanwhile
    /// (Linux).
    pub(crate) fn is_urgent(&self, marks: Marks) -> bool {
        marks.has(Marks::RECORDS) && self.urgent_out.is_some()
    }
}
