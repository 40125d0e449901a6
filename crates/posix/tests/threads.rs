//! Many threads on the sockets of one context, and on the kernel's. The calls must return the same
//! on both.

#[path = "calls/kernel_unsafe.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod calls_unsafe;

use std::collections::BTreeSet;
use std::io::{IoSlice, IoSliceMut};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream::{Config, Limits, Runtime};
use packetio::loopback::{self, LoopbackOptions};
use posix::number::*;
use posix::{
    Address, Caller, EpollEvent, Errno, LowestFree, PollFd, Reason, Reply, Request, Shared, Waiter,
};

/// Time for another thread to fall asleep. No outcome depends on it.
const A_WHILE: Duration = Duration::from_millis(30);

/// A host whose calls any thread may make.
#[derive(Clone)]
enum Host {
    Ours(Arc<Shared>),
    Kernel,
}

/// Two hosts on a wire.
struct World {
    server: Host,
    client: Host,
    ip: IpAddr,
    _runtimes: Vec<Runtime>,
}

fn ours() -> World {
    let (near, far) = loopback::pair(&LoopbackOptions::default()).expect("a link");
    let mut runtimes = Vec::new();
    let mut host = |address: &str, port| {
        let mut config = Config::new("loopback:unused".parse().expect("a wire"));
        config.addresses = vec![address.parse().expect("an address")];
        config.limits = Limits::for_connections(256);
        let runtime = Runtime::with_ports(config, vec![Box::new(port)]).expect("a runtime");
        let shared = Shared::new(&runtime, 0, Box::new(LowestFree::from(3))).expect("a context");
        runtimes.push(runtime);
        Host::Ours(Arc::new(shared))
    };
    World {
        client: host("10.0.0.1/24", near),
        server: host("10.0.0.2/24", far),
        ip: "10.0.0.2".parse().expect("an address"),
        _runtimes: runtimes,
    }
}

fn kernel() -> World {
    World {
        client: Host::Kernel,
        server: Host::Kernel,
        ip: "127.0.0.1".parse().expect("an address"),
        _runtimes: Vec::new(),
    }
}

thread_local! {
    static WAITER: Arc<Waiter> = Arc::new(Waiter::new());
}

impl Host {
    /// Makes a call; returns its value, or minus its errno.
    fn call(&self, request: Request) -> i64 {
        let Self::Ours(shared) = self else {
            return calls_unsafe::call(&request);
        };
        let is_name = matches!(request, Request::Getsockname { .. });
        WAITER.with(|waiter| {
            let caller = Caller { waiter, mask: None };
            match shared.call(caller, &request) {
                (Ok(count), Reply::Epoll(events)) => {
                    count * 1000 + events.iter().map(|event| event.data as i64).sum::<i64>()
                }
                (Ok(_), Reply::Address(name)) if is_name => name.port().into(),
                (Ok(value), _) => value,
                (Err(errno), _) => -i64::from(errno.raw_os_error()),
            }
        })
    }

    /// Makes a call in a new thread.
    fn spawn(&self, request: Request) -> JoinHandle<i64> {
        let host = self.clone();
        let thread = std::thread::spawn(move || host.call(request));
        std::thread::sleep(A_WHILE);
        thread
    }

    fn socket(&self) -> i32 {
        let (domain, kind, protocol) = (AF_INET, SOCK_STREAM, 0);
        let fd = self.call(Request::Socket {
            domain,
            kind,
            protocol,
        });
        assert!(fd >= 0, "{fd}");
        fd as i32
    }

    fn write(&self, fd: i32, bytes: &[u8]) -> i64 {
        let bytes = bytes.to_vec();
        self.call(Request::Write { fd, bytes })
    }

    fn read(&self, fd: i32, len: usize) -> i64 {
        self.call(Request::Read { fd, len })
    }

    fn close(&self, fd: i32) -> i64 {
        self.call(Request::Close { fd })
    }
}

impl World {
    fn listener(&self) -> (i32, u16) {
        let fd = self.server.socket();
        let address = Address::Inet((self.ip, 0).into());
        assert_eq!(self.server.call(Request::Bind { fd, address }), 0);
        assert_eq!(self.server.call(Request::Listen { fd, backlog: 64 }), 0);
        match self.server {
            Host::Ours(_) => (fd, self.server.call(Request::Getsockname { fd }) as u16),
            Host::Kernel => (fd, calls_unsafe::port_of(fd)),
        }
    }

