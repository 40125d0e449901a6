//! Waits that must end, and threads that must sleep.

mod common;

use std::io::{self, ErrorKind, Read, Write};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::{SERVER, config, connect, converse_over, server_addr, unique};
use millstream::{
    Config, Context, Crank, Events, Interest, Mode, Poll, Runtime, TcpListener, TcpState,
    TcpStream, Token,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{ClockId, clock_gettime};

/// A wait that has not ended by then hangs, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than [`PATIENCE`], in ns.
const SPIN_NS: u64 = 300_000_000_000;

fn converse(
    crank: Crank,
    change: impl Fn(&mut Config),
    server: impl FnOnce(&Context) + Send,
    client: impl FnOnce(&Context) + Send,
) {
    let wire = format!("loopback:{}", unique("waits"));
    converse_over(&wire, crank, change, server, client);
}

fn accept_one(context: &Context) -> TcpStream {
    let listener = TcpListener::bind(context, server_addr()).unwrap();
    listener.accept().unwrap().0
}

/// Reads until the peer's end.
fn await_end(mut stream: TcpStream) {
    let mut bytes = vec![0; 65_536];
    while stream.read(&mut bytes).is_ok_and(|n| n > 0) {}
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs `act` on a new thread; fails if it takes longer than [`PATIENCE`].
fn in_time(act: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        act();
        let _ = done.send(());
    });
    is_done.recv_timeout(PATIENCE).expect("it hangs");
}

#[test]
fn writer_without_room_sleeps() {
    for crank in [Crank::Inline, Crank::Dedicated] {
        converse(
            crank,
            |_| (),
            |context| {
                let _unread = accept_one(context);
                thread::sleep(Duration::from_millis(1_500));
            },
            |context| {
                let mut stream = connect(context);
                let bytes = vec![7; 8 << 20];
                stream.set_write_timeout(Some(Duration::from_millis(300)));
                let before = cpu_time();
                while stream.write(&bytes).is_ok() {}
                let used = cpu_time() - before;
                assert!(used < Duration::from_millis(150), "{crank:?}: {used:?}");
            },
        );
    }
}

#[test]
fn read_timeout_ends_a_spinning_wait() {
    converse(
        Crank::Inline,
        |config| config.spin_ns = SPIN_NS,
        |context| {
            let stream = accept_one(context);
            await_end(stream);
        },
        |context| {
            let mut stream = connect(context);
            stream.set_read_timeout(Some(Duration::from_millis(50)));
            let start = Instant::now();
            let outcome = stream.read(&mut [0]);
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::WouldBlock);
            assert!(start.elapsed() < PATIENCE);
        },
    );
}

#[test]
fn write_of_an_owner_long_away_leaves_at_once() {
    let (tell, told) = mpsc::channel();
    converse(
        Crank::Inline,
        |_| (),
        move |context| {
            let mut stream = accept_one(context);
            stream.read_exact(&mut [0]).unwrap();
            tell.send(()).unwrap();
        },
        move |context| {
            let mut stream = connect(context);
            thread::sleep(Duration::from_millis(100));
            stream.write_all(b"x").unwrap();
            // The owner turns no crank until the byte has arrived.
            told.recv_timeout(PATIENCE).expect("the byte has not left");
        },
    );
}

#[test]
fn short_write_is_followed_by_a_writable_edge() {
    for crank in [Crank::Inline, Crank::Dedicated] {
        converse(
            crank,
            |_| (),
            |context| {
                let stream = accept_one(context);
                thread::sleep(Duration::from_millis(50));
                await_end(stream);
            },
            |context| {
                let mut stream = connect(context);
                stream.set_nonblocking(true);
                let mut poll = Poll::new(context);
                let mut events = Events::with_capacity(8);
                let timeout = Some(PATIENCE);
                poll.register(&stream, Token(1), Interest::WRITABLE, Mode::Edge)
                    .unwrap();
                assert_eq!(poll.wait(&mut events, timeout).unwrap(), 1);
                let bytes = vec![7; 16 << 20];
                assert!(stream.write(&bytes).unwrap() < bytes.len());
                assert_eq!(poll.wait(&mut events, timeout).unwrap(), 1, "{crank:?}");
                assert!(events.iter().all(|event| event.is_writable()));
            },
        );
    }
}

