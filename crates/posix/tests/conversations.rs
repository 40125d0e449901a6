//! Conversations between two hosts through the calls, in virtual time.

mod common;

use common::*;
use posix::number::*;
use posix::{Address, Call, Errno, Outcome, Reply, Request};

#[test]
fn established_bytes_pass_both_ways_and_ends_are_told() {
    let mut world = World::new();
    let (a, b, _) = world.connected();
    assert_eq!(world.b.read(b, 10), Err(Errno::AGAIN));
    assert_eq!(world.a.write(a, b"question"), Ok(8));
    world.settle();
    assert_eq!(world.b.recv(b, 4, MSG_PEEK).unwrap(), b"ques");
    assert_eq!(world.b.read(b, 100).unwrap(), b"question");
    assert_eq!(world.b.write(b, b"answer"), Ok(6));
    assert_eq!(world.b.close(b), Ok(0));
    assert_eq!(world.b.close(b), Err(Errno::BADF));
    world.settle();
    assert_eq!(world.a.read(a, 100).unwrap(), b"answer");
    assert_eq!(world.a.read(a, 100).unwrap(), b"");
    assert_eq!(
        world.a.poll(a, POLLIN | POLLOUT | POLLRDHUP),
        POLLIN | POLLOUT | POLLRDHUP
    );
    assert_eq!(world.a.close(a), Ok(0));
    world.advance(SECOND);
}

#[test]
fn closed_port_refuses_and_the_socket_can_try_again() {
    let mut world = World::new();
    let a = world.a.socket();
    assert_eq!(world.a.connect(a, B, 81), Err(Errno::INPROGRESS));
    assert_eq!(world.a.connect(a, B, 81), Err(Errno::ALREADY));
    world.settle();
    assert_eq!(
        world.a.poll(a, POLLIN | POLLOUT | POLLRDHUP),
        POLLIN | POLLOUT | POLLRDHUP | POLLHUP | POLLERR
    );
    assert_eq!(world.a.connect(a, B, 81), Err(Errno::CONNREFUSED));
    assert_eq!(world.a.poll(a, POLLIN | POLLOUT), POLLOUT | POLLHUP);
    world.b.listener(81);
    assert_eq!(world.a.connect(a, B, 81), Err(Errno::INPROGRESS));
    world.settle();
    assert_eq!(world.a.connect(a, B, 81), Ok(0));
    assert_eq!(world.a.connect(a, B, 81), Err(Errno::ISCONN));
}

/// Both hosts connect to each other. The SYN of `a` waits for the neighbour's MAC address, which
/// arrives together with the neighbour's SYN.
fn crossing(world: &mut World) -> (i32, i32) {
    let (a, b) = (world.a.socket(), world.b.socket());
    for (host, fd) in [(&mut world.a, a), (&mut world.b, b)] {
        let address = inet("0.0.0.0", 5000);
        assert_eq!(host.done(Request::Bind { fd, address }), Ok(0));
    }
    assert_eq!(world.a.connect(a, B, 5000), Err(Errno::INPROGRESS));
    assert_eq!(world.b.connect(b, A, 5000), Err(Errno::INPROGRESS));
    world.a.sockets.turn();
    (a, b)
}

#[test]
fn syn_sent_syn_crosses_before_ours_could_leave() {
    let mut world = World::new();
    let (a, b) = crossing(&mut world);
    world.settle();
    assert_eq!(world.a.connect(a, B, 5000), Ok(0));
    assert_eq!(world.b.connect(b, A, 5000), Ok(0));
    assert_eq!(world.a.write(a, b"hello"), Ok(5));
    world.settle();
    assert_eq!(world.b.read(b, 10).unwrap(), b"hello");
}

