//! The connection's timers: its deadlines, the round trip from which they are computed, and the
//! bounds that the application set.
//!
//! ```text
//!   retransmit  data in flight: RFC 6298 · nothing in flight and the peer's window shut: persist
//!   delayed_ack an acknowledgment is held back
//!   slow        keep-alive · FIN_WAIT_2 of an orphan · TIME_WAIT; one at a time, by state
//!   departure   paced data waits
//! ```
//!
//! The caller arms the nearest deadline. `on_timer` dispatches; `connection::timers` has a file for
//! each timer's action.

use crate::MILLISECOND_NS;
use crate::config::Config;
use crate::pack::{Packing, Usual};
use crate::rtt::{RoundTrip, RtoBounds};
use crate::segment::Segment;
use crate::state::ConnectionError;
use crate::timestamp::{clock_ms, is_bare_ack};
use crate::variables::{Rcv, Snd};

mod closing;
mod keepalive;
pub(crate) mod own;
mod persist;
mod retransmit;
mod round_trip;
mod tally;

pub(crate) use own::OwnTimers;
pub(crate) use tally::TimeoutTally;

/// No deadline.
pub(crate) const NEVER_NS: u64 = u64::MAX;

/// Value of `fin_wait_2_ms` for a FIN that is not waited for.
pub(crate) const NOT_AWAITED: u32 = u32::MAX;

/// Linux's defaults, which most connections have.
const USUAL_KEEPALIVE_MS: (u32, u32, u8) = (7_200_000, 75_000, 9);

/// Deadlines and all values from which they are computed. Deadlines are nanoseconds; [`NEVER_NS`]:
/// not armed.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Timers {
    /// The nearest deadline.
    deadline_ns: u64,
    /// Time at which data is retransmitted, or the peer's window is probed.
    retransmit_ns: u64,
    /// Time at which a held-back acknowledgment leaves.
    delayed_ack_ns: u64,
    /// Time of the next keep-alive check, or of a state's end.
    slow_ns: u64,
    /// Time at which paced data may leave.
    departure_ns: u64,
    /// Time at which the first SYN was sent.
    syn_sent_ns: u64,
    /// Time at which SND.UNA last moved, or flight or probing began. The user timeout counts from
    /// here.
    progress_ns: u64,
    /// Round-trip estimate and timeout.
    rtt: RoundTrip,
    /// Idle time before keep-alive probes.
    keepalive_idle_ms: u32,
    /// Time between keep-alive probes.
    keepalive_interval_ms: u32,
    /// TCP_USER_TIMEOUT; 0 = none.
    user_timeout_ms: u32,
    /// FIN_WAIT_2 of an orphan in milliseconds (TCP_LINGER2); 0: the stack's setting;
    /// [`NOT_AWAITED`]: the peer's FIN is not waited for.
    fin_wait_2_ms: u32,
    /// Timeouts so far.
    tally: TimeoutTally,
    /// The timers that the application chose for this socket.
    own: OwnTimers,
    /// Unanswered keep-alive probes before the connection fails.
    keepalive_probes_max: u8,
    /// Unanswered probes, of the window or of keep-alive.
    probes: u8,
    /// Timeouts in a row without progress.
    retransmits: u8,
    /// Doublings of the timeout.
    backoff: u8,
    /// TCP_SYNCNT; 0 = the stack's setting.
    syn_retries_max: u8,
    /// Digest of the stack's sent segments at the last check, while the port has no room for a due
    /// segment and the persist timer measures the wait; 0: the port had room.
    port_blocked_at: u8,
    /// Last soft ICMP error, which is reported if the connection times out.
    soft_error: Option<ConnectionError>,
}

impl Timers {
    /// Timers of which none is armed; the stack's settings apply.
    pub fn new(config: &Config, now_ns: u64) -> Self {
        Timers {
            deadline_ns: NEVER_NS,
            retransmit_ns: NEVER_NS,
            delayed_ack_ns: NEVER_NS,
            slow_ns: NEVER_NS,
            departure_ns: NEVER_NS,
            rtt: RoundTrip::new(config.rto_initial_ns),
            syn_sent_ns: 0,
            progress_ns: now_ns,
            keepalive_idle_ms: millis(config.keepalive_idle_ns),
            keepalive_interval_ms: millis(config.keepalive_interval_ns),
            user_timeout_ms: 0,
            fin_wait_2_ms: 0,
            tally: TimeoutTally::NONE,
            own: OwnTimers::NONE,
            keepalive_probes_max: config.keepalive_probes_max,
            probes: 0,
            retransmits: 0,
            backoff: 0,
            syn_retries_max: 0,
            port_blocked_at: 0,
            soft_error: None,
        }
    }