#[test]
fn write_before_the_connection_is_open_would_block() {
    let nobody = |_: &Context| ();
    converse(
        Crank::Inline,
        |_| (),
        nobody,
        |context| {
            let nowhere = "10.9.0.77:9".parse().unwrap();
            let mut stream = TcpStream::start_connect(context, nowhere).unwrap();
            assert_eq!(
                stream.write(b"early").unwrap_err().kind(),
                ErrorKind::WouldBlock
            );
        },
    );
}

#[test]
fn kernel_descriptor_is_told_of_beside_a_socket_that_is_always_ready() {
    converse(
        Crank::Inline,
        |_| (),
        |context| await_end(accept_one(context)),
        |context| {
            let stream = connect(context);
            let bell = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
            let mut poll = Poll::new(context);
            poll.register(&stream, Token(1), Interest::WRITABLE, Mode::Level)
                .unwrap();
            poll.register_fd(&bell, Token(2), Interest::READABLE)
                .unwrap();
            let mut events = Events::with_capacity(1);
            let mut seen = [false; 3];
            for _ in 0..10 {
                poll.wait(&mut events, Some(Duration::from_secs(1)))
                    .unwrap();
                for event in &events {
                    seen[event.token().0] = true;
                }
            }
            assert_eq!(seen, [false, true, true]);
        },
    );
}

/// Two contexts of this thread on one wire, with inline cranks.
fn two_contexts() -> [(Context, Runtime); 2] {
    let wire = format!("loopback:{}", unique("two"));
    ["10.9.0.2/24", "10.9.0.1/24"].map(|address| {
        let runtime = Runtime::new(config(&wire, address, Crank::Inline)).unwrap();
        (runtime.context(0).unwrap(), runtime)
    })
}

/// Both ends of a connection between two contexts of this thread.
fn connected(here: &Context, there: &Context) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(there, server_addr()).unwrap();
    listener.set_nonblocking(true);
    let client = TcpStream::start_connect(here, server_addr()).unwrap();
    loop {
        here.turn().unwrap();
        there.turn().unwrap();
        if let Ok((server, _)) = listener.accept() {
            here.turn_until_idle().unwrap();
            return (client, server);
        }
    }
}

#[test]
fn kernel_descriptor_for_which_there_was_no_room_is_asked_for_by_the_next_wait() {
    let [(here, _near), (there, _far)] = two_contexts();
    let bell = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
    // Waits alternate between sockets first and kernel first; test both orders.
    for is_odd in [false, true] {
        let (client, mut server) = connected(&here, &there);
        server.set_nodelay(true).unwrap();
        let mut poll = Poll::new(&here);
        poll.register(&client, Token(1), Interest::WRITABLE, Mode::Level)
            .unwrap();
        poll.register_fd(&bell, Token(2), Interest::READABLE)
            .unwrap();
        let mut events = Events::with_capacity(1);
        if is_odd {
            poll.wait(&mut events, Some(PATIENCE)).unwrap();
        }
        let mut told = 0;
        // Few enough bytes to be acknowledged without delay: each wait has to find the stack busy.
        for _ in 0..8 {
            for context in [&here, &there, &here] {
                context.turn_until_idle().unwrap();
            }
            // The kernel has to be asked in the first of two waits, and not in the second.
            thread::sleep(Duration::from_millis(1));
            for _ in 0..2 {
                server.write_all(b"busy").unwrap();
                there.turn().unwrap();
                poll.wait(&mut events, Some(PATIENCE)).unwrap();
                told += events.iter().filter(|it| it.token() == Token(2)).count();
            }
        }
        assert!(told >= 6, "{told} of 8, {is_odd}");
    }
}

