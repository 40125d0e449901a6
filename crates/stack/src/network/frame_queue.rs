//! Whole frames that wait for the transmit stage, in a ring of fixed buffers. They come from the
//! cold path (ARP, neighbour discovery, echo replies, ICMP errors), or waited for a neighbour.
//!
//! At the limit the newest frame is dropped; its receiver asks for all of these again.

use packetio::TxFrame;

pub(crate) struct FrameQueue {
    /// Zero and untouched as far as it was never used.
    bytes: Box<[u8]>,
    lens: Box<[u32]>,
    frame_bytes_max: usize,
    head: usize,
    len: usize,
    /// Frames that found no room.
    refused: u64,
}

impl FrameQueue {
    pub fn new(frames_max: usize, frame_bytes_max: usize) -> Self {
        Self {
            bytes: vec![0; frames_max * frame_bytes_max].into_boxed_slice(),
            lens: vec![0; frames_max].into_boxed_slice(),
            frame_bytes_max,
            head: 0,
            len: 0,
            refused: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Frames that were dropped because the queue was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Lets `write` fill a frame and say how long it is; 0 takes it back. False: no room.
    pub fn push_with(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if self.len == self.lens.len() {
            self.refused += 1;
            return false;
        }
        let place = (self.head + self.len) % self.lens.len();
        let start = place * self.frame_bytes_max;
        let len = write(&mut self.bytes[start..start + self.frame_bytes_max]);
        if len > 0 {
            self.lens[place] = len as u32;
            self.len += 1;
        }
        true
    }

    /// Copies a frame in. False: no room, or too long.
    pub fn push(&mut self, frame: &[u8]) -> bool {
        frame.len() <= self.frame_bytes_max
            && self.push_with(|out| {
                out[..frame.len()].copy_from_slice(frame);
                frame.len()
            })
    }

    /// Moves frames to the driver's, as many as fit.
    pub fn fill(&mut self, frames: &[TxFrame]) -> usize {
        let count = self.len.min(frames.len());
        for frame in &frames[..count] {
            let start = self.head * self.frame_bytes_max;
            let end = start + self.lens[self.head] as usize;
            let written = frame.write(0, &self.bytes[start..end]);
            frame.set_len(written);
            self.head = (self.head + 1) % self.lens.len();
        }
        self.len -= count;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_frame_is_taken_back_and_a_full_queue_refuses() {
        let mut queue = FrameQueue::new(2, 8);
        assert!(queue.push_with(|_| 0));
        assert!(queue.is_empty());
        assert!(queue.push(&[1; 8]) && queue.push(&[2]));
        assert!(!queue.push(&[3]));
        assert!(!FrameQueue::new(1, 8).push(&[0; 9]));
    }
}
