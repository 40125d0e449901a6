//! Pending work and its order: transmit lists, segments without a connection, the timer wheel, and
//! departure times of paced data.

pub(crate) mod control_queue;
pub(crate) mod pacing;
pub(crate) mod timers;
pub(crate) mod tx_lists;

use ring::huge_pages::PageSource;
use tcp::{Connection, SegmentOut};
use wire::FlowKey;

use self::control_queue::{ControlQueue, ControlSegment};
use self::pacing::DepartureTimes;
use self::timers::Wheel;
use self::tx_lists::TxLists;
use crate::header_fields::HeaderFields;
use crate::limits::Limits;

/// Pending work, and its deadlines.
pub(crate) struct Schedule {
    lists: TxLists,
    /// Segments without a connection, by the port that they leave by. The first queue also holds
    /// those not sorted yet.
    control: Vec<ControlQueue>,
    /// Timers: one per socket, then one per half-open handshake.
    wheel: Wheel,
    departures: DepartureTimes,
    sockets_max: u32,
}

/// The owner of a timer of the wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerOf {
    Connection(u32),
    HalfOpen(u32),
}

impl Schedule {
    pub fn new(limits: &Limits, ports: usize, now_ns: u64, source: &mut PageSource) -> Self {
        let control = |_| ControlQueue::new(limits.control_queue_max);
        Self {
            lists: TxLists::new(limits.sockets_max, ports, source),
            control: (0..ports).map(control).collect(),
            wheel: Wheel::new(limits.sockets_max + limits.half_open_max, now_ns, source),
            departures: DepartureTimes::new(limits.sockets_max),
            sockets_max: limits.sockets_max as u32,
        }
    }

    /// The transmit lists.
    #[inline(always)]
    pub fn lists(&self) -> &TxLists {
        &self.lists
    }

    /// The transmit lists, to change them.
    #[inline(always)]
    pub fn lists_mut(&mut self) -> &mut TxLists {
        &mut self.lists
    }

    /// Notes a connection's deadline: departures of paced data and SACKs to the nanosecond,
    /// everything else in the wheel.
    #[inline(always)]
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

    /// Queues a segment without a connection, such as the answer to another segment.
    #[inline]
    pub fn reply(&mut self, key: &FlowKey, segment: &SegmentOut, header: HeaderFields) {
        self.control[0].push(key, segment, header);
    }

    /// The queue of segments without a connection for `port`.
    #[inline]
    pub fn control(&mut self, port: u8) -> &mut ControlQueue {
        &mut self.control[usize::from(port)]
    }

    /// The fullest queue of segments without a connection.
    pub fn fullest_control(&self) -> &ControlQueue {
        let fullest = self.control[1..].iter();
        fullest.fold(&self.control[0], |most, queue| {
            match queue.room() < most.room() {
                true => queue,
                false => most,
            }
        })
    }

    /// Number of waiting segments without a connection.
    pub fn control_waiting(&self) -> usize {
        self.control.iter().map(ControlQueue::len).sum()
    }

    /// Number of segments without a connection that found no room.
    pub fn control_refused(&self) -> u64 {
        self.control.iter().map(ControlQueue::refused).sum()
    }

    /// Moves new segments without a connection to the queues of the ports that `port_of` returns.
    #[cold]
    pub fn sort_control(&mut self, mut port_of: impl FnMut(&ControlSegment) -> Option<u8>) {
        for _ in 0..self.control[0].len() {
            let Some(one) = self.control[0].take_first() else {
                return;
            };
            if let Some(port) = port_of(&one) {
                self.control[usize::from(port)].push(&one.key, &one.segment, one.header);
            }
        }
    }

    /// A segment without a connection waits to leave by `port`.
    #[inline]
    pub fn has_control(&self, port: u8) -> bool {
        !self.control[usize::from(port)].is_empty()
    }

    /// True if something is ready to leave by `port`.
    pub fn has_output(&self, port: u8) -> bool {
        !self.lists.is_empty(port) || self.has_control(port)
    }

    /// Takes a socket off its list and stops its timers.
    pub fn forget(&mut self, socket: u32) {
        self.lists.forget(socket);
        self.wheel.stop(socket);
        self.departures.stop(socket);
    }

    /// A connection whose paced data or SACK may depart by now.
    #[inline]
    pub fn next_departure(&mut self, now_ns: u64) -> Option<u32> {
        self.departures.poll(now_ns)
    }

    /// The owner of a timer of the wheel that is due.
    #[inline]
    pub fn next_timer(&mut self, now_ns: u64) -> Option<TimerOf> {
        let entry = self.wheel.poll(now_ns)?;
        Some(match entry.checked_sub(self.sockets_max) {
            None => TimerOf::Connection(entry),
            Some(index) => TimerOf::HalfOpen(index),
        })
    }

    /// Time of the next departure, ns.
    pub fn departure_ns(&self) -> Option<u64> {
        self.departures.next_ns()
    }

    /// Time of the next timer of the wheel, ns.
    pub fn timer_ns(&self) -> Option<u64> {
        self.wheel.next_ns()
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
