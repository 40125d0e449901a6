//! Large tables of fixed room: connections, the flow table, timers, transmit lists.
//!
//! A table of 2 MiB or more has a mapping of its own, on the pages that the
//! [`huge_pages`](crate::huge_pages) rule gives it. Smaller tables lie on the heap, so that a
//! process that holds little stays small. Under Miri and loom all do. Pages are taken when first
//! touched, on the memory node of the CPU that touches them; reserved huge ones when the table is
//! made, since a shortage of them would end the process at the touch. Pages behind the end of a
//! table that has shrunk go back to the system, transparent huge ones as a whole; reserved ones
//! stay, since nobody else could use them.

use core::mem::needs_drop;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};
use std::alloc::{self, Layout};

#[cfg(not(any(miri, loom)))]
use crate::huge_pages::{HUGE_PAGE_BYTES, HugePages, Refused, ThpFor, grants_thp};
use crate::huge_pages::{PageSource, Pages};

const PAGE_BYTES: usize = 4096;

/// Room for a fixed number of entries, and the entries in it. The table is a slice to which entries
/// can be added.
///
/// ```
/// use ring::huge_pages::{HugePages, PageSource};
/// use ring::tables::Table;
/// let mut table = Table::with_capacity(2, &mut PageSource::new(HugePages::Auto));
/// assert!(table.push('a'));
/// assert_eq!((table.len(), table[0]), (1, 'a'));
/// ```
pub struct Table<T> {
    start: NonNull<T>,
    len: usize,
    capacity: usize,
    room: Room,
}

// SAFETY: a table owns its entries and its room, as a `Vec` does.
unsafe impl<T: Send> Send for Table<T> {}
// SAFETY: as for `Send`; a shared table gives out shared entries alone.
unsafe impl<T: Sync> Sync for Table<T> {}

impl<T> Table<T> {
    /// An empty table with room for at least `capacity` entries.
    #[must_use]
    pub fn with_capacity(capacity: usize, source: &mut PageSource) -> Self {
        let bytes = capacity.saturating_mul(size_of::<T>());
        let room = Room::new(bytes, align_of::<T>(), source);
        Self {
            start: room.start.cast(),
            len: 0,
            capacity: room.bytes.checked_div(size_of::<T>()).unwrap_or(capacity),
            room,
        }
    }

    /// A table with `count` copies of `entry`.
    #[must_use]
    pub fn filled(entry: T, count: usize, source: &mut PageSource) -> Self
    where
        T: Clone,
    {
        let mut table = Self::with_capacity(count, source);
        table.extend_to(count, &entry);
        table
    }

    /// Adds an entry. False: there is no room, and the entry is dropped. Owners ask for as much
    /// room as their own limit needs.
    #[inline]
    #[must_use]
    pub fn push(&mut self, entry: T) -> bool {
        if self.len == self.capacity {
            return false;
        }
        // SAFETY: an entry's place below the capacity lies within the room, is aligned, and behind
        // the last entry holds no value.
        unsafe { self.start.add(self.len).write(entry) };
        self.len += 1;
        true
    }

    /// Adds copies of `entry` until the table has `len` entries or no room.
    pub fn extend_to(&mut self, len: usize, entry: &T)
    where
        T: Clone,
    {
        while self.len < len && self.push(entry.clone()) {}
    }

    /// Drops the entries from `len` on.
    pub fn truncate(&mut self, len: usize) {
        let Some(count) = self.len.checked_sub(len) else {
            return;
        };
        // The length is set first, so that the table stays valid if an entry's destructor panics.
        self.len = len;
        if needs_drop::<T>() {
            // SAFETY: the entries from `len` on were written, are borrowed by nobody, and are out
            // of the table now.
            unsafe {
                ptr::slice_from_raw_parts_mut(self.start.add(len).as_ptr(), count).drop_in_place();
            }
        }
    }

    /// Returns to the system the pages between the last entry and the end of the first `touched`
    /// entries, all that ever had pages. Sets `touched` to the number of entries that may still
    /// have some. Gives the bytes returned.
    pub fn return_room(&mut self, touched: &mut usize) -> u64 {
        let entry_bytes = size_of::<T>();
        let first = self.room.next_page(self.len * entry_bytes);
        let end = (*touched).min(self.capacity) * entry_bytes;
        let returned = self.room.return_pages(first, end);
        if returned > 0 {
            *touched = first.div_ceil(entry_bytes);
        }
        returned
    }
}

