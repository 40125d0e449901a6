//! Walks over all flows, in steps, and ending a flow that a walk found.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use ring::socket_block::SocketState;
use rustix::io::Errno;
use stack::survey::{
    FlowWord, FlowWords, SurveyCursor, SurveyId, SurveyRow, SurveyTimerKind, request,
};
use tcp::State;
use wire::FlowKey;
use wire::tcp::Flags;

use crate::common::{Client, MILLIS, PEER_V4, PORT, STACK_V4, World};

/// All rows of a walk in steps of `rows`.
fn survey(w: &World, rows: usize) -> Vec<SurveyRow> {
    let (mut cursor, mut all) = (SurveyCursor::default(), Vec::new());
    for _ in 0..10_000 {
        let before = all.len();
        let more = w.stack.survey(&mut cursor, rows, &mut |row| all.push(row));
        assert!(all.len() - before <= rows, "a step is bounded");
        if !more {
            return all;
        }
    }
    panic!("the walk has no end");
}

fn key(row: &SurveyRow) -> FlowKey {
    FlowKey {
        local: row.local.ip().into(),
        remote: row.remote.ip().into(),
        local_port: row.local.port(),
        remote_port: row.remote.port(),
    }
}

fn in_state(rows: &[SurveyRow], state: State) -> SurveyRow {
    let mut found = rows.iter().filter(|row| row.state == Some(state));
    let row = found.next().cloned();
    assert!(found.next().is_none(), "one row in {state:?}");
    row.unwrap_or_else(|| panic!("no row in {state:?}"))
}

#[test]
fn every_kind_of_flow_is_seen_once_whatever_the_step() {
    let mut w = World::new();
    let (mut ended, socket) = w.established();
    w.close(socket);
    let fin = w.tcp_with(Flags::FIN | Flags::ACK);
    ended.take(&fin);
    w.send(&ended.fin());
    w.peer.forget();
    let mut begun = w.client();
    w.send(&begun.syn());
    let mut open = w.client();
    w.peer.forget();
    w.handshake(&mut open);
    w.send(&open.data(b"unread"));
    let rows = survey(&w, 1_000);
    assert_eq!(rows.len(), 4);
    let listener = rows.iter().find(|row| row.state.is_none()).unwrap();
    assert_eq!(
        (listener.local.ip(), listener.local.port()),
        (STACK_V4, PORT)
    );
    assert_eq!((listener.recv_queue, listener.remote.port()), (1, 0));
    let established = in_state(&rows, State::Established);
    assert_eq!((established.recv_queue, established.send_queue), (6, 0));
    assert_eq!(established.info.as_ref().unwrap().bytes_received, 6);
    let half_open = in_state(&rows, State::SynReceived);
    assert!(matches!(half_open.flow, SurveyId::HalfOpen(_)));
    assert_eq!(half_open.timer.unwrap().kind, SurveyTimerKind::Retransmit);
    let waiting = in_state(&rows, State::TimeWait);
    let timer = waiting.timer.unwrap();
    assert_eq!(timer.kind, SurveyTimerKind::TimeWait);
    assert!(timer.left_ns > 0 && timer.left_ns <= 60_000_000_000);
    for row in &rows {
        let words = row.words(w.now_ns);
        assert_eq!(FlowWords::from_bytes(&words.to_bytes()), Some(words));
        assert_eq!((words.local(), words.remote()), (row.local, row.remote));
        assert_eq!(words.target(), Some((row.flow, key(row))));
    }
    for step in [1, 2, 3] {
        assert_eq!(survey(&w, step), rows, "{step} at a time");
    }
}

#[test]
fn report_tells_of_the_pages_under_the_tables() {
    let w = World::new();
    let pages = w.stack.report().pages;
    assert!(pages.hugetlb_bytes + pages.thp_bytes + pages.ordinary_bytes > 0);
}

