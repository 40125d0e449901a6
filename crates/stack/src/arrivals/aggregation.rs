//! Receive aggregation: packets of one flow that follow each other in a batch, in order, become one run that visits its connection once
//! (Menon and Zwaenepoel, "Optimizing TCP Receive Performance", USENIX ATC 2008).
//!
//! What may join: data with ACK, or ACK and PSH, next in order by sequence number and not behind by ACK number, with the same ECN codepoint, and
//! with no option of TCP's but timestamps and none of IP's; and pure ACKs, each of something new. All else passes alone, in its order: duplicates, SACKs, what is out of order.
//! Each segment's ACK number, timestamp and length are acted upon one by one ([`tcp::run`]), and the ACKs that fall due on the way become a train ([`ack_trains`](crate::departures::ack_trains)), so that congestion control on both sides
//! sees what it would see without aggregation. What is saved is what is done once per visit: finding the flow, planning output, timers, events.
//!
//! A run ends with the batch at the latest: nothing ever waits to be merged. [`StackConfig::aggregation_max`](crate::StackConfig) bounds it; 1
//! turns the stage off.

use packetio::{ChecksumPolicy, RxChecksum, RxFrame};
use ring::prefetch::Ahead;
use tcp::run::Run;
use tcp::{Connection, Cx, Effects, SegmentOut};
use wire::checksum::Sum;
use wire::plain::Sequel;
use wire::tcp::Flags;
use wire::{Ecn, FlowKey, SeqNumber};

use crate::arrivals::demux::{Arrival, Unverified};
use crate::arrivals::tcp_in::PartOfRun;
use crate::core::{Core, tcp_cx};
use crate::departures::ack_trains::AckTrains;

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
    segment.flags.without(Flags::PSH) == Flags::ACK
        && segment.options.is_plain()
        && (arrival.is_plain || !arrival.has_ip_options)
}

/// Whether the frame's checksum is known to be right; `None`: known to be wrong, or the policy has no say.
#[inline]
fn is_verified(frame: &RxFrame, policy: ChecksumPolicy) -> Option<bool> {
    match (frame.checksum(), policy) {
        (RxChecksum::Verified, _) | (RxChecksum::Unknown, ChecksumPolicy::Trust) => Some(true),
        (RxChecksum::Unknown, ChecksumPolicy::Verify) => Some(false),
        _ => None,
    }
}

/// Couples the ACK that is due to the train of its connection: where it goes is known, and how it looks. False: it is the first of a train, or no plain one, or has
/// a number of its own since it may be fragmented.
#[inline]
fn couple_next(
    trains: &mut AckTrains,
    key: &FlowKey,
    conn: &mut Connection,
    cx: &mut Cx<'_>,
) -> bool {
    let Some(train) = trains.last_of(key).filter(|train| train.takes_more()) else {
        return false;
    };
    let Some(ack) = conn.poll_plain_ack(cx) else {
        return false;
    };
    let ends = train.ends;
    if !train.couple(&ack) {
        trains.push(key, ends, SegmentOut::from(ack));
    }
    true
}

impl Core {
    /// Takes the frames that lead `frames` and bear sequels: the next segments of the run under way, with nothing in them but text and perhaps a timestamp that
    /// the connection has to act upon. They are recognized by comparing their heads with that of `last`, the run's last segment that came the usual way.
    /// How many: nothing was done of the one behind them, and the usual way decides.
    #[inline]
    pub(crate) fn take_sequels(&mut self, last: &Arrival, frames: &[RxFrame]) -> usize {
        let Some(open) = self.open_run.as_ref().filter(|_| last.is_plain) else {
            return 0;
        };
        let socket = open.socket;
        let room = self.config.aggregation_max.saturating_sub(open.segments);
        let frames = &frames[..frames.len().min(usize::from(room))];
        let (mut taken, mut is_asked) = (0, false);
        loop {
            let (more, awaits_ack) = self.sequels_in(socket, last, &frames[taken..], is_asked);
            taken += more;
            if !awaits_ack {
                return taken;
            }
            self.couple_first_ack(socket);
            is_asked = true;
        }
    }

