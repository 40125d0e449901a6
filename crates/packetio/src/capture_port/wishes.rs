//! The wishes of a capture's readers: all frames, or those that some filters take, each until a
//! time unless it asks again.

use crate::frame_filter::{FrameFilter, Verdict};
use crate::limits::{CAPTURE_FILTERS_MAX, FILTER_HEAD_BYTES};

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Wishes {
    /// Until when all frames are wanted.
    all_until_ns: Option<u64>,
    filters: Vec<(FrameFilter, u64)>,
}

impl Wishes {
    /// Adds a wish or prolongs it, and forgets those that are over. At the limit of filters all
    /// frames are wanted, and readers filter them.
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

    /// Whether somebody wants a frame of `bytes` bytes. `copy` puts the first of them into
    /// `scratch` and says how many.
    pub fn want(
        &self,
        bytes: usize,
        scratch: &mut [u8],
        copy: &impl Fn(&mut [u8]) -> usize,
    ) -> bool {
        if self.all_until_ns.is_some() {
            return true;
        }
        let head = scratch.len().min(FILTER_HEAD_BYTES);
        let mut held = copy(&mut scratch[..head]);
        self.filters.iter().any(|(filter, _)| {
            let mut verdict = filter.judge(&scratch[..held], bytes);
            if verdict == Verdict::Beyond && held < bytes.min(scratch.len()) {
                held = copy(scratch);
                verdict = filter.judge(&scratch[..held], bytes);
            }
            verdict == Verdict::Wanted
        })
    }
}
