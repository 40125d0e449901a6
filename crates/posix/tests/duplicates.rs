//! Several descriptors for one open file description, played on a host of ours and on the kernel.
//! Each call must return the same on both.

#[path = "calls/kernel_unsafe.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod calls_unsafe;
mod common;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use common::{World, inet};
use posix::number::*;
use posix::{Address, Call, EpollEvent, Errno, Outcome, Reply, Request};

/// The first descriptor of our host.
const LISTENER: i32 = 3;

/// The host that makes the calls: one of ours, or the kernel.
enum Host {
    Ours(Box<World>),
    Kernel,
}

impl Host {
    /// Makes a call; returns its value, or minus its errno.
    fn call(&mut self, request: Request) -> i64 {
        let Self::Ours(world) = self else {
            return calls_unsafe::call(&request);
        };
        let (done, reply) = world.b.call(request);
        world.advance(common::MILLI);
        match (done, reply) {
            (Ok(count), Reply::Epoll(events)) => {
                count * 1000 + events.iter().map(|event| event.data as i64).sum::<i64>()
            }
            (Ok(value), _) => value,
            (Err(errno), _) => -i64::from(errno.raw_os_error()),
        }
    }

    /// A connection: the peer's end and the tested end.
    fn connected(&mut self) -> (i32, i32) {
        if let Self::Ours(world) = self {
            return match world.b.sockets.has(LISTENER) {
                true => common::connected_to(world, LISTENER),
                false => {
                    let (peer, fd, listener) = world.connected();
                    assert_eq!(listener, LISTENER);
                    (peer, fd)
                }
            };
        }
        let kind = SOCK_STREAM;
        let socket = Request::Socket {
            domain: AF_INET,
            kind,
            protocol: 0,
        };
        let listener = calls_unsafe::call(&socket) as i32;
        let any: Address = inet("127.0.0.1", 0);
        let bind = Request::Bind {
            fd: listener,
            address: any,
        };
        assert_eq!(calls_unsafe::call(&bind), 0);
        let listen = Request::Listen {
            fd: listener,
            backlog: 1,
        };
        assert_eq!(calls_unsafe::call(&listen), 0);
        let peer = calls_unsafe::call(&socket) as i32;
        let address = inet("127.0.0.1", calls_unsafe::port_of(listener));
        let connect = Request::Connect { fd: peer, address };
        assert_eq!(calls_unsafe::call(&connect), 0);
        let accept = Request::Accept {
            fd: listener,
            flags: SOCK_NONBLOCK,
        };
        let fd = calls_unsafe::call(&accept) as i32;
        assert!(fd >= 0);
        (peer, fd)
    }

