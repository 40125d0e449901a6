//! `select`: three sets of descriptors as entries of `poll`, and the answer back as sets.
//!
//! Owns copies of the sets, so a call that fails leaves its caller's sets unchanged. The crates
//! above copy sets in and out, and wait as `poll` does.

use rustix::io::Errno;

use crate::number::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDBAND, POLLRDNORM, POLLWRBAND,
    POLLWRNORM,
};
use crate::request::PollFd;

/// Events that each set asks for: reading, writing, exceptions.
const ASKED: [i16; 3] = [
    POLLIN | POLLRDNORM | POLLRDBAND,
    POLLOUT | POLLWRNORM | POLLWRBAND,
    POLLPRI,
];
/// Events that each set reports in addition.
const TOLD: [i16; 3] = [POLLHUP | POLLERR, POLLERR, 0];
/// Descriptors in one word of a set.
const WORD_BITS: usize = 64;

/// The sets of one call. Bit `fd % 64` of word `fd / 64` stands for descriptor `fd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    count: usize,
    /// Sets for reading, writing and exceptions; `None`: the caller gave none.
    pub sets: [Option<Vec<u64>>; 3],
}

impl Selection {
    /// Words of a set for `count` descriptors.
    #[must_use]
    pub const fn words(count: usize) -> usize {
        count.div_ceil(WORD_BITS)
    }

    /// The descriptors below `count` in these sets.
    #[must_use]
    pub fn new(count: usize, sets: [Option<Vec<u64>>; 3]) -> Self {
        Self { count, sets }
    }

    fn has(&self, set: usize, fd: usize) -> bool {
        let words = self.sets[set].as_deref().unwrap_or_default();
        let word = words.get(fd / WORD_BITS).copied().unwrap_or(0);
        word >> (fd % WORD_BITS) & 1 == 1
    }

    /// An entry for each descriptor in any set, in ascending order.
    #[must_use]
    pub fn entries(&self) -> Vec<PollFd> {
        let entry = |fd: usize| {
            let asked = (0..3).filter(|&set| self.has(set, fd));
            let events = asked.fold(0, |all, set| all | ASKED[set]);
            (events != 0).then_some(PollFd {
                fd: fd as i32,
                events,
                revents: 0,
            })
        };
        (0..self.count).filter_map(entry).collect()
    }

    /// Leaves in the sets only what `poll` has found; returns the number of bits that remain.
    ///
    /// # Errors
    /// `EBADF` if a descriptor is not open; the sets stay unchanged.
    pub fn tell(&mut self, entries: &[PollFd]) -> Result<i64, Errno> {
        let is_bad = |entry: &PollFd| entry.revents & POLLNVAL != 0;
        if entries.iter().any(is_bad) {
            return Err(Errno::BADF);
        }
        let asked = self.clone();
        let words = Self::words(self.count);
        for set in self.sets.iter_mut().flatten() {
            set.iter_mut().take(words).for_each(|word| *word = 0);
        }
        let mut bits = 0;
        for entry in entries {
            let fd = entry.fd as usize;
            for (set, words) in self.sets.iter_mut().enumerate() {
                let is_told = entry.revents & (ASKED[set] | TOLD[set]) != 0;
                if is_told
                    && asked.has(set, fd)
                    && let Some(words) = words
                {
                    words[fd / WORD_BITS] |= 1 << (fd % WORD_BITS);
                    bits += 1;
                }
            }
        }
        Ok(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(fds: &[usize]) -> Option<Vec<u64>> {
        let mut words = vec![0; 2];
        for fd in fds {
            words[fd / 64] |= 1 << (fd % 64);
        }
        Some(words)
    }

    #[test]
    fn sets_become_entries_and_come_back_as_the_answer() {
        let mut asked = Selection::new(100, [set(&[3, 70]), set(&[3]), None]);
        let mut entries = asked.entries();
        assert_eq!(
            entries.iter().map(|one| one.fd).collect::<Vec<_>>(),
            [3, 70]
        );
        assert_eq!(entries[0].events & (POLLIN | POLLOUT), POLLIN | POLLOUT);
        assert_eq!(entries[1].events & (POLLIN | POLLOUT), POLLIN);
        entries[0].revents = POLLOUT;
        entries[1].revents = POLLHUP;
        assert_eq!(asked.tell(&entries), Ok(2));
        assert_eq!(asked.sets, [set(&[70]), set(&[3]), None]);
    }

    #[test]
    fn descriptors_beyond_the_count_are_left_alone() {
        let mut asked = Selection::new(3, [set(&[1, 3]), None, None]);
        assert_eq!(asked.entries().len(), 1);
        assert_eq!(asked.tell(&[]), Ok(0));
    }

    #[test]
    fn bad_descriptor_leaves_the_sets_as_they_were() {
        let mut asked = Selection::new(64, [set(&[5]), None, None]);
        let mut entries = asked.entries();
        entries[0].revents = POLLNVAL;
        assert_eq!(asked.tell(&entries), Err(Errno::BADF));
        assert_eq!(asked.sets[0], set(&[5]));
    }
}
