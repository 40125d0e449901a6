//! Receive aggregation: packets of one flow that follow each other in a batch, in order, become one run that visits its connection once
//! (Menon and Zwaenepoel, "Optimizing TCP Receive Performance", USENIX ATC 2008).
//!
//! What may join: data with ACK, or ACK and PSH, next in order by sequence number and not behind by ACK number, with the same ECN codepoint, and
//! with no option but timestamps; and pure ACKs, each of something new. All else passes alone, in its order: duplicates, SACKs, what is out of order.
//! Each segment's ACK number, timestamp and length are acted upon one by one ([`tcp::run`]), and the ACKs that fall due on the way become a train ([`ack_trains`](crate::ack_trains)), so that congestion control on both sides
//! sees what it would see without aggregation. What is saved is what is done once per visit: finding the flow, planning output, timers, events.
//!
//! A run ends with the batch at the latest: nothing ever waits to be merged. [`StackConfig::aggregation_max`](crate::StackConfig) bounds it; 1
//! turns the stage off.

use packetio::{ChecksumPolicy, RxChecksum, RxFrame};
use tcp::run::Run;
use tcp::{Connection, Effects, SegmentOut};
use wire::checksum::Sum;
use wire::plain::Sequel;
use wire::tcp::Flags;
use wire::{Ecn, FlowKey, SeqNumber};

use crate::core::{Core, tcp_cx};
use crate::demux::{Arrival, Unverified};

/// What a segment may mean for its connection without ending the run.
pub(crate) const WITHIN_RUN: Effects = Effects::READABLE.union(Effects::WRITABLE);

/// The run under way.
pub(crate) struct OpenRun {
    socket: u32,
    key: FlowKey,
    run: Run,
    effects: Effects,
    segments: u16,
    /// What the next segment must begin with.
    next: SeqNumber,
    /// What it must acknowledge at least.
    ack: SeqNumber,
    ecn: Ecn,
    has_timestamp: bool,
}

impl OpenRun {
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
}

/// Data or an ACK with nothing unusual about it.
#[inline]
fn is_mergeable(arrival: &Arrival) -> bool {
    let segment = &arrival.segment;
    segment.flags.without(Flags::PSH) == Flags::ACK && segment.options.is_plain()
}

impl Core {
    /// The frame bears a sequel: the next segment of the run under way, with nothing in it but text and perhaps a timestamp that the connection has to act
    /// upon. It was recognized by comparing its head with that of `last`, the run's last segment that came the usual way, and was taken. False: nothing was
    /// done, and the usual way decides.
    #[inline]
    pub(crate) fn takes_sequel(&mut self, last: &Arrival, frame: &RxFrame) -> bool {
        let Some(open) = self.open_run.as_ref().filter(|_| last.is_plain) else {
            return false;
        };
        let is_verified = match (frame.checksum(), self.policy) {
            (RxChecksum::Verified, _) | (RxChecksum::Unknown, ChecksumPolicy::Trust) => true,
            (RxChecksum::Unknown, ChecksumPolicy::Verify) => false,
            _ => return false,
        };
        if open.segments >= self.config.aggregation_max {
            return false;
        }
        match Sequel::read(&last.head, &frame.head(), frame.len()) {
            Some(sequel) if sequel.seq == open.next && sequel.ack == open.ack => {
                self.sequel_in(open.socket, frame, &sequel, is_verified)
            }
            _ => false,
        }
    }

    #[inline]
    fn sequel_in(
        &mut self,
        socket: u32,
        frame: &RxFrame,
        sequel: &Sequel,
        is_verified: bool,
    ) -> bool {
        let len = sequel.payload_len;
        let Some(payload) = frame.slice(sequel.payload_at, len as usize) else {
            return false;
        };
        let (mut slot, mut pool, mut block) = self.sockets.parts(socket);
        if slot.conn.as_ref().is_some_and(Connection::has_ack_due) {
            self.take_due_ack(socket);
            (slot, pool, block) = self.sockets.parts(socket);
        }
        let Some(conn) = slot.conn.as_mut().filter(|conn| conn.takes_sequel(sequel)) else {
            return false;
        };
        let (stored, sum) = slot.rx.write_at_sum(pool, block, 0, payload);
        let is_whole =
            is_verified || Unverified::new(sequel.sum).holds_with(Sum::from_folded(sum as u16));
        if stored < len || !is_whole {
            // Damaged, or no chunk for all of it: what that means the usual way knows.
            slot.rx.discard_unpublished();
            slot.rx.reclaim(pool, block);
            return false;
        }
        let effects = conn.on_sequel(&mut tcp_cx!(self), sequel);
        slot.rx.publish(block, len);
        self.counters.rx_segments += 1;
        self.counters.rx_merged += 1;
        self.counters.rx_fused_bytes += u64::from(if is_verified { 0 } else { len });
        if let Some(open) = &mut self.open_run {
            open.segments += 1;
            open.next = sequel.seq + len;
            open.effects |= effects;
        }
        true
    }

