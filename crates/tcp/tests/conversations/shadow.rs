//! Burst tails against single segments: a copy of the connection takes the rest of a burst at once.
//! The connection itself then sends the same segments one by one, and ends with the same variables.

use std::collections::VecDeque;

use tcp::{Connection, Counters, Cx, RangePool, SegmentOut};
use wire::tcp::Flags;

/// Segments that a copy takes at once, at most.
const SEGMENTS_MAX: u32 = 7;

/// A copy of the connection that is ahead of it.
pub struct Shadow {
    ahead: VecDeque<SegmentOut>,
    conn: Connection,
    counters: Counters,
}

impl Shadow {
    /// Compares the segment that `conn` has just sent with the copy's, or makes a copy that is
    /// ahead.
    pub fn follow(shadow: &mut Option<Shadow>, conn: &Connection, cx: &Cx<'_>, out: &SegmentOut) {
        match shadow {
            Some(ahead) => {
                let expected = ahead.ahead.pop_front();
                assert_eq!(expected.as_ref(), Some(out));
                if ahead.ahead.is_empty() {
                    assert_eq!(format!("{:?}", ahead.conn), format!("{conn:?}"));
                    assert_eq!(&ahead.counters, cx.counters);
                    *shadow = None;
                }
            }
            None => *shadow = Self::after(conn, cx, out),
        }
    }

    fn after(conn: &Connection, cx: &Cx<'_>, first: &SegmentOut) -> Option<Self> {
        let (mut conn, mut counters) = (conn.clone(), cx.counters.clone());
        let tail = conn.poll_burst_tail(
            &mut Cx {
                now_ns: cx.now_ns,
                config: cx.config,
                challenge: &mut cx.challenge.clone(),
                counters: &mut counters,
                records: &mut cx.records.clone(),
                ranges: &mut RangePool::new(1),
                memory: cx.memory,
            },
            first,
            SEGMENTS_MAX,
        );
        let segments = (1..=tail.segments).map(|n| {
            let mut segment = first.clone();
            segment.seq += n * first.payload_len;
            segment.payload_offset += n * first.payload_len;
            if n == tail.segments && tail.ends_burst {
                segment.flags |= Flags::PSH;
            }
            segment
        });
        let ahead: VecDeque<SegmentOut> = segments.collect();
        (!ahead.is_empty()).then_some(Self {
            ahead,
            conn,
            counters,
        })
    }
}
