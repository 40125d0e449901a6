//! Accurate ECN, seen from a host's wire (RFC 9768). The host reports marks and bytes that arrived,
//! and never fewer than it reported before.
//!
//! Marks that arrived are the upper bound, because the host may drop a segment that reached it.
//! Marks that were reported are the lower bound. Both counters are short on the wire: the ACE field
//! has three bits, a byte counter twenty-four.

use wire::Ecn;
use wire::tcp::{AccEcn, Flags, Header};

use super::ghosts;

/// Initial value of the ACE counter, before any mark.
const ACE_INITIAL: u64 = 5;
const ACE_MASK: u64 = 7;
const COUNTER_MASK: u64 = 0xff_ffff;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// The host's SYN asked for accurate ECN.
    has_asked: bool,
    /// Both sides agreed on accurate ECN.
    is_accurate: bool,
    /// ECN as granted by the first SYN-ACK, or requested by a SYN that crossed ours. `is_disputed`:
    /// another such segment said otherwise, because one overtook the other or the peer had stopped
    /// asking. Only the host knows which one counts.
    granted: Option<bool>,
    is_disputed: bool,
    /// The codepoint of the last SYN or SYN-ACK that arrived.
    syn_received: Option<Ecn>,
    /// Marked segments that arrived, and the least number of them that the host reported.
    marked: u64,
    told: u64,
    /// Payload bytes that arrived, and those that the host reported, for ECT(1), ECT(0) and CE.
    arrived: [u64; 3],
    said: [u64; 3],
}

/// Index of a codepoint's byte counter, and the counter's initial value.
fn place(codepoint: Ecn) -> Option<(usize, u64)> {
    match codepoint {
        Ecn::NotEct => None,
        Ecn::Ect1 => Some((0, 1)),
        Ecn::Ect0 => Some((1, 1)),
        Ecn::Ce => Some((2, 0)),
    }
}

/// Whether the ACE field of a SYN-ACK grants accurate ECN (RFC 9768 table 2).
fn grants(ace: u8) -> bool {
    matches!(ace, 0b010..=0b110)
}

fn reflects(ace: u8, arrived: Ecn) -> bool {
    let expected = match arrived {
        Ecn::NotEct => 0b010,
        Ecn::Ect1 => 0b011,
        Ecn::Ect0 => 0b100,
        Ecn::Ce => 0b110,
    };
    ace == expected
}

impl Marks {
    /// A segment reaches the host, from any sender.
    pub fn inward(&mut self, header: &Header, len: u32, codepoint: Ecn) {
        if header.flags.contains(Flags::SYN) {
            self.syn_received = Some(codepoint);
            let ace = header.flags.ace();
            let answers = header.flags.contains(Flags::ACK);
            if answers || self.has_asked {
                let grants = if answers { grants(ace) } else { ace == 0b111 };
                self.is_disputed |= self.granted.is_some_and(|before| before != grants);
                self.granted.get_or_insert(grants);
                self.is_accurate |= answers && self.has_asked && grants;
            }
        }
        self.marked += u64::from(codepoint == Ecn::Ce);
        if let Some((at, _)) = place(codepoint) {
            self.arrived[at] += u64::from(len);
        }
    }

    /// A segment leaves. `is_remnant`: it may come from an entry without ECN state.
    pub fn outward(&mut self, header: &Header, len: u32, is_remnant: bool) -> Result<(), String> {
        let ace = header.flags.ace();
        if header.flags.contains(Flags::SYN) {
            if header.flags.contains(Flags::ACK) {
                self.is_accurate |= ace != 0b101 && grants(ace);
            } else {
                self.has_asked |= ace == 0b111;
            }
            return Ok(());
        }
        if self.is_disputed {
            return Ok(());
        }
        if !self.is_accurate {
            return if header.options.accecn.is_present() {
                Err("an AccECN option without leave".to_owned())
            } else {
                Ok(())
            };
        }
        let is_bare = len + ghosts(header.flags) == 0;
        let is_reflection = self.syn_received.is_some_and(|seen| reflects(ace, seen));
        if !(is_bare && (is_reflection || ace == 0 && is_remnant)) {
            self.check_field(ace)?;
        }
        self.check_option(&header.options.accecn)
    }

    /// Checks that the field fits some number between the marks reported and those that arrived.
    fn check_field(&mut self, ace: u8) -> Result<(), String> {
        let ahead = u64::from(ace).wrapping_sub(ACE_INITIAL + self.told) & ACE_MASK;
        if self.told + ahead > self.marked {
            return Err(format!(
                "an ACE field of {ace} after {} marks, of {} that arrived",
                self.told, self.marked
            ));
        }
        self.told += ahead;
        Ok(())
    }

    fn check_option(&mut self, option: &AccEcn) -> Result<(), String> {
        let order = if option.is_order_1() {
            [Ecn::Ect1, Ecn::Ce, Ecn::Ect0]
        } else {
            [Ecn::Ect0, Ecn::Ce, Ecn::Ect1]
        };
        for (codepoint, counter) in order.into_iter().zip(option.counters()) {
            let Some((at, initial)) = place(codepoint) else {
                continue;
            };
            let said = self.said[at];
            let ahead = u64::from(counter).wrapping_sub(initial + said) & COUNTER_MASK;
            if said + ahead > self.arrived[at] {
                return Err(format!(
                    "a counter of {counter} for {codepoint:?}, of which {} bytes arrived and {said} were told",
                    self.arrived[at]
                ));
            }
            self.said[at] = said + ahead;
        }
        Ok(())
    }
}