#[test]
fn syn_received_shutdown_waits_for_the_handshake() {
    let mut world = World::new();
    let (a, b) = crossing(&mut world);
    assert_eq!(world.a.poll(a, POLLIN | POLLOUT), 0);
    assert_eq!(world.a.done(Request::Getpeername { fd: a }), Ok(0));
    let how = SHUT_WR;
    assert_eq!(world.a.done(Request::Shutdown { fd: a, how }), Ok(0));
    assert_eq!(world.a.write(a, b"late"), Err(Errno::AGAIN));
    assert_eq!(world.a.connect(a, B, 5000), Err(Errno::INVAL));
    world.settle();
    assert_eq!(world.a.write(a, b"late"), Err(Errno::PIPE));
    assert_eq!(world.b.read(b, 10).unwrap(), b"");
    assert_eq!(world.b.write(b, b"still"), Ok(5));
    world.settle();
    assert_eq!(world.a.read(a, 10).unwrap(), b"still");
}

#[test]
fn blocking_connect_read_and_write_wait() {
    let mut world = World::new();
    let listener = world.b.listener(80);
    let fd = world.a.blocking_socket();
    let mut connect = Call::start(Request::Connect {
        fd,
        address: inet(B, 80),
    });
    assert_eq!(connect.poll(&mut world.a.sockets), Outcome::Pending);
    world.settle();
    assert_eq!(connect.poll(&mut world.a.sockets), Outcome::Done(Ok(0)));
    let b = world.b.accept(listener).unwrap();
    let mut read = Call::start(Request::Recv {
        fd,
        len: 10,
        flags: MSG_WAITALL,
    });
    assert_eq!(read.poll(&mut world.a.sockets), Outcome::Pending);
    world.b.write(b, b"01234").unwrap();
    world.settle();
    assert_eq!(read.poll(&mut world.a.sockets), Outcome::Pending);
    world.b.write(b, b"56789x").unwrap();
    world.settle();
    assert_eq!(read.poll(&mut world.a.sockets), Outcome::Done(Ok(10)));
    assert_eq!(read.into_reply(), Reply::Bytes(b"0123456789".to_vec()));
    let len = 8 << 20;
    let mut write = Call::start(Request::Write {
        fd,
        bytes: vec![7; len],
    });
    assert_eq!(write.poll(&mut world.a.sockets), Outcome::Pending);
    world.b.nonblocking(b);
    let mut got = 0;
    while got < len {
        world.advance(MILLI);
        let _ = write.poll(&mut world.a.sockets);
        got += world.b.read(b, 1 << 20).map_or(0, |bytes| bytes.len());
    }
    world.settle();
    assert_eq!(
        write.poll(&mut world.a.sockets),
        Outcome::Done(Ok(len as i64))
    );
}

/// Uses the calls on the caller's memory. `a` asks, and only its own calls turn its stack.
#[test]
fn caller_in_vain_twice_turns_the_stack() {
    let mut world = World::new();
    let (a, b, _) = world.connected();
    world.a.nonblocking(a);
    world.b.write(b, b"question").unwrap();
    let mut bytes = [0; 20];
    let mut read = |world: &mut World| {
        let pieces = &mut [std::io::IoSliceMut::new(&mut bytes)];
        world.a.sockets.read_into(a, pieces)
    };
    assert_eq!(read(&mut world), Err(Errno::AGAIN), "the first is believed");
    assert_eq!(read(&mut world), Err(Errno::AGAIN), "the second turns");
    assert_eq!(read(&mut world), Ok(8));
    assert_eq!(&bytes[..8], b"question");
}

#[test]
fn idle_socket_says_what_linux_says() {
    let mut world = World::new();
    let fd = world.a.socket();
    assert_eq!(world.a.read(fd, 1), Err(Errno::NOTCONN));
    assert_eq!(world.a.write(fd, b"x"), Err(Errno::PIPE));
    assert_eq!(world.a.accept(fd), Err(Errno::INVAL));
    assert_eq!(
        world.a.done(Request::Shutdown { fd, how: SHUT_RDWR }),
        Err(Errno::NOTCONN)
    );
    assert_eq!(
        world.a.done(Request::Shutdown { fd, how: 3 }),
        Err(Errno::INVAL)
    );
    assert_eq!(
        world.a.done(Request::Getpeername { fd }),
        Err(Errno::NOTCONN)
    );
    // Linux notes which directions were shut, although it refuses the call.
    assert_eq!(
        world.a.poll(fd, POLLIN | POLLOUT),
        POLLIN | POLLOUT | POLLHUP
    );
    assert_eq!(world.a.poll(99, POLLIN), POLLNVAL);
    let address = Address::Unspec;
    assert_eq!(world.a.done(Request::Connect { fd, address }), Ok(0));
    let address = inet("fd00::2", 80);
    assert_eq!(
        world.a.done(Request::Connect { fd, address }),
        Err(Errno::AFNOSUPPORT)
    );
}

