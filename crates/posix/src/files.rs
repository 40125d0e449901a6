//! The open file descriptions of a process, and the descriptors that stand for them.
//!
//! ```text
//!   descriptor 5 ──┐
//!   descriptor 9 ──┴──▶ description 2: its file, flags, options      (dup)
//!   descriptor 6 ─────▶ description 0
//! ```
//!
//! A descriptor has a number and `FD_CLOEXEC`; all else belongs to the description, which lives as
//! long as a descriptor, or a call that waits, refers to it.

use crate::entry::Entry;
use crate::table::Table;

/// A descriptor. Its number is its place in the table.
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
    /// Numbers of descriptions that are free again.
    free: Vec<i32>,
    /// The first number of a description that was never in use.
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

    /// The description that a descriptor stands for.
    #[inline]
    pub fn at(&self, fd: i32) -> Option<&Entry> {
        self.descriptions.at(self.number_of(fd)?)
    }

    #[inline]
    pub fn at_mut(&mut self, fd: i32) -> Option<&mut Entry> {
        self.descriptions.at_mut(self.number_of(fd)?)
    }

    /// The number of the description that a descriptor stands for. A call that waits names the
    /// description itself ([`holding`]).
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

    /// Two descriptions at once; `None` if both are the same.
    pub fn pair_mut(&mut self, a: i32, b: i32) -> Option<(&mut Entry, &mut Entry)> {
        self.descriptions.pair_mut(a, b)
    }

    /// Makes a description that nothing refers to yet; its number.
    pub fn describe(&mut self, entry: Entry) -> i32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        });
        self.descriptions.insert(number, entry);
        number
    }

    /// `fd`, which is free, stands for a description from now on.
    pub fn refer(&mut self, fd: i32, description: i32, close_on_exec: bool) {
        if self.hold(description) {
            let descriptor = Descriptor {
                description,
                close_on_exec,
            };
            self.descriptors.insert(fd, descriptor);
        }
    }

    /// One more reference. False: there is no such description.
    pub fn hold(&mut self, description: i32) -> bool {
        let found = self.descriptions.at_mut(description);
        found.map(|entry| entry.references += 1).is_some()
    }

    /// A call waits for a description, and names it by [`holding`] until
    /// [`end_wait`](Self::end_wait).
    pub fn begin_wait(&mut self, description: i32) {
        if let Some(entry) = self.descriptions.at_mut(description) {
            (entry.references, entry.waits) = (entry.references + 1, entry.waits + 1);
        }
    }

    /// The end of such a wait. The reference is still counted.
    pub fn end_wait(&mut self, description: i32) {
        if let Some(entry) = self.descriptions.at_mut(description) {
            entry.waits = entry.waits.saturating_sub(1);
        }
    }

    /// The description that `fd` names itself. A number that no call waits by is a program's, and
    /// no descriptor.
    #[cold]
    fn held(&self, fd: i32) -> Option<i32> {
        let number = (fd >= HELD_FIRST).then_some(fd & !HELD_FIRST)?;
        let entry = self.descriptions.at(number)?;
        (entry.waits > 0).then_some(number)
    }

    /// A descriptor is free again; what it stood for. The reference is still counted.
    pub fn take(&mut self, fd: i32) -> Option<Descriptor> {
        self.descriptors.remove(fd)
    }

    /// One reference less. The description, if that was the last one.
    pub fn release(&mut self, description: i32) -> Option<Entry> {
        let entry = self.descriptions.at_mut(description)?;
        entry.references = entry.references.saturating_sub(1);
        if entry.references > 0 {
            return None;
        }
        self.free.push(description);
        self.descriptions.remove(description)
    }

    /// How many descriptors are open.
    pub fn count(&self) -> usize {
        self.descriptors.numbers().count()
    }

    /// The numbers of the descriptors, in order.
    pub fn numbers(&self) -> impl Iterator<Item = i32> + '_ {
        self.descriptors.numbers()
    }
}

/// Stands for description `number` in the place of a descriptor: a call that waits goes on with
/// what it began with, as in Linux, whatever becomes of the descriptor.
pub(crate) fn holding(number: i32) -> i32 {
    HELD_FIRST | number
}

/// Numbers of descriptors end before this.
const HELD_FIRST: i32 = 1 << 30;
