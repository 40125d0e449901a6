//! The open file descriptions of a process, and the descriptors that refer to them.
//!
//! ```text
//!   descriptor 5 ──┐
//!   descriptor 9 ──┴──▶ description 2: its file, flags, options      (dup)
//!   descriptor 6 ─────▶ description 0
//! ```
//!
//! A descriptor has a number and `FD_CLOEXEC`. Everything else belongs to the description, which
//! lives as long as a descriptor or a waiting call refers to it.

use crate::entry::Entry;
use crate::table::Table;

/// A descriptor. Its number is its index in the table.
#[derive(Clone, Copy)]
pub(crate) struct Descriptor {
    /// The number of its description.
    pub description: i32,
    /// `FD_CLOEXEC`
    pub close_on_exec: bool,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Files {
    descriptors: Table<Descriptor>,
    descriptions: Table<Entry>,
    /// Numbers of closed descriptions, to be used again.
    free: Vec<i32>,
    /// The lowest number of a description that was never used.
    fresh: i32,
}

impl Files {
    #[inline]
    pub fn descriptor(&self, fd: i32) -> Option<Descriptor> {
        self.descriptors.at(fd).copied()
    }

    pub fn descriptor_mut(&mut self, fd: i32) -> Option<&mut Descriptor> {
        self.descriptors.at_mut(fd)
    }

    /// The description behind a descriptor.
    #[inline]
    pub fn at(&self, fd: i32) -> Option<&Entry> {
        self.descriptions.at(self.number_of(fd)?)
    }

    #[inline]
    pub fn at_mut(&mut self, fd: i32) -> Option<&mut Entry> {
        self.descriptions.at_mut(self.number_of(fd)?)
    }

    /// The number of the description behind a descriptor. A waiting call may pass [`holding`] of
    /// the description in place of a descriptor.
    #[inline]
    pub fn number_of(&self, fd: i32) -> Option<i32> {
        match self.descriptors.at(fd) {
            Some(descriptor) => Some(descriptor.description),
            None => self.held(fd),
        }
    }

    pub fn description(&self, number: i32) -> Option<&Entry> {
        self.descriptions.at(number)
    }

    pub fn description_mut(&mut self, number: i32) -> Option<&mut Entry> {
        self.descriptions.at_mut(number)
    }

    /// Two descriptions at once; `None` if they are the same.
    pub fn pair_mut(&mut self, a: i32, b: i32) -> Option<(&mut Entry, &mut Entry)> {
        self.descriptions.pair_mut(a, b)
    }

    /// Adds a description that nothing refers to yet; returns its number.
    pub fn describe(&mut self, entry: Entry) -> i32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        });
        self.descriptions.insert(number, entry);
        number
    }

    /// Makes `fd`, which is free, a descriptor of a description.
    pub fn refer(&mut self, fd: i32, description: i32, close_on_exec: bool) {
        if self.hold(description) {
            let descriptor = Descriptor {
                description,
                close_on_exec,
            };
            self.descriptors.insert(fd, descriptor);
        }
    }

    /// Adds a reference. False: there is no such description.
    pub fn hold(&mut self, description: i32) -> bool {
        let found = self.descriptions.at_mut(description);
        found.map(|entry| entry.references += 1).is_some()
    }

    /// Adds a reference for a waiting call, which names the description by [`holding`] until
    /// [`end_wait`](Self::end_wait).
    pub fn begin_wait(&mut self, description: i32) {
        if let Some(entry) = self.descriptions.at_mut(description) {
            (entry.references, entry.waits) = (entry.references + 1, entry.waits + 1);
        }
    }

    /// Ends a waiting call's use. The caller still has to drop the reference.
    pub fn end_wait(&mut self, description: i32) {
        if let Some(entry) = self.descriptions.at_mut(description) {
            entry.waits = entry.waits.saturating_sub(1);
        }
    }

    /// The description that `fd` names by [`holding`]. Without a waiting call the number came from
    /// the program and is no descriptor.
    #[cold]
    fn held(&self, fd: i32) -> Option<i32> {
        let number = (fd >= HELD_FIRST).then_some(fd & !HELD_FIRST)?;
        let entry = self.descriptions.at(number)?;
        (entry.waits > 0).then_some(number)
    }

    /// Frees a descriptor and returns it. The caller still has to drop the reference.
    pub fn take(&mut self, fd: i32) -> Option<Descriptor> {
        self.descriptors.remove(fd)
    }

    /// Drops a reference, and returns the description if that was the last one.
    pub fn release(&mut self, description: i32) -> Option<Entry> {
        let entry = self.descriptions.at_mut(description)?;
        entry.references = entry.references.saturating_sub(1);
        if entry.references > 0 {
            return None;
        }
        self.free.push(description);
        self.descriptions.remove(description)
    }

    /// Number of open descriptors.
    pub fn count(&self) -> usize {
        self.descriptors.numbers().count()
    }

    /// The numbers of open descriptors in ascending order.
    pub fn numbers(&self) -> impl Iterator<Item = i32> + '_ {
        self.descriptors.numbers()
    }
}

/// A number that names description `number` in place of a descriptor. A waiting call keeps the
/// description that it began with, as in Linux, even if the descriptor is closed.
pub(crate) fn holding(number: i32) -> i32 {
    HELD_FIRST | number
}

/// Lowest number that names a description. Descriptors have lower numbers.
const HELD_FIRST: i32 = 1 << 30;