    fn connect(&self, port: u16) -> i32 {
        let fd = self.client.socket();
        let address = Address::Inet((self.ip, port).into());
        assert_eq!(self.client.call(Request::Connect { fd, address }), 0);
        fd
    }

    /// A connection: the client's end and the server's.
    fn connected(&self) -> (i32, i32) {
        let (listener, port) = self.listener();
        let client = self.connect(port);
        let accept = Request::Accept {
            fd: listener,
            flags: 0,
        };
        let server = self.server.call(accept) as i32;
        assert!(server >= 0, "{server}");
        assert_eq!(self.server.close(listener), 0);
        (client, server)
    }
}

/// Plays a scene on both hosts and compares the notes. The kernel's descriptors belong to all
/// threads, so one scene runs at a time.
fn same(scene: fn(&World, &mut Vec<i64>)) {
    static STAGE: Mutex<()> = Mutex::new(());
    let _alone = STAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut ours_saw, mut kernel_saw) = (Vec::new(), Vec::new());
    scene(&ours(), &mut ours_saw);
    scene(&kernel(), &mut kernel_saw);
    assert_eq!(ours_saw, kernel_saw);
}

fn joined(thread: JoinHandle<i64>) -> i64 {
    thread.join().expect("the call returns")
}

#[test]
fn reader_asleep_is_woken_by_what_another_thread_brings() {
    same(|world, seen| {
        let (client, server) = world.connected();
        let reader = world.server.spawn(Request::Read { fd: server, len: 9 });
        seen.push(world.client.write(client, b"bytes"));
        seen.push(joined(reader));
    });
}

#[test]
fn reader_asleep_goes_on_after_close_in_another_thread() {
    same(|world, seen| {
        let (client, server) = world.connected();
        let reader = world.server.spawn(Request::Read { fd: server, len: 9 });
        seen.push(world.server.close(server));
        seen.push(world.server.read(server, 9));
        // The waiting reader keeps the connection.
        seen.push(world.client.write(client, b"late"));
        seen.push(joined(reader));
        seen.push(world.client.read(client, 9));
    });
}

#[test]
fn accept_asleep_goes_on_after_close_in_another_thread() {
    same(|world, seen| {
        let (listener, port) = world.listener();
        let accept = Request::Accept {
            fd: listener,
            flags: 0,
        };
        let accepting = world.server.spawn(accept.clone());
        seen.push(world.server.close(listener));
        seen.push(world.server.call(accept));
        world.connect(port);
        seen.push(joined(accepting).signum());
    });
}

#[test]
fn shutdown_in_another_thread_ends_reads_and_accepts() {
    same(|world, seen| {
        let (_, server) = world.connected();
        let reader = world.server.spawn(Request::Read { fd: server, len: 9 });
        let how = SHUT_RDWR;
        seen.push(world.server.call(Request::Shutdown { fd: server, how }));
        seen.push(joined(reader));
        let (listener, _) = world.listener();
        let accepting = world.server.spawn(Request::Accept {
            fd: listener,
            flags: 0,
        });
        let shut = Request::Shutdown { fd: listener, how };
        seen.push(world.server.call(shut));
        seen.push(joined(accepting));
    });
}

#[test]
fn epoll_asleep_sees_what_another_thread_adds_and_takes_away() {
    same(|world, seen| {
        let (client, server) = world.connected();
        let epfd = world.server.call(Request::EpollCreate { flags: 0 }) as i32;
        let wait = Request::EpollWait {
            epfd,
            max_events: 4,
            timeout_ms: -1,
        };
        let control = |op| Request::EpollCtl {
            epfd,
            op,
            fd: server,
            event: EpollEvent {
                events: EPOLLIN,
                data: 7,
            },
        };
        seen.push(world.client.write(client, b"bytes"));
        let waiting = world.server.spawn(wait.clone());
        seen.push(world.server.call(control(EPOLL_CTL_ADD)));
        seen.push(joined(waiting));
        seen.push(world.server.read(server, 9));
        let waiting = world.server.spawn(wait);
        seen.push(world.client.write(client, b"more"));
        seen.push(joined(waiting));
    });
}

