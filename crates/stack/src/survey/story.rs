//! Another process's request for the story of a connection, and the answer.
//!
//! ```text
//! body    number of the first event wanted (8), flags (1), the words of a row
//! answer  status, words of an event, state, episode, limit, 3 bytes unused, then in 8 bytes each:
//!         number of the next event, now, since when the limit and our window hold; then events
//! ```
//!
//! Numbers are little-endian. The body comes from another process: nothing in it is trusted.

use ring::socket_block::{SocketBlock, SocketId};
use wire::FlowKey;

use crate::engine::{Engine, View};
use crate::flows::Flows;
use crate::flows::flow_table::FlowEntry;
use crate::flows::slot::Slot;
use crate::flows::stories::Story;
use crate::flows::story_events::{episode_of, limit_of, state_of};

pub use crate::flows::story_events::{LimitedBy, STORY_WORDS, StoryEvent, StoryLine, state_number};
pub use crate::limits::STORY_EVENTS;
pub use tcp::State;
pub use tcp::glance::{DueTimer, Episode};

use super::SurveyId;
use super::entry_story::{line_of_entry, lines_of_half_open};
use super::words::FlowWords;

/// Bytes before the events of an answer.
pub const STORY_HEAD_BYTES: usize = 40;
/// Flag in a request: begin a story if the connection has none.
pub const BEGIN: u8 = 1;
/// Bytes of a request before the row.
pub const STORY_ASK_BYTES: usize = 9;

/// The state of a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StoryStatus {
    /// The connection does not exist, or has no story.
    None = 0,
    /// The connection has no story, and all slots for stories are in use.
    Full = 1,
    /// The story is still being written.
    Written = 2,
    /// The story's connection has ended.
    Over = 3,
}

/// An answer as its reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoryAnswer {
    /// The state of the story.
    pub status: StoryStatus,
    /// The connection's state.
    pub state: Option<State>,
    /// The congestion control episode in progress.
    pub episode: Episode,
    /// The limit that holds the sender back at present, and since when, ns.
    pub limit: Option<(LimitedBy, u64)>,
    /// Time since when our window has kept the peer from sending, ns.
    pub our_window_since_ns: Option<u64>,
    /// The number of the next event.
    pub next: u64,
    /// Time of the answer by the clock of the events, ns.
    pub now_ns: u64,
    /// Events in order; the last one has the number `next` - 1.
    pub lines: Vec<StoryLine>,
}

impl StoryAnswer {
    /// Decodes an answer of another process; `None` if it is invalid.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (head, events) = bytes.split_first_chunk::<STORY_HEAD_BYTES>()?;
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
        let at = |index: usize| word(&head[8 + 8 * index..16 + 8 * index]);
        let status = match head[0] {
            0 => StoryStatus::None,
            1 => StoryStatus::Full,
            2 => StoryStatus::Written,
            3 => StoryStatus::Over,
            _ => return None,
        };
        let width = usize::from(head[1]).max(STORY_WORDS) * 8;
        let line = |event: &[u8]| {
            let mut words = [0; STORY_WORDS];
            for (to, from) in words.iter_mut().zip(event.chunks_exact(8)) {
                *to = word(from);
            }
            // A newer process may send events that this one does not know.
            StoryLine::from_words(words)
        };
        Some(Self {
            status,
            state: state_of(head[2]),
            episode: episode_of(head[3]).unwrap_or_default(),
            limit: limit_of(head[4]).map(|by| (by, at(2))),
            our_window_since_ns: Some(at(3)).filter(|since_ns| *since_ns > 0),
            next: at(0),
            now_ns: at(1),
            lines: events.chunks_exact(width).filter_map(line).collect(),
        })
    }
}

/// Makes the request for the story of the flow in `row`, a row of a walk.
#[must_use]
pub fn ask(row: &FlowWords, since: u64, begin: bool) -> Vec<u8> {
    let mut body = since.to_le_bytes().to_vec();
    body.push(if begin { BEGIN } else { 0 });
    body.extend_from_slice(&row.to_bytes());
    body
}

/// Answers a request. False: the request is invalid, or there is no room for an answer.
pub(crate) fn answer(engine: &mut Engine, body: &[u8], room: usize, answer: &mut Vec<u8>) -> bool {
    let Some((head, row)) = body.split_first_chunk::<STORY_ASK_BYTES>() else {
        return false;
    };
    let target = FlowWords::from_bytes(row).and_then(|words| words.target());
    let (Some((flow, key)), true) = (target, room >= STORY_HEAD_BYTES) else {
        return false;
    };
    let [a, b, c, d, e, f, g, h, flags] = *head;
    let since = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let now_ns = engine.now_ns();
    let flow = id_now(engine.view().flows, flow, &key);
    if let SurveyId::HalfOpen(index) = flow {
        let lines = lines_of_half_open(engine, index, &key);
        let (status, state) = match lines {
            Some(_) => (StoryStatus::Written, State::SynReceived),
            None => (StoryStatus::None, State::Closed),
        };
        let lines = lines.unwrap_or_default();
        append_brief((answer, room), (status, state), (now_ns, since), lines);
        return true;
    }
    let parts = engine.parts();
    let mut found = find_story(parts.flows, flow, &key);
    let mut status = StoryStatus::None;
    if found.is_none()
        && flags & BEGIN != 0
        && let SurveyId::Connection(id) = flow
        && parts.flows.resolve(id).is_some()
        && parts.flows.sockets().is_of(id.index, &key)
    {
        found = (parts.flows).begin_story(id.index, true, now_ns, parts.counters);
        status = StoryStatus::Full;
    }
    let entered = line_of_entry(engine, flow, &key, found);
    match found {
        Some(at) => {
            engine.parts().flows.ask_story(at, now_ns);
            append_kept(engine, at, (answer, room), since, entered);
        }
        None => {
            let (status, state) = match entered {
                Some((state, _)) => (StoryStatus::Written, state),
                None => (status, State::Closed),
            };
            let lines = [entered.and_then(|(_, line)| line), None];
            append_brief((answer, room), (status, state), (now_ns, since), lines);
        }
    }
    true
}

