//! Sockets of one host that talk over its loopback addresses, played on our host and on the kernel.
//! Each call must return the same on both, at once and without waiting in between.

#[path = "calls/kernel_unsafe.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod calls_unsafe;

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use millstream::{Config, Runtime};
use posix::number::*;
use posix::{Address, Errno, PollFd, Reply, Request, Sockets};

/// The host that makes the calls: one of ours with only its loopback addresses, or the kernel.
enum Host {
    Ours(Box<Sockets>),
    Kernel,
}

/// Serializes the tests: ports and descriptors belong to the process.
static TURN: Mutex<()> = Mutex::new(());

impl Host {
    fn ours() -> Self {
        let mut config = Config::new("loopback:".parse().expect("a wire"));
        config.loopback = true;
        let runtime = Runtime::new(config).expect("a runtime");
        Self::Ours(Box::new(Sockets::new(
            runtime.context(0).expect("a context"),
        )))
    }

    /// Makes a call; returns its value, or minus its errno.
    fn call(&mut self, request: Request) -> i64 {
        match self {
            Self::Kernel => calls_unsafe::call(&request),
            Self::Ours(sockets) => match sockets.wait_for(&request).0 {
                Ok(value) => value,
                Err(errno) => -i64::from(errno.raw_os_error()),
            },
        }
    }

    fn socket(&mut self, domain: i32, flags: i32) -> i32 {
        self.call(Request::Socket {
            domain,
            kind: SOCK_STREAM | flags,
            protocol: 0,
        }) as i32
    }

    fn bind(&mut self, fd: i32, place: SocketAddr) -> i64 {
        let address = Address::Inet(place);
        self.call(Request::Bind { fd, address })
    }

    fn connect(&mut self, fd: i32, place: SocketAddr) -> i64 {
        let address = Address::Inet(place);
        self.call(Request::Connect { fd, address })
    }

    /// Listens at an address; returns the listener and its port.
    fn listener(&mut self, ip: &str, flags: i32) -> (i32, u16) {
        let place = SocketAddr::new(ip.parse().expect("an address"), 0);
        let domain = if place.is_ipv4() { AF_INET } else { AF_INET6 };
        let fd = self.socket(domain, flags);
        assert_eq!(self.bind(fd, place), 0);
        assert_eq!(self.call(Request::Listen { fd, backlog: 8 }), 0);
        (fd, self.name(fd, false).port())
    }

