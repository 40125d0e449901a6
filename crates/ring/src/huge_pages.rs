//! Huge pages under a stack's memory: the rule that the user gave, and the pages that each piece
//! got.
//!
//! A random visit to a large table misses the TLB on pages of 4 KiB and costs a walk through the
//! page tables. A few TLB entries cover the same table on pages of 2 MiB. Linux has two sorts of
//! huge pages. *hugetlb* pages are reserved by the administrator and go to the first process that
//! maps them. *Transparent* huge pages (THP) are assembled from free memory where a process advises
//! them.
//!
//! A [`PageSource`] carries the rule through the construction of one stack. The memory file
//! ([`memory`](crate::memory)) and the large tables ([`tables`](crate::tables)) ask it what to map,
//! and it counts the answers.

use core::fmt;
use core::str::FromStr;

/// Bytes of a huge page.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The rule for the pages of connections, flow table, socket blocks and chunks. Pieces of less than
/// 2 MiB always lie on ordinary pages.
///
/// ```
/// use ring::huge_pages::HugePages;
/// assert_eq!("require".parse(), Ok(HugePages::Require));
/// assert_eq!(HugePages::default().to_string(), "auto");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Reserved huge pages (hugetlb) for each piece for which enough of them are free; for the
    /// others, transparent huge pages are advised.
    #[default]
    Auto,
    /// Reserved huge pages. Without enough of them, making the stack fails with [`MissingPages`].
    Require,
    /// Transparent huge pages are advised, and reserved ones left to others: for a process that
    /// forks, whose copies of a written page would take further ones.
    Transparent,
    /// Ordinary pages: transparent huge pages are advised against.
    Off,
}

impl HugePages {
    /// Every rule, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Require, Self::Transparent, Self::Off];

    /// The rule's name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Require => "require",
            Self::Transparent => "transparent",
            Self::Off => "off",
        }
    }

    /// Whether a large piece is tried on reserved huge pages.
    #[cfg(not(any(miri, loom)))]
    pub(crate) fn takes_reserved(self) -> bool {
        matches!(self, Self::Auto | Self::Require)
    }
}

impl fmt::Display for HugePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error for a text that names no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownRule(String);

impl fmt::Display for UnknownRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\": expected auto, require, transparent or off",
            self.0
        )
    }
}

impl std::error::Error for UnknownRule {}

impl FromStr for HugePages {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<Self, UnknownRule> {
        let mut all = Self::ALL.into_iter();
        all.find(|rule| rule.name() == text)
            .ok_or_else(|| UnknownRule(text.to_owned()))
    }
}

/// The pages that a stack's memory lies on, in bytes of address space. Reserved huge pages are
/// taken when a piece is made. The others are taken when they are first touched, so a stack at rest
/// holds less of them.
///
/// ```
/// use ring::huge_pages::{HugePages, PageSource};
/// use ring::tables::Table;
/// let mut source = PageSource::new(HugePages::Off);
/// let table = Table::filled(0u64, 1_000, &mut source);
/// assert_eq!(source.held().ordinary_bytes, 8_000);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagesHeld {
    /// Bytes on reserved huge pages.
    pub hugetlb_bytes: u64,
    /// Bytes for which transparent huge pages are advised; the kernel grants them as it finds free
    /// ones.
    pub thp_bytes: u64,
    /// Bytes on ordinary pages.
    pub ordinary_bytes: u64,
}

#[cfg_attr(
    any(miri, loom),
    allow(dead_code, reason = "the models lie on the heap")
)]
/// The sort of pages under one piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    Hugetlb,
    Thp,
    Ordinary,
}

/// The kernel's refusal of reserved huge pages for one piece.
#[cfg_attr(
    any(miri, loom),
    allow(dead_code, reason = "the models lie on the heap")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Too few are free to promise them all.
    Promise,
    /// The kernel promised them and withholds some from this process.
    Pages,
}

/// The reserved huge pages of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Pages that the administrator reserved, `vm.nr_hugepages`.
    pub total: u64,
    /// Pages that a mapping can still have.
    pub free: u64,
    /// Pages that lie free and that no mapping can have: the kernel has promised them to mappings
    /// that have not touched them yet. Millstream touches its own at once (Linux 5.14 and later).
    pub promised: u64,
}

