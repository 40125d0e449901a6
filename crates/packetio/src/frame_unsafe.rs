//! One received and one outgoing frame: a pointer into driver memory, a length, and bounds.
//!
//! Owns no memory. Backends make the frames with the `unsafe` constructors; callers of
//! [`Port`](crate::Port) see only safe, bounds-checked copies. The memory may be rewritten by
//! someone else while we read it (a memif peer, a NIC), so no Rust reference to it is ever made.
//!
//! Frames are reachable only behind a shared borrow of their port and are neither `Clone` nor
//! `Copy`, so none outlives the loan and no two can be swapped between ports.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;

use ring::prefetch::{Ahead, LINE_BYTES};
pub use ring::raw::{RawSlice, RawSliceMut};
use wire::plain::HeaderRoom;

/// Verdict about a received frame's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxChecksum {
    /// Nothing: verify it, as the port's [`ChecksumPolicy`](crate::ChecksumPolicy) says.
    #[default]
    Unknown,
    /// The driver found it right.
    Verified,
    /// The driver found it wrong.
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
    /// A frame of `len` bytes at `ptr`.
    ///
    /// # Safety
    /// `ptr..ptr+len` is mapped memory, valid for raw reads for as long as this value can be
    /// reached through a borrow of its port, from any thread that owns the port. Others may write
    /// it meanwhile.
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

    /// As several TCP segments of one flow that the driver merged: their payloads lie one behind
    /// the other, `bytes` each, the last one perhaps shorter. 0: one packet.
    #[must_use]
    pub fn with_segment_bytes(mut self, bytes: u16) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// With what the driver knows of the transport checksum.
    #[must_use]
    pub fn with_checksum(mut self, checksum: RxChecksum) -> Self {
        self.checksum = checksum;
        self
    }

    /// With the driver's flow hash.
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

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The driver's verdict about the transport checksum.
    #[inline]
    pub fn checksum(&self) -> RxChecksum {
        self.checksum
    }

    /// Payload bytes of each segment in a merged frame, 0 in a frame that is one packet. Only a
    /// port whose caller [accepts](crate::Port::accept_merged) merged frames lends them.
    #[inline]
    pub fn segment_bytes(&self) -> u16 {
        self.segment_bytes
    }

    /// The driver's flow hash (Toeplitz, or its own); a hint.
    #[inline]
    pub fn hash(&self) -> Option<u32> {
        self.has_hash.then_some(self.hash)
    }

    /// Copies from `offset` on as much as the frame has and `out` holds; the count of bytes copied.
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

    /// The frame's first `N` bytes; zeros stand for what it does not have.
    ///
    /// A copy: who looks at it twice sees the same, whatever is written to the frame meanwhile. It
    /// is read plainly, not as volatile, which would read byte by byte.
    #[inline]
    pub fn head<const N: usize>(&self) -> [u8; N] {
        if self.len() < N {
            return self.short_head();
        }
        // SAFETY: the frame has at least `N` bytes (`new`'s promise), of which any values make an
        // array.
        unsafe { std::ptr::read_unaligned(self.ptr.cast()) }
    }

    /// Like [`head`](Self::head), into memory of the caller's: a value that is returned and then
    /// stored would be copied twice.
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

    /// Asks for the lines that [`head`](Self::head) will read, and the next one, to which a short
    /// message behind the headers reaches.
    #[inline(always)]
    pub fn prefetch(&self) {
        for line in 0..3 {
            ring::prefetch::line(self.ptr.wrapping_add(line * LINE_BYTES));
        }
    }

    /// The bytes behind the first cache line, to be asked for while the frame before it is copied.
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

/// A transmit slot, to be written in place. Reserved from a port until its next `send` or
/// `reserve`.
///
/// Its methods take `&self`: a frame is memory that we write and the driver reads.
#[derive(Debug)]
pub struct TxFrame {
    ptr: Cell<*mut u8>,
    capacity: Cell<u32>,
    /// Memory of the port's bulk lane, or a larger buffer, which the slot may change to; of a slot
    /// that has changed, its own.
    bulk: Cell<Option<(NonNull<u8>, u32)>>,
    is_bulk: Cell<bool>,
    len: Cell<u32>,
    /// (start, offset) of the checksum to be filled in by the port.
    offload: Cell<Option<(u16, u16)>>,
    /// Payload bytes of each segment that the port is to cut; 0: none.
    segment_bytes: Cell<u16>,
}