    fn name(&mut self, fd: i32, is_peer: bool) -> SocketAddr {
        match self {
            Self::Kernel => calls_unsafe::name_of(fd, is_peer),
            Self::Ours(sockets) => {
                let request = match is_peer {
                    true => Request::Getpeername { fd },
                    false => Request::Getsockname { fd },
                };
                match sockets.wait_for(&request) {
                    (Ok(_), Reply::Address(name)) => name,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn set(&mut self, fd: i32, name: i32, value: Vec<u8>) -> i64 {
        self.set_at(fd, SOL_SOCKET, name, &value)
    }

    fn set_at(&mut self, fd: i32, level: i32, name: i32, value: &[u8]) -> i64 {
        if let Self::Kernel = self {
            calls_unsafe::set(fd, level, name, value);
            return 0;
        }
        let value = value.to_vec();
        self.call(Request::Setsockopt {
            fd,
            level,
            name,
            value,
        })
    }

    /// The value of an option as a number.
    fn value(&mut self, fd: i32, level: i32, name: i32) -> i64 {
        let Self::Ours(sockets) = self else {
            return calls_unsafe::error_of(fd, level, name);
        };
        let len = 4;
        match sockets.wait_for(&Request::Getsockopt {
            fd,
            level,
            name,
            len,
        }) {
            (Ok(_), Reply::Bytes(bytes)) => bytes
                .iter()
                .rfold(0, |all, &byte| all << 8 | i64::from(byte)),
            other => panic!("{other:?}"),
        }
    }

    fn accept(&mut self, fd: i32) -> i64 {
        self.call(Request::Accept {
            fd,
            flags: SOCK_NONBLOCK,
        })
    }

    fn send(&mut self, fd: i32, bytes: &[u8]) -> i64 {
        let bytes = bytes.to_vec();
        self.call(Request::Write { fd, bytes })
    }

    fn recv(&mut self, fd: i32) -> i64 {
        let (len, flags) = (4_000, MSG_DONTWAIT);
        self.call(Request::Recv { fd, len, flags })
    }

    /// The events of `poll` without waiting.
    fn ready(&mut self, fd: i32) -> i64 {
        let entry = PollFd {
            fd,
            events: POLLIN | POLLOUT | POLLRDHUP,
            revents: 0,
        };
        let request = Request::Poll {
            fds: vec![entry],
            timeout_ms: 0,
        };
        match self {
            Self::Kernel => calls_unsafe::call(&request),
            Self::Ours(sockets) => match sockets.wait_for(&request) {
                (Ok(_), Reply::Poll(fds)) => i64::from(fds[0].revents),
                other => panic!("{other:?}"),
            },
        }
    }

    /// Sends messages; notes the call's value and the lengths that it returns.
    fn sendmmsg(&mut self, fd: i32, texts: &[&[u8]], flags: i32, seen: &mut Vec<i64>) {
        if let Self::Kernel = self {
            let (done, lens) = calls_unsafe::sendmmsg(fd, texts, flags);
            seen.push(done);
            return seen.extend(lens.into_iter().map(i64::from));
        }
        let mut lens = Vec::new();
        let done = posix::send_messages(texts.len(), |at| {
            let bytes = texts[at].to_vec();
            let sent = self.call(Request::Send {
                fd,
                bytes,
                flags,
                to: None,
                control: Vec::new(),
            });
            lens.extend((sent >= 0).then_some(sent));
            errno_of(sent).map(|sent| sent as usize == texts[at].len())
        });
        seen.push(value_of(done));
        seen.extend(lens);
    }

    fn recvmmsg(&mut self, fd: i32, rooms: &[usize], flags: i32, seen: &mut Vec<i64>) {
        if let Self::Kernel = self {
            let (done, lens) = calls_unsafe::recvmmsg(fd, rooms, flags);
            seen.push(done);
            return seen.extend(lens.into_iter().map(i64::from));
        }
        let (mut lens, mut postponed) = (Vec::new(), None);
        let one = |at: usize, flags| {
            let got = self.call(Request::Recv {
                fd,
                len: rooms[at],
                flags,
            });
            lens.extend((got >= 0).then_some(got));
            errno_of(got).map(|_| ())
        };
        let note = |errno| postponed = Some(errno);
        let done = posix::receive_messages(rooms.len(), flags, one, || false, note);
        if let (Some(_), Self::Ours(sockets)) = (postponed, &mut *self) {
            sockets.tell_error_again(fd);
        }
        seen.push(value_of(done));
        seen.extend(lens);
    }

    fn close(&mut self, fd: i32) -> i64 {
        self.call(Request::Close { fd })
    }
}

fn errno_of(value: i64) -> Result<i64, Errno> {
    match value {
        0.. => Ok(value),
        refused => Err(Errno::from_raw_os_error(-refused as i32)),
    }
}

fn value_of(done: Result<i64, Errno>) -> i64 {
    done.unwrap_or_else(|errno| -i64::from(errno.raw_os_error()))
}

fn compare(scene: fn(&mut Host, &mut Vec<i64>)) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut ours, mut kernels) = (Vec::new(), Vec::new());
    scene(&mut Host::ours(), &mut ours);
    scene(&mut Host::Kernel, &mut kernels);
    assert_eq!(ours, kernels);
}

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("an address"), port)
}

/// Plays a connection. Each step must be visible at the other end when its call returns.
fn conversation(host: &mut Host, seen: &mut Vec<i64>, listens: &str, connects: &str) {
    let (listener, port) = host.listener(listens, SOCK_NONBLOCK);
    seen.push(host.ready(listener));
    let place = at(connects, port);
    let domain = if place.is_ipv4() { AF_INET } else { AF_INET6 };
    let near = host.socket(domain, 0);
    seen.push(host.connect(near, place));
    seen.push(host.ready(listener));
    let far = host.accept(listener) as i32;
    seen.push(i64::from(far >= 0));
    seen.push(host.accept(listener));
    for (fd, is_peer) in [(near, true), (far, false)] {
        let name = host.name(fd, is_peer);
        seen.push(i64::from(name.port() == port));
        seen.push(i64::from(name.ip().to_canonical().is_loopback()));
    }
    let (own, others) = (host.name(near, false), host.name(far, true));
    seen.push(i64::from(
        own.ip().to_canonical() == others.ip().to_canonical(),
    ));
    seen.push(i64::from(own.port() == others.port()));
    seen.extend([
        host.recv(far),
        host.ready(far),
        host.send(near, b"question"),
    ]);
    seen.extend([host.ready(far), host.recv(far), host.ready(far)]);
    seen.extend([
        host.send(far, &[7; 3_000]),
        host.ready(near),
        host.recv(near),
    ]);
    seen.push(host.call(Request::Shutdown {
        fd: near,
        how: SHUT_WR,
    }));
    seen.extend([host.ready(far), host.recv(far), host.send(far, b"late")]);
    seen.extend([
        host.recv(near),
        host.close(far),
        host.ready(near),
        host.recv(near),
    ]);
    seen.extend([host.close(near), host.close(listener)]);
}