impl Reserved {
    /// Reads the counts of pages of 2 MiB; zeros where the kernel has none.
    #[must_use]
    pub fn read() -> Self {
        let count = |name: &str| -> u64 {
            let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}");
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.trim().parse().unwrap_or(0)
        };
        let promised = count("resv_hugepages");
        Self {
            total: count("nr_hugepages"),
            // A mapping takes its pages out of the free ones when they are filled. Until then they
            // are promised.
            free: count("free_hugepages").saturating_sub(promised),
            promised,
        }
    }
}

/// Error: there are not enough reserved huge pages for stacks that require them.
///
/// ```
/// use ring::huge_pages::{MissingPages, Reserved};
/// let mut reserved = Reserved { total: 64, free: 40, promised: 0 };
/// assert_eq!(
///     MissingPages::new(100, reserved).to_string(),
///     "hugetlb: require: 100 huge pages of 2 MiB are needed and 40 are free, 60 are missing: \
///      `sysctl vm.nr_hugepages=124`"
/// );
/// reserved.promised = 8;
/// assert_eq!(
///     MissingPages::new(100, reserved).to_string(),
///     "hugetlb: require: 100 huge pages of 2 MiB are needed and 40 are free, 60 are missing \
///      (mappings of other processes hold 8 more that they have not touched yet, see \
///      resv_hugepages): `sysctl vm.nr_hugepages=124`"
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingPages {
    needed: u64,
    reserved: Reserved,
    /// Some are free, and withheld from this process.
    is_withheld: bool,
}

impl MissingPages {
    /// An error for stacks that need `needed` pages on a machine with these.
    #[must_use]
    pub fn new(needed: u64, reserved: Reserved) -> Self {
        Self {
            needed,
            reserved,
            is_withheld: false,
        }
    }

    /// Number of free pages that are missing, at least 1.
    #[must_use]
    pub fn count(&self) -> u64 {
        // Another process may have freed pages since the attempt. The attempt failed all the same,
        // so the count is at least 1.
        self.needed.saturating_sub(self.reserved.free).max(1)
    }

    /// The error for `stacks` stacks of this size: those still to be made, this one included.
    #[must_use]
    pub fn times(self, stacks: usize) -> Self {
        Self {
            needed: self.needed.saturating_mul(stacks as u64),
            ..self
        }
    }
}

impl fmt::Display for MissingPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_withheld {
            return write!(
                f,
                "hugetlb: require: {} huge pages of 2 MiB are needed, and the kernel withholds \
                 free ones from this process: see hugetlb.2MB.max of its control group, and the \
                 memory nodes of its cpuset",
                self.needed,
            );
        }
        write!(
            f,
            "hugetlb: require: {} huge pages of 2 MiB are needed and {} are free, {} are missing",
            self.needed,
            self.reserved.free,
            self.count(),
        )?;
        if self.reserved.promised > 0 {
            write!(
                f,
                " (mappings of other processes hold {} more that they have not touched yet, see \
                 resv_hugepages)",
                self.reserved.promised,
            )?;
        }
        write!(
            f,
            ": `sysctl vm.nr_hugepages={}`",
            self.reserved.total + self.count(),
        )
    }
}

impl std::error::Error for MissingPages {}

/// A source of memory that follows the rule and counts the pages given. The default follows the
/// default rule.
#[derive(Debug, Default)]
pub struct PageSource {
    rule: HugePages,
    held: PagesHeld,
    /// Bytes that the rule requires on reserved huge pages and that did not get them.
    refused_bytes: u64,
    /// Pages were withheld from one of those pieces.
    is_withheld: bool,
}

impl PageSource {
    /// A source that has given nothing yet.
    #[must_use]
    pub fn new(rule: HugePages) -> Self {
        Self {
            rule,
            held: PagesHeld::default(),
            refused_bytes: 0,
            is_withheld: false,
        }
    }

    /// The rule.
    #[must_use]
    pub fn rule(&self) -> HugePages {
        self.rule
    }

    /// Counts of the pieces given so far.
    #[must_use]
    pub fn held(&self) -> PagesHeld {
        self.held
    }

    /// Checks that every large piece got what the rule requires. The caller checks once, after all
    /// pieces were made, so that the error counts all missing pages.
    ///
    /// # Errors
    /// The count of the pages that are missing.
    pub fn check(&self) -> Result<(), MissingPages> {
        if self.refused_bytes == 0 {
            return Ok(());
        }
        let pages = |bytes: u64| bytes / HUGE_PAGE_BYTES as u64;
        let held = pages(self.held.hugetlb_bytes);
        let mut reserved = Reserved::read();
        // The failed attempt will give back the pages of its other pieces.
        reserved.free += held;
        Err(MissingPages {
            needed: held + pages(self.refused_bytes),
            reserved,
            is_withheld: self.is_withheld,
        })
    }

