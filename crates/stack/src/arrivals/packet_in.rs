//! A batch of frames from the driver, through `demux` to `tcp_in`.
//!
//! Frames are processed in small groups. First the headers of the whole group are read and their
//! flows looked up, so that the connections' cache lines are being fetched before the first segment
//! is processed. Frames are acted on only afterwards, in order.

use packetio::limits::LOCAL_QUEUE_BATCH_MAX;
use packetio::local_queue::LOCAL_MAC;
use packetio::{Port, PortError, RxFrame};
use ring::prefetch::Ahead;
use wire::{MacAddr, plain};

use crate::arrivals::Arrivals;
use crate::arrivals::demux::{Arrival, Demux, Dropped, FrameKind};
use crate::arrivals::frame_order::FrameOrder;
use crate::arrivals::other_in::other_in;
use crate::core::Core;
use crate::counters::Counters;
use crate::departures::PortAcceptance;
use crate::engine::{Engine, Parts, View};
use crate::flows::Flows;
use crate::flows::slot::NO_KEY;
use crate::limits::{
    AHEAD_BYTES_MIN, FLOW_ORDER_BYTES_MIN, INPUT_BACKLOG_NS_MAX, PORT_DEAD_NS, PORT_STUCK_NS,
    PORT_STUCK_REFUSALS, RX_FRAMES_PER_TURN, RX_FRAMES_WAITING_MAX, RX_GROUP,
};
use crate::network::layer::Network;
use crate::schedule::control_queue::ControlQueue;
use crate::stage_clock::Stage;

/// A frame whose headers have been read.
pub(crate) struct Looked {
    arrival: Arrival,
    found: Result<FrameKind, Dropped>,
}

impl Looked {
    pub fn blank() -> Self {
        Self {
            arrival: Arrival::blank(),
            found: Err(Dropped),
        }
    }
}

impl Looked {
    /// True if the frame may belong to the same flow as the TCP segment before it.
    #[inline]
    fn may_follow(&self, before: &Looked) -> bool {
        !matches!(self.found, Ok(FrameKind::Tcp)) || self.arrival.hash == before.arrival.hash
    }
}

impl Arrivals {
    /// Processes the driver's frames, batch after batch, up to a turn's budget. The port lends each
    /// batch until the next one, so nothing here keeps a frame.
    pub(crate) fn packet_in(
        &mut self,
        core: &mut Core,
        port: &mut dyn Port,
        acceptance: &PortAcceptance,
    ) -> Result<usize, PortError> {
        let mut taken = 0;
        let mut looked = std::mem::take(&mut self.looked);
        self.is_input_held = false;
        let mut is_drained = true;
        let batch_max = port.capabilities().batch_max;
        let waiting = port.waiting();
        let frames_max = waiting.clamp(RX_FRAMES_PER_TURN, RX_FRAMES_WAITING_MAX);
        let outcome = loop {
            if holds_input(core.engine(), acceptance, batch_max) {
                self.is_input_held = true;
                let Parts { counters, .. } = core.engine_mut().parts();
                counters.input_held += 1;
                is_drained = false;
                break Ok(());
            }
            let received = match &mut self.drop_notes {
                None => port.receive(),
                Some(notes) => notes.receive(port),
            };
            let frames = match received {
                Ok(frames) => frames,
                Err(error) => break Err(error),
            };
            core.lap(Stage::PacketIn);
            if frames.is_empty() {
                break Ok(());
            }
            taken += frames.len();
            // A batch that is not full has emptied the port, or the port gives no more in one turn.
            // Frames that arrived meanwhile wait for the next turn, so that sender and stack work
            // in parallel (decision 0028).
            let is_all = frames.len() < batch_max;
            // A batch of merged frames is limited by bytes, so more frames may wait even if it is
            // not full.
            let may_lack_some = frames.last().is_some_and(|last| last.segment_bytes() > 0);
            if self.drop_notes.is_none() {
                self.take_batch(core, frames, &mut looked);
            } else {
                self.take_captured(core, frames, &mut looked);
            }
            if let Some(notes) = &self.drop_notes {
                notes.tell(port);
            }
            self.end_run(core.engine_mut());
            if is_all || taken >= frames_max {
                // A port may lend a batch that is not full although more frames wait: AF_XDP lends
                // what it took out of its ring early apart from what lies in the ring.
                is_drained = is_all && !may_lack_some && taken >= waiting;
                break Ok(());
            }
        };
        self.looked = looked;
        self.note_backlog(core.engine().now_ns(), is_drained);
        outcome?;
        port.release();
        core.lap(Stage::PacketIn);
        Ok(taken)
    }

