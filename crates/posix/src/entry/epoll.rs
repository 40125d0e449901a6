//! The state of an epoll descriptor.

use millstream::{Events, Poll};

/// An epoll descriptor.
pub(crate) struct Epoll {
    pub poll: Poll,
    pub watched: Watched,
    pub events: Events,
    /// The descriptors that the events of this wait belong to, one by one. The `data` of an event
    /// need not name its descriptor.
    pub told: Vec<i32>,
    /// Where notices begin that found no room among the events of a wait: in every other one they
    /// come first then, so that neither they nor what the poll finds fills the room every time.
    pub owed: Option<i32>,
    pub notices_first: bool,
}

/// A descriptor that is watched.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    pub events: u32,
    /// How many notices there had been about it when it was last told of (`Notices::count`).
    pub seen: u32,
    pub data: u64,
    /// It was to be told of once, and was.
    pub is_off: bool,
    /// The poll watches it. Not any more, once a notice was the one thing to be told: the poll
    /// would not know.
    pub is_polled: bool,
}

const _: () = assert!(size_of::<Option<Watch>>() == 24);

/// The watched descriptors by their numbers.
#[derive(Default)]
pub(crate) struct Watched {
    pub places: Vec<Option<Watch>>,
}

impl Watched {
    pub fn at(&self, fd: i32) -> Option<Watch> {
        *self.places.get(usize::try_from(fd).ok()?)?
    }

    pub fn at_mut(&mut self, fd: i32) -> Option<&mut Watch> {
        self.places.get_mut(usize::try_from(fd).ok()?)?.as_mut()
    }

    pub fn set(&mut self, fd: i32, watch: Watch) {
        let Ok(place) = usize::try_from(fd) else {
            return;
        };
        if place >= self.places.len() {
            self.places.resize(place + 1, None);
        }
        self.places[place] = Some(watch);
    }

    pub fn remove(&mut self, fd: i32) -> Option<Watch> {
        self.places.get_mut(usize::try_from(fd).ok()?)?.take()
    }

    /// The first one from descriptor `fd` on.
    pub fn from(&self, fd: i32) -> Option<(i32, Watch)> {
        let rest = self.places.get(usize::try_from(fd).ok()?..)?;
        let numbered = (fd..).zip(rest);
        numbered
            .filter_map(|(fd, watch)| Some((fd, (*watch)?)))
            .next()
    }
}
