//! Two hosts on a wire, in virtual time, each with its descriptors.

// Each test binary uses a part of it.
#![allow(dead_code)]

use millstream::{Clock, Config, Limits, Runtime, VirtualClock};
use packetio::loopback::{self, LoopbackOptions};
use posix::number::*;
use posix::{Address, Call, Errno, Outcome, Reply, Request, Sockets, layout};

pub const SECOND: u64 = 1_000_000_000;
pub const MILLI: u64 = 1_000_000;
pub const A: &str = "10.0.0.1";
pub const B: &str = "10.0.0.2";
pub const B6: &str = "fd00::2";
/// Number of steps after which the world counts as never coming to rest.
const STEPS_MAX: usize = 10_000;

pub struct World {
    pub clock: VirtualClock,
    pub a: Host,
    pub b: Host,
}

pub struct Host {
    pub sockets: Sockets,
    address: &'static str,
    _runtime: Runtime,
}

impl World {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl Fn(&mut Config)) -> Self {
        let clock = VirtualClock::new(1_000 * SECOND);
        let (near, far) = loopback::pair(&LoopbackOptions::default()).unwrap();
        let host = |address: &'static str, six: &str, port| {
            let mut config = Config::new("loopback:unused".parse().unwrap());
            config.clock = Clock::Virtual(clock.clone());
            config.addresses = vec![format!("{address}/24").parse().unwrap()];
            config.addresses.push(six.parse().unwrap());
            config.seed = Some([1, 2, 3, u64::from(address.as_bytes()[7])]);
            config.limits = Limits::for_connections(64);
            change(&mut config);
            let runtime = Runtime::with_ports(config, vec![Box::new(port)]).unwrap();
            let sockets = Sockets::new(runtime.context(0).unwrap());
            Host {
                sockets,
                address,
                _runtime: runtime,
            }
        };
        let mut world = Self {
            a: host(A, "fd00::1/64", near),
            b: host(B, "fd00::2/64", far),
            clock,
        };
        world.settle();
        world
    }

    /// Turns both hosts until nothing moves at this time.
    pub fn settle(&mut self) {
        for _ in 0..STEPS_MAX {
            if !self.a.sockets.turn() & !self.b.sockets.turn() {
                return;
            }
        }
        panic!("the hosts find no rest");
    }

    /// Advances the clock by `ns` and runs all timers on the way.
    pub fn advance(&mut self, ns: u64) {
        let end_ns = self.clock.now_ns() + ns;
        for _ in 0..STEPS_MAX {
            self.settle();
            let due = |host: &Host| host.sockets.context().next_deadline_ns();
            let next = [due(&self.a), due(&self.b)].into_iter().flatten().min();
            match next {
                Some(due_ns) if due_ns <= end_ns => self.clock.advance_to_ns(due_ns),
                _ => {
                    self.clock.advance_to_ns(end_ns);
                    return self.settle();
                }
            }
        }
        panic!("timers are due for ever");
    }

    /// Polls a call of `a` until it is done, for at most `ns`.
    pub fn finish_a(&mut self, call: &mut Call, ns: u64) -> Outcome {
        let end_ns = self.clock.now_ns() + ns;
        loop {
            let outcome = call.poll(&mut self.a.sockets);
            if outcome != Outcome::Pending || self.clock.now_ns() >= end_ns {
                return outcome;
            }
            self.advance(MILLI);
        }
    }

    /// Connects `a` to a listener on `b` over IPv6; returns a's socket.
    pub fn connected_v6(&mut self) -> i32 {
        self.b.listener_v6(80);
        self.advance(5 * SECOND);
        let client = self.a.socket_of(AF_INET6);
        assert_eq!(self.a.connect(client, B6, 80), Err(Errno::INPROGRESS));
        self.advance(5 * SECOND);
        assert_eq!(self.a.connect(client, B6, 80), Ok(0));
        client
    }

    /// Connects `a` to a listener on `b`; returns a's socket, the accepted one, and the listener.
    pub fn connected(&mut self) -> (i32, i32, i32) {
        let listener = self.b.listener(80);
        let client = self.a.socket();
        assert_eq!(self.a.connect(client, B, 80), Err(Errno::INPROGRESS));
        self.settle();
        assert_eq!(self.a.connect(client, B, 80), Ok(0));
        let accepted = self.b.accept(listener).unwrap();
        self.b.nonblocking(accepted);
        (client, accepted, listener)
    }
}

pub fn inet(ip: &str, port: u16) -> Address {
    Address::Inet((ip.parse::<std::net::IpAddr>().unwrap(), port).into())
}

impl Host {
    pub fn call(&mut self, request: Request) -> (Result<i64, Errno>, Reply) {
        match self.sockets.call(request) {
            (Outcome::Done(done), reply) => (done, reply),
            (Outcome::Pending, _) => panic!("the call blocks"),
        }
    }

    pub fn done(&mut self, request: Request) -> Result<i64, Errno> {
        self.call(request).0
    }

