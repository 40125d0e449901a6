//! Segments of flows in TIME_WAIT, or in FIN_WAIT_2 without an application. A SYN may begin a new
//! connection in the place of such an entry (RFC 6191).

use packetio::RxFrame;
use tcp::time_wait::TimeWaitOutcome;

use crate::arrivals::demux::Arrival;
use crate::core::{Core, tcp_cx};
use crate::flows::half_opens::ListenerId;
use crate::flows::listeners::Listener;
use crate::header_fields::HeaderFields;

impl Core {
    pub(crate) fn time_wait_in(&mut self, index: u32, arrival: &mut Arrival, frame: &RxFrame) {
        if !self.is_whole(arrival, frame) {
            return;
        }
        let Some(slot) = self.time_waits.at_mut(index) else {
            return;
        };
        let (deadline_ns, in_fin_wait_2) = (slot.entry.deadline_ns(), slot.entry.is_fin_wait_2());
        let outcome = slot.entry.on_segment(&mut tcp_cx!(self), &arrival.segment);
        let entered = in_fin_wait_2 && !slot.entry.is_fin_wait_2();
        let restarted = slot.entry.deadline_ns() != deadline_ns;
        match outcome {
            TimeWaitOutcome::Drop => {}
            TimeWaitOutcome::Ack(ack) => {
                let header = HeaderFields::of_answer(slot.dscp);
                self.reply(&arrival.key, &ack, header);
            }
            TimeWaitOutcome::Gone => {
                self.remove_time_wait(index);
                return;
            }
            TimeWaitOutcome::Reset => {
                self.remove_time_wait(index);
                return self.refuse(arrival);
            }
            TimeWaitOutcome::Reuse { syn, iss_floor } => {
                let Some(listener) = self
                    .listeners
                    .find(arrival.key.local, arrival.key.local_port)
                else {
                    return self.refuse_reuse(index, arrival);
                };
                if !self.may_reopen(listener) {
                    return;
                }
                self.remove_time_wait(index);
                self.counters.time_wait_reused += 1;
                let iss = self.isn.isn_above(&arrival.key, self.now_ns, iss_floor);
                let open = self.passive_open(listener, &arrival.key, iss);
                return self.shake_hands(listener, arrival, frame, (&syn, &open));
            }
        }
        if entered {
            self.time_waits.entered_time_wait(index);
        } else if restarted {
            self.time_waits.restarted(index);
        }
    }

    /// Whether there is room for a connection to begin in the place of an entry in TIME_WAIT; else the SYN is dropped and the entry stays. Its numbers must lie above
    /// the old ones (RFC 6191 2), which no cookie's do: there is none, however many handshakes the listener has (Linux).
    #[cold]
    fn may_reopen(&mut self, listener: ListenerId) -> bool {
        self.counters.syn_received += 1;
        if self.half_opens.is_full() {
            self.counters.half_open_full += 1;
            return false;
        }
        let has_room = (self.listeners.at_mut(listener)).is_some_and(Listener::has_room);
        self.counters.syn_drop_accept_queue_full += u64::from(!has_room);
        has_room
    }

    /// Only a listener can take a flow over. Without one the entry stays, for a SYN to nobody proves nothing, and answers as to an old one (Linux).
    #[cold]
    fn refuse_reuse(&mut self, index: u32, arrival: &Arrival) {
        let Some(slot) = self.time_waits.at_mut(index) else {
            return;
        };
        if let TimeWaitOutcome::Ack(ack) = slot.entry.challenge(&mut tcp_cx!(self)) {
            let header = HeaderFields::of_answer(slot.dscp);
            self.reply(&arrival.key, &ack, header);
        }
    }
}
