//! Raw memory with known bounds that another party may rewrite while this process reads it.
//!
//! Driver frames (a memif peer may overwrite them), chunks of the memory file and plain slices all
//! look like this to the code that moves payload. No reference to the bytes is ever formed: they
//! are only copied or summed, so a peer that writes meanwhile changes values and nothing else. A
//! sum loads each byte once, so that it is the sum of the bytes that were stored. A copy alone may
//! load bytes twice, where its pieces overlap. `packetio` makes these from frames, `stack` cuts
//! them, and [`byte_ring`](crate::byte_ring) copies them.

use core::fmt;
use core::marker::PhantomData;

use crate::copy::copy;

/// `len` readable bytes at an address, for the lifetime `'a`.
#[derive(Clone, Copy)]
pub struct RawSlice<'a> {
    ptr: *const u8,
    len: usize,
    lent: PhantomData<&'a [u8]>,
}

/// `len` writable bytes at an address, for the lifetime `'a`; one owner at a time.
pub struct RawSliceMut<'a> {
    ptr: *mut u8,
    len: usize,
    lent: PhantomData<&'a mut [u8]>,
}

impl<'a> RawSlice<'a> {
    /// Makes a raw slice of `len` bytes at `ptr`.
    ///
    /// # Safety
    /// `ptr` must be valid for reads of `len` bytes for all of `'a`. Other parties may write the
    /// bytes meanwhile; the values read are then unspecified.
    #[inline]
    pub const unsafe fn new(ptr: *const u8, len: usize) -> Self {
        Self {
            ptr,
            len,
            lent: PhantomData,
        }
    }

    /// Length in bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if the length is zero.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte; for drivers and tests.
    #[inline]
    pub const fn as_ptr(&self) -> *const u8 {
        self.ptr
    }

    /// The `len` bytes from `offset` on, or `None` if they exceed the bounds.
    #[inline]
    pub fn sub(&self, offset: usize, len: usize) -> Option<RawSlice<'a>> {
        if offset > self.len || len > self.len - offset {
            return None;
        }
        // SAFETY: `offset <= self.len`, so the address stays within (or one past) the memory lent.
        let ptr = unsafe { self.ptr.add(offset) };
        Some(Self {
            ptr,
            len,
            lent: PhantomData,
        })
    }

    /// The first `at` bytes and the rest; `at` is cut to the length.
    #[inline]
    pub fn split_at(&self, at: usize) -> (RawSlice<'a>, RawSlice<'a>) {
        let at = at.min(self.len);
        // SAFETY: `at <= self.len`, so the address stays within (or one past) the memory lent.
        let rest = unsafe { self.ptr.add(at) };
        let first = Self { len: at, ..*self };
        let rest = Self {
            ptr: rest,
            len: self.len - at,
            lent: PhantomData,
        };
        (first, rest)
    }

    /// Copies from the start into `dst`; returns the bytes copied, the smaller of the two lengths.
    #[inline]
    pub fn copy_to(&self, dst: &mut [u8]) -> usize {
        RawSliceMut::from(dst).copy_from(*self)
    }
}

impl<'a> From<&'a [u8]> for RawSlice<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        // SAFETY: a shared slice is readable for its whole lifetime.
        unsafe { Self::new(bytes.as_ptr(), bytes.len()) }
    }
}

impl<'a> RawSliceMut<'a> {
    /// Makes a raw slice of `len` bytes at `ptr`.
    ///
    /// # Safety
    /// `ptr` must be valid for reads and writes of `len` bytes for all of `'a`, and nobody in this
    /// process may hold a reference to them.
    #[inline]
    pub const unsafe fn new(ptr: *mut u8, len: usize) -> Self {
        Self {
            ptr,
            len,
            lent: PhantomData,
        }
    }

    /// Length in bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if the length is zero.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte; for drivers and tests.
    #[inline]
    pub const fn as_mut_ptr(&mut self) -> *mut u8 {
        self.ptr
    }

    /// The `len` bytes from `offset` on, or `None` if they exceed the bounds.
    #[inline]
    pub fn sub(&mut self, offset: usize, len: usize) -> Option<RawSliceMut<'_>> {
        if offset > self.len || len > self.len - offset {
            return None;
        }
        // SAFETY: `offset <= self.len`, so the address stays within (or one past) the memory lent.
        let ptr = unsafe { self.ptr.add(offset) };
        Some(RawSliceMut {
            ptr,
            len,
            lent: PhantomData,
        })
    }

    /// The first `at` bytes and the rest; `at` is cut to the length.
    #[inline]
    pub fn split_at(self, at: usize) -> (RawSliceMut<'a>, RawSliceMut<'a>) {
        let at = at.min(self.len);
        // SAFETY: `at <= self.len`, so the address stays within (or one past) the memory lent.
        let rest = unsafe { self.ptr.add(at) };
        let rest = Self {
            ptr: rest,
            len: self.len - at,
            lent: PhantomData,
        };
        (Self { len: at, ..self }, rest)
    }

    /// The same memory for a shorter lifetime.
    #[inline]
    pub fn reborrow(&mut self) -> RawSliceMut<'_> {
        RawSliceMut {
            ptr: self.ptr,
            len: self.len,
            lent: PhantomData,
        }
    }

    /// The same memory, for reading.
    #[inline]
    pub fn as_raw(&self) -> RawSlice<'_> {
        RawSlice {
            ptr: self.ptr,
            len: self.len,
            lent: PhantomData,
        }
    }

    /// Copies from the start of `src` to the start of this memory; returns the bytes copied, the
    /// smaller of the two lengths.
    #[inline]
    pub fn copy_from(&mut self, src: RawSlice<'_>) -> usize {
        let len = self.len.min(src.len);
        // SAFETY: both sides are valid for `len` bytes by construction. A driver's frames and
        // a chunk never overlap, but nothing in the types says so.
        unsafe { copy(self.ptr, src.ptr, len) };
        len
    }

    /// Copies all of `bytes` to `offset` if they fit; returns whether they did.
    #[inline]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        match self.sub(offset, bytes.len()) {
            Some(mut place) => {
                place.copy_from(RawSlice::from(bytes));
                true
            }
            None => false,
        }
    }
}

impl<'a> From<&'a mut [u8]> for RawSliceMut<'a> {
    #[inline]
    fn from(bytes: &'a mut [u8]) -> Self {
        // SAFETY: an exclusive slice is ours to write for its whole lifetime.
        unsafe { Self::new(bytes.as_mut_ptr(), bytes.len()) }
    }
}

impl fmt::Debug for RawSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawSlice({} bytes)", self.len)
    }
}

impl fmt::Debug for RawSliceMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawSliceMut({} bytes)", self.len)
    }
}
