//! Who numbers the descriptors.

use rustix::io::Errno;

/// Hands out the numbers of descriptors. A plug-in in a real process opens real ones, so that they mean nothing else there.
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
    used: Vec<bool>,
}

impl LowestFree {
    /// Numbers from `first` on: 3 behind the three that every process begins with.
    #[must_use]
    pub const fn from(first: i32) -> Self {
        Self {
            first,
            used: Vec::new(),
        }
    }
}

impl Descriptors for LowestFree {
    fn open(&mut self) -> Result<i32, Errno> {
        let place = match self.used.iter().position(|used| !used) {
            Some(place) => place,
            None if self.used.len() >= DESCRIPTORS_MAX => return Err(Errno::MFILE),
            None => {
                self.used.push(false);
                self.used.len() - 1
            }
        };
        self.used[place] = true;
        Ok(self.first + place as i32)
    }

    fn close(&mut self, fd: i32) {
        let place = usize::try_from(fd - self.first).ok();
        if let Some(used) = place.and_then(|place| self.used.get_mut(place)) {
            *used = false;
        }
    }
}

/// Descriptors that are open at once; one more is `EMFILE`.
const DESCRIPTORS_MAX: usize = 1 << 20;
