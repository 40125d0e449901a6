//! Options that have nothing to do for a TCP socket, here or in Linux, or that are always refused: one row each.
//!
//! Those of datagrams and of multicast are kept and told, as Linux keeps and tells them, for TCP looks at none of them. A row says what is
//! read before anything was set, and which values are taken; the rest are refused with the errno that Linux has for them. `tests/options/sweep.rs` compares
//! every row, and what is in no row, with the kernel.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};

use crate::number::*;
use crate::sockets::Entry;

/// Numbers of the packet filter's, which has no tables here.
const IPT_SO_GET_INFO: i32 = 64;
const IP6T_SO_GET_INFO: i32 = 64;
const IP6T_SO_GET_ENTRIES: i32 = 65;
const IP6T_SO_GET_REVISION_MATCH: i32 = 68;
const IP6T_SO_GET_REVISION_TARGET: i32 = 69;
const IP6T_SO_ORIGINAL_DST: i32 = 80;

/// What is done with an option.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain {
    level: i32,
    name: i32,
    /// What is read of it until it is set.
    read: Read,
    write: Write,
}

#[derive(Clone, Copy, Debug)]
enum Read {
    Int(i32),
    /// Nothing, successfully.
    Empty,
    Zeros(usize),
    Fails(Errno),
}

#[derive(Clone, Copy, Debug)]
enum Write {
    /// Kept as 0 or 1.
    KeepBool,
    /// 0 or 1 are kept, others `EINVAL`.
    KeepStrict,
    /// Kept for who may administer the network or make packets, `EPERM` for others.
    KeepForMarkers,
    /// Taken, and forgotten.
    Forget,
    /// The same with 0 and 1, others `EINVAL`.
    ForgetStrict,
    /// What it is already is taken, and nothing else.
    Only(i32, Errno),
    Fails(Errno),
}

const fn row(level: i32, name: i32, read: Read, write: Write) -> Plain {
    Plain {
        level,
        name,
        read,
        write,
    }
}

use Read::{Empty, Int, Zeros};
use Write::{Forget, KeepBool, KeepStrict, Only};

const NOPROTOOPT: Read = Read::Fails(Errno::NOPROTOOPT);
const UNREADABLE: Read = Read::Fails(Errno::INVAL);
const UNSUPPORTED: Read = Read::Fails(Errno::OPNOTSUPP);
const READ_ONLY: Write = Write::Fails(Errno::NOPROTOOPT);
const INVALID: Write = Write::Fails(Errno::INVAL);
const DENIED: Write = Write::Fails(Errno::PERM);
/// What Linux would fill `IP_PKTOPTIONS` and `IPV6_2292PKTOPTIONS` of a stream with, or take flow labels from: neither is built, so nobody may ask for it.
const UNTOLD: Write = Only(0, Errno::NOPROTOOPT);

