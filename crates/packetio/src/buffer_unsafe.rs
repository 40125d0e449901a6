//! Frame buffers in our own memory, for ports whose driver has none: tap, packet, loopback and the
//! wrappers.
//!
//! A [`FrameBuf`] owns one slot of a slab, and its holder may access it as a slice. To lend it to a
//! port's caller it is moved into an [`RxBatch`] or [`TxBatch`], which shows it only as a raw
//! frame, and taken out afterwards. So a slot is either a slice of one owner or raw memory behind
//! one batch, never both.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::frame_unsafe::{RxChecksum, RxFrame, TxFrame};

/// Alignment of slots: a cache line.
const SLOT_ALIGN: usize = 64;

/// One zeroed allocation, freed when its last slot is dropped.
#[derive(Debug)]
struct Slab {
    ptr: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the slab itself is only an address and a layout; each byte is reached through the one
// `FrameBuf` that owns its slot.
unsafe impl Send for Slab {}
// SAFETY: as for `Send`; `&Slab` gives no access to the memory.
unsafe impl Sync for Slab {}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: allocated in `carve` with this layout; the last owner of a slot is gone.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) };
    }
}

/// A slot for one frame, with the frame's length.
#[derive(Debug)]
pub struct FrameBuf {
    ptr: NonNull<u8>,
    capacity: u32,
    len: u32,
    /// Verdict on the transport checksum of the frame.
    pub checksum: RxChecksum,
    /// Payload bytes of each segment if the frame stands for several TCP segments; else 0.
    pub segment_bytes: u16,
    /// Start and offset of the checksum that the port fills in when it sends the frame.
    pub offload: Option<(u16, u16)>,
    _slab: Arc<Slab>,
}

// SAFETY: a `FrameBuf` is the only owner of its slot.
unsafe impl Send for FrameBuf {}
// SAFETY: `&FrameBuf` only reads the slot.
unsafe impl Sync for FrameBuf {}

/// Makes `slots` buffers of at least `slot_bytes` bytes each from one zeroed allocation.
///
/// Called when a port is opened. Aborts like any Rust collection if memory is exhausted.
pub fn carve(slots: usize, slot_bytes: usize) -> Vec<FrameBuf> {
    let stride = slot_bytes.max(1).next_multiple_of(SLOT_ALIGN);
    let bytes = stride.saturating_mul(slots.max(1));
    let layout = match Layout::from_size_align(bytes, SLOT_ALIGN) {
        Ok(layout) if u32::try_from(stride).is_ok() => layout,
        _ => handle_alloc_error(Layout::new::<u8>()),
    };
    // SAFETY: the layout is not of size zero.
    let Some(ptr) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
        handle_alloc_error(layout)
    };
    let slab = Arc::new(Slab { ptr, layout });
    (0..slots)
        .map(|i| FrameBuf {
            // SAFETY: `i < slots`, so the slot lies in the allocation of `stride * slots` bytes.
            ptr: unsafe { ptr.add(i * stride) },
            capacity: stride as u32,
            len: 0,
            checksum: RxChecksum::Unknown,
            segment_bytes: 0,
            offload: None,
            _slab: Arc::clone(&slab),
        })
        .collect()
}

impl FrameBuf {
    /// Capacity of the buffer in bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Length of the frame in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True if the buffer holds no frame.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets the frame's length; capped at the capacity.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.capacity());
        self.len = len.min(self.capacity()) as u32;
    }

    /// The frame's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the slot is ours alone, initialised (zeroed at allocation), and `len <=
        // capacity`.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len as usize) }
    }

    /// The frame's bytes, by mutable reference.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.len();
        &mut self.space()[..len]
    }

    /// The whole slot, to be filled before `set_len`.
    #[inline]
    pub fn space(&mut self) -> &mut [u8] {
        // SAFETY: the slot is ours alone and initialised; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.capacity as usize) }
    }

    /// Copies a received frame with its checksum verdict. False: the frame does not fit, and the
    /// buffer is empty.
    #[inline]
    pub fn copy_frame(&mut self, frame: &RxFrame) -> bool {
        self.len = 0;
        if frame.len() > self.capacity() {
            return false;
        }
        let n = frame.copy_to(0, self.space());
        self.set_len(n);
        self.checksum = frame.checksum();
        self.segment_bytes = frame.segment_bytes();
        true
    }

    /// Copies a frame that is about to be sent, with its segment size. False: the frame does not
    /// fit, and the buffer is empty.
    #[inline]
    pub fn copy_written(&mut self, frame: &TxFrame) -> bool {
        self.len = 0;
        if frame.len() > self.capacity() {
            return false;
        }
        let n = frame.copy_to(0, self.space());
        self.set_len(n);
        self.segment_bytes = frame.segment_bytes();
        true
    }

    /// Copies `bytes`. False: they do not fit, and the buffer is empty.
    #[inline]
    pub fn copy_bytes(&mut self, bytes: &[u8]) -> bool {
        self.len = 0;
        let Some(space) = self.space().get_mut(..bytes.len()) else {
            return false;
        };
        space.copy_from_slice(bytes);
        self.set_len(bytes.len());
        self.checksum = RxChecksum::Unknown;
        self.segment_bytes = 0;
        true
    }
}

