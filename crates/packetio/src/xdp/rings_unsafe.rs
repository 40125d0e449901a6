//! The four rings of an AF_XDP socket, mapped from the kernel: producer ends (fill, TX) and
//! consumer ends (RX, completion).
//!
//! The ends own the mappings and our indices. An index that the kernel writes is trusted only as a
//! count up to the ring's size. `port.rs` uses the module.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use ring::driver;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::net::xdp::XdpRingOffset;

/// Flag `XDP_RING_NEED_WAKEUP`.
const NEED_WAKEUP: u32 = 1;

/// `struct xdp_desc`: a frame in the RX or TX ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Desc {
    pub addr: u64,
    pub len: u32,
    pub options: u32,
}

/// Contents of a ring: plain data for which every bit pattern is valid.
pub(super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for Desc {}

/// A mapped ring, for either end.
#[derive(Debug)]
struct Ring<T> {
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    producer: NonNull<u32>,
    consumer: NonNull<u32>,
    flags: Option<NonNull<u32>>,
    entries: NonNull<T>,
    slots: u32,
    /// Process that has the mapping. A forked child has a hole there, or another mapping by now.
    pid: u32,
}

// SAFETY: the mapping belongs to this value alone in this process; it can be reached from any
// thread.
unsafe impl<T: Entry> Send for Ring<T> {}

impl<T: Entry> Ring<T> {
    /// Maps the ring of `slots` entries (a power of two) that `socket` offers at `page_offset`.
    fn map(
        socket: BorrowedFd<'_>,
        layout: &XdpRingOffset,
        slots: u32,
        page_offset: u64,
    ) -> Result<Self, Errno> {
        let bytes = (layout.desc as usize)
            .checked_add(slots as usize * size_of::<T>())
            .ok_or(Errno::INVAL)?;
        let inside =
            |offset: u64| offset as usize + size_of::<u32>() <= bytes && offset.is_multiple_of(4);
        let indices = [Some(layout.producer), Some(layout.consumer), layout.flags];
        let aligned = (layout.desc as usize).is_multiple_of(align_of::<T>());
        if !slots.is_power_of_two() || !aligned || !indices.into_iter().flatten().all(inside) {
            return Err(Errno::INVAL);
        }
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let mapping = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                socket,
                page_offset,
            )
        }?;
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(Errno::NOMEM)?;
        // SAFETY: a whole mapping of our own; the advice leaves its contents alone. A forked child
        // has no part in the ring.
        unsafe { madvise(mapping.as_ptr().cast(), bytes, Advice::LinuxDontFork) }?;
        // SAFETY: all offsets were checked against the length of the mapping, which is
        // page-aligned.
        let at = |offset: u64| unsafe { mapping.add(offset as usize) };
        Ok(Self {
            mapping,
            mapping_bytes: bytes,
            producer: at(layout.producer).cast(),
            consumer: at(layout.consumer).cast(),
            flags: layout.flags.map(|offset| at(offset).cast()),
            entries: at(layout.desc).cast(),
            slots,
            pid: std::process::id(),
        })
    }

    /// Reads the kernel's index of this ring: `consumer` at our producer end, `producer` at our
    /// consumer end.
    #[inline]
    fn load(&self, index: NonNull<u32>) -> u32 {
        // SAFETY: `index` is one of this ring's aligned words, which stay mapped while `self` lives
        // and which both sides access by whole-word loads and stores only.
        unsafe { driver::load_acquire_u32(index.as_ptr()) }
    }

    /// Publishes our index.
    #[inline]
    fn store(&self, index: NonNull<u32>, value: u32) {
        // SAFETY: as in `load`.
        unsafe { driver::store_release_u32(index.as_ptr(), value) };
    }

    #[inline]
    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: the masked index is below `slots`, and `slots` entries lie in the mapping.
        unsafe { self.entries.add((index & (self.slots - 1)) as usize) }
    }

    #[inline]
    fn needs_wakeup(&self) -> bool {
        let Some(flags) = self.flags else {
            return true; // a kernel without the flag is to be woken each time
        };
        // The entries were published before. A driver sets the flag and then reads the ring once
        // more, so no wake-up is lost.
        driver::fence_full();
        // SAFETY: as in `load`.
        let flags = unsafe { driver::load_relaxed_u32(flags.as_ptr()) };
        flags & NEED_WAKEUP != 0
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        // SAFETY: the mapping is ours, and no pointer into it outlives this value.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapping_bytes) };
    }
}

