//! The AccECN option (RFC 9768 3.2.3): when to send one, its length, and the state kept of received
//! ones.
//!
//! Counters start at zero and are sent with an initial value of one or zero (3.2.1), so a path that
//! zeroes them is detected.

use wire::Ecn;
use wire::limits::ACCECN_FIELDS_MAX;
use wire::tcp::AccEcn;
use wire::tcp_option::Options;

use crate::config::Config;
use crate::ecn::EcnState;
use crate::ecn::received::fail;
use crate::segment::SegmentOut;

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

/// `tcp_ecn_option`: an option in every segment that has room.
pub(crate) const OPTION_ALWAYS: u8 = 2;
/// `tcp_ecn_option`: also when ACKs with one seem to be lost.
pub(crate) const OPTION_PERSISTS: u8 = 3;

impl EcnState {
    /// True if the next segment is to carry an option. Linux's reading of RFC 9768 3.2.3.3: never
    /// to a peer that sent none.
    pub(crate) fn wants_option(&self, srtt_us: u64, now_ns: u64, config: &Config) -> bool {
        let accurate = &self.accurate;
        let setting = config.accecn_option;
        if setting == 0 || accurate.option_seen == OptionSeen::None {
            return false;
        }
        if accurate.has_failed(fail::OPTION_SEND) && setting < OPTION_PERSISTS {
            return false;
        }
        setting >= OPTION_ALWAYS
            || accurate.demand > 0
            || self.beacon_is_due(srtt_us, now_ns, config)
    }

    /// An option is due so many times in a round trip, whatever has changed.
    pub(crate) fn beacon_is_due(&self, srtt_us: u64, now_ns: u64, config: &Config) -> bool {
        let beacons = u64::from(config.accecn_option_beacon);
        let since_us = micros(now_ns).wrapping_sub(self.accurate.option_sent_us);
        beacons > 0 && u64::from(since_us) * beacons >= srtt_us
    }

    /// Puts an option into a segment that is complete but for it.
    pub(crate) fn add_option(
        &mut self,
        srtt_us: u64,
        now_ns: u64,
        config: &Config,
        out: &mut SegmentOut,
        dsack: bool,
    ) {
        let fit = if self.wants_option(srtt_us, now_ns, config) {
            let required = usize::from(self.accurate.fields_min);
            out.options.accecn_room().fit(required)
        } else {
            None
        };
        let accurate = &mut self.accurate;
        let Some(fit) = fit else {
            accurate.option_with_dsack = false;
            return;
        };
        out.options.sack.truncate(fit.sack_blocks);
        out.options.accecn = accurate.received.option().truncated(fit.fields);
        accurate.fields_min = 0;
        accurate.option_sent_us = micros(now_ns);
        accurate.option_with_dsack = dsack;
        accurate.demand = accurate.demand.saturating_sub(1);
    }
}
