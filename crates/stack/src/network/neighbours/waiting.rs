//! Connections and frames that wait for neighbours: two pools of fixed size, through which each
//! neighbour has a short queue.

use crate::limits::{
    CONTROL_FRAME_BYTES_MAX, NEIGHBOUR_FRAMES_EACH_MAX, NEIGHBOUR_FRAMES_MAX, NEIGHBOUR_WAITING_MAX,
};

/// Index that ends a chain.
const NONE: u32 = u32::MAX;

/// The output that waits for one neighbour: a chain of tokens and a chain of frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    tokens: Chain,
    frames: Chain,
    frames_len: u16,
}

impl Queue {
    pub(super) const EMPTY: Queue = Queue {
        tokens: Chain::EMPTY,
        frames: Chain::EMPTY,
        frames_len: 0,
    };

    pub(super) fn is_empty(&self) -> bool {
        self.tokens.head == NONE && self.frames.head == NONE
    }
}

/// Whether a frame was kept, and how many frames were dropped; the count includes this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Held {
    pub(super) kept: bool,
    pub(super) dropped: u16,
}

/// The memory of all queues: one pool for tokens, one for frames.
#[derive(Debug)]
pub(super) struct Pools {
    tokens: Pool<u32>,
    frames: Pool<Frame>,
}

#[derive(Clone, Debug)]
struct Frame {
    len: usize,
    bytes: [u8; CONTROL_FRAME_BYTES_MAX],
}

impl Pools {
    pub(super) fn new() -> Pools {
        let empty = Frame {
            len: 0,
            bytes: [0; CONTROL_FRAME_BYTES_MAX],
        };
        Pools {
            tokens: Pool::new(NEIGHBOUR_WAITING_MAX, 0),
            frames: Pool::new(NEIGHBOUR_FRAMES_MAX, empty),
        }
    }

    pub(super) fn push_token(&mut self, queue: &mut Queue, token: u32) -> bool {
        match self.tokens.push(&mut queue.tokens) {
            Some(place) => {
                *place = token;
                true
            }
            None => false,
        }
    }

    pub(super) fn pop_token(&mut self, queue: &mut Queue) -> Option<u32> {
        self.tokens.pop(&mut queue.tokens).copied()
    }

    pub(super) fn push_frame(&mut self, queue: &mut Queue, frame: &[u8]) -> Held {
        if frame.len() > CONTROL_FRAME_BYTES_MAX || frame.len() < 14 {
            return Held {
                kept: false,
                dropped: 1,
            };
        }
        let mut dropped = 0;
        if usize::from(queue.frames_len) == NEIGHBOUR_FRAMES_EACH_MAX {
            self.pop_frame(queue);
            dropped += 1;
        }
        let Some(place) = self.frames.push(&mut queue.frames) else {
            return Held {
                kept: false,
                dropped: dropped + 1,
            };
        };
        place.len = frame.len();
        place.bytes[..frame.len()].copy_from_slice(frame);
        queue.frames_len += 1;
        Held {
            kept: true,
            dropped,
        }
    }

    /// Removes the oldest frame; its bytes stay valid until the next push.
    pub(super) fn pop_frame(&mut self, queue: &mut Queue) -> Option<&mut [u8]> {
        let frame = self.frames.pop(&mut queue.frames)?;
        queue.frames_len -= 1;
        Some(&mut frame.bytes[..frame.len])
    }

    /// Empties `queue`; returns the number of frames lost.
    pub(super) fn clear(&mut self, queue: &mut Queue) -> u16 {
        let frames = queue.frames_len;
        while self.pop_token(queue).is_some() {}
        while self.pop_frame(queue).is_some() {}
        frames
    }
}

/// A singly linked queue through a pool.
#[derive(Clone, Copy, Debug)]
struct Chain {
    head: u32,
    tail: u32,
}

impl Chain {
    const EMPTY: Chain = Chain {
        head: NONE,
        tail: NONE,
    };
}

#[derive(Debug)]
struct Pool<T> {
    /// Nodes that were ever used. Memory for all is reserved; what was never used is untouched.
    nodes: Vec<(T, u32)>,
    free: u32,
    empty: T,
    len_max: usize,
}

impl<T: Clone> Pool<T> {
    fn new(len_max: usize, empty: T) -> Pool<T> {
        Pool {
            nodes: Vec::with_capacity(len_max),
            free: NONE,
            empty,
            len_max,
        }
    }

    /// Appends a node to `chain` for the caller to fill; `None`: the pool is empty.
    fn push(&mut self, chain: &mut Chain) -> Option<&mut T> {
        if self.free == NONE && self.nodes.len() < self.len_max {
            self.free = self.nodes.len() as u32;
            self.nodes.push((self.empty.clone(), NONE));
        }
        let at = self.free;
        let node = self.nodes.get_mut(at as usize)?;
        self.free = std::mem::replace(&mut node.1, NONE);
        if chain.tail == NONE {
            chain.head = at;
        } else {
            self.nodes[chain.tail as usize].1 = at;
        }
        chain.tail = at;
        Some(&mut self.nodes[at as usize].0)
    }

    fn pop(&mut self, chain: &mut Chain) -> Option<&mut T> {
        let at = chain.head;
        let next = self.nodes.get(at as usize)?.1;
        chain.head = next;
        if next == NONE {
            chain.tail = NONE;
        }
        self.nodes[at as usize].1 = self.free;
        self.free = at;
        Some(&mut self.nodes[at as usize].0)
    }
}
