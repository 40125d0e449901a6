//! The two lanes of a port that takes large packets by a lane of their own: which one the segments
//! of a connection leave by.
//!
//! Nothing orders the lanes: the NIC may even have a queue for each. So a connection keeps its lane
//! until the peer has acknowledged everything, and chooses anew before the next segment. Then
//! nothing is left that could be overtaken, except copies of acknowledged segments, which the peer
//! drops. Segments without sequence numbers (ACKs, RSTs) leave by the small frames' lane: a peer
//! takes ACKs in any order. `tcp_out` asks before each burst.

use tcp::pack::Packing;

/// The lane of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lane {
    /// The connection is in the bulk lane.
    is_bulk: bool,
    /// A burst of several segments was to leave since the lane was chosen.
    wants_bulk: bool,
}

impl Lane {
    /// The lane of the next burst; true: the bulk lane. `is_all_acked`: before the burst nothing
    /// was on its way. `is_large`: so much waits that the lane pays.
    ///
    /// A connection that had large bursts since the last choice gets the bulk lane, whatever it
    /// sends then: a short segment may be the head of another long text.
    #[inline]
    pub fn of_burst(&mut self, is_all_acked: bool, is_large: bool) -> bool {
        if is_all_acked {
            self.is_bulk = is_large || self.wants_bulk;
            self.wants_bulk = false;
        }
        self.wants_bulk |= is_large;
        self.is_bulk
    }

    /// Packs what a connection at rest keeps.
    pub fn pack(&mut self, p: &mut impl Packing) {
        p.bool(&mut self.wants_bulk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_at_rest_chooses_by_the_size_of_its_burst() {
        let mut lane = Lane::default();
        assert!(!lane.of_burst(true, false));
        assert!(lane.of_burst(true, true));
        assert!(lane.of_burst(false, false), "the tail follows");
    }

    #[test]
    fn connection_with_segments_on_their_way_stays_in_its_lane() {
        let mut lane = Lane::default();
        assert!(!lane.of_burst(true, false));
        assert!(!lane.of_burst(false, true));
        assert!(!lane.of_burst(false, true));
        assert!(lane.of_burst(true, false), "it wanted the bulk lane");
        assert!(lane.of_burst(false, false));
        assert!(!lane.of_burst(true, false), "and does so no more");
    }
}
