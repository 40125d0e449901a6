//! Scripts on Millstream's sockets and `Poll`. Their peers are sockets of a second stack, which
//! this thread turns so that a busy machine does not delay them.

use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use millstream::{
    Config, Context, Crank, Event, Events, Interest, Mode, Poll, Runtime, Source, TcpListener,
    TcpStream, Token,
};

use crate::common::unique;
use crate::kernels::fill;
use crate::script::{LISTENER, PIPE, Step, Want, World, event, outcome};

const LISTENING: &str = "10.9.0.1:7000";
const PEER_LISTENING: &str = "10.9.0.2:7000";
const NOBODY: &str = "10.9.0.2:7001";

pub struct Ours {
    polls: Vec<Poll>,
    sockets: Vec<Option<TcpStream>>,
    peers: Vec<Option<TcpStream>>,
    listener: TcpListener,
    peer_listener: TcpListener,
    pipe: (PipeReader, PipeWriter),
    context: Context,
    peer_context: Context,
    /// Our stack has a thread of its own.
    is_dedicated: bool,
}

fn open(wire: &str, address: &str, crank: Crank) -> Context {
    let mut config = Config::new(wire.parse().expect("wire"));
    config.addresses.push(address.parse().expect("address"));
    config.crank = crank;
    config.linger_ns = 0;
    let runtime = Runtime::new(config).expect("runtime");
    runtime.context(0).expect("context")
}

fn at(name: &str) -> SocketAddr {
    name.parse().expect("address")
}

impl Ours {
    pub fn new(crank: Crank) -> Self {
        let wire = format!("loopback:{}", unique("epoll"));
        let context = open(&wire, "10.9.0.1/24", crank);
        let peer_context = open(&wire, "10.9.0.2/24", Crank::Inline);
        let listener = TcpListener::bind(&context, at(LISTENING)).expect("bind");
        listener.set_nonblocking(true);
        let mut world = Self {
            polls: (0..3).map(|_| Poll::new(&context)).collect(),
            sockets: Vec::new(),
            peers: Vec::new(),
            listener,
            peer_listener: TcpListener::bind(&peer_context, at(PEER_LISTENING)).expect("bind"),
            pipe: std::io::pipe().expect("pipe"),
            context,
            peer_context,
            is_dedicated: crank == Crank::Dedicated,
        };
        for count in 1..=3 {
            world.step(Step::PeerConnect);
            // On a busy machine a stack thread may take long.
            for _ in 0..1_000 {
                if world.sockets.len() == count {
                    break;
                }
                world.settle();
                world.step(Step::Accept);
            }
        }
        world
    }

    fn socket(&self, at: usize) -> &TcpStream {
        self.sockets[at].as_ref().expect("a socket")
    }

    fn peer(&self, at: usize) -> &TcpStream {
        self.peers[at].as_ref().expect("a peer")
    }

    fn wait(&mut self, poll: usize, max: usize) -> String {
        let mut events = Events::with_capacity(max);
        let soon = Some(Duration::from_millis(5));
        let n = self.polls[poll].wait(&mut events, soon).expect("wait");
        let name = |ready: &Event| {
            event(
                ready.token().0,
                [
                    ready.is_readable(),
                    ready.is_writable(),
                    ready.is_read_closed(),
                    ready.is_hangup(),
                    ready.is_error(),
                ],
            )
        };
        let mut names: Vec<String> = events.iter().map(name).collect();
        assert_eq!(names.len(), n);
        names.sort();
        names.join(" ")
    }

    fn add(&mut self, poll: usize, which: usize, want: Want) -> String {
        let poll = &mut self.polls[poll];
        outcome(match which {
            LISTENER => add(poll, &self.listener, which, want),
            PIPE => poll.register_fd(&self.pipe.0, Token(which), interest(want)),
            at => add(poll, self.sockets[at].as_ref().expect("a socket"), at, want),
        })
    }

    fn change(&mut self, poll: usize, which: usize, want: Want) -> String {
        let poll = &mut self.polls[poll];
        outcome(match which {
            LISTENER => change(poll, &self.listener, which, want),
            at => change(poll, self.sockets[at].as_ref().expect("a socket"), at, want),
        })
    }

    fn remove(&mut self, poll: usize, which: usize) -> String {
        let poll = &mut self.polls[poll];
        outcome(match which {
            LISTENER => poll.deregister(&self.listener),
            PIPE => poll.deregister_fd(&self.pipe.0),
            at => poll.deregister(self.sockets[at].as_ref().expect("a socket")),
        })
    }
}