#[test]
fn address_in_use_is_refused_until_it_is_free() {
    let mut world = World::new();
    let first = world.b.listener(80);
    let fd = world.b.socket();
    let address = inet(B, 80);
    let bind = Request::Bind { fd, address };
    assert_eq!(world.b.done(bind.clone()), Err(Errno::ADDRINUSE));
    let any = Request::Bind {
        fd,
        address: inet("0.0.0.0", 80),
    };
    assert_eq!(world.b.done(any), Err(Errno::ADDRINUSE));
    let foreign = Request::Bind {
        fd,
        address: inet("10.9.9.9", 80),
    };
    assert_eq!(world.b.done(foreign), Err(Errno::ADDRNOTAVAIL));
    world.b.close(first).unwrap();
    assert_eq!(world.b.done(bind.clone()), Ok(0));
    assert_eq!(world.b.done(bind), Err(Errno::INVAL));
}

#[test]
fn epoll_tells_level_and_edge() {
    let mut world = World::new();
    let (a, b, _) = world.connected();
    let epfd = world.b.done(Request::EpollCreate { flags: 0 }).unwrap() as i32;
    let event = posix::EpollEvent {
        events: EPOLLIN | EPOLLET,
        data: 77,
    };
    let add = Request::EpollCtl {
        epfd,
        op: EPOLL_CTL_ADD,
        fd: b,
        event,
    };
    assert_eq!(world.b.done(add.clone()), Ok(0));
    assert_eq!(world.b.done(add), Err(Errno::EXIST));
    let wait = Request::EpollWait {
        epfd,
        max_events: 4,
        timeout_ms: 0,
    };
    assert_eq!(world.b.call(wait.clone()), (Ok(0), Reply::Epoll(vec![])));
    world.a.write(a, b"x").unwrap();
    world.settle();
    let told = posix::EpollEvent {
        events: EPOLLIN,
        data: 77,
    };
    assert_eq!(
        world.b.call(wait.clone()),
        (Ok(1), Reply::Epoll(vec![told]))
    );
    assert_eq!(world.b.done(wait), Ok(0));
}

/// If a wait reported one socket twice, a program might close the socket and free its data twice.
#[test]
fn epoll_tells_of_each_once_though_another_was_written_to() {
    let mut world = World::new();
    let listener = world.b.listener(80);
    let mut connect = || connected_to(&mut world, listener);
    let ((peer, reader), (_, writer)) = (connect(), connect());
    let epfd = world.b.done(Request::EpollCreate { flags: 0 }).unwrap() as i32;
    for (fd, events) in [(reader, EPOLLIN), (writer, EPOLLOUT)] {
        let event = posix::EpollEvent { events, data: 0 };
        let op = EPOLL_CTL_ADD;
        let add = Request::EpollCtl {
            epfd,
            op,
            fd,
            event,
        };
        assert_eq!(world.b.done(add), Ok(0));
    }
    world.a.write(peer, b"x").unwrap();
    world.settle();
    world.b.write(writer, b"y").unwrap();
    let wait = Request::EpollWait {
        epfd,
        max_events: 4,
        timeout_ms: 0,
    };
    let told = [EPOLLIN, EPOLLOUT].map(|events| posix::EpollEvent { events, data: 0 });
    assert_eq!(world.b.call(wait), (Ok(2), Reply::Epoll(told.to_vec())));
}

