//! Functions that read and set options which depend on the descriptor.

use millstream::{CongestionAlgorithm, DctcpInfo, TcpState};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};

use super::{Target, to_errno};
use crate::entry::{File, errno};
use crate::layout::{int, sockaddr, to_int};
use crate::number::*;
use crate::open::as_family;
use crate::tcp_info::{meminfo, of_listener, tcp_info, without_connection};
use crate::timestamping::set_flags;

type Value = Result<Vec<u8>, Errno>;
type Done = Result<(), Errno>;

/// `sizeof(struct tcp_md5sig)`
const MD5SIG_BYTES: usize = 216;
/// Highest value of `SO_PRIORITY` without a privilege.
const SO_PRIORITY_MAX: i32 = 6;
/// The upper two bits of RFC 1349's type of service, which choose a priority.
const TOS_MASK: u8 = 0x18;
/// `SO_PRIORITY` by the two bits of `TOS_MASK`: best effort, bulk, interactive, interactive bulk
/// (`ip_tos2prio`).
const TOS_PRIORITIES: [i32; 4] = [0, 2, 6, 4];

impl Target<'_> {
    fn info(&self) -> Result<Option<Box<millstream::SocketInfo>>, Errno> {
        match &self.entry.file {
            File::Stream(stream) => stream.info(),
            _ => Ok(None),
        }
    }
}

fn number(value: &[u8]) -> Result<i32, Errno> {
    to_int(value).ok_or(Errno::INVAL)
}

pub(super) fn socket_type(_: &Target<'_>, _: usize) -> Value {
    Ok(int(SOCK_STREAM))
}

pub(super) fn domain(target: &Target<'_>, _: usize) -> Value {
    Ok(int(if target.entry.is_v6 {
        AF_INET6
    } else {
        AF_INET
    }))
}

pub(super) fn protocol(_: &Target<'_>, _: usize) -> Value {
    Ok(int(IPPROTO_TCP))
}

pub(super) fn accepts(target: &Target<'_>, _: usize) -> Value {
    Ok(int(matches!(target.entry.file, File::Listener(_)).into()))
}

pub(super) fn take_error(target: &Target<'_>, _: usize) -> Value {
    Ok(int(match &target.entry.file {
        File::Stream(stream) => {
            let failure = stream.tcp.take_error();
            failure
                .or_else(|| stream.tcp.take_soft_error().ok().flatten())
                .map_or(0, |error| errno(&error).raw_os_error())
        }
        _ => {
            let failure = target.entry.error.take();
            failure.map_or(0, Errno::raw_os_error)
        }
    }))
}

/// `SO_PEERCRED`: the peer is not a process of this host, so all three values mean "none".
pub(super) fn peer_credentials(_: &Target<'_>, _: usize) -> Value {
    Ok([int(0), int(-1), int(-1)].concat())
}

/// `SO_PEERNAME`: the peer's address. A longer one than `len` is cut; Linux refuses a `len` above
/// the address's size.
pub(super) fn peer_name(target: &Target<'_>, len: usize) -> Value {
    let File::Stream(stream) = &target.entry.file else {
        return Err(Errno::NOTCONN);
    };
    if !stream.tcp.is_open() {
        return Err(Errno::NOTCONN);
    }
    let address = sockaddr(as_family(target.entry.is_v6, stream.tcp.peer_addr()));
    match address.len() < len {
        true => Err(Errno::INVAL),
        false => Ok(address),
    }
}

pub(super) fn cookie(target: &Target<'_>, _: usize) -> Value {
    Ok(target.entry.cookie.to_ne_bytes().to_vec())
}

pub(super) fn memory_info(target: &Target<'_>, _: usize) -> Value {
    let (send, recv) = to_errno(target.options.buffer_sizes())?;
    let info = target.info()?;
    let words = meminfo(info.as_deref(), recv, send);
    Ok(words.iter().flat_map(|word| word.to_ne_bytes()).collect())
}

/// `SO_BINDTODEVICE`: only the empty name, which means any device. There are no named devices.
pub(super) fn bind_to_device(_: &Target<'_>, value: &[u8]) -> Done {
    match value.first() {
        None | Some(0) => Ok(()),
        Some(_) => Err(Errno::NODEV),
    }
}

pub(super) fn set_priority(target: &Target<'_>, value: &[u8]) -> Done {
    let priority = number(value)?;
    if !(0..=SO_PRIORITY_MAX).contains(&priority) && !may_mark() {
        return Err(Errno::PERM);
    }
    below::<SOL_SOCKET, SO_PRIORITY>(target, value)
}

