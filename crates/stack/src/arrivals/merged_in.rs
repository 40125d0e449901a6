//! Frames in which the wire merged several segments of one flow (GRO, LRO, a TSO frame that nothing
//! cut).
//!
//! Each segment is acted upon by itself, as if it had come alone, so that ACKs, windows, marks and
//! counters are those of the segments. Together they are a run (see
//! [`tcp_in`](crate::arrivals::tcp_in)) of which the headers have been read once. Owns nothing;
//! called by `packet_in`.

use packetio::RxFrame;
use wire::tcp::Flags;

use crate::arrivals::Arrivals;
use crate::arrivals::demux::Arrival;
use crate::core::Core;

impl Arrivals {
    /// Brings the segments of a merged frame to their owner. `may_go_on`: the frame behind it may
    /// continue their run.
    #[inline(never)]
    pub(crate) fn merged_in(
        &mut self,
        core: &mut Core,
        arrival: &mut Arrival,
        frame: &RxFrame,
        may_go_on: bool,
    ) {
        let size = u32::from(frame.segment_bytes());
        if arrival.segment.len <= size {
            return self.tcp_in(core, arrival, frame, may_go_on);
        }
        // The sum of a merged frame is that of all its bytes.
        if !core.is_whole(arrival, frame) {
            return;
        }
        let flags = arrival.segment.flags;
        let mut left = arrival.segment.len;
        let count = u64::from(left.div_ceil(size));
        core.counters.rx_segments += count - 1;
        core.counters.rx_segments_in_large += count;
        arrival.segment.flags = flags.without(LAST_ONLY);
        arrival.segment.len = size;
        loop {
            let is_last = left <= size;
            if is_last {
                arrival.segment.len = left;
                arrival.segment.flags = flags.without(Flags::CWR);
            }
            self.tcp_in(core, arrival, frame, !is_last || may_go_on);
            if is_last {
                return;
            }
            left -= size;
            arrival.segment.seq += size;
            arrival.payload_at += size;
            arrival.segment.flags = arrival.segment.flags.without(Flags::CWR);
        }
    }
}

/// Flags of the last segment alone: the others were cut before the end of the text.
const LAST_ONLY: Flags = Flags::PSH.union(Flags::FIN);
