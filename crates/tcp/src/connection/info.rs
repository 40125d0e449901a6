//! A snapshot of a connection for `TCP_INFO`, `mill ss` and tests.

use crate::MILLISECOND_NS;
use crate::congestion::{BbrInfo, CaState, DctcpInfo};
use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::ecn::AccurateEcnInfo;
use crate::fast_open::FastOpenFailure;
use crate::receive::SEGMENT_GUESS_MIN;
use crate::recovery::Recovery;
use crate::recovery::rate::Delivery;
use crate::state::State;
use crate::timers::NEVER_NS;
use crate::timestamp::clock_ms;

/// Values like those of Linux's `tcp_info`. Times are nanoseconds and windows are bytes, unless the
/// field says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// State of the connection.
    pub state: State,
    /// Loss recovery: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss (Linux's `tcpi_ca_state`).
    pub ca_state: u8,
    /// Timeouts in a row without a new acknowledgment. Timeouts into a shut window are not counted.
    pub retransmits: u8,
    /// Unanswered probes (zero window or keep-alive).
    pub probes: u8,
    /// Doublings of the timeout.
    pub backoff: u8,
    /// Timestamps are in use.
    pub timestamps: bool,
    /// Selective acknowledgments are in use.
    pub sack: bool,
    /// ECN is in use.
    pub ecn: bool,
    /// The peer has sent an ECN-capable segment.
    pub ecn_seen: bool,
    /// Counters of accurate ECN, and the kind of ECN in use.
    pub accurate_ecn: AccurateEcnInfo,
    /// Window scaling is in use.
    pub window_scaling: bool,
    /// Payload of a SYN was acknowledged by the SYN-ACK (`TCPI_OPT_SYN_DATA`).
    pub syn_data_acked: bool,
    /// Accepted by Fast Open (`TCPI_OPT_TFO_CHILD`).
    pub fast_child: bool,
    /// The reason why the client's Fast Open failed (`tcpi_fastopen_client_fail`).
    pub fast_open_failure: FastOpenFailure,
    /// The peer's window shift.
    pub snd_wscale: u8,
    /// Our window shift.
    pub rcv_wscale: u8,
    /// Retransmission timeout.
    pub rto_ns: u64,
    /// Adaptive delay of acknowledgments.
    pub ato_ns: u64,
    /// ACKs wait for no answer to ride on (`TCP_QUICKACK`).
    pub quick_ack: bool,
    /// Largest payload of a segment that we send.
    pub snd_mss: u32,
    /// Estimate of the peer's segment size.
    pub rcv_mss: u32,
    /// MSS that we advertised.
    pub advmss: u32,
    /// Bytes per second at which segments are paced, or would be; `u64::MAX` = not known.
    pub pacing_rate: u64,
    /// The limit of SO_MAX_PACING_RATE in bytes per second; `u64::MAX` = none.
    pub max_pacing_rate: u64,
    /// Segments from SND.UNA to SND.NXT.
    pub unacked: u32,
    /// The part of `unacked` presumed lost, sent again or not.
    pub lost: u32,
    /// The part of `unacked` that was SACKed, or counted by duplicate ACKs without SACK.
    pub sacked: u32,
    /// Retransmissions still in flight, in segments.
    pub retrans: u32,
    /// Retransmissions in all, in segments.
    pub total_retrans: u32,
    /// Smoothed round-trip time.
    pub rtt_ns: u64,
    /// The round trip's mean deviation.
    pub rttvar_ns: u64,
    /// Least round trip seen; `u64::MAX` when none was measured.
    pub min_rtt_ns: u64,
    /// Slow-start threshold in segments; `u32::MAX` while it is unlimited.
    pub snd_ssthresh: u32,
    /// Congestion window in segments.
    pub snd_cwnd: u32,
    /// Reordering that is tolerated, in segments.
    pub reordering: u32,
    /// Segments that D-SACKs reported as duplicates.
    pub dsack_dups: u32,
    /// Number of times that reordering was seen.
    pub reord_seen: u32,
    /// Segments delivered, the SYN included.
    pub delivered: u32,
    /// The part of `delivered` that was marked: acknowledged with ECE, or reported by accurate ECN.
    pub delivered_ce: u32,
    /// Payload bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Payload bytes retransmitted.
    pub bytes_retrans: u64,
    /// Latest delivery rate in bytes per second; 0 = none measured.
    pub delivery_rate: u64,
    /// True if the application limited the delivery rate.
    pub delivery_rate_app_limited: bool,
    /// Time during which something was to be sent or was in flight.
    pub busy_time_ns: u64,
    /// Part of the busy time that the peer's window limited.
    pub rwnd_limited_ns: u64,
    /// Part of the busy time that the send buffer limited.
    pub sndbuf_limited_ns: u64,
    /// The peer's window in bytes.
    pub snd_wnd: u32,
    /// Our window in bytes, as last advertised. Data that has arrived since is not deducted.
    pub rcv_wnd: u32,
    /// Current upper limit of the window (`tcpi_rcv_ssthresh`).
    pub rcv_ssthresh: u32,
    /// Absolute upper limit of the window (TCP_WINDOW_CLAMP).
    pub window_clamp: u32,
    /// Bytes that the application read in its best round trip.
    pub rcv_space: u32,
    /// Round trip as the receiver sees it; 0 = not measured.
    pub rcv_rtt_ns: u64,
    /// Segments that arrived out of order and were stored.
    pub out_of_order_in: u32,
    /// Retransmission timeouts.
    pub timeouts: TimeoutInfo,
    /// Bytes in the send buffer that were never sent.
    pub notsent_bytes: u32,
    /// Payload bytes acknowledged by the peer.
    pub bytes_acked: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// Segments sent.
    pub segs_out: u32,
    /// Segments received.
    pub segs_in: u32,
    /// Segments with payload sent.
    pub data_segs_out: u32,
    /// Segments with payload received.
    pub data_segs_in: u32,
    /// Times of the last events.
    pub last: LastInfo,
    /// Segment size that a router reported, without IP and TCP headers; 0: no report, or an
    /// outdated one.
    pub narrow_mss: u32,
    /// BBR's view of the path, while BBR is in use.
    pub bbr: Option<BbrInfo>,
    /// DCTCP's view of the path, while DCTCP is in use.
    pub dctcp: Option<DctcpInfo>,
}

