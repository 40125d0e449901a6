//! ACK trains: the ACKs of one connection that fell due within a turn, stored as one template with
//! a list of differences. `packet_out` expands them into frames ("acknowledgment offload" of Menon
//! and Zwaenepoel, USENIX ATC 2008).
//!
//! Filled by `tcp_in`, emptied by `tcp_out` before anything else of the connection leaves. When all
//! trains are taken an ACK stays with its connection and merges with the next (`acks_merged`).

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
    /// TSecr, where there are timestamps.
    echo: u32,
    window: u16,
    flags: Flags,
}

pub(crate) struct Train {
    key: FlowKey,
    pub ends: LinkEnds,
    template: SegmentOut,
    points: [Point; ACKS_PER_TRAIN_MAX],
    len: u16,
    /// Number of ACKs that have left.
    sent: u16,
    /// The template has neither options but a timestamp, nor an urgent pointer, nor an ECN
    /// codepoint.
    is_plain: bool,
}

/// See the module's documentation.
pub(crate) struct AckTrains {
    trains: Vec<Train>,
}

impl AckTrains {
    pub fn new() -> Self {
        Self {
            trains: Vec::with_capacity(ACK_TRAINS_MAX),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.trains.is_empty()
    }

    /// True if there is room for one more train, of any connection.
    pub fn has_room(&self) -> bool {
        self.trains.len() < ACK_TRAINS_MAX
    }

    /// The train that was coupled last, if it is this flow's and has room.
    #[inline]
    pub fn last_of(&mut self, key: &FlowKey) -> Option<&mut Train> {
        let last = self.trains.last_mut()?;
        (usize::from(last.len) < ACKS_PER_TRAIN_MAX && last.key == *key).then_some(last)
    }

    /// Adds any ACK to the train of the current run, or begins another. Without room nothing
    /// happens.
    pub fn push(&mut self, key: &FlowKey, ends: LinkEnds, ack: SegmentOut) {
        if let Some(last) = self.last_of(key)
            && last.takes_more()
            && last.takes(&ack)
        {
            return last.add(Point::of(&ack));
        }
        if !self.has_room() {
            return;
        }
        let mut train = Train {
            key: *key,
            ends,
            points: [Point::default(); ACKS_PER_TRAIN_MAX],
            len: 1,
            sent: 0,
            is_plain: ack.options.is_plain() && ack.urgent == 0 && ack.ecn == Ecn::NotEct,
            template: ack,
        };
        train.points[0] = Point::of(&train.template);
        self.trains.push(train);
    }

    /// Fills frames with waiting ACKs.
    pub fn fill(&mut self, frames: &[TxFrame], how: Expansion) -> Filled {
        let (mut filled, mut done) = (Filled::default(), 0);
        for train in &mut self.trains {
            train.expand(frames, how, &mut filled);
            if train.sent < train.len {
                break;
            }
            done += 1;
        }
        self.trains.drain(..done);
        filled
    }
}

/// The way in which ACKs become frames.
#[derive(Clone, Copy)]
pub(crate) struct Expansion {
    /// The port makes checksums.
    pub checksum_offload: bool,
    /// ACKs are copied from one template; otherwise each is built separately.
    pub by_template: bool,
}

/// The outcome for the ACKs that had their turn.
#[derive(Clone, Copy, Default)]
pub(crate) struct Filled {
    /// Number of frames that carry an ACK.
    pub used: usize,
    /// ACKs that the driver's frame was too small for.
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
    #[inline]
    fn add(&mut self, point: Point) {
        self.points[usize::from(self.len)] = point;
        self.len += 1;
    }

    /// True if the train may be longer than one ACK: its packets are not fragmented, so none needs
    /// a number of its own (RFC 6864 4).
    #[inline]
    pub fn takes_more(&self) -> bool {
        self.ends.header.discovers_mtu
    }

    /// Couples a plain ACK. False: it differs from the template in more than a point says.
    #[inline]
    pub fn couple(&mut self, ack: &PlainAck) -> bool {
        let value = |stamp: Option<Timestamp>| stamp.map(|stamp| stamp.value);
        let takes = self.is_plain
            && self.template.seq == ack.seq
            && value(self.template.options.timestamp) == value(ack.timestamp);
        if takes {
            self.add(Point {
                ack: ack.ack,
                echo: ack.timestamp.map_or(0, |stamp| stamp.echo),
                window: ack.window,
                flags: Flags::ACK,
            });
        }
        takes
    }

    /// `ack` differs from the template in nothing but what a point says.
    fn takes(&self, ack: &SegmentOut) -> bool {
        let stamp = |segment: &SegmentOut| segment.options.timestamp.map(|stamp| stamp.value);
        self.template.seq == ack.seq
            && self.template.ecn == ack.ecn
            && self.template.urgent == ack.urgent
            && self.template.options.is_plain()
            && ack.options.is_plain()
            && stamp(&self.template) == stamp(ack)
    }

    /// Turns waiting ACKs into frames, from the first unused one on, as far as they go.
    fn expand(&mut self, frames: &[TxFrame], how: Expansion, filled: &mut Filled) {
        let headers = match how.by_template {
            true => plain_headers(&self.ends, &self.key, &self.template),
            false => None,
        };
        let offload = how.checksum_offload;
        let Some(headers) = headers else {
            let (ends, key, mut segment) = (self.ends, self.key, self.template.clone());
            return self.fill(frames, filled, |frame, point| {
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
        self.fill(frames, filled, |frame, point| {
            write_plain(frame, len, 0, offload, |head| {
                template.emit(head, point.ack, point.flags, point.window, point.echo);
                Some(())
            })
        });
    }

    /// Gives each waiting ACK a frame to be built in. A frame that is too small for it stays empty
    /// and is given to the next.
    fn fill(
        &mut self,
        frames: &[TxFrame],
        filled: &mut Filled,
        mut build: impl FnMut(&TxFrame, &Point) -> bool,
    ) {
        for point in &self.points[usize::from(self.sent)..usize::from(self.len)] {
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