/// Buffers that are lent to the caller of `receive`.
#[derive(Debug)]
pub struct RxBatch {
    bufs: Vec<FrameBuf>,
    frames: Vec<RxFrame>,
}

impl RxBatch {
    /// Makes a batch with room for `batch_max` frames.
    pub fn new(batch_max: usize) -> Self {
        Self {
            bufs: Vec::with_capacity(batch_max),
            frames: Vec::with_capacity(batch_max),
        }
    }

    /// Number of frames in the batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// True if the batch holds no frame.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Adds the frame in `buf`.
    #[inline]
    pub fn push(&mut self, buf: FrameBuf) {
        // SAFETY: the slot lives as long as `buf`, which stays in `bufs` for as long as `frames`
        // names it. Frames are shown only through `&self`, and no slice of the slot can be made
        // while `buf` is in here.
        let frame = unsafe { RxFrame::new(buf.ptr.as_ptr(), buf.len) };
        let frame = frame.with_checksum(buf.checksum);
        self.frames
            .push(frame.with_segment_bytes(buf.segment_bytes));
        self.bufs.push(buf);
    }

    /// Adds the frames that `take` pushes. `take` has no access to the buffers already lent.
    ///
    /// ```
    /// use packetio::buffer_unsafe::{RxBatch, carve};
    /// let mut batch = RxBatch::new(2);
    /// batch.extend_with(|end| carve(2, 64).into_iter().for_each(|buf| end.push(buf)));
    /// assert_eq!(batch.len(), 2);
    /// ```
    ///
    /// ```compile_fail
    /// # use packetio::buffer_unsafe::{RxBatch, carve};
    /// # let mut batch = RxBatch::new(2);
    /// # batch.extend_with(|end| carve(2, 64).into_iter().for_each(|buf| end.push(buf)));
    /// batch.extend_with(|end| end.clear());
    /// ```
    #[inline]
    pub fn extend_with(&mut self, take: impl FnOnce(&mut RxBatchEnd<'_>)) {
        let begin = self.bufs.len();
        take(&mut RxBatchEnd(&mut self.bufs));
        self.frames.extend(self.bufs[begin..].iter().map(|buf| {
            // SAFETY: as in `push`.
            let frame = unsafe { RxFrame::new(buf.ptr.as_ptr(), buf.len) };
            frame
                .with_checksum(buf.checksum)
                .with_segment_bytes(buf.segment_bytes)
        }));
    }

    /// The frames of the batch, to be lent.
    #[inline]
    pub fn frames(&self) -> &[RxFrame] {
        &self.frames
    }

    /// Ends the loan: returns the buffers, in order.
    #[inline]
    pub fn drain(&mut self) -> std::vec::Drain<'_, FrameBuf> {
        self.frames.clear();
        self.bufs.drain(..)
    }
}

/// The end of a batch, to which [`RxBatch::extend_with`] lets frames be added.
#[derive(Debug)]
pub struct RxBatchEnd<'a>(&'a mut Vec<FrameBuf>);

impl RxBatchEnd<'_> {
    /// Adds the frame in `buf`.
    #[inline]
    pub fn push(&mut self, buf: FrameBuf) {
        self.0.push(buf);
    }
}

/// Buffers that are granted to the caller of `reserve`.
#[derive(Debug)]
pub struct TxBatch {
    bufs: Vec<FrameBuf>,
    frames: Vec<TxFrame>,
    /// Buffers of the bulk lane, for a port that has one.
    bulk: Option<BulkSlots>,
}

impl TxBatch {
    /// Makes a batch with room for `batch_max` slots.
    pub fn new(batch_max: usize) -> Self {
        Self {
            bufs: Vec::with_capacity(batch_max),
            frames: Vec::with_capacity(batch_max),
            bulk: None,
        }
    }

