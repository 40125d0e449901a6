//! The timer stage of a turn: what is due in the wheel, who may depart, the list of TIME_WAIT
//! entries, the neighbour cache, and memory that nobody uses.

use crate::core::{Core, tcp_cx};
use crate::limits::{EVENTS_RETRY_NS, INPUT_RETRY_NS, TIMERS_PER_TURN};

/// From here on the uses of the stack's secrets are those of cookies, one after another.
const SECRET_COOKIES: u64 = 1 << 32;

/// Timeouts in a row after which the neighbour is doubted: R1 of RFC 9293 3.8.3.
const DOUBTFUL_BACKOFF: u8 = 3;

impl Core {
    /// Fires what is due, up to a turn's budget.
    pub(crate) fn timers(&mut self) {
        for _ in 0..TIMERS_PER_TURN {
            let Some(socket) = self.departures.poll(self.now_ns) else {
                break;
            };
            self.connection_timer(socket);
        }
        if self.timers_wait() {
            self.counters.timers_waited += 1;
        } else {
            self.timers_of_the_wheel();
        }
        for _ in 0..TIMERS_PER_TURN {
            let Some(index) = self.time_waits.due(self.now_ns) else {
                break;
            };
            let gave_up = self.remove_time_wait(index);
            self.tcp_counters.fin_wait_2_expired += u64::from(gave_up);
        }
        if self.cookies.is_worn(self.now_ns) {
            // From the seed, so that a simulation repeats itself; nobody outside can know it from its predecessors.
            self.cookie_secrets += 1;
            let key = self.secrets.key(SECRET_COOKIES + self.cookie_secrets);
            self.cookies.rotate(key, self.now_ns);
        }
        if self.now_ns >= self.memory_rounds.next_ns {
            self.memory_round();
        }
    }

    /// What concludes from silence: retransmission, probes, delayed ACKs, keep-alive, handshakes and the neighbour cache.
    fn timers_of_the_wheel(&mut self) {
        for _ in 0..TIMERS_PER_TURN {
            let Some(entry) = self.wheel.poll(self.now_ns) else {
                break;
            };
            match entry.checked_sub(self.config.limits.sockets_max as u32) {
                None => self.connection_timer(entry),
                Some(index) => self.half_open_due(index),
            }
        }
        self.neighbour_timers();
    }

    /// When the timer stage has something to do next.
    pub(crate) fn next_timer_ns(&self) -> Option<u64> {
        let neighbours_ns =
            Some(self.network.neighbours.deadline_ns()).filter(|&ns| ns != u64::MAX);
        let time_wait_ns = self.time_waits.next_ns();
        let events_ns = self
            .events
            .is_behind()
            .then(|| self.now_ns + EVENTS_RETRY_NS);
        let held_ns = self.is_input_held.then(|| self.now_ns + INPUT_RETRY_NS);
        let departure_ns = self.departures.next_ns();
        if self.timers_wait() {
            let backlog_ns = Some(self.now_ns + INPUT_RETRY_NS);
            let due_ns = [departure_ns, time_wait_ns, events_ns, backlog_ns];
            return due_ns.into_iter().flatten().min();
        }
        let wheel_ns = self.wheel.next_ns();
        [
            wheel_ns,
            departure_ns,
            neighbours_ns,
            time_wait_ns,
            events_ns,
            held_ns,
            self.memory_round_ns(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn connection_timer(&mut self, socket: u32) {
        let waits = self.timers_wait();
        let Some(conn) = self.sockets.slot(socket).conn.as_mut() else {
            return;
        };
        let deadline_ns = conn.deadline_ns();
        if deadline_ns > self.now_ns {
            // The deadline moved on since the wheel was set.
            return self.arm(socket);
        }
        self.counters.timers_fired += 1;
        let backoff = conn.backoff();
        let effects = match waits {
            true => conn.on_departure(&mut tcp_cx!(self)),
            false => conn.on_timer(&mut tcp_cx!(self)),
        };
        // RFC 9293 MUST-20: the network layer hears of excessive retransmission, and asks its neighbour whether it is there. Doublings stay until a round trip was
        // measured: other timers, such as keep-alive's, say nothing by them.
        let has_doubled = conn.backoff() > backoff || backoff == u8::MAX;
        let is_excessive = has_doubled && conn.backoff() >= DOUBTFUL_BACKOFF;
        self.arm(socket);
        if is_excessive && let Some(id) = self.sockets.slot(socket).neighbour {
            self.network.neighbours.doubt(id);
        }
        self.settle(socket, effects);
    }

    fn half_open_due(&mut self, index: u32) {
        let Some(slot) = self.half_opens.at_mut(index) else {
            return;
        };
        let outcome = slot.entry.on_timer(&mut tcp_cx!(self));
        self.settle_half_open(index, outcome, 0);
    }
}
