//! Every option by its number: accepted or refused, with which errno, compared with the kernel that
//! runs the test.
//!
//! A row of [`ROWS`] is set and read back on a socket of ours and on one of the kernel's, in three
//! stages each. Where we differ on purpose, the row says why.

#[path = "../common/mod.rs"]
mod common;
mod kernel_unsafe;
mod sweep;

use std::net::{TcpListener, TcpStream};

use common::World;
use kernel_unsafe::KernelSocket;
use posix::layout::{int, linger, timeval};
use posix::number::*;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// The stage of a socket when an option is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Listening,
    Connected,
}

const STAGES: [Stage; 3] = [Stage::Idle, Stage::Listening, Stage::Connected];

/// The part of the answers that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compare {
    /// The outcome of setting and the value then read.
    Both,
    /// The outcome of setting only, since the values depend on the machine.
    Outcome,
    /// Nothing: we differ on purpose and do this instead (errno of setting, 0 for none).
    Differs(i32, &'static str),
}

use Compare::{Both, Differs, Outcome};

const EPERM: i32 = 1;
const ENOPROTOOPT: i32 = 92;

#[derive(Clone)]
struct Row {
    name: &'static str,
    level: i32,
    option: i32,
    value: Vec<u8>,
    compare: Compare,
}

fn row(name: &'static str, level: i32, option: i32, value: Vec<u8>, compare: Compare) -> Row {
    Row {
        name,
        level,
        option,
        value,
        compare,
    }
}

fn ints(name: &'static str, level: i32, option: i32, values: &[i32], compare: Compare) -> Vec<Row> {
    let one = |value: &i32| row(name, level, option, int(*value), compare);
    values.iter().map(one).collect()
}

fn socket_rows() -> Vec<Row> {
    const S: i32 = SOL_SOCKET;
    let mut rows = vec![
        row("SO_LINGER", S, SO_LINGER, linger(true, 5), Both),
        row("SO_LINGER", S, SO_LINGER, linger(false, 0), Both),
        row("SO_LINGER", S, SO_LINGER, int(1), Both),
        row("SO_RCVTIMEO", S, SO_RCVTIMEO, timeval(2, 500_000), Both),
        row("SO_RCVTIMEO", S, SO_RCVTIMEO, timeval(0, 0), Both),
        row("SO_RCVTIMEO", S, SO_RCVTIMEO, timeval(0, 1_000_000), Both),
        row("SO_RCVTIMEO", S, SO_RCVTIMEO, int(1), Both),
        row("SO_SNDTIMEO", S, SO_SNDTIMEO, timeval(3, 0), Both),
        row("SO_REUSEADDR", S, SO_REUSEADDR, vec![1, 0], Both),
    ];
    for (name, option) in [
        ("SO_REUSEADDR", SO_REUSEADDR),
        ("SO_REUSEPORT", SO_REUSEPORT),
        ("SO_KEEPALIVE", SO_KEEPALIVE),
    ] {
        rows.extend(ints(name, S, option, &[1, 0, 7], Both));
    }
    rows.push(row("SO_RCVBUF", S, SO_RCVBUF, vec![0, 1], Both));
    let rate = SO_MAX_PACING_RATE;
    rows.extend(ints("SO_MAX_PACING_RATE", S, rate, &[100_000, -1], Both));
    rows.push(row(
        "SO_MAX_PACING_RATE",
        S,
        rate,
        10_000_000_000_u64.to_ne_bytes().to_vec(),
        Both,
    ));
    rows.extend(ints("SO_PRIORITY", S, SO_PRIORITY, &[3, 6, 0], Both));
    // The outcome depends on privileges, in the kernel as here.
    rows.extend(ints("SO_PRIORITY", S, SO_PRIORITY, &[7, -1], Outcome));
    rows.extend(ints("SO_MARK", S, SO_MARK, &[7], Outcome));
    rows.extend(ints("SO_RCVLOWAT", S, SO_RCVLOWAT, &[100, 0], Both));
    rows.extend(ints("SO_RCVLOWAT", S, SO_RCVLOWAT, &[-1], Outcome));
    rows.extend(ints("SO_SNDLOWAT", S, SO_SNDLOWAT, &[100], Both));
    rows.extend(ints("SO_SNDBUF", S, SO_SNDBUF, &[10_000, 0, 50_000], Both));
    rows.extend(ints(
        "SO_RCVBUF",
        S,
        SO_RCVBUF,
        &[10_000, 0, 50_000],
        Outcome,
    ));
    rows.extend(telling_socket_rows());
    rows
}