/// Retransmission timeouts of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutInfo {
    /// Total number.
    pub count: u16,
    /// Timeouts that came after progress, each of which began a recovery.
    pub recoveries: u16,
    /// Time of all recoveries: from the first timeout in a row until the losses were repaired.
    pub recovery_ns: u64,
}

/// Times of a connection's last events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastInfo {
    /// Payload was last sent, or the connection was established; 0: neither.
    pub data_sent_ns: u64,
    /// Payload last arrived, or the connection was established; 0: neither.
    pub data_recv_ns: u64,
    /// An acceptable ACK last arrived, or the connection began.
    pub ack_recv_ns: u64,
}

/// The timer of a connection that expires first, by the names of Linux's `idiag_timer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingTimer {
    /// Retransmits.
    Retransmit,
    /// Probes a shut window.
    Persist,
    /// Probes a silent peer, or ends an orphan in FIN_WAIT_2.
    KeepAlive,
    /// Ends TIME_WAIT.
    TimeWait,
}

impl Connection {
    /// The timer that is armed and its time in ns; `None` if only an ACK is delayed. The
    /// retransmission timer comes before the slow one, as in Linux.
    #[must_use]
    pub fn pending_timer(&self) -> Option<(PendingTimer, u64)> {
        let timers = &self.timers;
        if timers.retransmit_ns() != NEVER_NS {
            let is_flying =
                self.flight.recovery().packets_out() > 0 || self.snd.una() != self.snd.nxt();
            let kind = match is_flying {
                true => PendingTimer::Retransmit,
                false => PendingTimer::Persist,
            };
            return Some((kind, timers.retransmit_ns()));
        }
        let kind = match self.state() {
            State::TimeWait => PendingTimer::TimeWait,
            _ => PendingTimer::KeepAlive,
        };
        (timers.slow_ns() != NEVER_NS).then_some((kind, timers.slow_ns()))
    }

