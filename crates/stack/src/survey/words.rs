//! A row of a walk as 64-bit words, the form in which it leaves the process.
//!
//! Every word has a name, so that a reader can show words that it does not know. New words are
//! added at the end.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ring::socket_block::SocketId;
use tcp::{CongestionAlgorithm, Info};
use wire::FlowKey;

use crate::flows::story_events::state_number;

use super::{SurveyId, SurveyRow, SurveyTimerKind};

macro_rules! flow_words {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// The index of a value in [`FlowWords`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FlowWord {
            $($(#[doc = $doc])+ $name,)+
        }

        impl FlowWord {
            /// All words, in the order of their index.
            pub const ALL: [Self; FLOW_WORDS] = [$(Self::$name),+];

            /// The word's name in JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }

        /// Words of a row.
        pub const FLOW_WORDS: usize = [$($text),+].len();
    };
}

flow_words! {
    /// Kind of flow: 0 connection, 1 listener, 2 half-open, 3 compact entry.
    Table = "table",
    /// Index of the flow in its table.
    Index = "index",
    /// Generation of the index, for a connection or listener.
    Generation = "generation",
    /// State, by Linux's number.
    State = "state",
    /// High half of our address; IPv4 is mapped into IPv6.
    LocalHigh = "local_high",
    /// Low half of our address.
    LocalLow = "local_low",
    /// High half of the peer's address.
    RemoteHigh = "remote_high",
    /// Low half of the peer's address.
    RemoteLow = "remote_low",
    /// 1 if the addresses are IPv4.
    IsV4 = "is_v4",
    /// Our port.
    LocalPort = "local_port",
    /// The peer's port.
    RemotePort = "remote_port",
    /// `Recv-Q`: unread bytes, or connections to be accepted.
    RecvQueue = "recv_q",
    /// `Send-Q`: unacknowledged bytes, or the backlog.
    SendQueue = "send_q",
    /// Bytes that the receive buffer may hold.
    RecvBuffer = "recv_buffer",
    /// Bytes that the send buffer may hold.
    SendBuffer = "send_buffer",
    /// Linux's `idiag_timer`: 0 none, 1 on, 2 keepalive, 3 timewait, 4 persist.
    Timer = "timer",
    /// Milliseconds until the timer expires.
    TimerMs = "timer_ms",
    /// Number of consecutive expiries without success.
    TimerTries = "timer_tries",
    /// 1 if the application has closed the socket.
    IsOrphan = "orphan",
    /// One more than the algorithm's index in `CongestionAlgorithm::ALL`. 0: none, or an external
    /// one, whose name is in the last words.
    Congestion = "congestion",
    /// 1 if the following words are valid.
    HasInfo = "has_info",
    /// Bits of `tcpi_options`.
    Options = "options",
    /// The peer's window shift.
    SendScale = "snd_wscale",
    /// Our window shift.
    RecvScale = "rcv_wscale",
    /// Retransmission timeout, us.
    RtoUs = "rto_us",
    /// Number of doublings of the retransmission timeout.
    Backoff = "backoff",
    /// Smoothed round trip, us.
    RttUs = "rtt_us",
    /// Mean deviation of the round trip, us.
    RttVarUs = "rttvar_us",
    /// Delay of acknowledgments, us.
    AtoUs = "ato_us",
    /// Largest payload of a sent segment, bytes.
    SendMss = "snd_mss",
    /// Path MTU, bytes.
    PathMtu = "pmtu",
    /// Estimated segment size of the peer, bytes.
    RecvMss = "rcv_mss",
    /// MSS that we announced, bytes.
    AdvMss = "advmss",
    /// Congestion window, segments.
    Cwnd = "cwnd",
    /// Slow-start threshold, segments.
    Ssthresh = "ssthresh",
    /// Payload bytes sent, retransmissions included.
    BytesSent = "bytes_sent",
    /// Payload bytes retransmitted.
    BytesRetrans = "bytes_retrans",
    /// Payload bytes acknowledged.
    BytesAcked = "bytes_acked",
    /// Payload bytes received in order.
    BytesReceived = "bytes_received",
    /// Segments sent.
    SegsOut = "segs_out",
    /// Segments received.
    SegsIn = "segs_in",
    /// Segments with payload sent.
    DataSegsOut = "data_segs_out",
    /// Segments with payload received.
    DataSegsIn = "data_segs_in",
    /// Milliseconds since payload was sent.
    LastSentMs = "lastsnd_ms",
    /// Milliseconds since payload arrived.
    LastRecvMs = "lastrcv_ms",
    /// Milliseconds since an ACK arrived.
    LastAckMs = "lastack_ms",
    /// Bytes per second at which segments are paced; `u64::MAX`: not known.
    PacingRate = "pacing_rate",
    /// Upper limit of the pacing rate, bytes per second; `u64::MAX`: none.
    PacingRateMax = "pacing_rate_max",
    /// Latest delivery rate, bytes per second.
    DeliveryRate = "delivery_rate",
    /// 1 if the application limited the latest delivery rate.
    AppLimited = "app_limited",
    /// Segments delivered.
    Delivered = "delivered",
    /// Delivered segments that were marked CE.
    DeliveredCe = "delivered_ce",
    /// Time with something to send, us.
    BusyUs = "busy_us",
    /// Time limited by the peer's window, us.
    RwndLimitedUs = "rwnd_limited_us",
    /// Time limited by the send buffer, us.
    SndbufLimitedUs = "sndbuf_limited_us",
    /// Segments in flight.
    Unacked = "unacked",
    /// Retransmitted segments in flight.
    Retrans = "retrans",
    /// Segments retransmitted so far.
    RetransTotal = "retrans_total",
    /// Segments presumed lost.
    Lost = "lost",
    /// Segments that were SACKed.
    Sacked = "sacked",
    /// Segments that D-SACKs reported.
    DsackDups = "dsack_dups",
    /// Reordering tolerated, segments.
    Reordering = "reordering",
    /// Times that reordering was seen.
    ReordSeen = "reord_seen",
    /// Round trip as the receiver sees it, us.
    RecvRttUs = "rcv_rtt_us",
    /// Most bytes that the application read in one round trip.
    RecvSpace = "rcv_space",
    /// Current upper limit of our window, bytes.
    RecvSsthresh = "rcv_ssthresh",
    /// Bytes that were never sent.
    NotSent = "notsent",
    /// Least round trip, us; `u64::MAX`: none measured.
    MinRttUs = "minrtt_us",
    /// Segments stored out of order.
    OutOfOrder = "rcv_ooopack",
    /// The peer's window, bytes.
    SendWindow = "snd_wnd",
    /// BBR's bandwidth estimate, bytes per second.
    BbrBandwidth = "bbr_bw",
    /// BBR's least round trip, us.
    BbrMinRttUs = "bbr_mrtt_us",
    /// BBR's pacing gain, in 1/256.
    BbrPacingGain = "bbr_pacing_gain",
    /// BBR's window gain, in 1/256.
    BbrCwndGain = "bbr_cwnd_gain",
    /// Name of an external algorithm, first byte lowest; 0: a built-in one.
    OutsideName = "congestion_name",
    /// Bytes of that name from the ninth on.
    OutsideNameRest = "congestion_name_rest",
    /// Our window as the peer knows it, bytes.
    RecvWindow = "rcv_wnd",
}

/// Bits of `tcpi_options` (linux/tcp.h).
const TIMESTAMPS: u64 = 1;
const SACK: u64 = 2;
const WSCALE: u64 = 4;
const ECN: u64 = 8;
const ECN_SEEN: u64 = 16;
const SYN_DATA: u64 = 32;

/// A row in the form in which it leaves the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowWords(pub [u64; FLOW_WORDS]);

impl FlowWords {
    /// The value of a word.
    #[must_use]
    pub const fn at(&self, word: FlowWord) -> u64 {
        self.0[word as usize]
    }

    /// The row as bytes, each word little-endian.
    pub fn to_bytes(&self) -> [u8; FLOW_WORDS * 8] {
        let mut bytes = [0; FLOW_WORDS * 8];
        for (to, word) in bytes.chunks_exact_mut(8).zip(&self.0) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes a row of another process; `None` if bytes are missing. Words that an older process
    /// does not send are 0.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < 8 * (FlowWord::HasInfo as usize + 1) {
            return None;
        }
        let mut words = [0; FLOW_WORDS];
        for (to, from) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *to = u64::from_le_bytes(from.try_into().ok()?);
        }
        Some(Self(words))
    }

    /// Name of the congestion control algorithm; `None`: the flow has none.
    #[must_use]
    pub fn congestion(&self) -> Option<String> {
        let built_in = usize::try_from(self.at(FlowWord::Congestion)).ok()?;
        if let Some(at) = built_in.checked_sub(1) {
            let all = CongestionAlgorithm::ALL;
            return all.get(at).map(|one| one.name().to_owned());
        }
        let words = [FlowWord::OutsideName, FlowWord::OutsideNameRest];
        let bytes = words.map(|word| self.at(word).to_le_bytes()).concat();
        // The name comes from another process and may hold anything.
        let name: String = bytes
            .into_iter()
            .take_while(u8::is_ascii_graphic)
            .map(char::from)
            .collect();
        (!name.is_empty()).then_some(name)
    }

    fn set_name(&mut self, name: &str) {
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        let whole = u128::from_le_bytes(bytes);
        self.set(FlowWord::OutsideName, whole as u64);
        self.set(FlowWord::OutsideNameRest, (whole >> 64) as u64);
    }

    /// Our end.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.address(
            [FlowWord::LocalHigh, FlowWord::LocalLow],
            FlowWord::LocalPort,
        )
    }

    /// The peer's end.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.address(
            [FlowWord::RemoteHigh, FlowWord::RemoteLow],
            FlowWord::RemotePort,
        )
    }

    /// The flow's identity and key, for [`Stack::kill_flow`](crate::Stack::kill_flow); `None` if
    /// the words name no table.
    #[must_use]
    pub fn target(&self) -> Option<(SurveyId, FlowKey)> {
        let index = self.at(FlowWord::Index) as u32;
        let generation = self.at(FlowWord::Generation) as u32;
        let flow = match self.at(FlowWord::Table) {
            0 => SurveyId::Connection(SocketId { index, generation }),
            1 => SurveyId::Listener(SocketId { index, generation }),
            2 => SurveyId::HalfOpen(index),
            3 => SurveyId::Entry(index),
            _ => return None,
        };
        let (local, remote) = (self.local(), self.remote());
        let key = FlowKey {
            local: local.ip().into(),
            remote: remote.ip().into(),
            local_port: local.port(),
            remote_port: remote.port(),
        };
        Some((flow, key))
    }

    fn address(&self, [high, low]: [FlowWord; 2], port: FlowWord) -> SocketAddr {
        let bits = u128::from(self.at(high)) << 64 | u128::from(self.at(low));
        let v6 = Ipv6Addr::from_bits(bits);
        let ip = match (self.at(FlowWord::IsV4), v6.to_ipv4_mapped()) {
            (1, Some(v4)) => IpAddr::V4(v4),
            _ => IpAddr::V6(v6),
        };
        SocketAddr::new(ip, self.at(port) as u16)
    }

    fn set(&mut self, word: FlowWord, value: impl Into<u64>) {
        self.0[word as usize] = value.into();
    }

    fn set_address(&mut self, [high, low]: [FlowWord; 2], address: SocketAddr) {
        let v6 = match address.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        self.set(high, (v6.to_bits() >> 64) as u64);
        self.set(low, v6.to_bits() as u64);
        self.set(FlowWord::IsV4, address.is_ipv4());
    }
}