#[test]
fn v4_conversation_is_seen_at_once() {
    compare(|host, seen| conversation(host, seen, "127.0.0.1", "127.0.0.1"));
}

#[test]
fn v6_conversation_is_seen_at_once() {
    compare(|host, seen| conversation(host, seen, "::1", "::1"));
}

#[test]
fn wildcard_listener_takes_connections_to_any_loopback_address() {
    compare(|host, seen| conversation(host, seen, "0.0.0.0", "127.9.8.7"));
    compare(|host, seen| conversation(host, seen, "::", "127.0.0.1"));
    compare(|host, seen| conversation(host, seen, "::", "::1"));
}

#[test]
fn unspecified_destination_is_this_host() {
    compare(|host, seen| conversation(host, seen, "127.0.0.1", "0.0.0.0"));
}

#[test]
fn nonblocking_connect_is_done_when_it_is_asked() {
    compare(|host, seen| {
        let (listener, port) = host.listener("127.0.0.1", SOCK_NONBLOCK);
        let near = host.socket(AF_INET, SOCK_NONBLOCK);
        seen.push(host.connect(near, at("127.0.0.1", port)));
        seen.extend([host.ready(near), host.ready(listener)]);
        seen.push(host.connect(near, at("127.0.0.1", port)));
        seen.push(host.connect(near, at("127.0.0.1", port)));
        let far = host.accept(listener) as i32;
        seen.extend([host.send(near, b"x"), host.recv(far)]);
        // No socket listens at this port.
        seen.push(host.close(listener));
        let refused = host.socket(AF_INET, SOCK_NONBLOCK);
        seen.push(host.connect(refused, at("127.0.0.1", port)));
        seen.extend([
            host.ready(refused),
            host.connect(refused, at("127.0.0.1", port)),
        ]);
        for fd in [near, far, refused] {
            seen.push(host.close(fd));
        }
    });
}

#[test]
fn refused_and_reset_connections_are_seen_at_once() {
    compare(|host, seen| {
        let (listener, port) = host.listener("127.0.0.1", SOCK_NONBLOCK);
        let place = at("127.0.0.1", port);
        let near = host.socket(AF_INET, 0);
        seen.push(host.connect(near, place));
        let far = host.accept(listener) as i32;
        // Unread bytes at a close reset the connection.
        seen.extend([host.send(near, b"unread"), host.close(far)]);
        seen.extend([host.ready(near), host.recv(near), host.send(near, b"x")]);
        seen.extend([host.close(near), host.close(listener)]);
        let late = host.socket(AF_INET, 0);
        seen.extend([host.connect(late, place), host.close(late)]);
    });
}

#[test]
fn socket_connected_to_itself_echoes() {
    compare(|host, seen| {
        // A free port, which a listener had before.
        let (listener, port) = host.listener("127.0.0.1", 0);
        host.close(listener);
        let place = at("127.0.0.1", port);
        let fd = host.socket(AF_INET, 0);
        seen.extend([host.bind(fd, place), host.connect(fd, place)]);
        seen.extend([host.send(fd, b"echo"), host.ready(fd), host.recv(fd)]);
        seen.push(host.call(Request::Shutdown { fd, how: SHUT_WR }));
        seen.extend([host.ready(fd), host.recv(fd), host.close(fd)]);
    });
}

#[test]
fn address_in_use_is_said_as_by_the_kernel() {
    compare(|host, seen| {
        let (listener, port) = host.listener("127.0.0.1", 0);
        let second = host.socket(AF_INET, 0);
        seen.push(host.bind(second, at("127.0.0.1", port)));
        seen.push(host.bind(second, at("0.0.0.0", port)));
        seen.push(host.bind(second, at("127.0.0.2", port)));
        seen.push(host.close(second));
        seen.push(host.close(listener));
    });
}