    /// Processes the frames that this stack sent to itself in earlier turns. Frames sent in this
    /// turn wait for the next one, so that the wire gets its share of each turn.
    #[cold]
    pub(crate) fn local_in(&mut self, core: &mut Core, acceptance: &PortAcceptance) -> usize {
        let Parts { network, .. } = core.engine_mut().parts();
        let Some(mut local) = network.take_local() else {
            return 0;
        };
        let mut looked = std::mem::take(&mut self.looked);
        let mut taken = 0;
        self.takes_local = true;
        while !local.is_empty() {
            if holds_input(core.engine(), acceptance, LOCAL_QUEUE_BATCH_MAX) {
                self.is_input_held = true;
                let Parts { counters, .. } = core.engine_mut().parts();
                counters.input_held += 1;
                break;
            }
            let frames = local.receive(LOCAL_QUEUE_BATCH_MAX);
            taken += frames.len();
            self.take_batch(core, frames, &mut looked);
            self.end_run(core.engine_mut());
        }
        self.takes_local = false;
        self.looked = looked;
        local.release();
        let Parts { network, .. } = core.engine_mut().parts();
        network.put_local(local);
        core.lap(Stage::PacketIn);
        taken
    }

    /// Notes whether this turn emptied the port.
    fn note_backlog(&mut self, now_ns: u64, is_drained: bool) {
        match is_drained {
            true => self.backlog_since_ns = None,
            false => {
                self.backlog_since_ns.get_or_insert(now_ns);
            }
        }
    }

    /// True while timers must wait because segments that would stop them may lie in the port. A
    /// thread that was not scheduled for a while finds due timers and more frames than one turn
    /// takes; only the frames tell whether a segment was lost. If the port is never empty, timers
    /// wait [`INPUT_BACKLOG_NS_MAX`] at most.
    pub(crate) fn timers_wait(&self, now_ns: u64) -> bool {
        self.backlog_since_ns
            .is_some_and(|since_ns| now_ns.saturating_sub(since_ns) < INPUT_BACKLOG_NS_MAX)
    }

    /// Processes a batch. Once flows turn out to interleave, the remaining frames are processed
    /// flow by flow.
    pub(super) fn take_batch(
        &mut self,
        core: &mut Core,
        frames: &[RxFrame],
        looked: &mut [Looked],
    ) {
        frames.iter().take(RX_GROUP).for_each(RxFrame::prefetch);
        let bytes = frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        let Parts { counters, .. } = core.engine_mut().parts();
        counters.rx_frames += frames.len() as u64;
        counters.rx_bytes += bytes;
        let orders =
            self.aggregation_max > 1 && bytes >= frames.len() as u64 * FLOW_ORDER_BYTES_MIN;
        let taken = self.take_in_order(core, frames, looked, orders);
        if taken < frames.len() {
            self.take_by_flow(core, &frames[taken..], looked);
        }
    }

    /// Processes frames of interleaved flows.
    #[inline(never)]
    fn take_by_flow(&mut self, core: &mut Core, frames: &[RxFrame], looked: &mut [Looked]) {
        let Some(mut order) = self.flow_order.take() else {
            self.take_in_order(core, frames, looked, false);
            return;
        };
        let mut rest = frames;
        while !rest.is_empty() {
            let line = order.arrange(rest);
            let count = line.len();
            if count > 0 {
                self.take_in_order(core, line, looked, false);
                rest = &rest[count..];
            } else {
                self.take_in_order(core, &rest[..1], looked, false);
                rest = &rest[1..];
            }
        }
        self.flow_order = Some(order);
    }

    /// Processes the frames of a line in order, and returns how many. With `orders` it stops where
    /// flows turn out to interleave.
    fn take_in_order<L: FrameOrder>(
        &mut self,
        core: &mut Core,
        line: L,
        looked: &mut [Looked],
        orders: bool,
    ) -> usize {
        let mut taken = 0;
        // Index of the last parsed frame: sequels are compared with its header.
        let mut last = 0;
        while taken < line.len() {
            let rest = line.behind(taken);
            let sequels = match self.open_run {
                Some(_) => self.take_sequels(core.engine_mut(), &looked[last].arrival, rest),
                None => 0,
            };
            if sequels > 0 {
                core.lap(Stage::TcpIn);
                taken += sequels;
                continue;
            }
            if orders && self.is_interleaved(&looked[last].arrival, rest) {
                break;
            }
            let parts = core.engine_mut().parts();
            let parts = (&*parts.flows, &*parts.network, parts.counters);
            let count = self.look_at(parts, rest, looked);
            core.lap(Stage::Demux);
            let behind = rest.behind(count);
            (0..RX_GROUP)
                .map_while(|at| behind.get(at))
                .for_each(RxFrame::prefetch);
            for at in 0..count {
                let Some(frame) = rest.get(at) else {
                    break;
                };
                let may_go_on = match looked.get(at + 1) {
                    Some(next) if at + 1 < count => next.may_follow(&looked[at]),
                    _ => behind.len() > 0,
                };
                let one = &mut looked[at];
                if one.arrival.segment.len >= AHEAD_BYTES_MIN {
                    self.ahead = rest.get(at + 1).map_or(Ahead::NOTHING, RxFrame::ahead);
                }
                self.act_on(core, frame, one, may_go_on);
            }
            last = count - 1;
            core.lap(Stage::TcpIn);
            taken += count;
        }
        taken
    }