/// Sets `IP_TOS`. A value that differs sets `SO_PRIORITY` as well, without a privilege, as Linux
/// does (`__ip_sock_set_tos`).
pub(super) fn set_type_of_service(target: &Target<'_>, value: &[u8]) -> Done {
    let before = target.options.traffic_class_v4();
    below::<SOL_IP, IP_TOS>(target, value)?;
    let after = target.options.traffic_class_v4();
    if after == before {
        return Ok(());
    }
    let class = usize::from(after & TOS_MASK) >> 3;
    let priority = int(TOS_PRIORITIES[class]);
    below::<SOL_SOCKET, SO_PRIORITY>(target, &priority)
}

pub(super) fn force_send_buffer(target: &Target<'_>, value: &[u8]) -> Done {
    check_admin(value)?;
    below::<SOL_SOCKET, SO_SNDBUFFORCE>(target, value)
}

pub(super) fn force_recv_buffer(target: &Target<'_>, value: &[u8]) -> Done {
    check_admin(value)?;
    below::<SOL_SOCKET, SO_RCVBUFFORCE>(target, value)
}

/// Checks an `int` that needs `CAP_NET_ADMIN` in the calling thread.
fn check_admin(value: &[u8]) -> Done {
    number(value)?;
    match has_any(CapabilitySet::NET_ADMIN) {
        true => Ok(()),
        false => Err(Errno::PERM),
    }
}

/// True if the calling thread has `CAP_NET_ADMIN` or `CAP_NET_RAW`, which marks and high priorities
/// of packets require.
pub(super) fn may_mark() -> bool {
    has_any(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW)
}

fn has_any(of: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.intersects(of))
}

/// Sets an option by its row in `millstream`'s table.
pub(super) fn below<const LEVEL: i32, const NAME: i32>(target: &Target<'_>, value: &[u8]) -> Done {
    to_errno(target.options.set_by_number(LEVEL, NAME, value))
}

pub(super) fn zero_copy(target: &Target<'_>, _: usize) -> Value {
    Ok(int(target.entry.zero_copy.on.get().into()))
}

pub(super) fn set_zero_copy(target: &Target<'_>, value: &[u8]) -> Done {
    match number(value)? {
        on @ 0..=1 => target.entry.zero_copy.on.set(on == 1),
        _ => return Err(Errno::INVAL),
    }
    Ok(())
}

pub(super) fn error_queue_is_urgent(target: &Target<'_>, _: usize) -> Value {
    Ok(int(target.entry.error_queue_is_urgent.get().into()))
}

pub(super) fn set_error_queue_is_urgent(target: &Target<'_>, value: &[u8]) -> Done {
    target.entry.error_queue_is_urgent.set(number(value)? != 0);
    Ok(())
}

/// `SO_TIMESTAMP` and its relatives.
pub(super) fn arrivals<const NAME: i32>(target: &Target<'_>, _: usize) -> Value {
    Ok(int(target.entry.timestamping.is_set_as(NAME).into()))
}

pub(super) fn set_arrivals<const NAME: i32>(target: &Target<'_>, value: &[u8]) -> Done {
    let on = number(value)? != 0;
    target.entry.timestamping.set_arrivals(NAME, on);
    tell_arrivals(target)
}

/// A `struct so_timestamping`: the flags, and 0 as there is no hardware clock.
pub(super) fn stamp_flags(target: &Target<'_>, _: usize) -> Value {
    let flags = target.entry.timestamping.flags();
    Ok([int(flags as i32), int(0)].concat())
}

pub(super) fn set_stamp_flags<const NAME: i32>(target: &Target<'_>, value: &[u8]) -> Done {
    set_flags(target.entry, NAME, value)?;
    tell_arrivals(target)
}

/// Tells the stack whether to record when bytes arrive.
fn tell_arrivals(target: &Target<'_>) -> Done {
    let on = target.entry.timestamping.wants_arrivals();
    to_errno(target.options.set_arrival_stamps(on))
}

/// `IP_MULTICAST_ALL`, which an IPv6 socket begins without, as in Linux.
pub(super) fn multicast_all(target: &Target<'_>, _: usize) -> Value {
    let set = target.remembered(SOL_IP, IP_MULTICAST_ALL);
    Ok(int(set.unwrap_or((!target.entry.is_v6).into())))
}

pub(super) fn set_receive_errors_v4(target: &Target<'_>, value: &[u8]) -> Done {
    below::<SOL_IP, IP_RECVERR>(target, value)?;
    target.entry.forget_errors(number(value)? != 0);
    Ok(())
}

pub(super) fn set_receive_errors_v6(target: &Target<'_>, value: &[u8]) -> Done {
    below::<SOL_IPV6, IPV6_RECVERR>(target, value)?;
    target.entry.forget_errors(number(value)? != 0);
    Ok(())
}

pub(super) fn set_transform_policy(target: &Target<'_>, _: &[u8]) -> Done {
    Err(match target.entry.is_v6 {
        true => Errno::OPNOTSUPP,
        false => Errno::INVAL,
    })
}