impl SurveyRow {
    /// The row as words; `now_ns` is the time of the walk.
    #[must_use]
    pub fn words(&self, now_ns: u64) -> FlowWords {
        use FlowWord as W;
        let mut w = FlowWords([0; FLOW_WORDS]);
        let (table, id) = match self.flow {
            SurveyId::Connection(id) => (0_u64, id),
            SurveyId::Listener(id) => (1, id),
            SurveyId::HalfOpen(index) => (2, unused(index)),
            SurveyId::Entry(index) => (3, unused(index)),
        };
        w.set(W::Table, table);
        w.set(W::Index, id.index);
        w.set(W::Generation, id.generation);
        w.set(W::State, self.state.map_or(10, state_number));
        w.set_address([W::LocalHigh, W::LocalLow], self.local);
        w.set_address([W::RemoteHigh, W::RemoteLow], self.remote);
        w.set(W::LocalPort, self.local.port());
        w.set(W::RemotePort, self.remote.port());
        w.set(W::RecvQueue, self.recv_queue);
        w.set(W::SendQueue, self.send_queue);
        w.set(W::RecvBuffer, self.recv_buffer);
        w.set(W::SendBuffer, self.send_buffer);
        w.set(W::IsOrphan, self.is_orphan);
        let algorithms = CongestionAlgorithm::ALL;
        let chosen = |name| algorithms.iter().position(|one| *one == name);
        let congestion = self.congestion.and_then(chosen);
        w.set(W::Congestion, congestion.map_or(0, |at| at as u64 + 1));
        if let Some(CongestionAlgorithm::Outside(algorithm)) = self.congestion {
            w.set_name(algorithm.name());
        }
        if let Some(timer) = self.timer {
            let number: u64 = match timer.kind {
                SurveyTimerKind::Retransmit => 1,
                SurveyTimerKind::KeepAlive => 2,
                SurveyTimerKind::TimeWait => 3,
                SurveyTimerKind::Persist => 4,
            };
            w.set(W::Timer, number);
            w.set(W::TimerMs, timer.left_ns / 1_000_000);
            w.set(W::TimerTries, timer.tries);
        }
        if let Some(info) = &self.info {
            w.set(W::HasInfo, 1_u64);
            tell_settings(&mut w, info, self.path_mtu);
            tell_counts(&mut w, info);
            tell_rates(&mut w, info, now_ns);
        }
        w
    }
}