/// Rows of read-only socket options.
fn telling_socket_rows() -> Vec<Row> {
    const S: i32 = SOL_SOCKET;
    let mut rows = Vec::new();
    for (name, option) in [
        ("SO_TYPE", SO_TYPE),
        ("SO_DOMAIN", SO_DOMAIN),
        ("SO_PROTOCOL", SO_PROTOCOL),
        ("SO_ERROR", SO_ERROR),
        ("SO_ACCEPTCONN", SO_ACCEPTCONN),
        ("an unknown one", 1_000),
    ] {
        rows.extend(ints(name, S, option, &[1], Both));
    }
    rows
}

fn tcp_rows() -> Vec<Row> {
    const T: i32 = SOL_TCP;
    let mut rows = Vec::new();
    for (name, option) in [("TCP_NODELAY", TCP_NODELAY), ("TCP_CORK", TCP_CORK)] {
        rows.extend(ints(name, T, option, &[1, 0, 2], Both));
    }
    for (name, option, values) in [
        ("TCP_KEEPIDLE", TCP_KEEPIDLE, [1, 0, 32_767, 32_768, -1]),
        ("TCP_KEEPINTVL", TCP_KEEPINTVL, [1, 0, 32_767, 32_768, -1]),
        ("TCP_KEEPCNT", TCP_KEEPCNT, [1, 0, 127, 128, -1]),
        ("TCP_SYNCNT", TCP_SYNCNT, [1, 0, 127, 128, -1]),
        ("TCP_USER_TIMEOUT", TCP_USER_TIMEOUT, [1, 0, 100_000, -1, 7]),
        ("TCP_LINGER2", TCP_LINGER2, [1, 0, 60, 1_000, -5]),
        ("TCP_DEFER_ACCEPT", TCP_DEFER_ACCEPT, [1, 0, 5, 100, -1]),
        ("TCP_FASTOPEN", TCP_FASTOPEN, [1, 0, -1, 5, 16]),
        (
            "TCP_FASTOPEN_CONNECT",
            TCP_FASTOPEN_CONNECT,
            [1, 0, 2, -1, 0],
        ),
        (
            "TCP_FASTOPEN_NO_COOKIE",
            TCP_FASTOPEN_NO_COOKIE,
            [1, 0, 2, -1, 0],
        ),
        ("TCP_INQ", TCP_INQ, [1, 0, 2, -1, 0]),
        ("an unknown one", 999, [1, 0, 2, -1, 0]),
    ] {
        rows.extend(ints(name, T, option, &values, Both));
    }
    rows
}

/// Rows of TCP options with unusual values.
fn odd_tcp_rows() -> Vec<Row> {
    const T: i32 = SOL_TCP;
    let mut rows = Vec::new();
    rows.extend(ints(
        "TCP_MAXSEG",
        T,
        TCP_MAXSEG,
        &[87, 32_768, -1],
        Outcome,
    ));
    rows.extend(ints("TCP_MAXSEG", T, TCP_MAXSEG, &[88, 1_000], Outcome));
    for (value, compare) in [
        (&b"reno"[..], Both),
        (b"cubic\0", Both),
        (b"no such thing", Outcome),
        (b"", Outcome),
    ] {
        rows.push(row(
            "TCP_CONGESTION",
            T,
            TCP_CONGESTION,
            value.to_vec(),
            compare,
        ));
    }
    rows.push(row("TCP_NODELAY", T, TCP_NODELAY, vec![1], Both));
    rows.extend(ints("TCP_QUICKACK", T, TCP_QUICKACK, &[0, 1], Both));
    let lowat = TCP_NOTSENT_LOWAT;
    rows.extend(ints("TCP_NOTSENT_LOWAT", T, lowat, &[4_000, 0, -1], Both));
    let keys = |n: usize| (0..n).map(|byte| byte as u8).collect::<Vec<u8>>();
    for len in [0, 15, 16, 31, 32, 33] {
        rows.push(row(
            "TCP_FASTOPEN_KEY",
            T,
            TCP_FASTOPEN_KEY,
            keys(len),
            Both,
        ));
    }
    let clamp = TCP_WINDOW_CLAMP;
    rows.extend(ints("TCP_WINDOW_CLAMP", T, clamp, &[1, 8_000], Both));
    rows.extend(ints("TCP_WINDOW_CLAMP", T, clamp, &[0], Outcome));
    rows.push(row(
        "TCP_MD5SIG",
        T,
        TCP_MD5SIG,
        vec![0; 216],
        Differs(ENOPROTOOPT, "not built"),
    ));
    rows.extend(timer_rows());
    rows
}

