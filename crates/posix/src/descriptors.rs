//! Allocation of descriptor numbers.

use rustix::io::Errno;

/// Allocates the numbers of descriptors. In a real process, an implementation opens real
/// descriptors, so that no other descriptor gets the same number.
pub trait Descriptors {
    /// Allocates a number.
    ///
    /// # Errors
    /// `EMFILE`, and other errors of the source of numbers.
    fn open(&mut self) -> Result<i32, Errno>;

    /// Allocates a number that is not below `first` (`F_DUPFD`).
    ///
    /// # Errors
    /// The errors of [`open`](Self::open). `EINVAL` for a `first` that no number can have; the
    /// default method returns it for all but 0.
    fn open_from(&mut self, first: i32) -> Result<i32, Errno> {
        match first {
            0 => self.open(),
            _ => Err(Errno::INVAL),
        }
    }

    /// Marks a number that the caller chose as in use, if it is not yet (`dup2`). The default
    /// method leaves the bookkeeping to the caller.
    ///
    /// # Errors
    /// `EBADF` for a number that no descriptor can have.
    fn claim(&mut self, fd: i32) -> Result<(), Errno> {
        match fd {
            0.. => Ok(()),
            _ => Err(Errno::BADF),
        }
    }

    /// Frees a number.
    fn close(&mut self, fd: i32);
}

/// Allocates the lowest free number from `first` on, as POSIX requires.
#[derive(Clone, Debug)]
pub struct LowestFree {
    first: i32,
    count_max: usize,
    /// A bit for each number, set while the number is in use.
    used: Vec<u64>,
    /// The words before this index have no free bit.
    first_free: usize,
}

impl LowestFree {
    /// Numbers from `first` on; programs pass 3, behind the three standard descriptors.
    #[must_use]
    pub const fn from(first: i32) -> Self {
        Self {
            first,
            count_max: DESCRIPTORS_MAX,
            used: Vec::new(),
            first_free: 0,
        }
    }

    /// Allows `count` numbers at once; a further one fails with `EMFILE`.
    #[must_use]
    pub fn limited(mut self, count: usize) -> Self {
        self.count_max = count.min(DESCRIPTORS_MAX);
        self
    }
}

impl LowestFree {
    fn is_used(&self, fd: i32) -> bool {
        let place = usize::try_from(fd - self.first).unwrap_or(usize::MAX);
        let word = self.used.get(place / 64).copied().unwrap_or(0);
        word & 1 << (place % 64) != 0
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

    fn open_from(&mut self, first: i32) -> Result<i32, Errno> {
        let end = self.first + self.count_max as i32;
        if !(0..end).contains(&first) {
            return Err(Errno::INVAL);
        }
        let free = (first.max(self.first)..end).find(|fd| !self.is_used(*fd));
        let fd = free.ok_or(Errno::MFILE)?;
        self.claim(fd).map(|()| fd)
    }

    fn claim(&mut self, fd: i32) -> Result<(), Errno> {
        if fd < 0 || fd >= self.first + self.count_max as i32 {
            return Err(Errno::BADF);
        }
        // Numbers below `first` are never allocated, so their use need not be recorded.
        if let Ok(place) = usize::try_from(fd - self.first) {
            if place / 64 >= self.used.len() {
                self.used.resize(place / 64 + 1, 0);
            }
            self.used[place / 64] |= 1 << (place % 64);
        }
        Ok(())
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

/// Descriptors that are open at once. A further one fails with `EMFILE`.
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
