//! A batch's frames as a line: in the order of their arrival, or flow by flow.
//!
//! Frames of several flows that interleave are taken flow by flow, so that each flow's frames are
//! one run. Frames of one flow keep their order. A frame that is not plain TCP stays where it is:
//! the frames before it are put in order apart from those behind it.

use packetio::RxFrame;
use wire::plain;

use crate::limits::{FLOW_ORDER_FRAMES_MAX, FLOW_ORDER_PROBES_MAX, FLOW_ORDER_SLOTS};

/// No frame, no flow.
const NONE: u16 = u16::MAX;

/// Frames to be taken one after another.
pub(crate) trait Line: Copy {
    /// The frame at this position.
    fn get(&self, at: usize) -> Option<&RxFrame>;
    /// The line behind this many frames.
    fn behind(&self, count: usize) -> Self;
    /// Frames in the line.
    fn len(&self) -> usize;
}

impl Line for &[RxFrame] {
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

impl Line for ByFlow<'_> {
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

/// Indices of frames wrap within arrays of this length, which saves checks of bounds.
const FRAMES: usize = FLOW_ORDER_FRAMES_MAX;
const _: () = assert!(FRAMES.is_power_of_two() && FLOW_ORDER_SLOTS.is_power_of_two());

/// Storage for ordering frames, reused by every batch.
pub(crate) struct FlowOrder {
    buckets: [Bucket; FLOW_ORDER_SLOTS],
    /// The first frame of each flow, in the order of their arrival.
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

    /// Puts the frames that lead `frames` in order, up to one that is not plain TCP: all of them
    /// that the returned line holds. An empty line: the first frame is not plain TCP.
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

    /// Appends a frame to its flow. True: it is the first of its flow. Flows that share a bucket
    /// for want of another are taken as one: their frames keep the order of their arrival.
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
