//! Received and outgoing frames: a pointer into driver memory, a length, and bounds checks.
//!
//! Frames own no memory. Backends make them with the `unsafe` constructors; callers of
//! [`Port`](crate::Port) see only safe, bounds-checked copies. A memif peer or a NIC may rewrite
//! the memory while we read it, so no Rust reference to it is ever made.
//!
//! Frames are reachable only behind a shared borrow of their port and are neither `Clone` nor
//! `Copy`, so none outlives the loan and no two can be swapped between ports.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;

use ring::prefetch::{Ahead, LINE_BYTES};
pub use ring::raw::{RawSlice, RawSliceMut};
use wire::plain::HeaderRoom;

/// Verdict on the transport checksum of a received frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxChecksum {
    /// No verdict: the port's [`ChecksumPolicy`](crate::ChecksumPolicy) applies.
    #[default]
    Unknown,
    /// The driver found the checksum right.
    Verified,
    /// The driver found the checksum wrong.
    Bad,
}

/// A received frame, lent by a port until its next `receive` or `release`.
#[derive(Debug)]
pub struct RxFrame {
    ptr: *const u8,
    len: u32,
    hash: u32,
    has_hash: bool,
    checksum: RxChecksum,
    segment_bytes: u16,
}

// SAFETY: the pointer is used only for raw reads within `len`; the maker promises that the memory
// is reachable from whichever thread holds the port.
unsafe impl Send for RxFrame {}

impl RxFrame {
    /// Makes a frame of `len` bytes at `ptr`.
    ///
    /// # Safety
    /// `ptr..ptr+len` is mapped memory, valid for raw reads from any thread that owns the port,
    /// while this value can be reached through a borrow of the port. Others may write it meanwhile.
    pub unsafe fn new(ptr: *const u8, len: u32) -> Self {
        Self {
            ptr,
            len,
            hash: 0,
            has_hash: false,
            checksum: RxChecksum::Unknown,
            segment_bytes: 0,
        }
    }

    /// Marks the frame as several TCP segments of one flow that the driver merged. Their payloads
    /// follow each other, `bytes` each, the last one perhaps shorter. 0: one packet.
    #[must_use]
    pub fn with_segment_bytes(mut self, bytes: u16) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Sets the driver's verdict on the transport checksum.
    #[must_use]
    pub fn with_checksum(mut self, checksum: RxChecksum) -> Self {
        self.checksum = checksum;
        self
    }

    /// Sets the driver's flow hash.
    #[must_use]
    pub fn with_hash(mut self, hash: Option<u32>) -> Self {
        self.has_hash = hash.is_some();
        self.hash = hash.unwrap_or(0);
        self
    }

    /// Length in bytes, from the Ethernet header on, without FCS.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True if the frame has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The driver's verdict on the transport checksum.
    #[inline]
    pub fn checksum(&self) -> RxChecksum {
        self.checksum
    }

    /// Payload bytes of each segment in a merged frame; 0: one packet. A port lends merged frames
    /// only to callers that [accept](crate::Port::accept_merged) them.
    #[inline]
    pub fn segment_bytes(&self) -> u16 {
        self.segment_bytes
    }

    /// The driver's flow hash (Toeplitz or another), as a hint.
    #[inline]
    pub fn hash(&self) -> Option<u32> {
        self.has_hash.then_some(self.hash)
    }

