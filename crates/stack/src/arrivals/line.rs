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

/// A flow while frames are put in order: its first and its last frame so far.
#[derive(Clone, Copy)]
struct Flow {
    first: u16,
    last: u16,
}

/// A bucket of the table of flows: the flow's index, and a digest of its ends.
#[derive(Clone, Copy)]
struct Bucket {
    tag: u16,
    flow: u16,
}

/// Storage for ordering frames, reused by every batch.
pub(crate) struct FlowOrder {
    buckets: Box<[Bucket; FLOW_ORDER_SLOTS]>,
    flows: Vec<Flow>,
    /// The next frame of the same flow, for each frame.
    next: Vec<u16>,
    order: Vec<u16>,
}

impl FlowOrder {
    pub fn new() -> Self {
        Self {
            buckets: Box::new([Bucket { tag: 0, flow: NONE }; FLOW_ORDER_SLOTS]),
            flows: Vec::with_capacity(FLOW_ORDER_FRAMES_MAX),
            next: Vec::with_capacity(FLOW_ORDER_FRAMES_MAX),
            order: Vec::with_capacity(FLOW_ORDER_FRAMES_MAX),
        }
    }

    /// Puts the frames that lead `frames` in order, up to one that is not plain TCP: all of them
    /// that the returned line holds. An empty line: the first frame is not plain TCP.
    pub fn arrange<'a>(&'a mut self, frames: &'a [RxFrame]) -> ByFlow<'a> {
        self.buckets.fill(Bucket { tag: 0, flow: NONE });
        self.flows.clear();
        self.next.clear();
        self.order.clear();
        for frame in frames.iter().take(FLOW_ORDER_FRAMES_MAX) {
            let Some(mixed) = plain::mix_ends(&frame.head()) else {
                break;
            };
            self.append(mixed);
        }
        for flow in &self.flows {
            let mut at = flow.first;
            while let Some(&next) = self.next.get(usize::from(at)) {
                self.order.push(at);
                at = next;
            }
        }
        let order = &self.order;
        ByFlow { frames, order }
    }

    /// Appends the next frame to its flow, or to a new one. Flows that share a bucket for want of
    /// another are taken as one: their frames keep the order of their arrival.
    #[inline(always)]
    fn append(&mut self, mixed: u64) {
        let frame = self.next.len() as u16;
        self.next.push(NONE);
        let tag = (mixed >> 32) as u16;
        let mut at = (mixed >> 48) as usize % FLOW_ORDER_SLOTS;
        for probe in 1..=FLOW_ORDER_PROBES_MAX {
            let bucket = &mut self.buckets[at];
            let Some(flow) = self.flows.get_mut(usize::from(bucket.flow)) else {
                let flow = self.flows.len() as u16;
                *bucket = Bucket { tag, flow };
                return self.flows.push(Flow {
                    first: frame,
                    last: frame,
                });
            };
            if bucket.tag == tag || probe == FLOW_ORDER_PROBES_MAX {
                self.next[usize::from(flow.last)] = frame;
                flow.last = frame;
                return;
            }
            at = (at + 1) % FLOW_ORDER_SLOTS;
        }
    }
}

#[cfg(test)]
mod tests;
