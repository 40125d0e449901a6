//! The state of an epoll descriptor.

use millstream::{Events, Poll, Token};

/// An epoll descriptor.
pub(crate) struct Epoll {
    pub poll: Poll,
    pub watched: Watched,
    pub events: Events,
    /// The watches of this wait's events, in the order of the events. The events' `data` need not
    /// name the descriptors.
    pub told: Vec<Key>,
    /// The first watch whose notices found no room among the events of a wait. Such notices come
    /// first in every other wait, so neither they nor the poll's events always fill the room.
    pub owed: Option<usize>,
    pub notices_first: bool,
}

/// The identity of a watch. As in Linux it is the descriptor with which the watch was made, and the
/// description behind it. If another descriptor refers to the description, the watch outlives its
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub fd: i32,
    pub description: i32,
}

impl Key {
    pub const fn token(self) -> Token {
        Token((self.description as usize) << 32 | self.fd as usize)
    }

    pub const fn of(token: Token) -> Self {
        Self {
            fd: token.0 as u32 as i32,
            description: (token.0 >> 32) as i32,
        }
    }
}

/// A watched descriptor.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    pub events: u32,
    /// Number of notices at the last report (`Notices::count`).
    pub seen: u32,
    pub data: u64,
    /// The description that is watched.
    pub description: i32,
    /// The one-shot registration has reported its event.
    pub is_off: bool,
    /// The poll watches the descriptor. False after a one-shot report of a notice alone, of which
    /// the poll does not know.
    pub is_polled: bool,
}

const _: () = assert!(size_of::<Option<Watch>>() == 24);

/// The watches of an epoll.
#[derive(Default)]
pub(crate) struct Watched {
    /// Watches by the number of their descriptor.
    places: Vec<Option<Watch>>,
    /// Watches whose descriptor was closed while others refer to the description.
    orphans: Vec<(i32, Watch)>,
}

/// Place of the first orphan, behind the places of all descriptors.
const ORPHANS_FIRST: usize = 1 << 31;

impl Watched {
    pub fn at(&self, key: Key) -> Option<Watch> {
        let place = usize::try_from(key.fd).ok()?;
        match self.places.get(place) {
            Some(&Some(watch)) if watch.description == key.description => Some(watch),
            _ => self.orphan(key).map(|at| self.orphans[at].1),
        }
    }

    pub fn at_mut(&mut self, key: Key) -> Option<&mut Watch> {
        let place = usize::try_from(key.fd).ok()?;
        match self.places.get(place) {
            Some(Some(watch)) if watch.description == key.description => {
                self.places[place].as_mut()
            }
            _ => match self.orphan(key) {
                Some(at) => Some(&mut self.orphans[at].1),
                None => None,
            },
        }
    }

    fn orphan(&self, key: Key) -> Option<usize> {
        let is_it =
            |(fd, watch): &(i32, Watch)| *fd == key.fd && watch.description == key.description;
        self.orphans.iter().position(is_it)
    }

    pub fn set(&mut self, fd: i32, watch: Watch) {
        let Ok(place) = usize::try_from(fd) else {
            return;
        };
        let description = watch.description;
        if let Some(held) = self.at_mut(Key { fd, description }) {
            *held = watch;
            return;
        }
        if place >= self.places.len() {
            self.places.resize(place + 1, None);
        }
        self.places[place] = Some(watch);
    }

    pub fn remove(&mut self, key: Key) -> Option<Watch> {
        let place = usize::try_from(key.fd).ok()?;
        match self.places.get(place) {
            Some(Some(watch)) if watch.description == key.description => self.places[place].take(),
            _ => self.orphan(key).map(|at| self.orphans.swap_remove(at).1),
        }
    }

    /// Keeps the watch of a closed descriptor whose description is still open.
    pub fn orphan_at(&mut self, fd: i32) {
        let place = usize::try_from(fd).ok();
        let watch = place.and_then(|place| self.places.get_mut(place)?.take());
        self.orphans.extend(watch.map(|watch| (fd, watch)));
    }

    /// The keys of the watches on a description whose last descriptor was `fd`.
    pub fn on(&self, fd: i32, description: i32) -> Vec<Key> {
        let orphans = self.orphans.iter().map(|(fd, watch)| (*fd, *watch));
        let place = usize::try_from(fd).ok();
        let held = place.and_then(|place| *self.places.get(place)?);
        let all = held.map(|watch| (fd, watch)).into_iter().chain(orphans);
        all.filter(|(_, watch)| watch.description == description)
            .map(|(fd, _)| Key { fd, description })
            .collect()
    }

    /// The keys of all watches on a description.
    pub fn all_on(&self, description: i32) -> Vec<Key> {
        let mut found = Vec::new();
        let mut from = 0;
        while let Some((place, key, _)) = self.from(from) {
            from = place + 1;
            if key.description == description {
                found.push(key);
            }
        }
        found
    }

    /// The first watch at or after a place, and its place.
    pub fn from(&self, place: usize) -> Option<(usize, Key, Watch)> {
        let named = |place: usize, fd: i32, watch: Watch| {
            let description = watch.description;
            (place, Key { fd, description }, watch)
        };
        for (at, watch) in self.places.iter().enumerate().skip(place) {
            if let Some(watch) = watch {
                return Some(named(at, at as i32, *watch));
            }
        }
        let place = place.max(ORPHANS_FIRST);
        let (fd, watch) = self.orphans.get(place - ORPHANS_FIRST)?;
        Some(named(place, *fd, *watch))
    }
}
