//! Segments that leave without a connection: resets, SYN-ACKs, challenge ACKs, the last ACK of a connection that went to TIME_WAIT. None bears payload.
//!
//! At the limit ([`Limits::control_queue_max`](crate::limits::Limits)) the newest is dropped and counted; whoever waits for it asks again.

use std::collections::VecDeque;

use tcp::SegmentOut;
use wire::FlowKey;

use crate::counters::Counters;

pub(crate) struct ControlQueue {
    waiting: VecDeque<(FlowKey, SegmentOut)>,
    capacity: usize,
}

impl ControlQueue {
    pub fn new(capacity: usize) -> Self {
        Self {
            waiting: VecDeque::with_capacity(capacity),
            capacity,
        }
    }

    #[inline]
    pub fn push(&mut self, key: FlowKey, segment: SegmentOut, counters: &mut Counters) {
        if self.waiting.len() == self.capacity {
            counters.control_queue_full += 1;
            return;
        }
        self.waiting.push_back((key, segment));
    }

    #[inline]
    pub fn pop(&mut self) -> Option<(FlowKey, SegmentOut)> {
        self.waiting.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
