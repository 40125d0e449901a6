//! Setting options.

use millstream::{CongestionAlgorithm, FastOpenKeys, Linger, MtuDiscover};
use rustix::io::Errno;

use super::{Asked, kept, to_timeout};
use crate::layout::to_int;
use crate::number::*;
use crate::sockets::{File, errno};
use crate::timestamping::set_flags;

type Done = Result<(), Errno>;

/// `sizeof(struct tcp_md5sig)`
const MD5SIG_BYTES: usize = 216;
/// The highest priority that anybody may choose.
const SO_PRIORITY_MAX: i32 = 6;
/// `IPV6_MIN_MTU`
const IPV6_MTU_MIN: i32 = 1280;

/// Answers of the typed API in errno's.
fn done(outcome: std::io::Result<()>) -> Done {
    outcome.map_err(|error| errno(&error))
}

fn int(value: &[u8]) -> Result<i32, Errno> {
    to_int(value).ok_or(Errno::INVAL)
}

/// A number that may not be negative.
fn unsigned(value: &[u8]) -> Result<u32, Errno> {
    u32::try_from(int(value)?).map_err(|_| Errno::INVAL)
}

/// Zero or one, as options of later years ask for.
fn strict_bool(value: &[u8]) -> Result<bool, Errno> {
    match int(value)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::INVAL),
    }
}

pub(super) fn socket_level(asked: &Asked<'_>, name: i32, value: &[u8]) -> Done {
    let options = &asked.options;
    let number = int(value)?;
    match name {
        SO_REUSEADDR => options.set_reuse_addr(number != 0),
        SO_REUSEPORT => options.set_reuse_port(number != 0),
        SO_KEEPALIVE => return done(options.set_keepalive(number != 0)),
        SO_LINGER => options.set_linger(to_linger(value)?),
        SO_RCVTIMEO | SO_RCVTIMEO_NEW => options.set_recv_timeout(to_timeout(value)?),
        SO_SNDTIMEO | SO_SNDTIMEO_NEW => options.set_send_timeout(to_timeout(value)?),
        SO_RCVLOWAT => {
            // More than the buffer holds would never come.
            let bytes_max = asked.context.tcp_config().recv_buffer.bytes_max / 2;
            options.set_recv_lowat(u32::try_from(number).unwrap_or(bytes_max).min(bytes_max));
        }
        // A negative number is as much as anybody may have; to who may have more, the least.
        SO_SNDBUF => return done(options.set_send_buffer(number as u32)),
        SO_RCVBUF => return done(options.set_recv_buffer(number as u32)),
        SO_SNDBUFFORCE | SO_RCVBUFFORCE if !kept::is_admin() => return Err(Errno::PERM),
        SO_SNDBUFFORCE => return done(options.force_send_buffer(number.max(0) as u32)),
        SO_RCVBUFFORCE => return done(options.force_recv_buffer(number.max(0) as u32)),
        SO_MAX_PACING_RATE => return done(options.set_max_pacing_rate(to_rate(value))),
        // Others take a privilege.
        SO_PRIORITY if !(0..=SO_PRIORITY_MAX).contains(&number) && !kept::may_mark() => {
            return Err(Errno::PERM);
        }
        SO_PRIORITY => options.set_priority(number),
        SO_OOBINLINE => options.set_urgent_inline(number != 0),
        SO_BINDTODEVICE => return bind_to_device(value),
        SO_TIMESTAMP | SO_TIMESTAMPNS | SO_TIMESTAMP_NEW | SO_TIMESTAMPNS_NEW => {
            asked.entry.timestamping.set_arrivals(name, number != 0);
            return tell_arrivals(asked);
        }
        SO_TIMESTAMPING | SO_TIMESTAMPING_NEW => {
            set_flags(asked.entry, name, value)?;
            return tell_arrivals(asked);
        }
        SO_SELECT_ERR_QUEUE => asked.entry.error_queue_is_urgent.set(number != 0),
        SO_ZEROCOPY => asked.entry.zero_copy.on.set(strict_bool(value)?),
        _ => return kept::set(asked.entry, SOL_SOCKET, name, number),
    }
    Ok(())
}

/// Devices have no names here: only the empty one, which is any, can be bound to.
fn bind_to_device(value: &[u8]) -> Done {
    match value.first() {
        None | Some(0) => Ok(()),
        Some(_) => Err(Errno::NODEV),
    }
}