fn unused(index: u32) -> SocketId {
    SocketId {
        index,
        generation: 0,
    }
}

fn tell_settings(w: &mut FlowWords, info: &Info, path_mtu: u32) {
    use FlowWord as W;
    let options = [
        (info.timestamps, TIMESTAMPS),
        (info.sack, SACK),
        (info.window_scaling, WSCALE),
        (info.ecn, ECN),
        (info.ecn_seen, ECN_SEEN),
        (info.syn_data_acked, SYN_DATA),
    ];
    let options = options.iter().filter(|(on, _)| *on).map(|(_, bit)| bit);
    w.set(W::Options, options.sum::<u64>());
    w.set(W::SendScale, info.snd_wscale);
    w.set(W::RecvScale, info.rcv_wscale);
    w.set(W::RtoUs, info.rto_ns / 1000);
    w.set(W::Backoff, info.backoff);
    w.set(W::RttUs, info.rtt_ns / 1000);
    w.set(W::RttVarUs, info.rttvar_ns / 1000);
    w.set(W::AtoUs, info.ato_ns / 1000);
    w.set(W::SendMss, info.snd_mss);
    w.set(W::PathMtu, path_mtu);
    w.set(W::RecvMss, info.rcv_mss);
    w.set(W::AdvMss, info.advmss);
    w.set(W::Cwnd, info.snd_cwnd);
    w.set(W::Ssthresh, info.snd_ssthresh);
    w.set(W::Reordering, info.reordering);
    w.set(W::RecvSpace, info.rcv_space);
    w.set(W::RecvSsthresh, info.rcv_ssthresh);
    w.set(W::SendWindow, info.snd_wnd);
    w.set(W::RecvWindow, info.rcv_wnd);
    if let Some(bbr) = &info.bbr {
        w.set(W::BbrBandwidth, bbr.bandwidth);
        w.set(W::BbrMinRttUs, bbr.min_rtt_us);
        w.set(W::BbrPacingGain, bbr.pacing_gain);
        w.set(W::BbrCwndGain, bbr.cwnd_gain);
    }
}

