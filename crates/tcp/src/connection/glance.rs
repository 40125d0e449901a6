//! A short summary of a connection. An observer compares two of them to tell the connection's story
//! (`mill ss -v`).
//!
//! The observer takes one after each call into the connection, so it reads a few fields and stores
//! nothing.

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::recovery::rate::Busy;
use crate::recovery::{CaState, Pending};
use crate::state::State;

/// Values from which a story is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// State of the connection.
    pub state: State,
    /// The episode of congestion control in progress.
    pub episode: Episode,
    /// The limit that keeps data from leaving.
    pub limit: Limit,
    /// Data or a FIN waits to be sent for the first time.
    pub has_unsent: bool,
    /// The window that we advertised has no room for another full segment of the peer.
    pub is_our_window_full: bool,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Segments sent again, in all.
    pub retransmitted: u32,
}

/// An episode of congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Episode {
    /// None: nothing is lost or marked.
    #[default]
    None = 0,
    /// The window shrinks because the network marked segments.
    Marked = 1,
    /// Fast recovery of lost segments.
    Recovery = 2,
    /// Recovery after a retransmission timeout.
    Timeout = 3,
}

/// The limit that keeps a connection from sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Limit {
    /// None: everything that the application wrote has left.
    #[default]
    None = 0,
    /// Our congestion window.
    Congestion = 1,
    /// The peer's receive window.
    PeerWindow = 2,
    /// Our send buffer: all of it is in flight, and the application waits for room.
    SendBuffer = 3,
}

/// A timer of a connection, by its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DueTimer {
    /// Sends the SYN or SYN-ACK again.
    Handshake = 0,
    /// The retransmission timeout.
    Retransmit = 1,
    /// RACK's reordering timer.
    Reorder = 2,
    /// The tail loss probe.
    LossProbe = 3,
    /// The probe of a shut window.
    WindowProbe = 4,
    /// Asks a silent peer whether it is there.
    KeepAlive = 5,
    /// Ends FIN_WAIT_2 or TIME_WAIT.
    Closing = 6,
    /// Sends an acknowledgment that was delayed.
    DelayedAck = 7,
}

impl Connection {
    /// A summary of the connection now.
    #[must_use]
    pub fn glance(&self) -> Glance {
        let episode = match self.flight.recovery().ca_state() {
            CaState::Open | CaState::Disorder => Episode::None,
            CaState::Cwr => Episode::Marked,
            CaState::Recovery => Episode::Recovery,
            CaState::Loss => Episode::Timeout,
        };
        let cwnd = self.flight.congestion().cwnd();
        let unsent = self.snd.unsent(self.state(), self.conn_flags);
        let limit = match self.flight.delivery().busy() {
            Busy::PeerWindow => Limit::PeerWindow,
            Busy::SendBuffer => Limit::SendBuffer,
            _ if unsent > 0 && self.flight.recovery().in_flight() >= cwnd => Limit::Congestion,
            _ => Limit::None,
        };
        let is_receiving = self.state().receives_data();
        Glance {
            state: self.state(),
            episode,
            limit,
            has_unsent: unsent > 0,
            is_our_window_full: is_receiving && self.rcv.wnd() < u32::from(self.rx.peer_segment()),
            cwnd,
            retransmitted: self.flight.delivery().segments_retrans(),
        }
    }

    /// The smoothed round trip in ns; 0: none was measured.
    #[must_use]
    pub fn round_trip_ns(&self) -> u64 {
        self.timers.rtt().srtt_ns()
    }

    /// The timer that [`on_timer`](Self::on_timer) would act upon now. A delayed ACK comes last,
    /// because the other timers matter more to an observer.
    #[must_use]
    pub fn due_timer(&self, now_ns: u64) -> Option<DueTimer> {
        let timers = &self.timers;
        if timers.retransmit_ns() <= now_ns {
            let timer = match (self.state(), self.flight.recovery().pending()) {
                (State::SynSent | State::SynReceived, _) => DueTimer::Handshake,
                _ if self.conn_flags.has(ConnFlags::FAST_OPENED) => DueTimer::Handshake,
                _ if self.conn_flags.has(ConnFlags::PERSIST) => DueTimer::WindowProbe,
                (_, Pending::Timeout) => DueTimer::Retransmit,
                (_, Pending::Reorder) => DueTimer::Reorder,
                (_, Pending::Probe) => DueTimer::LossProbe,
            };
            return Some(timer);
        }
        if timers.slow_ns() <= now_ns {
            let is_closing = matches!(self.state(), State::TimeWait | State::FinWait2);
            let timer = match is_closing && (self.is_orphan() || self.state() == State::TimeWait) {
                true => DueTimer::Closing,
                false => DueTimer::KeepAlive,
            };
            return Some(timer);
        }
        (timers.delayed_ack_ns() <= now_ns).then_some(DueTimer::DelayedAck)
    }
}
