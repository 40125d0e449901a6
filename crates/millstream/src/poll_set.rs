//! The registrations of sockets with polls, and for each poll the list of those to look at.
//!
//! ```text
//!   socket ──▶ registration ──▶ registration ──▶ (none)      one per poll that watches it
//!                   │                │
//!                 poll 0           poll 2
//!                 ready: 7 3       ready:                     each registration at most once
//! ```
//!
//! A socket's event puts its registrations on their polls' lists. A wait takes registrations off
//! the list and reads their sockets' state. Level-triggered ones that are still ready stay listed.
//! Edge-triggered ones remember the socket's edge counters, so an edge is reported exactly once.

use std::collections::VecDeque;

use ring::socket_block::SocketId;

use crate::app_socket::{AppSockets, NO_REGISTRATION};
use crate::event::{Event, Interest, Mode, Readiness, Token};

mod nested;

pub(crate) use nested::{InnerPoll, NestError, Nested};

/// Token, interest and mode of a registration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub token: Token,
    pub interest: Interest,
    pub mode: Mode,
    pub one_shot: bool,
    /// The readiness bits that are reported, computed from `interest`.
    told: Readiness,
}

impl Wanted {
    pub const fn new(token: Token, interest: Interest, mode: Mode, one_shot: bool) -> Self {
        Self {
            token,
            interest,
            mode,
            one_shot,
            told: reportable(interest),
        }
    }
}

const _: () = assert!(size_of::<Registration>() == 48);

struct Registration {
    poll: u32,
    socket: SocketId,
    wanted: Wanted,
    /// Next registration of the same socket.
    next: u32,
    in_edges_seen: u32,
    out_edges_seen: u32,
    /// The round (`PollState::round`) in which [`PollSets::look_first`] looked at this
    /// registration.
    looked_first: u32,
    /// Not reported since it was made or changed: any readiness is news.
    fresh: bool,
    /// False after the report of a one-shot registration.
    armed: bool,
    /// The registration is on its poll's list.
    listed: bool,
    /// Removed while listed; freed when a wait reaches it.
    dead: bool,
}

impl Registration {
    /// True if edges have come since the last report. A change of state counts as an edge both
    /// ways, arriving bytes only as one in, room only as one out.
    fn is_news(&self, in_edges: u32, out_edges: u32) -> bool {
        let interest = self.wanted.interest;
        self.fresh
            || (interest.looks_in() && self.in_edges_seen != in_edges)
            || (interest.is_writable() && self.out_edges_seen != out_edges)
    }
}

#[derive(Default)]
struct PollState {
    ready: VecDeque<u32>,
    members: usize,
    open: bool,
    /// Number of times that this poll's number was used.
    generation: u32,
    /// Number of events at members. An outer poll compares it to find news.
    news: u64,
    /// Number of the last wait that looked at some registrations before the others.
    round: u32,
    /// Members that are polls themselves.
    nested: Vec<Nested>,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct PollSets {
    registrations: Vec<Registration>,
    free: Vec<u32>,
    polls: Vec<PollState>,
}

impl PollSets {
    /// A new poll's number.
    pub fn open_poll(&mut self) -> u32 {
        let fresh = PollState {
            open: true,
            ..PollState::default()
        };
        match self
            .polls
            .iter()
            .position(|poll| !poll.open && poll.members == 0)
        {
            Some(index) => {
                let generation = self.polls[index].generation.wrapping_add(1);
                self.polls[index] = PollState {
                    generation,
                    ..fresh
                };
                index as u32
            }
            None => {
                self.polls.push(fresh);
                self.polls.len() as u32 - 1
            }
        }
    }

    /// Closes a poll. Its registrations are taken out of their sockets' lists.
    pub fn close_poll(&mut self, poll: u32, sockets: &mut AppSockets) {
        for at in 0..self.registrations.len() as u32 {
            let registration = &self.registrations[at as usize];
            if registration.poll == poll
                && !registration.dead
                && registration.socket != SocketId::default()
            {
                let socket = registration.socket;
                self.remove(poll, socket, None, sockets);
            }
        }
        let state = &mut self.polls[poll as usize];
        for at in std::mem::take(&mut state.ready) {
            self.registrations[at as usize].listed = false;
            if self.registrations[at as usize].dead {
                self.recycle(at);
            }
        }
        self.polls[poll as usize].open = false;
        self.polls[poll as usize].nested.clear();
    }

    pub fn count(&self) -> u32 {
        self.polls.len() as u32
    }

    /// The poll with the generation of its number.
    pub fn named(&self, poll: u32) -> InnerPoll {
        InnerPoll {
            index: poll,
            generation: self.polls[poll as usize].generation,
        }
    }

    /// True if the poll is still open.
    pub fn is_current(&self, inner: InnerPoll) -> bool {
        let poll = &self.polls[inner.index as usize];
        poll.open && poll.generation == inner.generation
    }

    /// True if members of the poll are polls.
    #[inline]
    pub fn has_nested(&self, poll: u32) -> bool {
        !self.polls[poll as usize].nested.is_empty()
    }

    pub fn nested(&self, poll: u32) -> &[Nested] {
        &self.polls[poll as usize].nested
    }

