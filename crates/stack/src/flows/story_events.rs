//! The events of a connection's story, and their encoding in words for other processes.
//!
//! An event takes four words: its begin, its kind and count, and two values. Equal consecutive
//! events are one event with a count.

use tcp::State;
use tcp::glance::{DueTimer, Episode, Limit};

/// Number of words of an event.
pub const STORY_WORDS: usize = 4;

/// An event of a connection's story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoryEvent {
    /// The story begins in this state.
    Begins(State),
    /// The state changed.
    State {
        /// The state before.
        from: State,
        /// The state after.
        to: State,
    },
    /// An episode of congestion control began.
    EpisodeBegins {
        /// The kind of episode.
        episode: Episode,
        /// The congestion window at that time, in segments.
        cwnd: u32,
    },
    /// The episode ended.
    EpisodeEnds {
        /// The kind of episode.
        episode: Episode,
        /// Duration of the episode, ns.
        lasted_ns: u64,
        /// Segments retransmitted during the episode.
        retransmitted: u32,
        /// The congestion window at the end, in segments.
        cwnd: u32,
    },
    /// A timer fired.
    Timer {
        /// The timer's purpose.
        timer: DueTimer,
        /// Doublings of the timeout before it fired.
        backoff: u8,
    },
    /// A window or buffer limited the flow of data for a while.
    Limited {
        /// The kind of limit.
        by: LimitedBy,
        /// Sum of the durations that this event counts, ns.
        lasted_ns: u64,
    },
}

/// A limit of the data flow, which tells the side that causes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LimitedBy {
    /// Our congestion window limits: the path is slow or lossy.
    Congestion = 1,
    /// The peer's receive window limits: its application reads too slowly.
    PeerWindow = 2,
    /// Our send buffer limits: it is too small for the path.
    SendBuffer = 3,
    /// Our receive window limits the peer: our application reads too slowly.
    OurWindow = 4,
}

/// An event with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoryLine {
    /// When the event began, ns by the stack's clock.
    pub at_ns: u64,
    /// Number of equal events in a row.
    pub count: u32,
    /// The event.
    pub event: StoryEvent,
}

const STATES: [State; 10] = [
    State::Established,
    State::SynSent,
    State::SynReceived,
    State::FinWait1,
    State::FinWait2,
    State::TimeWait,
    State::Closed,
    State::CloseWait,
    State::LastAck,
    State::Closing,
];

const EPISODES: [Episode; 4] = [
    Episode::None,
    Episode::Marked,
    Episode::Recovery,
    Episode::Timeout,
];

const TIMERS: [DueTimer; 8] = [
    DueTimer::Handshake,
    DueTimer::Retransmit,
    DueTimer::Reorder,
    DueTimer::LossProbe,
    DueTimer::WindowProbe,
    DueTimer::KeepAlive,
    DueTimer::Closing,
    DueTimer::DelayedAck,
];

const LIMITS: [LimitedBy; 4] = [
    LimitedBy::Congestion,
    LimitedBy::PeerWindow,
    LimitedBy::SendBuffer,
    LimitedBy::OurWindow,
];

/// Linux's number of a state.
#[must_use]
pub const fn state_number(state: State) -> u64 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

pub(crate) fn state_of(number: u8) -> Option<State> {
    let is_it = |state: &State| state_number(*state) == u64::from(number);
    STATES.into_iter().find(is_it)
}

pub(crate) fn episode_of(number: u8) -> Option<Episode> {
    EPISODES.get(usize::from(number)).copied()
}

pub(crate) fn limit_of(number: u8) -> Option<LimitedBy> {
    LIMITS.into_iter().find(|limit| *limit as u8 == number)
}

impl LimitedBy {
    /// The limit of a sender, if there is one.
    pub(crate) fn of(limit: Limit) -> Option<Self> {
        match limit {
            Limit::None => None,
            Limit::Congestion => Some(Self::Congestion),
            Limit::PeerWindow => Some(Self::PeerWindow),
            Limit::SendBuffer => Some(Self::SendBuffer),
        }
    }
}

