//! Choice of a congestion control algorithm, by the names that `TCP_CONGESTION` and Linux's sysctl
//! use.

/// The congestion control algorithms that a connection can use. An accepted connection begins with
/// the one in the settings; the caller hands on the listener's choice by
/// `Connection::set_congestion`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionAlgorithm {
    /// RFC 9438.
    #[default]
    Cubic,
    /// RFC 5681 and RFC 6582.
    NewReno,
    /// RFC 8257, for networks whose switches mark packets early.
    Dctcp,
    /// BBR, as Linux has it (version 1): by a model of the path instead of by losses.
    Bbr,
}

impl CongestionAlgorithm {
    /// All of them, the default first.
    pub const ALL: [CongestionAlgorithm; 4] = [Self::Cubic, Self::NewReno, Self::Dctcp, Self::Bbr];

    /// The algorithm's name; NewReno is `reno`, as in Linux.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::NewReno => "reno",
            Self::Dctcp => "dctcp",
            Self::Bbr => "bbr",
        }
    }

    /// The algorithm of that name.
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
    pub const fn wants_ecn(self) -> bool {
        matches!(self, Self::Dctcp)
    }
}
