//! Polls within polls: one is readable while a wait on it would find something.
//!
//! An outer poll looks at the inner one's list of registrations without taking anything off it. Descriptors of the kernel are the kernel's business: the inner
//! poll's epoll is a member of the outer one's.

use crate::poll::{Event, Mode, Token};
use crate::poll_set::{PollSets, Wanted};
use crate::readiness::{self, Readiness};

/// Polls below one another, as in Linux (`EP_MAX_NESTS`, and the outermost).
const DEPTH_MAX: usize = 5;

/// A poll as a member of another.
pub(crate) struct Nested {
    pub inner: InnerPoll,
    pub wanted: Wanted,
    /// How often anything had happened to the inner one's members when it was last told of.
    seen: u64,
    fresh: bool,
    armed: bool,
}

/// A poll and which use of its number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct InnerPoll {
    pub index: u32,
    pub generation: u32,
}

/// Why a poll cannot be a member of another.
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

    /// Changes a membership. False: there is none.
    pub fn renest(&mut self, outer: u32, inner: u32, wanted: Wanted) -> bool {
        let inner = self.named(inner);
        let mut members = self.nested_mut(outer).iter_mut();
        match members.find(|one| one.inner == inner) {
            Some(one) => *one = Nested::new(inner, wanted),
            None => return false,
        }
        true
    }

    /// Ends a membership. False: there was none.
    pub fn unnest(&mut self, outer: u32, inner: u32) -> bool {
        let inner = self.named(inner);
        let members = self.nested_mut(outer);
        let place = members.iter().position(|one| one.inner == inner);
        place.map(|place| members.swap_remove(place)).is_some()
    }

    fn reaches(&self, from: u32, to: u32, depth: usize) -> bool {
        let members = self.nested(from).iter();
        depth <= DEPTH_MAX
            && members
                .filter(|one| self.is_current(one.inner))
                .any(|one| one.inner.index == to || self.reaches(one.inner.index, to, depth + 1))
    }

    /// Polls below this one, at most.
    fn height(&self, poll: u32) -> usize {
        let members = self.nested(poll).iter();
        let below = members
            .filter(|one| self.is_current(one.inner))
            .map(|one| 1 + self.height(one.inner.index));
        below.max().unwrap_or(0)
    }

    /// Polls above this one, at most.
    fn depth(&self, poll: u32) -> usize {
        let above = (0..self.count()).filter(|&outer| {
            let mut members = self.nested(outer).iter();
            members.any(|one| one.inner.index == poll && self.is_current(one.inner))
        });
        above.map(|outer| 1 + self.depth(outer)).max().unwrap_or(0)
    }
}

impl crate::context::State {
    /// Appends an event for each member of `poll` that is a poll and has something, up to `max`.
    pub(crate) fn collect_nested(&mut self, poll: u32, events: &mut Vec<Event>, max: usize) {
        if self.polls.nested(poll).is_empty() {
            return;
        }
        let mut members = std::mem::take(self.polls.nested_mut(poll));
        members.retain(|one| self.polls.is_current(one.inner));
        for one in &mut members {
            if events.len() >= max {
                break;
            }
            let token = one.wanted.token;
            let wants = one.armed && self.is_news(one) && one.wanted.interest.is_readable();
            if !wants || is_told(events, token) || !self.has_something(one.inner.index) {
                continue;
            }
            events.push(Event::new(token, Readiness::READABLE));
            (one.fresh, one.seen) = (false, self.polls.news(one.inner.index));
            one.armed = !one.wanted.one_shot;
        }
        *self.polls.nested_mut(poll) = members;
    }

    /// It is to be told of, if there is anything to tell.
    fn is_news(&self, one: &Nested) -> bool {
        let is_edge = one.wanted.mode == Mode::Edge;
        one.fresh || !is_edge || one.seen != self.polls.news(one.inner.index)
    }

    /// A wait on this poll would find a socket, or a poll that has one.
    pub(crate) fn has_something(&mut self, poll: u32) -> bool {
        for place in 0..self.polls.listed(poll) {
            let Some((at, id)) = self.polls.peek(poll, place) else {
                continue;
            };
            let Some(block) = self.side.memory.block(id.index) else {
                continue;
            };
            let Some(socket) = self.sockets.current(id) else {
                continue;
            };
            let edges = (block.in_edges(), block.out_edges());
            let mut ready = readiness::of(socket, block);
            if !ready.contains(Readiness::WRITABLE) {
                // Asked first, looked at after: room that came before the wish was known is told of by nobody.
                block.set_want_writable();
                ready = readiness::of(socket, block);
            }
            if self.polls.would_tell(at, ready, edges) {
                return true;
            }
        }
        let below: Vec<u32> = {
            let members = self.polls.nested(poll).iter();
            let current = members.filter(|one| {
                let is_wanted = one.wanted.interest.is_readable() && self.is_news(one);
                one.armed && is_wanted && self.polls.is_current(one.inner)
            });
            current.map(|one| one.inner.index).collect()
        };
        below.into_iter().any(|inner| self.has_something(inner))
    }
}

/// The kernel's part of it was told of in this wait already.
fn is_told(events: &[Event], token: Token) -> bool {
    events.iter().any(|event| event.token() == token)
}
