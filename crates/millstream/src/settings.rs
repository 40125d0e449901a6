//! What was set on a socket, as the application's end remembers it.
//!
//! The stack is told what it needs as [`SocketOption`]s: of a socket that is neither connected nor listening when it becomes so, of others at once. An accepted
//! connection begins with its listener's settings, as in Linux; nobody copies them until one is changed.

use std::time::Duration;

use stack::context::SocketOption;
use tcp::connection::Keepalive;
use tcp::{CongestionAlgorithm, FastOpenKeys, SECOND_NS};

/// What a socket does when it is closed (`SO_LINGER`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Linger {
    /// What was written still leaves; nobody waits for it.
    #[default]
    Background,
    /// A blocking close waits up to so many seconds for it; zero: the connection is reset and what was not sent forgotten.
    Seconds(u32),
}

/// What path MTU discovery does (`IP_MTU_DISCOVER`), with Linux's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtuDiscover {
    /// Never: packets may be fragmented.
    Dont,
    /// As routes say: the default.
    #[default]
    Want,
    /// Always.
    Do,
    /// Don't-fragment is set, what routers say of the path is not heeded.
    Probe,
}

impl MtuDiscover {
    pub(crate) const fn option(self) -> SocketOption {
        SocketOption::MtuDiscover {
            dont_fragment: !matches!(self, Self::Dont),
            heed: matches!(self, Self::Want | Self::Do),
        }
    }
}

/// See the module's documentation. The fields bear the names of the options.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub reuse_addr: bool,
    pub reuse_port: bool,
    pub free_bind: bool,
    /// IPv4 too, for an unspecified IPv6 address.
    pub dual: bool,
    pub linger: Linger,
    pub recv_timeout: Option<Duration>,
    pub send_timeout: Option<Duration>,
    /// 0: one byte.
    pub recv_lowat: u32,
    pub priority: i32,
    pub mark: u32,
    pub inq: bool,
    pub send_buffer: Option<u32>,
    pub recv_buffer: Option<u32>,
    pub no_delay: bool,
    pub cork: bool,
    pub keep_alive: bool,
    /// 0: the stack's, as in the next three.
    pub keep_idle_s: u32,
    pub keep_interval_s: u32,
    pub keep_probes: u8,
    pub syn_retries: u8,
    pub user_timeout_ms: u32,
    /// 0: not set.
    pub max_segment: u16,
    /// Seconds; 0: the stack's; negative: no FIN_WAIT_2.
    pub linger2_s: i32,
    /// Retransmissions of the SYN-ACK, as which Linux keeps it.
    pub defer_accept: u8,
    pub fast_open: Option<u32>,
    pub fast_open_connect: bool,
    pub fast_open_no_cookie: bool,
    pub fast_open_keys: Option<FastOpenKeys>,
    pub congestion: Option<CongestionAlgorithm>,
    /// 0: the stack's.
    pub notsent_lowat: u32,
    pub quick_ack: Option<bool>,
    /// Bytes per second; `None`: no limit.
    pub max_pacing_rate: Option<u64>,
    pub traffic_class: u8,
    pub hop_limit: Option<u8>,
    pub mtu_discover: MtuDiscover,
}

