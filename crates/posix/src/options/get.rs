//! The values of options.

use millstream::{Buffers, CongestionAlgorithm, DctcpInfo, Linger, TcpState};
use rustix::io::Errno;

use super::{Asked, from_timeout, kept};
use crate::layout::{int, linger};
use crate::number::*;
use crate::open::{as_family, info};
use crate::sockets::{File, errno};
use crate::tcp_info::{meminfo, of_listener, tcp_info, without_connection};

type Value = Result<Vec<u8>, Errno>;

/// Longest name of a congestion control algorithm (`TCP_CA_NAME_MAX`).
const CONGESTION_NAME_BYTES: usize = 16;

impl Asked<'_> {
    fn info(&self) -> Result<Option<Box<millstream::SocketInfo>>, Errno> {
        match &self.entry.file {
            File::Stream(stream) => info(stream),
            _ => Ok(None),
        }
    }

    /// `SO_SNDBUF` and `SO_RCVBUF` as Linux reckons: twice what was asked for.
    fn buffers(&self) -> Result<(u32, u32), Errno> {
        if let Some(info) = self.info()? {
            return Ok((info.send_buffer_max, info.recv_buffer_max));
        }
        let config = self.context.tcp_config();
        let mut buffers = Buffers::of(&config);
        if let Some(asked) = self.options.send_buffer() {
            buffers = buffers.with_send(asked);
        }
        if let Some(asked) = self.options.recv_buffer() {
            buffers = buffers.with_recv(asked);
        }
        Ok((buffers.send_bytes, buffers.recv_bytes))
    }

    fn take_error(&self) -> i32 {
        match &self.entry.file {
            File::Stream(stream) => {
                let failure = stream.tcp.take_error();
                failure
                    .or_else(|| stream.tcp.take_soft_error().ok().flatten())
                    .map_or(0, |error| errno(&error).raw_os_error())
            }
            _ => {
                let failure = self.entry.error.take();
                failure.map_or(0, Errno::raw_os_error)
            }
        }
    }
}

pub(super) fn socket_level(asked: &Asked<'_>, name: i32, len: usize) -> Value {
    let options = &asked.options;
    Ok(match name {
        SO_REUSEADDR => int(options.reuse_addr().into()),
        SO_REUSEPORT => int(options.reuse_port().into()),
        SO_TYPE => int(SOCK_STREAM),
        SO_DOMAIN => int(if asked.entry.is_v6 { AF_INET6 } else { AF_INET }),
        SO_PROTOCOL => int(IPPROTO_TCP),
        SO_ACCEPTCONN => int(matches!(asked.entry.file, File::Listener(_)).into()),
        SO_ERROR => int(asked.take_error()),
        SO_SNDBUF => int(asked.buffers()?.0 as i32),
        SO_RCVBUF => int(asked.buffers()?.1 as i32),
        SO_KEEPALIVE => int(options.keepalive().into()),
        SO_OOBINLINE => int(options.urgent_inline().into()),
        SO_PRIORITY => int(options.priority()),
        SO_LINGER => match options.linger() {
            Linger::Background => linger(false, 0),
            Linger::Seconds(seconds) => linger(true, seconds as i32),
        },
        SO_RCVLOWAT => int(options.recv_lowat() as i32),
        SO_ZEROCOPY => int(asked.entry.zero_copy.on.get().into()),
        SO_RCVTIMEO | SO_RCVTIMEO_NEW => from_timeout(options.recv_timeout()),
        SO_SNDTIMEO | SO_SNDTIMEO_NEW => from_timeout(options.send_timeout()),
        // Nobody's: no process, user nor group.
        SO_PEERCRED => [int(0), int(-1), int(-1)].concat(),
        SO_BINDTODEVICE => Vec::new(),
        SO_PEERNAME => peer_name(asked, len)?,
        SO_COOKIE => asked.entry.cookie.to_ne_bytes().to_vec(),
        SO_TIMESTAMP | SO_TIMESTAMPNS | SO_TIMESTAMP_NEW | SO_TIMESTAMPNS_NEW => {
            int(asked.entry.timestamping.is_set_as(name).into())
        }
        // A `struct so_timestamping`: flags, and no clock of a device.
        SO_TIMESTAMPING | SO_TIMESTAMPING_NEW => {
            let flags = asked.entry.timestamping.flags();
            [int(flags as i32), int(0)].concat()
        }
        SO_SELECT_ERR_QUEUE => int(asked.entry.error_queue_is_urgent.get().into()),
        SO_MAX_PACING_RATE => rate_bytes(options.max_pacing_rate(), len),
        SO_MEMINFO => {
            let (send, recv) = asked.buffers()?;
            let info = asked.info()?;
            let words = meminfo(info.as_deref(), recv, send);
            words.iter().flat_map(|word| word.to_ne_bytes()).collect()
        }
        _ => return kept::get(asked.entry, SOL_SOCKET, name),
    })
}

