//! Options that `millstream` does not have: one row each.
//!
//! Some rows name functions that read and set the option, because it depends on the descriptor. The
//! other options have no effect on a TCP socket, here as in Linux, or are always refused. Linux
//! remembers options of datagrams and multicast although TCP ignores them; so does this table. A
//! row says what is read before the option was set, and which values are taken. Other values are
//! refused with Linux's errno. `tests/options/sweep.rs` compares every row, and every number
//! without a row, with the kernel.

use rustix::io::Errno;

use super::descriptor::*;
use super::{Target, to_errno};
use crate::layout::{int, to_int};
use crate::number::*;

/// Options of the packet filter, which does not exist here.
const IPT_SO_GET_INFO: i32 = 64;
const IP6T_SO_GET_INFO: i32 = 64;
const IP6T_SO_GET_ENTRIES: i32 = 65;
const IP6T_SO_GET_REVISION_MATCH: i32 = 68;
const IP6T_SO_GET_REVISION_TARGET: i32 = 69;
const IP6T_SO_ORIGINAL_DST: i32 = 80;

/// An option, and how its value is read and set.
#[derive(Clone, Copy, Debug)]
pub(super) struct OptionRow {
    level: i32,
    name: i32,
    read: Read,
    write: Write,
}

#[derive(Clone, Copy, Debug)]
enum Read {
    /// The remembered number, or this one until the option is set.
    Int(i32),
    /// Succeeds with an empty value.
    Empty,
    Zeros(usize),
    /// The function's value for a caller with this much room.
    Call(fn(&Target<'_>, usize) -> Result<Vec<u8>, Errno>),
    /// The value from `millstream`'s row.
    Below,
    Fails(Errno),
}

#[derive(Clone, Copy, Debug)]
enum Write {
    /// Remembers 0 or 1.
    KeepBool,
    /// Remembers 0 or 1 and refuses other numbers (`EINVAL`).
    KeepStrict,
    /// Remembers the number if the caller may set marks; `EPERM` otherwise.
    KeepForMarkers,
    /// Takes any number and forgets it.
    Forget,
    /// Takes 0 and 1 and forgets them, refuses other numbers (`EINVAL`).
    ForgetStrict,
    /// Accepts only the number that is read anyway.
    Only(i32, Errno),
    Call(fn(&Target<'_>, &[u8]) -> Result<(), Errno>),
    Fails(Errno),
}

const fn row(level: i32, name: i32, read: Read, write: Write) -> OptionRow {
    OptionRow {
        level,
        name,
        read,
        write,
    }
}

use Read::{Below, Empty, Int, Zeros};
use Write::{Forget, KeepBool, KeepStrict, Only};

const NOPROTOOPT: Read = Read::Fails(Errno::NOPROTOOPT);
const UNREADABLE: Read = Read::Fails(Errno::INVAL);
const UNSUPPORTED: Read = Read::Fails(Errno::OPNOTSUPP);
const READ_ONLY: Write = Write::Fails(Errno::NOPROTOOPT);
const INVALID: Write = Write::Fails(Errno::INVAL);
const DENIED: Write = Write::Fails(Errno::PERM);
/// Options that select contents of `IP_PKTOPTIONS` and `IPV6_2292PKTOPTIONS`, or accept flow
/// labels. Neither is implemented, so they cannot be turned on.
const UNTOLD: Write = Only(0, Errno::NOPROTOOPT);

const S: i32 = SOL_SOCKET;
const SOCKET_ROWS: [OptionRow; 58] = [
    row(S, SO_TYPE, Read::Call(socket_type), READ_ONLY),
    row(S, SO_DOMAIN, Read::Call(domain), READ_ONLY),
    row(S, SO_PROTOCOL, Read::Call(protocol), READ_ONLY),
    row(S, SO_ACCEPTCONN, Read::Call(accepts), READ_ONLY),
    row(S, SO_ERROR, Read::Call(take_error), READ_ONLY),
    row(S, SO_PEERCRED, Read::Call(peer_credentials), READ_ONLY),
    row(S, SO_PEERNAME, Read::Call(peer_name), READ_ONLY),
    row(S, SO_COOKIE, Read::Call(cookie), READ_ONLY),
    row(S, SO_MEMINFO, Read::Call(memory_info), READ_ONLY),
    row(S, SO_BINDTODEVICE, Empty, Write::Call(bind_to_device)),
    row(S, SO_PRIORITY, Below, Write::Call(set_priority)),
    row(S, SO_SNDBUFFORCE, Below, Write::Call(force_send_buffer)),
    row(S, SO_RCVBUFFORCE, Below, Write::Call(force_recv_buffer)),
    row(
        S,
        SO_ZEROCOPY,
        Read::Call(zero_copy),
        Write::Call(set_zero_copy),
    ),
    row(
        S,
        SO_SELECT_ERR_QUEUE,
        Read::Call(error_queue_is_urgent),
        Write::Call(set_error_queue_is_urgent),
    ),
    row(
        S,
        SO_TIMESTAMP,
        Read::Call(arrivals::<SO_TIMESTAMP>),
        Write::Call(set_arrivals::<SO_TIMESTAMP>),
    ),
    row(
        S,
        SO_TIMESTAMPNS,
        Read::Call(arrivals::<SO_TIMESTAMPNS>),
        Write::Call(set_arrivals::<SO_TIMESTAMPNS>),
    ),
    row(
        S,
        SO_TIMESTAMP_NEW,
        Read::Call(arrivals::<SO_TIMESTAMP_NEW>),
        Write::Call(set_arrivals::<SO_TIMESTAMP_NEW>),
    ),
    row(
        S,
        SO_TIMESTAMPNS_NEW,
        Read::Call(arrivals::<SO_TIMESTAMPNS_NEW>),
        Write::Call(set_arrivals::<SO_TIMESTAMPNS_NEW>),
    ),
    row(
        S,
        SO_TIMESTAMPING,
        Read::Call(stamp_flags),
        Write::Call(set_stamp_flags::<SO_TIMESTAMPING>),
    ),
    row(
        S,
        SO_TIMESTAMPING_NEW,
        Read::Call(stamp_flags),
        Write::Call(set_stamp_flags::<SO_TIMESTAMPING_NEW>),
    ),
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
const IP_ROWS: [OptionRow; 42] = [
    row(I, IP_RECVERR, Below, Write::Call(set_receive_errors_v4)),
    row(
        I,
        IP_IPSEC_POLICY,
        NOPROTOOPT,
        Write::Fails(Errno::OPNOTSUPP),
    ),
    row(
        I,
        IP_XFRM_POLICY,
        NOPROTOOPT,
        Write::Call(set_transform_policy),
    ),
    row(I, IP_TOS, Below, Write::Call(set_type_of_service)),
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
    row(I, IP_BIND_ADDRESS_NO_PORT, Int(0), KeepBool),
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
    row(
        I,
        MCAST_LEAVE_GROUP,
        NOPROTOOPT,
        Write::Call(leave_group_v4),
    ),
    row(I, MCAST_JOIN_SOURCE_GROUP, NOPROTOOPT, INVALID),
    row(I, MCAST_LEAVE_SOURCE_GROUP, NOPROTOOPT, INVALID),
    row(I, MCAST_MSFILTER, UNREADABLE, INVALID),
    row(I, IP_MULTICAST_ALL, Read::Call(multicast_all), KeepStrict),
    row(I, IPT_SO_GET_INFO, UNREADABLE, INVALID),
    row(I, IP_UNICAST_IF, Int(0), Only(0, Errno::ADDRNOTAVAIL)),
];

const V: i32 = SOL_IPV6;
const IPV6_ROWS: [OptionRow; 58] = [
    row(V, IPV6_RECVERR, Below, Write::Call(set_receive_errors_v6)),
    row(V, IPV6_V6ONLY, Below, Write::Call(set_v6_only)),
    row(V, IPV6_ADDRFORM, Read::Call(address_form), INVALID),
    row(
        V,
        IPV6_IPSEC_POLICY,
        NOPROTOOPT,
        Write::Fails(Errno::OPNOTSUPP),
    ),
    row(V, MCAST_JOIN_GROUP, NOPROTOOPT, INVALID),
    row(V, MCAST_BLOCK_SOURCE, NOPROTOOPT, INVALID),
    row(V, MCAST_UNBLOCK_SOURCE, NOPROTOOPT, INVALID),
    row(
        V,
        MCAST_LEAVE_GROUP,
        NOPROTOOPT,
        Write::Call(leave_group_v6),
    ),
    row(V, MCAST_JOIN_SOURCE_GROUP, NOPROTOOPT, INVALID),
    row(V, MCAST_LEAVE_SOURCE_GROUP, NOPROTOOPT, INVALID),
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
const TCP_ROWS: [OptionRow; 15] = [
    row(T, TCP_INFO, Read::Call(info_bytes), READ_ONLY),
    row(T, TCP_CC_INFO, Read::Call(congestion_info), READ_ONLY),
    row(
        T,
        TCP_FASTOPEN,
        Read::Call(fast_open),
        Write::Call(below::<SOL_TCP, TCP_FASTOPEN>),
    ),
    row(T, TCP_MD5SIG, NOPROTOOPT, Write::Call(refuse_md5)),
    row(T, TCP_MD5SIG_EXT, NOPROTOOPT, Write::Call(refuse_md5)),
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
fn find(level: i32, name: i32) -> Option<&'static OptionRow> {
    let rows: &'static [OptionRow] = match level {
        SOL_SOCKET => &SOCKET_ROWS,
        SOL_IP => &IP_ROWS,
        SOL_IPV6 => &IPV6_ROWS,
        SOL_TCP => &TCP_ROWS,
        _ => &[],
    };
    rows.iter()
        .find(|row| (row.level, row.name) == (level, name))
}

/// The value of an option for a caller with `room` bytes; `ENOPROTOOPT` for an unknown number.
pub(super) fn get(
    target: &Target<'_>,
    level: i32,
    name: i32,
    room: usize,
) -> Result<Vec<u8>, Errno> {
    let below = || to_errno(target.options.read_by_number(level, name, room));
    let Some(row) = find(level, name) else {
        return below();
    };
    match row.read {
        Int(number) => Ok(int(target.remembered(level, name).unwrap_or(number))),
        Empty => Ok(Vec::new()),
        Zeros(len) => Ok(vec![0; len]),
        Read::Call(read) => read(target, room),
        Below => below(),
        Read::Fails(errno) => Err(errno),
    }
}

/// Sets an option; `ENOPROTOOPT` for an unknown number.
pub(super) fn set(target: &Target<'_>, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    let row = find(level, name);
    if let Some(Write::Call(write)) = row.map(|row| row.write) {
        return write(target, value);
    }
    let Some(row) = row else {
        let outcome = to_errno(target.options.set_by_number(level, name, value));
        // Linux checks the length before it looks up the option.
        return match outcome {
            Err(Errno::NOPROTOOPT) if value.len() < size_of::<i32>() => Err(Errno::INVAL),
            outcome => outcome,
        };
    };
    let value = to_int(value).ok_or(Errno::INVAL)?;
    let kept = match row.write {
        KeepBool => (value != 0).into(),
        KeepStrict if (0..=1).contains(&value) => value,
        KeepStrict => return Err(Errno::INVAL),
        Write::KeepForMarkers if may_mark() => value,
        Write::KeepForMarkers => return Err(Errno::PERM),
        Write::ForgetStrict if (0..=1).contains(&value) => return Ok(()),
        Write::ForgetStrict => return Err(Errno::INVAL),
        Only(number, _) if number == value => return Ok(()),
        Only(_, errno) | Write::Fails(errno) => return Err(errno),
        Forget | Write::Call(_) => return Ok(()),
    };
    let mut values = target.entry.option_values.borrow_mut();
    values.insert((level, name), kept);
    Ok(())
}
