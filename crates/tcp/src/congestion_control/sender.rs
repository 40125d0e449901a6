//! Arguments of the calls into an algorithm: the sender, an ACK, the path, the state of loss
//! recovery, and events.

use wire::SeqNumber;

/// The sender at the time of a call.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SenderView {
    /// Time of this turn.
    pub now_ns: u64,
    /// SND.UNA, after this ACK.
    pub una: SeqNumber,
    /// SND.NXT.
    pub nxt: SeqNumber,
    /// Segments delivered on this connection, this ACK's included. It wraps.
    pub delivered: u32,
    /// Delivered segments whose ACK carried ECE. It wraps.
    pub delivered_ce: u32,
    /// Segments ever presumed lost on this connection. It wraps.
    pub lost: u32,
    /// Payload bytes of a full segment; 0 before the handshake begins.
    pub mss: u32,
    /// The time of the last delivery.
    pub delivered_ns: u64,
    /// Bytes per second at which a paced sender would send now; 0 = not known yet.
    pub pacing_rate: u64,
    /// True if segments leave at `pacing_rate`, false if they leave in bursts.
    pub paced: bool,
}

impl SenderView {
    /// A sender at this time that has sent nothing; for tests of an algorithm.
    ///
    /// ```
    /// use tcp::congestion_control::SenderView;
    /// let mut at = SenderView::new(1_000_000, 1460);
    /// at.nxt += 14_600;
    /// assert_eq!((at.delivered, at.nxt.since(at.una)), (0, 14_600));
    /// ```
    #[must_use]
    pub fn new(now_ns: u64, mss: u32) -> Self {
        SenderView {
            now_ns,
            una: SeqNumber(1),
            nxt: SeqNumber(1),
            delivered: 0,
            delivered_ce: 0,
            lost: 0,
            mss,
            delivered_ns: now_ns,
            pacing_rate: 0,
            paced: false,
        }
    }
}

/// The facts that one ACK carried.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckSample {
    /// Segments newly delivered, cumulatively or selectively.
    pub acked: u32,
    /// Round trip of the latest segment that this ACK acknowledged; `None` if it is ambiguous
    /// (Karn).
    pub rtt_ns: Option<u64>,
}

/// The path as one ACK shows it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PathReport {
    /// Delivery rate that the ACK sampled, in bytes per second
    /// (draft-cheng-iccrg-delivery-rate-estimation); `None` if the ACK gives no sample.
    pub delivery_rate: Option<u64>,
    /// The application was the limit when the sampled segment was sent.
    pub app_limited: bool,
    /// Segments that the ACK delivered.
    pub delivered: u32,
    /// Segments that were found lost with the ACK.
    pub lost: u32,
    /// Segments in flight before the ACK.
    pub prior_in_flight: u32,
    /// Segments in flight now.
    pub in_flight: u32,
    /// Round trip of the latest segment that the ACK acknowledged.
    pub rtt_us: Option<u32>,
    /// Least round trip within `Config::min_rtt_window_ns`; `u32::MAX`: none measured.
    pub rtt_us_min: u32,
    /// The receiver probably delayed the ACK.
    pub maybe_delayed: bool,
    /// The state of loss recovery now.
    pub state: CaState,
}

/// The state of loss recovery (Linux's `tcp_ca_state`, with its numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CaState {
    /// Nothing unusual.
    Open = 0,
    /// Duplicate ACKs or SACKs arrive; nothing is presumed lost yet.
    Disorder = 1,
    /// The window is being reduced because the network said so (ECE), without loss.
    Cwr = 2,
    /// Fast recovery.
    Recovery = 3,
    /// A timeout: slow start from one segment.
    Loss = 4,
}

/// Event of the sender other than an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// First transmission when nothing was in flight, `idle_ns` after the last one.
    TxStart {
        /// Time since a segment was last sent.
        idle_ns: u64,
        /// The application was the limit before.
        app_limited: bool,
    },
    /// The window restarts after an idle period (RFC 5681 4.1).
    CwndRestart,
    /// Fast recovery or CWR is complete; the window equals its threshold.
    CompleteCwr,
    /// A timeout.
    Loss,
}