/// Sends and receives several messages, one call after the other, as `mill run` does.
fn many_messages(host: &mut Host, seen: &mut Vec<i64>) {
    let (listener, port) = host.listener("127.0.0.1", SOCK_NONBLOCK);
    let near = host.socket(AF_INET, 0);
    seen.push(host.connect(near, at("127.0.0.1", port)));
    let far = host.accept(listener) as i32;
    let texts: [&[u8]; 4] = [b"one", b"", b"three", b"four"];
    host.sendmmsg(near, &texts, 0, seen);
    // The bytes are one stream: the first room is filled, and the next ones take the remainder.
    host.recvmmsg(far, &[5, 100, 100], MSG_DONTWAIT, seen);
    host.recvmmsg(far, &[5, 100], MSG_DONTWAIT, seen);
    host.sendmmsg(near, &[b"wait", b"for one"], 0, seen);
    host.recvmmsg(far, &[4, 100, 100], MSG_WAITFORONE, seen);
    host.recvmmsg(far, &[], 0, seen);
    host.sendmmsg(near, &[], 0, seen);
    // The end of the stream is a message without bytes, and is returned again.
    seen.push(host.call(Request::Shutdown {
        fd: near,
        how: SHUT_WR,
    }));
    host.recvmmsg(far, &[10, 10], 0, seen);
    host.sendmmsg(near, &[b"late", b"later"], MSG_NOSIGNAL, seen);
    for fd in [near, far, listener] {
        seen.push(host.close(fd));
    }
}

#[test]
fn many_messages_stop_where_the_kernel_stops() {
    compare(many_messages);
}

/// Two listeners share a port, which a third socket cannot have. Each gets its part of the
/// connections.
#[test]
fn listeners_with_reuse_port_share_a_port() {
    compare(|host, seen| {
        let shared = |host: &mut Host, port: u16, on: bool| {
            let fd = host.socket(AF_INET, SOCK_NONBLOCK);
            let value = i32::from(on).to_ne_bytes().to_vec();
            assert_eq!(host.set(fd, SO_REUSEPORT, value), 0);
            let bound = host.bind(fd, at("127.0.0.1", port));
            (fd, bound)
        };
        let (first, bound) = shared(host, 0, true);
        let port = host.name(first, false).port();
        let (second, again) = shared(host, port, true);
        let (third, refused) = shared(host, port, false);
        seen.extend([bound, again, refused]);
        for fd in [first, second] {
            seen.push(host.call(Request::Listen { fd, backlog: 64 }));
        }
        let clients: Vec<i32> = (0..32)
            .map(|_| {
                let fd = host.socket(AF_INET, 0);
                seen.push(host.connect(fd, at("127.0.0.1", port)));
                fd
            })
            .collect();
        let counts = [first, second].map(|listener| {
            let accepted: Vec<i64> = std::iter::from_fn(|| {
                let fd = host.accept(listener);
                (fd >= 0).then(|| host.close(fd as i32))
            })
            .collect();
            accepted.len() as i64
        });
        seen.push(counts.iter().sum());
        seen.extend(counts.map(|count| i64::from(count > 0)));
        // After one listener has closed, the other one gets all connections.
        seen.push(host.close(first));
        let late = host.socket(AF_INET, 0);
        seen.push(host.connect(late, at("127.0.0.1", port)));
        let accepted = host.accept(second);
        seen.push(i64::from(accepted >= 0));
        for fd in clients
            .into_iter()
            .chain([late, accepted as i32, second, third])
        {
            seen.push(host.close(fd));
        }
    });
}

/// A full send buffer drains as the other end reads.
#[test]
fn bulk_in_one_thread_arrives_whole() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut host = Host::ours();
    let (listener, port) = host.listener("127.0.0.1", 0);
    let near = host.socket(AF_INET, 0);
    assert_eq!(host.connect(near, at("127.0.0.1", port)), 0);
    let far = host.accept(listener) as i32;
    let bytes = vec![1; 100_000];
    let (mut sent, mut got) = (0, 0);
    while got < 3_000_000 {
        let request = Request::Send {
            fd: near,
            bytes: bytes.clone(),
            flags: MSG_DONTWAIT,
            to: None,
            control: Vec::new(),
        };
        sent += host.call(request).max(0);
        match host.recv(far) {
            count @ 1.. => got += count,
            refused => assert_eq!(refused, -i64::from(Errno::AGAIN.raw_os_error())),
        }
    }
    assert!(sent >= got);
}

