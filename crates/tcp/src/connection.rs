//! The connection: its variables, and the calls that the stack makes.
//!
//! Call order in a turn: (1) `on_segment` for what arrived, (2) `on_write`, `on_read`, `shutdown_write`,
//! `close`, `abort` for what the application did, (3) `on_timer` for what is due, (4) `poll_transmit`
//! until it returns false, then `deadline_ns()` to arm the timer. Calls (1) to (3) return [`Effects`].
//!
//! * After `Effects::WRITABLE`, first let `take_acked()` bytes leave the send buffer; `on_write`'s count
//!   starts at SND.UNA.
//! * `Effects::TIMER` tells of a deadline that came nearer. A deadline that moved away is not told: a
//!   timer that fires early does no harm, `on_timer` answers with `TIMER` again.
//! * `Effects::CLOSED` together with `TRANSMIT`: poll the last segment, then remove the connection.

use wire::SeqNumber;

use crate::challenge::ChallengeLimiter;
use crate::config::Config;
use crate::counters::Counters;
use crate::effects::Effects;
use crate::handshake::{Handshake, TimeWaitEntry};
use crate::info::Info;
use crate::recv_buffer::RecvBuffer;
use crate::segment::{Segment, SegmentOut, TransmitClass};
use crate::state::{ConnectionError, IcmpError, State};

/// What every call needs of its surroundings.
#[derive(Debug)]
pub struct Cx<'a> {
    /// The time of this turn.
    pub now_ns: u64,
    /// Settings of the stack.
    pub config: &'a Config,
    /// The stack's limit on challenge ACKs.
    pub challenge: &'a mut ChallengeLimiter,
    /// The stack's counters.
    pub counters: &'a mut Counters,
}

/// Parameters of an active open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveOpen {
    /// Initial sequence number (RFC 6528).
    pub iss: SeqNumber,
    /// Added to our clock in milliseconds to give our timestamp values.
    pub ts_offset: u32,
    /// Our MSS: link MTU less IP and TCP headers.
    pub mss: u16,
    /// The peer's MSS if its SYN names none: 536 over IPv4, 1220 over IPv6 (RFC 9293 MUST-15).
    pub mss_default: u16,
    /// Free bytes in the receive buffer.
    pub recv_space: u32,
    /// What the receive buffer may grow to; chooses the window shift.
    pub recv_buffer_max: u32,
}

/// Keep-alive settings of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Idle time before the first probe.
    pub idle_ns: u64,
    /// Time between probes.
    pub interval_ns: u64,
    /// Unanswered probes before the connection fails.
    pub probes_max: u8,
}

/// One TCP connection.
#[derive(Debug)]
pub struct Connection {
    state: State,
    error: Option<ConnectionError>,
}

impl Connection {
    /// Active open (RFC 9293 3.10.1): SYN_SENT, a SYN is due.
    #[must_use]
    pub fn connect(_cx: &mut Cx<'_>, _open: &ActiveOpen) -> Self {
        Connection {
            state: State::SynSent,
            error: None,
        }
    }

    /// A completed passive handshake: ESTABLISHED. Give the completing segment to `on_segment` next.
    #[must_use]
    pub fn accept(_cx: &mut Cx<'_>, _handshake: &Handshake, _recv_space: u32) -> Self {
        Connection {
            state: State::Established,
            error: None,
        }
    }

    /// The segment is the next in order and nothing stands in its way: the caller may copy its payload
    /// to the unpublished tail of the receive buffer while it verifies the checksum.
    #[must_use]
    pub fn expects(&self, _seg: &Segment) -> bool {
        false
    }

    /// A segment arrives (RFC 9293 3.10.7).
    pub fn on_segment(
        &mut self,
        _cx: &mut Cx<'_>,
        _seg: &Segment,
        _rx: &mut impl RecvBuffer,
    ) -> Effects {
        Effects::NONE
    }

    /// An ICMP error quotes a segment of ours with sequence number `quoted_seq`.
    pub fn on_icmp_error(
        &mut self,
        _cx: &mut Cx<'_>,
        _kind: IcmpError,
        _quoted_seq: SeqNumber,
    ) -> Effects {
        Effects::NONE
    }

    /// The path takes segments of at most `mss` payload bytes without options: path MTU less headers.
    pub fn on_mtu(&mut self, _cx: &mut Cx<'_>, _mss: u16) -> Effects {
        Effects::NONE
    }