fn timer_rows() -> Vec<Row> {
    const T: i32 = SOL_TCP;
    let mut rows = Vec::new();
    for (name, option, values) in [
        (
            "TCP_RTO_MAX_MS",
            TCP_RTO_MAX_MS,
            [999, 5_000, 120_000, 120_001],
        ),
        (
            "TCP_RTO_MIN_US",
            TCP_RTO_MIN_US,
            [-1, 40_000, 200_000, 200_001],
        ),
        (
            "TCP_DELACK_MAX_US",
            TCP_DELACK_MAX_US,
            [0, 20_000, 200_000, 200_001],
        ),
        (
            "TCP_THIN_LINEAR_TIMEOUTS",
            TCP_THIN_LINEAR_TIMEOUTS,
            [1, 2, -1, 0],
        ),
    ] {
        rows.extend(ints(name, T, option, &values, Both));
    }
    rows
}

fn ip_rows() -> Vec<Row> {
    const I: i32 = SOL_IP;
    let mut rows = Vec::new();
    rows.extend(ints("IP_TOS", I, IP_TOS, &[0x10, 0xb8, 0], Both));
    rows.push(row("IP_TOS", I, IP_TOS, vec![0x20], Both));
    rows.push(row("IP_TOS", I, IP_TOS, vec![], Both));
    rows.extend(ints("IP_TTL", I, IP_TTL, &[1, 255, 0, 256, -1], Both));
    let discover = IP_MTU_DISCOVER;
    rows.extend(ints(
        "IP_MTU_DISCOVER",
        I,
        discover,
        &[0, 1, 2, 3, 4, 5, 77],
        Both,
    ));
    rows.extend(ints("IP_FREEBIND", I, IP_FREEBIND, &[1, 0], Both));
    rows.extend(ints("an unknown one", I, 999, &[1], Both));
    rows.extend(ints("a level that is none", 12_345, 1, &[1], Outcome));
    rows
}

/// Room for reading an option: more than any value here takes.
const ROOM: usize = 64;

fn kernel(stage: Stage) -> (KernelSocket, Option<TcpStream>) {
    kernel_of(AF_INET, stage)
}

fn kernel_of(domain: i32, stage: Stage) -> (KernelSocket, Option<TcpStream>) {
    let any = match domain {
        AF_INET => "127.0.0.1:0",
        _ => "[::1]:0",
    };
    match stage {
        Stage::Idle => (KernelSocket::new(domain), None),
        Stage::Listening => {
            let socket = KernelSocket::new(domain);
            socket.listen();
            (socket, None)
        }
        Stage::Connected => {
            let listener = TcpListener::bind(any).unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let far = listener.accept().unwrap().0;
            (KernelSocket::from(near), Some(far))
        }
    }
}

fn ours(world: &mut World, stage: Stage) -> i32 {
    match stage {
        Stage::Idle => world.a.socket(),
        Stage::Listening => world.a.listener(80),
        Stage::Connected => world.connected().0,
    }
}

fn ours_of(world: &mut World, domain: i32, stage: Stage) -> i32 {
    match (domain, stage) {
        (AF_INET, stage) => ours(world, stage),
        (_, Stage::Idle) => world.a.socket_of(AF_INET6),
        (_, Stage::Listening) => world.a.listener_v6(80),
        (_, Stage::Connected) => world.connected_v6(),
    }
}

