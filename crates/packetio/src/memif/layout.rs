//! The layout of shared memory: ring header, descriptor, and the region that our client makes.
//!
//! [`ring_unsafe`](super::ring_unsafe) uses the offsets, the client's handshake the plan of the
//! region.
//!
//! ```text
//! ring     0 cookie u32 │ 4 flags u16 │ 6 head u16 │ … │ 64 tail u16 │ … │ 128 descriptor[slots]
//! descr.   0 flags u16 │ 2 region u16 │ 4 length u32 │ 8 offset u32 │ 12 metadata u32
//! region   rings client→server 0..q │ rings server→client 0..q │ page │ buffers of each ring in the same order
//! ```

use super::limits::{BUFFER_BYTES_MAX, QUEUES_MAX, RING_SLOTS_LOG2_MAX};

/// Value in every ring's header by which a wrong offset is noticed.
pub const COOKIE: u32 = 0x03E3_1F20;
/// Offset of the cookie in the ring's header.
pub const RING_COOKIE: usize = 0;
/// Offset of the flags, which the ring's receiver writes.
pub const RING_FLAGS: usize = 4;
/// Offset of the head cursor, which the client writes.
pub const RING_HEAD: usize = 6;
/// Offset of the tail cursor, which the server writes.
pub const RING_TAIL: usize = 64;
/// Offset of the first descriptor.
pub const RING_DESCRIPTORS: usize = 128;
/// Ring flag: the receiver polls, so its bell must not be rung.
pub const RING_FLAG_MASK_INTERRUPT: u16 = 1;

/// Bytes of one descriptor.
pub const DESCRIPTOR_BYTES: usize = 16;
/// Descriptor flag: the frame continues in the next slot.
pub const DESCRIPTOR_FLAG_NEXT: u16 = 1;

/// Required alignment of a ring in a peer's region, bytes: that of a descriptor's words.
pub const RING_ALIGN: usize = 16;

const LINE: usize = 64;
const PAGE: usize = 4096;

/// Bytes of a ring with its descriptors.
pub const fn ring_bytes(slots_log2: u8) -> usize {
    RING_DESCRIPTORS + (DESCRIPTOR_BYTES << slots_log2)
}

/// The plan of the single region that our client makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionPlan {
    /// Number of rings in each direction.
    pub queues: usize,
    /// Log2 of the number of slots in each ring.
    pub slots_log2: u8,
    /// Usable bytes of each buffer.
    pub buffer_bytes: usize,
}

/// The direction of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Frames from the client ("S2M" in the protocol's words).
    ClientToServer,
    /// Frames from the server ("M2S").
    ServerToClient,
}

impl RegionPlan {
    /// Bytes from one buffer to the next: an odd number of cache lines. The first lines of the
    /// buffers, which small frames use, thereby spread over all cache sets instead of two.
    pub const fn buffer_stride(&self) -> usize {
        let lines = self.buffer_bytes.div_ceil(LINE);
        (lines | 1) * LINE
    }

    /// Number of slots in each ring.
    pub const fn slots(&self) -> usize {
        1 << self.slots_log2
    }

    /// Offset of a ring's header.
    pub const fn ring_offset(&self, direction: Direction, queue: usize) -> usize {
        self.ring_number(direction, queue) * self.ring_stride()
    }

    /// Offset of the first buffer of a ring; buffers follow each other in the order of slots.
    pub const fn buffers_offset(&self, direction: Direction, queue: usize) -> usize {
        self.buffers_start()
            + self.ring_number(direction, queue) * self.slots() * self.buffer_stride()
    }

    /// Bytes of the region.
    pub const fn region_bytes(&self) -> usize {
        let end = self.buffers_start() + 2 * self.queues * self.slots() * self.buffer_stride();
        end.next_multiple_of(PAGE)
    }

    const fn ring_stride(&self) -> usize {
        ring_bytes(self.slots_log2).next_multiple_of(LINE)
    }

    const fn buffers_start(&self) -> usize {
        (2 * self.queues * self.ring_stride()).next_multiple_of(PAGE)
    }

    const fn ring_number(&self, direction: Direction, queue: usize) -> usize {
        match direction {
            Direction::ClientToServer => queue,
            Direction::ServerToClient => self.queues + queue,
        }
    }
}

const _: () = {
    assert!(RING_HEAD + 2 <= LINE && RING_TAIL == LINE && RING_DESCRIPTORS == 2 * LINE);
    assert!(RING_COOKIE + 4 == RING_FLAGS && RING_FLAGS + 2 == RING_HEAD);
    assert!(ring_bytes(10) == 128 + 16 * 1024);
    // All sizes fit usize; options that exceed the descriptors' 32-bit offsets are refused at open.
    assert!(QUEUES_MAX < 1 << 8 && RING_SLOTS_LOG2_MAX < 16 && BUFFER_BYTES_MAX <= 1 << 16);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_parts_follow_each_other_without_overlap() {
        for (queues, slots_log2, buffer_bytes) in
            [(1, 3, 128), (2, 10, 2048), (3, 5, 65_536), (4, 8, 1500)]
        {
            let plan = RegionPlan {
                queues,
                slots_log2,
                buffer_bytes,
            };
            let mut end = 0;
            for direction in [Direction::ClientToServer, Direction::ServerToClient] {
                for queue in 0..queues {
                    let at = plan.ring_offset(direction, queue);
                    assert!(at >= end && at.is_multiple_of(64));
                    end = at + ring_bytes(slots_log2);
                }
            }
            assert!(plan.buffers_offset(Direction::ClientToServer, 0) >= end);
            for direction in [Direction::ClientToServer, Direction::ServerToClient] {
                for queue in 0..queues {
                    let at = plan.buffers_offset(direction, queue);
                    assert!(at >= end && at.is_multiple_of(64));
                    end = at + plan.slots() * plan.buffer_stride();
                }
            }
            assert!(plan.region_bytes() >= end && plan.region_bytes() < end + PAGE);
        }
    }

    #[test]
    fn buffer_stride_is_an_odd_number_of_lines() {
        for buffer_bytes in [128, 1500, 2048, 65_536] {
            let stride = RegionPlan {
                queues: 1,
                slots_log2: 3,
                buffer_bytes,
            }
            .buffer_stride();
            assert!(stride >= buffer_bytes && stride % 128 == 64);
        }
    }
}
