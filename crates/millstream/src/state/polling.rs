//! The work of a poll's wait: looks at the registrations on its list and at the polls within it.

use ring::socket_block::{SocketBlock, SocketId};

use super::{State, readiness_or_want};
use crate::app_socket::AppSocket;
use crate::event::{Event, Mode, Readiness, Token};
use crate::interleaving::point;
use crate::limits::{EVENTS_PER_WAIT_FEW, EVENTS_PER_WAIT_MANY};
use crate::poll_set::{Nested, PollSets};
use crate::readiness;

impl State {
    /// Number of registrations on a poll's list that one wait reports. `is_whole`: all. A wait
    /// whose own turn brought nothing asks for all, since nothing more is coming. So does a program
    /// that polls now and then (decision 0062).
    pub(crate) fn share_of_events(&self, poll: u32, is_whole: bool) -> usize {
        let listed = self.polls.listed(poll);
        match is_whole || listed >= EVENTS_PER_WAIT_MANY {
            true => listed,
            false => (listed / 4).max(EVENTS_PER_WAIT_FEW),
        }
    }

    /// Looks once at each registration on a poll's list and appends up to `max` events to `events`.
    pub(crate) fn collect(&mut self, poll: u32, events: &mut Vec<Event>, max: usize) {
        let mut budget = self.polls.listed(poll);
        let has_refused = !self.refused.is_empty() || self.cut_short.is_some();
        self.writers_share = budget >= EVENTS_PER_WAIT_MANY;
        self.share = None;
        if has_refused {
            self.collect_refused(poll, events, max);
        }
        while events.len() < max
            && let Some((at, id)) = self.polls.next_ready(poll, &mut budget)
        {
            if has_refused && self.polls.was_looked_at(at) {
                self.polls.list(at);
                continue;
            }
            if let Some(socket) = self.sockets.current(id)
                && let Some(block) = self.side.memory.block(id.index)
            {
                poll_socket(&mut self.polls, at, (socket, block), events);
            }
        }
    }

    /// Looks first at writers that found no chunk, then at the one that was cut short. At the end
    /// of the list they would come after all those that wrote in their place. Some would then never
    /// find a chunk of a turn (decision 0035).
    #[cold]
    fn collect_refused(&mut self, poll: u32, events: &mut Vec<Event>, max: usize) {
        self.polls.begin_round(poll);
        let mut refused = std::mem::take(&mut self.refused);
        refused.retain(|&id| self.collect_writer(poll, id, events, max));
        self.refused = refused;
        if let Some(id) = self.cut_short.take()
            && self.collect_writer(poll, id, events, max)
        {
            self.cut_short = Some(id);
        }
    }

    /// Looks at a writer before the others. True if the writer still waits.
    fn collect_writer(
        &mut self,
        poll: u32,
        id: SocketId,
        events: &mut Vec<Event>,
        max: usize,
    ) -> bool {
        let told = events.len();
        let Some(first) = self.sockets.current(id).map(|socket| socket.registrations) else {
            return false;
        };
        if told >= max {
            return true;
        }
        let (sockets, memory) = (&mut self.sockets, &self.side.memory);
        let is_asked = self.polls.look_first(poll, first, |polls, at| {
            if let Some(socket) = sockets.current(id)
                && let Some(block) = memory.block(id.index)
            {
                poll_socket(polls, at, (socket, block), events);
            }
        });
        is_asked && events.len() == told
    }
}

/// Looks at the socket of a registration that was taken off its poll's list.
#[inline]
fn poll_socket(
    polls: &mut PollSets,
    at: u32,
    (socket, block): (&mut AppSocket, &SocketBlock),
    events: &mut Vec<Event>,
) {
    if !readiness::may_be_any(socket, block) {
        return;
    }
    // Read edges before readiness: an edge in between is then reported once more, not lost.
    let (in_edges, out_edges) = (block.in_edges(), block.out_edges());
    point();
    let ready = readiness::of(socket, block);
    point();
    let verdict = polls.judge(at, ready, in_edges, out_edges);
    if let Some(event) = verdict.event {
        events.push(event);
    }
    let is_room = || {
        readiness::of(socket, block)
            .contains(Readiness::WRITABLE)
            .then_some(())
    };
    if verdict.waits_for_room && block.look_or_want(is_room).is_some() {
        polls.list(at);
    }
}

impl State {
    /// Appends events for the ready polls among the members of `poll`, up to `max`.
    pub(crate) fn collect_nested(&mut self, poll: u32, events: &mut Vec<Event>, max: usize) {
        let mut members = std::mem::take(self.polls.nested_mut(poll));
        members.retain(|one| self.polls.is_current(one.inner));
        for one in &mut members {
            if events.len() >= max {
                break;
            }
            let token = one.wanted.token;
            point();
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

    /// True if a nested poll with something to report is to be reported.
    fn is_news(&self, one: &Nested) -> bool {
        let is_edge = one.wanted.mode == Mode::Edge;
        one.fresh || !is_edge || one.seen != self.polls.news(one.inner.index)
    }

    /// True if a wait on this poll would find a socket, or a nested poll that would.
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
            point();
            let ready = readiness_or_want(socket, block);
            point();
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

/// True if this wait has already reported the nested poll for its kernel descriptors.
fn is_told(events: &[Event], token: Token) -> bool {
    events.iter().any(|event| event.token() == token)
}
