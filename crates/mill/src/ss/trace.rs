//! `mill trace`: prints the story of a connection until the connection or its process ends.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::Duration;

use clap::Args;
use millstream::survey::story::{StoryAnswer, StoryStatus};

use super::filter;
use super::source::{self, Agent, Flow};
use super::states;
use super::story::{Told, seconds, text};
use crate::failure::Failure;
use crate::limits::TRACE_MS;

/// Options of `mill trace`.
#[derive(Args, Clone, Debug)]
pub struct TraceOptions {
    /// Look into this process only
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// A filter of `mill ss` that takes one connection: dst 10.0.0.7:443
    #[arg(value_name = "CONN", required = true)]
    pub connection: Vec<String>,
}

/// Follows a connection.
///
/// # Errors
/// There is no such connection, or more than one; its process does not answer.
pub fn trace(options: &TraceOptions) -> Result<(), Failure> {
    let filter = filter::parse(&options.connection).map_err(Failure::Usage)?;
    let states = filter.states.unwrap_or(states::DEFAULT);
    let mut found = Vec::new();
    let mut agents =
        source::agents(options.pid, &mut |why| tracing::warn!("{why}")).map_err(Failure::Run)?;
    for (at, agent) in agents.iter_mut().enumerate() {
        let listed = agent.list(&mut |_, flows| {
            let taken = flows.into_iter();
            let taken = taken.filter(|flow| filter.takes(states, &flow.words));
            found.extend(taken.map(|flow| (at, flow)));
            ControlFlow::Continue(())
        });
        if let Err(why) = listed {
            tracing::warn!("{why}");
        }
    }
    let count = found.len();
    let (Some((at, flow)), 1) = (found.pop(), count) else {
        let words = options.connection.join(" ");
        return Err(Failure::Usage(format!(
            "trace: `{words}` takes {count} connections, not one"
        )));
    };
    let (local, remote) = (flow.words.local(), flow.words.remote());
    let head = format!("process {} {local} {remote}", flow.process.pid);
    match follow(&mut agents[at], &flow, &head, &mut io::stdout()) {
        // A closed stdout ends the command.
        Ok(()) | Err(Stop::Output) => Ok(()),
        Err(Stop::Process(why)) => Err(Failure::Run(why)),
    }
}

/// The reason why the trace ends.
enum Stop {
    Output,
    Process(String),
}

fn follow(agent: &mut Agent, flow: &Flow, head: &str, out: &mut impl Write) -> Result<(), Stop> {
    writeln!(out, "{head}").map_err(|_| Stop::Output)?;
    let mut follower = Follower::default();
    loop {
        let told = agent
            .story(flow, follower.next_wanted())
            .map_err(Stop::Process)?;
        let is_over = told.0.status != StoryStatus::Written;
        for line in follower.take(&told) {
            writeln!(out, "{line}").map_err(|_| Stop::Output)?;
        }
        if is_over {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(TRACE_MS));
    }
}

/// The part of a story that was printed.
#[derive(Default)]
struct Follower {
    /// Time of the first answer, on the stack's clock, in ns.
    begin_ns: Option<u64>,
    /// The number of the next event.
    next: u64,
    last_count: u32,
    /// The time at which the previous event began, in ns.
    last_ns: u64,
    /// Present limits, as they were printed.
    held: Vec<String>,
}

impl Follower {
    /// The first event to ask for: the previous one may have occurred again.
    fn next_wanted(&self) -> u64 {
        self.next.saturating_sub(1)
    }

    /// Detects a new story, whose events are numbered anew: a handshake that became a connection
    /// has another one.
    fn note_new_story(&mut self, answer: &StoryAnswer) {
        let first = answer.next.saturating_sub(answer.lines.len() as u64);
        let same = (first..).zip(&answer.lines);
        let mut same = same.filter(|(number, _)| number + 1 == self.next);
        let is_other = same.any(|(_, line)| line.at_ns != self.last_ns);
        if answer.next < self.next || is_other {
            (self.next, self.last_count) = (0, 0);
        }
    }

