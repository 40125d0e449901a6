//! ACK trains: the ACKs of one connection that fell due within a turn, stored as one template with
//! a list of differences. `packet_out` expands them into frames ("acknowledgment offload" of Menon
//! and Zwaenepoel, USENIX ATC 2008).
//!
//! `tcp_in` fills the trains; `tcp_out` empties them before anything else of the connection leaves.
//! When all trains are in use, an ACK stays with its connection and merges with the next one
//! (`acks_merged`).

use packetio::TxFrame;
use tcp::{PlainAck, SegmentOut};
use wire::tcp::{Flags, Timestamp};
use wire::{Ecn, FlowKey, SeqNumber, plain};

use crate::departures::packet_out::{build_segment, plain_headers, write_plain};
use crate::header_fields::LinkEnds;
use crate::limits::{ACK_TRAINS_MAX, ACKS_PER_TRAIN_MAX};

/// The fields in which one ACK of a train differs from the template.
#[derive(Clone, Copy, Default)]
struct Point {
    ack: SeqNumber,
    /// Timestamp echo reply (TSecr), if the connection uses timestamps.
    echo: u32,
    window: u16,
    flags: Flags,
}

pub(crate) struct Train {
    key: FlowKey,
    pub ends: LinkEnds,
    template: SegmentOut,
    /// Index of the train's first point.
    first: u16,
    len: u16,
    /// Number of ACKs of the train that have left.
    sent: u16,
    /// True if the template has no options but a timestamp, no urgent pointer and no ECN codepoint.
    is_plain: bool,
}

/// See the module's documentation.
pub(crate) struct AckTrains {
    trains: Vec<Train>,
    /// The points of all trains, train after train. Most trains are short, so a train has no points
    /// of its own: making it would fill them.
    points: Vec<Point>,
}

/// Most points of all trains together.
const POINTS_MAX: usize = ACK_TRAINS_MAX * ACKS_PER_TRAIN_MAX;
const _: () = assert!(POINTS_MAX <= u16::MAX as usize);

impl AckTrains {
    pub fn new() -> Self {
        Self {
            trains: Vec::with_capacity(ACK_TRAINS_MAX),
            points: Vec::with_capacity(POINTS_MAX),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.trains.is_empty()
    }

    /// True if one more train can begin.
    pub fn has_room(&self) -> bool {
        self.trains.len() < ACK_TRAINS_MAX
    }

    /// The last train that got an ACK, if it belongs to this flow and has room.
    #[inline]
    pub fn last_of(&self, key: &FlowKey) -> Option<&Train> {
        let last = self.trains.last()?;
        (usize::from(last.len) < ACKS_PER_TRAIN_MAX && last.key == *key).then_some(last)
    }

    /// Adds a plain ACK to the last train, which [`last_of`](Self::last_of) returned. False: the
    /// ACK differs from the template in more than a [`Point`] holds.
    #[inline]
    pub fn couple(&mut self, ack: &PlainAck) -> bool {
        let Some(last) = self.trains.last_mut().filter(|last| last.couples(ack)) else {
            return false;
        };
        last.len += 1;
        self.points.push(Point {
            ack: ack.ack,
            echo: ack.timestamp.map_or(0, |stamp| stamp.echo),
            window: ack.window,
            flags: Flags::ACK,
        });
        true
    }

    /// Adds an ACK to the current run's train, or begins a new train. Without room nothing happens.
    pub fn push(&mut self, key: &FlowKey, ends: LinkEnds, ack: SegmentOut) {
        let joins = self
            .last_of(key)
            .is_some_and(|last| last.takes_more() && last.takes(&ack));
        if let Some(last) = self.trains.last_mut().filter(|_| joins) {
            last.len += 1;
            return self.points.push(Point::of(&ack));
        }
        if !self.has_room() {
            return;
        }
        let first = self.points.len() as u16;
        self.points.push(Point::of(&ack));
        self.trains.push(Train {
            key: *key,
            ends,
            first,
            len: 1,
            sent: 0,
            is_plain: ack.options.is_plain() && ack.urgent == 0 && ack.ecn == Ecn::NotEct,
            template: ack,
        });
    }

    /// Builds frames from waiting ACKs.
    pub fn fill(&mut self, frames: &[TxFrame], how: Expansion) -> Filled {
        let (mut filled, mut done) = (Filled::default(), 0);
        for train in &mut self.trains {
            train.expand(&self.points, frames, how, &mut filled);
            if train.sent < train.len {
                break;
            }
            done += 1;
        }
        self.trains.drain(..done);
        self.drop_points();
        filled
    }

    /// Drops the points of the trains that have left.
    fn drop_points(&mut self) {
        let Some(first) = self.trains.first().map(|train| train.first) else {
            return self.points.clear();
        };
        self.points.drain(..usize::from(first));
        for train in &mut self.trains {
            train.first -= first;
        }
    }
}

/// How ACKs become frames.
#[derive(Clone, Copy)]
pub(crate) struct Expansion {
    /// True if the port computes checksums.
    pub checksum_offload: bool,
    /// True to copy ACKs from one template, false to build each separately.
    pub by_template: bool,
}

/// The outcome of filling frames with ACKs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Filled {
    /// Number of frames that carry an ACK.
    pub used: usize,
    /// ACKs lost because the driver's frame was too small.
    pub too_small: u64,
}