    /// Number of doublings of the timeout.
    #[inline]
    #[must_use]
    pub fn backoff(&self) -> u8 {
        self.timers.backoff()
    }

    /// Values like those of `tcp_info`. The times spent busy or limited end at the last change of
    /// reason.
    #[must_use]
    pub fn info(&self) -> Info {
        self.info_at(0)
    }

    /// Values like those of `tcp_info`, with times up to `now_ns`.
    #[must_use]
    pub fn info_at(&self, now_ns: u64) -> Info {
        let mut info = self.all_info(self.flight.recovery(), self.flight.delivery(), now_ns);
        match self.state() {
            State::SynSent => self.tell_of_syn(&mut info),
            State::SynReceived if !self.conn_flags.has(ConnFlags::FAST_OPENED) => {
                self.tell_of_opening(&mut info)
            }
            // The peer may not have announced its MSS yet.
            State::Closed => {
                info.snd_mss = info.snd_mss.min(self.path.mss_of_peer(self.conn_flags))
            }
            _ => {}
        }
        info
    }

    /// Corrects the values before the peer's first answer, when nothing is negotiated yet.
    fn tell_of_syn(&self, info: &mut Info) {
        info.sack = false;
        info.window_scaling = false;
        info.snd_wscale = 0;
        info.rcv_wscale = 0;
        info.snd_mss = self.path.mss_of_peer(self.conn_flags);
        info.rcv_mss = SEGMENT_GUESS_MIN;
        info.timestamps = false;
        self.tell_of_opening(info);
    }

    /// Corrects the values while the flight consists of the SYN and its data.
    fn tell_of_opening(&self, info: &mut Info) {
        info.bbr = None;
        info.dctcp = None;
        info.delivered = 0;
        info.notsent_bytes = self.snd.unsent(self.state(), self.conn_flags);
        // Linux counts a SYN and its data as two segments.
        let parts = 1 + u32::from(self.opening.syn_bytes() > 0);
        info.unacked = u32::from(self.opening.is_syn_sent()) * parts;
        if self.timers.retransmits() > 0 {
            info.ca_state = CaState::Loss as u8;
            info.lost = parts;
            info.retrans = 1;
            info.snd_cwnd = 1;
        }
    }

    fn mss_told(&self) -> u32 {
        u32::from(self.snd.mss().max(1))
    }

