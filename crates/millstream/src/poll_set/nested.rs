//! Polls that watch polls: the inner poll is readable while a wait on it would find an event.
//!
//! An outer poll looks at the inner poll's list of registrations and takes nothing off it. For
//! kernel descriptors, the inner poll's epoll is a member of the outer poll's epoll.

use super::{PollSets, Wanted};

/// Largest number of polls on a path from outermost to innermost, as in Linux (`EP_MAX_NESTS` and
/// one).
const DEPTH_MAX: usize = 5;

/// A poll as a member of another.
pub(crate) struct Nested {
    pub inner: InnerPoll,
    pub wanted: Wanted,
    /// The inner poll's counter of events at the last report.
    pub seen: u64,
    pub fresh: bool,
    pub armed: bool,
}

/// A poll's number and the generation of that number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct InnerPoll {
    pub index: u32,
    pub generation: u32,
}

/// The reason why a poll cannot be a member of another.
pub(crate) enum NestError {
    Exists,
    Loop,
    TooDeep,
}

impl Nested {
    fn new(inner: InnerPoll, wanted: Wanted) -> Self {
        Self {
            inner,
            wanted,
            seen: 0,
            fresh: true,
            armed: true,
        }
    }
}

impl PollSets {
    /// Makes `inner` a member of `outer`.
    pub fn nest(&mut self, outer: u32, inner: u32, wanted: Wanted) -> Result<(), NestError> {
        let inner = self.named(inner);
        if self.nested(outer).iter().any(|one| one.inner == inner) {
            return Err(NestError::Exists);
        }
        if inner.index == outer || self.reaches(inner.index, outer, 0) {
            return Err(NestError::Loop);
        }
        if self.height(inner.index) + self.depth(outer) + 1 > DEPTH_MAX {
            return Err(NestError::TooDeep);
        }
        self.nested_mut(outer).push(Nested::new(inner, wanted));
        Ok(())
    }

    /// Changes a nested poll's registration. False: there is none.
    pub fn renest(&mut self, outer: u32, inner: u32, wanted: Wanted) -> bool {
        let inner = self.named(inner);
        let mut members = self.nested_mut(outer).iter_mut();
        match members.find(|one| one.inner == inner) {
            Some(one) => *one = Nested::new(inner, wanted),
            None => return false,
        }
        true
    }

    /// Removes a nested poll's registration. False: there was none.
    pub fn unnest(&mut self, outer: u32, inner: u32) -> bool {
        let inner = self.named(inner);
        let members = self.nested_mut(outer);
        let place = members.iter().position(|one| one.inner == inner);
        place.map(|place| members.swap_remove(place)).is_some()
    }

    /// Sum of the event counters of a poll and of the polls below it.
    pub fn news_below(&self, poll: u32) -> u64 {
        let members = self.nested(poll).iter();
        let current = members.filter(|one| self.is_current(one.inner));
        current.fold(self.news(poll), |sum, one| {
            sum.wrapping_add(self.news_below(one.inner.index))
        })
    }

    fn reaches(&self, from: u32, to: u32, depth: usize) -> bool {
        let members = self.nested(from).iter();
        depth <= DEPTH_MAX
            && members
                .filter(|one| self.is_current(one.inner))
                .any(|one| one.inner.index == to || self.reaches(one.inner.index, to, depth + 1))
    }

    /// Length of the longest path of polls below this one.
    fn height(&self, poll: u32) -> usize {
        let members = self.nested(poll).iter();
        let below = members
            .filter(|one| self.is_current(one.inner))
            .map(|one| 1 + self.height(one.inner.index));
        below.max().unwrap_or(0)
    }

    /// Length of the longest path of polls above this one.
    fn depth(&self, poll: u32) -> usize {
        let above = (0..self.count()).filter(|&outer| {
            let mut members = self.nested(outer).iter();
            members.any(|one| one.inner.index == poll && self.is_current(one.inner))
        });
        above.map(|outer| 1 + self.depth(outer)).max().unwrap_or(0)
    }
}
