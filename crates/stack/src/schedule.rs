//! Work for later, and in which order: transmit lists, segments without a connection, the timer
//! wheel and the times at which paced data may depart.

pub(crate) mod control_queue;
pub(crate) mod pacing;
pub(crate) mod timers;
pub(crate) mod tx_lists;

use tcp::Connection;

use self::control_queue::ControlQueue;
use self::pacing::DepartureTimes;
use self::timers::Wheel;
use self::tx_lists::TxLists;
use crate::limits::Limits;

/// Pending work, and its deadlines.
pub(crate) struct Schedule {
    pub lists: TxLists,
    pub control: ControlQueue,
    /// A timer for each socket, then one for each half-open handshake.
    pub wheel: Wheel,
    pub departures: DepartureTimes,
    sockets_max: u32,
}

impl Schedule {
    pub fn new(limits: &Limits, now_ns: u64) -> Self {
        Self {
            lists: TxLists::new(limits.sockets_max),
            control: ControlQueue::new(limits.control_queue_max),
            wheel: Wheel::new(limits.sockets_max + limits.half_open_max, now_ns),
            departures: DepartureTimes::new(limits.sockets_max),
            sockets_max: limits.sockets_max as u32,
        }
    }

    /// Notes when a connection wants to be called: for its paced data and its SACKs to the
    /// nanosecond, for all else in the wheel.
    #[inline]
    pub fn note_deadline(&mut self, socket: u32, conn: &Connection) {
        let deadline_ns = conn.deadline_ns();
        if deadline_ns == u64::MAX {
            return;
        }
        if conn.is_deadline_fine() {
            self.departures.set(socket, deadline_ns);
        } else {
            self.wheel.set_at_latest(socket, deadline_ns);
        }
    }

    /// Takes a socket off its list, and stops its timers.
    pub fn forget(&mut self, socket: u32) {
        self.lists.take_out(socket);
        self.wheel.stop(socket);
        self.departures.stop(socket);
    }

    /// Sets the timer of a half-open handshake.
    pub fn set_half_open(&mut self, index: u32, deadline_ns: u64) {
        self.wheel
            .set_at_latest(self.sockets_max + index, deadline_ns);
    }

    /// Stops the timer of a half-open handshake.
    pub fn stop_half_open(&mut self, index: u32) {
        self.wheel.stop(self.sockets_max + index);
    }
}
