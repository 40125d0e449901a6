//! Choice of a congestion control algorithm, by the names that `TCP_CONGESTION` and Linux's sysctl
//! use.

use super::Config;
use crate::congestion_control::{OutsideAlgorithm, RegisterError};

/// A congestion control algorithm that a connection can use. An accepted connection begins with the
/// algorithm of the settings; the caller passes on the listener's choice by
/// `Connection::set_congestion`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionAlgorithm {
    /// CUBIC, RFC 9438.
    #[default]
    Cubic,
    /// NewReno, RFC 5681 and RFC 6582.
    NewReno,
    /// DCTCP, RFC 8257, for networks whose switches mark packets early.
    Dctcp,
    /// BBR version 1, as in Linux. It follows a model of the path instead of losses.
    Bbr,
    /// An algorithm from outside the crate, registered in the settings
    /// ([`Config::register_congestion`]). A stack that does not know it uses the default.
    Outside(&'static OutsideAlgorithm),
}

impl CongestionAlgorithm {
    /// The built-in algorithms, the default first.
    pub const ALL: [CongestionAlgorithm; 4] = [Self::Cubic, Self::NewReno, Self::Dctcp, Self::Bbr];

    /// The algorithm's name; NewReno is `reno`, as in Linux.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::NewReno => "reno",
            Self::Dctcp => "dctcp",
            Self::Bbr => "bbr",
            Self::Outside(algorithm) => algorithm.name(),
        }
    }

    /// The built-in algorithm of that name. [`Config::congestion_named`] also finds registered
    /// ones.
    ///
    /// ```
    /// use tcp::CongestionAlgorithm;
    /// assert_eq!(CongestionAlgorithm::from_name("cubic"), Some(CongestionAlgorithm::Cubic));
    /// assert_eq!(CongestionAlgorithm::from_name("tahoe"), None);
    /// ```
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.name() == name)
    }

    /// True if the algorithm needs ECN. Its connections negotiate ECN whatever the settings say.
    #[must_use]
    pub fn wants_ecn(self) -> bool {
        match self {
            Self::Dctcp => true,
            Self::Outside(algorithm) => algorithm.control().wants_ecn(),
            Self::Cubic | Self::NewReno | Self::Bbr => false,
        }
    }
}

impl Config {
    /// Registers an algorithm from outside the crate under its name for all stacks with these
    /// settings. Register before the stack starts: settings that replace these keep their
    /// algorithms.
    ///
    /// # Errors
    /// A name that is bad or taken, or a full list ([`OUTSIDE_ALGORITHMS_MAX`]).
    ///
    /// The module [`congestion_control`](crate::congestion_control) has an example.
    ///
    /// [`OUTSIDE_ALGORITHMS_MAX`]: crate::limits::OUTSIDE_ALGORITHMS_MAX
    pub fn register_congestion(
        &mut self,
        algorithm: &'static OutsideAlgorithm,
    ) -> Result<CongestionAlgorithm, RegisterError> {
        self.may_register_congestion(algorithm.name())?;
        self.outside.add(algorithm);
        Ok(CongestionAlgorithm::Outside(algorithm))
    }

    /// Checks whether an algorithm of this name could be registered.
    ///
    /// # Errors
    /// As for [`register_congestion`](Self::register_congestion).
    ///
    /// ```
    /// use tcp::congestion_control::RegisterError;
    /// let config = tcp::Config::default();
    /// assert!(config.may_register_congestion("mine").is_ok());
    /// assert_eq!(config.may_register_congestion("bbr"), Err(RegisterError::NameTaken));
    /// ```
    pub fn may_register_congestion(&self, name: &str) -> Result<(), RegisterError> {
        match CongestionAlgorithm::from_name(name) {
            Some(_) => Err(RegisterError::NameTaken),
            None => self.outside.may_add(name),
        }
    }

    /// Replaces these settings by others. The algorithms from outside stay, since connections refer
    /// to theirs by its index in the list.
    ///
    /// ```
    /// let mut config = tcp::Config::default();
    /// config.replace(tcp::Config { sack: false, ..tcp::Config::default() });
    /// assert!(!config.sack);
    /// ```
    pub fn replace(&mut self, settings: Config) {
        *self = Config {
            outside: self.outside,
            ..settings
        };
    }

    /// The built-in or registered algorithm of this name.
    ///
    /// ```
    /// use tcp::{Config, CongestionAlgorithm};
    /// let config = Config::default();
    /// assert_eq!(config.congestion_named("reno"), Some(CongestionAlgorithm::NewReno));
    /// assert_eq!(config.congestion_named("tahoe"), None);
    /// ```
    #[must_use]
    pub fn congestion_named(&self, name: &str) -> Option<CongestionAlgorithm> {
        let outside = || self.outside.named(name).map(CongestionAlgorithm::Outside);
        CongestionAlgorithm::from_name(name).or_else(outside)
    }

    /// True if stacks with these settings know the algorithm.
    #[must_use]
    pub fn knows_congestion(&self, choice: CongestionAlgorithm) -> bool {
        match choice {
            CongestionAlgorithm::Outside(algorithm) => self.outside.contains(algorithm),
            _ => true,
        }
    }
}