    pub fn nested_mut(&mut self, poll: u32) -> &mut Vec<Nested> {
        &mut self.polls[poll as usize].nested
    }

    /// Counter of events at a poll's members.
    pub fn news(&self, poll: u32) -> u64 {
        self.polls[poll as usize].news
    }

    /// The registration at a place of a poll's list, left there; `None` if it has nothing to
    /// report.
    pub fn peek(&self, poll: u32, place: usize) -> Option<(u32, SocketId)> {
        let at = *self.polls[poll as usize].ready.get(place)?;
        let registration = &self.registrations[at as usize];
        let is_told = !registration.dead && registration.armed;
        is_told.then_some((at, registration.socket))
    }

    /// True if [`judge`](Self::judge) would report an event, given readiness and edge counters (in,
    /// out).
    pub fn would_tell(&self, at: u32, ready: Readiness, edges: (u32, u32)) -> bool {
        let registration = &self.registrations[at as usize];
        let got = ready.intersection(registration.wanted.told);
        !got.is_empty()
            && (registration.wanted.mode == Mode::Level || registration.is_news(edges.0, edges.1))
    }

    /// Adds a registration. False: this poll watches the socket already, under `name` if there is
    /// one.
    pub fn add(
        &mut self,
        poll: u32,
        socket: SocketId,
        name: Option<Token>,
        wanted: Wanted,
        sockets: &mut AppSockets,
    ) -> bool {
        if self.find(poll, socket, name, sockets).is_some() {
            return false;
        }
        let first = &mut sockets.at(socket).registrations;
        let registration = Registration {
            poll,
            socket,
            wanted,
            next: *first,
            in_edges_seen: 0,
            out_edges_seen: 0,
            looked_first: 0,
            fresh: true,
            armed: true,
            listed: false,
            dead: false,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.registrations[at as usize] = registration;
                at
            }
            None => {
                self.registrations.push(registration);
                self.registrations.len() as u32 - 1
            }
        };
        *first = at;
        self.polls[poll as usize].members += 1;
        self.stir(at);
        true
    }

    /// Changes a registration and arms it again. False: there is none.
    pub fn change(
        &mut self,
        poll: u32,
        socket: SocketId,
        name: Option<Token>,
        wanted: Wanted,
        sockets: &mut AppSockets,
    ) -> bool {
        let Some(at) = self.find(poll, socket, name, sockets) else {
            return false;
        };
        let registration = &mut self.registrations[at as usize];
        registration.wanted = wanted;
        registration.fresh = true;
        registration.armed = true;
        self.stir(at);
        true
    }

    /// Takes a registration out. False: there is none.
    pub fn remove(
        &mut self,
        poll: u32,
        socket: SocketId,
        name: Option<Token>,
        sockets: &mut AppSockets,
    ) -> bool {
        let Some(at) = self.find(poll, socket, name, sockets) else {
            return false;
        };
        let next = self.registrations[at as usize].next;
        let first = &mut sockets.at(socket).registrations;
        if *first == at {
            *first = next;
        } else {
            let mut before = *first;
            while self.registrations[before as usize].next != at {
                before = self.registrations[before as usize].next;
            }
            self.registrations[before as usize].next = next;
        }
        self.discard(at);
        true
    }

    /// Removes all registrations of a closed socket, as Linux does.
    pub fn forget_socket(&mut self, first: u32) {
        let mut at = first;
        while at != NO_REGISTRATION {
            let next = self.registrations[at as usize].next;
            self.discard(at);
            at = next;
        }
    }

    /// Lists a socket's registrations after an event, so that their polls look at it.
    #[inline]
    pub fn socket_changed(&mut self, first: u32) {
        let mut at = first;
        while at != NO_REGISTRATION {
            at = self.stir(at);
        }
    }

    /// Lists a socket's registrations after the application changed its state. The change is news
    /// also for edge-triggered ones, as `shutdown` is in Linux.
    pub fn state_changed(&mut self, first: u32) {
        let mut at = first;
        while at != NO_REGISTRATION {
            self.registrations[at as usize].fresh = true;
            at = self.stir(at);
        }
    }

    /// Lists a socket's registrations after the application changed what counts as readable. This
    /// is news only for those that ask to read.
    pub fn input_changed(&mut self, first: u32) {
        let mut at = first;
        while at != NO_REGISTRATION {
            let registration = &mut self.registrations[at as usize];
            registration.fresh |= registration.wanted.interest.is_readable();
            at = self.stir(at);
        }
    }

    /// Takes the next registration off the list; `None` after `budget` of them.
    #[inline]
    pub fn next_ready(&mut self, poll: u32, budget: &mut usize) -> Option<(u32, SocketId)> {
        while *budget > 0 {
            *budget -= 1;
            let at = self.polls[poll as usize].ready.pop_front()?;
            let registration = &mut self.registrations[at as usize];
            registration.listed = false;
            if registration.dead {
                self.recycle(at);
            } else if registration.armed {
                return Some((at, registration.socket));
            }
        }
        None
    }