// SAFETY: each pointer is used only for raw accesses within its capacity; the maker promises that
// the memory is reachable from whichever thread holds the port.
unsafe impl Send for TxFrame {}

impl TxFrame {
    /// A slot of `capacity` bytes at `ptr`, of length 0.
    ///
    /// # Safety
    /// `ptr..ptr+capacity` is mapped memory. It is valid for raw reads and writes for as long as
    /// this value can be reached through a borrow of its port, from any thread that owns the port.
    /// No Rust reference to it exists meanwhile.
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

    /// The slot may leave by the port's bulk lane, from `capacity` bytes at `ptr` that belong to
    /// the lane. A port with one lane attaches a larger buffer in this way, for large packets.
    ///
    /// # Safety
    /// As [`new`](Self::new).
    pub unsafe fn attach_bulk(&self, ptr: NonNull<u8>, capacity: u32) {
        self.bulk.set(Some((ptr, capacity)));
    }

    /// The frame is to leave by the port's bulk lane, which takes large packets and checksum
    /// offload ([`Capabilities::segment_bytes_max`](crate::Capabilities)). To be called before
    /// anything is written. False: the port has none, and the slot stays as it is.
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

    /// The slot is empty and the port's own again, after its frame has left by the bulk lane: the
    /// port may move another frame here. For backends.
    pub fn leave_bulk_lane(&self) {
        self.len.set(0);
        if let (true, Some((ptr, capacity))) = (self.is_bulk.replace(false), self.bulk.take()) {
            self.ptr.set(ptr.as_ptr());
            self.capacity.set(capacity);
        }
    }

    /// Whether the frame leaves by the bulk lane. For backends.
    #[inline]
    pub fn is_bulk(&self) -> bool {
        self.is_bulk.get()
    }

    /// Most bytes that it holds, or will hold after
    /// [`take_bulk_lane`](Self::take_bulk_lane).
    #[inline]
    pub fn capacity_max(&self) -> usize {
        let bulk = self.bulk.get().map_or(0, |(_, capacity)| capacity);
        self.capacity.get().max(bulk) as usize
    }

    /// Most bytes that it holds.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity.get() as usize
    }

    /// Bytes that will be sent; 0 until `set_len`.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.get() as usize
    }

    /// Whether nothing is to be sent from it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    /// Writes `bytes` at `offset`, as many as fit; the count written. Does not change the length.
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

    /// The first six bytes that were written: the frame's destination. Zeros for a slot that holds
    /// fewer.
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

    /// Copies what will be sent, from `offset` on, as much as `out` holds; the count of bytes
    /// copied. A copy, since the driver's memory may be shared with a peer.
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

    /// The first `N` bytes, to be written field by field; `None` if it does not hold as many.
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

    /// How many bytes are to be sent; capped at the capacity.
    #[inline]
    pub fn set_len(&self, len: usize) {
        debug_assert!(len <= self.capacity());
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.len.set(len.min(self.capacity.get()));
    }

    /// Asks the port to fill in the 16-bit checksum at `start + offset` over `start..len`; the
    /// field holds the pseudo-header sum. Honoured only by a port whose `tx_checksum_offload` is
    /// set.
    #[inline]
    pub fn set_checksum_offload(&self, start: u16, offset: u16) {
        self.offload.set(Some((start, offset)));
    }

    /// Start and offset that `set_checksum_offload` asked for. For backends.
    #[inline]
    pub fn checksum_offload(&self) -> Option<(u16, u16)> {
        self.offload.get()
    }

    /// Asks the port to cut the payload of this TCP packet into segments of `bytes` each, with the
    /// headers repeated. Sequence numbers, lengths and checksums follow. PSH and FIN go with the
    /// last segment. Needs [`set_checksum_offload`](Self::set_checksum_offload). Honoured up to the
    /// [`segment_bytes_max`](crate::Capabilities::segment_bytes_max) of the port.
    #[inline]
    pub fn set_segment_bytes(&self, bytes: u16) {
        self.segment_bytes.set(bytes);
    }

    /// Size that `set_segment_bytes` asked for, 0 for none. For backends.
    #[inline]
    pub fn segment_bytes(&self) -> u16 {
        self.segment_bytes.get()
    }

    /// Length 0 and no offload again. For backends that keep their frames between reservations.
    #[inline]
    pub fn reset(&self) {
        self.len.set(0);
        self.offload.set(None);
        self.segment_bytes.set(0);
    }
}

/// The first `N` bytes of a transmit slot, where headers are put.
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