impl Settings {
    /// All that the stack has to know of a socket that is about to connect or to listen.
    pub fn for_stack(&self, config: &tcp::Config) -> Vec<SocketOption> {
        let mut options = Vec::new();
        let mut put = |when: bool, option: SocketOption| {
            if when {
                options.push(option);
            }
        };
        put(self.no_delay, SocketOption::NoDelay(true));
        put(self.cork, SocketOption::Cork(true));
        put(
            self.keep_alive,
            SocketOption::KeepAlive(self.keepalive(config)),
        );
        put(
            self.user_timeout_ms != 0,
            SocketOption::UserTimeout(millis(self.user_timeout_ms)),
        );
        put(
            self.max_segment != 0,
            SocketOption::MaxSegment(self.max_segment),
        );
        put(
            self.syn_retries != 0,
            SocketOption::SynRetries(self.syn_retries),
        );
        put(self.linger2_s != 0, self.fin_wait_2(config));
        put(self.dual, SocketOption::V6Only(false));
        put(
            self.fast_open_no_cookie,
            SocketOption::FastOpenNoCookie(true),
        );
        if let Some(bytes) = self.send_buffer {
            put(true, SocketOption::SendBuffer(bytes));
        }
        if let Some(bytes) = self.recv_buffer {
            put(true, SocketOption::RecvBuffer(bytes));
        }
        if let Some(choice) = self.congestion {
            put(true, SocketOption::Congestion(choice));
        }
        put(
            self.notsent_lowat != 0,
            SocketOption::NotSentLowat(self.notsent_lowat),
        );
        if let Some(rate) = self.max_pacing_rate {
            put(true, SocketOption::MaxPacingRate(rate));
        }
        if let Some(on) = self.quick_ack {
            put(true, SocketOption::QuickAck(on));
        }
        if let Some(limit) = self.hop_limit {
            put(true, SocketOption::HopLimit(limit));
        }
        put(
            self.mtu_discover != MtuDiscover::Want,
            self.mtu_discover.option(),
        );
        put(
            self.traffic_class != 0,
            SocketOption::TrafficClass(self.traffic_class),
        );
        if let Some(backlog) = self.fast_open {
            put(true, SocketOption::FastOpen(backlog));
        }
        if let Some(keys) = &self.fast_open_keys {
            put(true, SocketOption::FastOpenKey(*keys));
        }
        put(
            self.defer_accept != 0,
            SocketOption::DeferAccept(defer_accept_s(self.defer_accept)),
        );
        options
    }

    /// `SO_KEEPALIVE` with its three times.
    pub fn keepalive(&self, config: &tcp::Config) -> Option<Keepalive> {
        let or = |own_s: u32, default_ns: u64| match own_s {
            0 => default_ns,
            seconds => u64::from(seconds) * SECOND_NS,
        };
        self.keep_alive.then(|| Keepalive {
            idle_ns: or(self.keep_idle_s, config.keepalive_idle_ns),
            interval_ns: or(self.keep_interval_s, config.keepalive_interval_ns),
            probes_max: match self.keep_probes {
                0 => config.keepalive_probes_max,
                probes => probes,
            },
        })
    }

    /// `TCP_LINGER2`
    pub fn fin_wait_2(&self, config: &tcp::Config) -> SocketOption {
        SocketOption::FinWait2(match self.linger2_s {
            0 => Some(config.fin_wait_2_ns),
            seconds => u64::try_from(seconds).ok().map(|s| s * SECOND_NS),
        })
    }
}

/// Milliseconds in nanoseconds.
pub(crate) fn millis(ms: u32) -> u64 {
    u64::from(ms) * tcp::MILLISECOND_NS
}

/// Seconds of the SYN-ACK's first wait, and of its longest, by which Linux reckons `TCP_DEFER_ACCEPT`.
const SYN_ACK_WAIT_S: (u32, u32) = (1, 120);

/// How long so many retransmissions of a SYN-ACK take, in seconds.
pub(crate) fn defer_accept_s(retransmissions: u8) -> u32 {
    let (mut wait_s, mut sum_s) = (SYN_ACK_WAIT_S.0, 0);
    for _ in 0..retransmissions {
        sum_s += wait_s;
        wait_s = (wait_s * 2).min(SYN_ACK_WAIT_S.1);
    }
    sum_s
}

/// The fewest retransmissions that take at least so many seconds.
pub(crate) fn defer_accept_retransmissions(seconds: i32) -> u8 {
    let Ok(seconds) = u32::try_from(seconds) else {
        return 0;
    };
    (0..u8::MAX)
        .find(|&count| defer_accept_s(count) >= seconds)
        .unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defer_accept_is_rounded_up_to_whole_retransmissions() {
        for (asked_s, kept_s) in [(0, 0), (-1, 0), (1, 1), (2, 3), (5, 7), (7, 7), (8, 15)] {
            let kept = defer_accept_s(defer_accept_retransmissions(asked_s));
            assert_eq!(kept, kept_s, "{asked_s} s");
        }
        assert_eq!(defer_accept_retransmissions(i32::MAX), u8::MAX);
    }
}
