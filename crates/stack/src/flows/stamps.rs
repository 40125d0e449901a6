//! Time stamps of a socket's bytes (`SO_TIMESTAMPING`): for the last byte of a write, when its
//! segment was built, sent and acknowledged; for bytes read, when they arrived.
//!
//! A socket that asked for none has no [`Stamps`], and costs its data path that one test. The
//! application fetches them by [`Control::Stamps`](crate::context::Control::Stamps). Those that it
//! does not fetch are bounded, and lost at the bound (`stamps_lost`).

use std::collections::VecDeque;

use ring::byte_ring::TxReader;
use ring::socket_block::SocketBlock;
use tcp::{Connection, SegmentOut};

use crate::context::{StampKinds, StampStats, TxStamp};
use crate::limits::{ARRIVALS_HELD_MAX, STAMPS_HELD_MAX};

#[derive(Default)]
pub(crate) struct Stamps {
    /// Bytes whose stamps are not all here, by position.
    awaited: VecDeque<Awaited>,
    pub ready: Vec<TxStamp>,
    /// The application wants to know when bytes arrived.
    pub of_arrivals: bool,
    /// Ends of arrivals in the receive stream, each with its time.
    arrivals: VecDeque<(u32, u64)>,
}

#[derive(Clone, Copy)]
struct Awaited {
    /// Position after the byte.
    end: u32,
    kinds: StampKinds,
    /// When its segment left last.
    sent_ns: u64,
}

/// The connection at the time of a stamp, and how it is reached.
pub(crate) struct StampedAt<'a> {
    conn: &'a Connection,
    tx: &'a TxReader,
    /// Bytes in the send buffer.
    buffered: u32,
    now_ns: u64,
}

impl<'a> StampedAt<'a> {
    pub fn new(conn: &'a Connection, tx: &'a TxReader, block: &SocketBlock, now_ns: u64) -> Self {
        Self {
            conn,
            tx,
            buffered: tx.buffered(block),
            now_ns,
        }
    }

    fn stats(&self, kinds: StampKinds, sent_ns: u64) -> Option<Box<StampStats>> {
        kinds.contains(StampKinds::STATS).then(|| {
            Box::new(StampStats {
                tcp: self.conn.info_at(self.now_ns),
                send_buffered: self.buffered,
                sent_ns,
            })
        })
    }
}

impl Stamps {
    /// Stamps are wanted of the byte before `end`. Returns how many were lost.
    pub fn await_byte(&mut self, at: &StampedAt<'_>, end: u32, kinds: StampKinds) -> u64 {
        let ahead = at.tx.offset_of(end) as i32;
        let mut awaited = Awaited {
            end,
            kinds,
            sent_ns: at.now_ns,
        };
        let mut lost = 0;
        // The segment may have been acknowledged before the request.
        if ahead <= at.conn.unacked_payload() as i32 {
            lost += self.stamp_sent(at, &mut awaited, 0);
        }
        if ahead <= 0 {
            return lost + self.stamp(at, &awaited, StampKinds::ACKED);
        }
        if self.awaited.len() >= STAMPS_HELD_MAX {
            return lost + 1;
        }
        self.awaited.push_back(awaited);
        lost
    }

    /// Notes that a segment has left. Of several stamped bytes in one segment the last one counts
    /// for all, as in Linux.
    pub fn on_segment(&mut self, at: &StampedAt<'_>, segment: &SegmentOut) -> u64 {
        let (from, len) = (segment.payload_offset, segment.payload_len);
        let is_in = |end: u32| {
            let offset = at.tx.offset_of(end);
            offset > from && offset <= from + len
        };
        let Some(first) = self.awaited.iter().position(|one| is_in(one.end)) else {
            return 0;
        };
        while let Some(next) = self.awaited.get(first + 1).copied()
            && is_in(next.end)
        {
            let earlier = self.awaited[first].kinds;
            self.awaited.remove(first);
            self.awaited[first].kinds = next.kinds | earlier;
        }
        let mut awaited = self.awaited[first];
        // A segment of bytes that leave for the first time is counted as unsent until it has left.
        let lost = self.stamp_sent(at, &mut awaited, len);
        self.awaited[first] = awaited;
        lost
    }

    /// The peer has acknowledged something.
    pub fn on_ack(&mut self, at: &StampedAt<'_>) -> u64 {
        let mut lost = 0;
        while let Some(&first) = self.awaited.front()
            && at.tx.offset_of(first.end) as i32 <= 0
        {
            self.awaited.pop_front();
            lost += self.stamp(at, &first, StampKinds::ACKED);
        }
        lost
    }

    /// Bytes up to `end` have arrived.
    pub fn on_arrival(&mut self, end: u32, now_ns: u64) {
        match self.arrivals.back_mut() {
            Some((last_end, _)) if *last_end == end => return,
            Some((last_end, last_ns)) if *last_ns == now_ns => {
                *last_end = end;
                return;
            }
            _ => {}
        }
        if self.arrivals.len() == ARRIVALS_HELD_MAX {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back((end, now_ns));
    }

    /// Arrival time of the byte before `position`; the entries of earlier bytes are forgotten.
    pub fn arrival_of(&mut self, position: u32) -> Option<u64> {
        let is_before = |end: u32| (end.wrapping_sub(position) as i32) < 0;
        while self
            .arrivals
            .front()
            .is_some_and(|(end, _)| is_before(*end))
        {
            self.arrivals.pop_front();
        }
        self.arrivals.front().map(|(_, at_ns)| *at_ns)
    }

    fn stamp_sent(&mut self, at: &StampedAt<'_>, awaited: &mut Awaited, unsent: u32) -> u64 {
        awaited.sent_ns = at.now_ns;
        let before = self.ready.len();
        let lost = self.stamp(at, awaited, StampKinds::SCHEDULED)
            + self.stamp(at, awaited, StampKinds::SENT);
        for stats in self.ready[before..]
            .iter_mut()
            .filter_map(|s| s.stats.as_mut())
        {
            stats.tcp.notsent_bytes += unsent;
        }
        lost
    }

    fn stamp(&mut self, at: &StampedAt<'_>, awaited: &Awaited, kind: StampKinds) -> u64 {
        if !awaited.kinds.contains(kind) {
            return 0;
        }
        if self.ready.len() >= STAMPS_HELD_MAX {
            return 1;
        }
        self.ready.push(TxStamp {
            kind,
            position: awaited.end,
            at_ns: at.now_ns,
            stats: at.stats(awaited.kinds, awaited.sent_ns),
        });
        0
    }
}
