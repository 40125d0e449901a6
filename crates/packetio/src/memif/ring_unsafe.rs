//! A ring in shared memory with its header, cursors, flags and descriptors.
//!
//! [`RingMemory`] keeps its region mapped. Each word of a descriptor is read once, and the local
//! copy is used. Cursors are plain numbers, which the callers `rx` and `tx` check.

use std::ptr::NonNull;
use std::sync::Arc;

use ring::driver::{fence_full, load_acquire_u16, read_once, store_release_u16, write_once};

use super::layout::{
    COOKIE, DESCRIPTOR_BYTES, RING_ALIGN, RING_COOKIE, RING_DESCRIPTORS, RING_FLAG_MASK_INTERRUPT,
    RING_FLAGS, RING_HEAD, RING_TAIL, ring_bytes,
};
use super::limits::RING_SLOTS_LOG2_MAX;
use super::region_unsafe::Region;

/// A local copy of one descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Flags: [`DESCRIPTOR_FLAG_NEXT`](super::layout::DESCRIPTOR_FLAG_NEXT) or 0.
    pub flags: u16,
    /// Index of the region that holds the buffer.
    pub region: u16,
    /// Length of the frame or buffer, bytes.
    pub length: u32,
    /// Offset of the buffer in its region, bytes.
    pub offset: u32,
}

/// A ring in a region. The bounds of header and descriptors are checked once.
#[derive(Clone, Debug)]
pub struct RingMemory {
    base: NonNull<u8>,
    mask: u16,
    /// Keeps `base` mapped.
    _region: Arc<Region>,
}

// SAFETY: the pointer leads into a mapping that is kept alive and is valid on every thread;
// accesses are raw.
unsafe impl Send for RingMemory {}
// SAFETY: as above.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    /// Makes the ring at `offset`. `None`: it exceeds the region or is misaligned.
    pub fn new(region: &Arc<Region>, offset: u32, slots_log2: u8) -> Option<Self> {
        if slots_log2 > RING_SLOTS_LOG2_MAX || !(offset as usize).is_multiple_of(RING_ALIGN) {
            return None;
        }
        let base = region.place(offset as usize, ring_bytes(slots_log2))?;
        Some(Self {
            base,
            mask: (1u16 << slots_log2) - 1,
            _region: Arc::clone(region),
        })
    }

    /// Number of slots minus one.
    #[inline]
    pub fn mask(&self) -> u16 {
        self.mask
    }

    /// Number of slots.
    #[inline]
    pub fn slots(&self) -> u16 {
        self.mask + 1
    }

    /// Writes the header of an empty ring.
    pub fn initialise(&self) {
        // SAFETY: the cookie lies in the header, which is in bounds and 16-aligned.
        unsafe { write_once(self.word(RING_COOKIE), COOKIE) };
        self.set_head(0);
        self.set_tail(0);
        self.set_interrupts(false);
    }

    /// True if the header holds the cookie.
    pub fn has_cookie(&self) -> bool {
        // SAFETY: as in `initialise`.
        unsafe { read_once(self.word::<u32>(RING_COOKIE)) == COOKIE }
    }

    /// The client's cursor.
    #[inline]
    pub fn head(&self) -> u16 {
        // SAFETY: in the header, 2-aligned.
        unsafe { load_acquire_u16(self.word(RING_HEAD)) }
    }

    /// The server's cursor.
    #[inline]
    pub fn tail(&self) -> u16 {
        // SAFETY: in the header, 2-aligned.
        unsafe { load_acquire_u16(self.word(RING_TAIL)) }
    }

    /// Publishes the client's cursor and everything written before.
    #[inline]
    pub fn set_head(&self, head: u16) {
        // SAFETY: in the header, 2-aligned.
        unsafe { store_release_u16(self.word(RING_HEAD), head) }
    }

    /// Publishes the server's cursor and everything written before.
    #[inline]
    pub fn set_tail(&self, tail: u16) {
        // SAFETY: in the header, 2-aligned.
        unsafe { store_release_u16(self.word(RING_TAIL), tail) }
    }

    /// Tells the sender whether to ring the bell; for the receiver. With `true` the receiver must
    /// read the ring again afterwards: it then sees everything that the sender published without
    /// seeing the flag.
    pub fn set_interrupts(&self, wanted: bool) {
        let flags = if wanted { 0 } else { RING_FLAG_MASK_INTERRUPT };
        // SAFETY: in the header, 2-aligned.
        unsafe { store_release_u16(self.word(RING_FLAGS), flags) };
        fence_full();
    }

    /// True if the receiver sleeps and wants the bell; for the sender, after publishing.
    #[inline]
    pub fn wants_interrupt(&self) -> bool {
        fence_full();
        // SAFETY: in the header, 2-aligned.
        let flags = unsafe { load_acquire_u16(self.word(RING_FLAGS)) };
        flags & RING_FLAG_MASK_INTERRUPT == 0
    }

    /// Reads the descriptor of the slot at `cursor`, each word once.
    #[inline]
    pub fn descriptor(&self, cursor: u16) -> Descriptor {
        let at = self.descriptor_at(cursor);
        // SAFETY: the descriptor lies in the ring (`descriptor_at`), 16-aligned; any bytes are a
        // `u64`.
        let [first, second] = unsafe {
            [
                read_once(at.cast::<u64>()),
                read_once(at.cast::<u64>().add(1)),
            ]
        };
        let first = first.to_ne_bytes();
        let second = second.to_ne_bytes();
        Descriptor {
            flags: u16::from_ne_bytes([first[0], first[1]]),
            region: u16::from_ne_bytes([first[2], first[3]]),
            length: u32::from_ne_bytes([first[4], first[5], first[6], first[7]]),
            offset: u32::from_ne_bytes([second[0], second[1], second[2], second[3]]),
        }
    }

    /// Writes the descriptor of the slot at `cursor`.
    pub fn set_descriptor(&self, cursor: u16, descriptor: Descriptor) {
        let at = self.descriptor_at(cursor);
        self.set_span(cursor, descriptor.flags, descriptor.length);
        // SAFETY: as in `descriptor`.
        unsafe {
            write_once(at.add(2).cast(), descriptor.region);
            write_once(at.add(8).cast(), descriptor.offset);
            write_once(at.add(12).cast(), 0u32);
        }
    }

    /// Writes flags and length of the slot at `cursor`; its buffer is unchanged.
    #[inline]
    pub fn set_span(&self, cursor: u16, flags: u16, length: u32) {
        let at = self.descriptor_at(cursor);
        // SAFETY: as in `descriptor`.
        unsafe {
            write_once(at.cast(), flags);
            write_once(at.add(4).cast(), length);
        }
    }

    #[inline]
    fn descriptor_at(&self, cursor: u16) -> *mut u8 {
        let slot = usize::from(cursor & self.mask);
        // SAFETY: `slot <= mask`, and `new` checked that all `mask + 1` descriptors lie within the
        // mapping.
        unsafe {
            self.base
                .as_ptr()
                .add(RING_DESCRIPTORS + slot * DESCRIPTOR_BYTES)
        }
    }

    #[inline]
    fn word<T>(&self, offset: usize) -> *mut T {
        debug_assert!(offset + size_of::<T>() <= RING_DESCRIPTORS);
        // SAFETY: every caller names a header word; `new` checked that the header lies within the
        // mapping.
        unsafe { self.base.as_ptr().add(offset).cast() }
    }
}
