//! Stories of connections: losses, limits, timers and states, and the limits of stories themselves.

use ring::socket_block::SocketId;
use stack::survey::story::{self, LimitedBy, StoryAnswer, StoryEvent, StoryStatus};
use stack::survey::{FlowWords, SurveyCursor, SurveyId};
use tcp::State;
use tcp::glance::{DueTimer, Episode};
use wire::tcp::Flags;

use crate::common::peer::Client;
use crate::common::{MILLIS, World};

/// The row of the first flow whose place `is_it` accepts.
fn row(w: &World, is_it: impl Fn(SurveyId) -> bool) -> FlowWords {
    let (mut cursor, mut rows) = (SurveyCursor::default(), Vec::new());
    while w.stack.survey(&mut cursor, 100, &mut |row| {
        if is_it(row.flow) {
            rows.push(row.words(w.now_ns));
        }
    }) {}
    rows.pop().expect("a flow")
}

fn connection(w: &World, socket: SocketId) -> FlowWords {
    row(w, |flow| flow == SurveyId::Connection(socket))
}

fn ask(w: &mut World, row: &FlowWords, since: u64, begin: bool) -> StoryAnswer {
    let (body, mut answer) = (story::ask(row, since, begin), Vec::new());
    assert!(w.stack.answer_story(&body, 32_768, &mut answer));
    StoryAnswer::read(&answer).expect("an answer")
}

fn events(answer: &StoryAnswer) -> Vec<StoryEvent> {
    answer.lines.iter().map(|line| line.event).collect()
}

/// A world in which every connection has a story.
fn sampled() -> World {
    World::with(|setup| setup.config.story_one_in = 1)
}

#[test]
fn established_story_tells_a_timeout_and_its_repair() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    let row = connection(&w, socket);
    assert_eq!(ask(&mut w, &row, 0, false).status, StoryStatus::None);
    let begun = ask(&mut w, &row, 0, true);
    assert_eq!(begun.status, StoryStatus::Written);
    assert_eq!(events(&begun), [StoryEvent::Begins(State::Established)]);
    w.write(socket, b"lost");
    let _lost = w.tcp();
    let timeout = StoryEvent::Timer {
        timer: DueTimer::Retransmit,
        backoff: 0,
    };
    w.advance(1_500 * MILLIS);
    let told = events(&ask(&mut w, &row, begun.next, false));
    assert!(told.contains(&timeout), "{told:?}");
    let begins = |event: &StoryEvent| matches!(event, StoryEvent::EpisodeBegins { episode: Episode::Timeout, cwnd } if *cwnd > 0);
    assert!(told.iter().any(begins), "{told:?}");
    client.take(&w.peer.take_tcp()[0]);
    w.send(&client.ack());
    // Without SACK the episode lasts until newer data is acknowledged.
    w.write(socket, b"arrives");
    let segment = w.tcp();
    client.take(&segment);
    w.send(&client.ack());
    let answer = ask(&mut w, &row, 0, false);
    let ended = answer.lines.iter().find_map(|line| match line.event {
        StoryEvent::EpisodeEnds {
            episode,
            lasted_ns,
            retransmitted,
            ..
        } => Some((episode, lasted_ns, retransmitted)),
        _ => None,
    });
    let (episode, lasted_ns, retransmitted) = ended.unwrap_or_else(|| panic!("{answer:?}"));
    assert_eq!(episode, Episode::Timeout);
    assert!(lasted_ns > 0 && retransmitted > 0, "{answer:?}");
    assert_eq!(answer.episode, Episode::None);
}

#[test]
fn established_shut_window_of_the_peer_is_the_limit_until_it_opens() {
    let mut w = sampled();
    let (mut client, socket) = w.established();
    let row = connection(&w, socket);
    client.window = 0;
    w.send(&client.ack());
    let shut_ns = w.now_ns;
    w.write(socket, &[7; 100]);
    let held = ask(&mut w, &row, 0, false);
    assert_eq!(held.limit, Some((LimitedBy::PeerWindow, shut_ns)));
    w.advance(2 * MILLIS);
    client.window = 60_000;
    w.send(&client.ack());
    let segment = w.tcp();
    client.take(&segment);
    w.send(&client.ack());
    let open = ask(&mut w, &row, 0, false);
    assert_eq!(open.limit, None);
    let by = LimitedBy::PeerWindow;
    let lasted_ns = w.now_ns - shut_ns;
    let limited = StoryEvent::Limited { by, lasted_ns };
    let line = open.lines.iter().find(|line| line.event == limited);
    assert_eq!(line.map(|line| line.at_ns), Some(shut_ns), "{open:?}");
}