    /// Packs the timers. A connection with timers of its own is not packed. A quiet one has at most
    /// the keep-alive timer armed.
    pub fn pack(&mut self, p: &mut impl Packing, usual: &Usual) {
        let Timers {
            deadline_ns,
            retransmit_ns,
            delayed_ack_ns,
            slow_ns,
            departure_ns,
            rtt,
            syn_sent_ns,
            progress_ns,
            keepalive_idle_ms,
            keepalive_interval_ms,
            user_timeout_ms,
            fin_wait_2_ms,
            tally,
            own,
            keepalive_probes_max,
            probes,
            retransmits,
            backoff,
            syn_retries_max,
            port_blocked_at,
            soft_error,
        } = self;
        p.u64(retransmit_ns, NEVER_NS);
        p.u64(delayed_ack_ns, NEVER_NS);
        p.u64(slow_ns, NEVER_NS);
        p.u64(departure_ns, NEVER_NS);
        let nearest_ns = (*retransmit_ns).min(*delayed_ack_ns).min(*slow_ns);
        p.u64(deadline_ns, nearest_ns.min(*departure_ns));
        rtt.pack(p, usual);
        p.u64(syn_sent_ns, 0);
        p.u64(progress_ns, usual.now_ns);
        p.u32(keepalive_idle_ms, USUAL_KEEPALIVE_MS.0);
        p.u32(keepalive_interval_ms, USUAL_KEEPALIVE_MS.1);
        p.u32(user_timeout_ms, 0);
        p.u32(fin_wait_2_ms, 0);
        tally.pack(p);
        if p.must(*own == OwnTimers::NONE) {
            *own = OwnTimers::NONE;
        }
        p.u8(keepalive_probes_max, USUAL_KEEPALIVE_MS.2);
        p.u8(probes, 0);
        p.u8(retransmits, 0);
        p.u8(backoff, 0);
        p.u8(syn_retries_max, 0);
        p.u8(port_blocked_at, 0);
        if p.must(soft_error.is_none()) {
            *soft_error = None;
        }
    }

    /// Arms the timer that sends data again or probes the peer's window.
    pub(crate) fn arm_retransmit(&mut self, at_ns: u64) {
        self.retransmit_ns = at_ns;
        self.refresh_deadline();
    }

    /// Arms the timer of a held-back acknowledgment.
    pub(crate) fn arm_delayed_ack(&mut self, at_ns: u64) {
        self.delayed_ack_ns = at_ns;
        self.refresh_deadline();
    }

    /// Arms the timer of keep-alive, or of a state's end.
    pub(crate) fn arm_slow(&mut self, at_ns: u64) {
        self.slow_ns = at_ns;
        self.refresh_deadline();
    }

    /// Arms the departure of paced data at `at_ns`, after sending stopped.
    #[inline]
    pub(crate) fn arm_departure(&mut self, at_ns: u64) {
        if at_ns != self.departure_ns {
            self.departure_ns = at_ns;
            self.refresh_deadline();
        }
    }

    /// Clears the departure if its time has come.
    pub(crate) fn depart(&mut self, now_ns: u64) {
        if self.departure_ns <= now_ns {
            self.departure_ns = NEVER_NS;
            self.refresh_deadline();
        }
    }

    /// Clears all deadlines.
    pub(crate) fn disarm_all(&mut self) {
        self.retransmit_ns = NEVER_NS;
        self.delayed_ack_ns = NEVER_NS;
        self.slow_ns = NEVER_NS;
        self.departure_ns = NEVER_NS;
        self.deadline_ns = NEVER_NS;
    }

    fn refresh_deadline(&mut self) {
        self.deadline_ns = self
            .retransmit_ns
            .min(self.delayed_ack_ns)
            .min(self.slow_ns)
            .min(self.departure_ns);
    }