/// Two sockets with the same `data`, each with a notification in its error queue, and one with
/// bytes. Each gets its event, and its turn if there is room for one event only.
#[test]
fn epoll_tells_of_notifications_of_each_socket() {
    let mut world = World::new();
    let listener = world.b.listener(80);
    let mut connect = || connected_to(&mut world, listener);
    let ((reader, peer), (first, _), (second, _)) = (connect(), connect(), connect());
    let epfd = world.a.done(Request::EpollCreate { flags: 0 }).unwrap() as i32;
    for (fd, data) in [(reader, 7), (first, 0), (second, 0)] {
        let (op, events) = (EPOLL_CTL_ADD, EPOLLIN);
        let event = posix::EpollEvent { events, data };
        let add = Request::EpollCtl {
            epfd,
            op,
            fd,
            event,
        };
        assert_eq!(world.a.done(add), Ok(0));
    }
    for fd in [first, second] {
        let on = world.a.set_int(fd, SOL_SOCKET, SO_ZEROCOPY, 1);
        assert_eq!(on, Ok(0));
        let send = Request::Send {
            fd,
            bytes: b"x".to_vec(),
            flags: MSG_ZEROCOPY,
            to: None,
            control: Vec::new(),
        };
        assert_eq!(world.a.done(send), Ok(1));
    }
    world.b.write(peer, b"y").unwrap();
    world.advance(SECOND);
    let mut wait = |max_events| {
        let timeout_ms = 0;
        let (_, reply) = world.a.call(Request::EpollWait {
            epfd,
            max_events,
            timeout_ms,
        });
        match reply {
            Reply::Epoll(events) => events,
            other => panic!("{other:?}"),
        }
    };
    let read = posix::EpollEvent {
        events: EPOLLIN,
        data: 7,
    };
    let noted = posix::EpollEvent {
        events: EPOLLERR,
        data: 0,
    };
    assert_eq!(wait(4), [read, noted, noted]);
    let one_by_one: Vec<_> = (0..4).map(|_| wait(1)).collect();
    assert_eq!(one_by_one, [[read], [noted], [read], [noted]]);
}

#[test]
fn listen_again_changes_the_backlog() {
    let mut world = World::new();
    let fd = world.b.listener(80);
    let backlog = |world: &mut World, backlog| {
        assert_eq!(world.b.done(Request::Listen { fd, backlog }), Ok(0));
    };
    let connect = |world: &mut World| {
        let client = world.a.socket();
        assert_eq!(world.a.connect(client, B, 80), Err(Errno::INPROGRESS));
        world.settle();
        world.a.connect(client, B, 80)
    };
    backlog(&mut world, 0);
    assert_eq!(connect(&mut world), Ok(0));
    assert_eq!(connect(&mut world), Err(Errno::ALREADY));
    // More connections than the first ring holds. Those in the first ring are accepted first.
    backlog(&mut world, 40);
    for _ in 0..40 {
        assert_eq!(connect(&mut world), Ok(0));
    }
    assert_eq!(connect(&mut world), Err(Errno::ALREADY));
    backlog(&mut world, 2);
    for _ in 0..41 {
        assert_eq!(world.b.poll(fd, POLLIN), POLLIN);
        assert!(world.b.accept(fd).is_ok());
    }
    assert_eq!(world.b.accept(fd), Err(Errno::AGAIN));
    // The two connections that found no room send their SYNs again.
    world.advance(10 * SECOND);
    assert!(world.b.accept(fd).is_ok() && world.b.accept(fd).is_ok());
    world.b.close(fd).unwrap();
    world.advance(SECOND);
}

/// A host whose listener takes data in SYNs, and a host that has its cookie.
fn fast_world() -> World {
    let mut world = World::with(|config| config.tcp.fast_open.server = true);
    let listener = world.b.listener(80);
    assert_eq!(world.b.set_int(listener, SOL_TCP, TCP_FASTOPEN, 16), Ok(0));
    let fd = world.a.socket();
    assert_eq!(send_fast(&mut world, fd, b"first"), Err(Errno::INPROGRESS));
    world.settle();
    assert_eq!(world.a.write(fd, b"first"), Ok(5));
    world.settle();
    let first = world.b.accept(listener).unwrap();
    world.b.nonblocking(first);
    assert_eq!(world.b.read(first, 10).unwrap(), b"first");
    assert_eq!(world.b.accept(listener), Err(Errno::AGAIN));
    world
}

