//! The values of the AccECN option (RFC 9768 3.2.3): byte counters by codepoint, and what a peer's
//! options show.
//!
//! Counters start at zero and are sent with an initial value of one or zero (3.2.1), so a path that
//! zeroes them is detected.

use wire::Ecn;
use wire::limits::ACCECN_FIELDS_MAX;
use wire::tcp::AccEcn;
use wire::tcp_option::Options;

use crate::config::Config;

/// A counter's initial value on the wire, by codepoint.
pub(crate) fn initial(codepoint: Ecn) -> u32 {
    match codepoint {
        Ecn::Ect0 | Ecn::Ect1 => 1,
        Ecn::Ce | Ecn::NotEct => 0,
    }
}

/// Fields that an option of order 1 needs to have the counter of `codepoint`.
pub(crate) fn field_of(codepoint: Ecn) -> u8 {
    match codepoint {
        Ecn::NotEct => 0,
        Ecn::Ect1 => 1,
        Ecn::Ce => 2,
        Ecn::Ect0 => 3,
    }
}

/// The codepoint that each field counts.
pub(crate) fn codepoints(order_1: bool) -> [Ecn; ACCECN_FIELDS_MAX] {
    if order_1 {
        [Ecn::Ect1, Ecn::Ce, Ecn::Ect0]
    } else {
        [Ecn::Ect0, Ecn::Ce, Ecn::Ect1]
    }
}

/// Bytes by codepoint, Not-ECT not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ByteCounters {
    ect1: u32,
    ect0: u32,
    ce: u32,
}

impl ByteCounters {
    pub fn of(&self, codepoint: Ecn) -> u32 {
        match codepoint {
            Ecn::NotEct => 0,
            Ecn::Ect1 => self.ect1,
            Ecn::Ect0 => self.ect0,
            Ecn::Ce => self.ce,
        }
    }

    pub fn set(&mut self, codepoint: Ecn, bytes: u32) {
        match codepoint {
            Ecn::NotEct => {}
            Ecn::Ect1 => self.ect1 = bytes,
            Ecn::Ect0 => self.ect0 = bytes,
            Ecn::Ce => self.ce = bytes,
        }
    }

    /// ECT(1), ECT(0) and CE.
    pub fn all(&self) -> [u32; ACCECN_FIELDS_MAX] {
        [self.ect1, self.ect0, self.ce]
    }

    /// The complete option with these counters.
    pub(crate) fn option(&self) -> AccEcn {
        let field = |codepoint: Ecn| self.of(codepoint).wrapping_add(initial(codepoint));
        AccEcn::order_1(codepoints(true).map(field))
    }

    /// Takes the counters of an option that arrived. Calls `changed` with each codepoint whose
    /// counter moved, and by how much; a step of more than half the range is one back.
    pub fn take(&mut self, option: &AccEcn, mut changed: impl FnMut(Ecn, i32)) {
        let fields = codepoints(option.is_order_1()).into_iter();
        for (codepoint, counter) in fields.zip(option.counters()) {
            let known = self.of(codepoint);
            let step = counter.wrapping_sub(initial(codepoint)).wrapping_sub(known) << 8;
            let step = step as i32 >> 8;
            if step != 0 {
                self.set(codepoint, known.wrapping_add_signed(step));
                changed(codepoint, step);
            }
        }
    }
}

/// Kinds of AccECN options seen from the peer (the values of Linux's `tcpi_accecn_opt_seen`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum OptionSeen {
    /// No option came.
    #[default]
    None = 0,
    /// An option without counters.
    Empty = 1,
    /// An option with counters.
    Counters = 2,
    /// The first one with counters had zero where none can be: the path zeroes them.
    Zeroed = 3,
}

impl OptionSeen {
    /// The first option that arrives, or the first with counters. Those of ECT(0) and ECT(1) begin
    /// at one (RFC 9768 3.2.3.2.4).
    pub fn of(option: &AccEcn) -> OptionSeen {
        let mut counters = option.counters();
        match (counters.next(), counters.nth(1)) {
            (None, _) => OptionSeen::Empty,
            (Some(0), _) | (_, Some(0)) => OptionSeen::Zeroed,
            _ => OptionSeen::Counters,
        }
    }
}

/// Adds the option of a SYN-ACK: the initial values, as far as there is room. A retransmission
/// carries none (RFC 9768 3.2.3.2.2).
pub(crate) fn initial_option(config: &Config, options: &mut Options) {
    if config.accecn_option == 0 {
        return;
    }
    if let Some(fit) = options.accecn_room().fit(0) {
        options.accecn = ByteCounters::default().option().truncated(fit.fields);
    }
}

/// Microseconds, wrapping.
pub(crate) fn micros(now_ns: u64) -> u32 {
    (now_ns / 1000) as u32
}
