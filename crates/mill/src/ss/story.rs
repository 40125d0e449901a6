//! The story of a connection, one line for each event, or as JSON.

use millstream::survey::story::{
    DueTimer, Episode, LimitedBy, State, StoryAnswer, StoryEvent, StoryLine, StoryStatus,
    state_number,
};
use serde_json::{Value, json};

use super::states;

/// The story of a connection, as its process answered.
#[derive(Clone, Debug)]
pub struct Told(pub StoryAnswer);

impl Told {
    /// One line for each event, with its age, and lines for present limits.
    pub fn lines(&self) -> Vec<String> {
        let now_ns = self.0.now_ns;
        let aged = |line: &StoryLine| {
            let age = seconds(now_ns.saturating_sub(line.at_ns));
            format!("{age:>12} ago  {}", text(line))
        };
        let mut lines: Vec<String> = self.0.lines.iter().map(aged).collect();
        lines.extend(
            self.holds()
                .map(|held| format!("{:>12}      {held}", "now")),
        );
        lines.extend(self.absence().map(str::to_owned));
        lines
    }

    /// The present limit of the data flow, with its duration.
    pub fn holds(&self) -> impl Iterator<Item = String> {
        let ours = self.0.our_window_since_ns;
        let ours = ours.map(|since_ns| (LimitedBy::OurWindow, since_ns));
        let now_ns = self.0.now_ns;
        let held = self.0.limit.into_iter().chain(ours);
        held.map(move |(by, since_ns)| {
            let lasted = seconds(now_ns.saturating_sub(since_ns));
            format!("limited by {} for {lasted} so far", limit(by))
        })
    }

    /// The reason why there is no story.
    pub fn absence(&self) -> Option<&'static str> {
        match self.0.status {
            StoryStatus::None => Some("no story: no connection, or one that has gone"),
            StoryStatus::Full => Some("no story: the stack writes as many as it can"),
            StoryStatus::Written | StoryStatus::Over => None,
        }
    }

    /// The events as a list.
    pub fn json(&self) -> Value {
        let now_ns = self.0.now_ns;
        let row = |line: &StoryLine| {
            let mut row = json(&line.event);
            row["ago_ns"] = json!(now_ns.saturating_sub(line.at_ns));
            row["count"] = json!(line.count);
            row
        };
        Value::Array(self.0.lines.iter().map(row).collect())
    }
}

/// The text of an event.
pub fn text(line: &StoryLine) -> String {
    let times = match line.count {
        0 | 1 => String::new(),
        count => format!(", {count} times"),
    };
    let event = match line.event {
        StoryEvent::Begins(state) => format!("the story begins in {}", name(state)),
        StoryEvent::State { from, to } => format!("{} -> {}", name(from), name(to)),
        StoryEvent::EpisodeBegins { episode, cwnd } => {
            format!("{} begins, cwnd {cwnd}", self::episode(episode))
        }
        StoryEvent::EpisodeEnds {
            episode,
            lasted_ns,
            retransmitted,
            cwnd,
        } => format!(
            "{} ends after {}, {retransmitted} retransmitted, cwnd {cwnd}",
            self::episode(episode),
            seconds(lasted_ns)
        ),
        StoryEvent::Timer { timer, backoff: 0 } => format!("timer: {}", self::timer(timer)),
        StoryEvent::Timer { timer, backoff } => {
            format!("timer: {}, backoff {backoff}", self::timer(timer))
        }
        StoryEvent::Limited { by, lasted_ns } => {
            format!("limited by {} for {}", limit(by), seconds(lasted_ns))
        }
    };
    event + &times
}

fn json(event: &StoryEvent) -> Value {
    match *event {
        StoryEvent::Begins(state) => json!({"event": "begins", "state": name(state)}),
        StoryEvent::State { from, to } => {
            json!({"event": "state", "from": name(from), "to": name(to)})
        }
        StoryEvent::EpisodeBegins { episode, cwnd } => {
            json!({"event": "episode_begins", "episode": self::episode(episode), "cwnd": cwnd})
        }
        StoryEvent::EpisodeEnds {
            episode,
            lasted_ns,
            retransmitted,
            cwnd,
        } => json!({
            "event": "episode_ends", "episode": self::episode(episode), "lasted_ns": lasted_ns,
            "retransmitted": retransmitted, "cwnd": cwnd,
        }),
        StoryEvent::Timer { timer, backoff } => {
            json!({"event": "timer", "timer": self::timer(timer), "backoff": backoff})
        }
        StoryEvent::Limited { by, lasted_ns } => {
            json!({"event": "limited", "by": limit(by), "lasted_ns": lasted_ns})
        }
    }
}

fn name(state: State) -> &'static str {
    states::column(state_number(state))
}

fn episode(episode: Episode) -> &'static str {
    match episode {
        Episode::None => "no recovery",
        Episode::Marked => "reduction for marks",
        Episode::Recovery => "fast recovery",
        Episode::Timeout => "recovery from a timeout",
    }
}

fn timer(timer: DueTimer) -> &'static str {
    match timer {
        DueTimer::Handshake => "handshake",
        DueTimer::Retransmit => "retransmission",
        DueTimer::Reorder => "reordering",
        DueTimer::LossProbe => "loss probe",
        DueTimer::WindowProbe => "window probe",
        DueTimer::KeepAlive => "keep-alive",
        DueTimer::Closing => "closing",
        DueTimer::DelayedAck => "delayed ACK",
    }
}

fn limit(by: LimitedBy) -> &'static str {
    match by {
        LimitedBy::Congestion => "the congestion window",
        LimitedBy::PeerWindow => "the peer's window",
        LimitedBy::SendBuffer => "the send buffer",
        LimitedBy::OurWindow => "our window",
    }
}

/// A time with microseconds.
pub fn seconds(ns: u64) -> String {
    format!("{}.{:06}s", ns / 1_000_000_000, ns / 1_000 % 1_000_000)
}
