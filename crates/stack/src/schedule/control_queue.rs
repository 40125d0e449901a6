//! Segments that leave without a connection: resets, SYN-ACKs, challenge ACKs, and the last ACK of
//! a connection in TIME_WAIT. None carries payload.
//!
//! At the limit ([`Limits::control_queue_max`](crate::limits::Limits)) the newest segment is
//! dropped and counted. The peer that waits for it asks again.

use std::collections::VecDeque;

use tcp::SegmentOut;
use wire::FlowKey;

use crate::header_fields::HeaderFields;

/// A segment with its flow and the fields of its network header.
pub(crate) struct ControlSegment {
    pub key: FlowKey,
    pub segment: SegmentOut,
    pub header: HeaderFields,
}

pub(crate) struct ControlQueue {
    waiting: VecDeque<ControlSegment>,
    capacity: usize,
    /// Number of segments that found no room.
    refused: u64,
}

impl ControlQueue {
    pub fn new(capacity: usize) -> Self {
        Self {
            waiting: VecDeque::with_capacity(capacity),
            capacity,
            refused: 0,
        }
    }

    #[inline]
    pub fn push(&mut self, key: &FlowKey, segment: &SegmentOut, header: HeaderFields) {
        if self.waiting.len() == self.capacity {
            self.refused += 1;
            return;
        }
        self.waiting.push_back(ControlSegment {
            key: *key,
            segment: segment.clone(),
            header,
        });
    }

    /// The oldest segment, in place because it is large.
    #[inline]
    pub fn first(&self) -> Option<&ControlSegment> {
        self.waiting.front()
    }

    /// Removes the oldest segment.
    pub fn take_first(&mut self) -> Option<ControlSegment> {
        self.waiting.pop_front()
    }

    /// Removes the newest segments, so that `len` remain.
    pub fn truncate(&mut self, len: usize) {
        self.waiting.truncate(len);
    }

    /// Number of segments that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Drops the oldest segment, which has left.
    #[inline]
    pub fn drop_first(&mut self) {
        self.waiting.pop_front();
    }

    /// Number of segments dropped because the queue was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// True if the queue is half full, so that input which calls for answers may soon fill it.
    #[inline]
    pub fn is_half_full(&self) -> bool {
        self.waiting.len() * 2 > self.capacity
    }

    /// The total capacity.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The free capacity.
    #[inline]
    pub fn room(&self) -> usize {
        self.capacity - self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
