//! Stories of compact entries and handshakes in progress, made from their own fields. Nothing is
//! stored for them, so a flood costs nothing more.

use tcp::State;
use tcp::glance::DueTimer;
use wire::FlowKey;

use super::SurveyId;
use crate::engine::{Engine, View};
use crate::flows::flow_table::FlowEntry;
use crate::flows::story_events::{StoryEvent, StoryLine};

/// The story of a handshake in progress: its begin, and the retransmissions of its SYN-ACK as one
/// event with a count, at the time of the last. `None`: the handshake is over.
pub(super) fn lines_of_half_open(
    engine: &Engine,
    index: u32,
    key: &FlowKey,
) -> Option<[Option<StoryLine>; 2]> {
    let View { env, flows, .. } = engine.view();
    let held = flows.holds(FlowEntry::HalfOpen(index), key);
    let slot = flows.half_opens().at(index).filter(|_| held)?;
    let armed_ns = slot.entry.armed_ns(&env.config.tcp);
    let begins = StoryLine {
        at_ns: match slot.entry.sent_ns() {
            // The SYN-ACK has not left yet.
            0 => armed_ns,
            sent_ns => sent_ns,
        },
        count: 1,
        event: StoryEvent::Begins(State::SynReceived),
    };
    let again = slot.entry.retransmits();
    let retransmitted = again.checked_sub(1).map(|backoff| StoryLine {
        at_ns: armed_ns,
        count: again.into(),
        event: StoryEvent::Timer {
            timer: DueTimer::Handshake,
            backoff,
        },
    });
    Some([Some(begins), retransmitted])
}

/// The state of a compact entry, and the event of entering that state if the story at `story` does
/// not hold it. The event's time is when the entry's timer was last set. `None`: `flow` is not a
/// compact entry's.
pub(super) fn line_of_entry(
    engine: &Engine,
    flow: SurveyId,
    key: &FlowKey,
    story: Option<usize>,
) -> Option<(State, Option<StoryLine>)> {
    let View { env, flows, .. } = engine.view();
    let SurveyId::Entry(index) = flow else {
        return None;
    };
    let held = flows.holds(FlowEntry::TimeWait(index), key);
    let slot = flows.time_waits().at(index).filter(|_| held)?;
    let config = &env.config.tcp;
    let (state, lasts_ns) = match slot.entry.is_fin_wait_2() {
        true => (State::FinWait2, config.fin_wait_2_ns),
        false => (State::TimeWait, config.time_wait_ns),
    };
    let before = story.and_then(|at| flows.stories().at(at));
    let event = match before.map(|story| story.last.state) {
        Some(from) if from == state => return Some((state, None)),
        Some(from) => StoryEvent::State { from, to: state },
        None => StoryEvent::Begins(state),
    };
    let line = StoryLine {
        at_ns: slot.entry.deadline_ns().saturating_sub(lasts_ns),
        count: 1,
        event,
    };
    Some((state, Some(line)))
}