/// `IPV6_V6ONLY`: cannot change once the socket has an address.
pub(super) fn set_v6_only(target: &Target<'_>, value: &[u8]) -> Done {
    number(value)?;
    match &target.entry.file {
        File::Idle(socket) if socket.local_addr().is_none() => {
            below::<SOL_IPV6, IPV6_V6ONLY>(target, value)
        }
        _ => Err(Errno::INVAL),
    }
}

pub(super) fn address_form(target: &Target<'_>, _: usize) -> Value {
    match target.info()?.map(|info| info.tcp.state) {
        Some(TcpState::Established) => Ok(int(AF_INET6)),
        _ => Err(Errno::NOTCONN),
    }
}

/// A stream has joined no group, so it can leave none.
pub(super) fn leave_group_v4(_: &Target<'_>, value: &[u8]) -> Result<(), Errno> {
    Err(match group_family(value)? {
        AF_INET => Errno::ADDRNOTAVAIL,
        _ => Errno::INVAL,
    })
}

/// As [`leave_group_v4`], of a group of IPv6's.
pub(super) fn leave_group_v6(_: &Target<'_>, value: &[u8]) -> Result<(), Errno> {
    let is_multicast = value.get(GROUP_AT + 8) == Some(&0xff);
    Err(match group_family(value)? {
        AF_INET6 if !is_multicast => Errno::INVAL,
        _ => Errno::ADDRNOTAVAIL,
    })
}

/// The family of the group in a `struct group_req`.
fn group_family(value: &[u8]) -> Result<i32, Errno> {
    match value.get(GROUP_AT..GROUP_AT + 2) {
        Some(&[low, high]) if value.len() >= GROUP_REQ_LEN => {
            Ok(u16::from_ne_bytes([low, high]).into())
        }
        _ => Err(Errno::INVAL),
    }
}

/// `sizeof(struct group_req)`, and where in it the group's address begins.
const GROUP_REQ_LEN: usize = GROUP_AT + 128;
const GROUP_AT: usize = 8;

pub(super) fn info_bytes(target: &Target<'_>, _: usize) -> Value {
    let config = target.context.tcp_config();
    if let File::Listener(listener) = &target.entry.file {
        return Ok(of_listener(listener.queued(), &config).to_vec());
    }
    Ok(match target.info()? {
        Some(info) => tcp_info(&info, target.context.now_ns()).to_vec(),
        None => without_connection(&config).to_vec(),
    })
}

/// `union tcp_cc_info`: BBR's model or DCTCP's estimate, and zero without a connection. Other
/// algorithms return nothing.
pub(super) fn congestion_info(target: &Target<'_>, _: usize) -> Value {
    let tcp = target.info()?.map(|info| info.tcp);
    let mut bytes = Vec::new();
    match target.options.congestion().unwrap_or_default() {
        CongestionAlgorithm::Bbr => {
            let words = tcp.and_then(|tcp| tcp.bbr).map_or([0; 5], |bbr| {
                let (low, high) = (bbr.bandwidth as u32, (bbr.bandwidth >> 32) as u32);
                [low, high, bbr.min_rtt_us, bbr.pacing_gain, bbr.cwnd_gain]
            });
            bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        }
        CongestionAlgorithm::Dctcp => {
            let dctcp = tcp.and_then(|tcp| tcp.dctcp).unwrap_or(DctcpInfo {
                has_ecn: true,
                ..DctcpInfo::default()
            });
            bytes.extend(u16::from(dctcp.has_ecn).to_ne_bytes());
            bytes.extend(u16::from(dctcp.has_latest_mark).to_ne_bytes());
            let words = [dctcp.alpha, dctcp.round_marked_bytes, dctcp.round_bytes];
            bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        }
        CongestionAlgorithm::Cubic
        | CongestionAlgorithm::NewReno
        | CongestionAlgorithm::Outside(_) => {}
    }
    Ok(bytes)
}

/// `TCP_FASTOPEN`: the limit that was set, or the configured limit of every listener.
pub(super) fn fast_open(target: &Target<'_>, _: usize) -> Value {
    let config = target.context.tcp_config();
    let settings = &config.fast_open;
    Ok(int(
        match (target.options.fast_open(), &target.entry.file) {
            (Some(pending), _) => pending as i32,
            (None, File::Listener(listener)) if settings.server && settings.every_listener => {
                listener.backlog() as i32
            }
            (None, _) => 0,
        },
    ))
}

pub(super) fn refuse_md5(_: &Target<'_>, value: &[u8]) -> Done {
    Err(match value.len() < MD5SIG_BYTES {
        true => Errno::INVAL,
        false => Errno::NOPROTOOPT,
    })
}
