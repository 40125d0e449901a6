//! Values of the AccECN option (RFC 9768 3.2.3): byte counters by codepoint, and the state of the
//! peer's options.
//!
//! Counters start at zero here and are sent with an initial value of one or zero added (RFC 9768
//! 3.2.1), so that a path that zeroes them is detected.

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

/// Number of counters that an option of order 1 needs to include the counter of `codepoint`.
pub(crate) fn field_of(codepoint: Ecn) -> u8 {
    match codepoint {
        Ecn::NotEct => 0,
        Ecn::Ect1 => 1,
        Ecn::Ce => 2,
        Ecn::Ect0 => 3,
    }
}

/// The codepoint that each counter of an option counts.
pub(crate) fn codepoints(order_1: bool) -> [Ecn; ACCECN_FIELDS_MAX] {
    if order_1 {
        [Ecn::Ect1, Ecn::Ce, Ecn::Ect0]
    } else {
        [Ecn::Ect0, Ecn::Ce, Ecn::Ect1]
    }
}

/// Bytes by codepoint, except Not-ECT.
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

    /// The counters of ECT(1), ECT(0) and CE, in this order.
    pub fn all(&self) -> [u32; ACCECN_FIELDS_MAX] {
        [self.ect1, self.ect0, self.ce]
    }

    /// The complete option with these counters.
    pub(crate) fn option(&self) -> AccEcn {
        let field = |codepoint: Ecn| self.of(codepoint).wrapping_add(initial(codepoint));
        AccEcn::order_1(codepoints(true).map(field))
    }

    /// Takes the counters of an option that arrived. Calls `changed` with each codepoint whose
    /// counter moved, and the difference. A difference of more than half the range is a step back.
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
    /// The first option with counters had zero where no honest peer has it: the path zeroes
    /// counters.
    Zeroed = 3,
}

impl OptionSeen {
    /// The state after the first option, or after the first with counters. The counters of ECT(0)
    /// and ECT(1) begin at one (RFC 9768 3.2.3.2.4).
    pub fn of(option: &AccEcn) -> OptionSeen {
        let mut counters = option.counters();
        match (counters.next(), counters.nth(1)) {
            (None, _) => OptionSeen::Empty,
            (Some(0), _) | (_, Some(0)) => OptionSeen::Zeroed,
            _ => OptionSeen::Counters,
        }
    }
}

/// Adds an option with the initial values to a SYN-ACK, as far as there is room. A retransmission
/// carries none (RFC 9768 3.2.3.2.2).
pub(crate) fn initial_option(config: &Config, options: &mut Options) {
    if config.accecn_option == 0 {
        return;
    }
    if let Some(fit) = options.accecn_room().fit(0) {
        options.accecn = ByteCounters::default().option().truncated(fit.fields);
    }
}

/// Microseconds that wrap.
pub(crate) fn micros(now_ns: u64) -> u32 {
    (now_ns / 1000) as u32
}