    /// True if enough probes went unanswered, or if the user timeout passed after at least one.
    pub(crate) fn keepalive_exhausted(&self, silent_ns: u64) -> bool {
        match self.user_timeout_ns() {
            0 => self.probes >= self.keepalive_probes_max,
            user_ns => silent_ns >= user_ns && self.probes > 0,
        }
    }

    /// The user timeout in nanoseconds; 0 = none.
    pub(crate) fn user_timeout_ns(&self) -> u64 {
        u64::from(self.user_timeout_ms) * MILLISECOND_NS
    }

    /// Shortest wait for a peer's FIN: three and a half timeouts, ns.
    pub(crate) fn least_wait_ns(&self) -> u64 {
        self.rtt.rto_ns() * 7 / 2
    }

    pub(crate) fn min_rtt_ns(&self) -> u64 {
        match self.rtt.min_us() {
            u32::MAX => u64::MAX,
            min_us => u64::from(min_us) * 1000,
        }
    }
}

/// Nanoseconds in milliseconds, from 1 ms to 49 days.
pub(crate) fn millis(ns: u64) -> u32 {
    (ns / MILLISECOND_NS).clamp(1, u64::from(u32::MAX)) as u32
}

impl Timers {
    /// True for a bare ACK in sequence, without news, whose timestamp is `behind_ms` old. Another
    /// ACK overtook it, so it needs no answer (Linux).
    pub(crate) fn is_overtaken_ack(
        &self,
        seg: &Segment,
        behind_ms: i32,
        snd: &Snd,
        rcv: &Rcv,
    ) -> bool {
        let wnd = snd.scaled_window(seg);
        let opens =
            seg.seq.gt(snd.wl1()) || (seg.seq == snd.wl1() && (wnd > snd.wnd() || wnd == 0));
        let longest_ms = self.rtt.rto_ns() * 6 / 5 / MILLISECOND_NS;
        is_bare_ack(seg)
            && seg.seq == rcv.nxt()
            && seg.ack == snd.una()
            && !opens
            && i64::from(behind_ms) <= longest_ms as i64
    }
}

/// Events that the timers record.
impl Timers {
    /// Resets counts when data may flow, or when the handshake is complete.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.retransmits = 0;
        self.backoff = 0;
        self.progress_ns = now_ns;
    }

    /// Notes that SND.UNA moved, or that a flight or probing began.
    #[inline(always)]
    pub(crate) fn note_progress(&mut self, now_ns: u64) {
        self.progress_ns = now_ns;
    }

    /// Notes that the first SYN left.
    pub(crate) fn note_syn_sent(&mut self, now_ns: u64) {
        self.syn_sent_ns = now_ns;
    }

    /// Takes the timeouts of a half-open entry, over `took_ms`.
    pub(crate) fn begin_tally(&mut self, timeouts: u8, took_ms: u32) {
        self.tally = TimeoutTally::of_handshake(timeouts, took_ms);
    }

    /// Notes that the losses have been repaired.
    pub(crate) fn end_recovery(&mut self, now_ns: u64) {
        self.tally.end(clock_ms(now_ns));
    }

    /// Clears the count of unanswered probes, because the peer answered.
    #[inline(always)]
    pub(crate) fn settle_probes(&mut self) {
        self.probes = 0;
    }

    /// Counts a probe that is sent.
    pub(crate) fn count_probe(&mut self) {
        self.probes = self.probes.saturating_add(1);
    }

    /// Clears the count of timeouts, because new data was acknowledged.
    #[inline(always)]
    pub(crate) fn settle_retransmits(&mut self) {
        self.retransmits = 0;
    }

    /// Counts another timeout without progress.
    pub(crate) fn count_retransmit(&mut self) {
        self.retransmits = self.retransmits.saturating_add(1);
    }

    /// Clears the count of doublings.
    #[inline(always)]
    pub(crate) fn end_backoff(&mut self) {
        self.backoff = 0;
    }

    /// Counts a doubling of the timeout, or of the time between probes.
    pub(crate) fn count_backoff(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    /// Notes an ICMP error, which a timeout will report.
    pub(crate) fn note_soft_error(&mut self, error: ConnectionError) {
        self.soft_error = Some(error);
    }

    /// Forgets the ICMP error, because the path works.
    #[inline(always)]
    pub(crate) fn forget_soft_error(&mut self) {
        self.soft_error = None;
    }

    /// Takes the last ICMP error out.
    pub(crate) fn take_soft_error(&mut self) -> Option<ConnectionError> {
        self.soft_error.take()
    }

    /// The error of a connection that times out.
    pub(crate) fn timeout_error(&self) -> ConnectionError {
        self.soft_error.unwrap_or(ConnectionError::TimedOut)
    }

    /// Notes that the port has no room for a due segment. `departed`: a digest of the stack's sent
    /// segments.
    pub(crate) fn block_port(&mut self, departed: u8) {
        self.port_blocked_at = departed;
    }

    /// Checks the port again. True: other connections have sent since the last check.
    pub(crate) fn look_at_port(&mut self, departed: u8) -> bool {
        core::mem::replace(&mut self.port_blocked_at, departed) != departed
    }
}