    /// Makes a batch like [`new`](Self::new), with a buffer of the bulk lane behind each slot.
    pub fn with_bulk(batch_max: usize, bulk: BulkSlots) -> Self {
        Self {
            bulk: Some(bulk),
            ..Self::new(batch_max)
        }
    }

    /// The frame of slot `at`, if it was written to the bulk lane's buffer.
    pub fn bulk_written(&mut self, at: usize) -> Option<&FrameBuf> {
        let frame = self.frames.get(at).filter(|frame| frame.is_bulk())?;
        self.bulk.as_mut()?.written(at, frame)
    }

    /// Number of slots in the batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// True if no slot is granted.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Adds an empty slot.
    #[inline]
    pub fn push(&mut self, buf: FrameBuf) {
        self.forget_lost();
        // SAFETY: as in `RxBatch::push`; nobody else holds the slot, so raw writes are ours alone.
        self.frames
            .push(unsafe { TxFrame::new(buf.ptr.as_ptr(), buf.capacity) });
        self.bufs.push(buf);
    }

    /// Adds empty slots.
    #[inline]
    pub fn extend(&mut self, bufs: impl Iterator<Item = FrameBuf>) {
        self.forget_lost();
        let begin = self.bufs.len();
        self.bufs.extend(bufs);
        self.frames.extend(self.bufs[begin..].iter().map(|buf| {
            // SAFETY: as in `push`.
            unsafe { TxFrame::new(buf.ptr.as_ptr(), buf.capacity) }
        }));
    }

    /// Handles a forgotten iterator of [`drain_first`](Self::drain_first), which loses all buffers.
    /// Their frames must be removed before other buffers are added, so that frames and buffers stay
    /// in step.
    #[inline]
    fn forget_lost(&mut self) {
        self.frames.truncate(self.bufs.len());
    }

    /// The first `n` slots, each reset to length 0.
    #[inline]
    pub fn frames(&self, n: usize) -> &[TxFrame] {
        let frames = &self.frames[..n.min(self.frames.len())];
        frames.iter().for_each(TxFrame::reset);
        if let Some(bulk) = &self.bulk {
            // SAFETY: the batch owns both, and shows frames only through `&self`; `bulk_written`
            // borrows it anew.
            unsafe { bulk.attach(frames) };
        }
        frames
    }

    /// The written frames, to be looked at before `drain`.
    #[inline]
    pub fn written(&self) -> &[TxFrame] {
        &self.frames
    }

    /// Ends the grant: returns all buffers in order, each with its frame's length and offload
    /// requests.
    #[inline]
    pub fn drain(&mut self) -> std::vec::Drain<'_, FrameBuf> {
        for (buf, frame) in self.bufs.iter_mut().zip(&self.frames) {
            buf.segment_bytes = frame.segment_bytes();
            buf.offload = frame.checksum_offload();
        }
        self.drain_first(self.len())
    }

    /// Ends the grant of the first `n` buffers and returns them as [`drain`](Self::drain) does; the
    /// others stay. For ports without offload.
    #[inline]
    pub fn drain_first(&mut self, n: usize) -> std::vec::Drain<'_, FrameBuf> {
        let n = n.min(self.len());
        for (buf, frame) in self.bufs[..n].iter_mut().zip(&self.frames) {
            buf.set_len(frame.len());
            buf.checksum = RxChecksum::Unknown;
        }
        self.frames.drain(..n);
        self.bufs.drain(..n)
    }
}

/// Buffers of a bulk lane, one behind each granted slot. A slot changes to its buffer if its frame
/// leaves by the bulk lane.
#[derive(Debug)]
pub struct BulkSlots {
    bufs: Vec<FrameBuf>,
}

impl BulkSlots {
    /// Makes `slots` buffers of at least `slot_bytes` bytes each.
    pub fn new(slots: usize, slot_bytes: usize) -> Self {
        Self {
            bufs: carve(slots, slot_bytes),
        }
    }

    /// Puts a buffer behind each of the slots that a port is about to grant. Slots beyond the
    /// number of buffers get none.
    ///
    /// # Safety
    /// The frames must be unreachable once this value is dropped, and while a reader borrows a
    /// buffer from [`written`](Self::written) or [`held`](Self::held).
    #[inline]
    pub unsafe fn attach(&self, frames: &[TxFrame]) {
        for (buf, frame) in self.bufs.iter().zip(frames) {
            // SAFETY: the buffer lives as long as this value and has `capacity` bytes; the rest is
            // the caller's promise.
            unsafe { frame.attach_bulk(buf.ptr, buf.capacity) };
        }
    }

