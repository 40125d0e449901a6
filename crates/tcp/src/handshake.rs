//! Values that pass between the connection and its compact entries. A completed passive handshake
//! comes in; the remains of a connection in TIME_WAIT, or in FIN_WAIT_2 without an application, go
//! out.

use wire::SeqNumber;

use crate::ecn::EcnGrant;

/// Both sides' window shifts; present only when both offered one (RFC 7323 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowScales {
    /// Shift of the windows that we advertise, at most 14.
    pub ours: u8,
    /// Shift of the windows that the peer advertises, at most 14.
    pub peers: u8,
}

/// Everything that an ESTABLISHED connection needs from a completed passive handshake. `half_open`
/// or `syn_cookie` makes it, `Connection::accept` uses it. The segment that completed the handshake
/// is then given to `on_segment` as well, since it may carry data or a FIN.
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
    /// Our MSS: link MTU less IP and TCP headers, as our SYN-ACK said.
    pub mss: u16,
    /// The peer's MSS option, or the default of the address family (RFC 9293 MUST-15).
    pub peer_mss: u16,
    /// Window shifts, when both sides offered one.
    pub window_scales: Option<WindowScales>,
    /// True if both sides offered selective acknowledgments.
    pub sack: bool,
    /// The ECN that both sides use.
    pub ecn: EcnGrant,
    /// True if both sides offered timestamps.
    pub timestamps: bool,
    /// TS.Recent: the peer's latest timestamp value.
    pub ts_recent: u32,
    /// Added to our clock in milliseconds to give our timestamp values.
    pub ts_offset: u32,
    /// Round trip measured by the handshake; none when the SYN-ACK was sent twice (Karn) or by
    /// cookie.
    pub rtt_ns: Option<u64>,
    /// The SYN-ACK was retransmitted: the initial congestion window is one segment (RFC 5681 3.1).
    pub syn_ack_lost: bool,
    /// Number of transmissions.
    pub repetitions: SynAckRepetitions,
}

/// `TCP_INFO`'s report of a SYN-ACK that was sent more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SynAckRepetitions {
    /// Times that it was sent again.
    pub sent: u8,
    /// Times that its timer fired.
    pub timeouts: u8,
    /// Milliseconds from the first one to the end of the handshake.
    pub took_ms: u32,
}

/// The remains of a connection in TIME_WAIT, or of one in FIN_WAIT_2 whose application has closed
/// it. `Connection::time_wait` makes it, `time_wait` uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWaitEntry {
    /// The peer's FIN is still to come.
    pub fin_wait_2: bool,
    /// The ACK of that FIN is ECN-capable, as all that left before it (RFC 9768 3.1.5).
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
    /// TS.Recent
    pub ts_recent: u32,
    /// When TS.Recent was last updated, in `limits::coarse` units.
    pub ts_recent_at: u32,
    /// Added to our clock in milliseconds to give our timestamp values.
    pub ts_offset: u32,
    /// When the wait ends.
    pub deadline_ns: u64,
}
