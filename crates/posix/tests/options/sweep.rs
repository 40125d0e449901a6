//! Every option number of every level, known here or not. Reading it and setting it to 0 and to 1
//! are compared with the kernel, on sockets of both families in each stage. [`LISTED`] says why we
//! differ; `docs/differences-options.md` documents that.

use std::collections::BTreeMap;

use super::*;

/// An operation on an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ask {
    Get,
    Set(i32),
}

type Answer = Result<Vec<u8>, i32>;

/// Levels, with the option numbers that are tested.
const LEVELS: [(i32, std::ops::RangeInclusive<i32>); 4] = [
    (SOL_SOCKET, 0..=90),
    (SOL_IP, 0..=64),
    (SOL_IPV6, 0..=90),
    (SOL_TCP, 0..=64),
];

/// A permitted difference of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum May {
    /// The value, which depends on the machine or its settings.
    Value,
    /// Everything, for the given reason.
    Differ(&'static str),
    /// The kernel's answer to a privileged process. The option is always refused here, as Linux
    /// refuses it without the privilege.
    Privilege,
}

use May::{Differ, Privilege, Value};

const UNTOLD: &str = "what packets bore is not told of a stream";

const LISTED: [(i32, i32, May); 56] = [
    (SOL_SOCKET, SO_DEBUG, Privilege),
    (
        SOL_SOCKET,
        SO_DONTROUTE,
        Differ("routes are the stack's own"),
    ),
    (SOL_SOCKET, SO_SNDBUF, Value),
    (SOL_SOCKET, SO_PRIORITY, Value),
    (SOL_SOCKET, SO_MARK, Value),
    (
        SOL_SOCKET,
        SO_PEEK_OFF,
        Differ("peeking begins at the first byte"),
    ),
    (SOL_SOCKET, SO_BUSY_POLL, Privilege),
    (
        SOL_SOCKET,
        48,
        Differ("SO_BPF_EXTENSIONS: there are no filters"),
    ),
    (
        SOL_SOCKET,
        SO_INCOMING_CPU,
        Differ("flows are not steered by CPU"),
    ),
    (SOL_SOCKET, SO_MEMINFO, Value),
    (SOL_SOCKET, SO_COOKIE, Value),
    (
        SOL_SOCKET,
        SO_BINDTOIFINDEX,
        Differ("there is one interface, and it has no number"),
    ),
    (SOL_SOCKET, SO_PREFER_BUSY_POLL, Privilege),
    (
        SOL_SOCKET,
        SO_BUF_LOCK,
        Differ("setting a buffer's size locks it, nothing else does"),
    ),
    (
        SOL_SOCKET,
        SO_TXREHASH,
        Differ("flows are not moved to other paths"),
    ),
    (SOL_SOCKET, SO_RCVMARK, Privilege),
    (SOL_IP, IP_OPTIONS, Differ("packets bear no IP options")),
    (SOL_IP, IP_PKTINFO, Differ(UNTOLD)),
    (SOL_IP, IP_RECVTTL, Differ(UNTOLD)),
    (SOL_IP, IP_RECVTOS, Differ(UNTOLD)),
    (SOL_IP, IP_MTU, Value),
    (SOL_IP, IP_TRANSPARENT, Privilege),
    (SOL_IP, IP_MINTTL, Differ("segments of any TTL are taken")),
    (
        SOL_IP,
        IP_LOCAL_PORT_RANGE,
        Differ("one range of local ports for all"),
    ),
    (
        SOL_IP,
        52,
        Differ("IP_PROTOCOL is for raw sockets: Linux tells garbage of TCP's"),
    ),
    (
        SOL_IPV6,
        IPV6_2292PKTOPTIONS,
        Differ("packets bear no extension headers"),
    ),
    (SOL_IPV6, IPV6_2292PKTINFO, Differ(UNTOLD)),
    (SOL_IPV6, IPV6_2292HOPOPTS, Differ(UNTOLD)),
    (SOL_IPV6, IPV6_2292DSTOPTS, Differ(UNTOLD)),
    (SOL_IPV6, IPV6_2292RTHDR, Differ(UNTOLD)),
    (SOL_IPV6, IPV6_2292HOPLIMIT, Differ(UNTOLD)),
    (SOL_IPV6, IPV6_FLOWINFO, Differ(UNTOLD)),
    (SOL_IPV6, IPV6_RECVPKTINFO, Differ(UNTOLD)),
    (SOL_IPV6, IPV6_RECVHOPLIMIT, Differ(UNTOLD)),
    (SOL_IPV6, IPV6_RECVHOPOPTS, Differ(UNTOLD)),
    (SOL_IPV6, IPV6_RECVRTHDR, Differ(UNTOLD)),
    (SOL_IPV6, IPV6_RECVDSTOPTS, Differ(UNTOLD)),
    (SOL_IPV6, IPV6_RECVTCLASS, Differ(UNTOLD)),
    (SOL_IPV6, IPV6_RECVORIGDSTADDR, Differ(UNTOLD)),
    (SOL_IPV6, IPV6_RECVFRAGSIZE, Differ(UNTOLD)),
    (SOL_IPV6, IPV6_FLOWINFO_SEND, Differ("flow labels are zero")),
    (SOL_IPV6, IPV6_MTU, Value),
    (SOL_IPV6, IPV6_PATHMTU, Differ("IPV6_MTU tells the same")),
    (SOL_IPV6, IPV6_AUTOFLOWLABEL, Differ("flow labels are zero")),
    (
        SOL_IPV6,
        IPV6_ADDR_PREFERENCES,
        Differ("source addresses are chosen by RFC 6724 alone"),
    ),
    (
        SOL_IPV6,
        IPV6_MINHOPCOUNT,
        Differ("segments of any hop limit are taken"),
    ),
    (SOL_IPV6, IPV6_TRANSPARENT, Privilege),
    (SOL_TCP, TCP_MAXSEG, Value),
    (SOL_TCP, TCP_WINDOW_CLAMP, Value),
    (SOL_TCP, TCP_INFO, Value),
    (SOL_TCP, TCP_CONGESTION, Value),
    (SOL_TCP, TCP_REPAIR, Privilege),
    (
        SOL_TCP,
        TCP_QUEUE_SEQ,
        Differ("of TCP_REPAIR: refused in every state"),
    ),
    (
        SOL_TCP,
        TCP_TIMESTAMP,
        Differ("of TCP_REPAIR: the clock of timestamps is not told"),
    ),
    (
        SOL_TCP,
        TCP_ZEROCOPY_RECEIVE,
        Differ("received bytes are not mapped"),
    ),
    (
        SOL_TCP,
        TCP_TX_DELAY,
        Differ("nothing is delayed on purpose"),
    ),
];

