//! The frames of a batch as a line: in order of arrival, or flow by flow.
//!
//! Interleaved frames of several flows are processed flow by flow, so that each flow forms one run.
//! Frames of one flow keep their order. A frame that is not plain TCP keeps its place: frames
//! before it and frames behind it are ordered separately.

use packetio::RxFrame;
use wire::plain;

use crate::limits::{FLOW_ORDER_FRAMES_MAX, FLOW_ORDER_PROBES_MAX, FLOW_ORDER_SLOTS};

/// Index value that stands for no frame.
const NONE: u16 = u16::MAX;

/// Frames in the order in which they are processed.
pub(crate) trait FrameOrder: Copy {
    /// The frame at this position.
    fn get(&self, at: usize) -> Option<&RxFrame>;
    /// The line without its first `count` frames.
    fn behind(&self, count: usize) -> Self;
    /// Number of frames in the line.
    fn len(&self) -> usize;
}

impl FrameOrder for &[RxFrame] {
    #[inline(always)]
    fn get(&self, at: usize) -> Option<&RxFrame> {
        <[RxFrame]>::get(self, at)
    }

    #[inline(always)]
    fn behind(&self, count: usize) -> Self {
        &self[count.min(<[RxFrame]>::len(self))..]
    }

    #[inline(always)]
    fn len(&self) -> usize {
        <[RxFrame]>::len(self)
    }
}

/// Frames flow by flow.
#[derive(Clone, Copy)]
pub(crate) struct ByFlow<'a> {
    frames: &'a [RxFrame],
    /// Indices of `frames` in the order in which they are taken.
    order: &'a [u16],
}

impl FrameOrder for ByFlow<'_> {
    #[inline(always)]
    fn get(&self, at: usize) -> Option<&RxFrame> {
        self.frames.get(usize::from(*self.order.get(at)?))
    }

    #[inline(always)]
    fn behind(&self, count: usize) -> Self {
        Self {
            frames: self.frames,
            order: &self.order[count.min(self.order.len())..],
        }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.order.len()
    }
}

/// A bucket of the table of flows: a digest of a flow's ends, and its last frame so far.
#[derive(Clone, Copy)]
struct Bucket {
    tag: u16,
    last: u16,
}

const EMPTY: Bucket = Bucket { tag: 0, last: NONE };

/// Length of the index arrays. Indices are taken modulo this length, which saves bounds checks.
const FRAMES: usize = FLOW_ORDER_FRAMES_MAX;
const _: () = assert!(FRAMES.is_power_of_two() && FLOW_ORDER_SLOTS.is_power_of_two());

/// Storage in which a batch is ordered; every batch reuses it.
pub(crate) struct FlowOrder {
    buckets: [Bucket; FLOW_ORDER_SLOTS],
    /// The first frame of each flow, in order of arrival.
    firsts: [u16; FRAMES],
    /// The next frame of the same flow, for each frame.
    next: [u16; FRAMES],
    order: [u16; FRAMES],
}

impl FlowOrder {
    pub fn new() -> Box<Self> {
        Box::new(Self {
            buckets: [EMPTY; FLOW_ORDER_SLOTS],
            firsts: [NONE; FRAMES],
            next: [NONE; FRAMES],
            order: [NONE; FRAMES],
        })
    }

    /// Orders the leading frames up to the first one that is not plain TCP; the returned line holds
    /// exactly these. The line is empty if the first frame is not plain TCP.
    pub fn arrange<'a>(&'a mut self, frames: &'a [RxFrame]) -> ByFlow<'a> {
        self.buckets.fill(EMPTY);
        let mut flows = 0;
        for (at, frame) in frames.iter().take(FRAMES).enumerate() {
            let Some(mixed) = plain::mix_ends(&frame.head()) else {
                break;
            };
            if self.append(at as u16, mixed) {
                self.firsts[flows % FRAMES] = at as u16;
                flows += 1;
            }
        }
        let mut count = 0;
        for &first in &self.firsts[..flows] {
            let mut at = first;
            while at != NONE {
                self.order[count % FRAMES] = at;
                count += 1;
                at = self.next[usize::from(at) % FRAMES];
            }
        }
        ByFlow {
            frames,
            order: &self.order[..count],
        }
    }

    /// Appends a frame to its flow; true if it is the first frame of the flow. Flows that must
    /// share a bucket are treated as one, so their frames stay in order of arrival.
    #[inline(always)]
    fn append(&mut self, frame: u16, mixed: u64) -> bool {
        self.next[usize::from(frame) % FRAMES] = NONE;
        let tag = (mixed >> 32) as u16;
        let mut at = (mixed >> 48) as usize % FLOW_ORDER_SLOTS;
        for probe in 1..=FLOW_ORDER_PROBES_MAX {
            let bucket = &mut self.buckets[at];
            if bucket.last == NONE {
                *bucket = Bucket { tag, last: frame };
                return true;
            }
            if bucket.tag == tag || probe == FLOW_ORDER_PROBES_MAX {
                self.next[usize::from(bucket.last) % FRAMES] = frame;
                bucket.last = frame;
                break;
            }
            at = (at + 1) % FLOW_ORDER_SLOTS;
        }
        false
    }
}

#[cfg(test)]
mod tests;