    fn all_info(&self, recovery: &Recovery, delivery: &Delivery, now_ns: u64) -> Info {
        let [busy_time_ns, rwnd_limited_ns, sndbuf_limited_ns] = delivery.busy_times_ns(now_ns);
        Info {
            state: self.state(),
            ca_state: recovery.ca_state() as u8,
            retransmits: self.timers.retransmits(),
            probes: self.timers.probes(),
            backoff: self.timers.backoff(),
            timestamps: self.conn_flags.has(ConnFlags::TIMESTAMPS),
            sack: self.conn_flags.has(ConnFlags::SACK),
            ecn: self.snd.uses_ecn(),
            ecn_seen: self.ecn.has_seen_ect(),
            accurate_ecn: self.ecn.accurate_ecn_info(self.snd.ecn()),
            window_scaling: self.conn_flags.has(ConnFlags::WINDOW_SCALING),
            syn_data_acked: self.syn_data_acked(),
            fast_child: self.opening.is_fast_child(),
            fast_open_failure: self.opening.fast_open_failure(),
            snd_wscale: self.snd.shift(),
            rcv_wscale: self.rcv.shift(),
            rto_ns: self.timers.rtt().rto_ns(),
            ato_ns: u64::from(self.rx.ato_us()) * 1000,
            quick_ack: !self.rx.interactive(),
            snd_mss: self.mss_told(),
            rcv_mss: u32::from(self.rx.peer_segment()),
            advmss: u32::from(self.rx.advmss()),
            pacing_rate: self.flight.pacing().rate(),
            max_pacing_rate: self.flight.pacing().rate_max(),
            unacked: recovery.packets_out(),
            lost: recovery.lost_out(),
            sacked: recovery.sacked_out(),
            retrans: recovery.retrans_out(),
            total_retrans: delivery.segments_retrans(),
            rtt_ns: self.timers.rtt().srtt_ns(),
            rttvar_ns: self.timers.rtt().rttvar_ns(),
            min_rtt_ns: self.timers.min_rtt_ns(),
            snd_ssthresh: self.flight.congestion().ssthresh(),
            snd_cwnd: self.flight.congestion().cwnd(),
            reordering: u32::from(recovery.reordering()),
            dsack_dups: recovery.dsack_dups(),
            reord_seen: recovery.reord_seen(),
            delivered: self.delivered(),
            delivered_ce: recovery.delivered_ce(),
            bytes_sent: delivery.bytes_sent(),
            bytes_retrans: delivery.bytes_retrans(),
            delivery_rate: delivery.bytes_per_second(self.mss_told()),
            delivery_rate_app_limited: delivery.is_rate_app_limited(),
            busy_time_ns,
            rwnd_limited_ns,
            sndbuf_limited_ns,
            snd_wnd: self.snd.wnd(),
            rcv_wnd: self.rx.wnd(),
            rcv_ssthresh: self.rx.ssthresh(),
            window_clamp: self.rx.clamp(),
            rcv_space: self.rx.tuning().space(),
            rcv_rtt_ns: u64::from(self.rx.tuning().rtt_us()) * 1000,
            out_of_order_in: self.rx.out_of_order_in(),
            timeouts: self.timeout_info(now_ns),
            notsent_bytes: self.notsent_bytes(),
            bytes_acked: self.tx.bytes_acked(),
            bytes_received: self.rx.bytes_received(),
            segs_out: self.tx.segs_out(),
            segs_in: self.rx.segs_in(),
            data_segs_out: self.tx.data_segs_out(),
            data_segs_in: self.rx.data_segs_in(),
            last: self.last_info(),
            narrow_mss: self.path.narrow_mss(self.conn_flags),
            bbr: self.bbr_info(),
            dctcp: self.dctcp_info(),
        }
    }

    /// Bytes never sent. The FIN counts as one, as in Linux.
    fn notsent_bytes(&self) -> u32 {
        self.snd.unsent(self.state(), self.conn_flags) + u32::from(self.conn_flags.fin_unsent())
    }

    fn dctcp_info(&self) -> Option<DctcpInfo> {
        let counts = &self.flight.recovery();
        let mss = self.mss_told();
        let info =
            self.flight
                .congestion()
                .dctcp_info(mss, counts.delivered(), counts.delivered_ce())?;
        if !self.snd.uses_ecn() {
            return Some(DctcpInfo::default());
        }
        Some(DctcpInfo {
            has_latest_mark: self.ecn.has_latest_mark(),
            ..info
        })
    }

    /// Segments delivered, without the SYN-ACK of a Fast Open until it is acknowledged.
    fn delivered(&self) -> u32 {
        self.flight.recovery().delivered() - u32::from(self.conn_flags.has(ConnFlags::FAST_OPENED))
    }

    fn timeout_info(&self, now_ns: u64) -> TimeoutInfo {
        let tally = self.timers.tally();
        TimeoutInfo {
            count: tally.timeouts(),
            recoveries: tally.recoveries(),
            recovery_ns: u64::from(tally.spent_ms(clock_ms(now_ns))) * MILLISECOND_NS,
        }
    }

    fn last_info(&self) -> LastInfo {
        LastInfo {
            data_sent_ns: self.tx.last_sent_ns(),
            data_recv_ns: self.rx.last_data_ns(),
            ack_recv_ns: self.rx.last_ack_ns(),
        }
    }

    /// BBR's view of the path; `None` when BBR is not in use.
    #[must_use]
    pub fn bbr_info(&self) -> Option<BbrInfo> {
        self.flight.congestion().bbr_info(u32::from(self.snd.mss()))
    }
}
