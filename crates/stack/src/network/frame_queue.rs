//! Whole frames that wait for the transmit stage, in a ring of fixed buffers. They come from the
//! cold path (ARP, neighbour discovery, echo replies, ICMP errors), or were held for a neighbour.
//!
//! At the limit the newest frame is dropped: receivers ask again for each kind of frame here.

use packetio::TxFrame;

pub(crate) struct FrameQueue {
    /// Frame buffers, in one allocation. Those never used are zero pages that take no memory.
    bytes: Box<[u8]>,
    lens: Box<[u32]>,
    frame_bytes_max: usize,
    head: usize,
    len: usize,
    /// Number of frames that found no room.
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

    /// Number of frames dropped because the queue was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Lets `write` fill a frame and return its length; a length of 0 withdraws it. False: no room.
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

    /// Copies a frame into the queue. False: there is no room, or the frame is too long.
    pub fn push(&mut self, frame: &[u8]) -> bool {
        frame.len() <= self.frame_bytes_max
            && self.push_with(|out| {
                out[..frame.len()].copy_from_slice(frame);
                frame.len()
            })
    }

    /// Moves frames into the driver's, as many as fit. Returns the number.
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