/// Our end of a ring that we fill and the kernel empties.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Next slot to write. Slots up to `published` are visible to the kernel.
    next: u32,
    published: u32,
    /// The kernel's index when it was last read.
    consumed: u32,
    _entries: PhantomData<T>,
}

impl<T: Entry> Producer<T> {
    /// # Errors
    /// The errno of `mmap`; `INVAL` for an impossible layout.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        layout: &XdpRingOffset,
        slots: u32,
        page_offset: u64,
    ) -> Result<Self, Errno> {
        let ring = Ring::map(socket, layout, slots, page_offset)?;
        Ok(Self {
            ring,
            next: 0,
            published: 0,
            consumed: 0,
            _entries: PhantomData,
        })
    }

    /// Number of free slots. The kernel's index is read only if fewer than `want` are known to be
    /// free.
    #[inline]
    pub(super) fn free(&mut self, want: u32) -> u32 {
        let mut used = self.next.wrapping_sub(self.consumed);
        if self.ring.slots.saturating_sub(used) < want {
            // Acquire: the kernel has finished reading the slots that it returns.
            self.consumed = self.ring.load(self.ring.consumer);
            used = self.next.wrapping_sub(self.consumed);
        }
        self.ring.slots.saturating_sub(used)
    }

    /// Writes one entry, which `publish` makes visible. The caller has checked that a slot is free.
    #[inline]
    pub(super) fn put(&mut self, entry: T) {
        debug_assert!(self.next.wrapping_sub(self.consumed) < self.ring.slots);
        // SAFETY: `entry()` is in the mapping and aligned; the kernel does not read unpublished
        // slots.
        unsafe { driver::write_once(self.ring.entry(self.next).as_ptr(), entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Makes all entries written so far visible to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.published = self.next;
        // Release: entries, and the frames that they name, become visible before the index.
        self.ring.store(self.ring.producer, self.next);
    }

    /// Number of published entries that the kernel has not taken.
    #[inline]
    pub(super) fn pending(&mut self) -> u32 {
        self.consumed = self.ring.load(self.ring.consumer);
        self.published
            .wrapping_sub(self.consumed)
            .min(self.ring.slots)
    }

    /// True if the kernel needs a system call to look at this ring.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// Our end of a ring that the kernel fills and we empty.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    next: u32,
    /// The kernel's index when it was last read.
    produced: u32,
    _entries: PhantomData<T>,
}

impl<T: Entry> Consumer<T> {
    /// # Errors
    /// The errno of `mmap`; `INVAL` for an impossible layout.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        layout: &XdpRingOffset,
        slots: u32,
        page_offset: u64,
    ) -> Result<Self, Errno> {
        let ring = Ring::map(socket, layout, slots, page_offset)?;
        Ok(Self {
            ring,
            next: 0,
            produced: 0,
            _entries: PhantomData,
        })
    }

    /// Number of entries available, up to `want`.
    #[inline]
    pub(super) fn available(&mut self, want: u32) -> u32 {
        let mut there = self.produced.wrapping_sub(self.next);
        if there < want {
            // Acquire: entries are visible before the index.
            self.produced = self.ring.load(self.ring.producer);
            there = self.produced.wrapping_sub(self.next);
        }
        there.min(want).min(self.ring.slots)
    }

    /// Takes the next entry, which is read once. The caller has checked that it is available.
    #[inline]
    pub(super) fn take(&mut self) -> T {
        debug_assert!(self.next != self.produced);
        // SAFETY: `entry()` is in the mapping and aligned, and every bit pattern is a `T`
        // (`Entry`).
        let entry = unsafe { driver::read_once(self.ring.entry(self.next).as_ptr()) };
        self.next = self.next.wrapping_add(1);
        entry
    }

    /// Reads the next entry without taking it. The caller has checked that it is available.
    #[inline]
    pub(super) fn peek(&self) -> T {
        debug_assert!(self.next != self.produced);
        // SAFETY: as in `take`.
        unsafe { driver::read_once(self.ring.entry(self.next).as_ptr()) }
    }

    /// Gives the taken slots back to the kernel.
    #[inline]
    pub(super) fn release(&mut self) {
        // Release: our reads of the entries precede the index.
        self.ring.store(self.ring.consumer, self.next);
    }
}