/// Two more options that depend on the kernel's build or settings.
const SETTINGS: [(i32, i32, May); 2] = [
    // With BBR as the default algorithm it reports BBR's values.
    (SOL_TCP, TCP_CC_INFO, Value),
    // TCP_AO_REPAIR
    (SOL_TCP, 42, Privilege),
];

fn kernel_answer(socket: &KernelSocket, level: i32, option: i32, ask: Ask) -> Answer {
    if let Ask::Set(value) = ask {
        socket.set(level, option, &int(value))?;
    }
    socket.get(level, option, ROOM)
}

fn our_answer(world: &mut World, fd: i32, level: i32, option: i32, ask: Ask) -> Answer {
    let errno = |errno: posix::Errno| errno.raw_os_error();
    if let Ask::Set(value) = ask {
        let set = world.a.setsockopt(fd, level, option, int(value));
        set.map_err(errno)?;
    }
    world.a.getsockopt(fd, level, option, ROOM).map_err(errno)
}

fn listed(level: i32, option: i32) -> Option<May> {
    let mut rows = LISTED.iter().chain(&SETTINGS);
    let found = rows.find(|row| (row.0, row.1) == (level, option));
    found.map(|row| row.2)
}

/// True if the answers agree or the difference is listed. Notes in `seen` differences that are
/// listed with a reason.
fn judge(
    (level, option): (i32, i32),
    ours: &Answer,
    kernels: &Answer,
    seen: &mut BTreeMap<(i32, i32), bool>,
) -> bool {
    const EACCES: i32 = 13;
    // Without privileges the kernel refuses many options before it looks at them.
    let unprivileged = matches!(kernels, Err(EPERM));
    if ours == kernels || (unprivileged && (ours.is_err() || listed(level, option).is_some())) {
        return true;
    }
    match listed(level, option) {
        Some(Value) => ours.is_ok() == kernels.is_ok(),
        Some(Privilege) => matches!(ours, Err(EPERM | EACCES | ENOPROTOOPT)),
        Some(Differ(_)) => {
            seen.insert((level, option), true);
            true
        }
        None => false,
    }
}