/// Tells the stack whether it is to remember when bytes arrive.
fn tell_arrivals(asked: &Asked<'_>) -> Done {
    let on = asked.entry.timestamping.wants_arrivals();
    done(asked.options.set_arrival_stamps(on))
}

/// Four bytes or eight; all ones is no limit.
fn to_rate(value: &[u8]) -> Option<u64> {
    if let Some(bytes) = value.first_chunk() {
        return Some(u64::from_ne_bytes(*bytes)).filter(|rate| *rate != u64::MAX);
    }
    let rate = to_int(value)? as u32;
    (rate != u32::MAX).then_some(rate.into())
}

fn to_linger(value: &[u8]) -> Result<Linger, Errno> {
    let on = int(value)?;
    let seconds = int(value.get(4..).ok_or(Errno::INVAL)?)?;
    Ok(match on {
        0 => Linger::Background,
        // A negative time is as long as time goes.
        _ => Linger::Seconds(u32::try_from(seconds).unwrap_or(i32::MAX as u32)),
    })
}

pub(super) fn tcp_level(asked: &Asked<'_>, name: i32, value: &[u8]) -> Done {
    let options = &asked.options;
    match name {
        TCP_CONGESTION => return done(options.set_congestion(to_congestion(value)?)),
        TCP_FASTOPEN_KEY => return done(options.set_fast_open_keys(to_keys(value)?)),
        TCP_MD5SIG | TCP_MD5SIG_EXT if value.len() < MD5SIG_BYTES => return Err(Errno::INVAL),
        _ => {}
    }
    let number = int(value)?;
    done(match name {
        TCP_NODELAY => options.set_nodelay(number != 0),
        TCP_NOTSENT_LOWAT => options.set_notsent_lowat(number as u32),
        TCP_QUICKACK => options.set_quick_ack(number != 0),
        TCP_CORK => options.set_cork(number != 0),
        TCP_MAXSEG => {
            let bytes = u16::try_from(number).map_err(|_| Errno::INVAL)?;
            match asked.entry.file {
                // Too late: Linux takes it and does nothing.
                File::Stream(_) => options.check_max_segment(bytes),
                _ => options.set_max_segment(bytes),
            }
        }
        TCP_KEEPIDLE => options.set_keepalive_idle_s(unsigned(value)?),
        TCP_KEEPINTVL => options.set_keepalive_interval_s(unsigned(value)?),
        TCP_KEEPCNT => options.set_keepalive_probes(unsigned(value)?),
        TCP_SYNCNT => options.set_syn_retries(unsigned(value)?),
        TCP_USER_TIMEOUT => options.set_user_timeout_ms(unsigned(value)?),
        TCP_LINGER2 => options.set_fin_wait_2_s(number),
        TCP_DEFER_ACCEPT => options.set_defer_accept_s(number),
        TCP_FASTOPEN => options.set_fast_open(unsigned(value)?),
        TCP_FASTOPEN_CONNECT => options.set_fast_open_connect(strict_bool(value)?),
        TCP_FASTOPEN_NO_COOKIE => options.set_fast_open_no_cookie(strict_bool(value)?),
        TCP_INQ => {
            options.set_inq(strict_bool(value)?);
            Ok(())
        }
        TCP_SAVE_SYN => {
            let how = u8::try_from(number).map_err(|_| Errno::INVAL)?;
            options.set_save_syn(how)
        }
        TCP_SAVED_SYN => return Err(Errno::NOPROTOOPT),
        TCP_WINDOW_CLAMP => options.set_window_clamp(number as u32),
        TCP_RTO_MAX_MS => options.set_rto_max_ms(unsigned(value)?),
        TCP_RTO_MIN_US => options.set_rto_min_us(unsigned(value)?),
        TCP_DELACK_MAX_US => options.set_delayed_ack_max_us(unsigned(value)?),
        TCP_THIN_LINEAR_TIMEOUTS => options.set_thin_linear_timeouts(strict_bool(value)?),
        _ => return kept::set(asked.entry, SOL_TCP, name, number),
    })
}

fn to_congestion(value: &[u8]) -> Result<CongestionAlgorithm, Errno> {
    if value.is_empty() {
        return Err(Errno::INVAL);
    }
    let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
    CongestionAlgorithm::from_name(name).ok_or(Errno::NOENT)
}