    /// The segment continues the run under way, and was taken. False: it does not, and the run has ended.
    #[inline]
    pub(crate) fn joins_run(&mut self, arrival: &Arrival, frame: &RxFrame) -> bool {
        let Some(open) = &self.open_run else {
            return false;
        };
        if open.segments >= self.config.aggregation_max || !open.continues_with(arrival) {
            self.end_run();
            return false;
        }
        let socket = open.socket;
        let taken = self.take_segment(socket, arrival, frame, true);
        let (Some(open), Some((_, effects))) = (&mut self.open_run, taken) else {
            return true;
        };
        self.counters.rx_merged += u64::from(arrival.segment.len > 0);
        open.segments += 1;
        open.next = arrival.segment.end();
        open.ack = arrival.segment.ack;
        open.effects |= effects;
        if !effects.without(WITHIN_RUN).is_empty() {
            self.end_run();
        }
        true
    }

    /// The connection of `socket` took a segment with these effects: a run begins, or is over at once.
    #[inline]
    pub(crate) fn begin_run(&mut self, socket: u32, arrival: &Arrival, run: Run, effects: Effects) {
        let may_grow = self.config.aggregation_max > 1
            && effects.without(WITHIN_RUN).is_empty()
            && is_mergeable(arrival);
        if !may_grow {
            return self.finish_run(socket, run, effects);
        }
        self.open_run = Some(OpenRun {
            socket,
            key: arrival.key,
            run,
            effects,
            segments: 1,
            next: arrival.segment.end(),
            ack: arrival.segment.ack,
            ecn: arrival.segment.ecn,
            has_timestamp: arrival.segment.options.timestamp.is_some(),
        });
    }

    /// The run under way, if there is one, has had its last segment.
    #[inline]
    pub(crate) fn end_run(&mut self) {
        if let Some(open) = &self.open_run {
            let (socket, run, effects) = (open.socket, open.run, open.effects);
            self.open_run = None;
            self.finish_run(socket, run, effects);
        }
    }

    fn finish_run(&mut self, socket: u32, run: Run, effects: Effects) {
        let Some(conn) = self.sockets.slot(socket).conn.as_mut() else {
            return;
        };
        let effects = conn.end_run(&mut tcp_cx!(self), effects, run);
        self.settle(socket, effects);
    }

    /// Another segment is about to arrive: an ACK that is due for those before it would have left by now. It waits in a train, unless the settings say
    /// that one for all will do, trains are full, or the port had no room for the last turn's output: then it would not have left.
    pub(crate) fn take_due_ack(&mut self, socket: u32) {
        if !self.config.merge_acks && !self.is_port_short {
            self.couple_ack(socket);
        }
    }

    #[inline]
    fn couple_ack(&mut self, socket: u32) {
        if !self.ack_trains.has_room() {
            self.counters.acks_merged += 1;
            return;
        }
        let slot = self.sockets.slot(socket);
        // All but the first of a train: where they go is known, and how they look.
        if let Some(train) = self.ack_trains.last_of(&slot.key)
            && let Some(conn) = slot.conn.as_mut()
            && let Some(ack) = conn.poll_plain_ack(&mut tcp_cx!(self))
        {
            if !train.couple(&ack) {
                let (key, ends) = (slot.key, train.ends);
                self.ack_trains.push(&key, ends, SegmentOut::from(ack));
            }
            return;
        }
        self.couple_first_ack(socket);
    }

    #[inline(never)]
    fn couple_first_ack(&mut self, socket: u32) {
        let slot = self.sockets.slot(socket);
        if slot.neighbour.is_none() {
            // It has sent nothing yet.
            slot.neighbour = self.network.hop(slot.key.remote, self.now_ns).ok();
        }
        let Some(ends) = self.ready_link(socket) else {
            return;
        };
        let slot = self.sockets.slot(socket);
        let Some(conn) = slot.conn.as_mut() else {
            return;
        };
        let mut ack = SegmentOut::default();
        if conn.poll_due_ack(&mut tcp_cx!(self), &mut ack) {
            self.ack_trains.push(&slot.key, ends, ack);
        }
    }
}
