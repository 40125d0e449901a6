//! Whole frames of the cold path (ARP, neighbour discovery, echo replies, ICMP errors) that wait for the transmit stage: a ring of fixed buffers.
//!
//! At the limit the newest is dropped; everything here is something that its receiver asks for again.

use packetio::TxFrame;

use crate::limits::{COLD_FRAME_BYTES_MAX, COLD_FRAMES_MAX};

pub(crate) struct FrameQueue {
    bytes: Box<[u8]>,
    lens: [usize; COLD_FRAMES_MAX],
    head: usize,
    len: usize,
}

impl FrameQueue {
    pub fn new() -> Self {
        let bytes = vec![0; COLD_FRAMES_MAX * COLD_FRAME_BYTES_MAX].into_boxed_slice();
        Self {
            bytes,
            lens: [0; COLD_FRAMES_MAX],
            head: 0,
            len: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Lets `write` fill a frame and say how long it is; 0 takes it back. False: no room.
    pub fn push_with(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if self.len == COLD_FRAMES_MAX {
            return false;
        }
        let place = (self.head + self.len) % COLD_FRAMES_MAX;
        let start = place * COLD_FRAME_BYTES_MAX;
        let len = write(&mut self.bytes[start..start + COLD_FRAME_BYTES_MAX]);
        if len > 0 {
            self.lens[place] = len;
            self.len += 1;
        }
        true
    }

    /// Copies a frame in. False: no room, or too long.
    pub fn push(&mut self, frame: &[u8]) -> bool {
        frame.len() <= COLD_FRAME_BYTES_MAX
            && self.push_with(|out| {
                out[..frame.len()].copy_from_slice(frame);
                frame.len()
            })
    }

    /// Moves frames to the driver's, as many as fit.
    pub fn fill(&mut self, frames: &[TxFrame]) -> usize {
        let count = self.len.min(frames.len());
        for frame in &frames[..count] {
            let start = self.head * COLD_FRAME_BYTES_MAX;
            let written = frame.write(0, &self.bytes[start..start + self.lens[self.head]]);
            frame.set_len(written);
            self.head = (self.head + 1) % COLD_FRAMES_MAX;
        }
        self.len -= count;
        count
    }
}