fn to_keys(value: &[u8]) -> Result<FastOpenKeys, Errno> {
    let (primary, rest) = value.split_first_chunk().ok_or(Errno::INVAL)?;
    let backup = match rest {
        [] => None,
        rest => Some(*<&[u8; 16]>::try_from(rest).map_err(|_| Errno::INVAL)?),
    };
    Ok(FastOpenKeys {
        primary: *primary,
        backup,
    })
}

/// A value of one byte will do for IPv4's options, and none at all is zero.
fn byte_or_int(value: &[u8]) -> i32 {
    to_int(value).unwrap_or_else(|| value.first().copied().unwrap_or(0).into())
}

pub(super) fn ip_level(asked: &Asked<'_>, name: i32, value: &[u8]) -> Done {
    let options = &asked.options;
    let number = byte_or_int(value);
    match name {
        IP_TOS => done(options.set_traffic_class(number as u8)),
        IP_TTL if number == 0 => Err(Errno::INVAL),
        IP_TTL => done(options.set_hop_limit(to_hop_limit(number)?)),
        IP_MTU_DISCOVER => done(options.set_mtu_discover(to_mtu_discover(number)?)),
        IP_FREEBIND if value.is_empty() => Err(Errno::INVAL),
        IP_FREEBIND => {
            options.set_free_bind(number != 0);
            Ok(())
        }
        IP_RECVERR => {
            done(options.set_receive_errors_v4(number != 0))?;
            asked.entry.forget_errors(number != 0);
            Ok(())
        }
        IP_IPSEC_POLICY => Err(Errno::OPNOTSUPP),
        IP_XFRM_POLICY => Err(match asked.entry.is_v6 {
            true => Errno::OPNOTSUPP,
            false => Errno::INVAL,
        }),
        _ => kept::set(asked.entry, SOL_IP, name, number),
    }
}

/// -1: the default.
fn to_hop_limit(number: i32) -> Result<Option<u8>, Errno> {
    match number {
        -1 => Ok(None),
        _ => u8::try_from(number).map(Some).map_err(|_| Errno::INVAL),
    }
}

fn to_mtu_discover(number: i32) -> Result<MtuDiscover, Errno> {
    Ok(match number {
        IP_PMTUDISC_DONT => MtuDiscover::Dont,
        IP_PMTUDISC_WANT => MtuDiscover::Want,
        IP_PMTUDISC_DO => MtuDiscover::Do,
        IP_PMTUDISC_PROBE => MtuDiscover::Probe,
        IP_PMTUDISC_INTERFACE => MtuDiscover::Interface,
        IP_PMTUDISC_OMIT => MtuDiscover::Omit,
        _ => return Err(Errno::INVAL),
    })
}

pub(super) fn ipv6_level(asked: &Asked<'_>, name: i32, value: &[u8]) -> Done {
    let options = &asked.options;
    let number = int(value)?;
    match name {
        IPV6_TCLASS if (-1..256).contains(&number) => {
            done(options.set_traffic_class(number.max(0) as u8))
        }
        IPV6_TCLASS => Err(Errno::INVAL),
        IPV6_UNICAST_HOPS => done(options.set_hop_limit(to_hop_limit(number)?)),
        IPV6_MTU_DISCOVER => done(options.set_mtu_discover(to_mtu_discover(number)?)),
        IPV6_FREEBIND => {
            options.set_free_bind(number != 0);
            Ok(())
        }
        IPV6_RECVERR => {
            done(options.set_receive_errors_v6(number != 0))?;
            asked.entry.forget_errors(number != 0);
            Ok(())
        }
        // Not any more once there is an address.
        IPV6_V6ONLY => match &asked.entry.file {
            File::Idle(socket) if socket.local_addr().is_none() => {
                options.set_v6_only(number != 0);
                Ok(())
            }
            _ => Err(Errno::INVAL),
        },
        // For datagrams: TCP has its own.
        IPV6_MTU if number == 0 || number >= IPV6_MTU_MIN => Ok(()),
        IPV6_MTU | IPV6_ADDRFORM => Err(Errno::INVAL),
        IPV6_IPSEC_POLICY => Err(Errno::OPNOTSUPP),
        MCAST_JOIN_GROUP..=MCAST_MSFILTER => Err(Errno::INVAL),
        _ => kept::set(asked.entry, SOL_IPV6, name, number),
    }
}
