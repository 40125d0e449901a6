//! Sets of sequence numbers as sorted ranges that do not touch.

/// Ranges of offsets from a connection's initial sequence number.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    /// Adds the offsets from `from` up to, but not including, `to`.
    pub fn add(&mut self, from: u32, to: u32) {
        if from >= to {
            return;
        }
        let first = self.0.partition_point(|range| range.1 < from);
        let end = self.0.partition_point(|range| range.0 <= to);
        let (mut low, mut high) = (from, to);
        if first < end {
            low = low.min(self.0[first].0);
            high = high.max(self.0[end - 1].1);
        }
        self.0.splice(first..end, [(low, high)]);
    }

    /// Whether the set contains all offsets from `from` up to `to`.
    pub fn covers(&self, from: u32, to: u32) -> bool {
        let at = self.0.partition_point(|range| range.1 < to);
        self.0
            .get(at)
            .is_some_and(|range| range.0 <= from && to <= range.1)
    }

    /// The end of the range that holds `from`; `from` itself if none does.
    pub fn end_from(&self, from: u32) -> u32 {
        let at = self.0.partition_point(|range| range.1 < from);
        match self.0.get(at) {
            Some(range) if range.0 <= from => range.1,
            _ => from,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_together() {
        let mut ranges = Ranges::default();
        ranges.add(10, 20);
        ranges.add(30, 40);
        assert!(ranges.covers(12, 20) && !ranges.covers(12, 21));
        ranges.add(20, 30);
        assert!(ranges.covers(10, 40));
        assert_eq!(ranges.end_from(10), 40);
        assert_eq!(ranges.end_from(9), 9);
        ranges.add(0, 100);
        assert_eq!(ranges.0, [(0, 100)]);
    }
}