fn interest(want: Want) -> Interest {
    match (want.readable, want.writable) {
        (true, true) => Interest::READABLE | Interest::WRITABLE,
        (false, true) => Interest::WRITABLE,
        _ => Interest::READABLE,
    }
}

fn mode(want: Want) -> Mode {
    match want.edge {
        true => Mode::Edge,
        false => Mode::Level,
    }
}

fn add(poll: &mut Poll, source: &impl Source, at: usize, want: Want) -> std::io::Result<()> {
    match want.once {
        true => poll.register_once(source, Token(at), interest(want), mode(want)),
        false => poll.register(source, Token(at), interest(want), mode(want)),
    }
}

fn change(poll: &mut Poll, source: &impl Source, at: usize, want: Want) -> std::io::Result<()> {
    match want.once {
        true => poll.reregister_once(source, Token(at), interest(want), mode(want)),
        false => poll.reregister(source, Token(at), interest(want), mode(want)),
    }
}

impl World for Ours {
    fn step(&mut self, step: Step) -> String {
        match step {
            Step::Add(poll, at, want) => self.add(poll, at, want),
            Step::Change(poll, at, want) => self.change(poll, at, want),
            Step::Remove(poll, at) => self.remove(poll, at),
            Step::Wait(poll) => self.wait(poll, 16),
            Step::Ignore(poll) => {
                self.wait(poll, 16);
                String::new()
            }
            Step::WaitOne(poll) => self.wait(poll, 1),
            Step::Read(at, max) => outcome(self.socket(at).read(&mut vec![0; max])),
            Step::Write(at, len) => outcome(self.socket(at).write(&vec![1; len])),
            Step::Fill(at) => fill(|bytes| {
                let _ = self.context.turn();
                self.socket(at).write(bytes)
            }),
            Step::ShutWrite(at) => outcome(self.socket(at).shutdown(Shutdown::Write)),
            Step::ShutRead(at) => outcome(self.socket(at).shutdown(Shutdown::Read)),
            Step::TakeError(at) => {
                let error = self.socket(at).take_error();
                format!("{:?}", error.map(|error| error.kind()))
            }
            Step::Accept => match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true);
                    self.sockets.push(Some(stream));
                    "accepted".into()
                }
                Err(error) => format!("{:?}", error.kind()),
            },
            Step::Close(at) => {
                self.sockets[at] = None;
                String::new()
            }
            Step::Begin => {
                let stream = TcpStream::start_connect(&self.context, at(PEER_LISTENING));
                self.sockets.push(Some(stream.expect("connect")));
                let (peer, _) = self.peer_listener.accept().expect("accept");
                self.peers.push(Some(peer));
                String::new()
            }
            Step::BeginRefused => {
                let stream = TcpStream::start_connect(&self.context, at(NOBODY));
                self.sockets.push(Some(stream.expect("connect")));
                String::new()
            }
            step => self.peers_step(step),
        }
    }

    fn settle(&mut self) {
        // Each side may answer what the other one sent.
        for _ in 0..6 {
            let _ = self.context.turn_until_idle();
            let _ = self.peer_context.turn_until_idle();
            if self.is_dedicated {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Ours {
    fn peers_step(&mut self, step: Step) -> String {
        match step {
            Step::PeerWrite(at, len) => self.peer(at).write_all(&vec![2; len]).expect("write"),
            Step::PeerReadAll(at) => self.peer_reads_all(at),
            Step::PeerShut(at) => self.peer(at).shutdown(Shutdown::Write).expect("shutdown"),
            Step::PeerClose(at) => self.peers[at] = None,
            Step::PeerAbort(at) => self.peers[at].take().expect("a peer").abort(),
            Step::PeerConnect => {
                // The watchdog turns the inline stack while the peer waits in its blocking call.
                let stream = TcpStream::connect(&self.peer_context, at(LISTENING));
                self.peers.push(Some(stream.expect("connect")));
            }
            Step::PipeWrite => self.pipe.1.write_all(b"x").expect("write"),
            Step::PipeRead => self.pipe.0.read_exact(&mut [0]).expect("read"),
            step => panic!("{step:?} is no step of a peer"),
        }
        String::new()
    }

    fn peer_reads_all(&mut self, at: usize) {
        let mut peer = self.peer(at);
        peer.set_nonblocking(true);
        let mut last = Instant::now();
        while last.elapsed() < Duration::from_millis(60) {
            match peer.read(&mut [0; 65_536]) {
                Ok(_) => last = Instant::now(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let _ = self.context.turn();
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("{error}"),
            }
        }
        peer.set_nonblocking(false);
    }
}
