//! ACK trains: the ACKs of one connection that fell due within a turn, kept as one template with a list of what differs, and expanded
//! into frames by `packet_out` ("acknowledgment offload" of Menon and Zwaenepoel, USENIX ATC 2008).
//!
//! Filled by `aggregation`, emptied by `tcp_out`, before anything else of the connection leaves. When all trains are taken an ACK stays with its
//! connection and merges with the next (`acks_merged`).

use packetio::TxFrame;
use tcp::SegmentOut;
use wire::tcp::Flags;
use wire::{FlowKey, SeqNumber, plain};

use crate::limits::{ACK_TRAINS_MAX, ACKS_PER_TRAIN_MAX};
use crate::packet_out::{LinkEnds, build_segment, plain_headers};

/// What one ACK of a train has for itself.
#[derive(Clone, Copy, Default)]
struct Point {
    ack: SeqNumber,
    /// TSecr, where there are timestamps.
    echo: u32,
    window: u16,
    flags: Flags,
}

struct Train {
    key: FlowKey,
    ends: LinkEnds,
    template: SegmentOut,
    points: [Point; ACKS_PER_TRAIN_MAX],
    len: u16,
    /// How many have left.
    sent: u16,
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

    /// One more ACK finds a place, whosever it is.
    pub fn has_room(&self) -> bool {
        self.trains.len() < ACK_TRAINS_MAX
    }

    /// Couples `ack` to the train of the run under way, or begins another. Nothing happens without room.
    pub fn push(&mut self, key: &FlowKey, ends: LinkEnds, ack: SegmentOut) {
        let point = Point {
            ack: ack.ack,
            echo: ack.options.timestamp.map_or(0, |stamp| stamp.echo),
            window: ack.window,
            flags: ack.flags,
        };
        if let Some(last) = self.trains.last_mut()
            && last.key == *key
            && last.takes(&ack)
        {
            last.points[usize::from(last.len)] = point;
            last.len += 1;
            return;
        }
        if !self.has_room() {
            return;
        }
        let mut train = Train {
            key: *key,
            ends,
            template: ack,
            points: [Point::default(); ACKS_PER_TRAIN_MAX],
            len: 1,
            sent: 0,
        };
        train.points[0] = point;
        self.trains.push(train);
    }

    /// Fills frames with what waits; the number filled.
    pub fn fill(&mut self, frames: &[TxFrame], offload: bool) -> usize {
        let (mut used, mut done) = (0, 0);
        for train in &mut self.trains {
            used += train.expand(&frames[used..], offload);
            if train.sent < train.len {
                break;
            }
            done += 1;
        }
        self.trains.drain(..done);
        used
    }
}

impl Train {
    /// `ack` differs from the template in nothing but what a point says.
    fn takes(&self, ack: &SegmentOut) -> bool {
        let stamp = |segment: &SegmentOut| segment.options.timestamp.map(|stamp| stamp.value);
        usize::from(self.len) < ACKS_PER_TRAIN_MAX
            && self.template.seq == ack.seq
            && self.template.ecn == ack.ecn
            && self.template.urgent == ack.urgent
            && self.template.options.is_plain()
            && ack.options.is_plain()
            && stamp(&self.template) == stamp(ack)
    }

    fn expand(&mut self, frames: &[TxFrame], offload: bool) -> usize {
        let waiting = &self.points[usize::from(self.sent)..usize::from(self.len)];
        let count = waiting.len().min(frames.len());
        match plain_headers(self.ends, &self.key, &self.template) {
            Some(headers) => {
                let mut template = plain::AckTemplate::new(&headers, offload);
                for (point, frame) in waiting.iter().zip(frames) {
                    let bytes = template.expand(point.ack, point.flags, point.window, point.echo);
                    let len = frame.write(0, bytes);
                    frame.set_len(len);
                    if offload {
                        frame.set_checksum_offload(
                            plain::TCP_AT as u16,
                            wire::tcp::CHECKSUM_OFFSET as u16,
                        );
                    }
                }
            }
            None => {
                for (point, frame) in waiting.iter().zip(frames) {
                    let mut segment = self.template.clone();
                    segment.ack = point.ack;
                    segment.flags = point.flags;
                    segment.window = point.window;
                    if let Some(stamp) = &mut segment.options.timestamp {
                        stamp.echo = point.echo;
                    }
                    let _ = build_segment(frame, self.ends, &self.key, &segment, offload, |_| 0);
                }
            }
        }
        self.sent += count as u16;
        count
    }
}
