//! The queue of frames that a stack sends to itself. They never reach a wire.
//!
//! The queue owns the frames' memory. The stack writes frames into its port's slots as always.
//! Before they leave, [`LocalQueue::take`] copies those for [`LOCAL_MAC`] and empties their slots,
//! which the port skips. The next turn receives only what was queued before, so the stack still
//! serves its wire in every turn. Checksums are trusted, because the frames never leave this
//! process.

use std::collections::VecDeque;

use crate::buffer_unsafe::{FrameBuf, RxBatch, TxBatch, carve};
use crate::frame_unsafe::{RxChecksum, RxFrame, TxFrame};
use crate::limits::{FRAME_HEADER_MAX, LOCAL_QUEUE_BATCH_MAX, LOCAL_QUEUE_SLOTS};
use crate::port::{Capabilities, MacAddr};

/// Destination MAC address of frames for the queue. No station on a wire has it.
pub const LOCAL_MAC: MacAddr = MacAddr([0; 6]);

/// See the module's documentation.
pub struct LocalQueue {
    free: Vec<FrameBuf>,
    waiting: VecDeque<FrameBuf>,
    lent: RxBatch,
    granted: TxBatch,
}

impl LocalQueue {
    /// Makes a queue for frames of at most `frame_bytes` bytes; see
    /// [`frame_bytes`](Self::frame_bytes).
    #[must_use]
    pub fn new(frame_bytes: usize) -> Self {
        Self {
            free: carve(LOCAL_QUEUE_SLOTS, frame_bytes),
            waiting: VecDeque::with_capacity(LOCAL_QUEUE_SLOTS),
            lent: RxBatch::new(LOCAL_QUEUE_BATCH_MAX),
            granted: TxBatch::new(LOCAL_QUEUE_BATCH_MAX),
        }
    }

    /// Length of the longest frame that a stack builds for a port, bytes.
    #[must_use]
    pub fn frame_bytes(port: &Capabilities) -> usize {
        port.mtu.max(port.segment_bytes_max) + FRAME_HEADER_MAX
    }

    /// Number of frames that wait to be received.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True if no frame waits.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the frames for [`LOCAL_MAC`] out of a batch that is about to leave. Returns their
    /// number, and how many were lost for want of room.
    pub fn take(&mut self, frames: &[TxFrame]) -> (u64, u64) {
        let (mut taken, mut lost) = (0, 0);
        for frame in frames {
            if !is_local(frame) {
                continue;
            }
            taken += 1;
            let Some(mut buf) = self.free.pop() else {
                lost += 1;
                frame.reset();
                continue;
            };
            if buf.copy_written(frame) {
                self.waiting.push_back(trusted(buf));
            } else {
                lost += 1;
                self.free.push(buf);
            }
            frame.reset();
        }
        (taken, lost)
    }

    /// Slots for frames when the port has none to offer, like [`Port::reserve`](crate::Port).
    pub fn reserve(&mut self, n: usize) -> &[TxFrame] {
        let n = n.min(LOCAL_QUEUE_BATCH_MAX);
        let missing = n.saturating_sub(self.granted.len());
        let from = self.free.len().saturating_sub(missing);
        self.granted.extend(self.free.drain(from..));
        self.granted.frames(n)
    }

    /// Queues the reserved frames for [`LOCAL_MAC`]. Returns the number of those for the wire,
    /// which are dropped.
    pub fn send(&mut self) -> u64 {
        let mut dropped = 0;
        for buf in self.granted.drain() {
            let is_local = buf.bytes().starts_with(&LOCAL_MAC.0);
            dropped += u64::from(!is_local && !buf.is_empty());
            match is_local {
                true => self.waiting.push_back(trusted(buf)),
                false => self.free.push(buf),
            }
        }
        dropped
    }

    /// Lends up to `n` frames, in order, until the next call or [`release`](Self::release).
    pub fn receive(&mut self, n: usize) -> &[RxFrame] {
        self.release();
        let n = n.min(self.waiting.len()).min(LOCAL_QUEUE_BATCH_MAX);
        for buf in self.waiting.drain(..n) {
            self.lent.push(buf);
        }
        self.lent.frames()
    }

    /// Ends the loan of frames.
    pub fn release(&mut self) {
        self.free.extend(self.lent.drain());
    }
}

/// The frame with its checksum marked as verified.
fn trusted(mut buf: FrameBuf) -> FrameBuf {
    buf.checksum = RxChecksum::Verified;
    buf.offload = None;
    buf
}

#[inline]
fn is_local(frame: &TxFrame) -> bool {
    !frame.is_empty() && frame.destination() == LOCAL_MAC.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::{LoopbackOptions, pair};
    use crate::port::Port;

    fn write(frame: &TxFrame, mac: MacAddr, text: &[u8]) {
        frame.write(0, &mac.0);
        frame.write(6, text);
        frame.set_len(6 + text.len());
    }

    fn text(frame: &RxFrame) -> Vec<u8> {
        let mut bytes = vec![0; frame.len()];
        frame.copy_to(0, &mut bytes);
        bytes.split_off(6)
    }

    #[test]
    fn frames_for_this_stack_are_queued_and_the_others_leave() {
        let (mut near, mut far) = pair(&LoopbackOptions::default()).expect("a wire");
        let mut local = LocalQueue::new(LocalQueue::frame_bytes(near.capabilities()));
        let slots = near.reserve(3);
        write(&slots[0], LOCAL_MAC, b"one");
        write(&slots[1], MacAddr([2; 6]), b"wire");
        write(&slots[2], LOCAL_MAC, b"two");
        assert_eq!(local.take(slots), (2, 0));
        near.send(3).expect("sent");
        let left: Vec<_> = far.receive().expect("frames").iter().map(text).collect();
        assert_eq!(left, [b"wire"]);
        let stayed: Vec<_> = local.receive(9).iter().map(text).collect();
        assert_eq!(stayed, [b"one", b"two"]);
        local.release();
        assert!(local.is_empty());
    }

    #[test]
    fn full_queue_loses_what_comes_next_and_says_so() {
        let (mut near, _far) = pair(&LoopbackOptions::default()).expect("a wire");
        let mut local = LocalQueue::new(LocalQueue::frame_bytes(near.capabilities()));
        let mut lost = 0;
        for _ in 0..=LOCAL_QUEUE_SLOTS {
            let slots = near.reserve(1);
            write(&slots[0], LOCAL_MAC, b"x");
            lost += local.take(slots).1;
        }
        assert_eq!((local.len(), lost), (LOCAL_QUEUE_SLOTS, 1));
    }

    #[test]
    fn slots_of_the_queue_itself_serve_where_the_port_has_none() {
        let (near, _far) = pair(&LoopbackOptions::default()).expect("a wire");
        let mut local = LocalQueue::new(LocalQueue::frame_bytes(near.capabilities()));
        let slots = local.reserve(2);
        write(&slots[0], MacAddr([2; 6]), b"wire");
        write(&slots[1], LOCAL_MAC, b"here");
        assert_eq!(local.send(), 1, "the wire takes nothing");
        assert_eq!(
            local.receive(9).iter().map(text).collect::<Vec<_>>(),
            [b"here"]
        );
    }
}
