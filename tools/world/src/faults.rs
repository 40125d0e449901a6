//! The kinds of faults by name, and sets of them: what `--off` and the search for a smaller failing
//! world switch off.

use std::fmt;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FaultKind { $($(#[$doc])* $kind,)* }

        impl FaultKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// Its name on a command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    /// Frames are lost one by one.
    Loss = "loss",
    /// Frames are lost in bursts.
    Burst = "burst",
    /// Frames are overtaken.
    Reorder = "reorder",
    /// Frames arrive twice.
    Duplicate = "duplicate",
    /// Bits are flipped.
    Corrupt = "corrupt",
    /// Nothing passes for a while.
    Blackhole = "blackhole",
    /// Delays vary.
    Jitter = "jitter",
    /// Frames are a few odd microseconds late.
    Lateness = "late",
    /// Links have a rate and a queue.
    Queue = "queue",
    /// Links differ in MTU.
    Mtu = "mtu",
    /// Tables and buffers are small.
    Scarcity = "scarcity",
    /// Frames wait in the driver.
    Coalesce = "coalesce",
    /// The driver has few slots.
    Slots = "slots",
    /// Clocks jump forward.
    ClockJump = "clock",
    /// Forged ICMP errors.
    IcmpLie = "icmp",
    /// Forged segments.
    Attack = "attack",
    /// Settings of TCP other than the default.
    Settings = "settings",
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultSet(u32);

impl FaultSet {
    /// None.
    pub const NONE: Self = Self(0);

    /// Whether `kind` is in it.
    #[must_use]
    pub const fn contains(self, kind: FaultKind) -> bool {
        self.0 & 1 << kind as u32 != 0
    }

    /// With `kind` in it.
    #[must_use]
    pub const fn with(self, kind: FaultKind) -> Self {
        Self(self.0 | 1 << kind as u32)
    }

    /// From names with commas between.
    ///
    /// # Errors
    /// The name that is none, with those that are.
    pub fn parse(names: &str) -> Result<Self, String> {
        let mut set = Self::NONE;
        for name in names.split(',').filter(|name| !name.is_empty()) {
            let kind = FaultKind::ALL.iter().find(|kind| kind.name() == name);
            let Some(kind) = kind else {
                let known: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
                return Err(format!("{name}: not one of {}", known.join(", ")));
            };
            set = set.with(*kind);
        }
        Ok(set)
    }
}

impl fmt::Display for FaultSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = FaultKind::ALL
            .iter()
            .filter(|kind| self.contains(**kind))
            .map(|kind| kind.name())
            .collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        let set = FaultSet::parse("loss,clock").unwrap();
        assert!(set.contains(FaultKind::Loss) && !set.contains(FaultKind::Burst));
        assert_eq!(set.to_string(), "loss,clock");
        assert!(
            FaultSet::parse("los")
                .unwrap_err()
                .starts_with("los: not one of loss")
        );
    }
}
