//! Algorithms from outside with their names, and the list of those that a stack knows.

use core::fmt;

use super::CongestionControl;
use crate::limits::{ALGORITHM_NAME_BYTES_MAX, OUTSIDE_ALGORITHMS_MAX};

/// An algorithm from outside, with its name.
///
/// ```
/// # use tcp::congestion_control::{AckSample, CongestionControl, SenderView, State, Window};
/// use tcp::congestion_control::OutsideAlgorithm;
/// # struct Fixed(u32);
/// # impl CongestionControl for Fixed {
/// #     fn ssthresh(&self, _: &mut State, _: &SenderView, _: &Window) -> u32 { self.0 }
/// #     fn grow(&self, _: &mut State, _: &SenderView, window: &mut Window, _: &AckSample) {
/// #         window.set_cwnd(self.0);
/// #     }
/// # }
/// static FIXED: OutsideAlgorithm = OutsideAlgorithm::new("fixed", &Fixed(40));
/// assert_eq!(FIXED.name(), "fixed");
/// ```
pub struct OutsideAlgorithm {
    name: &'static str,
    control: &'static dyn CongestionControl,
}

impl OutsideAlgorithm {
    /// An algorithm with this name, for `TCP_CONGESTION`.
    #[must_use]
    pub const fn new(name: &'static str, control: &'static dyn CongestionControl) -> Self {
        OutsideAlgorithm { name, control }
    }

    /// The name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The algorithm.
    #[must_use]
    pub const fn control(&self) -> &'static dyn CongestionControl {
        self.control
    }
}

impl fmt::Debug for OutsideAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Two values are equal if they are the same object in memory.
impl PartialEq for OutsideAlgorithm {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self, other)
    }
}

impl Eq for OutsideAlgorithm {}

/// Reason for which an algorithm is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name does not have 1 to [`ALGORITHM_NAME_BYTES_MAX`] printable ASCII characters, or has
    /// a blank.
    BadName,
    /// A built-in algorithm or a registered one has this name.
    NameTaken,
    /// [`OUTSIDE_ALGORITHMS_MAX`] algorithms are registered already.
    TooMany,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterError::BadName => write!(
                f,
                "a congestion control's name has 1 to {ALGORITHM_NAME_BYTES_MAX} printable \
                 characters"
            ),
            RegisterError::NameTaken => f.write_str("a congestion control of this name exists"),
            RegisterError::TooMany => write!(
                f,
                "{OUTSIDE_ALGORITHMS_MAX} congestion controls are registered, the most there may be"
            ),
        }
    }
}

impl core::error::Error for RegisterError {}

/// The algorithms from outside that a stack knows, in the order of their registration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutsideAlgorithms {
    all: [Option<&'static OutsideAlgorithm>; OUTSIDE_ALGORITHMS_MAX],
}

impl OutsideAlgorithms {
    /// The empty list.
    pub const NONE: OutsideAlgorithms = OutsideAlgorithms {
        all: [None; OUTSIDE_ALGORITHMS_MAX],
    };

    /// Checks whether an algorithm of this name could be added.
    pub(crate) fn may_add(&self, name: &str) -> Result<(), RegisterError> {
        let is_good = (1..=ALGORITHM_NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_good {
            return Err(RegisterError::BadName);
        }
        if self.named(name).is_some() {
            return Err(RegisterError::NameTaken);
        }
        match self.all.last() {
            Some(None) => Ok(()),
            _ => Err(RegisterError::TooMany),
        }
    }

    /// Adds an algorithm for which [`may_add`](Self::may_add) succeeded.
    pub(crate) fn add(&mut self, algorithm: &'static OutsideAlgorithm) {
        if let Some(free) = self.all.iter_mut().find(|index| index.is_none()) {
            *free = Some(algorithm);
        }
    }

    /// The algorithm of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&'static OutsideAlgorithm> {
        self.iter().find(|one| one.name == name)
    }

    /// Every algorithm, in the order of registration.
    pub fn iter(&self) -> impl Iterator<Item = &'static OutsideAlgorithm> {
        self.all.into_iter().flatten()
    }

    /// True if `algorithm` is registered.
    #[must_use]
    pub fn contains(&self, algorithm: &OutsideAlgorithm) -> bool {
        self.index_of(algorithm).is_some()
    }

    /// The index of an algorithm in the list.
    pub(crate) fn index_of(&self, algorithm: &OutsideAlgorithm) -> Option<u8> {
        let index = self.iter().position(|one| one == algorithm)?;
        u8::try_from(index).ok()
    }

    /// The algorithm at this index.
    #[inline]
    pub(crate) fn at(&self, index: u8) -> Option<&'static OutsideAlgorithm> {
        *self.all.get(usize::from(index))?
    }
}

#[cfg(test)]
mod tests;