/// Appends the story of a slot, and the event by which its connection became a compact entry.
fn append_kept(
    engine: &Engine,
    at: usize,
    (answer, room): (&mut Vec<u8>, usize),
    since: u64,
    entered: Option<(State, Option<StoryLine>)>,
) {
    let View { env, flows, .. } = engine.view();
    let Some(story) = flows.stories().at(at) else {
        return;
    };
    let mut head = head_of(story, env.now_ns);
    let events_max = (room - STORY_HEAD_BYTES) / (8 * STORY_WORDS);
    let mut last = None;
    if let Some((state, line)) = entered.filter(|_| events_max > STORY_EVENTS) {
        // The compact entry lives on, although the connection has ended.
        (head[0], head[2]) = (StoryStatus::Written as u8, state_number(state) as u8);
        let next = story.next + u64::from(line.is_some());
        head[8..16].copy_from_slice(&next.to_le_bytes());
        last = line.filter(|_| since < next).map(|line| line.words());
    }
    answer.extend_from_slice(&head);
    let events = flows.stories().events(at, since).take(events_max);
    for event in events.chain(&last) {
        append_event(answer, event);
    }
}

/// The flow's present identity: a handshake in progress may have become a connection.
fn id_now(flows: &Flows, flow: SurveyId, key: &FlowKey) -> SurveyId {
    let SurveyId::HalfOpen(index) = flow else {
        return flow;
    };
    if flows.holds(FlowEntry::HalfOpen(index), key) {
        return flow;
    }
    match flows.find(key, flows.hash(key)) {
        Some(FlowEntry::Connection(index)) => {
            let of = |_: &Slot, block: &SocketBlock| Some(block.generation());
            let generation = flows.sockets().look_at(index, of);
            generation.map_or(flow, |generation| {
                SurveyId::Connection(SocketId { index, generation })
            })
        }
        Some(FlowEntry::TimeWait(index)) => SurveyId::Entry(index),
        Some(FlowEntry::HalfOpen(index)) => SurveyId::HalfOpen(index),
        None => flow,
    }
}

/// Appends the story of a flow without a stored one, from the fields of its entry.
fn append_brief(
    (answer, room): (&mut Vec<u8>, usize),
    (status, state): (StoryStatus, State),
    (now_ns, since): (u64, u64),
    lines: [Option<StoryLine>; 2],
) {
    let mut head = [0; STORY_HEAD_BYTES];
    (head[0], head[1]) = (status as u8, STORY_WORDS as u8);
    head[2] = state_number(state) as u8;
    let count = lines.iter().flatten().count() as u64;
    head[8..16].copy_from_slice(&count.to_le_bytes());
    head[16..24].copy_from_slice(&now_ns.to_le_bytes());
    answer.extend_from_slice(&head);
    let known = usize::try_from(since).unwrap_or(usize::MAX);
    let events_max = (room - STORY_HEAD_BYTES) / (8 * STORY_WORDS);
    for line in lines.iter().flatten().skip(known).take(events_max) {
        append_event(answer, &line.words());
    }
}

fn append_event(answer: &mut Vec<u8>, event: &[u64; STORY_WORDS]) {
    answer.extend(event.iter().flat_map(|word| word.to_le_bytes()));
}

fn head_of(story: &Story, now_ns: u64) -> [u8; STORY_HEAD_BYTES] {
    let mut head = [0; STORY_HEAD_BYTES];
    let status = match story.is_over {
        true => StoryStatus::Over,
        false => StoryStatus::Written,
    };
    (head[0], head[1]) = (status as u8, STORY_WORDS as u8);
    head[2] = state_number(story.last.state) as u8;
    head[3] = story.last.episode as u8;
    head[4] = story.limit.map_or(0, |(by, _)| by as u8);
    let words = [
        story.next,
        now_ns,
        story.limit.map_or(0, |(_, since_ns)| since_ns),
        story.our_window_since_ns.unwrap_or(0),
    ];
    for (to, word) in head[8..].chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    head
}

fn find_story(flows: &Flows, flow: SurveyId, key: &FlowKey) -> Option<usize> {
    match flow {
        SurveyId::Connection(id) => flows.stories().find(|story| story.socket == id),
        SurveyId::Entry(_) => flows.stories().find(|story| story.key == *key),
        SurveyId::Listener(_) | SurveyId::HalfOpen(_) => None,
    }
}