    /// Counts a piece of `bytes` bytes on pages of this sort.
    pub(crate) fn note(&mut self, pages: Pages, bytes: usize) {
        let count = match pages {
            Pages::Hugetlb => &mut self.held.hugetlb_bytes,
            Pages::Thp => &mut self.held.thp_bytes,
            Pages::Ordinary => &mut self.held.ordinary_bytes,
        };
        *count += bytes as u64;
    }

    #[cfg_attr(
        any(miri, loom),
        allow(dead_code, reason = "the models lie on the heap")
    )]
    /// Notes that the kernel refused reserved huge pages for `bytes`.
    pub(crate) fn note_refused(&mut self, refused: Refused, bytes: usize) {
        if self.rule == HugePages::Require {
            self.refused_bytes += bytes as u64;
            self.is_withheld |= refused == Refused::Pages;
        }
    }
}

/// The memory for which transparent huge pages are wanted.
#[cfg(not(any(miri, loom)))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThpFor {
    /// Anonymous memory of a process.
    Anonymous,
    /// Files in memory (memfd, tmpfs).
    Shared,
}

/// True if the kernel grants transparent huge pages where they are advised.
#[cfg(not(any(miri, loom)))]
pub(crate) fn grants_thp(memory: ThpFor) -> bool {
    let name = match memory {
        ThpFor::Anonymous => "enabled",
        ThpFor::Shared => "shmem_enabled",
    };
    let setting = std::fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}"));
    let setting = setting.unwrap_or_default();
    let chosen = setting.split(['[', ']']).nth(1).unwrap_or("never");
    !matches!(chosen, "never" | "deny")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_reads_and_prints() {
        for rule in HugePages::ALL {
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
        let error = "on".parse::<HugePages>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"on\": expected auto, require, transparent or off"
        );
    }

    #[test]
    fn refused_pieces_are_missing_for_the_rule_that_requires_them_alone() {
        for rule in HugePages::ALL {
            let mut source = PageSource::new(rule);
            source.note(Pages::Ordinary, 4_096);
            source.note_refused(Refused::Promise, 3 * HUGE_PAGE_BYTES);
            assert_eq!(source.check().is_err(), rule == HugePages::Require);
            assert_eq!(source.held().ordinary_bytes, 4_096);
        }
    }

    #[test]
    fn refused_pieces_are_counted_in_pages() {
        let mut source = PageSource::new(HugePages::Require);
        source.note_refused(Refused::Promise, 3 * HUGE_PAGE_BYTES);
        let missing = source.check().expect_err("three pages are missing");
        // The attempt has failed, so at least one page counts as missing, whatever is free now.
        assert_eq!(
            missing.count(),
            3u64.saturating_sub(Reserved::read().free).max(1)
        );
    }

    #[test]
    fn pages_withheld_are_told_with_the_place_to_look_at() {
        let mut source = PageSource::new(HugePages::Require);
        source.note_refused(Refused::Pages, HUGE_PAGE_BYTES);
        source.note_refused(Refused::Promise, HUGE_PAGE_BYTES);
        let missing = source.check().expect_err("pages are withheld").times(2);
        let said = missing.to_string();
        assert!(said.contains(" 4 huge pages"), "{said}");
        assert!(said.contains("hugetlb.2MB.max"), "{said}");
    }

    #[test]
    fn pages_that_others_hold_untouched_are_told_apart_from_missing_ones() {
        let reserved = Reserved {
            total: 8,
            free: 0,
            promised: 5,
        };
        let said = MissingPages::new(4, reserved).to_string();
        assert!(said.contains(" 0 are free, 4 are missing"), "{said}");
        assert!(said.contains("hold 5 more"), "{said}");
        assert!(said.contains("resv_hugepages"), "{said}");
        assert!(said.ends_with("vm.nr_hugepages=12`"), "{said}");
    }

    #[test]
    fn missing_pages_count_those_that_other_stacks_will_need() {
        let reserved = Reserved {
            total: 8,
            free: 8,
            promised: 0,
        };
        let missing = MissingPages::new(10, reserved).times(3);
        assert_eq!(missing.count(), 22);
        assert!(missing.to_string().ends_with("vm.nr_hugepages=30`"));
        let freed = MissingPages::new(4, reserved);
        assert_eq!(freed.count(), 1, "an attempt that failed was short of one");
    }
}