    /// Writes at the peer, and waits for the bytes to arrive.
    fn peer_writes(&mut self, peer: i32, bytes: &[u8]) {
        let bytes = bytes.to_vec();
        match self {
            Self::Ours(world) => {
                world.a.write(peer, &bytes).expect("room");
                world.advance(common::MILLI);
            }
            Self::Kernel => {
                assert!(calls_unsafe::call(&Request::Write { fd: peer, bytes }) > 0);
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Returns 1 if the peer has seen the end, 0 otherwise.
    fn peer_saw_end(&mut self, peer: i32) -> i64 {
        let events = POLLRDHUP;
        let revents = match self {
            Self::Ours(world) => world.a.poll(peer, events).into(),
            Self::Kernel => {
                std::thread::sleep(Duration::from_millis(10));
                let fd = posix::PollFd {
                    fd: peer,
                    events,
                    revents: 0,
                };
                let fds = vec![fd];
                calls_unsafe::call(&Request::Poll { fds, timeout_ms: 0 })
            }
        };
        i64::from(revents & i64::from(POLLRDHUP) != 0)
    }

    fn epoll(&mut self) -> i32 {
        self.call(Request::EpollCreate { flags: 0 }) as i32
    }

    fn control(&mut self, epfd: i32, op: i32, fd: i32, data: u64) -> i64 {
        let event = EpollEvent {
            events: EPOLLIN,
            data,
        };
        self.call(Request::EpollCtl {
            epfd,
            op,
            fd,
            event,
        })
    }

    fn wait(&mut self, epfd: i32) -> i64 {
        self.call(Request::EpollWait {
            epfd,
            max_events: 16,
            timeout_ms: 0,
        })
    }

    fn fcntl(&mut self, fd: i32, command: i32, argument: i32) -> i64 {
        self.call(Request::Fcntl {
            fd,
            command,
            argument,
        })
    }
}

/// Plays a scene on both hosts and compares the notes. The kernel's descriptors belong to all
/// threads, so one scene runs at a time.
fn same(scene: fn(&mut Host, &mut Vec<i64>)) {
    static STAGE: Mutex<()> = Mutex::new(());
    let _alone = STAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut ours, mut kernels) = (Vec::new(), Vec::new());
    scene(&mut Host::Ours(Box::new(World::new())), &mut ours);
    scene(&mut Host::Kernel, &mut kernels);
    assert_eq!(ours, kernels);
}

#[test]
fn copies_share_flags_and_not_close_on_exec() {
    same(|host, seen| {
        let (_, fd) = host.connected();
        let copy = host.call(Request::Dup { fd }) as i32;
        seen.push(host.fcntl(copy, F_GETFD, 0));
        seen.push(host.fcntl(copy, F_SETFD, FD_CLOEXEC));
        seen.push(host.fcntl(fd, F_GETFD, 0));
        seen.push(host.fcntl(copy, F_GETFD, 0));
        seen.push(host.fcntl(copy, F_GETFL, 0));
        seen.push(host.fcntl(copy, F_SETFL, 0));
        seen.push(host.fcntl(fd, F_GETFL, 0));
        let far = host.fcntl(fd, F_DUPFD_CLOEXEC, 300) as i32;
        seen.extend([i64::from(far), host.fcntl(far, F_GETFD, 0)]);
        let farther = host.fcntl(fd, F_DUPFD, 300) as i32;
        seen.extend([i64::from(farther), host.fcntl(farther, F_GETFD, 0)]);
        for argument in [-1, i32::MAX] {
            seen.push(host.fcntl(fd, F_DUPFD, argument));
        }
        for fd in [fd, copy, far, farther] {
            seen.push(host.call(Request::Close { fd }));
            seen.push(host.call(Request::Close { fd }));
        }
    });
}

#[test]
fn connection_ends_with_the_last_copy() {
    same(|host, seen| {
        let (peer, fd) = host.connected();
        let copy = host.call(Request::Dup { fd }) as i32;
        seen.push(host.call(Request::Close { fd }));
        seen.push(host.peer_saw_end(peer));
        host.peer_writes(peer, b"more");
        seen.push(host.call(Request::Read { fd: copy, len: 9 }));
        let bytes = b"answer".to_vec();
        seen.push(host.call(Request::Write { fd: copy, bytes }));
        seen.push(host.call(Request::Close { fd: copy }));
        seen.push(host.peer_saw_end(peer));
    });
}

#[test]
fn numbers_of_dup2_and_dup3_are_judged_alike() {
    same(|host, seen| {
        let (_, fd) = host.connected();
        let (_, other) = host.connected();
        seen.push(host.call(Request::Dup2 { fd, to: fd }) - i64::from(fd));
        seen.push(host.call(Request::Dup2 { fd: 999, to: 999 }));
        seen.push(host.call(Request::Dup2 { fd: 999, to: other }));
        seen.push(host.call(Request::Dup2 { fd, to: -1 }));
        seen.push(host.call(Request::Dup2 { fd, to: i32::MAX }));
        seen.push(host.call(Request::Dup2 { fd, to: 500 }));
        seen.push(host.fcntl(500, F_GETFD, 0));
        let (to, flags) = (501, O_CLOEXEC);
        seen.push(host.call(Request::Dup3 { fd, to, flags }));
        seen.push(host.fcntl(501, F_GETFD, 0));
        seen.push(host.call(Request::Dup3 { fd, to: fd, flags }));
        seen.push(host.call(Request::Dup3 { fd, to, flags: 1 }));
        seen.push(host.call(Request::Close { fd: 500 }));
        seen.push(host.call(Request::Close { fd: 501 }));
    });
}

#[test]
fn dup2_closes_what_the_number_stood_for() {
    same(|host, seen| {
        let (peer, fd) = host.connected();
        let (lost, to) = host.connected();
        seen.push(host.call(Request::Dup2 { fd, to }) - i64::from(to));
        seen.push(host.peer_saw_end(lost));
        host.peer_writes(peer, b"bytes");
        seen.push(host.call(Request::Read { fd: to, len: 9 }));
    });
}

#[test]
fn watches_follow_the_description() {
    same(|host, seen| {
        let (peer, fd) = host.connected();
        let epfd = host.epoll();
        seen.push(host.control(epfd, EPOLL_CTL_ADD, fd, 1));
        seen.push(host.control(epfd, EPOLL_CTL_ADD, fd, 1));
        let copy = host.call(Request::Dup { fd }) as i32;
        // Each descriptor is a watch of its own.
        seen.push(host.control(epfd, EPOLL_CTL_MOD, copy, 2));
        seen.push(host.control(epfd, EPOLL_CTL_ADD, copy, 2));
        host.peer_writes(peer, b"bytes");
        seen.push(host.wait(epfd));
        seen.push(host.control(epfd, EPOLL_CTL_DEL, copy, 0));
        seen.push(host.wait(epfd));
        // The first descriptor is closed. Its watch stays, and can no longer be named.
        seen.push(host.call(Request::Close { fd }));
        seen.push(host.wait(epfd));
        seen.push(host.control(epfd, EPOLL_CTL_DEL, fd, 0));
        seen.push(host.control(epfd, EPOLL_CTL_MOD, copy, 3));
        // Only another copy at that number can name it.
        seen.push(host.call(Request::Dup2 { fd: copy, to: fd }) - i64::from(fd));
        seen.push(host.control(epfd, EPOLL_CTL_ADD, fd, 4));
        seen.push(host.control(epfd, EPOLL_CTL_MOD, fd, 8));
        seen.push(host.wait(epfd));
        seen.push(host.call(Request::Close { fd }));
        seen.push(host.wait(epfd));
        seen.push(host.call(Request::Close { fd: copy }));
        seen.push(host.wait(epfd));
    });
}

#[test]
fn number_taken_by_another_socket_is_another_watch() {
    same(|host, seen| {
        let (peer, fd) = host.connected();
        let (other_peer, other) = host.connected();
        let epfd = host.epoll();
        seen.push(host.control(epfd, EPOLL_CTL_ADD, fd, 1));
        let copy = host.call(Request::Dup { fd }) as i32;
        seen.push(host.call(Request::Dup2 { fd: other, to: fd }) - i64::from(fd));
        seen.push(host.control(epfd, EPOLL_CTL_ADD, fd, 2));
        host.peer_writes(peer, b"bytes");
        seen.push(host.wait(epfd));
        host.peer_writes(other_peer, b"bytes");
        seen.push(host.wait(epfd));
        seen.push(host.call(Request::Close { fd: copy }));
        seen.push(host.wait(epfd));
    });
}

#[test]
fn copies_of_an_epoll_are_one_epoll() {
    same(|host, seen| {
        let (peer, fd) = host.connected();
        let epfd = host.epoll();
        let copy = host.call(Request::Dup { fd: epfd }) as i32;
        seen.push(host.control(copy, EPOLL_CTL_ADD, copy, 1));
        seen.push(host.control(copy, EPOLL_CTL_ADD, epfd, 1));
        seen.push(host.control(copy, EPOLL_CTL_ADD, fd, 1));
        host.peer_writes(peer, b"bytes");
        seen.push(host.wait(epfd));
        seen.push(host.call(Request::Close { fd: epfd }));
        seen.push(host.wait(copy));
        seen.push(host.wait(epfd));
    });
}

#[test]
fn descriptor_opens_at_the_number_that_the_caller_has_chosen() {
    let mut world = World::new();
    let socket = Request::Socket {
        domain: AF_INET,
        kind: SOCK_STREAM,
        protocol: 0,
    };
    let sockets = &mut world.b.sockets;
    assert_eq!(sockets.wait_for_at(77, &socket).0, Ok(77));
    assert!(sockets.has(77));
    let dup = Request::Dup { fd: 77 };
    assert_eq!(sockets.wait_for_at(70, &dup).0, Ok(70));
    assert_eq!(sockets.references(77), 2);
    // The kernel has given out the number again: the program closed the placeholder.
    assert_eq!(sockets.wait_for_at(77, &socket).0, Ok(77));
    assert_eq!(sockets.references(77), 1);
    assert_eq!(sockets.numbers().collect::<Vec<_>>(), [70, 77]);
    // If the call fails, the number is still the caller's.
    let dup = Request::Dup { fd: 78 };
    assert_eq!(sockets.wait_for_at(79, &dup).0, Err(Errno::BADF));
    assert!(!sockets.has(79));
}

#[test]
fn blocked_call_ends_when_its_descriptor_is_replaced() {
    let mut world = World::new();
    let (a, fd, _) = world.connected();
    let (_, other) = common::connected_to(&mut world, LISTENER);
    let blocking = Request::Fcntl {
        fd,
        command: F_SETFL,
        argument: 0,
    };
    assert_eq!(world.b.done(blocking), Ok(0));
    let copy = world.b.done(Request::Dup { fd }).expect("a copy") as i32;
    let mut call = Call::start(Request::Read { fd, len: 9 });
    assert_eq!(call.poll(&mut world.b.sockets), Outcome::Pending);
    let over = Request::Dup2 { fd: other, to: fd };
    assert_eq!(world.b.done(over), Ok(i64::from(fd)));
    assert_eq!(world.a.write(a, b"bytes"), Ok(5));
    world.settle();
    let ended = Outcome::Done(Err(Errno::BADF));
    assert_eq!(call.poll(&mut world.b.sockets), ended);
    assert_eq!(world.b.read(copy, 9).expect("they are there"), b"bytes");
}