/// Round trips.
impl Timers {
    /// Forgets all measurements; the timeout is `rto_ns`.
    pub(crate) fn forget_round_trip(&mut self, rto_ns: u64) {
        self.rtt = RoundTrip::new(rto_ns);
    }

    /// Doubles the timeout, or computes it without a doubling if it `is_linear`.
    pub(crate) fn back_off(&mut self, is_linear: bool, config: &Config) {
        let bounds = self.rto_bounds(config);
        if is_linear {
            self.backoff = 0;
            self.rtt.recompute(&bounds);
        } else {
            self.count_backoff();
            self.rtt.back_off(&bounds);
        }
    }

    /// Takes back one doubling of the timeout.
    pub(crate) fn take_back_backoff(&mut self, config: &Config) {
        self.backoff -= 1;
        let bounds = self.rto_bounds(config);
        self.rtt
            .recompute_after(config.rto_initial_ns, self.backoff, &bounds);
    }

    /// The longest retransmission timeout.
    #[inline(always)]
    pub(crate) fn rto_ns_max(&self, config: &Config) -> u64 {
        self.own.rto_ns_max(config)
    }

    /// The floor of the timeout's variance term.
    #[inline(always)]
    pub(crate) fn rto_ns_min(&self, config: &Config) -> u64 {
        self.own.rto_ns_min(config)
    }

    /// Bounds of the retransmission timeout and its variance term.
    #[inline(always)]
    pub(crate) fn rto_bounds(&self, config: &Config) -> RtoBounds {
        self.own.rto_bounds(config)
    }

    /// The longest time for which an ACK is held back.
    #[inline(always)]
    pub(crate) fn delayed_ack_ns_max(&self, config: &Config) -> u64 {
        self.own.delayed_ack_ns_max(config)
    }

    /// True if the first timeouts do not double while little is in flight.
    pub(crate) fn is_thin_linear(&self) -> bool {
        self.own.is_thin_linear()
    }
}

/// The application's settings.
impl Timers {
    /// SO_KEEPALIVE with its settings.
    pub(crate) fn set_keepalive(&mut self, idle_ns: u64, interval_ns: u64, probes_max: u8) {
        self.keepalive_idle_ms = millis(idle_ns);
        self.keepalive_interval_ms = millis(interval_ns);
        self.keepalive_probes_max = probes_max.max(1);
    }

    /// TCP_USER_TIMEOUT; 0 = none.
    pub(crate) fn set_user_timeout(&mut self, timeout_ns: u64) {
        self.user_timeout_ms = match timeout_ns {
            0 => 0,
            ns => millis(ns),
        };
    }

    /// TCP_SYNCNT; 0 = the stack's setting.
    pub(crate) fn set_syn_retries(&mut self, retries: u8) {
        self.syn_retries_max = retries;
    }

    /// TCP_LINGER2: 0 = the stack's setting; `None`: the peer's FIN is not waited for.
    pub(crate) fn set_fin_wait_2(&mut self, wait_ns: Option<u64>) {
        self.fin_wait_2_ms = match wait_ns {
            None => NOT_AWAITED,
            Some(0) => 0,
            Some(ns) => millis(ns).min(NOT_AWAITED - 1),
        };
    }

    /// `TCP_RTO_MAX_MS`; 0 = the stack's setting.
    pub(crate) fn set_rto_max_ms(&mut self, ms: u32) {
        self.own.set_rto_max_ms(ms);
    }