const S: i32 = SOL_SOCKET;
const SOCKET_ROWS: [Plain; 37] = [
    row(S, SO_DEBUG, Int(0), Only(0, Errno::ACCESS)),
    row(S, SO_DONTROUTE, Int(0), Only(0, Errno::NOPROTOOPT)),
    row(S, SO_BROADCAST, Int(0), KeepBool),
    row(S, SO_NO_CHECK, Int(0), KeepBool),
    row(S, SO_BSDCOMPAT, Int(0), Forget),
    row(S, SO_PASSCRED, UNSUPPORTED, Write::Fails(Errno::OPNOTSUPP)),
    row(S, SO_ATTACH_FILTER, Empty, INVALID),
    row(S, SO_DETACH_FILTER, NOPROTOOPT, Write::Fails(Errno::NOENT)),
    row(S, SO_PASSSEC, UNSUPPORTED, Write::Fails(Errno::OPNOTSUPP)),
    row(S, SO_RXQ_OVFL, Int(0), KeepBool),
    row(S, SO_WIFI_STATUS, Int(0), KeepBool),
    row(S, SO_MARK, Int(0), Write::KeepForMarkers),
    row(S, SO_PEEK_OFF, Int(-1), Only(-1, Errno::NOPROTOOPT)),
    row(S, SO_NOFCS, Int(0), KeepBool),
    row(S, SO_LOCK_FILTER, Int(0), KeepBool),
    row(S, SO_BUSY_POLL, Int(0), Only(0, Errno::PERM)),
    row(S, SO_INCOMING_CPU, Int(-1), Only(-1, Errno::NOPROTOOPT)),
    row(S, SO_ATTACH_BPF, NOPROTOOPT, INVALID),
    row(S, SO_ATTACH_REUSEPORT_CBPF, NOPROTOOPT, INVALID),
    row(S, SO_ATTACH_REUSEPORT_EBPF, NOPROTOOPT, INVALID),
    row(S, SO_INCOMING_NAPI_ID, Int(0), READ_ONLY),
    row(S, SO_PEERGROUPS, Read::Fails(Errno::NODATA), READ_ONLY),
    row(S, SO_TXTIME, Zeros(8), INVALID),
    row(S, SO_BINDTOIFINDEX, Int(0), Only(0, Errno::NODEV)),
    row(S, SO_DETACH_REUSEPORT_BPF, NOPROTOOPT, INVALID),
    row(S, SO_PREFER_BUSY_POLL, Int(0), Only(0, Errno::PERM)),
    row(S, SO_NETNS_COOKIE, UNREADABLE, READ_ONLY),
    row(S, SO_BUF_LOCK, Int(0), Only(0, Errno::NOPROTOOPT)),
    row(S, SO_RESERVE_MEM, Int(0), Write::Fails(Errno::OPNOTSUPP)),
    row(S, SO_TXREHASH, Int(0), Only(0, Errno::NOPROTOOPT)),
    row(S, SO_RCVMARK, Int(0), Only(0, Errno::PERM)),
    row(S, SO_PASSPIDFD, UNSUPPORTED, Write::Fails(Errno::OPNOTSUPP)),
    row(S, SO_PEERPIDFD, Read::Fails(Errno::NODATA), READ_ONLY),
    row(S, SO_DEVMEM_DONTNEED, NOPROTOOPT, INVALID),
    row(S, SO_RCVPRIORITY, Int(0), KeepBool),
    row(
        S,
        SO_PASSRIGHTS,
        UNSUPPORTED,
        Write::Fails(Errno::OPNOTSUPP),
    ),
    row(S, SO_SNDLOWAT, Int(1), READ_ONLY),
];

const I: i32 = SOL_IP;
const IP_ROWS: [Plain; 38] = [
    row(I, IP_HDRINCL, Int(0), READ_ONLY),
    row(I, IP_OPTIONS, Empty, READ_ONLY),
    row(I, IP_ROUTER_ALERT, Int(0), INVALID),
    row(I, IP_RECVOPTS, Int(0), KeepBool),
    row(I, IP_RETOPTS, Int(0), KeepBool),
    row(I, IP_PKTINFO, Int(0), UNTOLD),
    row(I, IP_PKTOPTIONS, Empty, READ_ONLY),
    row(I, IP_RECVTTL, Int(0), UNTOLD),
    row(I, IP_RECVTOS, Int(0), UNTOLD),
    row(I, IP_PASSSEC, Int(0), KeepBool),
    row(I, IP_TRANSPARENT, Int(0), Only(0, Errno::PERM)),
    row(I, IP_RECVORIGDSTADDR, Int(0), KeepBool),
    row(I, IP_MINTTL, Int(0), Only(0, Errno::NOPROTOOPT)),
    row(I, IP_NODEFRAG, Int(0), READ_ONLY),
    row(I, IP_CHECKSUM, Int(0), KeepBool),
    row(
        I,
        IP_BIND_ADDRESS_NO_PORT,
        Int(0),
        Only(0, Errno::NOPROTOOPT),
    ),
    row(I, IP_RECVFRAGSIZE, Int(0), INVALID),
    row(I, IP_RECVERR_RFC4884, Int(0), KeepStrict),
    row(I, IP_MULTICAST_IF, Int(0), INVALID),
    row(I, IP_MULTICAST_TTL, Int(1), INVALID),
    row(I, IP_MULTICAST_LOOP, Int(1), KeepBool),
    row(I, IP_ADD_MEMBERSHIP, NOPROTOOPT, Write::Fails(Errno::PROTO)),
    row(
        I,
        IP_DROP_MEMBERSHIP,
        NOPROTOOPT,
        Write::Fails(Errno::PROTO),
    ),
    row(I, IP_UNBLOCK_SOURCE, NOPROTOOPT, INVALID),
    row(I, IP_BLOCK_SOURCE, NOPROTOOPT, INVALID),
    row(I, IP_ADD_SOURCE_MEMBERSHIP, NOPROTOOPT, INVALID),
    row(I, IP_DROP_SOURCE_MEMBERSHIP, NOPROTOOPT, INVALID),
    row(I, IP_MSFILTER, UNREADABLE, INVALID),
    row(I, MCAST_JOIN_GROUP, NOPROTOOPT, INVALID),
    row(I, MCAST_BLOCK_SOURCE, NOPROTOOPT, INVALID),
    row(I, MCAST_UNBLOCK_SOURCE, NOPROTOOPT, INVALID),
    row(I, MCAST_LEAVE_GROUP, NOPROTOOPT, INVALID),
    row(I, MCAST_JOIN_SOURCE_GROUP, NOPROTOOPT, INVALID),
    row(I, MCAST_LEAVE_SOURCE_GROUP, NOPROTOOPT, INVALID),
    row(I, MCAST_MSFILTER, UNREADABLE, INVALID),
    row(I, IP_MULTICAST_ALL, Int(1), KeepStrict),
    row(I, IPT_SO_GET_INFO, UNREADABLE, INVALID),
    row(I, IP_UNICAST_IF, Int(0), Only(0, Errno::ADDRNOTAVAIL)),
];

