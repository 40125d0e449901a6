//! The ends of records in the send stream (MSG_EOR): sequence numbers that no segment crosses.

use wire::SeqNumber;

use crate::limits::RECORD_ENDS_MAX;

/// Ends of records not yet acknowledged, in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RecordEnds {
    ends: [SeqNumber; RECORD_ENDS_MAX],
    len: u8,
    /// A bit for each end: more data was announced behind it (MSG_MORE), so that it gets no PSH.
    silent: u16,
}

const _: () = assert!(RECORD_ENDS_MAX <= u16::BITS as usize);

impl RecordEnds {
    pub const NONE: RecordEnds = RecordEnds {
        ends: [SeqNumber(0); RECORD_ENDS_MAX],
        len: 0,
        silent: 0,
    };

    fn known(&self) -> &[SeqNumber] {
        &self.ends[..usize::from(self.len)]
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an end behind all others; `is_pushed`: it gets PSH. False: there was no room, so the
    /// end is forgotten and two records become one.
    #[must_use]
    pub fn push(&mut self, end: SeqNumber, is_pushed: bool) -> bool {
        if self.known().last().is_some_and(|last| end.le(*last)) {
            return true;
        }
        let Some(place) = self.ends.get_mut(usize::from(self.len)) else {
            return false;
        };
        *place = end;
        self.silent |= u16::from(!is_pushed) << self.len;
        self.len += 1;
        true
    }

    /// Forgets ends at or before `una`.
    pub fn forget_until(&mut self, una: SeqNumber) {
        let gone = self.known().iter().take_while(|end| end.le(una)).count();
        if gone == usize::from(self.len) {
            *self = Self::NONE;
            return;
        }
        self.ends.copy_within(gone.., 0);
        self.len -= gone as u8;
        self.silent = self.silent.checked_shr(gone as u32).unwrap_or(0);
    }

    /// The first end beyond `seq`.
    pub fn next_after(&self, seq: SeqNumber) -> Option<SeqNumber> {
        self.known().iter().copied().find(|end| end.gt(seq))
    }

    /// True if a record ends at `seq`.
    pub fn contains(&self, seq: SeqNumber) -> bool {
        self.known().contains(&seq)
    }

    /// True if a record ends at `seq` and gets PSH.
    pub fn is_pushed_at(&self, seq: SeqNumber) -> bool {
        let at = self.known().iter().position(|end| *end == seq);
        at.is_some_and(|at| self.silent >> at & 1 == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_found_in_order_and_forgotten_when_acknowledged() {
        let mut ends = RecordEnds::NONE;
        for end in [100, 200, 200, 150, 300] {
            assert!(ends.push(SeqNumber(end), end != 200));
        }
        assert_eq!(ends.next_after(SeqNumber(0)), Some(SeqNumber(100)));
        assert_eq!(ends.next_after(SeqNumber(100)), Some(SeqNumber(200)));
        assert!(ends.is_pushed_at(SeqNumber(100)) && !ends.is_pushed_at(SeqNumber(150)));
        ends.forget_until(SeqNumber(100));
        assert!(!ends.is_pushed_at(SeqNumber(200)) && ends.is_pushed_at(SeqNumber(300)));
        ends.forget_until(SeqNumber(200));
        assert_eq!(ends.next_after(SeqNumber(0)), Some(SeqNumber(300)));
        ends.forget_until(SeqNumber(300));
        assert!(ends.is_empty());
    }

    #[test]
    fn end_without_room_is_forgotten() {
        let mut ends = RecordEnds::NONE;
        for end in 1..=RECORD_ENDS_MAX as u32 + 1 {
            let fits = ends.push(SeqNumber(end), true);
            assert_eq!(fits, end <= RECORD_ENDS_MAX as u32);
        }
        assert_eq!(ends.next_after(SeqNumber(RECORD_ENDS_MAX as u32)), None);
    }
}
