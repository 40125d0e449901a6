//! Descriptors, or descriptions, indexed by their numbers. There is no tree to search, and an
//! insert allocates only for a number above all earlier ones.

/// See the module's documentation.
pub(crate) struct Table<T> {
    places: Vec<Option<T>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { places: Vec::new() }
    }
}

impl<T> Table<T> {
    #[inline]
    pub fn at(&self, fd: i32) -> Option<&T> {
        self.places.get(usize::try_from(fd).ok()?)?.as_ref()
    }

    #[inline]
    pub fn at_mut(&mut self, fd: i32) -> Option<&mut T> {
        self.places.get_mut(usize::try_from(fd).ok()?)?.as_mut()
    }

    /// Two entries at once; `None` if one does not exist, or both are the same.
    pub fn pair_mut(&mut self, a: i32, b: i32) -> Option<(&mut T, &mut T)> {
        let places = [usize::try_from(a).ok()?, usize::try_from(b).ok()?];
        let [a, b] = self.places.get_disjoint_mut(places).ok()?;
        a.as_mut().zip(b.as_mut())
    }

    /// Stores the entry of `fd`; a negative `fd` is ignored.
    pub fn insert(&mut self, fd: i32, entry: T) {
        let Ok(place) = usize::try_from(fd) else {
            return;
        };
        if place >= self.places.len() {
            self.places.resize_with(place + 1, || None);
        }
        self.places[place] = Some(entry);
    }

    /// The numbers that have an entry, in ascending order.
    pub fn numbers(&self) -> impl Iterator<Item = i32> + '_ {
        let numbered = (0..).zip(&self.places);
        numbered.filter_map(|(fd, place)| place.is_some().then_some(fd))
    }

    pub fn remove(&mut self, fd: i32) -> Option<T> {
        self.places.get_mut(usize::try_from(fd).ok()?)?.take()
    }
}