    /// The buffer behind slot `at`, with what was written to its frame. The grant must be over.
    #[inline]
    pub fn written(&mut self, at: usize, frame: &TxFrame) -> Option<&FrameBuf> {
        let buf = self.bufs.get_mut(at)?;
        buf.set_len(frame.len());
        buf.segment_bytes = frame.segment_bytes();
        buf.offload = frame.checksum_offload();
        Some(buf)
    }

    /// The buffer behind slot `at`, as [`written`](Self::written) last returned it. No grant may be
    /// out.
    #[inline]
    pub fn held(&self, at: usize) -> Option<&FrameBuf> {
        self.bufs.get(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_lent_and_returned_keeps_its_bytes() {
        let mut pool = carve(2, 100);
        assert_eq!(pool[0].capacity(), 128);
        let mut buf = pool.remove(0);
        assert!(buf.copy_bytes(b"hello"));
        let mut rx = RxBatch::new(4);
        rx.push(buf);
        let mut out = [0; 8];
        assert_eq!(rx.frames()[0].copy_to(1, &mut out), 4);
        assert_eq!(&out[..4], b"ello");
        assert!(rx.frames()[0].slice(3, 3).is_none());
        let buf = rx.drain().next();
        assert_eq!(buf.map(|b| b.bytes().to_vec()), Some(b"hello".to_vec()));
    }

    #[test]
    fn buffer_granted_and_written_has_the_length_set() {
        let mut tx = TxBatch::new(2);
        carve(2, 64).into_iter().for_each(|b| tx.push(b));
        let frames = tx.frames(2);
        assert_eq!(frames[0].write(62, b"abc"), 2);
        frames[0].set_len(64);
        let lens: Vec<usize> = tx.drain().map(|b| b.len()).collect();
        assert_eq!(lens, [64, 0]);
        assert!(tx.is_empty());
    }

    #[test]
    fn first_buffers_are_taken_and_the_others_stay_granted() {
        let mut tx = TxBatch::new(3);
        tx.extend(carve(3, 64).into_iter());
        tx.frames(3)[0].set_len(10);
        assert_eq!(tx.drain_first(1).map(|b| b.len()).collect::<Vec<_>>(), [10]);
        assert_eq!((tx.len(), tx.frames(3).len()), (2, 2));
        tx.frames(2)[1].set_len(20);
        let lens: Vec<usize> = tx.drain_first(9).map(|b| b.len()).collect();
        assert_eq!(lens, [0, 20]);
        assert!(tx.is_empty());
    }

    /// A forgotten iterator loses all buffers, even those that were to stay. The batch must start
    /// anew and show no slot that it does not own.
    #[test]
    fn first_buffers_forgotten_are_shown_no_more() {
        let mut tx = TxBatch::new(4);
        tx.extend(carve(2, 64).into_iter());
        std::mem::forget(tx.drain_first(1));
        tx.extend(carve(1, 64).into_iter());
        assert_eq!(tx.len(), 1);
        let owned = tx.drain_first(1).next();
        assert!(owned.is_some() && tx.frames(1).is_empty());
        tx.extend(carve(2, 64).into_iter());
        std::mem::forget(tx.drain_first(1));
        carve(1, 64).into_iter().for_each(|buf| tx.push(buf));
        assert_eq!(tx.len(), 1);
    }

    #[test]
    fn slot_that_changes_to_the_bulk_lane_is_written_there() {
        let mut tx = TxBatch::with_bulk(2, BulkSlots::new(1, 9000));
        tx.extend(carve(2, 64).into_iter());
        let frames = tx.frames(2);
        assert!(!frames[0].is_bulk() && frames[0].capacity() == 64);
        assert!(frames[0].take_bulk_lane());
        assert_eq!(frames[0].write(8000, b"abc"), 3);
        frames[0].set_len(8003);
        frames[0].set_checksum_offload(34, 16);
        frames[0].set_segment_bytes(1460);
        assert!(!frames[1].take_bulk_lane() && !frames[1].is_bulk());
        let buf = tx.bulk_written(0).unwrap();
        assert_eq!(&buf.bytes()[8000..], b"abc");
        assert_eq!((buf.segment_bytes, buf.offload), (1460, Some((34, 16))));
        assert!(tx.bulk_written(1).is_none());
    }

    #[test]
    fn buffer_too_small_refuses_the_frame() {
        let mut buf = carve(1, 64).remove(0);
        assert!(!buf.copy_bytes(&[1; 65]));
        assert!(buf.is_empty());
    }
}