    /// As [`take_sequels`](Self::take_sequels), up to a segment before which the first ACK of a train is due: then true with their number.
    /// `is_asked`: before the first of these frames an ACK was asked for.
    fn sequels_in(
        &mut self,
        socket: u32,
        last: &Arrival,
        frames: &[RxFrame],
        is_asked: bool,
    ) -> (usize, bool) {
        let (slot, pool, block) = self.sockets.parts(socket);
        let (Some(conn), Some(open)) = (slot.conn.as_mut(), &mut self.open_run) else {
            return (0, false);
        };
        if !conn.takes_sequels() {
            return (0, false);
        }
        let mut cx = tcp_cx!(self);
        let asks = !self.config.merge_acks && !self.is_port_short;
        let (mut taken, mut fused, mut awaits_ack) = (0, 0, false);
        for frame in frames {
            let Some(is_verified) = is_verified(frame, self.policy) else {
                break;
            };
            let Some(sequel) = Sequel::read(&last.head, &frame.head(), frame.len()) else {
                break;
            };
            let len = sequel.payload_len;
            let Some(payload) = frame.slice(sequel.payload_at, len as usize) else {
                break;
            };
            if sequel.seq != open.next || sequel.ack != open.ack {
                break;
            }
            if asks && conn.has_ack_due() && (taken > 0 || !is_asked) {
                if !self.ack_trains.has_room() {
                    self.counters.acks_merged += 1;
                } else if !couple_next(&mut self.ack_trains, &slot.key, conn, &mut cx) {
                    awaits_ack = true;
                    break;
                }
            }
            if !conn.takes_sequel(&sequel) {
                break;
            }
            let ahead = frames.get(taken + 1).map_or(Ahead::NOTHING, RxFrame::ahead);
            let (stored, sum) = slot.rx.write_at_sum(pool, block, 0, payload, ahead);
            let is_whole =
                is_verified || Unverified::new(sequel.sum).holds_with(Sum::from_folded(sum as u16));
            if stored < len || !is_whole {
                // Damaged, or no chunk for all of it: what that means the usual way knows.
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
        self.counters.rx_segments += taken as u64;
        self.counters.rx_merged += taken as u64;
        self.counters.rx_fused_bytes += fused;
        (taken, awaits_ack)
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
        let taken = self.take_segment(socket, arrival, frame, PartOfRun::Next);
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

    /// A run may begin with this segment, if its effects allow it.
    #[inline]
    pub(crate) fn may_begin_run(&self, arrival: &Arrival) -> bool {
        self.config.aggregation_max > 1 && is_mergeable(arrival)
    }

    /// The connection of `socket` took a segment with these effects: a run begins, or is over at once.
    #[inline]
    pub(crate) fn begin_run(&mut self, socket: u32, arrival: &Arrival, run: Run, effects: Effects) {
        let may_grow = effects.without(WITHIN_RUN).is_empty() && self.may_begin_run(arrival);
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
        if let Some(conn) = slot.conn.as_mut()
            && couple_next(&mut self.ack_trains, &slot.key, conn, &mut tcp_cx!(self))
        {
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
        let Some(mut ends) = self.ready_link(socket) else {
            return;
        };
        let slot = self.sockets.slot(socket);
        let Some(conn) = slot.conn.as_mut() else {
            return;
        };
        let mut ack = SegmentOut::default();
        // A mark that changed has one for what came before it.
        while self.ack_trains.has_room() && conn.poll_due_ack(&mut tcp_cx!(self), &mut ack) {
            if !ends.header.discovers_mtu {
                slot.header.before_fragmentable(self.now_ns);
                ends.header = slot.header;
            }
            self.ack_trains.push(&slot.key, ends, ack);
            ack = SegmentOut::default();
        }
    }
}
