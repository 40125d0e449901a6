//! A thousand connections at once, all of them in use.

use std::io::Read;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use millstream::{Context, Crank, Events, Interest, Mode, Poll, TcpListener, TcpStream, Token};

use crate::common::bytes::{receive, send};
use crate::common::lab::{Lab, Link, turn_as_root};
use crate::common::meet::{Family, expect_all_returned, places, plain, with_ours};
use crate::common::net::Gate;

const COUNT: usize = 1_000;
const ROUNDS: u64 = 3;
const LEN: usize = 500;
const LISTENER: Token = Token(usize::MAX);

/// Echoes to every client until all have come and gone.
fn echo_to_all(context: &Context, at: SocketAddr, gate: &Gate) {
    let listener = TcpListener::bind(context, at).expect("bind");
    listener.set_nonblocking(true);
    let mut poll = Poll::new(context);
    poll.register(&listener, LISTENER, Interest::READABLE, Mode::Edge)
        .expect("register");
    gate.reach(1);
    let mut events = Events::with_capacity(256);
    let mut streams: Vec<Option<TcpStream>> = Vec::new();
    let (mut open, mut most) = (0, 0);
    while streams.len() < COUNT || open > 0 {
        poll.wait(&mut events, Some(Duration::from_secs(20)))
            .expect("poll");
        assert!(!events.is_empty(), "{open} of {} are silent", streams.len());
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true);
                    let token = Token(streams.len());
                    poll.register(&stream, token, Interest::READABLE, Mode::Edge)
                        .expect("register");
                    streams.push(Some(stream));
                    open += 1;
                }
            } else if let Some(stream) = &streams[event.token().0]
                && !echo(stream)
            {
                streams[event.token().0] = None;
                open -= 1;
            }
        }
        most = most.max(open);
    }
    assert_eq!(most, COUNT, "not all at once");
}

/// Writes all bytes. A thread that writes to hundreds of connections at once may have no chunks
/// until the stack has turned.
fn answer(mut stream: &TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match std::io::Write::write(&mut stream, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Echoes the bytes that are there now; false at the end.
fn echo(mut stream: &TcpStream) -> bool {
    let mut bytes = [0; 4_096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(n) => answer(stream, &bytes[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return true,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn thousand_clients_of_the_kernel() {
    let Some(_turn) = turn_as_root("thousand_clients_of_the_kernel") else {
        return;
    };
    raise_descriptors();
    for crank in [Crank::Inline, Crank::Dedicated] {
        let lab = Lab::new(Link::Native);
        let (ours, kernels) = places(Family::V4);
        let gate = Gate::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                lab.far().enter();
                gate.wait(1);
                let connect = |_| std::net::TcpStream::connect(kernels.peer()).expect("connect");
                let mut streams: Vec<_> = (0..COUNT).map(connect).collect();
                for round in 0..ROUNDS {
                    for stream in &mut streams {
                        send(stream, LEN, round);
                    }
                    for stream in &mut streams {
                        receive(stream, LEN, round);
                    }
                }
            });
            with_ours(&lab, plain(&lab.wire(""), crank), |context| {
                echo_to_all(context, ours.own(), &gate);
                expect_all_returned(context);
            });
        });
    }
}

#[test]
fn thousand_clients_of_ours() {
    let Some(_turn) = turn_as_root("thousand_clients_of_ours") else {
        return;
    };
    raise_descriptors();
    let lab = Lab::new(Link::Native);
    let (ours, kernels) = places(Family::V6);
    let gate = Gate::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            lab.far().enter();
            let listener = std::net::TcpListener::bind(kernels.own()).expect("bind");
            gate.reach(1);
            let mut streams: Vec<_> = (0..COUNT)
                .map(|_| listener.accept().expect("accept").0)
                .collect();
            for round in 0..ROUNDS {
                for stream in &mut streams {
                    receive(stream, LEN, round);
                }
                for stream in &mut streams {
                    send(stream, LEN, !round);
                }
            }
        });
        with_ours(&lab, plain(&lab.wire(""), Crank::Inline), |context| {
            gate.wait(1);
            // All connections begin at once. The kernel's accept queue holds 128, so some SYNs are
            // repeated.
            let begin = |_| TcpStream::start_connect(context, ours.peer()).expect("connect");
            let mut streams: Vec<_> = (0..COUNT).map(begin).collect();
            for stream in &streams {
                stream.set_nonblocking(false);
                stream.set_read_timeout(Some(Duration::from_secs(20)));
            }
            for round in 0..ROUNDS {
                for stream in &mut streams {
                    send(stream, LEN, round);
                }
                for stream in &mut streams {
                    receive(stream, LEN, !round);
                }
            }
            drop(streams);
            expect_all_returned(context);
        });
    });
}

/// Raises the limit of descriptors, since a thousand kernel sockets exceed a shell's default.
fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("RLIMIT_NOFILE");
}