    /// The send buffer holds `buffered` bytes counted from SND.UNA, sent and unsent.
    pub fn on_write(&mut self, _cx: &mut Cx<'_>, _buffered: u32) -> Effects {
        Effects::NONE
    }

    /// The receive buffer offers `recv_space` bytes beyond RCV.NXT.
    pub fn on_read(&mut self, _cx: &mut Cx<'_>, _recv_space: u32) -> Effects {
        Effects::NONE
    }

    /// No more data from the application: a FIN follows what is buffered.
    pub fn shutdown_write(&mut self, _cx: &mut Cx<'_>) -> Effects {
        Effects::NONE
    }

    /// The application is gone: as `shutdown_write`, and orphan rules from now on.
    pub fn close(&mut self, _cx: &mut Cx<'_>) -> Effects {
        Effects::NONE
    }

    /// Ends the connection with a RST where the state asks for one (RFC 9293 3.10.5).
    pub fn abort(&mut self, _cx: &mut Cx<'_>) -> Effects {
        Effects::NONE
    }

    /// TCP_NODELAY: Nagle's algorithm off.
    pub fn set_nodelay(&mut self, _cx: &mut Cx<'_>, _on: bool) -> Effects {
        Effects::NONE
    }

    /// TCP_CORK: hold partial segments, for at most `cork_ns_max`.
    pub fn set_cork(&mut self, _cx: &mut Cx<'_>, _on: bool) -> Effects {
        Effects::NONE
    }

    /// SO_KEEPALIVE with its settings; `None` turns it off.
    pub fn set_keepalive(&mut self, _cx: &mut Cx<'_>, _keepalive: Option<Keepalive>) -> Effects {
        Effects::NONE
    }

    /// TCP_USER_TIMEOUT: how long sent data may stay unacknowledged; 0 = the default rules.
    pub fn set_user_timeout(&mut self, _timeout_ns: u64) {}

    /// When `on_timer` wants to be called; `u64::MAX` = never.
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        u64::MAX
    }

    /// Time has come. Calling early is harmless.
    pub fn on_timer(&mut self, _cx: &mut Cx<'_>) -> Effects {
        Effects::NONE
    }

    /// What `poll_transmit` would send first.
    #[must_use]
    pub fn transmit_class(&self, _cx: &Cx<'_>) -> TransmitClass {
        TransmitClass::None
    }

    /// The next segment to send, at most one MSS; false when there is none.
    pub fn poll_transmit(&mut self, _cx: &mut Cx<'_>, _out: &mut SegmentOut) -> bool {
        false
    }

    /// Payload bytes acknowledged since the last call: they leave the send buffer.
    #[must_use]
    pub fn take_acked(&mut self) -> u32 {
        0
    }

    /// State of the connection.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Why it failed, once it has.
    #[must_use]
    pub fn error(&self) -> Option<ConnectionError> {
        self.error
    }

    /// SND.UNA
    #[must_use]
    pub fn una(&self) -> SeqNumber {
        SeqNumber(0)
    }

    /// SND.NXT: nothing at or beyond it was ever sent.
    #[must_use]
    pub fn nxt(&self) -> SeqNumber {
        SeqNumber(0)
    }

    /// RCV.NXT
    #[must_use]
    pub fn rcv_nxt(&self) -> SeqNumber {
        SeqNumber(0)
    }

    /// Sequence numbers in flight: SND.NXT - SND.UNA.
    #[must_use]
    pub fn unacked(&self) -> u32 {
        0
    }

    /// Largest payload of a segment sent now.
    #[must_use]
    pub fn send_mss(&self) -> u16 {
        0
    }

    /// Both sides know each other's sequence numbers.
    #[must_use]
    pub fn is_synchronized(&self) -> bool {
        self.state.is_synchronized()
    }

    /// The application closed it.
    #[must_use]
    pub fn is_orphan(&self) -> bool {
        false
    }

    /// In TIME_WAIT: what a compact entry needs to take over. `None` in any other state.
    #[must_use]
    pub fn time_wait(&self) -> Option<TimeWaitEntry> {
        None
    }

    /// Values in the manner of `tcp_info`.
    #[must_use]
    pub fn info(&self) -> Info {
        unimplemented!()
    }
}