/// The reports of several polls on one socket, in order: readable and writable.
fn told(polls: &mut [Poll]) -> Vec<(bool, bool)> {
    let one = |poll: &mut Poll| {
        let mut events = Events::with_capacity(1);
        poll.wait(&mut events, Some(Duration::from_millis(5)))
            .unwrap();
        let event = events.iter().next();
        event.map_or((false, false), |it| (it.is_readable(), it.is_writable()))
    };
    polls.iter_mut().map(one).collect()
}

fn polls_of(context: &Context, stream: &TcpStream, wanted: &[(Interest, Mode)]) -> Vec<Poll> {
    let watch = |&(interest, mode): &(Interest, Mode)| {
        let mut poll = Poll::new(context);
        poll.register(stream, Token(1), interest, mode).unwrap();
        poll
    };
    wanted.iter().map(watch).collect()
}

// Linux's epoll reports the same (`tcp_set_rcvlowat`).
#[test]
fn established_low_water_mark_that_the_waiting_bytes_reach_is_told() {
    let [(here, _near), (there, _far)] = two_contexts();
    let (client, mut server) = connected(&here, &there);
    let both = Interest::READABLE | Interest::WRITABLE;
    let mut polls = polls_of(
        &here,
        &client,
        &[
            (Interest::READABLE, Mode::Level),
            (Interest::READABLE, Mode::Edge),
            (Interest::WRITABLE, Mode::Edge),
            (both, Mode::Edge),
        ],
    );
    let (no, r, w, rw) = ((false, false), (true, false), (false, true), (true, true));
    client.options().set_recv_lowat(100);
    assert_eq!(told(&mut polls), [no, no, w, w]);
    server.write_all(&[7; 10]).unwrap();
    there.turn_until_idle().unwrap();
    told(&mut polls);
    assert_eq!(told(&mut polls), [no; 4]);
    // Too few bytes, enough, and enough again, which is news in Linux, too.
    for (bytes, said) in [(50, [no; 4]), (10, [r, r, no, rw]), (5, [r, r, no, rw])] {
        client.options().set_recv_lowat(bytes);
        assert_eq!(told(&mut polls), said, "{bytes}");
        assert_eq!(told(&mut polls), [said[0], no, no, no], "{bytes}");
    }
    client.options().set_recv_lowat(200);
    assert_eq!(told(&mut polls), [no; 4]);
}

/// Echoes until the peer closes.
fn echo(mut stream: TcpStream) {
    let mut bytes = vec![0; 65_536];
    while let Ok(count) = stream.read(&mut bytes)
        && count > 0
    {
        stream.write_all(&bytes[..count]).unwrap();
    }
}

#[test]
fn kernel_descriptor_is_told_of_beside_a_stack_that_is_busy() {
    for crank in [Crank::Inline, Crank::Dedicated] {
        converse(
            crank,
            |_| (),
            |context| echo(accept_one(context)),
            |context| {
                let mut stream = connect(context);
                stream.set_nonblocking(true);
                let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
                let mut poll = Poll::new(context);
                poll.register(&stream, Token(1), Interest::READABLE, Mode::Level)
                    .unwrap();
                poll.register_fd(&bell, Token(2), Interest::READABLE)
                    .unwrap();
                let (mut events, mut buffer) = (Events::with_capacity(8), [0; 64]);
                stream.write_all(b"again and again").unwrap();
                let begin = Instant::now();
                let mut rung = None;
                'waits: loop {
                    poll.wait(&mut events, Some(PATIENCE)).unwrap();
                    for event in &events {
                        if event.token() == Token(2) {
                            break 'waits;
                        }
                        let count = stream.read(&mut buffer).unwrap();
                        stream.write_all(&buffer[..count]).unwrap();
                    }
                    if rung.is_none() && begin.elapsed() > Duration::from_millis(20) {
                        rustix::io::write(&bell, &1u64.to_ne_bytes()).unwrap();
                        rung = Some(Instant::now());
                    }
                }
                assert!(rung.unwrap().elapsed() < PATIENCE, "{crank:?}");
            },
        );
    }
}