    /// A non-blocking socket for IPv4.
    pub fn socket(&mut self) -> i32 {
        self.socket_of(AF_INET)
    }

    /// A listener on all IPv6 addresses.
    pub fn listener_v6(&mut self, port: u16) -> i32 {
        let fd = self.socket_of(AF_INET6);
        let address = inet("::", port);
        assert_eq!(self.done(Request::Bind { fd, address }), Ok(0));
        assert_eq!(self.done(Request::Listen { fd, backlog: 16 }), Ok(0));
        fd
    }

    pub fn socket_of(&mut self, domain: i32) -> i32 {
        self.done(Request::Socket {
            domain,
            kind: SOCK_STREAM | SOCK_NONBLOCK,
            protocol: 0,
        })
        .unwrap() as i32
    }

    pub fn blocking_socket(&mut self) -> i32 {
        self.done(Request::Socket {
            domain: AF_INET,
            kind: SOCK_STREAM,
            protocol: 0,
        })
        .unwrap() as i32
    }

    pub fn listener(&mut self, port: u16) -> i32 {
        let fd = self.socket();
        let address = inet(self.address, port);
        assert_eq!(self.done(Request::Bind { fd, address }), Ok(0));
        assert_eq!(self.done(Request::Listen { fd, backlog: 16 }), Ok(0));
        fd
    }

    pub fn connect(&mut self, fd: i32, ip: &str, port: u16) -> Result<i64, Errno> {
        let address = inet(ip, port);
        self.done(Request::Connect { fd, address })
    }

    pub fn accept(&mut self, fd: i32) -> Result<i32, Errno> {
        self.done(Request::Accept { fd, flags: 0 })
            .map(|fd| fd as i32)
    }

    pub fn nonblocking(&mut self, fd: i32) {
        let set = Request::Fcntl {
            fd,
            command: F_SETFL,
            argument: O_NONBLOCK,
        };
        assert_eq!(self.done(set), Ok(0));
    }

    pub fn write(&mut self, fd: i32, bytes: &[u8]) -> Result<i64, Errno> {
        let bytes = bytes.to_vec();
        self.done(Request::Write { fd, bytes })
    }

    pub fn read(&mut self, fd: i32, len: usize) -> Result<Vec<u8>, Errno> {
        self.recv(fd, len, 0)
    }

    pub fn recv(&mut self, fd: i32, len: usize, flags: i32) -> Result<Vec<u8>, Errno> {
        let (done, reply) = self.call(Request::Recv { fd, len, flags });
        match (done, reply) {
            (Ok(n), Reply::Bytes(bytes)) => {
                assert_eq!(n as usize, bytes.len());
                Ok(bytes)
            }
            (Err(errno), _) => Err(errno),
            (Ok(n), reply) => panic!("{n} with {reply:?}"),
        }
    }

    pub fn close(&mut self, fd: i32) -> Result<i64, Errno> {
        self.done(Request::Close { fd })
    }

    pub fn setsockopt(
        &mut self,
        fd: i32,
        level: i32,
        name: i32,
        value: Vec<u8>,
    ) -> Result<i64, Errno> {
        self.done(Request::Setsockopt {
            fd,
            level,
            name,
            value,
        })
    }

    pub fn set_int(&mut self, fd: i32, level: i32, name: i32, value: i32) -> Result<i64, Errno> {
        self.setsockopt(fd, level, name, layout::int(value))
    }

    pub fn getsockopt(
        &mut self,
        fd: i32,
        level: i32,
        name: i32,
        len: usize,
    ) -> Result<Vec<u8>, Errno> {
        let (done, reply) = self.call(Request::Getsockopt {
            fd,
            level,
            name,
            len,
        });
        match (done, reply) {
            (Ok(_), Reply::Bytes(bytes)) => Ok(bytes),
            (Err(errno), _) => Err(errno),
            (Ok(n), reply) => panic!("{n} with {reply:?}"),
        }
    }

    pub fn get_int(&mut self, fd: i32, level: i32, name: i32) -> Result<i32, Errno> {
        let bytes = self.getsockopt(fd, level, name, 4)?;
        Ok(layout::to_int(&bytes).unwrap())
    }

    /// The events of `poll` now.
    pub fn poll(&mut self, fd: i32, events: i16) -> i16 {
        let fds = vec![posix::PollFd {
            fd,
            events,
            revents: 0,
        }];
        match self.call(Request::Poll { fds, timeout_ms: 0 }) {
            (Ok(_), Reply::Poll(fds)) => fds[0].revents,
            other => panic!("{other:?}"),
        }
    }
}

/// Makes one more connection from A to B's listener at port 80; returns both ends.
pub fn connected_to(world: &mut World, listener: i32) -> (i32, i32) {
    let client = world.a.socket();
    assert_eq!(world.a.connect(client, B, 80), Err(Errno::INPROGRESS));
    world.settle();
    (client, world.b.accept(listener).unwrap())
}