#[test]
fn every_number_is_answered_as_by_the_kernel() {
    let (mut wrong, mut seen) = (Vec::new(), BTreeMap::new());
    for (domain, stage) in [AF_INET, AF_INET6]
        .into_iter()
        .flat_map(|domain| STAGES.map(|stage| (domain, stage)))
    {
        for (level, option) in LEVELS
            .into_iter()
            .flat_map(|(level, options)| options.map(move |option| (level, option)))
        {
            for ask in [Ask::Get, Ask::Set(0), Ask::Set(1)] {
                let mut world = World::new();
                let fd = ours_of(&mut world, domain, stage);
                let (theirs, _far) = kernel_of(domain, stage);
                let expected = kernel_answer(&theirs, level, option, ask);
                let found = our_answer(&mut world, fd, level, option, ask);
                if !judge((level, option), &found, &expected, &mut seen) {
                    wrong.push(format!(
                        "level {level} option {option} {ask:?}, domain {domain} {stage:?}: {found:?}, the kernel {expected:?}"
                    ));
                }
            }
        }
    }
    for (level, option, may) in LISTED {
        if matches!(may, Differ(_)) && !seen.contains_key(&(level, option)) {
            wrong.push(format!(
                "level {level} option {option} does not differ: {may:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Names and numbers of all constants that the source declares.
fn declared() -> Vec<(&'static str, i32)> {
    let source = include_str!("../../src/number.rs");
    let words = source.split([',', ';', '\n', ':']);
    let pairs = words.filter_map(|word| word.split_once('='));
    let mut all: Vec<_> = pairs
        .filter_map(|(name, number)| Some((name.trim(), number.trim().parse().ok()?)))
        .collect();
    let below = millstream::SocketOptions::numbered();
    all.extend(below.map(|(name, _, number)| (name, number)));
    all
}

#[test]
fn page_of_differences_names_every_option_that_differs() {
    let page = include_str!("../../../../docs/differences-options.md");
    let (declared, mut missing) = (declared(), Vec::new());
    for (level, option, may) in LISTED {
        let prefix = match level {
            SOL_SOCKET => "SO_",
            SOL_IP => "IP_",
            SOL_IPV6 => "IPV6_",
            _ => "TCP_",
        };
        let mut names = declared
            .iter()
            .filter(|(name, number)| name.starts_with(prefix) && *number == option);
        let is_known = names.clone().next().is_some();
        if is_known && !names.any(|(name, _)| page.contains(&format!("`{name}`"))) {
            missing.push(format!("level {level} option {option}: {may:?}"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn page_of_differences_names_no_option_that_does_not_exist() {
    /// Constants of Linux that are unknown here.
    const UNKNOWN: [&str; 2] = ["SO_BPF_EXTENSIONS", "IP_PROTOCOL"];
    let page = include_str!("../../../../docs/differences-options.md");
    let declared = declared();
    let words = page.split('`').skip(1).step_by(2);
    for name in words.filter(|word| {
        let levels = ["SO_", "IP_", "IPV6_", "TCP_"];
        levels.iter().any(|level| word.starts_with(level)) && !word.contains(' ')
    }) {
        let is_declared = declared.iter().any(|(declared, _)| *declared == name);
        assert!(is_declared || UNKNOWN.contains(&name), "{name}");
    }
}