#[test]
fn flood_of_options_and_reports_to_a_stack_thread_ends() {
    in_time(|| {
        converse(
            Crank::Dedicated,
            |_| (),
            |context| await_end(accept_one(context)),
            |context| {
                let stream = connect(context);
                for n in 0..200_000 {
                    stream.set_nodelay(n & 1 == 0).unwrap();
                }
                for _ in 0..2_000 {
                    context.report().unwrap();
                }
            },
        );
    });
}

#[test]
fn stack_thread_hears_that_it_is_to_stop() {
    let mut config = config(
        &format!("loopback:{}", unique("stop")),
        "10.9.0.1/24",
        Crank::Dedicated,
    );
    config.limits.sockets_max = 16;
    config.limits.small_chunks = 64;
    config.limits.large_chunks = 64;
    config.limits.time_wait_max = 16;
    config.limits.half_open_max = 16;
    config.linger_ns = 0;
    for round in 0..400 {
        let config = config.clone();
        in_time(move || {
            let runtime = Runtime::new(config).unwrap();
            let context = runtime.context(0).unwrap();
            if round % 2 == 0 {
                drop(TcpListener::bind(&context, SERVER.parse().unwrap()).unwrap());
            }
            let start = Instant::now();
            while start.elapsed() < Duration::from_nanos(round * 250) {}
        });
    }
}

#[test]
fn peer_of_a_runtime_that_could_not_close_in_order_is_reset() {
    for crank in [Crank::Inline, Crank::Dedicated] {
        in_time(move || {
            converse(
                crank,
                |config| config.linger_ns = 50_000_000,
                |context| {
                    let stream = accept_one(context);
                    thread::sleep(Duration::from_millis(800));
                    await_end(stream);
                },
                |context| {
                    let mut stream = connect(context);
                    stream.set_write_timeout(Some(Duration::from_millis(100)));
                    while stream.write(&[7; 65_536]).is_ok() {}
                },
            );
        });
    }
}

/// The peer reads only after the default linger time, and keeps its own side open.
#[test]
fn runtime_that_ends_delivers_what_it_holds_and_does_not_wait_for_the_peers_end() {
    for crank in [Crank::Inline, Crank::Dedicated] {
        in_time(move || {
            let wire = format!("loopback:{}", unique("deliver"));
            let (is_over, over) = mpsc::channel();
            let server_config = config(&wire, "10.9.0.1/24", crank);
            let server = thread::spawn(move || {
                let runtime = Runtime::new(server_config).unwrap();
                let mut stream = accept_one(&runtime.context(0).unwrap());
                thread::sleep(Duration::from_millis(1_500));
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).unwrap();
                // The runtime must not reset a peer that is about to close.
                thread::sleep(Duration::from_millis(300));
                let info = stream.options().info().unwrap();
                let state = info.map(|info| info.tcp.state);
                assert_eq!(state, Some(TcpState::CloseWait));
                over.recv().unwrap();
                bytes.len()
            });
            let mut config = config(&wire, "10.9.0.2/24", crank);
            config.linger_ns = 600_000_000_000;
            let mut written = 0;
            {
                let runtime = Runtime::new(config).unwrap();
                let mut stream = connect(&runtime.context(0).unwrap());
                stream.set_write_timeout(Some(Duration::from_millis(100)));
                while let Ok(count) = stream.write(&[7; 65_536]) {
                    written += count;
                }
            }
            is_over.send(()).unwrap();
            assert_eq!(server.join().unwrap(), written);
        });
    }
}

#[test]
fn listener_dropped_behind_a_thousand_streams_leaves_its_address_to_the_next() {
    for crank in [Crank::Inline, Crank::Dedicated] {
        let wire = format!("loopback:{}", unique("thousand"));
        let runtime = Runtime::new(config(&wire, "10.9.0.1/24", crank)).unwrap();
        let context = runtime.context(0).unwrap();
        let nowhere = "10.9.0.77:9".parse().unwrap();
        let listen = || TcpListener::bind(&context, server_addr());
        let crowd = || -> Vec<TcpStream> {
            let streams = (0..1_500).map(|_| TcpStream::start_connect(&context, nowhere).unwrap());
            streams.collect()
        };
        let listener = listen().unwrap();
        drop(crowd());
        drop(listener);
        let listener = listen().unwrap_or_else(|error| panic!("{crank:?}: {error}"));
        drop(crowd());
        let socket = listener.into_socket();
        socket.unwrap_or_else(|error| panic!("{crank:?}: {error}"));
    }
}

