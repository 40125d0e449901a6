//! Segments of flows in TIME_WAIT, or in FIN_WAIT_2 without an application. A SYN may replace such
//! an entry by a new connection (RFC 6191).

use packetio::RxFrame;
use tcp::listen::SynRequest;
use tcp::time_wait::TimeWaitOutcome;
use wire::SeqNumber;

use crate::admission::Admission;
use crate::arrivals::Arrivals;
use crate::arrivals::demux::Arrival;
use crate::arrivals::passive_opens::{passive_open, shake_hands};
use crate::arrivals::tcp_in::{is_whole, refuse};
use crate::counters::Counters;
use crate::engine::Engine;
use crate::flows::Flows;
use crate::flows::half_opens::ListenerId;
use crate::flows::listeners::Listener;
use crate::header_fields::HeaderFields;
use crate::transfer_lists::Transfers;

impl Arrivals {
    pub(crate) fn time_wait_in(
        &mut self,
        (engine, admission): (&mut Engine, &mut Admission),
        index: u32,
        arrival: &mut Arrival,
        frame: &RxFrame,
    ) {
        let parts = engine.parts();
        if !is_whole(parts.counters, arrival, frame) {
            return;
        }
        let Some(slot) = parts.flows.time_wait_mut(index) else {
            return;
        };
        let (deadline_ns, in_fin_wait_2) = (slot.entry.deadline_ns(), slot.entry.is_fin_wait_2());
        let outcome = slot.entry.on_segment(&mut parts.env.cx(), &arrival.segment);
        let entered = in_fin_wait_2 && !slot.entry.is_fin_wait_2();
        let restarted = slot.entry.deadline_ns() != deadline_ns;
        match outcome {
            TimeWaitOutcome::Drop => {}
            TimeWaitOutcome::Ack(ack) => {
                let header = HeaderFields::of_answer(slot.dscp);
                parts.schedule.reply(&arrival.key, &ack, header);
            }
            TimeWaitOutcome::Gone => {
                parts.flows.remove_time_wait(index);
                return;
            }
            TimeWaitOutcome::Reset => {
                parts.flows.remove_time_wait(index);
                return refuse(parts.schedule, parts.counters, arrival);
            }
            TimeWaitOutcome::Reuse { syn, iss_floor } => {
                return self.reopen(
                    (engine, admission),
                    index,
                    arrival,
                    frame,
                    (&syn, iss_floor),
                );
            }
        }
        if entered {
            parts.flows.entered_time_wait(index);
        } else if restarted {
            parts.flows.restarted_time_wait(index);
        }
    }

    /// Begins a handshake for a SYN that reuses an entry in TIME_WAIT, here or in another context.
    /// Nothing begins if no socket listens or there is no room.
    fn reopen(
        &mut self,
        (engine, admission): (&mut Engine, &mut Admission),
        index: u32,
        arrival: &mut Arrival,
        frame: &RxFrame,
        (syn, iss_floor): (&SynRequest, SeqNumber),
    ) {
        let parts = engine.parts();
        let (ip, port) = (arrival.key.local, arrival.key.local_port);
        let Some(listener) = parts.flows.listeners().find(ip, port, arrival.hash) else {
            if let Some(mesh) = admission.mesh()
                && self.hand_reuse_over((parts.flows, parts.counters), mesh, index, arrival, frame)
            {
                return;
            }
            return refuse_reuse(engine, admission.transfers_mut(), index, arrival);
        };
        let (rules, now_ns) = (admission.rules_mut(), parts.env.now_ns);
        if self.is_refused((parts.schedule, parts.counters), rules, arrival, now_ns) {
            return;
        }
        if !may_reopen(parts.flows, parts.counters, listener) {
            return;
        }
        parts.flows.remove_time_wait(index);
        parts.counters.time_wait_reused += 1;
        let iss = admission
            .isn()
            .isn_above(&arrival.key, parts.env.now_ns, iss_floor);
        let open = passive_open(engine, admission.isn(), listener, &arrival.key, iss);
        let keys = admission.fast_open_keys();
        shake_hands((engine, keys), listener, arrival, frame, (syn, &open));
    }
}

/// True if a new connection has room to replace an entry in TIME_WAIT. Otherwise the SYN is dropped
/// and the entry stays. A cookie would not help: new sequence numbers must lie above the old ones
/// (RFC 6191 section 2; Linux does the same).
#[cold]
fn may_reopen(flows: &mut Flows, counters: &mut Counters, listener: ListenerId) -> bool {
    counters.syn_received += 1;
    if flows.half_opens().is_full() {
        counters.half_open_full += 1;
        return false;
    }
    let has_room = (flows.listeners_mut().at_mut(listener)).is_some_and(Listener::has_room);
    counters.syn_drop_accept_queue_full += u64::from(!has_room);
    has_room
}

/// Answers a SYN for a flow in TIME_WAIT for which no socket listens. The entry stays, because such
/// a SYN proves nothing, and sends the ACK due to an old segment (Linux). At a place left to other
/// processes nothing is sent, because an answer would claim the flow for this stack.
#[cold]
fn refuse_reuse(engine: &mut Engine, transfers: &mut Transfers, index: u32, arrival: &Arrival) {
    let parts = engine.parts();
    if transfers.take_stray(&arrival.key) {
        parts.counters.transfers_quiet += 1;
        return;
    }
    let Some(slot) = parts.flows.time_wait_mut(index) else {
        return;
    };
    if let TimeWaitOutcome::Ack(ack) = slot.entry.challenge(&mut parts.env.cx()) {
        let header = HeaderFields::of_answer(slot.dscp);
        parts.schedule.reply(&arrival.key, &ack, header);
    }
}
