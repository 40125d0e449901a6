//! Descriptors, or descriptions, by their numbers: no tree to search, and nothing allocated unless
//! a number is larger than all before it.

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

    /// Two at once; `None` if one is not open, or both are the same.
    pub fn pair_mut(&mut self, a: i32, b: i32) -> Option<(&mut T, &mut T)> {
        let places = [usize::try_from(a).ok()?, usize::try_from(b).ok()?];
        let [a, b] = self.places.get_disjoint_mut(places).ok()?;
        a.as_mut().zip(b.as_mut())
    }

    /// `fd` stands for `entry` from now on. Descriptors are not negative.
    pub fn insert(&mut self, fd: i32, entry: T) {
        let Ok(place) = usize::try_from(fd) else {
            return;
        };
        if place >= self.places.len() {
            self.places.resize_with(place + 1, || None);
        }
        self.places[place] = Some(entry);
    }

    /// The numbers that are open, in order.
    pub fn numbers(&self) -> impl Iterator<Item = i32> + '_ {
        let numbered = (0..).zip(&self.places);
        numbered.filter_map(|(fd, place)| place.is_some().then_some(fd))
    }

    pub fn remove(&mut self, fd: i32) -> Option<T> {
        self.places.get_mut(usize::try_from(fd).ok()?)?.take()
    }
}