#[test]
fn poll_asked_about_what_is_another_contexts_knows_nothing_of_it() {
    let wire = format!("loopback:{}", unique("foreign"));
    let open = |address: &str| Runtime::new(config(&wire, address, Crank::Inline)).unwrap();
    let runtimes = [open("10.9.0.2/24"), open("10.9.0.1/24")];
    let [here, there] = runtimes.each_ref().map(|it| it.context(0).unwrap());
    let (readable, edge) = (Interest::READABLE, Mode::Edge);
    let (mut poll, mut inner, mut foreign) =
        (Poll::new(&here), Poll::new(&here), Poll::new(&there));
    let mut foreign_inner = Poll::new(&there);
    let nowhere = "10.9.0.77:9".parse().unwrap();
    let ours = TcpStream::start_connect(&here, nowhere).unwrap();
    poll.register(&ours, Token(1), readable, edge).unwrap();
    poll.register_poll(&mut inner, Token(2), readable, edge, false)
        .unwrap();
    // One of them has the index of our socket; most have an index that is not in use here.
    let theirs: Vec<_> = (0..40)
        .map(|_| TcpStream::start_connect(&there, nowhere).unwrap())
        .collect();
    let unknown = |outcome: io::Result<()>| {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::NotFound);
    };
    for stream in &theirs {
        unknown(poll.reregister(stream, Token(9), readable, edge));
        unknown(poll.reregister_once(stream, Token(9), readable, edge));
        unknown(poll.deregister(stream));
    }
    for other in [&mut foreign, &mut foreign_inner] {
        unknown(poll.reregister_poll(other, Token(9), readable, edge, false));
        unknown(poll.deregister_poll(other));
    }
    // The poll still watches its own sources.
    poll.deregister(&ours).unwrap();
    poll.deregister_poll(&mut inner).unwrap();
}

#[test]
fn accept_that_nobody_comes_for_ends_when_the_listeners_receive_timeout_is_over() {
    for crank in [Crank::Inline, Crank::Dedicated] {
        in_time(move || {
            let wire = format!("loopback:{}", unique("nobody"));
            let runtime = Runtime::new(config(&wire, "10.9.0.1/24", crank)).unwrap();
            let context = runtime.context(0).unwrap();
            let listener = TcpListener::bind(&context, server_addr()).unwrap();
            let timeout = Duration::from_millis(50);
            listener.options().set_recv_timeout(Some(timeout));
            let begin = Instant::now();
            let ended = listener.accept().err().expect("nobody came");
            assert_eq!(ended.kind(), ErrorKind::WouldBlock, "{crank:?}");
            assert!(begin.elapsed() >= timeout, "{crank:?}");
        });
    }
}

#[test]
fn peers_of_a_crowd_that_could_not_close_in_order_are_all_reset() {
    const CROWD: usize = 3_000;
    for crank in [Crank::Inline, Crank::Dedicated] {
        let (told, all_are_here) = mpsc::channel();
        converse(
            crank,
            |config| config.linger_ns = 20_000_000,
            move |context| {
                let listener = TcpListener::bind(context, server_addr()).unwrap();
                let streams: Vec<_> = (0..CROWD).map(|_| listener.accept().unwrap().0).collect();
                told.send(()).unwrap();
                let begin = Instant::now();
                let open = || streams.iter().filter(|stream| stream.is_open()).count();
                while open() > 0 && begin.elapsed() < PATIENCE {
                    context.turn().unwrap();
                }
                assert_eq!(open(), 0, "{crank:?}: of {CROWD}");
            },
            move |context| {
                let streams: Vec<_> = (0..CROWD).map(|_| connect(context)).collect();
                all_are_here.recv().unwrap();
                drop(streams);
            },
        );
    }
}