fn send_fast(world: &mut World, fd: i32, bytes: &[u8]) -> Result<i64, Errno> {
    world.a.done(Request::Send {
        fd,
        bytes: bytes.to_vec(),
        flags: MSG_FASTOPEN,
        to: Some(inet(B, 80)),
        control: Vec::new(),
    })
}

#[test]
fn bytes_go_with_the_syn_once_there_is_a_cookie() {
    let mut world = fast_world();
    let fd = world.a.socket();
    assert_eq!(send_fast(&mut world, fd, b"second"), Ok(6));
    assert_eq!(send_fast(&mut world, fd, b"x"), Err(Errno::ALREADY));
    // The listener is descriptor 3 of its host.
    world.b.sockets.turn();
    let accepted = world.b.accept(3).unwrap();
    world.b.nonblocking(accepted);
    assert_eq!(world.b.read(accepted, 10).unwrap(), b"second");
    world.settle();
    assert_eq!(send_fast(&mut world, fd, b"x"), Ok(1));
    assert_eq!(send_fast(&mut world, fd, b"x"), Err(Errno::ISCONN));
}

#[test]
fn connect_is_put_off_until_there_are_bytes() {
    let mut world = fast_world();
    let fd = world.a.socket();
    let connect = TCP_FASTOPEN_CONNECT;
    assert_eq!(world.a.set_int(fd, SOL_TCP, connect, 1), Ok(0));
    assert_eq!(world.a.connect(fd, B, 80), Ok(0));
    assert_eq!(world.a.connect(fd, B, 80), Err(Errno::ISCONN));
    assert_eq!(world.a.poll(fd, POLLIN | POLLOUT), POLLOUT);
    world.settle();
    assert_eq!(world.b.accept(3), Err(Errno::AGAIN), "nothing has left");
    assert_eq!(world.a.write(fd, b"third"), Ok(5));
    world.settle();
    let accepted = world.b.accept(3).unwrap();
    world.b.nonblocking(accepted);
    assert_eq!(world.b.read(accepted, 10).unwrap(), b"third");
}

#[test]
fn refused_connect_takes_back_the_bytes_that_were_to_go_with_it() {
    // Bytes in several chunks.
    let long = vec![b'L'; 10_000];
    for refused in [b"stale".as_slice(), &long] {
        let mut world = fast_world();
        let fd = world.a.blocking_socket();
        // A caller that waits for the handshake has buffered all bytes before.
        for _ in 0..2 {
            let nowhere = Request::Send {
                fd,
                bytes: refused.to_vec(),
                flags: MSG_FASTOPEN,
                to: Some(inet("192.0.2.1", 80)),
                control: Vec::new(),
            };
            assert_eq!(world.a.done(nowhere), Err(Errno::NETUNREACH));
        }
        world.a.nonblocking(fd);
        assert_eq!(send_fast(&mut world, fd, b"fresh"), Ok(5));
        world.settle();
        assert_eq!(world.a.write(fd, b", and on"), Ok(8));
        world.settle();
        let accepted = world.b.accept(3).unwrap();
        world.b.nonblocking(accepted);
        assert_eq!(world.b.read(accepted, 100).unwrap(), b"fresh, and on");
    }
}