impl<T> Deref for Table<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` entries were written, lie within the room, and are aligned. The
        // borrow of the table keeps them.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Table<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the borrow is exclusive.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        self.truncate(0);
    }
}

/// The memory of a table: a mapping of its own, or a part of the heap.
struct Room {
    start: NonNull<u8>,
    /// Bytes that entries may use.
    bytes: usize,
    owner: Owner,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The heap, with the layout of the allocation.
    Heap(Layout),
    /// A mapping made without the allocator.
    #[cfg(not(any(miri, loom)))]
    Mapping(Pages),
}

impl Room {
    fn new(bytes: usize, align: usize, source: &mut PageSource) -> Self {
        #[cfg(not(any(miri, loom)))]
        if bytes >= HUGE_PAGE_BYTES
            && align <= PAGE_BYTES
            && let Some(room) = Self::mapped(bytes, source)
        {
            return room;
        }
        source.note(Pages::Ordinary, bytes);
        // A layout that exceeds the address space is replaced by one whose allocation fails.
        let layout = Layout::from_size_align(bytes.min(isize::MAX as usize - align), align)
            .unwrap_or(Layout::new::<usize>());
        let start = match layout.size() {
            0 => ptr::without_provenance_mut(align),
            // SAFETY: the layout's size is not zero.
            _ => unsafe { alloc::alloc(layout) },
        };
        let Some(start) = NonNull::new(start) else {
            alloc::handle_alloc_error(layout)
        };
        Self {
            start,
            bytes: layout.size(),
            owner: Owner::Heap(layout),
        }
    }

    /// The offset of the first page that begins at `offset` or behind it.
    fn next_page(&self, offset: usize) -> usize {
        let page_bytes = match self.owner {
            // Only whole huge pages are returned, because a hole would split one. The mapping
            // begins on a huge page's boundary.
            #[cfg(not(any(miri, loom)))]
            Owner::Mapping(Pages::Thp) => HUGE_PAGE_BYTES,
            _ => PAGE_BYTES,
        };
        let start = self.start.addr().get();
        (start + offset).next_multiple_of(page_bytes) - start
    }
}

#[cfg(not(any(miri, loom)))]
impl Room {
    /// A mapping for `bytes` bytes; `None`: the kernel refused.
    fn mapped(bytes: usize, source: &mut PageSource) -> Option<Self> {
        let bytes = bytes.checked_next_multiple_of(HUGE_PAGE_BYTES)?;
        let with = |(start, pages)| Self {
            start,
            bytes,
            owner: Owner::Mapping(pages),
        };
        if source.rule().takes_reserved() {
            match mapping::hugetlb(bytes) {
                Ok(start) => {
                    source.note(Pages::Hugetlb, bytes);
                    return Some(with((start, Pages::Hugetlb)));
                }
                Err(refused) => source.note_refused(refused, bytes),
            }
        }
        let is_thp = source.rule() != HugePages::Off && grants_thp(ThpFor::Anonymous);
        let start = mapping::aligned(bytes, is_thp)?;
        let pages = if is_thp { Pages::Thp } else { Pages::Ordinary };
        source.note(pages, bytes);
        Some(with((start, pages)))
    }

    /// Returns the pages from offset `first`, the start of a page, to `end`. Gives the bytes
    /// returned.
    fn return_pages(&mut self, first: usize, end: usize) -> u64 {
        use rustix::mm::{Advice, madvise};
        let start = self.start.addr().get();
        let end = (start + end.min(self.bytes)) / PAGE_BYTES * PAGE_BYTES - start;
        if end <= first || self.owner == Owner::Mapping(Pages::Hugetlb) {
            return 0;
        }
        // SAFETY: the pages lie wholly within the room, behind the table's last entry: they hold no
        // value, and the room is borrowed exclusively. That they read as zeros from now on changes
        // nothing.
        let outcome = unsafe {
            let place = self.start.add(first).as_ptr();
            madvise(place.cast(), end - first, Advice::LinuxDontNeed)
        };
        outcome.map_or(0, |()| (end - first) as u64)
    }
}

#[cfg(any(miri, loom))]
impl Room {
    /// Returns nothing: the models have no pages.
    fn return_pages(&mut self, _first: usize, _end: usize) -> u64 {
        0
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        match self.owner {
            Owner::Heap(layout) if layout.size() == 0 => {}
            // SAFETY: the heap gave it for this layout, and the table that used it is gone.
            Owner::Heap(layout) => unsafe { alloc::dealloc(self.start.as_ptr(), layout) },
            #[cfg(not(any(miri, loom)))]
            Owner::Mapping(_) => mapping::unmap(self.start, self.bytes),
        }
    }
}

/// Anonymous mappings that begin on a huge page's boundary.
#[cfg(not(any(miri, loom)))]
mod mapping {
    use core::ptr::{self, NonNull};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{HUGE_PAGE_BYTES, Refused};
    use crate::fill::fill_reserved;

    fn map(bytes: usize, flags: MapFlags) -> Option<NonNull<u8>> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, over no other.
        let start = unsafe {
            mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE | flags).ok()?
        };
        NonNull::new(start.cast())
    }

    /// On reserved huge pages, all of which the mapping has when this returns.
    pub(super) fn hugetlb(bytes: usize) -> Result<NonNull<u8>, Refused> {
        let start = map(bytes, MapFlags::HUGETLB | MapFlags::HUGE_2MB).ok_or(Refused::Promise)?;
        if fill_reserved(start, bytes) {
            return Ok(start);
        }
        unmap(start, bytes);
        Err(Refused::Pages)
    }

    /// A mapping on other pages, with transparent huge pages advised for or against.
    pub(super) fn aligned(bytes: usize, is_thp: bool) -> Option<NonNull<u8>> {
        let longer = bytes.checked_add(HUGE_PAGE_BYTES)?;
        let whole = map(longer, MapFlags::empty())?;
        let address = whole.addr().get();
        let before = address.next_multiple_of(HUGE_PAGE_BYTES) - address;
        // SAFETY: `before` is less than a huge page, by which the mapping is longer than `bytes`.
        let (start, behind) = unsafe { (whole.add(before), whole.add(before + bytes)) };
        unmap(whole, before);
        unmap(behind, HUGE_PAGE_BYTES - before);
        let advice = match is_thp {
            true => Advice::LinuxHugepage,
            false => Advice::LinuxNoHugepage,
        };
        // Kernels without transparent huge pages refuse; the mapping is then slower, not wrong.
        // SAFETY: the range is the mapping just made; the advice changes no contents.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, advice) };
        Some(start)
    }

    pub(super) fn unmap(start: NonNull<u8>, bytes: usize) {
        if bytes > 0 {
            // SAFETY: the range is of a mapping that `map` made, and nobody uses it.
            let _ = unsafe { munmap(start.as_ptr().cast(), bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::huge_pages::HugePages;

    /// Entries for more than 2 MiB. Miri, which takes the heap, needs a second for every hundred
    /// thousand.
    const LARGE: usize = if cfg!(miri) { 10_000 } else { 1_500_000 };

    #[test]
    fn table_of_any_size_holds_what_was_put_in() {
        for rule in [HugePages::Auto, HugePages::Transparent, HugePages::Off] {
            for count in [0, 1, 1_000, LARGE] {
                let source = &mut PageSource::new(rule);
                let mut table = Table::with_capacity(count, source);
                assert!(table.is_empty());
                (0..count as u64).for_each(|at| assert!(table.push(at)));
                assert_eq!(table.len(), count);
                assert!((0..count).all(|at| table[at] == at as u64));
                let filled = Table::filled(7u64, count, source);
                assert!(filled.len() == count && filled.iter().all(|&entry| entry == 7));
            }
        }
    }

    #[test]
    fn full_table_refuses_an_entry() {
        let mut table = Table::with_capacity(2, &mut PageSource::new(HugePages::Auto));
        assert!(table.push('a') && table.push('b') && !table.push('c'));
        table.truncate(1);
        assert!(table.push('d') && table[..] == ['a', 'd']);
    }

    #[cfg(not(any(miri, loom)))]
    #[test]
    fn large_table_has_whole_huge_pages_from_the_boundary_of_one() {
        for rule in [HugePages::Auto, HugePages::Transparent, HugePages::Off] {
            let source = &mut PageSource::new(rule);
            let table = Table::filled(7u64, LARGE, source);
            assert_eq!(table.as_ptr().addr() % HUGE_PAGE_BYTES, 0);
            let held = source.held();
            let bytes = held.hugetlb_bytes + held.thp_bytes + held.ordinary_bytes;
            let whole = (LARGE * size_of::<u64>()).next_multiple_of(HUGE_PAGE_BYTES);
            assert_eq!(bytes, whole as u64, "{rule}");
            assert!(rule == HugePages::Auto || held.hugetlb_bytes == 0);
        }
    }

    #[test]
    fn table_drops_each_entry_once() {
        let entry = Rc::new(());
        let mut table = Table::filled(entry.clone(), 5, &mut PageSource::new(HugePages::Auto));
        assert_eq!(Rc::strong_count(&entry), 6);
        table.truncate(2);
        table.truncate(3);
        assert_eq!(Rc::strong_count(&entry), 3);
        drop(table);
        assert_eq!(Rc::strong_count(&entry), 1);
        let units = Table::filled((), 5, &mut PageSource::new(HugePages::Auto));
        assert_eq!(units.len(), 5);
    }

    #[test]
    fn table_that_shrank_returns_its_pages_and_grows_again() {
        for rule in [HugePages::Auto, HugePages::Transparent, HugePages::Off] {
            for count in [5_000, LARGE] {
                let source = &mut PageSource::new(rule);
                let mut table = Table::with_capacity(count, source);
                let stays = source.held().hugetlb_bytes > 0;
                for _ in 0..2 {
                    table.extend_to(count, &7u64);
                    table.truncate(100);
                    let mut touched = count;
                    let returned = table.return_room(&mut touched);
                    assert_eq!(
                        returned > 0,
                        !stays && !cfg!(any(miri, loom)),
                        "{rule} {count}"
                    );
                    assert!(stays || touched * 8 + returned as usize + 4096 > count * 8);
                    assert_eq!(table.return_room(&mut touched), 0);
                    assert!(table.iter().all(|&entry| entry == 7));
                }
            }
        }
    }
}