    /// Processes a frame whose headers were read. `may_go_on`: the next frame may continue its run.
    #[inline(always)]
    pub(super) fn act_on(
        &mut self,
        core: &mut Core,
        frame: &RxFrame,
        one: &mut Looked,
        may_go_on: bool,
    ) {
        match &one.found {
            Ok(FrameKind::Tcp) => match frame.segment_bytes() {
                0 => self.tcp_in(core, &mut one.arrival, frame, may_go_on),
                _ => self.merged_in(core, &mut one.arrival, frame, may_go_on),
            },
            Ok(FrameKind::Other(other)) => {
                self.end_run(core.engine_mut());
                other_in(core.split(), frame, other, self.hops > 0);
            }
            Err(Dropped) => {}
        }
    }

    /// True if the next frames interleave: the first one cuts the run of `last` short, or the first
    /// two belong to different flows.
    #[inline]
    fn is_interleaved(&self, last: &Arrival, rest: impl FrameOrder) -> bool {
        let [Some(first), Some(second)] = [rest.get(0), rest.get(1)] else {
            return false;
        };
        self.is_cut_short(last, first) || !plain::have_same_ends(&first.head(), &second.head())
    }

    /// Reads the headers of a group of frames and prefetches their flows; returns the size of the
    /// group. A group ends at a frame whose text seems to continue, because the next frames may be
    /// sequels.
    pub(super) fn look_at(
        &mut self,
        (flows, network, counters): (&Flows, &Network, &mut Counters),
        frames: impl FrameOrder,
        looked: &mut [Looked],
    ) -> usize {
        let mut demux = Demux {
            port: self.port,
            mac: match self.takes_local {
                true => MacAddr(LOCAL_MAC.0),
                false => network.mac(self.port),
            },
            are_local: self.takes_local,
            policy: self.policy,
            addresses: network.addresses(),
            counters,
        };
        let merges = self.aggregation_max > 1;
        let mut count = 0;
        let mut last = (NO_KEY, 0);
        for (at, one) in looked.iter_mut().enumerate() {
            let Some(frame) = frames.get(at) else {
                break;
            };
            count += 1;
            one.found = demux.classify(frame, &mut one.arrival);
            if !matches!(one.found, Ok(FrameKind::Tcp)) {
                // Prevents `take_sequels` from comparing sequels with this frame.
                one.arrival.is_plain = false;
                continue;
            }
            let key = &one.arrival.key;
            if key.remote_port != last.0.remote_port || !key.is_same(&last.0) {
                last = (*key, flows.hash(key));
                flows.prefetch_flow(last.1);
            }
            one.arrival.hash = last.1;
            if merges
                && frames
                    .get(count)
                    .is_some_and(|next| one.arrival.goes_on_in(next))
            {
                break;
            }
        }
        let mut last = (0, None);
        for one in &mut looked[..count] {
            if let Ok(FrameKind::Tcp) = one.found {
                if one.arrival.hash != last.0 {
                    last = (one.arrival.hash, flows.likely_flow(one.arrival.hash));
                    flows.prefetch(last.1);
                }
                one.arrival.likely = last.1;
            }
        }
        count
    }
}

/// True if frames stay with the driver because answers to earlier ones fill their queue. The peer
/// repeats a request only after a second if its answer is dropped; a waiting frame loses nothing.
///
/// Two stacks might hold input for each other. Therefore some frames are taken after a while, as
/// many as the queue can answer: the other end may merely be asleep. After the time that
/// retransmissions take, all frames are taken.
#[inline]
fn holds_input(engine: &Engine, acceptance: &PortAcceptance, batch_max: usize) -> bool {
    let View { env, schedule, .. } = engine.view();
    let control = schedule.fullest_control();
    control.is_half_full() && outweighs_input(control, acceptance, batch_max, env.now_ns)
}

/// True while the waiting answers are worth more than the frames in the driver.
#[cold]
fn outweighs_input(
    control: &ControlQueue,
    acceptance: &PortAcceptance,
    batch_max: usize,
    now_ns: u64,
) -> bool {
    let stuck_ns = match acceptance.refusals >= PORT_STUCK_REFUSALS {
        true => now_ns.saturating_sub(acceptance.took_ns),
        false => 0,
    };
    // A queue shorter than two batches never has room for all answers that a batch may need.
    let spares = control.capacity() >= 2 * batch_max && control.room() < batch_max;
    stuck_ns < PORT_STUCK_NS || (stuck_ns < PORT_DEAD_NS && spares)
}
