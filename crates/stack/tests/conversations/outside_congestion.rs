//! External congestion control: its state survives packing, tools show its name, and replaced
//! settings keep it.

use stack::context::{Control, SocketOption};
use stack::survey::SurveyCursor;
use tcp::CongestionAlgorithm;
use tcp::congestion_control::{
    AckSample, CongestionControl, OutsideAlgorithm, SenderView, State, Window,
};

use crate::common::{SECOND, World};

/// An algorithm with a window of ten segments, plus one per ACK of new data.
struct Counting;

impl CongestionControl for Counting {
    fn begin(&self, state: &mut State, _: &SenderView, _: &mut Window) {
        state[17] = 0xffff_0000;
    }

    fn ssthresh(&self, _: &mut State, _: &SenderView, window: &Window) -> u32 {
        window.cwnd()
    }

    fn grow(&self, _: &mut State, _: &SenderView, _: &mut Window, _: &AckSample) {}

    fn on_acked(&self, state: &mut State, _: &SenderView, window: &mut Window, _: &AckSample) {
        state[17] += 1;
        window.set_cwnd(10 + (state[17] & 0xffff));
    }
}

static COUNTING: OutsideAlgorithm = OutsideAlgorithm::new("counting-acks", &Counting);

/// Algorithm name and window of every connection.
fn connections(w: &World) -> Vec<(Option<String>, u32)> {
    let (mut cursor, mut all) = (SurveyCursor::default(), Vec::new());
    let mut sink = |row: stack::survey::SurveyRow| {
        let name = row.words(w.now_ns).congestion();
        all.extend(row.info.map(|info| (name, info.snd_cwnd)));
    };
    while w.stack.survey(&mut cursor, 100, &mut sink) {}
    all
}

#[test]
fn established_packed_goes_on_with_its_words() {
    let mut w = World::with(|setup| {
        setup.config.limits.warm_sockets = 1;
        setup.config.limits.pack_after_ns = SECOND;
        let tcp = &mut setup.config.tcp;
        tcp.congestion = tcp.register_congestion(&COUNTING).expect("a new name");
        tcp.slow_start_after_idle = false;
    });
    let listener = w.listen();
    let mut ends = Vec::new();
    for _ in 0..4 {
        let mut client = w.client();
        w.handshake(&mut client);
        let socket = w.app.accept(listener).expect("the handshake is complete");
        ends.push((client, socket));
    }
    for round in 1..=3 {
        for (client, socket) in &mut ends {
            w.write(*socket, b"news");
            let segment = w.peer.take_tcp().pop().expect("the news");
            client.take(&segment);
            w.send(&client.ack());
        }
        w.advance(2 * SECOND);
        for _ in 0..64 {
            w.turn();
        }
        assert_eq!(w.stack.usage().dormant, 4, "round {round}");
        let expected = (Some("counting-acks".to_owned()), 10 + round);
        assert_eq!(connections(&w), vec![expected; 4]);
    }
}

#[test]
fn established_settings_replaced_keep_the_algorithm() {
    let mut w = World::with(|setup| {
        let registered = setup.config.tcp.register_congestion(&COUNTING);
        registered.expect("a new name");
    });
    let (mut client, socket) = w.established();
    let choice = SocketOption::Congestion(CongestionAlgorithm::Outside(&COUNTING));
    w.app.option(socket, choice);
    w.app.control(Control::Settings(Box::default()));
    w.write(socket, b"news");
    let segment = w.peer.take_tcp().pop().expect("the news");
    client.take(&segment);
    w.send(&client.ack());
    assert_eq!(connections(&w), [(Some("counting-acks".to_owned()), 11)]);
}

#[test]
fn established_option_that_the_stack_does_not_know_is_the_default() {
    let mut w = World::new();
    let (_client, socket) = w.established();
    let choice = SocketOption::Congestion(CongestionAlgorithm::Outside(&COUNTING));
    w.app.option(socket, choice);
    w.turn();
    assert_eq!(connections(&w), [(Some("cubic".to_owned()), 10)]);
}