#[test]
fn connections_are_accepted_once_by_four_threads() {
    const EACH: usize = 10;
    same(|world, seen| {
        let (listener, port) = world.listener();
        let accept = Request::Accept {
            fd: listener,
            flags: 0,
        };
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (host, accept) = (world.server.clone(), accept.clone());
                std::thread::spawn(move || {
                    let calls = (0..EACH).map(|_| host.call(accept.clone()));
                    calls.collect::<Vec<_>>()
                })
            })
            .collect();
        let clients: Vec<_> = (0..4 * EACH).map(|_| world.connect(port)).collect();
        let accepted = threads
            .into_iter()
            .map(|thread| thread.join().expect("accepted"));
        let numbers: BTreeSet<_> = accepted.flatten().collect();
        seen.push(numbers.len() as i64);
        seen.push(i64::from(numbers.iter().all(|fd| *fd >= 0)));
        for fd in numbers {
            seen.push(world.server.close(fd as i32));
        }
        for fd in clients {
            world.client.close(fd);
        }
    });
}

#[test]
fn events_are_told_once_to_two_threads_on_one_epoll() {
    const ROUNDS: usize = 50;
    same(|world, seen| {
        let (client, server) = world.connected();
        let epfd = world.server.call(Request::EpollCreate { flags: 0 }) as i32;
        let event = EpollEvent {
            events: EPOLLIN | EPOLLONESHOT,
            data: 1,
        };
        let control = move |op| Request::EpollCtl {
            epfd,
            op,
            fd: server,
            event,
        };
        seen.push(world.server.call(control(EPOLL_CTL_ADD)));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let host = world.server.clone();
                std::thread::spawn(move || {
                    let mut told = 0;
                    loop {
                        let count = host.call(Request::EpollWait {
                            epfd,
                            max_events: 4,
                            timeout_ms: -1,
                        });
                        assert!(count > 0, "{count}");
                        let got = host.read(server, 1);
                        told += 1;
                        // Arms the watch again, also for the other thread, which ends with the
                        // connection.
                        assert_eq!(host.call(control(EPOLL_CTL_MOD)), 0);
                        match got {
                            1 => assert_eq!(host.write(server, b"!"), 1),
                            end => return (told - 1) * 1000 + end,
                        }
                    }
                })
            })
            .collect();
        for _ in 0..ROUNDS {
            assert_eq!(world.client.write(client, b"?"), 1);
            assert_eq!(world.client.read(client, 1), 1);
        }
        seen.push(world.client.close(client));
        let told = threads.into_iter().map(joined).sum::<i64>();
        seen.push(told);
    });
}

/// `len` bytes of the test stream from position `from` on.
fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len)
        .map(|at| (at * 7 + at / 251) as u8)
        .collect()
}

#[test]
fn reader_and_writer_threads_share_one_socket() {
    const BYTES: usize = 4 << 20;
    let world = ours();
    let (client, server) = world.connected();
    let (Host::Ours(at_client), Host::Ours(at_server)) = (&world.client, &world.server) else {
        return;
    };
    let writer = |shared: &Arc<Shared>, fd| {
        let shared = shared.clone();
        std::thread::spawn(move || {
            let waiter = Arc::new(Waiter::new());
            let caller = Caller {
                waiter: &waiter,
                mask: None,
            };
            let mut at = 0;
            while at < BYTES {
                let bytes = pattern(at, 70_000.min(BYTES - at));
                let (one, two) = bytes.split_at(bytes.len() / 3);
                let pieces = [IoSlice::new(one), IoSlice::new(&[]), IoSlice::new(two)];
                let sent = shared.send(caller, fd, &pieces, 0);
                assert_eq!(sent, Ok(bytes.len()));
                at += bytes.len();
            }
        })
    };
    let reader = |shared: &Arc<Shared>, fd| {
        let shared = shared.clone();
        std::thread::spawn(move || {
            let waiter = Arc::new(Waiter::new());
            let caller = Caller {
                waiter: &waiter,
                mask: None,
            };
            let (mut at, mut bytes) = (0, vec![0; 50_000]);
            while at < BYTES {
                let pieces = &mut [IoSliceMut::new(&mut bytes)];
                let got = shared.recv(caller, fd, pieces, 0).expect("bytes");
                assert!(got > 0);
                assert_eq!(bytes[..got], pattern(at, got));
                at += got;
            }
        })
    };
    let threads = [
        writer(at_client, client),
        reader(at_client, client),
        writer(at_server, server),
        reader(at_server, server),
    ];
    for thread in threads {
        thread.join().expect("all bytes pass");
    }
}

