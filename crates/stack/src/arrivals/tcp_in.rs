//! One pass for each TCP segment of a batch: does it continue the current run, who owns it, is its
//! checksum right, how does the connection process it, does the run continue.
//!
//! # Runs
//!
//! Consecutive in-order packets of one flow in a batch visit their connection once (Menon and
//! Zwaenepoel, "Optimizing TCP Receive Performance", USENIX ATC 2008). A run takes
//!
//! * data with ACK, or with ACK and PSH: next in sequence, with an ACK number that does not go
//!   back, the same ECN codepoint, no IP options and no TCP option but timestamps;
//! * pure ACKs, each of which acknowledges something new.
//!
//! Every other segment passes alone, in its order: duplicates, SACKs, segments out of order. The
//! connection processes each segment's ACK number, timestamp and length separately ([`tcp::run`]).
//! ACKs that fall due within a run become a train ([`ack_trains`](crate::departures::ack_trains)).
//! Congestion control on both sides behaves as without runs. A run saves repeated work per visit:
//! finding the flow, planning output, timers, events.
//!
//! Interleaved flows of a batch are processed flow by flow
//! ([`frame_order`](crate::arrivals::frame_order)), so that each flow forms one run.
//!
//! A run ends with the batch at the latest: nothing ever waits to be merged.
//! [`StackConfig::aggregation_max`](crate::StackConfig) bounds it; 1 turns runs off.
//!
//! # Checksums
//!
//! A segment's sequence and ACK numbers are believed only once its checksum is verified. The
//! payload of a connection's next in-order segment is copied to the unpublished tail of the receive
//! ring in the same pass that sums it. It is published only if the sum is right. Every other
//! segment is summed in place first.

use std::ops::Range;

use packetio::{ChecksumPolicy, RxChecksum, RxFrame};
use ring::checksum::sum_raw;
use ring::prefetch::Ahead;
use ring::raw::RawSlice;
use tcp::run::Run;
use tcp::{Connection, Cx, Effects, SegmentOut};
use wire::checksum::Sum;
use wire::plain::{self, Sequel};
use wire::tcp::Flags;
use wire::{Ecn, FlowKey, SeqNumber};

use crate::arrivals::Arrivals;
use crate::arrivals::demux::{Arrival, Unverified};
use crate::arrivals::frame_order::FrameOrder;
use crate::core::Core;
use crate::counters::Counters;
use crate::departures::ack_trains::{AckTrains, Train};
use crate::departures::tcp_out::ready_link;
use crate::effects::{apply_effects, apply_unusual, effect_targets};
use crate::engine::{Engine, Parts};
use crate::flows::flow_table::FlowEntry;
use crate::flows::rx_sink::RxSink;
use crate::header_fields::HeaderFields;
use crate::network::layer::Network;
use crate::network::neighbours::NeighbourId;
use crate::schedule::Schedule;
use crate::shortcuts;

/// Effects of a segment that do not end its run.
const WITHIN_RUN: Effects = Effects::READABLE.union(Effects::WRITABLE);

/// The current run.
pub(crate) struct OpenRun {
    socket: u32,
    key: FlowKey,
    run: Run,
    effects: Effects,
    segments: u16,
    /// Sequence number that the next segment of the run must have.
    next: SeqNumber,
    /// Lowest ACK number that the next segment of the run may have.
    ack: SeqNumber,
    ecn: Ecn,
    has_timestamp: bool,
}