    /// `TCP_RTO_MIN_US`; 0 = the stack's setting.
    pub(crate) fn set_rto_min_us(&mut self, us: u32) {
        self.own.set_rto_min_us(us);
    }

    /// Sets a listener's `TCP_RTO_MIN_US`, which also applies to the handshake's round trip.
    pub(crate) fn begin_with_rto_min_us(&mut self, us: u32, config: &Config) {
        self.set_rto_min_us(us);
        if self.rtt.srtt_us() != 0 {
            let bounds = self.rto_bounds(config);
            self.rtt.begin_again(&bounds);
        }
    }

    /// `TCP_DELACK_MAX_US`; 0 = the stack's setting.
    pub(crate) fn set_delayed_ack_max_us(&mut self, us: u32) {
        self.own.set_delayed_ack_max_us(us);
    }

    /// `TCP_THIN_LINEAR_TIMEOUTS`.
    pub(crate) fn set_thin_linear(&mut self, on: bool) {
        self.own.set_thin_linear(on);
    }

    /// Timeouts so far.
    pub(crate) fn tally(&self) -> &TimeoutTally {
        &self.tally
    }
}

/// Read access for other modules.
impl Timers {
    /// The nearest deadline.
    #[inline(always)]
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Time at which data is retransmitted, or the peer's window is probed.
    #[inline(always)]
    pub fn retransmit_ns(&self) -> u64 {
        self.retransmit_ns
    }

    /// Time at which a held-back acknowledgment leaves.
    #[inline(always)]
    pub fn delayed_ack_ns(&self) -> u64 {
        self.delayed_ack_ns
    }

    /// Time of the next keep-alive check, or of a state's end.
    #[inline(always)]
    pub fn slow_ns(&self) -> u64 {
        self.slow_ns
    }

    /// Time at which paced data may leave.
    #[inline(always)]
    pub fn departure_ns(&self) -> u64 {
        self.departure_ns
    }

    /// Time at which the first SYN was sent.
    #[inline(always)]
    pub fn syn_sent_ns(&self) -> u64 {
        self.syn_sent_ns
    }

    /// Time at which SND.UNA last moved, or flight or probing began. The user timeout counts from
    /// here.
    #[inline(always)]
    pub fn progress_ns(&self) -> u64 {
        self.progress_ns
    }

    /// Round-trip estimate and timeout.
    #[inline(always)]
    pub fn rtt(&self) -> &RoundTrip {
        &self.rtt
    }

    /// Idle time before keep-alive probes.
    #[inline(always)]
    pub fn keepalive_idle_ms(&self) -> u32 {
        self.keepalive_idle_ms
    }

    /// Time between keep-alive probes.
    #[inline(always)]
    pub fn keepalive_interval_ms(&self) -> u32 {
        self.keepalive_interval_ms
    }

    /// TCP_USER_TIMEOUT; 0 = none.
    #[inline(always)]
    pub fn user_timeout_ms(&self) -> u32 {
        self.user_timeout_ms
    }

    /// FIN_WAIT_2 of an orphan in milliseconds (TCP_LINGER2); 0: the stack's setting;
    /// [`NOT_AWAITED`]: the peer's FIN is not waited for.
    #[inline(always)]
    pub fn fin_wait_2_ms(&self) -> u32 {
        self.fin_wait_2_ms
    }

    /// Unanswered probes, of the window or of keep-alive.
    #[inline(always)]
    pub fn probes(&self) -> u8 {
        self.probes
    }

    /// Timeouts in a row without progress.
    #[inline(always)]
    pub fn retransmits(&self) -> u8 {
        self.retransmits
    }

    /// Doublings of the timeout.
    #[inline(always)]
    pub fn backoff(&self) -> u8 {
        self.backoff
    }

    /// Digest of the stack's sent segments at the last check, while the port has no room for a due
    /// segment and the persist timer measures the wait; 0: the port had room.
    #[inline(always)]
    pub fn port_blocked_at(&self) -> u8 {
        self.port_blocked_at
    }

    /// Last soft ICMP error, which is reported if the connection times out.
    #[inline(always)]
    pub fn soft_error(&self) -> Option<ConnectionError> {
        self.soft_error
    }
}
