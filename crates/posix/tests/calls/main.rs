//! Conversations of calls, played on two hosts of ours and on the kernel that runs the test. Each
//! call must return the same value or errno on both.
//!
//! A script is a list of steps. Sockets have names; the listener is always on the other host. Steps
//! allow for the kernel's own timing: its loopback answers within the call.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code)] // Other tests use the rest.
mod kernel_unsafe;
mod matrix;

use std::collections::HashMap;
use std::time::Duration;

use common::World;
use posix::number::*;
use posix::{Address, Outcome, PollFd, Reply, Request};

/// A step: the socket, and the call on it.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A new non-blocking socket.
    Socket(&'static str),
    Bind(&'static str),
    BindOther(&'static str, Address),
    Listen(&'static str, i32),
    /// Connects to the listener's address.
    Connect(&'static str),
    ConnectTo(&'static str, Address),
    Accept(&'static str, &'static str),
    AcceptNone(&'static str),
    Send(&'static str, &'static [u8], i32),
    Recv(&'static str, usize, i32),
    Read(&'static str, usize),
    Shutdown(&'static str, i32),
    Close(&'static str),
    Abort(&'static str),
    Peer(&'static str),
    Poll(&'static str),
    Inq(&'static str),
    Error(&'static str),
    /// Any other call.
    Do(&'static str, fn(i32) -> Request),
}

use Step::*;

const EVENTS: i16 = POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDNORM | POLLWRNORM;
const PORT: u16 = 80;

/// True for names of sockets on the host that listens.
fn is_server(name: &str) -> bool {
    name.starts_with('s')
}

struct Play<'a> {
    world: &'a mut World,
    /// Our descriptor and the kernel's, by name.
    fds: HashMap<&'static str, (i32, i32)>,
    kernel_port: u16,
    /// Time that the kernel gets for the effects of each call.
    pause: Duration,
}

impl Play<'_> {
    fn fds(&self, name: &str) -> (i32, i32) {
        self.fds.get(name).copied().unwrap_or((-1, -1))
    }

    /// The request of a step for descriptor `fd`; the listener's port is `port`.
    fn request(step: Step, fd: i32, port: u16, ip: &str) -> Request {
        match step {
            Socket(_) => Request::Socket {
                domain: AF_INET,
                kind: SOCK_STREAM | SOCK_NONBLOCK,
                protocol: 0,
            },
            Bind(_) => Request::Bind {
                fd,
                address: common::inet(ip, port),
            },
            BindOther(_, address) => Request::Bind { fd, address },
            Listen(_, backlog) => Request::Listen { fd, backlog },
            Connect(_) => Request::Connect {
                fd,
                address: common::inet(ip, port),
            },
            ConnectTo(_, address) => Request::Connect { fd, address },
            Accept(..) | AcceptNone(_) => Request::Accept {
                fd,
                flags: SOCK_NONBLOCK,
            },
            Send(_, bytes, flags) => Request::Send {
                fd,
                bytes: bytes.to_vec(),
                flags: flags | MSG_NOSIGNAL,
                to: None,
                control: Vec::new(),
            },
            Recv(_, len, flags) => Request::Recv { fd, len, flags },
            Read(_, len) => Request::Read { fd, len },
            Shutdown(_, how) => Request::Shutdown { fd, how },
            Close(_) | Abort(_) => Request::Close { fd },
            Peer(_) => Request::Getpeername { fd },
            Poll(_) => Request::Poll {
                fds: vec![PollFd {
                    fd,
                    events: EVENTS,
                    revents: 0,
                }],
                timeout_ms: 0,
            },
            Inq(_) => Request::Ioctl {
                fd,
                request: SIOCINQ,
                argument: 0,
            },
            Error(_) => Request::Getsockopt {
                fd,
                level: SOL_SOCKET,
                name: SO_ERROR,
                len: 4,
            },
            Do(_, request) => request(fd),
        }
    }

    fn ours(&mut self, name: &str, request: Request) -> i64 {
        let host = match is_server(name) {
            true => &mut self.world.b,
            false => &mut self.world.a,
        };
        let (outcome, reply) = host.sockets.call(request.clone());
        let value = match (outcome, reply) {
            (Outcome::Done(Ok(_)), Reply::Poll(fds)) => fds[0].revents.into(),
            (Outcome::Done(Ok(_)), Reply::Bytes(bytes))
                if matches!(request, Request::Getsockopt { .. }) =>
            {
                posix::layout::to_int(&bytes).unwrap_or(-1).into()
            }
            (Outcome::Done(Ok(_)), Reply::Int(value)) => value.into(),
            (Outcome::Done(Ok(value)), _) => value,
            (Outcome::Done(Err(errno)), _) => -i64::from(errno.raw_os_error()),
            (Outcome::Pending, _) => panic!("{request:?} blocks"),
        };
        self.world.settle();
        value
    }

    fn kernels(&self, request: &Request) -> i64 {
        // Bytes that cross the loopback interface arrive within microseconds.
        let value = match request {
            Request::Getsockopt {
                fd, level, name, ..
            } => kernel_unsafe::error_of(*fd, *level, *name),
            request => kernel_unsafe::call(request),
        };
        std::thread::sleep(self.pause);
        value
    }

    fn step(&mut self, step: Step) -> Result<(), String> {
        let name = name_of(step);
        let (ours, kernels) = self.fds(name);
        if let Abort(_) = step {
            let linger = posix::layout::linger(true, 0);
            let host = match is_server(name) {
                true => &mut self.world.b,
                false => &mut self.world.a,
            };
            assert_eq!(
                host.setsockopt(ours, SOL_SOCKET, SO_LINGER, linger.clone()),
                Ok(0)
            );
            kernel_unsafe::set(kernels, SOL_SOCKET, SO_LINGER, &linger);
        }
        let asked = Self::request(step, ours, PORT, common::B);
        let seen = self.ours(name, asked);
        let asked = Self::request(step, kernels, self.kernel_port, "127.0.0.1");
        let expected = self.kernels(&asked);
        match step {
            Socket(new) | Accept(_, new) if seen >= 0 && expected >= 0 => {
                self.fds.insert(new, (seen as i32, expected as i32));
                return Ok(());
            }
            Bind(_) if seen == 0 && expected == 0 => {
                self.kernel_port = kernel_unsafe::port_of(kernels);
            }
            // The number may be used again from here on.
            Close(_) | Abort(_) => {
                self.fds.remove(name);
            }
            _ => {}
        }
        match seen == expected {
            true => Ok(()),
            false => Err(format!("{step:?}: {seen}, the kernel {expected}")),
        }
    }
}

fn name_of(step: Step) -> &'static str {
    match step {
        Socket(name)
        | Bind(name)
        | BindOther(name, _)
        | Listen(name, _)
        | Connect(name)
        | ConnectTo(name, _)
        | Accept(name, _)
        | AcceptNone(name)
        | Send(name, ..)
        | Recv(name, ..)
        | Read(name, _)
        | Shutdown(name, _)
        | Close(name)
        | Abort(name)
        | Peer(name)
        | Poll(name)
        | Inq(name)
        | Error(name)
        | Do(name, _) => name,
    }
}

fn play(steps: &[Step]) {
    let wrong = lasting_differences(steps, Duration::from_millis(5));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Differences between our answers and the kernel's, by step, that remain with longer pauses. On a
/// busy machine the kernel may need more than `brief`.
fn lasting_differences(steps: &[Step], brief: Duration) -> Vec<String> {
    let longer = [50, 250, 1_000].map(Duration::from_millis);
    let mut wrong = differences(steps, brief);
    for pause in longer {
        if wrong.is_empty() {
            break;
        }
        wrong = differences(steps, pause);
    }
    wrong
}

/// Differences between our answers and the kernel's, by step.
fn differences(steps: &[Step], pause: Duration) -> Vec<String> {
    let mut world = World::new();
    let mut play = Play {
        world: &mut world,
        fds: HashMap::new(),
        kernel_port: 0,
        pause,
    };
    let wrong: Vec<String> = steps
        .iter()
        .enumerate()
        .filter_map(|(at, step)| Some(format!("{at} {}", play.step(*step).err()?)))
        .collect();
    for (_, (_, fd)) in play.fds {
        kernel_unsafe::call(&Request::Close { fd });
    }
    wrong
}

const LISTENING: [Step; 3] = [Socket("s"), Bind("s"), Listen("s", 8)];
const CONNECTED: [Step; 6] = [
    Socket("s"),
    Bind("s"),
    Listen("s", 8),
    Socket("c"),
    Connect("c"),
    Accept("s", "s1"),
];

fn after(first: &[Step], then: &[Step]) {
    play(&[first, then].concat());
}

#[test]
fn idle() {
    play(&[
        Socket("c"),
        Read("c", 1),
        Recv("c", 1, 0),
        Send("c", b"x", 0),
        AcceptNone("c"),
        Peer("c"),
        Shutdown("c", 9),
        Poll("c"),
        Inq("c"),
        Error("c"),
        Shutdown("c", SHUT_RDWR),
        ConnectTo("c", Address::Unspec),
        ConnectTo("c", Address::Family(77)),
        ConnectTo("c", Address::Short),
        BindOther("c", Address::Family(77)),
        BindOther("c", Address::Short),
        Read("c", 0),
    ]);
}

#[test]
fn listening() {
    after(
        &LISTENING,
        &[
            AcceptNone("s"),
            Read("s", 1),
            Send("s", b"x", 0),
            Connect("s"),
            Peer("s"),
            Poll("s"),
            Inq("s"),
            Listen("s", 4),
            Shutdown("s", SHUT_WR),
            AcceptNone("s"),
            Shutdown("s", SHUT_RD),
            AcceptNone("s"),
            Poll("s"),
        ],
    );
}

#[test]
fn connecting_and_refused() {
    after(
        &LISTENING,
        &[
            Close("s"),
            Socket("c"),
            Connect("c"),
            Poll("c"),
            Error("c"),
            Error("c"),
            Connect("c"),
            Connect("c"),
            Connect("c"),
            Read("c", 1),
            Poll("c"),
        ],
    );
}

#[test]
fn established() {
    after(
        &CONNECTED,
        &[
            Connect("c"),
            Connect("c"),
            Peer("c"),
            Peer("s1"),
            Poll("c"),
            Read("c", 10),
            Recv("c", 0, 0),
            Send("c", b"hello", 0),
            Poll("s1"),
            Inq("s1"),
            Recv("s1", 2, MSG_PEEK),
            Recv("s1", 2, 0),
            Recv("s1", 10, MSG_TRUNC),
            Recv("s1", 10, MSG_OOB),
            Recv("s1", 10, MSG_ERRQUEUE),
            Recv("s1", 10, 0),
            Send("c", b"", 0),
            AcceptNone("c"),
            Listen("c", 1),
            BindOther("c", common_any()),
        ],
    );
}

fn common_any() -> Address {
    Address::Inet(([0, 0, 0, 0], 0).into())
}

#[test]
fn half_closed() {
    after(
        &CONNECTED,
        &[
            Send("c", b"last", 0),
            Shutdown("c", SHUT_WR),
            Send("c", b"x", 0),
            Poll("c"),
            Poll("s1"),
            Inq("s1"),
            Read("s1", 10),
            Read("s1", 10),
            Poll("s1"),
            Send("s1", b"answer", 0),
            Read("c", 10),
            Shutdown("s1", SHUT_WR),
            Shutdown("s1", SHUT_WR),
            Read("c", 10),
            Poll("c"),
            Poll("s1"),
            Shutdown("s1", SHUT_RDWR),
            Peer("s1"),
            Send("s1", b"x", 0),
            Read("s1", 10),
            Error("s1"),
        ],
    );
}

#[test]
fn read_shut() {
    after(
        &CONNECTED,
        &[
            Shutdown("c", SHUT_RD),
            Read("c", 10),
            Poll("c"),
            Send("c", b"x", 0),
            Read("s1", 10),
        ],
    );
}

#[test]
fn reset() {
    after(
        &CONNECTED,
        &[
            Abort("s1"),
            Poll("c"),
            Read("c", 10),
            Read("c", 10),
            Poll("c"),
            Send("c", b"x", 0),
            Peer("c"),
            Shutdown("c", SHUT_RDWR),
            Error("c"),
        ],
    );
}

#[test]
fn reset_met_by_a_writer() {
    after(
        &CONNECTED,
        &[
            Abort("s1"),
            Send("c", b"x", 0),
            Send("c", b"x", 0),
            Read("c", 10),
            Poll("c"),
        ],
    );
}

#[test]
fn reset_by_unread_bytes() {
    after(
        &CONNECTED,
        &[
            Send("c", b"nobody reads this", 0),
            Close("s1"),
            Poll("c"),
            Error("c"),
            Read("c", 10),
            Send("c", b"x", 0),
        ],
    );
}

#[test]
fn write_to_a_closed_peer() {
    after(
        &CONNECTED,
        &[
            Close("s1"),
            Poll("c"),
            Send("c", b"first", 0),
            Send("c", b"second", 0),
            Read("c", 10),
            Poll("c"),
        ],
    );
}

#[test]
fn dissolved() {
    after(
        &CONNECTED,
        &[
            ConnectTo("c", Address::Unspec),
            Peer("c"),
            Send("c", b"x", 0),
            Read("c", 1),
            Read("s1", 1),
            Poll("s1"),
            Connect("c"),
            Accept("s", "s2"),
            Connect("c"),
            Send("c", b"again", 0),
            Read("s2", 10),
        ],
    );
}

#[test]
fn address_taken() {
    after(
        &LISTENING,
        &[
            Socket("s8"),
            BindOther("s8", common_any()),
            BindOther("s8", common_any()),
            Listen("s8", 1),
            Shutdown("s8", SHUT_RDWR),
            ConnectTo("s8", Address::Unspec),
        ],
    );
}

const fn fcntl(fd: i32, command: i32, argument: i32) -> Request {
    Request::Fcntl {
        fd,
        command,
        argument,
    }
}

const fn ask(fd: i32, request: u64) -> Request {
    Request::Ioctl {
        fd,
        request,
        argument: 0,
    }
}

#[test]
fn flags_and_owner_of_a_descriptor() {
    after(
        &CONNECTED,
        &[
            Do("c", |fd| fcntl(fd, F_GETFL, 0)),
            Do("c", |fd| fcntl(fd, F_SETFL, O_RDWR | O_APPEND | O_NOATIME)),
            Do("c", |fd| fcntl(fd, F_GETFL, 0)),
            Do("c", |fd| fcntl(fd, F_SETFL, O_NONBLOCK | O_DIRECT)),
            Do("c", |fd| fcntl(fd, F_GETFL, 0)),
            Do("c", |fd| fcntl(fd, F_SETFL, O_NONBLOCK)),
            Do("c", |fd| fcntl(fd, F_GETFL, 0)),
            Do("c", |fd| fcntl(fd, F_GETOWN, 0)),
            Do("c", |fd| fcntl(fd, F_SETOWN, 0)),
            Do("c", |fd| fcntl(fd, F_GETSIG, 0)),
            Do("c", |fd| fcntl(fd, F_SETSIG, 0)),
            Do("s", |fd| ask(fd, FIOGETOWN)),
            Do("c", |fd| ask(fd, SIOCGPGRP)),
            Do("c", |fd| fcntl(fd, 77, 0)),
        ],
    );
}