    /// Begins a round in which some of a poll's registrations are looked at before the others.
    pub fn begin_round(&mut self, poll: u32) {
        let round = &mut self.polls[poll as usize].round;
        *round = round.wrapping_add(1);
    }

    /// Calls `look` for a socket's registrations, from `first` on, that ask this poll for room and
    /// were not looked at in this round. False: the poll is not asked for room.
    pub fn look_first(
        &mut self,
        poll: u32,
        first: u32,
        mut look: impl FnMut(&mut Self, u32),
    ) -> bool {
        let round = self.polls[poll as usize].round;
        let (mut at, mut is_asked) = (first, false);
        while at != NO_REGISTRATION {
            let registration = &mut self.registrations[at as usize];
            let next = registration.next;
            let is_writer = registration.armed && registration.wanted.interest.is_writable();
            if registration.poll == poll && is_writer {
                is_asked = true;
                if std::mem::replace(&mut registration.looked_first, round) != round {
                    look(self, at);
                }
            }
            at = next;
        }
        is_asked
    }

    /// True if [`look_first`](Self::look_first) looked at the registration in this round.
    pub fn was_looked_at(&self, at: u32) -> bool {
        let registration = &self.registrations[at as usize];
        registration.looked_first == self.polls[registration.poll as usize].round
    }

    /// Number of registrations on a poll's list.
    pub fn listed(&self, poll: u32) -> usize {
        self.polls[poll as usize].ready.len()
    }

    /// Decides what to report for a registration, given the socket's readiness and edge counters.
    #[inline]
    pub fn judge(&mut self, at: u32, ready: Readiness, in_edges: u32, out_edges: u32) -> Verdict {
        let registration = &mut self.registrations[at as usize];
        let is_news = registration.is_news(in_edges, out_edges);
        let Wanted {
            token,
            interest,
            mode,
            one_shot,
            told,
        } = registration.wanted;
        let got = ready.intersection(told);
        let waits_for_room = interest.is_writable() && !ready.contains(Readiness::WRITABLE);
        if got.is_empty() || (mode == Mode::Edge && !is_news) {
            return Verdict {
                event: None,
                waits_for_room,
            };
        }
        registration.fresh = false;
        (registration.in_edges_seen, registration.out_edges_seen) = (in_edges, out_edges);
        if one_shot {
            registration.armed = false;
        } else if mode == Mode::Level {
            self.list(at);
        }
        Verdict {
            event: Some(Event::new(token, got)),
            waits_for_room: waits_for_room && !one_shot,
        }
    }

    /// Puts a registration on its poll's list, unless it is there.
    #[inline]
    pub fn list(&mut self, at: u32) {
        let registration = &mut self.registrations[at as usize];
        if !registration.listed && registration.armed {
            registration.listed = true;
            let poll = &mut self.polls[registration.poll as usize];
            poll.ready.push_back(at);
        }
    }

    /// Lists a registration and counts the event for polls that watch its poll. Returns the
    /// socket's next registration.
    #[inline]
    fn stir(&mut self, at: u32) -> u32 {
        let registration = &mut self.registrations[at as usize];
        if registration.armed {
            let poll = &mut self.polls[registration.poll as usize];
            poll.news += 1;
            if !std::mem::replace(&mut registration.listed, true) {
                poll.ready.push_back(at);
            }
        }
        registration.next
    }

    /// The registration of a socket with a poll, under `name` if there is one.
    fn find(
        &self,
        poll: u32,
        socket: SocketId,
        name: Option<Token>,
        sockets: &mut AppSockets,
    ) -> Option<u32> {
        let mut at = sockets.current(socket)?.registrations;
        while at != NO_REGISTRATION {
            let registration = &self.registrations[at as usize];
            let is_named = name.is_none_or(|name| name == registration.wanted.token);
            if registration.poll == poll && is_named {
                return Some(at);
            }
            at = registration.next;
        }
        None
    }

    fn discard(&mut self, at: u32) {
        let registration = &mut self.registrations[at as usize];
        self.polls[registration.poll as usize].members -= 1;
        registration.dead = true;
        registration.armed = false;
        if !registration.listed {
            self.recycle(at);
        }
    }

    fn recycle(&mut self, at: u32) {
        self.registrations[at as usize].socket = SocketId::default();
        self.free.push(at);
    }
}

/// The result of looking at a registration.
pub(crate) struct Verdict {
    pub event: Option<Event>,
    /// The socket lacks room to write, so the stack has to report room.
    pub waits_for_room: bool,
}

/// The readiness bits that an interest reports. Failures and hang-ups are always among them, as in
/// Linux.
const fn reportable(interest: Interest) -> Readiness {
    let mut told = Readiness::HANGUP.union(Readiness::ERROR);
    if interest.contains(Interest::READABLE) {
        told = told
            .union(Readiness::READABLE)
            .union(Readiness::READ_CLOSED);
    }
    if interest.contains(Interest::WRITABLE) {
        told = told.union(Readiness::WRITABLE);
    }
    if interest.contains(Interest::READ_CLOSED) {
        told = told.union(Readiness::READ_CLOSED);
    }
    if interest.contains(Interest::URGENT) {
        told = told.union(Readiness::URGENT);
    }
    told
}