    /// Copies bytes from `offset` on, as many as the frame has and `out` holds; returns the number.
    #[inline]
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) -> usize {
        let n = self.len().saturating_sub(offset).min(out.len());
        if n > 0 {
            // SAFETY: `offset + n <= len`, so the source lies in the frame (`new`'s promise); `out`
            // is a distinct Rust object of at least `n` bytes.
            unsafe { std::ptr::copy_nonoverlapping(self.ptr.add(offset), out.as_mut_ptr(), n) };
        }
        n
    }

    /// A copy of `N` bytes from `offset` on; `None` beyond the frame's end.
    #[inline]
    pub fn bytes_at<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        if offset.checked_add(N)? > self.len() {
            return None;
        }
        // SAFETY: `offset + N <= len`, so the bytes lie in the frame (`new`'s promise), and any
        // values make an array.
        Some(unsafe { std::ptr::read_unaligned(self.ptr.add(offset).cast()) })
    }

    /// A copy of the frame's first `N` bytes, padded with zeros.
    ///
    /// Because it is a copy, later writes to the frame do not change it. The read is not volatile,
    /// which would go byte by byte.
    #[inline]
    pub fn head<const N: usize>(&self) -> [u8; N] {
        if self.len() < N {
            return self.short_head();
        }
        // SAFETY: the frame has at least `N` bytes (`new`'s promise), of which any values make an
        // array.
        unsafe { std::ptr::read_unaligned(self.ptr.cast()) }
    }

    /// Copies the first bytes like [`head`](Self::head), directly into the caller's memory: a
    /// returned value would be copied twice.
    #[inline(always)]
    pub fn head_into<const N: usize>(&self, head: &mut [u8; N]) {
        if self.len() < N {
            *head = self.short_head();
            return;
        }
        // SAFETY: the frame has at least `N` bytes (`new`'s promise), and `head` is memory of our
        // own, so the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr, head.as_mut_ptr(), N) };
    }

    #[inline(never)]
    fn short_head<const N: usize>(&self) -> [u8; N] {
        let mut head = [0; N];
        self.copy_to(0, &mut head);
        head
    }

    /// Prefetches the cache lines that [`head`](Self::head) reads, and the next one, to which a
    /// short message extends.
    #[inline(always)]
    pub fn prefetch(&self) {
        for line in 0..3 {
            ring::prefetch::line(self.ptr.wrapping_add(line * LINE_BYTES));
        }
    }

    /// The bytes behind the first cache line, to be prefetched while the previous frame is copied.
    #[inline]
    pub fn ahead(&self) -> Ahead {
        match self.slice(LINE_BYTES, self.len().saturating_sub(LINE_BYTES)) {
            Some(rest) => Ahead::of(rest),
            None => Ahead::NOTHING,
        }
    }

    /// The bytes `offset..offset+len` as raw memory; `None` if the frame is shorter.
    #[inline]
    pub fn slice(&self, offset: usize, len: usize) -> Option<RawSlice<'_>> {
        if offset.checked_add(len)? > self.len() {
            return None;
        }
        // SAFETY: the range lies in the frame, which stays valid while `self` is borrowed (`new`'s
        // promise).
        Some(unsafe { RawSlice::new(self.ptr.add(offset), len) })
    }
}

/// A transmit slot to be written in place. It is reserved from a port until the next `send` or
/// `reserve`.
///
/// Methods take `&self`, because the slot is memory that we write and the driver reads.
#[derive(Debug)]
pub struct TxFrame {
    ptr: Cell<*mut u8>,
    capacity: Cell<u32>,
    /// Memory of the bulk lane, or a larger buffer, to which the slot may change. After the change:
    /// the slot's original memory.
    bulk: Cell<Option<(NonNull<u8>, u32)>>,
    is_bulk: Cell<bool>,
    len: Cell<u32>,
    /// Start and offset of the checksum that the port must fill in.
    offload: Cell<Option<(u16, u16)>>,
    /// Payload bytes of each segment into which the port must cut the frame; 0: it is not cut.
    segment_bytes: Cell<u16>,
}

// SAFETY: each pointer is used only for raw accesses within its capacity; the maker promises that
// the memory is reachable from whichever thread holds the port.
unsafe impl Send for TxFrame {}