impl Point {
    fn of(ack: &SegmentOut) -> Self {
        Self {
            ack: ack.ack,
            echo: ack.options.timestamp.map_or(0, |stamp| stamp.echo),
            window: ack.window,
            flags: ack.flags,
        }
    }
}

impl Train {
    /// True if the train may hold more than one ACK. Its packets must not be fragmentable, because
    /// each would then need its own IP identification (RFC 6864 section 4).
    #[inline]
    pub fn takes_more(&self) -> bool {
        self.ends.header.discovers_mtu
    }

    /// True if a plain ACK differs from the template only in what a [`Point`] holds.
    #[inline]
    fn couples(&self, ack: &PlainAck) -> bool {
        let value = |stamp: Option<Timestamp>| stamp.map(|stamp| stamp.value);
        self.is_plain
            && self.template.seq == ack.seq
            && value(self.template.options.timestamp) == value(ack.timestamp)
    }

    /// True if `ack` differs from the template only in what a [`Point`] holds.
    fn takes(&self, ack: &SegmentOut) -> bool {
        let stamp = |segment: &SegmentOut| segment.options.timestamp.map(|stamp| stamp.value);
        self.template.seq == ack.seq
            && self.template.ecn == ack.ecn
            && self.template.urgent == ack.urgent
            && self.template.options.is_plain()
            && ack.options.is_plain()
            && stamp(&self.template) == stamp(ack)
    }

    /// Builds frames from waiting ACKs, beginning at the first unused frame, until frames or ACKs
    /// run out.
    fn expand(
        &mut self,
        points: &[Point],
        frames: &[TxFrame],
        how: Expansion,
        filled: &mut Filled,
    ) {
        let points = &points[usize::from(self.first)..][..usize::from(self.len)];
        let headers = match how.by_template {
            true => plain_headers(&self.ends, &self.key, &self.template),
            false => None,
        };
        let offload = how.checksum_offload;
        let Some(headers) = headers else {
            let (ends, key, mut segment) = (self.ends, self.key, self.template.clone());
            return self.fill(points, frames, filled, |frame, point| {
                segment.ack = point.ack;
                segment.flags = point.flags;
                segment.window = point.window;
                if let Some(stamp) = &mut segment.options.timestamp {
                    stamp.echo = point.echo;
                }
                build_segment(frame, &ends, &key, &segment, offload, |_| 0)
            });
        };
        let template = plain::AckTemplate::new(&headers, offload);
        let len = template.header_bytes();
        self.fill(points, frames, filled, |frame, point| {
            write_plain(frame, len, 0, offload, |head| {
                template.emit(head, point.ack, point.flags, point.window, point.echo);
                Some(())
            })
        });
    }

    /// Builds each waiting ACK in a frame of its own. A frame that is too small for one ACK goes to
    /// the next ACK.
    fn fill(
        &mut self,
        points: &[Point],
        frames: &[TxFrame],
        filled: &mut Filled,
        mut build: impl FnMut(&TxFrame, &Point) -> bool,
    ) {
        for point in &points[usize::from(self.sent)..] {
            let Some(frame) = frames.get(filled.used) else {
                return;
            };
            let built = build(frame, point);
            filled.used += usize::from(built);
            filled.too_small += u64::from(!built);
            self.sent += 1;
        }
    }
}

#[cfg(test)]
mod tests;
