//! Values that pass between the connection and its compact entries: a completed passive handshake
//! goes into a connection; the remains of a connection in TIME_WAIT, or in FIN_WAIT_2 without an
//! application, come out of it.

use wire::SeqNumber;

use crate::ecn::EcnGrant;

/// The window shifts of both sides, if both offered one (RFC 7323 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowScales {
    /// Shift of the windows that we advertise, at most 14.
    pub ours: u8,
    /// Shift of the windows that the peer advertises, at most 14.
    pub peers: u8,
}

/// All values that an ESTABLISHED connection needs from a completed passive handshake. `half_open`
/// or `syn_cookie` makes them, `Connection::accept` uses them. The caller then gives the segment
/// that completed the handshake to `on_segment` too, since it may carry data or a FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Our initial sequence number.
    pub iss: SeqNumber,
    /// The peer's initial sequence number.
    pub irs: SeqNumber,
    /// The peer's acknowledgment: `iss + 1`, or more when the SYN-ACK carried data.
    pub una: SeqNumber,
    /// The peer's window in bytes, scaled, from the segment that completed the handshake.
    pub snd_wnd: u32,
    /// Our MSS in bytes: link MTU less IP and TCP headers, as our SYN-ACK announced it.
    pub mss: u16,
    /// The peer's MSS option, or the default of the address family (RFC 9293 MUST-15).
    pub peer_mss: u16,
    /// Window shifts, if both sides offered one.
    pub window_scales: Option<WindowScales>,
    /// True if both sides offered selective acknowledgments.
    pub sack: bool,
    /// The kind of ECN that both sides use.
    pub ecn: EcnGrant,
    /// True if both sides offered timestamps.
    pub timestamps: bool,
    /// TS.Recent: the peer's latest timestamp value.
    pub ts_recent: u32,
    /// Added to our clock in milliseconds to give our timestamp values.
    pub ts_offset: u32,
    /// Round trip that the handshake measured; `None` if the SYN-ACK was sent twice (Karn) or
    /// carried a cookie.
    pub rtt_ns: Option<u64>,
    /// The SYN-ACK was retransmitted: the initial congestion window is one segment (RFC 5681 3.1).
    pub syn_ack_lost: bool,
    /// Transmissions of the SYN-ACK.
    pub repetitions: SynAckRepetitions,
}

/// Report of a SYN-ACK that was sent more than once, for `TCP_INFO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SynAckRepetitions {
    /// Number of times that it was sent again.
    pub sent: u8,
    /// Number of times that its timer expired.
    pub timeouts: u8,
    /// Milliseconds from the first transmission to the end of the handshake.
    pub took_ms: u32,
}

/// The remains of a connection in TIME_WAIT, or of one in FIN_WAIT_2 whose application has closed
/// it. `Connection::time_wait` makes them, `time_wait` uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWaitEntry {
    /// True in FIN_WAIT_2: the peer's FIN has not come.
    pub fin_wait_2: bool,
    /// The ACK of the peer's FIN is ECN-capable, like all segments before it (RFC 9768 3.1.5).
    pub ecn_capable: bool,
    /// SND.NXT, after our FIN.
    pub snd_nxt: SeqNumber,
    /// RCV.NXT, after the peer's FIN if it came.
    pub rcv_nxt: SeqNumber,
    /// The window in bytes beyond `rcv_nxt` that was last advertised.
    pub rcv_wnd: u32,
    /// The window field that our ACKs carry, scaled.
    pub window: u16,
    /// Timestamps are in use.
    pub timestamps: bool,
    /// TS.Recent.
    pub ts_recent: u32,
    /// Time at which TS.Recent was last updated, in `limits::coarse` units.
    pub ts_recent_at: u32,
    /// Added to our clock in milliseconds to give our timestamp values.
    pub ts_offset: u32,
    /// Time at which the entry ends, ns.
    pub deadline_ns: u64,
}
