//! What was set on a socket, as the application's end remembers it.
//!
//! The stack is told what it needs as [`SocketOption`]s: of a socket that is neither connected nor listening when it becomes so, of others at once. An accepted
//! connection begins with its listener's settings, as in Linux; nobody copies them until one is changed.

use std::rc::Rc;
use std::time::Duration;

use stack::context::{DontFragment, SocketOption};
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
    /// Packets may be fragmented; what routers say of the path counts from the next segment on, and nothing is sent again for it. Over IPv6, where
    /// nobody fragments on the way, as [`Want`](Self::Want).
    Dont,
    /// As routes say: the default. Where a router names less than the least MTU that is believed, packets may be fragmented.
    #[default]
    Want,
    /// Always.
    Do,
    /// For datagrams that probe the path: TCP heeds routers, but its packets may be fragmented, as in Linux.
    Probe,
    /// The interface's MTU and no router's: of TCP so over IPv6 alone, over IPv4 as [`Dont`](Self::Dont) (Linux).
    Interface,
    /// As [`Interface`](Self::Interface), for datagrams that may be fragmented here.
    Omit,
}

impl MtuDiscover {
    pub(crate) const fn option(self) -> SocketOption {
        SocketOption::MtuDiscover {
            dont_fragment: match self {
                Self::Want => DontFragment::OnBelievablePaths,
                Self::Do => DontFragment::Always,
                Self::Dont | Self::Probe | Self::Interface | Self::Omit => DontFragment::Never,
            },
            resends: matches!(self, Self::Want | Self::Do | Self::Probe),
            heeds_v6: !matches!(self, Self::Interface | Self::Omit),
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
    pub inq: bool,
    /// Urgent bytes stay in the stream whatever the context says.
    pub urgent_inline: bool,
    pub stamp_arrivals: bool,
    /// Errors of ICMP, of ICMPv6: what the next call fails with.
    pub receive_errors: [bool; 2],
    /// 0: off; 1: from the network's header on; 2: from the link's.
    pub save_syn: u8,
    /// 0: not set.
    pub window_clamp: u32,
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
    /// 0: the stack's, as in the next two.
    pub rto_max_ms: u32,
    pub rto_min_us: u32,
    pub delayed_ack_max_us: u32,
    pub thin_linear_timeouts: bool,
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
        let set = [
            self.of_sending(),
            self.of_buffers(),
            self.of_timers(config),
            self.of_headers(),
            self.of_opening(),
        ];
        set.into_iter().flatten().flatten().collect()
    }

    /// What is left of them when the connection, or the listener, that they were set on is dissolved (Linux's `tcp_disconnect`).
    pub fn survivors(self: Rc<Self>) -> Rc<Self> {
        if self.max_segment == 0 && self.window_clamp == 0 && self.quick_ack.is_none() {
            return self;
        }
        let mut settings = Rc::unwrap_or_clone(self);
        settings.max_segment = 0;
        settings.window_clamp = 0;
        settings.quick_ack = None;
        Rc::new(settings)
    }

    /// When and how fast segments leave.
    fn of_sending(&self) -> Vec<Option<SocketOption>> {
        vec![
            self.no_delay.then_some(SocketOption::NoDelay(true)),
            self.cork.then_some(SocketOption::Cork(true)),
            self.congestion.map(SocketOption::Congestion),
            self.max_pacing_rate.map(SocketOption::MaxPacingRate),
            self.quick_ack.map(SocketOption::QuickAck),
        ]
    }

    fn of_buffers(&self) -> Vec<Option<SocketOption>> {
        vec![
            self.stamp_arrivals
                .then_some(SocketOption::StampArrivals(true)),
            self.send_buffer.map(SocketOption::SendBuffer),
            self.recv_buffer.map(SocketOption::RecvBuffer),
            unless_zero(self.window_clamp, SocketOption::WindowClamp),
            unless_zero(self.notsent_lowat, SocketOption::NotSentLowat),
        ]
    }

    fn of_timers(&self, config: &tcp::Config) -> Vec<Option<SocketOption>> {
        let keepalive = self.keepalive(config);
        let user_timeout = |ms| SocketOption::UserTimeout(millis(ms));
        vec![
            self.keep_alive
                .then_some(SocketOption::KeepAlive(keepalive)),
            unless_zero(self.user_timeout_ms, user_timeout),
            unless_zero(self.linger2_s, |_| self.fin_wait_2(config)),
            unless_zero(self.rto_max_ms, SocketOption::RtoMax),
            unless_zero(self.rto_min_us, SocketOption::RtoMin),
            unless_zero(self.delayed_ack_max_us, SocketOption::DelayedAckMax),
            unless_zero(self.thin_linear_timeouts, SocketOption::ThinLinearTimeouts),
        ]
    }

    fn of_headers(&self) -> Vec<Option<SocketOption>> {
        let is_default = self.mtu_discover == MtuDiscover::default();
        let [v4, v6] = self.receive_errors;
        vec![
            (v4 || v6).then_some(SocketOption::ReceiveErrors { v4, v6 }),
            self.hop_limit.map(SocketOption::HopLimit),
            (!is_default).then_some(self.mtu_discover.option()),
            unless_zero(self.traffic_class, SocketOption::TrafficClass),
        ]
    }

    /// What matters for the handshake.
    fn of_opening(&self) -> Vec<Option<SocketOption>> {
        let defer_accept = |count| SocketOption::DeferAccept(defer_accept_s(count));
        vec![
            unless_zero(self.max_segment, SocketOption::MaxSegment),
            unless_zero(self.syn_retries, SocketOption::SynRetries),
            self.dual.then_some(SocketOption::V6Only(false)),
            self.fast_open_no_cookie
                .then_some(SocketOption::FastOpenNoCookie(true)),
            self.fast_open.map(SocketOption::FastOpen),
            self.fast_open_keys.map(SocketOption::FastOpenKey),
            unless_zero(self.defer_accept, defer_accept),
            unless_zero(self.save_syn, SocketOption::SaveSyn),
        ]
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

/// An option whose zero means that it was not set.
fn unless_zero<T: PartialEq + Default>(
    value: T,
    option: impl FnOnce(T) -> SocketOption,
) -> Option<SocketOption> {
    (value != T::default()).then(|| option(value))
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