#[test]
fn established_reader_that_does_not_read_is_told_as_our_window() {
    let mut w = sampled();
    let (mut client, socket) = w.established();
    let row = connection(&w, socket);
    let mut window = 65_535;
    while window > 0 {
        w.send(&client.data(&vec![1; window.min(1_460)]));
        w.advance(50 * MILLIS);
        window = usize::from(w.peer.take_tcp().last().unwrap().window);
    }
    let full = ask(&mut w, &row, 0, false);
    let since_ns = full.our_window_since_ns.expect("our window is full");
    assert!(since_ns <= w.now_ns);
    assert!(!w.read(socket).is_empty());
    w.settle();
    let open = ask(&mut w, &row, 0, false);
    assert_eq!(open.our_window_since_ns, None);
    let is_ours = |event: &StoryEvent| matches!(event, StoryEvent::Limited { by: LimitedBy::OurWindow, lasted_ns } if *lasted_ns > 0);
    assert!(events(&open).iter().any(is_ours), "{open:?}");
}

#[test]
fn sampled_connection_is_told_from_its_handshake_to_its_end() {
    let mut w = sampled();
    let (mut client, socket) = w.established();
    let row = connection(&w, socket);
    w.close(socket);
    let fin = w.tcp_with(Flags::FIN | Flags::ACK);
    client.take(&fin);
    w.send(&client.ack());
    w.send(&client.fin());
    let entry = self::row(&w, |flow| matches!(flow, SurveyId::Entry(_)));
    for row in [row, entry] {
        let answer = ask(&mut w, &row, 0, true);
        let is_entry = row == entry;
        let status = match is_entry {
            true => StoryStatus::Written,
            false => StoryStatus::Over,
        };
        assert_eq!(answer.status, status, "kept after the end");
        let states: Vec<State> = answer
            .lines
            .iter()
            .filter_map(|line| match line.event {
                StoryEvent::State { to, .. } => Some(to),
                _ => None,
            })
            .collect();
        let until_gone = [State::FinWait1, State::FinWait2, State::TimeWait];
        assert_eq!(states, until_gone[..2 + usize::from(is_entry)]);
    }
}

#[test]
fn time_wait_entry_without_a_story_tells_since_when_it_waits() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.close(socket);
    let fin = w.tcp_with(Flags::FIN | Flags::ACK);
    client.take(&fin);
    w.send(&client.ack());
    w.send(&client.fin());
    let entered_ns = w.now_ns;
    w.advance(2_000 * MILLIS);
    let entry = row(&w, |flow| matches!(flow, SurveyId::Entry(_)));
    let answer = ask(&mut w, &entry, 0, true);
    assert_eq!(answer.status, StoryStatus::Written);
    assert_eq!(events(&answer), [StoryEvent::Begins(State::TimeWait)]);
    let tick_ns = 10 * MILLIS;
    assert!(
        answer.lines[0].at_ns.abs_diff(entered_ns) <= tick_ns,
        "{answer:?}"
    );
    assert!(ask(&mut w, &entry, answer.next, true).lines.is_empty());
    w.advance(60_000 * MILLIS);
    assert_eq!(ask(&mut w, &entry, 0, true).status, StoryStatus::None);
}

#[test]
fn half_open_story_tells_its_syn_acks_and_goes_on_as_that_of_the_connection() {
    let mut w = World::new();
    let listener = w.listen();
    let mut client = w.client();
    w.send(&client.syn());
    let syn_ack = w.tcp();
    let half_open = row(&w, |flow| matches!(flow, SurveyId::HalfOpen(_)));
    let begins = StoryEvent::Begins(State::SynReceived);
    let answer = ask(&mut w, &half_open, 0, true);
    assert_eq!((events(&answer), answer.next), (vec![begins], 1));
    w.advance(3_500 * MILLIS);
    let answer = ask(&mut w, &half_open, 0, true);
    let again = StoryEvent::Timer {
        timer: DueTimer::Handshake,
        backoff: 1,
    };
    assert_eq!(events(&answer), [begins, again]);
    assert_eq!(answer.lines[1].count, 2, "after one second and two more");
    assert!(answer.lines[1].at_ns <= w.now_ns);
    w.peer.forget();
    client.on_syn_ack(&syn_ack);
    w.send(&client.ack());
    assert!(w.app.accept(listener).is_some());
    let answer = ask(&mut w, &half_open, 0, true);
    assert_eq!(events(&answer), [StoryEvent::Begins(State::Established)]);
}