impl OpenRun {
    /// The segment in a frame, if it continues the run: whether its checksum was verified, and its
    /// payload.
    #[inline(always)]
    fn sequel_in<'f>(
        &self,
        frame: &'f RxFrame,
        last: &Arrival,
        policy: ChecksumPolicy,
    ) -> Option<(bool, Sequel, RawSlice<'f>)> {
        let is_verified = is_verified(frame, policy)?;
        let sequel = Sequel::read(&last.head, &frame.head(), frame.len())?;
        let payload = frame.slice(sequel.payload_at, sequel.payload_len as usize)?;
        let is_next = sequel.seq == self.next && sequel.ack == self.ack;
        is_next.then_some((is_verified, sequel, payload))
    }

    #[inline]
    fn new(socket: u32, arrival: &Arrival, run: Run, effects: Effects) -> Self {
        Self {
            socket,
            key: arrival.key,
            run,
            effects,
            segments: 1,
            next: arrival.segment.end(),
            ack: arrival.segment.ack,
            ecn: arrival.segment.ecn,
            has_timestamp: arrival.segment.options.timestamp.is_some(),
        }
    }

    #[inline]
    fn continues_with(&self, arrival: &Arrival) -> bool {
        let segment = &arrival.segment;
        segment.seq == self.next
            && arrival.key.is_same(&self.key)
            && is_mergeable(arrival)
            && (segment.ack.gt(self.ack) || (segment.ack == self.ack && segment.len > 0))
            && segment.ecn == self.ecn
            && segment.options.timestamp.is_some() == self.has_timestamp
    }

    /// Adds a segment to the run.
    #[inline]
    fn add(&mut self, arrival: &Arrival, effects: Effects) {
        self.segments += 1;
        self.next = arrival.segment.end();
        self.ack = arrival.segment.ack;
        self.effects |= effects;
    }
}

impl Arrivals {
    /// Delivers one segment to its owner. `may_go_on`: the next frame may continue its run.
    #[inline(always)]
    pub(crate) fn tcp_in(
        &mut self,
        core: &mut Core,
        arrival: &mut Arrival,
        frame: &RxFrame,
        may_go_on: bool,
    ) {
        let (engine, admission) = core.split();
        if let Some(open) = &self.open_run {
            if open.segments < self.aggregation_max && open.continues_with(arrival) {
                return self.segment_in(engine, open.socket, arrival, frame, true);
            }
            self.end_run(engine);
        }
        let Parts { flows, .. } = engine.parts();
        let found = match arrival.likely {
            Some(entry) if shortcuts::are_taken() && flows.holds(entry, &arrival.key) => {
                Some(entry)
            }
            _ => flows.find(&arrival.key, arrival.hash),
        };
        match found {
            Some(FlowEntry::Connection(socket)) => {
                self.segment_in(engine, socket, arrival, frame, may_go_on);
            }
            Some(FlowEntry::HalfOpen(index)) => {
                self.half_open_in((engine, admission), index, arrival, (frame, may_go_on));
            }
            Some(FlowEntry::TimeWait(index)) => {
                self.time_wait_in((engine, admission), index, arrival, frame)
            }
            None => self.stranger_in((engine, admission), arrival, frame),
        }
    }

    /// Processes a segment of a connection: it continues the current run, begins a new one, or is
    /// handled alone.
    pub(crate) fn segment_in(
        &mut self,
        engine: &mut Engine,
        socket: u32,
        arrival: &Arrival,
        frame: &RxFrame,
        may_go_on: bool,
    ) {
        let mut parts = engine.parts();
        let Some(payload) = frame.slice(arrival.payload_at as usize, arrival.segment.len as usize)
        else {
            parts.counters.rx_drop_tcp_header += 1;
            return;
        };
        let (mut slot, mut pool, mut block) = parts.flows.socket_parts(socket);
        if slot.conn.as_ref().is_some_and(Connection::has_ack_due) {
            self.take_due_ack(engine, socket);
            parts = engine.parts();
            (slot, pool, block) = parts.flows.socket_parts(socket);
        }
        let Some(conn) = slot.conn.as_mut() else {
            return;
        };
        let mut sink = RxSink::new(&mut slot.rx, pool, block, payload);
        if let Some(unverified) = arrival.unverified {
            if shortcuts::are_taken() && conn.expects(&arrival.segment) {
                let sum = sink.copy_in_order(self.ahead);
                if !unverified.holds_with(sum) {
                    sink.clear_tail();
                    parts.counters.rx_drop_tcp_checksum += 1;
                    return;
                }
                parts.counters.rx_fused_bytes += u64::from(arrival.segment.len);
            } else if !unverified.holds_with(sum_of(payload)) {
                parts.counters.rx_drop_tcp_checksum += 1;
                return;
            } else {
                parts.counters.rx_verified_bytes += u64::from(arrival.segment.len);
            }
        }
        let run = conn.begin_run();
        let mut cx = parts.env.cx();
        let effects = conn.on_segment_of_run(&mut cx, &arrival.segment, &mut sink);
        sink.clear_tail();
        parts.counters.rx_no_buffer += u64::from(sink.starved);
        if effects.contains(Effects::CONNECTED)
            && let Some(reply) = conn.fast_open_reply(&arrival.segment)
        {
            (parts.network.destinations_mut()).learn_fast_open(arrival.key.remote, &reply);
        }
        let goes_on = effects.without(WITHIN_RUN).is_empty();
        if let Some(open) = &mut self.open_run {
            parts.counters.rx_merged += u64::from(arrival.segment.len > 0);
            open.add(arrival, effects);
            if !goes_on {
                self.end_run(engine);
            }
            return;
        }
        if goes_on && may_go_on && self.aggregation_max > 1 && is_mergeable(arrival) {
            self.open_run = Some(OpenRun::new(socket, arrival, run, effects));
            return;
        }
        let effects = conn.end_run(&mut cx, effects, run);
        let targets = effect_targets!(parts);
        if !targets.apply_usual(socket, (slot, pool, block), effects) {
            apply_unusual(engine, socket, effects);
        }
    }