fn compare(row: &Row, stage: Stage) -> Result<(), String> {
    let mut world = World::new();
    let fd = ours(&mut world, stage);
    let (theirs, _far) = kernel(stage);
    let set = world
        .a
        .setsockopt(fd, row.level, row.option, row.value.clone());
    let set = set.map(|_| ()).map_err(|errno| errno.raw_os_error());
    let expected = theirs.set(row.level, row.option, &row.value);
    if let Differs(errno, _) = row.compare {
        let seen = set.err().unwrap_or(0);
        return match seen == errno {
            true => Ok(()),
            false => Err(format!("set: {seen}, which should be {errno}")),
        };
    }
    if set != expected && expected != Err(EPERM) {
        return Err(format!("set: {set:?}, the kernel {expected:?}"));
    }
    if row.compare == Both && expected != Err(EPERM) {
        let read = world.a.getsockopt(fd, row.level, row.option, ROOM);
        let read = read.map_err(|errno| errno.raw_os_error());
        let expected = theirs.get(row.level, row.option, ROOM);
        if read != expected {
            return Err(format!("get: {read:?}, the kernel {expected:?}"));
        }
    }
    Ok(())
}

#[test]
fn type_of_service_that_changes_sets_the_priority() {
    for stage in STAGES {
        let mut world = World::new();
        let fd = ours(&mut world, stage);
        let (theirs, _far) = kernel(stage);
        let mut set = |level, option, number| {
            let done = world.a.setsockopt(fd, level, option, int(number));
            assert!(done.is_ok(), "{stage:?} {option} {number}: {done:?}");
            assert_eq!(theirs.set(level, option, &int(number)), Ok(()));
            let ours = world.a.getsockopt(fd, SOL_SOCKET, SO_PRIORITY, ROOM);
            let ours = ours.map_err(|errno| errno.raw_os_error());
            let expected = theirs.get(SOL_SOCKET, SO_PRIORITY, ROOM);
            assert_eq!(ours, expected, "{stage:?} after {option} {number}");
        };
        set(SOL_IP, IP_TOS, 0);
        for tos in 1..=63 {
            set(SOL_IP, IP_TOS, tos * 4);
            set(SOL_SOCKET, SO_PRIORITY, 3);
            set(SOL_IP, IP_TOS, tos * 4);
        }
    }
}

/// Options of IPv4 and IPv6 packets that an IPv6 socket has both of.
const OF_BOTH_FAMILIES: [(i32, i32); 5] = [
    (SOL_IP, IP_TOS),
    (SOL_IPV6, IPV6_TCLASS),
    (SOL_IP, IP_TTL),
    (SOL_IPV6, IPV6_UNICAST_HOPS),
    (SOL_SOCKET, SO_PRIORITY),
];

#[test]
fn ipv6_socket_keeps_the_options_of_each_family() {
    for stage in STAGES {
        let mut world = World::new();
        let fd = ours_of(&mut world, AF_INET6, stage);
        let (theirs, _far) = kernel_of(AF_INET6, stage);
        let steps = [
            (SOL_IP, IP_TOS, 0x88),
            (SOL_IPV6, IPV6_TCLASS, 0x4b),
            (SOL_IP, IP_TTL, 33),
            (SOL_IPV6, IPV6_UNICAST_HOPS, 44),
            (SOL_IPV6, IPV6_TCLASS, -1),
            (SOL_IPV6, IPV6_TCLASS, 256),
            (SOL_IPV6, IPV6_UNICAST_HOPS, -1),
            (SOL_IPV6, IPV6_UNICAST_HOPS, 256),
            (SOL_IPV6, IPV6_UNICAST_HOPS, 55),
            (SOL_IP, IP_TTL, -1),
            (SOL_IP, IP_TOS, 0),
        ];
        for (level, option, value) in steps {
            let set = world.a.setsockopt(fd, level, option, int(value));
            let set = set.map(|_| ()).map_err(|errno| errno.raw_os_error());
            let expected = theirs.set(level, option, &int(value));
            assert_eq!(set, expected, "{stage:?}: {level} {option} {value}");
            for (told_level, told) in OF_BOTH_FAMILIES {
                let ours = world.a.getsockopt(fd, told_level, told, ROOM);
                let ours = ours.map_err(|errno| errno.raw_os_error());
                let expected = theirs.get(told_level, told, ROOM);
                let after = format!("{told_level} {told} after {level} {option} {value}");
                assert_eq!(ours, expected, "{stage:?}: {after}");
            }
        }
    }
}

