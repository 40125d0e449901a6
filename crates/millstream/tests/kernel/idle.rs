//! An established connection on which nothing happens uses no CPU, with either crank.

use std::io::{ErrorKind, Read};
use std::thread;
use std::time::Duration;

use millstream::{Context, Crank, Events, Interest, Mode, Poll, TcpListener, Token};

use crate::common::bytes::{receive, send};
use crate::common::cpu::{LOOK, expect_idle};
use crate::common::lab::{Lab, Link, turn_as_root};
use crate::common::meet::{Family, places, plain, with_ours};

/// The place where the stack's owner waits.
#[derive(Clone, Copy, Debug)]
enum Way {
    Read,
    Poll,
    Away,
}

/// Talks to the kernel, then is silent in each way of waiting.
fn serve(context: &Context, label: &str, at: std::net::SocketAddr, ways: &[Way]) {
    let listener = TcpListener::bind(context, at).expect("bind");
    let (mut stream, _) = listener.accept().expect("accept");
    receive(&mut stream, 100_000, 1);
    send(&mut stream, 100_000, 2);
    let mut poll = Poll::new(context);
    poll.register(&stream, Token(1), Interest::READABLE, Mode::Level)
        .expect("register");
    let mut events = Events::with_capacity(4);
    stream.set_read_timeout(Some(LOOK));
    for &way in ways {
        expect_idle(&format!("{label}, {way:?}"), || match way {
            Way::Read => {
                let error = stream.read(&mut [0]).expect_err("nothing to read");
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
            }
            Way::Poll => assert_eq!(poll.wait(&mut events, Some(LOOK)).expect("poll"), 0),
            Way::Away => thread::sleep(LOOK),
        });
    }
}

fn meet(link: Link, crank: Crank, ways: &[Way]) {
    let lab = Lab::new(link);
    let (ours, kernels) = places(Family::V4);
    let label = format!("{link:?} {crank:?}");
    thread::scope(|scope| {
        scope.spawn(|| {
            lab.far().enter();
            let mut stream = connect(kernels.peer());
            send(&mut stream, 100_000, 1);
            receive(&mut stream, 100_000, 2);
            // Keeps the connection until the server closes.
            let _ = stream.read(&mut [0]);
        });
        with_ours(&lab, plain(&lab.wire(""), crank), |context| {
            serve(context, &label, ours.own(), ways);
        });
    });
}

/// Retries, since the server opens its wire on another thread.
fn connect(to: std::net::SocketAddr) -> std::net::TcpStream {
    for _ in 0..500 {
        match std::net::TcpStream::connect(to) {
            Ok(stream) => return stream,
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
    panic!("nobody listens at {to}");
}

#[test]
fn idle_connection_costs_nothing_over_xdp() {
    let Some(_turn) = turn_as_root("idle_connection_costs_nothing_over_xdp") else {
        return;
    };
    meet(Link::Native, Crank::Inline, &[Way::Poll, Way::Away]);
    meet(Link::Native, Crank::Dedicated, &[Way::Read]);
}

#[test]
fn idle_connection_costs_nothing_over_tap() {
    let Some(_turn) = turn_as_root("idle_connection_costs_nothing_over_tap") else {
        return;
    };
    meet(Link::Tap, Crank::Inline, &[Way::Read]);
}