    /// True if the current run is cut short: this frame belongs to another flow than `last`, the
    /// run's last parsed segment.
    #[inline]
    pub(crate) fn is_cut_short(&self, last: &Arrival, frame: &RxFrame) -> bool {
        (self.open_run.as_ref()).is_some_and(|open| open.segments < self.aggregation_max)
            && !plain::have_same_ends(&last.head, &frame.head())
    }

    /// Ends the current run, if there is one.
    #[inline]
    pub(crate) fn end_run(&mut self, engine: &mut Engine) {
        let Parts { env, flows, .. } = engine.parts();
        if let Some(open) = &self.open_run {
            let (socket, run, effects) = (open.socket, open.run, open.effects);
            self.open_run = None;
            let Some(conn) = flows.slot(socket).conn.as_mut() else {
                return;
            };
            let effects = conn.end_run(&mut env.cx(), effects, run);
            apply_effects(engine, socket, effects);
        }
    }

    /// Processes the sequels at the front of `frames`: segments that continue the current run and
    /// differ only in payload and perhaps timestamp. Their headers are compared with that of
    /// `last`, the run's last parsed segment.
    ///
    /// Returns the number of frames processed. The frame behind them is untouched and goes to
    /// `tcp_in`.
    #[inline]
    pub(crate) fn take_sequels(
        &mut self,
        engine: &mut Engine,
        last: &Arrival,
        frames: impl FrameOrder,
    ) -> usize {
        let Some(open) = self.open_run.as_ref().filter(|_| last.is_plain) else {
            return 0;
        };
        let socket = open.socket;
        let room = self.aggregation_max.saturating_sub(open.segments);
        let most = usize::from(room);
        let (mut taken, mut is_asked) = (0, false);
        loop {
            let (more, awaits_ack) =
                self.sequels_in(engine, (socket, last), frames, taken..most, is_asked);
            taken += more;
            if !awaits_ack {
                return taken;
            }
            self.couple_first_ack(engine, socket);
            is_asked = true;
        }
    }