#[test]
fn accepted_connection_does_not_inherit_the_priority() {
    let mut world = World::new();
    let listener = world.b.listener(80);
    for (option, value) in [(SO_PRIORITY, 5), (SO_KEEPALIVE, 1)] {
        let done = world.b.setsockopt(listener, SOL_SOCKET, option, int(value));
        assert!(done.is_ok(), "{option}: {done:?}");
    }
    let (_, accepted) = common::connected_to(&mut world, listener);
    let told = |world: &mut World, fd, option| world.b.getsockopt(fd, SOL_SOCKET, option, ROOM);
    assert_eq!(told(&mut world, accepted, SO_PRIORITY), Ok(int(0)));
    assert_eq!(told(&mut world, accepted, SO_KEEPALIVE), Ok(int(1)));
    assert_eq!(told(&mut world, listener, SO_PRIORITY), Ok(int(5)));
}

#[test]
fn options_are_what_the_kernel_makes_of_them() {
    let rows = [socket_rows(), tcp_rows(), odd_tcp_rows(), ip_rows()].concat();
    let mut wrong = Vec::new();
    for row in &rows {
        for stage in STAGES {
            if let Err(cause) = compare(row, stage) {
                wrong.push(format!("{stage:?} {} {:?}: {cause}", row.name, row.value));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The size that a buffer reports after it was set by force.
fn forced((set, told): (i32, i32), value: i32) -> [Result<Vec<u8>, i32>; 2] {
    let mut world = World::new();
    let (fd, theirs) = (world.a.socket(), KernelSocket::new(AF_INET));
    let done = world.a.setsockopt(fd, SOL_SOCKET, set, int(value));
    let read = done.and_then(|_| world.a.getsockopt(fd, SOL_SOCKET, told, 4));
    let expected = theirs.set(SOL_SOCKET, set, &int(value));
    [
        read.map_err(|errno| errno.raw_os_error()),
        expected.and_then(|()| theirs.get(SOL_SOCKET, told, 4)),
    ]
}

/// With privileges or without, as the kernel does to the same process.
#[test]
fn buffers_are_forced_beyond_what_anybody_may_ask_for() {
    for names in [(SO_SNDBUFFORCE, SO_SNDBUF), (SO_RCVBUFFORCE, SO_RCVBUF)] {
        for value in [10_000_000, 1, -1] {
            let [read, expected] = forced(names, value);
            assert_eq!(read, expected, "{names:?} {value}");
        }
    }
}

/// Sets options to 7 without these capabilities, here and on the kernel. A new thread does this,
/// since it gives up the capabilities for good.
fn without(given_up: CapabilitySet) {
    let compared = std::thread::spawn(move || {
        let mut sets = capabilities(None).unwrap();
        sets.effective -= given_up;
        set_capabilities(None, sets).unwrap();
        let mut world = World::new();
        let (fd, theirs) = (world.a.socket(), KernelSocket::new(AF_INET));
        for option in [SO_MARK, SO_PRIORITY, SO_SNDBUFFORCE, SO_RCVBUFFORCE] {
            let done = world.a.setsockopt(fd, SOL_SOCKET, option, int(7));
            let done = done.map(|_| ()).map_err(|errno| errno.raw_os_error());
            let expected = theirs.set(SOL_SOCKET, option, &int(7));
            assert_eq!(done, expected, "option {option} without {given_up:?}");
        }
    });
    compared.join().unwrap();
}

#[test]
fn user_without_privilege_is_denied() {
    without(CapabilitySet::NET_ADMIN);
    without(CapabilitySet::NET_RAW);
    without(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW);
}

/// Before a connection exists, only the algorithm's name matters.
#[test]
fn congestion_control_tells_of_itself_before_it_begins() {
    for name in [&b"bbr"[..], b"cubic", b"reno"] {
        let mut world = World::new();
        let (fd, theirs) = (world.a.socket(), KernelSocket::new(AF_INET));
        if theirs.set(SOL_TCP, TCP_CONGESTION, name).is_err() {
            // This kernel does not have the algorithm.
            continue;
        }
        let done = world
            .a
            .setsockopt(fd, SOL_TCP, TCP_CONGESTION, name.to_vec());
        assert_eq!(done, Ok(0));
        let read = world.a.getsockopt(fd, SOL_TCP, TCP_CC_INFO, ROOM);
        let read = read.map_err(|errno| errno.raw_os_error());
        assert_eq!(read, theirs.get(SOL_TCP, TCP_CC_INFO, ROOM), "{name:?}");
    }
}