fn tell_counts(w: &mut FlowWords, info: &Info) {
    use FlowWord as W;
    w.set(W::BytesSent, info.bytes_sent);
    w.set(W::BytesRetrans, info.bytes_retrans);
    w.set(W::BytesAcked, info.bytes_acked);
    w.set(W::BytesReceived, info.bytes_received);
    w.set(W::SegsOut, info.segs_out);
    w.set(W::SegsIn, info.segs_in);
    w.set(W::DataSegsOut, info.data_segs_out);
    w.set(W::DataSegsIn, info.data_segs_in);
    w.set(W::Delivered, info.delivered);
    w.set(W::DeliveredCe, info.delivered_ce);
    w.set(W::Unacked, info.unacked);
    w.set(W::Retrans, info.retrans);
    w.set(W::RetransTotal, info.total_retrans);
    w.set(W::Lost, info.lost);
    w.set(W::Sacked, info.sacked);
    w.set(W::DsackDups, info.dsack_dups);
    w.set(W::ReordSeen, info.reord_seen);
    w.set(W::NotSent, info.notsent_bytes);
    w.set(W::OutOfOrder, info.out_of_order_in);
}

fn tell_rates(w: &mut FlowWords, info: &Info, now_ns: u64) {
    use FlowWord as W;
    // A time of 0 never came; Linux then counts from its start.
    let since_ms = |at_ns: u64| now_ns.saturating_sub(at_ns) / 1_000_000;
    w.set(W::LastSentMs, since_ms(info.last.data_sent_ns));
    w.set(W::LastRecvMs, since_ms(info.last.data_recv_ns));
    w.set(W::LastAckMs, since_ms(info.last.ack_recv_ns));
    w.set(W::PacingRate, info.pacing_rate);
    w.set(W::PacingRateMax, info.max_pacing_rate);
    w.set(W::DeliveryRate, info.delivery_rate);
    w.set(W::AppLimited, info.delivery_rate_app_limited);
    w.set(W::BusyUs, info.busy_time_ns / 1000);
    w.set(W::RwndLimitedUs, info.rwnd_limited_ns / 1000);
    w.set(W::SndbufLimitedUs, info.sndbuf_limited_ns / 1000);
    w.set(W::RecvRttUs, info.rcv_rtt_ns / 1000);
    let min_rtt_us = match info.min_rtt_ns {
        u64::MAX => u64::MAX,
        ns => ns / 1000,
    };
    w.set(W::MinRttUs, min_rtt_us);
}