    /// Processes sequels in the range `wanted`, and returns their number. The flag is true if it
    /// stopped because the first ACK of a train is due before the next segment. `is_asked`: the
    /// caller has coupled that ACK already.
    fn sequels_in(
        &mut self,
        engine: &mut Engine,
        (socket, last): (u32, &Arrival),
        frames: impl FrameOrder,
        wanted: Range<usize>,
        is_asked: bool,
    ) -> (usize, bool) {
        let parts = engine.parts();
        let (slot, pool, block) = parts.flows.socket_parts(socket);
        let (Some(conn), Some(open)) = (slot.conn.as_mut(), &mut self.open_run) else {
            return (0, false);
        };
        if !conn.takes_sequels() {
            return (0, false);
        }
        let mut cx = parts.env.cx();
        let asks = !self.merge_acks && !self.is_port_short;
        let (mut taken, mut fused, mut awaits_ack) = (0, 0, false);
        for at in wanted {
            let Some(frame) = frames.get(at) else {
                break;
            };
            let Some((is_verified, sequel, payload)) = open.sequel_in(frame, last, self.policy)
            else {
                break;
            };
            let len = sequel.payload_len;
            if asks && conn.has_ack_due() && (taken > 0 || !is_asked) {
                let link = (self.port, slot.neighbour, slot.header);
                if !self.ack_trains.has_room() {
                    parts.counters.acks_merged += 1;
                } else if !couple_next(&mut self.ack_trains, &slot.key, conn, &mut cx)
                    && !begin_train(
                        &mut self.ack_trains,
                        parts.network,
                        link,
                        (&slot.key, conn),
                        &mut cx,
                    )
                {
                    awaits_ack = true;
                    break;
                }
            }
            if !conn.takes_sequel(&sequel) {
                break;
            }
            let ahead = frames.get(at + 1).map_or(Ahead::NOTHING, RxFrame::ahead);
            let (stored, sum) = slot.rx.write_at_sum(pool, block, 0, payload, ahead);
            let is_whole =
                is_verified || Unverified::new(sequel.sum).holds_with(Sum::from_folded(sum as u16));
            if stored < len || !is_whole {
                // The segment is damaged or finds no chunk for all of it: `segment_in` handles it.
                slot.rx.discard_unpublished();
                slot.rx.reclaim(pool, block);
                break;
            }
            open.effects |= conn.on_sequel(&mut cx, &sequel);
            slot.rx.publish(block, len);
            open.next = sequel.seq + len;
            fused += u64::from(if is_verified { 0 } else { len });
            taken += 1;
        }
        open.segments += taken as u16;
        parts.counters.rx_segments += taken as u64;
        parts.counters.rx_merged += taken as u64;
        parts.counters.rx_fused_bytes += fused;
        (taken, awaits_ack)
    }

    /// Moves a due ACK into a train before the next segment is processed: without runs the ACK
    /// would have left by now. The ACK stays with its connection if settings merge ACKs, trains are
    /// full, or the port had no room for the last turn's output.
    pub(crate) fn take_due_ack(&mut self, engine: &mut Engine, socket: u32) {
        if !self.merge_acks && !self.is_port_short {
            self.couple_ack(engine, socket);
        }
    }

    #[inline]
    fn couple_ack(&mut self, engine: &mut Engine, socket: u32) {
        let parts = engine.parts();
        if !self.ack_trains.has_room() {
            parts.counters.acks_merged += 1;
            return;
        }
        let slot = parts.flows.slot(socket);
        if let Some(conn) = slot.conn.as_mut()
            && couple_next(&mut self.ack_trains, &slot.key, conn, &mut parts.env.cx())
        {
            return;
        }
        self.couple_first_ack(engine, socket);
    }

    #[inline(never)]
    fn couple_first_ack(&mut self, engine: &mut Engine, socket: u32) {
        let parts = engine.parts();
        let slot = parts.flows.slot(socket);
        if slot.neighbour.is_none() {
            // The next hop is unknown because the connection has sent nothing yet.
            let (local, remote) = (slot.key.local, slot.key.remote);
            slot.neighbour = parts.network.hop(local, remote, parts.env.now_ns).ok();
        }
        let Some(mut ends) = ready_link(
            parts.flows,
            parts.network,
            (self.port, parts.env.now_ns),
            socket,
        ) else {
            return;
        };
        let slot = parts.flows.slot(socket);
        let Some(conn) = slot.conn.as_mut() else {
            return;
        };
        let mut ack = SegmentOut::default();
        // When the ECN mark changes, the segments before the change get an ACK of their own.
        while self.ack_trains.has_room() && conn.poll_due_ack(&mut parts.env.cx(), &mut ack) {
            if !ends.header.discovers_mtu {
                slot.header.before_fragmentable(parts.env.now_ns);
                ends.header = slot.header;
            }
            self.ack_trains.push(&slot.key, ends, ack);
            ack = SegmentOut::default();
        }
    }
}