#[test]
fn dup2_in_another_thread_ends_the_call_that_is_asleep() {
    let world = ours();
    // On a busy machine a reader may begin only after `dup2`. It then reads from the other
    // connection, and the test begins again.
    for _ in 0..20 {
        let (_, server) = world.connected();
        let (client, other) = world.connected();
        let reader = world.server.spawn(Request::Read { fd: server, len: 9 });
        let over = Request::Dup2 {
            fd: other,
            to: server,
        };
        assert_eq!(world.server.call(over), i64::from(server));
        assert_eq!(world.client.write(client, b"late"), 4);
        match joined(reader) {
            4 => {}
            ended => return assert_eq!(ended, -i64::from(Errno::BADF.raw_os_error())),
        }
    }
    panic!("no reader was asleep in time");
}

#[test]
fn signal_ends_a_call_that_is_asleep_unless_it_restarts() {
    let world = ours();
    let (client, server) = world.connected();
    let (_, idle) = world.connected();
    let Host::Ours(shared) = &world.server else {
        return;
    };
    let waiters = [Arc::new(Waiter::new()), Arc::new(Waiter::new())];
    let fds = [server, idle];
    let threads = [0, 1].map(|at| {
        let (shared, waiter, fd) = (shared.clone(), waiters[at].clone(), fds[at]);
        std::thread::spawn(move || {
            let caller = Caller {
                waiter: &waiter,
                mask: None,
            };
            shared.recv(caller, fd, &mut [IoSliceMut::new(&mut [0; 9])], 0)
        })
    });
    std::thread::sleep(A_WHILE);
    for waiter in &waiters {
        waiter.leave(Reason::Restart);
    }
    std::thread::sleep(A_WHILE);
    waiters[1].leave(Reason::Signal);
    assert_eq!(world.client.write(client, b"bytes"), 5);
    let outcomes = threads.map(|thread| thread.join().expect("both return"));
    assert_eq!(outcomes, [Ok(5), Err(Errno::INTR)]);
}

#[test]
fn poll_mixes_ours_and_the_kernels_in_many_threads() {
    let world = ours();
    let (client, server) = world.connected();
    let Host::Ours(shared) = &world.server else {
        return;
    };
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    let pipe = std::os::fd::AsRawFd::as_raw_fd(&read);
    // The number belongs to the kernel's descriptor, not to one here.
    assert!(!shared.has(pipe) || pipe > server);
    let threads = [server, pipe].map(|fd| {
        let shared = shared.clone();
        std::thread::spawn(move || {
            let waiter = Arc::new(Waiter::new());
            let caller = Caller {
                waiter: &waiter,
                mask: None,
            };
            let mut fds = [PollFd {
                fd,
                events: POLLIN,
                revents: 0,
            }];
            let count = shared.poll(caller, &mut fds, Some(Duration::from_secs(60)));
            (count, fds[0].revents)
        })
    });
    std::thread::sleep(A_WHILE);
    rustix::io::write(&write, b"!").expect("room");
    assert_eq!(world.client.write(client, b"bytes"), 5);
    for thread in threads {
        assert_eq!(thread.join().expect("ready"), (Ok(1), POLLIN));
    }
}

#[test]
fn waits_with_a_limit_end_in_leaders_and_in_followers() {
    let world = ours();
    let (_, server) = world.connected();
    let wait = || {
        let fd = PollFd {
            fd: server,
            events: POLLIN,
            revents: 0,
        };
        let Host::Ours(shared) = world.server.clone() else {
            return None;
        };
        Some(std::thread::spawn(move || {
            let waiter = Arc::new(Waiter::new());
            let caller = Caller {
                waiter: &waiter,
                mask: None,
            };
            shared.poll(caller, &mut [fd], Some(Duration::from_millis(50)))
        }))
    };
    for thread in [wait(), wait(), wait()].into_iter().flatten() {
        assert_eq!(thread.join().expect("it ends"), Ok(0));
    }
}
