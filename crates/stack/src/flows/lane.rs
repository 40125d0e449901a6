//! The lane by which a connection's segments leave, on a port that takes large packets by a
//! separate bulk lane.
//!
//! The two lanes are not ordered: the NIC may have a queue for each. So a connection keeps its lane
//! until everything is acknowledged, and chooses anew for the next segment. Then only copies of
//! acknowledged segments can be overtaken, which the peer drops. Segments without sequence numbers
//! (ACKs, RSTs) use the small frames' lane, because a peer takes ACKs in any order. `tcp_out` asks
//! before each burst.

use tcp::pack::Packing;

/// The lane of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lane {
    /// True if the connection uses the bulk lane.
    is_bulk: bool,
    /// True if a large burst was due since the lane was chosen.
    wants_bulk: bool,
}

impl Lane {
    /// The lane of the next burst; true: the bulk lane. `is_all_acked`: nothing is in flight before
    /// the burst. `is_large`: enough data waits to make the bulk lane worthwhile.
    ///
    /// A connection with large bursts since the last choice gets the bulk lane even for a short
    /// segment, which may begin another long text.
    #[inline]
    pub fn of_burst(&mut self, is_all_acked: bool, is_large: bool) -> bool {
        if is_all_acked {
            self.is_bulk = is_large || self.wants_bulk;
            self.wants_bulk = false;
        }
        self.wants_bulk |= is_large;
        self.is_bulk
    }

    /// Packs the lane of a quiet connection.
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