    /// The lines that an answer adds.
    fn take(&mut self, told: &Told) -> Vec<String> {
        let answer = &told.0;
        let begin_ns = *self.begin_ns.get_or_insert(answer.now_ns);
        let stamp = |at_ns: u64| match at_ns.checked_sub(begin_ns) {
            Some(ns) => format!("+{}", seconds(ns)),
            None => format!("-{}", seconds(begin_ns - at_ns)),
        };
        let mut lines = Vec::new();
        self.note_new_story(answer);
        let first = answer.next.saturating_sub(answer.lines.len() as u64);
        if first > self.next {
            lines.push(format!(
                "{} events were overwritten unseen",
                first - self.next
            ));
        }
        for (number, line) in (first..).zip(&answer.lines) {
            let is_known = number + 1 == self.next && line.count == self.last_count;
            if number + 1 >= self.next.max(1) && !is_known {
                lines.push(format!("{:>14}  {}", stamp(line.at_ns), text(line)));
            }
            (self.last_count, self.last_ns) = (line.count, line.at_ns);
        }
        self.next = answer.next;
        // The duration of a limit grows, so only its beginning is news.
        let held: Vec<String> = told.holds().collect();
        let name = |line: &str| line.split(" for ").next().unwrap_or(line).to_owned();
        for line in &held {
            if !self.held.iter().any(|said| name(said) == name(line)) {
                lines.push(format!("{:>14}  {line}", stamp(answer.now_ns)));
            }
        }
        self.held = held;
        match (answer.status, told.absence()) {
            (StoryStatus::Over, _) => lines.push("the connection has gone".to_owned()),
            (_, Some(why)) => lines.push(why.to_owned()),
            _ => {}
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use millstream::survey::story::{DueTimer, Episode, LimitedBy, State, StoryEvent, StoryLine};

    use super::*;

    fn line(at_ns: u64, count: u32, event: StoryEvent) -> StoryLine {
        StoryLine {
            at_ns,
            count,
            event,
        }
    }

    fn told(next: u64, now_ns: u64, lines: &[StoryLine]) -> Told {
        Told(StoryAnswer {
            status: StoryStatus::Written,
            state: Some(State::Established),
            episode: Episode::None,
            limit: None,
            our_window_since_ns: None,
            next,
            now_ns,
            lines: lines.to_vec(),
        })
    }

    #[test]
    fn each_event_is_said_once_and_again_when_its_count_grows() {
        let timer = StoryEvent::Timer {
            timer: DueTimer::DelayedAck,
            backoff: 0,
        };
        let first = line(900_000_000, 1, StoryEvent::Begins(State::Established));
        let mut follower = Follower::default();
        let said = follower.take(&told(1, 1_000_000_000, &[first]));
        assert_eq!(said, ["    -0.100000s  the story begins in ESTAB"]);
        assert_eq!(follower.next_wanted(), 0);
        let both = [first, line(1_500_000_000, 1, timer)];
        let said = follower.take(&told(2, 2_000_000_000, &both));
        assert_eq!(said, ["    +0.500000s  timer: delayed ACK"]);
        assert_eq!(follower.next_wanted(), 1);
        assert!(
            follower
                .take(&told(2, 2_100_000_000, &both[1..]))
                .is_empty()
        );
        let again = line(1_500_000_000, 3, timer);
        let said = follower.take(&told(2, 2_200_000_000, &[again]));
        assert_eq!(said, ["    +0.500000s  timer: delayed ACK, 3 times"]);
    }

    #[test]
    fn handshake_that_becomes_a_connection_is_followed_into_its_story() {
        let mut follower = Follower::default();
        let syn = line(500_000_000, 1, StoryEvent::Begins(State::SynReceived));
        let said = follower.take(&told(1, 1_000_000_000, &[syn]));
        assert_eq!(said, ["    -0.500000s  the story begins in SYN-RECV"]);
        assert!(follower.take(&told(1, 1_100_000_000, &[syn])).is_empty());
        let open = line(1_150_000_000, 1, StoryEvent::Begins(State::Established));
        let said = follower.take(&told(1, 1_200_000_000, &[open]));
        assert_eq!(said, ["    +0.150000s  the story begins in ESTAB"]);
        assert!(follower.take(&told(1, 1_300_000_000, &[open])).is_empty());
    }

    #[test]
    fn limit_that_holds_is_said_when_it_begins_and_lost_events_are_counted() {
        let mut follower = Follower::default();
        let mut answer = told(0, 3_000_000_000, &[]);
        answer.0.limit = Some((LimitedBy::PeerWindow, 1_000_000_000));
        let said = follower.take(&answer);
        let expected = "    +0.000000s  limited by the peer's window for 2.000000s so far";
        assert_eq!(said, [expected]);
        answer.0.now_ns += 5;
        assert!(follower.take(&answer).is_empty());
        let event = StoryEvent::State {
            from: State::Established,
            to: State::CloseWait,
        };
        let mut late = told(70, 4_000_000_000, &[line(3_000_000_000, 1, event); 64]);
        late.0.status = StoryStatus::Over;
        let said = follower.take(&late);
        assert_eq!(said.len(), 66);
        assert_eq!(said[0], "6 events were overwritten unseen");
        assert_eq!(said[1], "    +0.000000s  ESTAB -> CLOSE-WAIT");
        assert_eq!(said[65], "the connection has gone");
    }
}
