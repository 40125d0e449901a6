//! Frames in which the wire merged several segments of one flow (GRO, LRO, a TSO frame that nothing
//! cut).
//!
//! Each segment is processed separately, as if it had arrived alone, so ACKs, windows, marks and
//! counters are those of the segments. Together they are a run (see
//! [`tcp_in`](crate::arrivals::tcp_in)) whose headers are read once. `packet_in` calls this module.

use packetio::RxFrame;
use wire::tcp::Flags;

use crate::arrivals::Arrivals;
use crate::arrivals::demux::Arrival;
use crate::arrivals::tcp_in::payload_holds;
use crate::core::Core;
use crate::counters::Counters;
use crate::engine::Parts;

/// Flags that only the last segment of a merged frame carries: the others end within the text.
const LAST_ONLY: Flags = Flags::PSH.union(Flags::FIN);

impl Arrivals {
    /// Processes the segments of a merged frame, one after another. `may_go_on`: the next frame may
    /// continue their run.
    #[inline(never)]
    pub(super) fn merged_in(
        &mut self,
        core: &mut Core,
        arrival: &mut Arrival,
        frame: &RxFrame,
        may_go_on: bool,
    ) {
        let (engine, admission) = core.split();
        let Parts {
            counters, flows, ..
        } = engine.parts();
        if let Some(mesh) = admission.mesh()
            && self.hand_merged_over((flows, counters), mesh, arrival, frame)
        {
            return;
        }
        let mut behind = take_first(counters, arrival, frame);
        loop {
            let goes_on = may_go_on || !behind.is_empty();
            self.tcp_in(core, arrival, frame, goes_on);
            if !behind.take_next(arrival) {
                break;
            }
        }
    }
}

/// The segments of a merged frame that have not been processed yet.
struct RemainingSegments {
    /// Payload bytes of all these segments together.
    bytes: u32,
    /// Payload bytes of each segment; the last one may be shorter.
    size: u32,
    /// Flags of the last of these segments; CWR belongs to the frame's first segment alone.
    flags: Flags,
}

/// Reduces the arrival of a merged frame to the frame's first segment. A frame with a wrong
/// checksum stays whole, so that it is dropped and counted once.
fn take_first(
    counters: &mut Counters,
    arrival: &mut Arrival,
    frame: &RxFrame,
) -> RemainingSegments {
    let size = u32::from(frame.segment_bytes());
    let segment = &arrival.segment;
    let (whole, flags) = (segment.len, segment.flags);
    if whole <= size || !is_right(arrival, frame) {
        return RemainingSegments::NOTHING;
    }
    // The checksum of a merged frame covers all its bytes and has just been verified.
    arrival.unverified = None;
    arrival.segment.len = size;
    arrival.segment.flags = flags.without(LAST_ONLY);
    let count = u64::from(whole.div_ceil(size));
    counters.rx_segments += count - 1;
    counters.rx_segments_in_large += count;
    RemainingSegments {
        bytes: whole - size,
        size,
        flags: flags.without(Flags::CWR),
    }
}

/// True if the frame's checksum is right, by its sum or by the port's policy.
fn is_right(arrival: &Arrival, frame: &RxFrame) -> bool {
    (arrival.unverified).is_none_or(|sum| payload_holds(sum, arrival, frame))
}

impl RemainingSegments {
    /// No further segments: the frame holds one segment.
    const NOTHING: Self = Self {
        bytes: 0,
        size: 0,
        flags: Flags::NONE,
    };

    #[inline]
    fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Advances the arrival to the next segment; false if there is none.
    #[inline]
    fn take_next(&mut self, arrival: &mut Arrival) -> bool {
        if self.bytes == 0 {
            return false;
        }
        let is_last = self.bytes <= self.size;
        arrival.segment.seq += self.size;
        arrival.payload_at += self.size;
        arrival.segment.len = self.bytes.min(self.size);
        arrival.segment.flags = match is_last {
            true => self.flags,
            false => self.flags.without(LAST_ONLY),
        };
        self.bytes -= arrival.segment.len;
        true
    }
}