impl TxFrame {
    /// Makes a slot of `capacity` bytes at `ptr`, with length 0.
    ///
    /// # Safety
    /// `ptr..ptr+capacity` is mapped memory, valid for raw reads and writes from any thread that
    /// owns the port, while this value can be reached through a borrow of the port. No Rust
    /// reference to it exists meanwhile.
    pub unsafe fn new(ptr: *mut u8, capacity: u32) -> Self {
        Self {
            ptr: Cell::new(ptr),
            capacity: Cell::new(capacity),
            bulk: Cell::new(None),
            is_bulk: Cell::new(false),
            len: Cell::new(0),
            offload: Cell::new(None),
            segment_bytes: Cell::new(0),
        }
    }

    /// Lets the slot leave by the port's bulk lane, from `capacity` bytes at `ptr` that belong to
    /// the lane. A port with a single lane attaches a larger buffer in this way, for large packets.
    ///
    /// # Safety
    /// The conditions of [`new`](Self::new).
    pub unsafe fn attach_bulk(&self, ptr: NonNull<u8>, capacity: u32) {
        self.bulk.set(Some((ptr, capacity)));
    }

    /// Makes the frame leave by the port's bulk lane, which takes large packets and checksum
    /// offload ([`Capabilities::segment_bytes_max`](crate::Capabilities)). It must be called before
    /// anything is written. False: the port has no such lane, and the slot is unchanged.
    #[inline]
    pub fn take_bulk_lane(&self) -> bool {
        if self.is_bulk.get() {
            return true;
        }
        let own = NonNull::new(self.ptr.get()).map(|ptr| (ptr, self.capacity.get()));
        let Some((ptr, capacity)) = self.bulk.replace(own) else {
            self.bulk.set(None);
            return false;
        };
        self.ptr.set(ptr.as_ptr());
        self.capacity.set(capacity);
        self.is_bulk.set(true);
        true
    }

    /// Returns the slot to its own memory, empty, after its frame has left by the bulk lane. The
    /// port may then move another frame here. For backends.
    pub fn leave_bulk_lane(&self) {
        self.len.set(0);
        if let (true, Some((ptr, capacity))) = (self.is_bulk.replace(false), self.bulk.take()) {
            self.ptr.set(ptr.as_ptr());
            self.capacity.set(capacity);
        }
    }

    /// True if the frame leaves by the bulk lane. For backends.
    #[inline]
    pub fn is_bulk(&self) -> bool {
        self.is_bulk.get()
    }

    /// Capacity in bytes, including what [`take_bulk_lane`](Self::take_bulk_lane) would give.
    #[inline]
    pub fn capacity_max(&self) -> usize {
        let bulk = self.bulk.get().map_or(0, |(_, capacity)| capacity);
        self.capacity.get().max(bulk) as usize
    }

