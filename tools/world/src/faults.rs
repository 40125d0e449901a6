//! Kinds of faults by name, and sets of them. `--off` and the search for a smaller failing world
//! switch off such sets.

use std::fmt;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FaultKind { $($(#[$doc])* $kind,)* }

        impl FaultKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// The name on a command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    /// Single frames are lost.
    Loss = "loss",
    /// Frames are lost in bursts.
    Burst = "burst",
    /// Frames are held back, so that others overtake them.
    Reorder = "reorder",
    /// Frames arrive twice.
    Duplicate = "duplicate",
    /// Bits are flipped.
    Corrupt = "corrupt",
    /// Nothing passes for a while.
    Blackhole = "blackhole",
    /// Delays vary.
    Jitter = "jitter",
    /// Each frame is late by a few odd microseconds.
    Lateness = "late",
    /// Links have a rate and a queue.
    Queue = "queue",
    /// Links differ in MTU.
    Mtu = "mtu",
    /// Tables and buffers are small.
    Scarcity = "scarcity",
    /// Frames wait in the driver before the stack sees them.
    Coalesce = "coalesce",
    /// The driver has few slots.
    Slots = "slots",
    /// Clocks jump forward.
    ClockJump = "clock",
    /// ICMP errors are forged.
    IcmpLie = "icmp",
    /// Segments are forged.
    Attack = "attack",
    /// Settings of TCP differ from the default.
    Settings = "settings",
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultSet(u32);

impl FaultSet {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Whether the set contains `kind`.
    #[must_use]
    pub const fn contains(self, kind: FaultKind) -> bool {
        self.0 & 1 << kind as u32 != 0
    }

    /// The set with `kind` added.
    #[must_use]
    pub const fn with(self, kind: FaultKind) -> Self {
        Self(self.0 | 1 << kind as u32)
    }

    /// The set of names separated by commas.
    ///
    /// # Errors
    /// The unknown name, with a list of the known ones.
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