/// A walk examines sixteen places for each row that it may give, whether or not they hold a flow.
#[test]
fn table_that_is_mostly_empty_takes_several_steps() {
    const CROWD: usize = 100;
    let mut w = World::with(|setup| setup.config.limits.sockets_max = 256);
    let listener = w.listen();
    let mut sockets = Vec::new();
    for _ in 0..CROWD {
        let mut client = w.client();
        w.handshake(&mut client);
        sockets.extend(w.app.accept(listener));
    }
    for socket in sockets {
        w.app.abort(socket);
    }
    w.settle();
    w.peer.forget();
    let (mut cursor, mut steps, mut rows) = (SurveyCursor::default(), 0, 0);
    while w.stack.survey(&mut cursor, 1, &mut |_| rows += 1) {
        steps += 1;
    }
    assert_eq!(rows, 1, "the listener");
    assert!(steps > CROWD / 16, "{steps} steps");
}

#[test]
fn several_in_time_wait_are_all_seen() {
    let mut w = World::new();
    let listener = w.listen();
    let mut expected = Vec::new();
    for _ in 0..3 {
        let mut client = w.client();
        w.handshake(&mut client);
        let socket = w.app.accept(listener).expect("the handshake is complete");
        w.close(socket);
        let fin = w.tcp_with(Flags::FIN | Flags::ACK);
        client.take(&fin);
        w.send(&client.fin());
        w.peer.forget();
        expected.push(client.peer);
    }
    let rows = survey(&w, 1_000);
    let waiting = rows.iter().filter(|row| row.state == Some(State::TimeWait));
    let mut seen: Vec<SocketAddr> = waiting.map(|row| row.remote).collect();
    seen.sort_unstable();
    assert_eq!(seen, expected);
}

/// The words that another process reads agree with `TCP_INFO`.
#[test]
fn established_words_are_those_of_its_info() {
    use FlowWord as W;
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.send(&client.data(b"request"));
    assert_eq!(w.read(socket), b"request");
    w.now_ns += 7 * MILLIS;
    w.write(socket, b"response");
    for segment in w.peer.take_tcp() {
        client.take(&segment);
    }
    w.now_ns += 30 * MILLIS;
    w.send(&client.ack());
    w.now_ns += 5 * MILLIS;
    w.write(socket, b"more");
    w.now_ns += 2 * MILLIS;
    let row = in_state(&survey(&w, 1), State::Established);
    let words = row.words(w.now_ns);
    let info = row.info.expect("a connection has some");
    let is = |word: W, expected: u64| assert_eq!(words.at(word), expected, "{}", word.name());
    let times = [
        (W::RtoUs, info.rto_ns),
        (W::RttUs, info.rtt_ns),
        (W::RttVarUs, info.rttvar_ns),
        (W::AtoUs, info.ato_ns),
        (W::MinRttUs, info.min_rtt_ns),
        (W::BusyUs, info.busy_time_ns),
    ];
    for (word, ns) in times {
        assert!(ns >= 1_000, "{} is {ns}", word.name());
        is(word, ns / 1_000);
    }
    is(W::LastSentMs, 2);
    is(W::LastAckMs, 7);
    is(W::LastRecvMs, 44);
    is(W::BytesSent, 12);
    is(W::BytesAcked, info.bytes_acked);
    is(W::BytesReceived, info.bytes_received);
    is(W::Unacked, 1);
    is(W::SendQueue, 4);
    is(W::Cwnd, info.snd_cwnd.into());
    is(W::SendMss, info.snd_mss.into());
    is(W::SegsIn, info.segs_in.into());
    is(W::SegsOut, info.segs_out.into());
}

#[test]
fn packed_connection_stays_packed_and_shows_the_same() {
    let mut w = World::new();
    let (_first, _) = w.established();
    let mut second = w.client();
    w.handshake(&mut second);
    w.advance(1_000_000_000);
    let dormant = w.stack.usage().dormant;
    assert!(dormant > 0, "one of them is packed");
    let rows = survey(&w, 1);
    assert_eq!(w.stack.usage().dormant, dormant);
    let open = rows
        .iter()
        .filter(|row| row.state == Some(State::Established));
    for row in open {
        assert_eq!(row.info.as_ref().unwrap().state, State::Established);
        assert_eq!((row.local.ip(), row.local.port()), (STACK_V4, PORT));
    }
}