const V: i32 = SOL_IPV6;
const IPV6_ROWS: [Plain; 48] = [
    row(V, IPV6_2292PKTINFO, Int(0), UNTOLD),
    row(V, IPV6_2292HOPOPTS, Int(0), UNTOLD),
    row(V, IPV6_2292DSTOPTS, Int(0), UNTOLD),
    row(V, IPV6_2292RTHDR, Int(0), UNTOLD),
    row(V, IPV6_2292PKTOPTIONS, Empty, READ_ONLY),
    row(V, IPV6_2292HOPLIMIT, Int(0), UNTOLD),
    row(V, IPV6_FLOWINFO, Int(0), UNTOLD),
    row(V, IPV6_MULTICAST_IF, Int(0), READ_ONLY),
    row(V, IPV6_MULTICAST_HOPS, Int(1), READ_ONLY),
    row(V, IPV6_MULTICAST_LOOP, Int(1), KeepStrict),
    row(V, IPV6_ADD_MEMBERSHIP, NOPROTOOPT, INVALID),
    row(V, IPV6_DROP_MEMBERSHIP, NOPROTOOPT, INVALID),
    row(V, IPV6_ROUTER_ALERT, Int(0), READ_ONLY),
    row(V, IPV6_JOIN_ANYCAST, NOPROTOOPT, INVALID),
    row(V, IPV6_LEAVE_ANYCAST, NOPROTOOPT, INVALID),
    row(V, IPV6_MULTICAST_ALL, Int(1), KeepBool),
    row(V, IPV6_ROUTER_ALERT_ISOLATE, Int(0), KeepBool),
    row(V, IPV6_RECVERR_RFC4884, Int(0), KeepStrict),
    row(V, IPV6_FLOWLABEL_MGR, Read::Fails(Errno::NOENT), INVALID),
    row(V, IPV6_FLOWINFO_SEND, Int(0), UNTOLD),
    row(V, IPV6_XFRM_POLICY, NOPROTOOPT, INVALID),
    row(V, IPV6_HDRINCL, NOPROTOOPT, READ_ONLY),
    row(V, IPV6_RECVPKTINFO, Int(0), UNTOLD),
    row(V, IPV6_PKTINFO, NOPROTOOPT, INVALID),
    row(V, IPV6_RECVHOPLIMIT, Int(0), UNTOLD),
    row(V, IPV6_RECVHOPOPTS, Int(0), UNTOLD),
    row(V, IPV6_HOPOPTS, Empty, INVALID),
    row(V, IPV6_RTHDRDSTOPTS, Empty, INVALID),
    row(V, IPV6_RECVRTHDR, Int(0), UNTOLD),
    row(V, IPV6_RTHDR, Empty, INVALID),
    row(V, IPV6_RECVDSTOPTS, Int(0), UNTOLD),
    row(V, IPV6_DSTOPTS, Empty, INVALID),
    row(V, IPV6_RECVPATHMTU, Int(0), KeepBool),
    row(V, IPV6_DONTFRAG, Int(0), KeepBool),
    row(V, IPV6_RECVTCLASS, Int(0), UNTOLD),
    row(V, IPV6_AUTOFLOWLABEL, Int(0), Only(0, Errno::NOPROTOOPT)),
    row(V, IPV6_ADDR_PREFERENCES, NOPROTOOPT, READ_ONLY),
    row(V, IPV6_MINHOPCOUNT, Int(0), Only(0, Errno::NOPROTOOPT)),
    row(V, IPV6_RECVORIGDSTADDR, Int(0), UNTOLD),
    row(V, IPV6_TRANSPARENT, Int(0), Only(0, Errno::PERM)),
    row(V, MCAST_MSFILTER, UNREADABLE, INVALID),
    row(V, IP6T_SO_GET_INFO, UNREADABLE, INVALID),
    row(V, IP6T_SO_GET_ENTRIES, UNREADABLE, INVALID),
    row(V, IP6T_SO_GET_REVISION_MATCH, UNREADABLE, READ_ONLY),
    row(V, IP6T_SO_GET_REVISION_TARGET, UNREADABLE, READ_ONLY),
    row(
        V,
        IP6T_SO_ORIGINAL_DST,
        Read::Fails(Errno::NOENT),
        READ_ONLY,
    ),
    row(V, IPV6_UNICAST_IF, Int(0), Only(0, Errno::ADDRNOTAVAIL)),
    row(V, IPV6_RECVFRAGSIZE, Int(0), UNTOLD),
];