    /// Capacity of the slot in bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity.get() as usize
    }

    /// Number of bytes to send; 0 until `set_len`.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.get() as usize
    }

    /// True if the slot has nothing to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    /// Writes `bytes` at `offset`, as many as fit; returns the number. The length does not change.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) -> usize {
        let n = self.capacity().saturating_sub(offset).min(bytes.len());
        if n > 0 {
            // SAFETY: `offset + n <= capacity`, so the target lies in the slot (`new`'s promise: no
            // Rust reference to it, so `bytes` is elsewhere).
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.ptr.get().add(offset), n) };
        }
        n
    }

    /// Destination MAC address: the first six bytes written. Zeros if the slot holds fewer.
    #[inline]
    pub fn destination(&self) -> [u8; 6] {
        let mut bytes = [0; 6];
        if self.capacity() >= bytes.len() {
            // SAFETY: the slot holds six bytes (`new`'s promise); `bytes` is elsewhere.
            unsafe {
                std::ptr::copy_nonoverlapping(self.ptr.get(), bytes.as_mut_ptr(), bytes.len())
            };
        }
        bytes
    }

    /// Copies bytes to be sent from `offset` on, as many as `out` holds; returns the number. The
    /// driver's memory may be shared with a peer, hence a copy.
    #[inline]
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) -> usize {
        let n = self.len().saturating_sub(offset).min(out.len());
        if n > 0 {
            // SAFETY: `offset + n <= len <= capacity`, so the source lies in the slot, which is
            // valid for raw reads (`new`'s promise); `out` is a distinct Rust object of at least
            // `n` bytes.
            unsafe {
                std::ptr::copy_nonoverlapping(self.ptr.get().add(offset), out.as_mut_ptr(), n)
            };
        }
        n
    }

    /// A copy of `N` bytes to be sent from `offset` on; `None` beyond their end.
    #[inline]
    pub fn bytes_at<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        if offset.checked_add(N)? > self.len() {
            return None;
        }
        // SAFETY: `offset + N <= len <= capacity`, so the bytes lie in the slot, which is valid for
        // raw reads (`new`'s promise), and any values make an array.
        Some(unsafe { std::ptr::read_unaligned(self.ptr.get().add(offset).cast()) })
    }

    /// The first `N` bytes of the slot, to be written field by field; `None`: the slot is smaller.
    #[inline]
    pub fn head_mut<const N: usize>(&self) -> Option<HeadMut<'_, N>> {
        (N <= self.capacity()).then_some(HeadMut {
            ptr: self.ptr.get(),
            _slot: PhantomData,
        })
    }

    /// The bytes `offset..offset+len` as raw memory to write; `None` if they pass the capacity.
    #[inline]
    pub fn slice_mut(&self, offset: usize, len: usize) -> Option<RawSliceMut<'_>> {
        if offset.checked_add(len)? > self.capacity() {
            return None;
        }
        // SAFETY: the range lies in the slot, which stays valid while `self` is borrowed (`new`'s
        // promise).
        Some(unsafe { RawSliceMut::new(self.ptr.get().add(offset), len) })
    }

    /// Sets the number of bytes to send; capped at the capacity.
    #[inline]
    pub fn set_len(&self, len: usize) {
        debug_assert!(len <= self.capacity());
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.len.set(len.min(self.capacity.get()));
    }

    /// Asks the port to fill in the 16-bit checksum at `start + offset` over `start..len`. The
    /// field must hold the pseudo-header sum. Only ports with `tx_checksum_offload` do it.
    #[inline]
    pub fn set_checksum_offload(&self, start: u16, offset: u16) {
        self.offload.set(Some((start, offset)));
    }

    /// Start and offset set by `set_checksum_offload`. For backends.
    #[inline]
    pub fn checksum_offload(&self) -> Option<(u16, u16)> {
        self.offload.get()
    }

    /// Asks the port to cut this TCP packet into segments with `bytes` of payload each. Headers are
    /// repeated with new sequence numbers, lengths and checksums; PSH and FIN go with the last
    /// segment. It needs [`set_checksum_offload`](Self::set_checksum_offload), and a packet up to
    /// the port's [`segment_bytes_max`](crate::Capabilities::segment_bytes_max).
    #[inline]
    pub fn set_segment_bytes(&self, bytes: u16) {
        self.segment_bytes.set(bytes);
    }

    /// Segment size set by `set_segment_bytes`; 0: none. For backends.
    #[inline]
    pub fn segment_bytes(&self) -> u16 {
        self.segment_bytes.get()
    }

    /// Resets length and offloads, for backends that keep their frames between reservations.
    #[inline]
    pub fn reset(&self) {
        self.len.set(0);
        self.offload.set(None);
        self.segment_bytes.set(0);
    }
}

/// The first `N` bytes of a transmit slot, to which headers are written.
#[derive(Debug)]
pub struct HeadMut<'a, const N: usize> {
    ptr: *mut u8,
    _slot: PhantomData<&'a TxFrame>,
}

impl<const N: usize> HeaderRoom for HeadMut<'_, N> {
    #[inline(always)]
    fn put<const M: usize>(&mut self, at: usize, bytes: &[u8; M]) {
        if at.saturating_add(M) <= N {
            // SAFETY: `at + M <= N`, which the slot holds (`head_mut`) for as long as it is
            // borrowed; no Rust reference to it exists, so `bytes` is elsewhere.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.ptr.add(at), M) };
        }
    }
}
