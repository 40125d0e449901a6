//! LISTEN (RFC 9293 section 3.10.7.2): the decision about a segment to a listening port, and the
//! contents of a SYN.
//!
//! Stateless. The stack calls [`on_segment`] for a segment that matches a listener and neither a
//! connection nor a compact entry. It then makes a `HalfOpen` of the request, or answers it with a
//! SYN cookie. While cookies are out, the stack checks an ACK against them first, since
//! `on_segment` refuses every ACK.

use wire::SeqNumber;
use wire::tcp::{FastOpenCookie, Flags};

use crate::buffers::{Buffers, InitialWindow};
use crate::config::{Config, CongestionAlgorithm};
use crate::ecn::SynEcn;
use crate::limits::{SEND_MSS_MIN, WINDOW_SHIFT_MAX, timestamp_bytes};
use crate::reset;
use crate::segment::{Segment, SegmentOut};

#[cfg(test)]
mod tests;

/// A listener's decision about a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum ListenOutcome {
    /// Take no action: a RST, a segment without SYN and ACK, or a SYN with FIN.
    Drop,
    /// An ACK of something that was never sent: answer with this RST.
    Reset(SegmentOut),
    /// The segment is a SYN: a connection is requested.
    Syn(SynRequest),
}

/// The contents of a SYN. Its payload is taken only with a good cookie
/// ([`Connection::accept_fast_in`](crate::Connection::accept_fast_in)); otherwise the peer sends it
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynRequest {
    /// The peer's initial sequence number.
    pub irs: SeqNumber,
    /// The peer's window, never scaled in a SYN (RFC 7323 2.2).
    pub window: u16,
    /// The MSS option in bytes; see [`SynRequest::send_mss`].
    pub mss: Option<u16>,
    /// The peer's window shift, 14 at most.
    pub window_scale: Option<u8>,
    /// The peer offers selective acknowledgments.
    pub sack_permitted: bool,
    /// The peer's timestamp value, if it offers timestamps.
    pub timestamp: Option<u32>,
    /// The kind of ECN that is requested (RFC 3168 6.1.1, RFC 9768 3.1).
    pub ecn: SynEcn,
    /// A Fast Open cookie, or the request for one.
    pub fast_open: Option<FastOpenCookie>,
}

impl SynRequest {
    /// The contents of this SYN.
    #[must_use]
    pub fn of(seg: &Segment) -> SynRequest {
        let options = &seg.options;
        SynRequest {
            irs: seg.seq,
            window: seg.window,
            mss: options.mss,
            // A shift above 14 means 14 (RFC 7323 2.3).
            window_scale: options.window_scale.map(|s| s.min(WINDOW_SHIFT_MAX)),
            sack_permitted: options.sack_permitted,
            timestamp: options.timestamp.map(|t| t.value),
            ecn: SynEcn::of(seg),
            fast_open: options.fast_open,
        }
    }

    /// The largest segment that the peer accepts: its option, or the default of the address family
    /// (RFC 9293 MUST-15).
    #[must_use]
    pub fn send_mss(&self, config: &Config, is_v4: bool) -> u16 {
        let default = if is_v4 {
            config.mss_default_v4
        } else {
            config.mss_default_v6
        };
        match self.mss {
            None | Some(0) => default,
            Some(mss) => mss.max(SEND_MSS_MIN),
        }
    }
}

/// Local values for a passive handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassiveOpen {
    /// Our initial sequence number; a cookie replaces it.
    pub iss: SeqNumber,
    /// Added to our clock in milliseconds to give our timestamp values.
    pub ts_offset: u32,
    /// Our MSS in bytes: link MTU less IP and TCP headers.
    pub mss: u16,
    /// The buffers that the connection will begin with.
    pub buffers: Buffers,
    /// True for IPv4; decides the peer's default MSS.
    pub is_v4: bool,
    /// The listener's congestion control. One that needs ECN grants it, whatever the settings say.
    pub congestion: CongestionAlgorithm,
    /// TCP_DEFER_ACCEPT: timeouts for which the handshake waits for data, from [`defer_timeouts`];
    /// 0: off.
    pub defer_accept: u8,
    /// TCP_SYNCNT of the listener: retransmissions of the SYN-ACK; 0: the stack's setting.
    pub retries_max: u8,
}

/// The number of SYN-ACK timeouts that pass in `seconds` (TCP_DEFER_ACCEPT).
#[must_use]
pub fn defer_timeouts(config: &Config, seconds: u32) -> u8 {
    if seconds == 0 {
        return 0;
    }
    let wanted_ns = u64::from(seconds) * crate::SECOND_NS;
    let (mut timeouts, mut wait_ns) = (1u8, config.rto_initial_ns);
    let mut passed_ns = wait_ns;
    while wanted_ns > passed_ns && timeouts < u8::MAX {
        timeouts += 1;
        wait_ns = wait_ns.saturating_mul(2).min(config.rto_ns_max);
        passed_ns = passed_ns.saturating_add(wait_ns);
    }
    timeouts
}

impl PassiveOpen {
    /// The window that our SYN-ACK offers, and its shift.
    pub(crate) fn initial_window(
        &self,
        config: &Config,
        timestamps: bool,
        scaling: bool,
    ) -> InitialWindow {
        let mss = self.mss.saturating_sub(timestamp_bytes(timestamps));
        InitialWindow::new(config, &self.buffers, mss, scaling)
    }
}

/// Decides about a segment by RFC 9293 section 3.10.7.2, first to fourth.
pub fn on_segment(seg: &Segment) -> ListenOutcome {
    if seg.has(Flags::RST) {
        return ListenOutcome::Drop;
    }
    if seg.has(Flags::ACK) {
        return ListenOutcome::Reset(reset::refuse(seg.ack));
    }
    // A SYN with FIN could not become a connection; scanners send it, and Linux drops it.
    if !seg.has(Flags::SYN) || seg.has(Flags::FIN) {
        return ListenOutcome::Drop;
    }
    ListenOutcome::Syn(SynRequest::of(seg))
}