#[test]
fn socket_bound_without_a_port_gets_one_when_it_connects() {
    compare(|host, seen| {
        let (listener, port) = host.listener("127.0.0.1", SOCK_NONBLOCK);
        let place = SocketAddr::from(([127, 0, 0, 1], port));
        let source = SocketAddr::from(([127, 0, 0, 2], 0));
        let client = host.socket(AF_INET, 0);
        let one = [1, 0, 0, 0];
        seen.push(host.set_at(client, SOL_IP, IP_BIND_ADDRESS_NO_PORT, &one));
        seen.push(host.bind(client, source));
        let before = host.name(client, false);
        seen.extend([i64::from(before == source), host.connect(client, place)]);
        let name = host.name(client, false);
        seen.extend([
            i64::from(name.ip() == source.ip()),
            i64::from(name.port() != 0),
        ]);
        let end = host.accept(listener);
        seen.push(i64::from(host.name(end as i32, true) == name));
        let other = host.socket(AF_INET, 0);
        seen.push(host.set_at(other, SOL_IP, IP_BIND_ADDRESS_NO_PORT, &one));
        seen.extend([
            host.bind(other, source),
            host.call(Request::Listen {
                fd: other,
                backlog: 1,
            }),
        ]);
        let name = host.name(other, false);
        seen.extend([
            i64::from(name.ip() == source.ip()),
            i64::from(name.port() != 0),
        ]);
    });
}

#[test]
fn listener_shut_down_beside_its_connections_stays_where_it_is_bound() {
    compare(|host, seen| {
        let shared = host.socket(AF_INET, SOCK_NONBLOCK);
        // A port that the program has chosen stays the socket's.
        let port = {
            let (free, port) = host.listener("127.0.0.1", 0);
            host.close(free);
            port
        };
        let place = at("127.0.0.1", port);
        seen.push(host.bind(shared, place));
        let (fd, backlog) = (shared, 8);
        seen.push(host.call(Request::Listen { fd, backlog }));
        let near = host.socket(AF_INET, 0);
        seen.push(host.connect(near, place));
        let far = host.accept(shared) as i32;
        seen.push(host.call(Request::Shutdown { fd, how: SHUT_RD }));
        seen.push(i64::from(host.name(shared, false) == place));
        seen.extend([host.accept(shared), host.send(near, b"on"), host.recv(far)]);
        let late = host.socket(AF_INET, 0);
        seen.extend([host.connect(late, place), host.close(late)]);
        // No other socket can have the address and port.
        let other = host.socket(AF_INET, 0);
        seen.extend([host.bind(other, place), host.close(other)]);
        for fd in [near, far, shared] {
            seen.push(host.close(fd));
        }
    });
}

#[test]
fn socket_at_an_ipv6_address_has_no_peers_of_ipv4() {
    compare(|host, seen| {
        let (listener, port) = host.listener("127.0.0.1", 0);
        let mapped = at("::ffff:127.0.0.1", port);
        for ip in ["::1", "::", "::ffff:127.0.0.1"] {
            let fd = host.socket(AF_INET6, 0);
            seen.extend([
                host.value(fd, SOL_IPV6, IPV6_V6ONLY),
                host.bind(fd, at(ip, 0)),
                host.value(fd, SOL_IPV6, IPV6_V6ONLY),
                host.connect(fd, mapped),
                host.close(fd),
            ]);
        }
        let only = host.socket(AF_INET6, 0);
        seen.extend([
            host.set_at(only, SOL_IPV6, IPV6_V6ONLY, &[1, 0, 0, 0]),
            host.connect(only, mapped),
            host.close(only),
            host.close(listener),
        ]);
    });
}

#[test]
fn no_device_is_named_with_any_number_of_zeros() {
    compare(|host, seen| {
        let fd = host.socket(AF_INET, 0);
        let names: [&[u8]; 3] = [&[], &[0], &[0, 0, 0, 0]];
        seen.extend(names.map(|name| host.set_at(fd, SOL_SOCKET, SO_BINDTODEVICE, name)));
    });
}