#[test]
fn unacknowledged_data_shows_in_the_send_queue_with_its_timer() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.write(socket, b"question");
    let row = in_state(&survey(&w, 8), State::Established);
    assert_eq!(row.send_queue, 8);
    let timer = row.timer.unwrap();
    assert_eq!((timer.kind, timer.tries), (SurveyTimerKind::Retransmit, 0));
    let data = w.tcp();
    client.take(&data);
    w.send(&client.ack());
    assert_eq!(in_state(&survey(&w, 8), State::Established).send_queue, 0);
}

#[test]
fn established_kill_resets_the_peer_and_tells_the_application() {
    let mut w = World::new();
    let (_client, socket) = w.established();
    let row = in_state(&survey(&w, 8), State::Established);
    assert!(w.stack.kill_flow(row.flow, &key(&row)));
    w.settle();
    assert!(w.tcp().flags.contains(Flags::RST));
    assert!(w.app.has(socket, SocketState::FAILED));
    assert_eq!(w.app.errno(socket), Some(Errno::CONNABORTED));
    assert!(!w.stack.kill_flow(row.flow, &key(&row)), "it has gone");
    w.close(socket);
}

#[test]
fn half_open_and_time_wait_kill_are_silent() {
    let mut w = World::new();
    let (mut ended, socket) = w.established();
    w.close(socket);
    let fin = w.tcp_with(Flags::FIN | Flags::ACK);
    ended.take(&fin);
    w.send(&ended.fin());
    w.peer.forget();
    let mut begun = w.client();
    w.send(&begun.syn());
    w.peer.forget();
    for row in survey(&w, 8) {
        let killed = w.stack.kill_flow(row.flow, &key(&row));
        assert_eq!(killed, row.state.is_some(), "listeners stay");
    }
    w.settle();
    w.silent();
    let usage = w.stack.usage();
    assert_eq!((usage.half_open, usage.time_wait, usage.flows), (0, 0, 0));
}

#[test]
fn place_that_another_flow_has_taken_is_not_killed() {
    let mut w = World::new();
    let (_client, _socket) = w.established();
    let row = in_state(&survey(&w, 8), State::Established);
    let other = FlowKey {
        remote_port: row.remote.port() ^ 1,
        ..key(&row)
    };
    assert!(!w.stack.kill_flow(row.flow, &other));
    assert_eq!(w.stack.usage().flows, 1);
}

#[test]
fn established_requests_of_another_process_list_and_kill() {
    let mut w = World::new();
    let (_client, socket) = w.established();
    let room = request::LIST_HEAD_BYTES + request::ROW_BYTES;
    let (mut body, mut rows) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let mut answer = Vec::new();
        assert!(w.stack.answer_list(&body, room, &mut answer));
        assert!(answer.len() <= room);
        let (head, row) = answer.split_at(request::LIST_HEAD_BYTES);
        rows.extend((!row.is_empty()).then(|| row.to_vec()));
        body = head.to_vec();
        if head[0] == 0 {
            break;
        }
    }
    assert_eq!((body[0], rows.len()), (0, 2), "listener and connection");
    let mut killed = Vec::new();
    assert!(w.stack.answer_kill(&rows[0], &mut killed));
    assert!(w.stack.answer_kill(&rows[1], &mut killed));
    assert_eq!(killed, [0, 1]);
    assert_eq!(w.app.errno(socket), Some(Errno::CONNABORTED));
}

#[test]
fn nonsense_from_another_process_is_refused() {
    let mut w = World::new();
    let _open = w.established();
    let mut answer = Vec::new();
    assert!(!w.stack.answer_list(&[], 100, &mut answer), "no room");
    for length in [1, 7, 9, 1024] {
        let body = vec![0xff; length];
        assert!(!w.stack.answer_list(&body, 32_768, &mut answer));
        let is_sense = w.stack.answer_kill(&body, &mut answer);
        assert!(!is_sense, "{length} bytes");
    }
    let beyond = [1, 1, 0, 0, 0xff, 0xff, 0xff, 0xff];
    assert!(w.stack.answer_list(&beyond, 32_768, &mut answer));
    assert_eq!(w.stack.usage().flows, 1);
}

