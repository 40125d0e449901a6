//! The stories of a few connections: logs of what happened to each, in rings of one pool.
//!
//! ```text
//!   story: connection, last look ──▶ ring of STORY_EVENTS events, the oldest overwritten
//! ```
//!
//! A story is written for one connection in `story_one_in`, and for any that an observer asks
//! about. After each call into such a connection the stack adds the differences to its story. A
//! story outlives its connection until its slot is needed. At the limit ([`STORIES_MAX`]) a
//! sampled connection goes without (`stories_refused`). An observer's request takes the slot of
//! the story that was asked about longest ago.

use ring::socket_block::SocketId;
use tcp::glance::{DueTimer, Episode, Glance};
use wire::FlowKey;

use crate::flows::story_events::{LimitedBy, STORY_WORDS, StoryEvent, StoryLine};
use crate::limits::{STORIES_MAX, STORY_EVENTS, STORY_KEPT_NS};

const _: () = assert!(
    STORIES_MAX < u8::MAX as usize,
    "a slot names its story in a byte"
);

/// See the module's documentation.
pub(crate) struct Stories {
    /// One in this many new connections gets a story; 0: none.
    one_in: u32,
    /// Number of new connections until the next one with a story.
    until_next: u32,
    all: Vec<Story>,
    /// The rings of all stories, one after another.
    events: Vec<[u64; STORY_WORDS]>,
}

/// The story of one connection.
pub(crate) struct Story {
    pub socket: SocketId,
    pub key: FlowKey,
    /// True if the connection has ended, or its story was given up for another.
    pub is_over: bool,
    /// Number of events so far, and thereby the number of the next one.
    pub next: u64,
    pub last: Glance,
    /// The limit that holds the sender back at present, and since when, ns.
    pub limit: Option<(LimitedBy, u64)>,
    /// Time since when our window has kept the peer from sending, ns.
    pub our_window_since_ns: Option<u64>,
    episode_since_ns: u64,
    episode_retransmitted: u32,
    /// Time of the last request for this story, ns; 0: none.
    asked_ns: u64,
}

/// The moment at which the stack looks at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// After a segment, a job or a timer; output may follow.
    Settled,
    /// After output; remaining data is held back by a limit.
    Sent,
}

impl Stories {
    pub fn new(one_in: u32) -> Self {
        Self {
            one_in,
            until_next: one_in,
            all: Vec::with_capacity(STORIES_MAX),
            events: vec![[0; STORY_WORDS]; STORIES_MAX * STORY_EVENTS],
        }
    }

    /// True if the next new connection is one of the sample.
    #[inline]
    pub fn samples_next(&mut self) -> bool {
        if self.one_in == 0 {
            return false;
        }
        self.until_next -= 1;
        let is_sampled = self.until_next == 0;
        if is_sampled {
            self.until_next = self.one_in;
        }
        is_sampled
    }

    /// A slot for a new story; the story there is lost. `None`: no slot may be taken.
    #[cold]
    pub fn slot(&self, now_ns: u64, is_asked_for: bool) -> Option<usize> {
        if self.all.len() < STORIES_MAX {
            return Some(self.all.len());
        }
        let is_free = |story: &Story| {
            let is_forgotten = now_ns.saturating_sub(story.asked_ns) >= STORY_KEPT_NS;
            (story.is_over || is_asked_for) && (is_forgotten || story.asked_ns == 0)
        };
        let free = self.all.iter().enumerate().filter(|(_, one)| is_free(one));
        let oldest = free.min_by_key(|(_, one)| (!one.is_over, one.asked_ns, one.next));
        oldest.map(|(slot, _)| slot)
    }

    /// Begins a story at a slot that [`slot`](Self::slot) returned.
    #[cold]
    pub fn begin(
        &mut self,
        slot: usize,
        socket: SocketId,
        key: FlowKey,
        last: Glance,
        now_ns: u64,
    ) {
        let story = Story {
            socket,
            key,
            is_over: false,
            next: 0,
            last: Glance {
                episode: Episode::None,
                ..last
            },
            limit: None,
            our_window_since_ns: None,
            episode_since_ns: now_ns,
            episode_retransmitted: last.retransmitted,
            asked_ns: 0,
        };
        match self.all.get_mut(slot) {
            Some(held) => *held = story,
            None => self.all.push(story),
        }
        self.add(slot, now_ns, StoryEvent::Begins(last.state));
        self.look(slot, &last, Moment::Sent, now_ns);
    }

    /// The story at a slot.
    pub fn at(&self, slot: usize) -> Option<&Story> {
        self.all.get(slot)
    }

    /// The slot of a story for which `is_it` holds; one that is not over comes first.
    pub fn find(&self, is_it: impl Fn(&Story) -> bool) -> Option<usize> {
        let found = self.all.iter().enumerate().filter(|(_, one)| is_it(one));
        let found = found.min_by_key(|(_, one)| one.is_over);
        found.map(|(slot, _)| slot)
    }