/// Verifies a segment without a connection. A segment with a wrong checksum is dropped and
/// counted.
pub(crate) fn is_whole(counters: &mut Counters, arrival: &mut Arrival, frame: &RxFrame) -> bool {
    let whole = match arrival.unverified.take() {
        None => true,
        Some(unverified) => payload_holds(unverified, arrival, frame),
    };
    counters.rx_drop_tcp_checksum += u64::from(!whole);
    whole
}

/// Answers a segment without an owner with a reset, unless it is a reset itself.
pub(crate) fn refuse(schedule: &mut Schedule, counters: &mut Counters, arrival: &Arrival) {
    match tcp::reset::reply(&arrival.segment) {
        Some(reset) => {
            counters.resets_sent += 1;
            schedule.reply(&arrival.key, &reset, HeaderFields::of_answer(arrival.dscp));
        }
        None => counters.no_connection += 1,
    }
}

/// True for a data segment or ACK that may be part of a run.
#[inline]
fn is_mergeable(arrival: &Arrival) -> bool {
    let segment = &arrival.segment;
    segment.flags.without(Flags::PSH) == Flags::ACK
        && segment.options.is_plain()
        && (arrival.is_plain || !arrival.has_ip_options)
}

/// The verdict on the frame's checksum, as far as port and policy give one. `None`: they do not
/// decide, or the frame holds several segments.
#[inline]
fn is_verified(frame: &RxFrame, policy: ChecksumPolicy) -> Option<bool> {
    match (frame.checksum(), policy) {
        _ if frame.segment_bytes() > 0 => None,
        (RxChecksum::Verified, _) | (RxChecksum::Unknown, ChecksumPolicy::Trust) => Some(true),
        (RxChecksum::Unknown, ChecksumPolicy::Verify) => Some(false),
        _ => None,
    }
}

/// Adds a due ACK to the last train of its connection, whose link and header fields are known.
/// False: the ACK begins a train, is not plain, or needs its own IP identification because it may
/// be fragmented.
#[inline]
fn couple_next(
    trains: &mut AckTrains,
    key: &FlowKey,
    conn: &mut Connection,
    cx: &mut Cx<'_>,
) -> bool {
    let takes = |train: &&Train| shortcuts::are_taken() && train.takes_more();
    let Some(train) = trains.last_of(key).filter(takes) else {
        return false;
    };
    let Some(ack) = conn.poll_plain_ack(cx) else {
        return false;
    };
    let ends = train.ends;
    if !trains.couple(&ack) {
        trains.push(key, ends, SegmentOut::from(ack));
    }
    true
}

/// Begins a train with a plain ACK whose next hop is known. False: nothing was done.
#[inline]
fn begin_train(
    trains: &mut AckTrains,
    network: &mut Network,
    (port, neighbour, header): (u8, Option<NeighbourId>, HeaderFields),
    (key, conn): (&FlowKey, &mut Connection),
    cx: &mut Cx<'_>,
) -> bool {
    if !header.discovers_mtu || !shortcuts::are_taken() {
        return false;
    }
    let times_ns = (conn.last_news_ns(), cx.now_ns);
    let Some(ends) = network.link_to(neighbour, port, header, times_ns) else {
        return false;
    };
    let Some(ack) = conn.poll_plain_ack(cx) else {
        return false;
    };
    trains.push(key, ends, SegmentOut::from(ack));
    true
}

pub(crate) fn payload_holds(unverified: Unverified, arrival: &Arrival, frame: &RxFrame) -> bool {
    match frame.slice(arrival.payload_at as usize, arrival.segment.len as usize) {
        Some(payload) => unverified.holds_with(sum_of(payload)),
        None => false,
    }
}

/// The sum of a payload that is not copied. Most segments have none: ACKs, SYNs and FINs.
#[inline(always)]
fn sum_of(payload: RawSlice<'_>) -> Sum {
    match payload.len() {
        0 => Sum::from_folded(0),
        _ => Sum::from_folded(sum_raw(payload) as u16),
    }
}
