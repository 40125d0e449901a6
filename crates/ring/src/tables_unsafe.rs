//! Large tables on huge pages. A table of many thousand entries is touched in no order. On pages of
//! 4 KiB it costs a walk through the page tables with nearly every touch. On pages of 2 MiB a few
//! entries of the TLB cover it.
//!
//! Pages behind the end of a table that has shrunk go back to the system, huge ones as a whole.
//!
//! It is advice: where the kernel grants no huge pages the table is slower, not wrong. Small tables
//! are left alone, so that a process that holds little stays small. Called by whoever makes a table
//! to its limit.

use rustix::mm::{Advice, madvise};

const PAGE_BYTES: usize = 4096;
/// Bytes of a huge page.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Smaller tables stay on ordinary pages.
const TABLE_BYTES_MIN: usize = HUGE_PAGE_BYTES;
/// Bytes that an allocator needs for itself at most, in a mapping of its own.
const SPARE_BYTES: usize = 2048;

/// An empty table with room for `capacity` entries, perhaps a few more, whose pages will be huge
/// ones if it is large and the kernel grants them.
#[must_use]
pub fn with_capacity<T>(capacity: usize) -> Vec<T> {
    let bytes = capacity.saturating_mul(size_of::<T>());
    if bytes < TABLE_BYTES_MIN || cfg!(any(miri, loom)) {
        return Vec::with_capacity(capacity);
    }
    // Allocators give what is so large a mapping of its own, and Linux begins a mapping on a huge
    // page's boundary if its length is a multiple of one.
    let whole = (bytes + SPARE_BYTES).next_multiple_of(HUGE_PAGE_BYTES) - SPARE_BYTES;
    let mut table: Vec<T> = Vec::with_capacity(whole / size_of::<T>());
    let room = table.spare_capacity_mut();
    advise(room.as_mut_ptr().cast(), size_of_val(room));
    table
}

/// A table of `count` times `entry`, likewise.
#[must_use]
pub fn filled<T: Clone>(entry: T, count: usize) -> Vec<T> {
    let mut table = with_capacity(count);
    table.resize(count, entry);
    table
}

/// Advises huge pages for the pages that these bytes lie on.
fn advise(start: *mut u8, bytes: usize) {
    let before = start.addr() % PAGE_BYTES;
    let bytes = (before + bytes).next_multiple_of(PAGE_BYTES);
    // SAFETY: the pages hold an allocation of the caller's, and perhaps ends of others; this advice
    // changes no contents and takes nothing away.
    let _ = unsafe {
        let first = start.wrapping_sub(before);
        madvise(first.cast(), bytes, Advice::LinuxHugepage)
    };
}

/// Returns pages to the system that entries of a table had touched and none touches now: behind its
/// last entry, and before the end of what `touched` entries were. Bytes returned; `touched` is as
/// many entries as may still have pages.
pub fn return_room<T>(table: &mut Vec<T>, touched: &mut usize) -> u64 {
    let len = table.len();
    let entry_bytes = size_of::<T>().max(1);
    let is_huge = table.capacity().saturating_mul(entry_bytes) >= TABLE_BYTES_MIN;
    let page_bytes = if is_huge { HUGE_PAGE_BYTES } else { PAGE_BYTES };
    let room = table.spare_capacity_mut();
    let used_bytes = touched.saturating_sub(len).min(room.len()) * entry_bytes;
    let start = room.as_mut_ptr().addr();
    let first = start.next_multiple_of(page_bytes);
    let end = (start + used_bytes) / PAGE_BYTES * PAGE_BYTES;
    if end <= first || cfg!(any(miri, loom)) {
        return 0;
    }
    let place = room.as_mut_ptr().wrapping_byte_add(first - start);
    // SAFETY: the pages lie wholly within the room behind the table's last entry, which holds no
    // value and is borrowed exclusively. That they read as zeros from now on changes nothing.
    let outcome = unsafe { madvise(place.cast(), end - first, Advice::LinuxDontNeed) };
    if outcome.is_err() {
        return 0;
    }
    *touched = len + (first - start).div_ceil(entry_bytes);
    (end - first) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than 2 MiB; Miri, which takes the plain way, needs a second for every hundred thousand.
    const LARGE: usize = if cfg!(miri) { 10_000 } else { 1_500_000 };

    #[test]
    fn table_of_any_size_holds_what_was_put_in() {
        for count in [0, 1, 1_000, LARGE] {
            let mut table = with_capacity(count);
            assert!(table.capacity() >= count && table.is_empty());
            let room = table.capacity();
            table.extend(0..count as u64);
            assert_eq!((table.len(), table.capacity()), (count, room));
            assert!(filled(7u64, count).iter().all(|&entry| entry == 7));
        }
    }

    #[test]
    fn table_that_shrank_returns_its_pages_and_grows_again() {
        for count in [5_000, LARGE] {
            let mut table = with_capacity(count);
            for _ in 0..2 {
                table.resize(count, 7u64);
                table.truncate(100);
                let mut touched = count;
                let returned = return_room(&mut table, &mut touched);
                assert_eq!(returned > 0, !cfg!(any(miri, loom)), "{count}");
                assert!(touched * 8 + returned as usize + 4096 > count * 8);
                assert_eq!(return_room(&mut table, &mut touched), 0);
                assert!(table.iter().all(|&entry| entry == 7));
            }
        }
    }
}