/// `SO_MAX_PACING_RATE`: eight bytes for who has room, else four.
fn rate_bytes(rate: Option<u64>, len: usize) -> Vec<u8> {
    let rate = rate.unwrap_or(u64::MAX);
    if len >= size_of::<u64>() {
        return rate.to_ne_bytes().to_vec();
    }
    let rate = u32::try_from(rate).unwrap_or(u32::MAX);
    rate.to_ne_bytes().to_vec()
}

pub(super) fn tcp_level(asked: &Asked<'_>, name: i32, len: usize) -> Value {
    let options = &asked.options;
    Ok(match name {
        TCP_INFO => info_bytes(asked)?,
        TCP_CC_INFO => cc_info(asked)?,
        TCP_CONGESTION => {
            let mut bytes = options.congestion().name().as_bytes().to_vec();
            bytes.resize(CONGESTION_NAME_BYTES, 0);
            bytes
        }
        TCP_FASTOPEN_KEY => key_bytes(asked, len),
        TCP_SAVED_SYN => options.saved_syn(len).map_err(|error| errno(&error))?,
        _ => match tcp_int(asked, name)? {
            Some(number) => int(number),
            None => kept::get(asked.entry, SOL_TCP, name)?,
        },
    })
}

/// `union tcp_cc_info`: of BBR its model, of DCTCP its estimate, both empty before the connection stands; the others tell nothing more than `tcp_info`.
fn cc_info(asked: &Asked<'_>) -> Value {
    let tcp = asked.info()?.map(|info| info.tcp);
    let mut bytes = Vec::new();
    match asked.options.congestion() {
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
        CongestionAlgorithm::Cubic | CongestionAlgorithm::NewReno => {}
    }
    Ok(bytes)
}

fn tcp_int(asked: &Asked<'_>, name: i32) -> Result<Option<i32>, Errno> {
    let options = &asked.options;
    Ok(Some(match name {
        TCP_NODELAY => options.nodelay().into(),
        TCP_CORK => options.cork().into(),
        TCP_NOTSENT_LOWAT => options.notsent_lowat() as i32,
        TCP_QUICKACK => quick_ack(asked)?.into(),
        TCP_MAXSEG => max_segment(asked)?,
        TCP_KEEPIDLE => options.keepalive_idle_s() as i32,
        TCP_KEEPINTVL => options.keepalive_interval_s() as i32,
        TCP_KEEPCNT => options.keepalive_probes().into(),
        TCP_SYNCNT => options.syn_retries().into(),
        TCP_LINGER2 => options.fin_wait_2_s(),
        TCP_DEFER_ACCEPT => options.defer_accept_s() as i32,
        TCP_USER_TIMEOUT => options.user_timeout_ms() as i32,
        TCP_RTO_MAX_MS => options.rto_max_ms() as i32,
        TCP_RTO_MIN_US => options.rto_min_us() as i32,
        TCP_DELACK_MAX_US => options.delayed_ack_max_us() as i32,
        TCP_THIN_LINEAR_TIMEOUTS => options.thin_linear_timeouts().into(),
        TCP_FASTOPEN => fast_open(asked),
        TCP_FASTOPEN_CONNECT => options.fast_open_connect().into(),
        TCP_FASTOPEN_NO_COOKIE => options.fast_open_no_cookie().into(),
        TCP_INQ => options.inq().into(),
        TCP_SAVE_SYN => options.save_syn().into(),
        TCP_WINDOW_CLAMP => match asked.info()? {
            Some(info) => info.tcp.window_clamp as i32,
            None => options.window_clamp() as i32,
        },
        _ => return Ok(None),
    }))
}

/// `TCP_FASTOPEN`: what was asked for, or what the settings give every listener.
fn fast_open(asked: &Asked<'_>) -> i32 {
    let config = asked.context.tcp_config();
    let settings = &config.fast_open;
    match (asked.options.fast_open(), &asked.entry.file) {
        (Some(pending), _) => pending as i32,
        (None, File::Listener(listener)) if settings.server && settings.every_listener => {
            listener.backlog() as i32
        }
        (None, _) => 0,
    }
}