#[test]
fn inq_counts_what_is_left_and_the_end() {
    let mut world = World::new();
    let (a, b, _) = world.connected();
    assert_eq!(world.a.set_int(a, SOL_TCP, TCP_INQ, 1), Ok(0));
    world.b.write(b, b"0123456789").unwrap();
    world.settle();
    let inq = |world: &mut World, len| {
        let request = Request::Recvmsg {
            fd: a,
            len,
            control_len: 24,
            flags: 0,
        };
        match world.a.call(request) {
            (Ok(_), Reply::Message { control, .. }) => {
                posix::layout::to_int(&control[0].data).unwrap()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(inq(&mut world, 4), 6);
    world.b.close(b).unwrap();
    world.settle();
    assert_eq!(inq(&mut world, 6), 1);
    let ioctl = Request::Ioctl {
        fd: a,
        request: SIOCINQ,
        argument: 0,
    };
    assert_eq!(world.a.call(ioctl), (Ok(0), Reply::Int(0)));
}

#[test]
fn lingering_close_waits_for_the_last_ack() {
    let mut world = World::new();
    let (a, _, _) = world.connected();
    let linger = posix::layout::linger(true, 5);
    assert_eq!(world.a.setsockopt(a, SOL_SOCKET, SO_LINGER, linger), Ok(0));
    world.a.write(a, b"x").unwrap();
    let mut close = Call::start(Request::Close { fd: a });
    assert_eq!(close.poll(&mut world.a.sockets), Outcome::Pending);
    // The peer's ACK of data and FIN is delayed, to ride on data.
    world.advance(SECOND / 10);
    assert_eq!(close.poll(&mut world.a.sockets), Outcome::Done(Ok(0)));
    assert!(!world.a.sockets.has(a));
}

#[test]
fn lingering_close_gives_up_in_time() {
    let mut world = World::new();
    let (a, _, _) = world.connected();
    let linger = posix::layout::linger(true, 2);
    assert_eq!(world.a.setsockopt(a, SOL_SOCKET, SO_LINGER, linger), Ok(0));
    world.a.write(a, b"x").unwrap();
    let mut close = Call::start(Request::Close { fd: a });
    assert_eq!(close.poll(&mut world.a.sockets), Outcome::Pending);
    // The other host does not run.
    world.clock.advance_ns(2 * SECOND);
    assert_eq!(close.poll(&mut world.a.sockets), Outcome::Done(Ok(0)));
}

#[test]
fn more_and_records_shape_segments() {
    let mut world = World::new();
    let (a, b, _) = world.connected();
    let send = |world: &mut World, bytes: &[u8], flags| {
        let send = Request::Send {
            fd: a,
            bytes: bytes.to_vec(),
            flags,
            to: None,
            control: Vec::new(),
        };
        assert_eq!(world.a.done(send), Ok(bytes.len() as i64));
    };
    send(&mut world, b"held", MSG_MORE);
    world.settle();
    assert_eq!(world.b.read(b, 100), Err(Errno::AGAIN));
    send(&mut world, b" and sent", 0);
    world.settle();
    assert_eq!(world.b.read(b, 100).unwrap(), b"held and sent");
    send(&mut world, b"late", MSG_MORE);
    world.advance(SECOND);
    assert_eq!(world.b.read(b, 100).unwrap(), b"late");
}

#[test]
fn unknown_descriptors_and_wrong_kinds_are_refused() {
    let mut world = World::new();
    let fd = 77;
    let address = inet(B, 80);
    for request in [
        Request::Bind { fd, address },
        Request::Listen { fd, backlog: 1 },
        Request::Accept { fd, flags: 0 },
        Request::Connect { fd, address },
        Request::Read { fd, len: 1 },
        Request::Close { fd },
        Request::Getsockname { fd },
        Request::Fcntl {
            fd,
            command: F_GETFL,
            argument: 0,
        },
    ] {
        assert_eq!(
            world.a.done(request.clone()),
            Err(Errno::BADF),
            "{request:?}"
        );
    }
    let epfd = world.a.done(Request::EpollCreate { flags: 0 }).unwrap() as i32;
    let listen = Request::Listen {
        fd: epfd,
        backlog: 1,
    };
    assert_eq!(world.a.done(listen), Err(Errno::NOTSOCK));
    let rows = [
        (AF_UNIX, SOCK_STREAM, 0, Errno::AFNOSUPPORT),
        (AF_INET, SOCK_DGRAM, 0, Errno::SOCKTNOSUPPORT),
        (AF_INET, SOCK_STREAM, IPPROTO_MPTCP, Errno::PROTONOSUPPORT),
        (AF_INET, SOCK_STREAM | 0x100_0000, 0, Errno::INVAL),
    ];
    for (domain, kind, protocol, errno) in rows {
        let socket = Request::Socket {
            domain,
            kind,
            protocol,
        };
        assert_eq!(world.a.done(socket), Err(errno));
    }
}
