//! A table of entries by index, of fixed capacity. Its memory is reserved at the start, touched on
//! first use, and reused last-in first-out, so it stays in the cache. Half-open handshakes,
//! TIME_WAIT entries and listeners use it.

use ring::huge_pages::PageSource;
use ring::tables::Table;

/// See the module's documentation.
pub(crate) struct Slab<T> {
    entries: Table<Option<T>>,
    free: Vec<u32>,
    capacity: usize,
}

impl<T> Slab<T> {
    /// A table of at most `capacity` entries.
    pub fn new(capacity: usize, source: &mut PageSource) -> Self {
        Self {
            entries: Table::with_capacity(capacity, source),
            free: Vec::with_capacity(capacity),
            capacity,
        }
    }

    /// Adds an entry and returns its index, or gives the entry back if the table is full.
    pub fn insert(&mut self, entry: T) -> Result<u32, T> {
        if let Some(index) = self.free.pop() {
            self.entries[index as usize] = Some(entry);
            return Ok(index);
        }
        if self.entries.len() == self.capacity {
            return Err(entry);
        }
        let has_room = self.entries.push(Some(entry));
        debug_assert!(has_room, "as much as its capacity");
        Ok(self.entries.len() as u32 - 1)
    }

    /// Removes an entry.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        let entry = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(entry)
    }

    /// The entry under `index`.
    #[inline]
    pub fn at(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)?.as_ref()
    }

    /// The entry under `index`, by mutable reference.
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    /// Prefetches the memory of `index`.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        if let Some(entry) = self.entries.get(index as usize) {
            ring::prefetch::read(entry);
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// One more than the largest index in use.
    pub fn span(&self) -> u32 {
        self.entries.len() as u32
    }

    /// True if the table has no room.
    pub fn is_full(&self) -> bool {
        self.len() == self.capacity
    }

    /// Every entry with its index.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| Some((index as u32, entry.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_insert_gives_the_entry_back_until_one_leaves() {
        let mut slab = Slab::new(2, &mut PageSource::default());
        assert_eq!(slab.insert('a'), Ok(0));
        assert_eq!(slab.insert('b'), Ok(1));
        assert!(slab.is_full());
        assert_eq!(slab.insert('c'), Err('c'));
        assert_eq!(slab.remove(0), Some('a'));
        assert_eq!(slab.remove(0), None);
        assert_eq!(slab.insert('c'), Ok(0));
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(0, &'c'), (1, &'b')]);
        assert_eq!((slab.at(1), slab.at(7), slab.len()), (Some(&'b'), None, 2));
    }
}