#[test]
fn packed_connection_that_somebody_asks_about_has_a_story() {
    let mut w = World::new();
    let (_client, socket) = w.established();
    w.advance(60_000 * MILLIS);
    assert_eq!(w.stack.usage().dormant, 1);
    let row = connection(&w, socket);
    let answer = ask(&mut w, &row, 0, true);
    assert_eq!(events(&answer), [StoryEvent::Begins(State::Established)]);
    assert_eq!(w.stack.usage().dormant, 0);
}

#[test]
fn stories_at_the_limit_refuse_the_sample_and_make_room_for_an_asker() {
    let mut w = World::with(|setup| {
        setup.config.story_one_in = 1;
        setup.config.limits.sockets_max = 256;
        setup.config.limits.backlog_max = 128;
    });
    let listener = w.listen();
    let open = |w: &mut World| {
        let mut client = w.client();
        w.handshake(&mut client);
        w.app.accept(listener).expect("a connection")
    };
    let first: Vec<_> = (0..64).map(|_| open(&mut w)).collect();
    assert_eq!(w.stack.counters().stories_refused, 0);
    let late = open(&mut w);
    assert_eq!(w.stack.counters().stories_refused, 1);
    let row = connection(&w, late);
    assert_eq!(ask(&mut w, &row, 0, false).status, StoryStatus::None);
    assert_eq!(ask(&mut w, &row, 0, true).status, StoryStatus::Written);
    // Its place was taken by another story, and the connection goes on without one.
    let rows: Vec<FlowWords> = first.iter().map(|one| connection(&w, *one)).collect();
    let has_none = |row: &&FlowWords| ask(&mut w, row, 0, false).status == StoryStatus::None;
    let without: Vec<FlowWords> = rows.iter().filter(has_none).copied().collect();
    assert_eq!(without.len(), 1);
    w.write(first[0], b"goes on");
    assert_eq!(ask(&mut w, &without[0], 0, true).status, StoryStatus::Full);
    w.advance(61_000 * MILLIS);
    assert_eq!(
        ask(&mut w, &without[0], 0, true).status,
        StoryStatus::Written
    );
}

/// The peer closes its window while a byte of ours waits, and opens it after `ms`.
fn shut_and_open(w: &mut World, client: &mut Client, socket: SocketId, ms: u64) {
    client.window = 0;
    w.send(&client.ack());
    w.write(socket, b"x");
    w.advance(ms * MILLIS);
    w.peer.forget();
    client.window = 60_000;
    w.send(&client.ack());
    let segment = w.tcp();
    client.take(&segment);
    w.send(&client.ack());
}

#[test]
fn established_equal_events_in_a_row_are_one_and_old_ones_are_overwritten() {
    let mut w = sampled();
    let (mut client, socket) = w.established();
    let row = connection(&w, socket);
    for _ in 0..10 {
        shut_and_open(&mut w, &mut client, socket, 2);
    }
    let lines = ask(&mut w, &row, 0, false).lines;
    let (by, lasted_ns) = (LimitedBy::PeerWindow, 20 * MILLIS);
    let limited = StoryEvent::Limited { by, lasted_ns };
    assert_eq!(
        (lines.len(), lines[1].event, lines[1].count),
        (2, limited, 10)
    );
    // Probe timers between the limits keep them separate events.
    for _ in 0..40 {
        shut_and_open(&mut w, &mut client, socket, 300);
    }
    let answer = ask(&mut w, &row, 0, false);
    let told = (answer.next, answer.lines.len());
    assert!(told.0 > 64 && told.1 == 64, "{told:?}");
    let newer = ask(&mut w, &row, answer.next - 3, false);
    assert_eq!(newer.lines[..], answer.lines[61..]);
    assert_eq!(
        w.stack.usage().dormant,
        0,
        "a connection with a story is not packed"
    );
}

#[test]
fn nonsense_from_another_process_tells_no_story() {
    let mut w = sampled();
    let (_client, socket) = w.established();
    let body = story::ask(&connection(&w, socket), u64::MAX, true);
    let mut answer = Vec::new();
    assert!(!w.stack.answer_story(&body, 39, &mut answer), "no room");
    assert!(w.stack.answer_story(&body, 40, &mut answer));
    assert!(StoryAnswer::read(&answer).unwrap().lines.is_empty());
    for length in [0, 8, 9, 20, 200] {
        answer.clear();
        let is_sense = w.stack.answer_story(&body[..length], 32_768, &mut answer);
        assert!(!is_sense || StoryAnswer::read(&answer).unwrap().lines.is_empty());
    }
    assert_eq!(StoryAnswer::read(&[0xff; 200]), None);
}
