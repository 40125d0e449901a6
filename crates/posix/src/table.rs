//! What stands for each descriptor, found by its number: no tree to search, and nothing allocated but when a larger number than ever is opened.

use crate::sockets::Entry;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Table {
    places: Vec<Option<Entry>>,
}

impl Table {
    #[inline]
    pub fn at(&self, fd: i32) -> Option<&Entry> {
        self.places.get(usize::try_from(fd).ok()?)?.as_ref()
    }

    #[inline]
    pub fn at_mut(&mut self, fd: i32) -> Option<&mut Entry> {
        self.places.get_mut(usize::try_from(fd).ok()?)?.as_mut()
    }

    /// Two at once; `None` if one is not open, or both are the same.
    pub fn pair_mut(&mut self, a: i32, b: i32) -> Option<(&mut Entry, &mut Entry)> {
        let places = [usize::try_from(a).ok()?, usize::try_from(b).ok()?];
        let [a, b] = self.places.get_disjoint_mut(places).ok()?;
        a.as_mut().zip(b.as_mut())
    }

    /// `fd` stands for `entry` from now on. Descriptors are not negative.
    pub fn insert(&mut self, fd: i32, entry: Entry) {
        let Ok(place) = usize::try_from(fd) else {
            return;
        };
        if place >= self.places.len() {
            self.places.resize_with(place + 1, || None);
        }
        self.places[place] = Some(entry);
    }

    /// How many are open.
    pub fn count(&self) -> usize {
        self.places.iter().flatten().count()
    }

    pub fn remove(&mut self, fd: i32) -> Option<Entry> {
        self.places.get_mut(usize::try_from(fd).ok()?)?.take()
    }
}