const T: i32 = SOL_TCP;
const TCP_ROWS: [Plain; 10] = [
    row(T, TCP_THIN_DUPACK, Int(0), Write::ForgetStrict),
    row(T, TCP_REPAIR, Int(0), DENIED),
    row(T, TCP_REPAIR_QUEUE, UNREADABLE, DENIED),
    row(T, TCP_QUEUE_SEQ, UNREADABLE, DENIED),
    row(T, TCP_REPAIR_OPTIONS, NOPROTOOPT, INVALID),
    row(T, TCP_TIMESTAMP, NOPROTOOPT, DENIED),
    row(T, TCP_REPAIR_WINDOW, UNREADABLE, DENIED),
    row(T, TCP_TX_DELAY, Int(0), Only(0, Errno::NOPROTOOPT)),
    row(T, TCP_IS_MPTCP, Int(0), READ_ONLY),
    row(T, TCP_ULP, Empty, Write::Fails(Errno::NOENT)),
];

/// The row of an option, if it has one.
fn find(level: i32, name: i32) -> Option<&'static Plain> {
    let rows: &'static [Plain] = match level {
        SOL_SOCKET => &SOCKET_ROWS,
        SOL_IP => &IP_ROWS,
        SOL_IPV6 => &IPV6_ROWS,
        SOL_TCP => &TCP_ROWS,
        _ => &[],
    };
    rows.iter()
        .find(|row| (row.level, row.name) == (level, name))
}

/// What reading such an option gives; `ENOPROTOOPT` if there is none of that number.
pub(super) fn get(entry: &Entry, level: i32, name: i32) -> Result<Vec<u8>, Errno> {
    let row = find(level, name).ok_or(Errno::NOPROTOOPT)?;
    let kept = entry.kept.borrow().get(&(level, name)).copied();
    Ok(match (row.read, kept) {
        (Int(_), Some(kept)) => crate::layout::int(kept),
        (Int(number), None) => crate::layout::int(number),
        (Empty, _) => Vec::new(),
        (Zeros(len), _) => vec![0; len],
        (Read::Fails(errno), _) => return Err(errno),
    })
}

/// The calling thread has `CAP_NET_ADMIN`.
pub(super) fn is_admin() -> bool {
    has_any(CapabilitySet::NET_ADMIN)
}

/// It has `CAP_NET_ADMIN` or `CAP_NET_RAW`: its packets may have marks and any priority.
pub(super) fn may_mark() -> bool {
    has_any(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW)
}

fn has_any(of: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.intersects(of))
}

/// Sets such an option; `ENOPROTOOPT` if there is none of that number.
pub(super) fn set(entry: &Entry, level: i32, name: i32, value: i32) -> Result<(), Errno> {
    let row = find(level, name).ok_or(Errno::NOPROTOOPT)?;
    let kept = match row.write {
        KeepBool => (value != 0).into(),
        KeepStrict if (0..=1).contains(&value) => value,
        KeepStrict => return Err(Errno::INVAL),
        Write::KeepForMarkers if may_mark() => value,
        Write::KeepForMarkers => return Err(Errno::PERM),
        Forget => return Ok(()),
        Write::ForgetStrict if (0..=1).contains(&value) => return Ok(()),
        Write::ForgetStrict => return Err(Errno::INVAL),
        Only(number, _) if number == value => return Ok(()),
        Only(_, errno) | Write::Fails(errno) => return Err(errno),
    };
    entry.kept.borrow_mut().insert((level, name), kept);
    Ok(())
}
