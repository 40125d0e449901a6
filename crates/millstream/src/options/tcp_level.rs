//! `SOL_TCP`.

use tcp::Buffers;

use super::*;
use tcp::CongestionAlgorithm;

impl SocketOptions<'_> {
    /// `TCP_NODELAY`: small segments leave at once (RFC 9293 MUST-17).
    ///
    /// # Errors
    /// The kernel's, should this have to wait; so for all that follow.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.change(|settings| settings.no_delay = on);
        self.tell(SocketOption::NoDelay(on))
    }

    /// `TCP_NODELAY`
    #[must_use]
    pub fn nodelay(&self) -> bool {
        self.look(|settings| settings.no_delay)
    }

    /// `TCP_CORK`: partial segments are held, for at most 200 ms.
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn set_cork(&self, on: bool) -> io::Result<()> {
        self.change(|settings| settings.cork = on);
        self.tell(SocketOption::Cork(on))
    }

    /// `TCP_CORK`
    #[must_use]
    pub fn cork(&self) -> bool {
        self.look(|settings| settings.cork)
    }

    /// `TCP_MAXSEG`: segments no larger than so many bytes, announced too if set before the SYN. 0: no limit of ours.
    ///
    /// # Errors
    /// `InvalidInput` outside 88 to 32767.
    pub fn set_max_segment(&self, bytes: u16) -> io::Result<()> {
        self.check_max_segment(bytes)?;
        self.change(|settings| settings.max_segment = bytes);
        self.tell(SocketOption::MaxSegment(bytes))
    }

    /// Whether [`set_max_segment`](Self::set_max_segment) would take it.
    ///
    /// # Errors
    /// As there.
    pub fn check_max_segment(&self, bytes: u16) -> io::Result<()> {
        if bytes != 0 && !(MAX_SEGMENT_MIN..=MAX_SEGMENT_MAX).contains(&bytes) {
            return Err(invalid());
        }
        Ok(())
    }

    /// `TCP_WINDOW_CLAMP`: no more than so many bytes are advertised, 1,152 at least; 0, before it connects: no bound. As in Linux the bound follows the
    /// receive buffer once that grows.
    ///
    /// # Errors
    /// `InvalidInput` for 0 on a socket that listens or is connected.
    pub fn set_window_clamp(&self, bytes: u32) -> io::Result<()> {
        if bytes == 0 && self.stage() != Stage::Idle {
            return Err(invalid());
        }
        let kept = Buffers::of(&self.inner.tcp_config()).with_window_clamp(bytes);
        self.change(|settings| settings.window_clamp = kept.window_clamp);
        self.tell(SocketOption::WindowClamp(bytes))
    }

    /// `TCP_WINDOW_CLAMP` as it was set; 0: not.
    #[must_use]
    pub fn window_clamp(&self) -> u32 {
        self.look(|settings| settings.window_clamp)
    }

    /// What `TCP_MAXSEG` was set to; 0: nothing.
    #[must_use]
    pub fn max_segment(&self) -> u16 {
        self.look(|settings| settings.max_segment)
    }

    /// `TCP_QUICKACK`: acknowledge at once from now on, or wait for answers to ride on. Neither lasts: the connection goes on adapting.
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn set_quick_ack(&self, on: bool) -> io::Result<()> {
        self.change(|settings| settings.quick_ack = Some(on));
        self.tell(SocketOption::QuickAck(on))
    }

    /// As if [`set_quick_ack`](Self::set_quick_ack) had not been called.
    pub(crate) fn forget_quick_ack(&self) {
        if self.look(|settings| settings.quick_ack.is_some()) {
            self.change(|settings| settings.quick_ack = None);
        }
    }

    /// `TCP_QUICKACK` as it was set; what a connection does now is in [`info`](Self::info).
    #[must_use]
    pub fn quick_ack(&self) -> bool {
        self.look(|settings| settings.quick_ack.unwrap_or(true))
    }

    /// `TCP_NOTSENT_LOWAT`: a socket is writable only while fewer bytes than this wait to be sent for the first time; 0: as the stack's settings have it.
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn set_notsent_lowat(&self, bytes: u32) -> io::Result<()> {
        self.change(|settings| settings.notsent_lowat = bytes);
        self.tell(SocketOption::NotSentLowat(bytes))
    }

    /// `TCP_NOTSENT_LOWAT`
    #[must_use]
    pub fn notsent_lowat(&self) -> u32 {
        self.look(|settings| settings.notsent_lowat)
    }

    /// `TCP_CONGESTION`: who sizes the congestion window.
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn set_congestion(&self, choice: CongestionAlgorithm) -> io::Result<()> {
        self.change(|settings| settings.congestion = Some(choice));
        self.tell(SocketOption::Congestion(choice))
    }

    /// `TCP_CONGESTION`
    #[must_use]
    pub fn congestion(&self) -> CongestionAlgorithm {
        let own = self.look(|settings| settings.congestion);
        own.unwrap_or(self.inner.tcp_config().congestion)
    }

    /// `TCP_USER_TIMEOUT` in ms (RFC 5482): how long sent data may stay unacknowledged; 0: the default rule of retries.
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn set_user_timeout_ms(&self, ms: u32) -> io::Result<()> {
        self.change(|settings| settings.user_timeout_ms = ms);
        self.tell(SocketOption::UserTimeout(millis(ms)))
    }

    /// `TCP_USER_TIMEOUT`
    #[must_use]
    pub fn user_timeout_ms(&self) -> u32 {
        self.look(|settings| settings.user_timeout_ms)
    }

    /// `TCP_KEEPIDLE`: idle seconds before the first probe.
    ///
    /// # Errors
    /// `InvalidInput` outside 1 to 32767.
    pub fn set_keepalive_idle_s(&self, seconds: u32) -> io::Result<()> {
        within(seconds, KEEPALIVE_S_MAX)?;
        self.change(|settings| settings.keep_idle_s = seconds);
        self.tell(SocketOption::KeepAliveIdle(self.keepalive_times()))
    }

    /// `TCP_KEEPIDLE`
    #[must_use]
    pub fn keepalive_idle_s(&self) -> u32 {
        let default_ns = self.inner.tcp_config().keepalive_idle_ns;
        or_default(self.look(|settings| settings.keep_idle_s), default_ns)
    }

    /// `TCP_KEEPINTVL`: seconds between probes.
    ///
    /// # Errors
    /// `InvalidInput` outside 1 to 32767.
    pub fn set_keepalive_interval_s(&self, seconds: u32) -> io::Result<()> {
        within(seconds, KEEPALIVE_S_MAX)?;
        self.change(|settings| settings.keep_interval_s = seconds);
        self.tell_keepalive()
    }

    /// `TCP_KEEPINTVL`
    #[must_use]
    pub fn keepalive_interval_s(&self) -> u32 {
        let default_ns = self.inner.tcp_config().keepalive_interval_ns;
        or_default(self.look(|settings| settings.keep_interval_s), default_ns)
    }

    /// `TCP_KEEPCNT`: unanswered probes that end the connection.
    ///
    /// # Errors
    /// `InvalidInput` outside 1 to 127.
    pub fn set_keepalive_probes(&self, probes: u32) -> io::Result<()> {
        within(probes, PROBES_MAX)?;
        self.change(|settings| settings.keep_probes = probes as u8);
        self.tell_keepalive()
    }

    /// `TCP_KEEPCNT`
    #[must_use]
    pub fn keepalive_probes(&self) -> u8 {
        match self.look(|settings| settings.keep_probes) {
            0 => self.inner.tcp_config().keepalive_probes_max,
            probes => probes,
        }
    }

    /// `TCP_SYNCNT`: retransmissions of the SYN.
    ///
    /// # Errors
    /// `InvalidInput` outside 1 to 127.
    pub fn set_syn_retries(&self, retries: u32) -> io::Result<()> {
        within(retries, PROBES_MAX)?;
        self.change(|settings| settings.syn_retries = retries as u8);
        self.tell(SocketOption::SynRetries(retries as u8))
    }

    /// `TCP_SYNCNT`
    #[must_use]
    pub fn syn_retries(&self) -> u8 {
        match self.look(|settings| settings.syn_retries) {
            0 => self.inner.tcp_config().syn_retries_max,
            retries => retries,
        }
    }

    /// `TCP_LINGER2`: seconds of FIN_WAIT_2 after a close; 0: as configured; negative: none.
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn set_fin_wait_2_s(&self, seconds: i32) -> io::Result<()> {
        let seconds = seconds.clamp(-1, FIN_WAIT_2_S_MAX);
        self.change(|settings| settings.linger2_s = seconds);
        let config = &self.inner.tcp_config();
        self.tell(self.look(|settings| settings.fin_wait_2(config)))
    }

    /// `TCP_LINGER2`
    #[must_use]
    pub fn fin_wait_2_s(&self) -> i32 {
        match self.look(|settings| settings.linger2_s) {
            0 => (self.inner.tcp_config().fin_wait_2_ns / tcp::SECOND_NS) as i32,
            seconds => seconds,
        }
    }

    /// `TCP_DEFER_ACCEPT`: a listener accepts with the first data, for so many seconds at least; 0: at once.
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn set_defer_accept_s(&self, seconds: i32) -> io::Result<()> {
        let count = defer_accept_retransmissions(seconds);
        self.change(|settings| settings.defer_accept = count);
        self.tell(SocketOption::DeferAccept(defer_accept_s(count)))
    }

    /// `TCP_DEFER_ACCEPT`, rounded up to whole retransmissions of a SYN-ACK as Linux does.
    #[must_use]
    pub fn defer_accept_s(&self) -> u32 {
        defer_accept_s(self.look(|settings| settings.defer_accept))
    }
}

const MAX_SEGMENT_MIN: u16 = 88;
const MAX_SEGMENT_MAX: u16 = 32_767;
const KEEPALIVE_S_MAX: u32 = 32_767;
const PROBES_MAX: u32 = 127;
const FIN_WAIT_2_S_MAX: i32 = 120;

fn within(value: u32, max: u32) -> io::Result<()> {
    (1..=max).contains(&value).then_some(()).ok_or_else(invalid)
}

fn or_default(own_s: u32, default_ns: u64) -> u32 {
    match own_s {
        0 => (default_ns / tcp::SECOND_NS) as u32,
        seconds => seconds,
    }
}
