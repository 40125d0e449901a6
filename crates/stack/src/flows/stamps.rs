//! Time stamps of a socket's bytes (`SO_TIMESTAMPING`). The last byte of a write is stamped when
//! its segment is built, sent and acknowledged; read bytes are stamped when they arrive.
//!
//! A socket that did not ask for stamps has no [`Stamps`], so its data path pays one test. The
//! application fetches stamps by [`Control::Stamps`](crate::context::Control::Stamps). A bounded
//! number waits; further ones are lost and counted (`stamps_lost`).

use std::collections::VecDeque;

use ring::byte_ring::TxReader;
use ring::socket_block::SocketBlock;
use tcp::{Connection, SegmentOut};

use crate::context::{StampKinds, StampStats, TxStamp};
use crate::limits::{ARRIVALS_HELD_MAX, STAMPS_HELD_MAX};

#[derive(Default)]
pub(crate) struct Stamps {
    /// Written bytes that still lack stamps, by position.
    awaited: VecDeque<Awaited>,
    pub ready: Vec<TxStamp>,
    /// True if the application wants to know when bytes arrived.
    pub of_arrivals: bool,
    /// Ends of arrivals in the receive stream, each with its time in ns.
    arrivals: VecDeque<(u32, u64)>,
}

#[derive(Clone, Copy)]
struct Awaited {
    /// Position after the byte in the sent stream.
    end: u32,
    kinds: StampKinds,
    /// Time at which the byte's segment was last sent, ns.
    sent_ns: u64,
}

/// The state of a connection for a stamp, and the time of the stamp.
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
    /// Requests stamps for the byte before `end`. Returns the number of stamps lost.
    pub fn await_byte(&mut self, at: &StampedAt<'_>, end: u32, kinds: StampKinds) -> u64 {
        let ahead = at.tx.offset_of(end) as i32;
        let mut awaited = Awaited {
            end,
            kinds,
            sent_ns: at.now_ns,
        };
        let mut lost = 0;
        // The byte may have been sent before the request arrived.
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

    /// Stamps a segment that has left. If a segment holds several bytes to stamp, the last one
    /// counts for all, as in Linux.
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
        // A byte that leaves for the first time counts as unsent until its segment is on its way.
        let lost = self.stamp_sent(at, &mut awaited, len);
        self.awaited[first] = awaited;
        lost
    }

    /// Stamps bytes that the peer has acknowledged.
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

    /// Notes the arrival of bytes up to `end`.
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

    /// Arrival time of the byte before `position`. Entries of earlier bytes are forgotten.
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