/// Most bytes of an answer to another process.
const ANSWER_BYTES: usize = 32 * 1024;
/// Most places that a step examines per row.
const LOOKS_PER_ROW: usize = 16;

/// Number of connections to each listener.
const TO_EACH: u16 = 50_000;

/// A stack with `listeners` listeners and quiet connections to each, and the peer's ends of these.
fn crowd(listeners: u16) -> (World, Vec<Client>) {
    let sockets = usize::from(TO_EACH) * usize::from(listeners) + 64;
    let mut w = World::with(|setup| {
        let limits = &mut setup.config.limits;
        limits.sockets_max = sockets.next_power_of_two();
        limits.packed_blocks = sockets * 6;
        limits.listeners_max = usize::from(listeners);
    });
    w.unchecked = true;
    let mut clients = Vec::new();
    for listening in PORT..PORT + listeners {
        let local = SocketAddr::new(STACK_V4, listening);
        let listener = w.listen_at(local, 16);
        for port in 0..TO_EACH {
            let mut client = Client::new(SocketAddr::new(PEER_V4, 1_024 + port), local);
            w.handshake(&mut client);
            assert!(w.app.accept(listener).is_some(), "{port}");
            clients.push(client);
        }
        w.app.take_events();
    }
    w.peer.forget();
    (w, clients)
}

#[test]
fn crowd_of_100_000_connections_is_listed_in_steps_of_bounded_work() {
    list_crowd(2);
}

/// Run it by `cargo test --release -p stack --test conversations crowd_of_a_million -- --ignored
/// --nocapture`.
#[test]
#[ignore = "takes minutes on a busy machine, and times a step"]
fn crowd_of_a_million_connections_is_listed_in_steps_of_less_than_a_millisecond() {
    let longest = list_crowd(20);
    assert!(longest < Duration::from_millis(1), "{longest:?}");
}

/// CPU time of this thread so far. Unlike the time of day it does not count other programs.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Walks over a crowd, checks that each connection appears once, and returns the CPU time of the
/// longest step.
fn list_crowd(listeners: u16) -> Duration {
    let (w, clients) = crowd(listeners);
    let rows_max = (ANSWER_BYTES - request::LIST_HEAD_BYTES) / request::ROW_BYTES;
    let packed = w.stack.usage().dormant;
    let (mut body, mut seen, mut times) = (Vec::new(), HashSet::new(), Vec::new());
    let mut place = (0, 0);
    loop {
        let mut answer = Vec::with_capacity(ANSWER_BYTES);
        let begin = cpu_time();
        assert!(w.stack.answer_list(&body, ANSWER_BYTES, &mut answer));
        times.push(cpu_time() - begin);
        let (head, rows) = answer.split_at(request::LIST_HEAD_BYTES);
        assert!(rows.len() / request::ROW_BYTES <= rows_max);
        for row in rows.chunks_exact(request::ROW_BYTES) {
            let words = FlowWords::from_bytes(row).unwrap();
            let is_new = seen.insert((words.local(), words.remote()));
            assert!(is_new, "{words:?}");
        }
        let next = u32::from_le_bytes(head[4..].try_into().unwrap()) as usize;
        let looks = next - if place.0 == head[1] { place.1 } else { 0 };
        assert!(
            looks <= rows_max * LOOKS_PER_ROW,
            "{looks} places in a step"
        );
        place = (head[1], next);
        body = head.to_vec();
        if head[0] == 0 {
            break;
        }
    }
    let listening = usize::from(listeners);
    assert_eq!(seen.len(), clients.len() + listening, "and the listeners");
    let steps = times.len();
    assert!(steps >= clients.len() / rows_max, "{steps}");
    assert!(packed > clients.len() / 10 * 9, "{packed} are packed");
    times.sort_unstable();
    let [median, late, longest] = [steps / 2, steps * 999 / 1000, steps - 1].map(|at| times[at]);
    eprintln!(
        "{} connections, {packed} packed: {steps} steps of {rows_max} rows at most; CPU time of a \
         step: median {median:?}, {late:?} in 999 of 1,000, longest {longest:?}",
        clients.len()
    );
    longest
}
