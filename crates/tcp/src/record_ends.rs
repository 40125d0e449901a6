//! Where the application ended records in the send stream (MSG_EOR): sequence numbers that no segment passes.

use wire::SeqNumber;

use crate::limits::RECORD_ENDS_MAX;

/// Ends of records not yet acknowledged, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordEnds {
    ends: [SeqNumber; RECORD_ENDS_MAX],
    len: u8,
}

impl RecordEnds {
    pub const NONE: RecordEnds = RecordEnds {
        ends: [SeqNumber(0); RECORD_ENDS_MAX],
        len: 0,
    };

    fn known(&self) -> &[SeqNumber] {
        &self.ends[..usize::from(self.len)]
    }

    /// None was ever added.
    pub fn is_untouched(&self) -> bool {
        self.len == 0 && self.ends[0] == SeqNumber(0)
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an end behind all others; without room it is forgotten, and two records become one.
    pub fn push(&mut self, end: SeqNumber) {
        let is_new = self.known().last().is_none_or(|last| end.gt(*last));
        if is_new && let Some(place) = self.ends.get_mut(usize::from(self.len)) {
            *place = end;
            self.len += 1;
        }
    }

    /// Forgets ends at or before `una`.
    pub fn forget_until(&mut self, una: SeqNumber) {
        let gone = self.known().iter().take_while(|end| end.le(una)).count();
        self.ends.copy_within(gone.., 0);
        self.len -= gone as u8;
    }

    /// The first end beyond `seq`.
    pub fn next_after(&self, seq: SeqNumber) -> Option<SeqNumber> {
        self.known().iter().copied().find(|end| end.gt(seq))
    }

    pub fn contains(&self, seq: SeqNumber) -> bool {
        self.known().contains(&seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_found_in_order_and_forgotten_when_acknowledged() {
        let mut ends = RecordEnds::NONE;
        for end in [100, 200, 200, 150, 300] {
            ends.push(SeqNumber(end));
        }
        assert_eq!(ends.next_after(SeqNumber(0)), Some(SeqNumber(100)));
        assert_eq!(ends.next_after(SeqNumber(100)), Some(SeqNumber(200)));
        assert!(ends.contains(SeqNumber(300)) && !ends.contains(SeqNumber(150)));
        ends.forget_until(SeqNumber(200));
        assert_eq!(ends.next_after(SeqNumber(0)), Some(SeqNumber(300)));
        ends.forget_until(SeqNumber(300));
        assert!(ends.is_empty());
    }

    #[test]
    fn end_without_room_is_forgotten() {
        let mut ends = RecordEnds::NONE;
        for end in 1..=RECORD_ENDS_MAX as u32 + 1 {
            ends.push(SeqNumber(end));
        }
        assert_eq!(ends.next_after(SeqNumber(RECORD_ENDS_MAX as u32)), None);
    }
}
