//! The wishes of a capture's readers: all frames, or those that a filter selects, each until a
//! given time unless renewed.

use crate::frame_filter::{FrameBytes, FrameFilter, Verdict};
use crate::limits::CAPTURE_FILTERS_MAX;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Wishes {
    /// Time until which all frames are wanted, ns; `None`: no reader wants all.
    all_until_ns: Option<u64>,
    filters: Vec<(FrameFilter, u64)>,
}

impl Wishes {
    /// Adds or renews a wish, and forgets expired ones. At the limit of filters all frames are
    /// logged, and readers filter them.
    pub fn add(&mut self, filter: Option<FrameFilter>, now_ns: u64, until_ns: u64) {
        self.all_until_ns = self.all_until_ns.filter(|end_ns| *end_ns > now_ns);
        self.filters.retain(|(_, end_ns)| *end_ns > now_ns);
        let Some(filter) = filter else {
            self.all_until_ns = self.all_until_ns.max(Some(until_ns));
            return;
        };
        let known = self.filters.iter_mut().find(|(known, _)| *known == filter);
        if let Some((_, end_ns)) = known {
            *end_ns = until_ns.max(*end_ns);
        } else if self.filters.len() < CAPTURE_FILTERS_MAX {
            self.filters.push((filter, until_ns));
        } else {
            self.all_until_ns = self.all_until_ns.max(Some(until_ns));
        }
    }

    /// True if some reader wants a frame of `wire_bytes` bytes, of which `frame` has the first.
    #[inline]
    pub fn want(&self, frame: &(impl FrameBytes + ?Sized), wire_bytes: usize) -> bool {
        self.all_until_ns.is_some()
            || self
                .filters
                .iter()
                .any(|(filter, _)| filter.judge(frame, wire_bytes) == Verdict::Wanted)
    }
}
