//! Scripts on the kernel's sockets and epoll.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use crate::script::{LISTENER, PIPE, Step, Want, World, event, outcome};

pub struct Kernels {
    polls: Vec<OwnedFd>,
    sockets: Vec<Option<TcpStream>>,
    peers: Vec<Option<TcpStream>>,
    listener: TcpListener,
    peer_listener: TcpListener,
    pipe: (PipeReader, PipeWriter),
}

impl Kernels {
    pub fn new() -> Self {
        let bind = || TcpListener::bind("127.0.0.1:0").expect("bind");
        let poll = || epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
        let mut world = Self {
            polls: (0..3).map(|_| poll()).collect(),
            sockets: Vec::new(),
            peers: Vec::new(),
            listener: bind(),
            peer_listener: bind(),
            pipe: io::pipe().expect("pipe"),
        };
        world.listener.set_nonblocking(true).expect("nonblocking");
        for _ in 0..3 {
            world.step(Step::PeerConnect);
            world.step(Step::Accept);
        }
        world
    }

    fn fd(&self, which: usize) -> BorrowedFd<'_> {
        match which {
            LISTENER => self.listener.as_fd(),
            PIPE => self.pipe.0.as_fd(),
            at => self.socket(at).as_fd(),
        }
    }

    fn socket(&self, at: usize) -> &TcpStream {
        self.sockets[at].as_ref().expect("a socket")
    }

    fn peer(&self, at: usize) -> &TcpStream {
        self.peers[at].as_ref().expect("a peer")
    }

    fn wait(&self, poll: usize, max: usize) -> String {
        let mut events = Vec::with_capacity(max);
        let soon = Timespec {
            tv_sec: 0,
            tv_nsec: 5_000_000,
        };
        let space = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&self.polls[poll], space, Some(&soon)).expect("epoll_wait");
        let name = |ready: &epoll::Event| {
            let flags = ready.flags;
            let has = |flag| flags.contains(flag);
            event(
                ready.data.u64() as usize,
                [
                    has(EventFlags::IN),
                    has(EventFlags::OUT),
                    has(EventFlags::RDHUP),
                    has(EventFlags::HUP),
                    has(EventFlags::ERR),
                ],
            )
        };
        let mut names: Vec<String> = events.iter().map(name).collect();
        names.sort();
        names.join(" ")
    }

    fn begin(&mut self, to: SocketAddr) -> String {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("socket");
        let outcome = connect(&fd, &to);
        assert_eq!(outcome, Err(Errno::INPROGRESS));
        self.sockets.push(Some(fd.into()));
        String::new()
    }
}

fn flags(want: Want) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN | EventFlags::RDHUP, want.readable);
    flags.set(EventFlags::OUT, want.writable);
    flags.set(EventFlags::ET, want.edge);
    flags.set(EventFlags::ONESHOT, want.once);
    flags
}

impl World for Kernels {
    fn step(&mut self, step: Step) -> String {
        match step {
            Step::Add(poll, at, want) => {
                let data = EventData::new_u64(at as u64);
                let added = epoll::add(&self.polls[poll], self.fd(at), data, flags(want));
                outcome(added.map_err(io::Error::from))
            }
            Step::Change(poll, at, want) => {
                let data = EventData::new_u64(at as u64);
                let changed = epoll::modify(&self.polls[poll], self.fd(at), data, flags(want));
                outcome(changed.map_err(io::Error::from))
            }
            Step::Remove(poll, at) => {
                let removed = epoll::delete(&self.polls[poll], self.fd(at));
                outcome(removed.map_err(io::Error::from))
            }
            Step::Wait(poll) => self.wait(poll, 16),
            Step::Ignore(poll) => {
                self.wait(poll, 16);
                String::new()
            }
            Step::WaitOne(poll) => self.wait(poll, 1),
            Step::Read(at, max) => outcome(self.socket(at).read(&mut vec![0; max])),
            Step::Write(at, len) => outcome(self.socket(at).write(&vec![1; len])),
            Step::Fill(at) => fill(|bytes| self.socket(at).write(bytes)),
            Step::ShutWrite(at) => outcome(self.socket(at).shutdown(Shutdown::Write)),
            Step::ShutRead(at) => outcome(self.socket(at).shutdown(Shutdown::Read)),
            Step::TakeError(at) => {
                let error = self.socket(at).take_error().expect("SO_ERROR");
                format!("{:?}", error.map(|error| error.kind()))
            }
            Step::Accept => match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true).expect("nonblocking");
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
                let to = self.peer_listener.local_addr().expect("name");
                self.begin(to);
                let (peer, _) = self.peer_listener.accept().expect("accept");
                self.peers.push(Some(peer));
                String::new()
            }
            Step::BeginRefused => {
                let nobody = TcpListener::bind("127.0.0.1:0").expect("bind");
                let to = nobody.local_addr().expect("name");
                drop(nobody);
                self.begin(to)
            }
            step => self.peers_step(step),
        }
    }

    fn settle(&mut self) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Kernels {
    fn peers_step(&mut self, step: Step) -> String {
        match step {
            Step::PeerWrite(at, len) => self.peer(at).write_all(&vec![2; len]).expect("write"),
            Step::PeerReadAll(at) => {
                let mut peer = self.peer(at);
                let soon = Some(Duration::from_millis(60));
                peer.set_read_timeout(soon).expect("timeout");
                while peer.read(&mut [0; 65_536]).is_ok() {}
            }
            Step::PeerShut(at) => self.peer(at).shutdown(Shutdown::Write).expect("shutdown"),
            Step::PeerClose(at) => self.peers[at] = None,
            Step::PeerAbort(at) => {
                let peer = self.peers[at].take().expect("a peer");
                sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).expect("SO_LINGER");
            }
            Step::PeerConnect => {
                let to = self.listener.local_addr().expect("name");
                self.peers
                    .push(Some(TcpStream::connect(to).expect("connect")));
            }
            Step::PipeWrite => self.pipe.1.write_all(b"x").expect("write"),
            Step::PipeRead => self.pipe.0.read_exact(&mut [0]).expect("read"),
            step => panic!("{step:?} is no step of a peer"),
        }
        String::new()
    }
}

/// Writes until it would block.
pub fn fill(mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> String {
    let bytes = vec![3; 65_536];
    let mut quiet = 0;
    // The receiver takes bytes away for a while, and its last, delayed ACK may let the buffer grow.
    while quiet < 60 {
        match write(&bytes) {
            Ok(_) => quiet = 0,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                quiet += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return format!("{:?}", error.kind()),
        }
    }
    "full".into()
}