impl StoryLine {
    /// The event as words.
    pub(crate) fn words(&self) -> [u64; STORY_WORDS] {
        let (kind, a, b, values) = match self.event {
            StoryEvent::Begins(state) => (0, state_number(state), 0, [0, 0]),
            StoryEvent::State { from, to } => (1, state_number(from), state_number(to), [0, 0]),
            StoryEvent::EpisodeBegins { episode, cwnd } => {
                (2, episode as u64, 0, [0, u64::from(cwnd)])
            }
            StoryEvent::EpisodeEnds {
                episode,
                lasted_ns,
                retransmitted,
                cwnd,
            } => {
                let counts = u64::from(retransmitted) << 32 | u64::from(cwnd);
                (3, episode as u64, 0, [lasted_ns, counts])
            }
            StoryEvent::Timer { timer, backoff } => (4, timer as u64, backoff.into(), [0, 0]),
            StoryEvent::Limited { by, lasted_ns } => (5, by as u64, 0, [lasted_ns, 0]),
        };
        let what = kind | a << 8 | b << 16 | u64::from(self.count) << 32;
        [self.at_ns, what, values[0], values[1]]
    }

    /// Decodes an event from words of another process; `None` if they are invalid.
    #[must_use]
    pub fn from_words(words: [u64; STORY_WORDS]) -> Option<Self> {
        let [at_ns, what, value, counts] = words;
        let [kind, a, b, ..] = what.to_le_bytes();
        let cwnd = counts as u32;
        let event = match kind {
            0 => StoryEvent::Begins(state_of(a)?),
            1 => StoryEvent::State {
                from: state_of(a)?,
                to: state_of(b)?,
            },
            2 => StoryEvent::EpisodeBegins {
                episode: episode_of(a)?,
                cwnd,
            },
            3 => StoryEvent::EpisodeEnds {
                episode: episode_of(a)?,
                lasted_ns: value,
                retransmitted: (counts >> 32) as u32,
                cwnd,
            },
            4 => StoryEvent::Timer {
                timer: TIMERS.get(usize::from(a)).copied()?,
                backoff: b,
            },
            5 => StoryEvent::Limited {
                by: limit_of(a)?,
                lasted_ns: value,
            },
            _ => return None,
        };
        Some(Self {
            at_ns,
            count: (what >> 32) as u32,
            event,
        })
    }

    /// Merges `next` into this event if both say the same. False: they differ.
    pub(crate) fn absorb(&mut self, next: &StoryEvent) -> bool {
        match (&mut self.event, next) {
            (
                StoryEvent::Timer { timer, backoff },
                StoryEvent::Timer {
                    timer: t,
                    backoff: b,
                },
            ) if timer == t && backoff == b => {}
            (
                StoryEvent::Limited { by, lasted_ns },
                StoryEvent::Limited {
                    by: next_by,
                    lasted_ns: more_ns,
                },
            ) if by == next_by => *lasted_ns = lasted_ns.saturating_add(*more_ns),
            _ => return false,
        }
        self.count = self.count.saturating_add(1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_survives_its_words() {
        let (episode, by) = (Episode::Recovery, LimitedBy::OurWindow);
        let events = [
            StoryEvent::Begins(State::Established),
            StoryEvent::State {
                from: State::SynReceived,
                to: State::Closing,
            },
            StoryEvent::EpisodeBegins { episode, cwnd: 77 },
            StoryEvent::EpisodeEnds {
                episode,
                lasted_ns: u64::MAX,
                retransmitted: u32::MAX,
                cwnd: 3,
            },
            StoryEvent::Timer {
                timer: DueTimer::DelayedAck,
                backoff: 200,
            },
            StoryEvent::Limited { by, lasted_ns: 9 },
        ];
        for event in events {
            let line = StoryLine {
                at_ns: 5,
                count: u32::MAX,
                event,
            };
            assert_eq!(StoryLine::from_words(line.words()), Some(line));
        }
        assert_eq!(StoryLine::from_words([0, 6, 0, 0]), None);
        assert_eq!(StoryLine::from_words([0, 1, 0, 0]), None, "no such state");
        assert_eq!(StoryLine::from_words([0, 4 | 8 << 8, 0, 0]), None);
    }

    #[test]
    fn state_and_timer_numbers_are_their_places() {
        for state in STATES {
            assert_eq!(state_of(state_number(state) as u8), Some(state));
        }
        for (at, timer) in TIMERS.into_iter().enumerate() {
            assert_eq!(timer as usize, at);
        }
        for (at, episode) in EPISODES.into_iter().enumerate() {
            assert_eq!(episode as usize, at);
        }
    }
}
