//! Observers of a running stack: walks over flows, stories, captures, reports, and an operator who
//! ends flows.

use ring::frame_log::FrameLogReader;
use stack::context::Control;
use stack::survey::story;
use stack::survey::{FlowWords, SurveyCursor, SurveyRow};

use crate::common::SECOND;
use crate::draw::Settings;
use crate::end::End;

/// Most bytes of an answer.
const ROOM: usize = 4_096;
/// Most stories that one look requests.
const STORIES: usize = 8;

/// Lets the stack sleep for no time, and adds what it waits for to the digest.
pub fn sleep(end: &mut End, now_ns: u64) {
    let stack = &mut end.stack;
    match end.random.below(3) {
        0 => {
            let is_interrupted = stack.wait(now_ns, Some(now_ns + 1), &[]).unwrap();
            end.digest.word(u64::from(is_interrupted));
        }
        1 => {
            let copies = stack.arm().unwrap();
            end.digest
                .word(copies.map_or(99, |copies| copies.len() as u64));
            stack.disarm();
        }
        _ => {
            let is_armed = stack.arm_again();
            end.digest.word(u64::from(is_armed));
            end.digest.word(u64::from(stack.has_output()));
            stack.disarm();
            stack.drain();
        }
    }
    for card in &end.cards {
        let sleeps = std::mem::take(&mut card.lock().sleeps);
        end.digest.debug(&sleeps);
    }
}

pub fn look(end: &mut End, now_ns: u64, settings: &Settings) {
    match end.random.below(12) {
        0 | 1 => walk_by_bytes(end),
        2..=4 => stories(end, now_ns),
        5 => capture(end, now_ns),
        6 => kill(end, now_ns),
        7 => {
            let (answer, mut answers) = ring::spsc::queue(1);
            end.app.control(Control::Report(answer));
            end.stack.turn(now_ns);
            let report = answers.pop().expect("a report");
            end.note(report);
        }
        8 => {
            end.stack.sample_round_trips(SECOND);
            end.stack.end_old_capture(now_ns);
            let activity = end.stack.activity().clone();
            end.digest.debug(&activity);
        }
        9 => {
            let config = Box::new(settings.configs[1 - end.number].tcp.clone());
            end.app.control(Control::Settings(config));
        }
        10 => {
            let mut answer = Vec::new();
            let question = (end.random.below(3) as u32).to_le_bytes();
            let room = end.random.one_of(&[40, 100, ROOM]);
            let makes_sense = end.stack.answer_rules(&question, room, &mut answer);
            end.digest.word(u64::from(makes_sense));
            end.digest.bytes(&answer);
        }
        _ => {
            end.app.control(Control::ForgetPeers);
            let address = format!("10.0.0.{}/24", 20 + end.number);
            end.app.control(Control::Address(address.parse().unwrap()));
        }
    }
    end.note_usage();
    read_capture(end);
}

/// Looks at everything that can be observed.
pub fn look_at_all(end: &mut End, now_ns: u64) {
    for row in rows(end) {
        end.digest.debug(&row);
    }
    walk_by_bytes(end);
    stories(end, now_ns);
    read_capture(end);
    end.note_usage();
    end.note_report();
}

fn rows(end: &End) -> Vec<SurveyRow> {
    let (mut cursor, mut rows) = (SurveyCursor::default(), Vec::new());
    while end.stack.survey(&mut cursor, 30, &mut |row| rows.push(row)) {}
    rows
}

/// Walks over the flows as another process does.
fn walk_by_bytes(end: &mut End) {
    let mut head = Vec::new();
    for _ in 0..20 {
        let mut answer = Vec::new();
        let makes_sense = end.stack.answer_list(&head, ROOM, &mut answer);
        end.digest.word(u64::from(makes_sense));
        end.digest.bytes(&answer);
        if !makes_sense || answer[0] == 0 {
            return;
        }
        head = answer[..8].to_vec();
    }
}

fn words(end: &End, now_ns: u64) -> Vec<FlowWords> {
    rows(end).iter().map(|row| row.words(now_ns)).collect()
}

fn stories(end: &mut End, now_ns: u64) {
    let begin = end.random.chance(60);
    let since = end.random.one_of(&[0, 0, 5]);
    for row in words(end, now_ns).iter().take(STORIES) {
        let mut answer = Vec::new();
        let body = story::ask(row, since, begin);
        let makes_sense = end.stack.answer_story(&body, ROOM, &mut answer);
        end.digest.word(u64::from(makes_sense));
        end.digest.bytes(&answer);
    }
}

fn kill(end: &mut End, now_ns: u64) {
    let words = words(end, now_ns);
    let at = end.random.below(words.len() as u64) as usize;
    let Some(row) = words.get(at) else { return };
    let mut answer = Vec::new();
    let makes_sense = end.stack.answer_kill(&row.to_bytes(), &mut answer);
    end.digest.word(u64::from(makes_sense));
    end.digest.bytes(&answer);
}

fn capture(end: &mut End, now_ns: u64) {
    let snap = end.random.one_of(&[60, 2_000]);
    let until_ns = now_ns + end.random.one_of(&[SECOND / 10, 10 * SECOND]);
    let port = end.random.below(end.cards.len() as u64) as usize;
    if let Ok(file) = end.stack.capture(port, snap, None, until_ns) {
        end.capture = FrameLogReader::open(file).ok();
    }
}

fn read_capture(end: &mut End) {
    let Some(reader) = &mut end.capture else {
        return;
    };
    while let Some(frame) = reader.next_frame() {
        end.digest.word(frame.wire_bytes as u64);
        end.digest.word(u64::from(frame.is_outbound));
        end.digest.bytes(frame.bytes);
        end.digest.bytes(frame.reason.unwrap_or("").as_bytes());
    }
}