/// `SO_PEERNAME`: an address that is longer than the room is told in part, one that is shorter not at all.
fn peer_name(asked: &Asked<'_>, len: usize) -> Value {
    let File::Stream(stream) = &asked.entry.file else {
        return Err(Errno::NOTCONN);
    };
    if !stream.tcp.is_open() {
        return Err(Errno::NOTCONN);
    }
    let address = crate::layout::sockaddr(as_family(asked.entry.is_v6, stream.tcp.peer_addr()));
    match address.len() < len {
        true => Err(Errno::INVAL),
        false => Ok(address),
    }
}

/// Whether ACKs wait for nothing; of a socket without a connection, what was asked for.
fn quick_ack(asked: &Asked<'_>) -> Result<bool, Errno> {
    Ok(match asked.info()? {
        Some(info) => info.tcp.quick_ack,
        None => asked.options.quick_ack(),
    })
}

/// The segment size in use; of a socket without a connection what was asked for, or RFC 9293's default.
fn max_segment(asked: &Asked<'_>) -> Result<i32, Errno> {
    let wanted = i32::from(asked.options.max_segment());
    if let Some(info) = asked.info()? {
        let in_use = info.tcp.snd_mss as i32;
        return Ok(match info.tcp.state {
            _ if wanted == 0 => in_use,
            // Before the peer has said what it takes, what was asked for counts, less the options.
            TcpState::SynSent => {
                wanted - (i32::from(asked.context.tcp_config().mss_default_v4) - in_use)
            }
            TcpState::Closed => wanted,
            _ => in_use,
        });
    }
    Ok(match wanted {
        0 => asked.context.tcp_config().mss_default_v4.into(),
        bytes => bytes,
    })
}

fn info_bytes(asked: &Asked<'_>) -> Value {
    let config = asked.context.tcp_config();
    if let File::Listener(listener) = &asked.entry.file {
        return Ok(of_listener(listener.queued(), &config).to_vec());
    }
    Ok(match asked.info()? {
        Some(info) => tcp_info(&info, asked.context.now_ns()).to_vec(),
        None => without_connection(&config).to_vec(),
    })
}

/// One key or two, as many as there is room for.
fn key_bytes(asked: &Asked<'_>, len: usize) -> Vec<u8> {
    let Some(keys) = asked.options.fast_open_keys() else {
        return Vec::new();
    };
    let mut bytes = keys.primary.to_vec();
    if let Some(backup) = keys.backup.filter(|_| len >= 32) {
        bytes.extend_from_slice(&backup);
    }
    bytes
}

pub(super) fn ip_level(asked: &Asked<'_>, name: i32) -> Value {
    Ok(int(match name {
        IP_TOS => asked.options.traffic_class().into(),
        IP_TTL => asked.options.hop_limit().into(),
        IP_MTU_DISCOVER => asked.options.mtu_discover() as i32,
        IP_MTU => path_mtu(asked)?,
        IP_FREEBIND => asked.options.free_bind().into(),
        IP_RECVERR => asked.options.receive_errors()[0].into(),
        // Linux's sockets of IPv6 begin without it.
        IP_MULTICAST_ALL if asked.entry.is_v6 && !asked.entry.has_kept(SOL_IP, name) => 0,
        _ => return kept::get(asked.entry, SOL_IP, name),
    }))
}

pub(super) fn ipv6_level(asked: &Asked<'_>, name: i32) -> Value {
    Ok(int(match name {
        IPV6_TCLASS => asked.options.traffic_class().into(),
        IPV6_UNICAST_HOPS => asked.options.hop_limit().into(),
        IPV6_MTU_DISCOVER => asked.options.mtu_discover() as i32,
        IPV6_MTU => path_mtu(asked)?,
        IPV6_FREEBIND => asked.options.free_bind().into(),
        IPV6_RECVERR => asked.options.receive_errors()[1].into(),
        IPV6_V6ONLY => asked.options.v6_only().into(),
        IPV6_ADDRFORM => match asked.entry.file {
            File::Stream(_) => AF_INET6,
            _ => return Err(Errno::NOTCONN),
        },
        _ => return kept::get(asked.entry, SOL_IPV6, name),
    }))
}

fn path_mtu(asked: &Asked<'_>) -> Result<i32, Errno> {
    let info = asked.info()?.ok_or(Errno::NOTCONN)?;
    Ok(info.path_mtu as i32)
}
