//! A snapshot of a connection for `TCP_INFO`, `mill ss` and tests.

use crate::state::State;

/// Values in the manner of Linux's `tcp_info`. Times are nanoseconds, windows bytes, unless named else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// State of the connection.
    pub state: State,
    /// Loss recovery: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss (Linux's `tcpi_ca_state`).
    pub ca_state: u8,
    /// Timeouts in a row without a new acknowledgment.
    pub retransmits: u8,
    /// Unanswered probes (zero window or keep-alive).
    pub probes: u8,
    /// Doublings of the timeout.
    pub backoff: u8,
    /// Timestamps are in use.
    pub timestamps: bool,
    /// Selective acknowledgments are in use.
    pub sack: bool,
    /// Window scaling is in use.
    pub window_scaling: bool,
    /// The peer's window shift.
    pub snd_wscale: u8,
    /// Our window shift.
    pub rcv_wscale: u8,
    /// Retransmission timeout.
    pub rto_ns: u64,
    /// Adaptive delay of acknowledgments.
    pub ato_ns: u64,
    /// Largest payload of a segment that we send.
    pub snd_mss: u32,
    /// Estimate of the peer's segment size.
    pub rcv_mss: u32,
    /// MSS that we advertised.
    pub advmss: u32,
    /// Segments in flight.
    pub unacked: u32,
    /// Segments presumed lost and not yet sent again.
    pub lost: u32,
    /// Segments that duplicate ACKs say have left the network.
    pub sacked: u32,
    /// Segments sent again and still in flight.
    pub retrans: u32,
    /// Segments sent again, in all.
    pub total_retrans: u32,
    /// Smoothed round-trip time.
    pub rtt_ns: u64,
    /// Its mean deviation.
    pub rttvar_ns: u64,
    /// Least round trip seen; `u64::MAX` when none was measured.
    pub min_rtt_ns: u64,
    /// Slow-start threshold in segments; `u32::MAX` while it is unlimited.
    pub snd_ssthresh: u32,
    /// Congestion window in segments.
    pub snd_cwnd: u32,
    /// Reordering that is tolerated, in segments.
    pub reordering: u32,
    /// The peer's window in bytes.
    pub snd_wnd: u32,
    /// Our window in bytes.
    pub rcv_wnd: u32,
    /// Free receive buffer in bytes.
    pub rcv_space: u32,
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
    /// When payload was last sent; 0 = never.
    pub last_data_sent_ns: u64,
    /// When payload last arrived; 0 = never.
    pub last_data_recv_ns: u64,
    /// When anything last arrived.
    pub last_recv_ns: u64,
}
