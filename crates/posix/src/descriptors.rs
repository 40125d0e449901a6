//! The numbers of descriptors.

use rustix::io::Errno;

/// Hands out the numbers of descriptors. A plug-in in a real process opens real ones, so that they
/// mean nothing else there.
pub trait Descriptors {
    /// A number not in use.
    ///
    /// # Errors
    /// `EMFILE` and what else the source of numbers says.
    fn open(&mut self) -> Result<i32, Errno>;

    /// The number is not in use any more.
    fn close(&mut self, fd: i32);
}

/// The lowest free number, as POSIX asks for, from a first one on.
#[derive(Clone, Debug)]
pub struct LowestFree {
    first: i32,
    count_max: usize,
    /// A bit for each number: in use.
    used: Vec<u64>,
    /// No word before this one has a free bit.
    first_free: usize,
}

impl LowestFree {
    /// Numbers from `first` on: 3 behind the three that every process begins with.
    #[must_use]
    pub const fn from(first: i32) -> Self {
        Self {
            first,
            count_max: DESCRIPTORS_MAX,
            used: Vec::new(),
            first_free: 0,
        }
    }

    /// No more than `count` at once; one more is `EMFILE`.
    #[must_use]
    pub fn limited(mut self, count: usize) -> Self {
        self.count_max = count.min(DESCRIPTORS_MAX);
        self
    }
}

impl Descriptors for LowestFree {
    fn open(&mut self) -> Result<i32, Errno> {
        while self.used.get(self.first_free) == Some(&u64::MAX) {
            self.first_free += 1;
        }
        let word = self.used.get(self.first_free).copied().unwrap_or(0);
        let bit = word.trailing_ones() as usize;
        let place = self.first_free * 64 + bit;
        if place >= self.count_max {
            return Err(Errno::MFILE);
        }
        if self.first_free == self.used.len() {
            self.used.push(0);
        }
        self.used[self.first_free] |= 1 << bit;
        Ok(self.first + place as i32)
    }

    fn close(&mut self, fd: i32) {
        let Ok(place) = usize::try_from(fd - self.first) else {
            return;
        };
        if let Some(word) = self.used.get_mut(place / 64) {
            *word &= !(1 << (place % 64));
            self.first_free = self.first_free.min(place / 64);
        }
    }
}

/// Descriptors that are open at once; one more is `EMFILE`.
const DESCRIPTORS_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_opened_and_closed_come_lowest_first() {
        let mut numbers = LowestFree::from(1).limited(130);
        let all: Vec<_> = (0..130).map(|_| numbers.open()).collect();
        assert_eq!(all, (1..=130).map(Ok).collect::<Vec<_>>());
        assert_eq!(numbers.open(), Err(Errno::MFILE));
        for fd in [100, 3, 65] {
            numbers.close(fd);
        }
        let again: Vec<_> = (0..4).map(|_| numbers.open()).collect();
        assert_eq!(again, [Ok(3), Ok(65), Ok(100), Err(Errno::MFILE)]);
    }
}