    /// Notes that an observer asked for the story.
    pub fn ask(&mut self, slot: usize, now_ns: u64) {
        if let Some(story) = self.all.get_mut(slot) {
            story.asked_ns = now_ns.max(1);
        }
    }

    /// Ends a story, and limits that hold in it: the connection has left, or the slot is needed.
    #[cold]
    pub fn end(&mut self, slot: usize, now_ns: u64) {
        self.set_limit(slot, None, now_ns);
        self.set_our_window(slot, false, now_ns);
        if let Some(story) = self.all.get_mut(slot) {
            story.is_over = true;
        }
    }

    /// Adds what has changed since the last look at the connection.
    #[cold]
    pub fn look(&mut self, slot: usize, now: &Glance, moment: Moment, now_ns: u64) {
        let Some(story) = self.all.get_mut(slot) else {
            return;
        };
        let last = std::mem::replace(&mut story.last, *now);
        if last.state != now.state {
            let (from, to) = (last.state, now.state);
            self.add(slot, now_ns, StoryEvent::State { from, to });
        }
        if last.episode != now.episode {
            self.change_episode(slot, last.episode, now, now_ns);
        }
        // Before the turn's output only the end of all data certainly ends a limit.
        if moment == Moment::Sent || !now.has_unsent {
            self.set_limit(slot, LimitedBy::of(now.limit), now_ns);
        }
        self.set_our_window(slot, now.is_our_window_full, now_ns);
    }

    fn change_episode(&mut self, slot: usize, before: Episode, now: &Glance, now_ns: u64) {
        let story = &mut self.all[slot];
        let lasted_ns = now_ns.saturating_sub(story.episode_since_ns);
        let retransmitted = now.retransmitted.wrapping_sub(story.episode_retransmitted);
        (story.episode_since_ns, story.episode_retransmitted) = (now_ns, now.retransmitted);
        let (cwnd, episode) = (now.cwnd, now.episode);
        if before != Episode::None {
            let ends = StoryEvent::EpisodeEnds {
                episode: before,
                lasted_ns,
                retransmitted,
                cwnd,
            };
            self.add(slot, now_ns, ends);
        }
        if episode != Episode::None {
            self.add(slot, now_ns, StoryEvent::EpisodeBegins { episode, cwnd });
        }
    }

    fn set_limit(&mut self, slot: usize, limit: Option<LimitedBy>, now_ns: u64) {
        let Some(story) = self.all.get_mut(slot) else {
            return;
        };
        let held = story.limit;
        if held.map(|(by, _)| by) == limit {
            return;
        }
        story.limit = limit.map(|by| (by, now_ns));
        if let Some((by, since_ns)) = held {
            self.add_limited(slot, by, since_ns, now_ns);
        }
    }

    fn set_our_window(&mut self, slot: usize, is_full: bool, now_ns: u64) {
        let Some(story) = self.all.get_mut(slot) else {
            return;
        };
        match (story.our_window_since_ns, is_full) {
            (None, true) => story.our_window_since_ns = Some(now_ns),
            (Some(since_ns), false) => {
                story.our_window_since_ns = None;
                self.add_limited(slot, LimitedBy::OurWindow, since_ns, now_ns);
            }
            _ => {}
        }
    }

    fn add_limited(&mut self, slot: usize, by: LimitedBy, since_ns: u64, now_ns: u64) {
        let lasted_ns = now_ns.saturating_sub(since_ns);
        self.add(slot, since_ns, StoryEvent::Limited { by, lasted_ns });
    }

    /// Adds that a timer has fired.
    #[cold]
    pub fn timer(&mut self, slot: usize, timer: DueTimer, backoff: u8, now_ns: u64) {
        self.add(slot, now_ns, StoryEvent::Timer { timer, backoff });
    }

    /// Adds an event. An event equal to the last one only raises its count.
    fn add(&mut self, slot: usize, at_ns: u64, event: StoryEvent) {
        let Some(story) = self.all.get_mut(slot) else {
            return;
        };
        let ring = &mut self.events[slot * STORY_EVENTS..(slot + 1) * STORY_EVENTS];
        if let Some(newest) = story.next.checked_sub(1) {
            let newest = &mut ring[newest as usize % STORY_EVENTS];
            if let Some(mut line) = StoryLine::from_words(*newest)
                && line.absorb(&event)
            {
                *newest = line.words();
                return;
            }
        }
        let line = StoryLine {
            at_ns,
            count: 1,
            event,
        };
        ring[story.next as usize % STORY_EVENTS] = line.words();
        story.next += 1;
    }

    /// The events of a story from number `since` on, as far as the ring still holds them.
    pub fn events(&self, slot: usize, since: u64) -> impl Iterator<Item = &[u64; STORY_WORDS]> {
        let next = self.all.get(slot).map_or(0, |story| story.next);
        let first = since
            .max(next.saturating_sub(STORY_EVENTS as u64))
            .min(next);
        (first..next).map(move |at| &self.events[slot * STORY_EVENTS + at as usize % STORY_EVENTS])
    }
}
