//! The rules of a running stack: the table, and each rule's counters and rate limit.

use crate::counters::Counters;
use crate::rules::packet::RulePacket;
use crate::rules::table::RuleTable;
use crate::rules::token_bucket::TokenBucket;
use crate::rules::{Rule, RuleAction, RuleCounts, RuleError, RuleSet};

/// The verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The packet is processed further.
    Pass,
    /// The packet is dropped and counted; its sender is not told.
    Drop,
    /// The packet is dropped and counted; its sender must be told.
    Reject,
}

/// A compiled set of rules, with the counters and rate limits of each.
pub struct Judge {
    table: RuleTable,
    states: Vec<RuleState>,
    default_action: RuleAction,
}

/// The state of one rule.
struct RuleState {
    name: Option<String>,
    action: RuleAction,
    bucket: Option<TokenBucket>,
    packets: u64,
    bytes: u64,
    refused: u64,
}

impl RuleState {
    fn new(rule: &Rule, now_ns: u64) -> Self {
        let bucket = match rule.action {
            RuleAction::Limit { per_second, burst } => {
                Some(TokenBucket::new(per_second, burst, now_ns))
            }
            _ => None,
        };
        Self {
            name: rule.name.clone(),
            action: rule.action,
            bucket,
            packets: 0,
            bytes: 0,
            refused: 0,
        }
    }

    fn counts(&self) -> RuleCounts {
        RuleCounts {
            name: self.name.clone(),
            packets: self.packets,
            bytes: self.bytes,
            refused: self.refused,
        }
    }
}

impl Judge {
    /// Compiles rules; rate limits begin with a full burst at `now_ns`. `None`: the set allows
    /// everything.
    ///
    /// # Errors
    /// [`RuleError`] names the rule and its fault.
    pub fn new(set: &RuleSet, now_ns: u64) -> Result<Option<Box<Self>>, RuleError> {
        set.check()?;
        if set.is_idle() {
            return Ok(None);
        }
        let states = set.rules.iter().map(|rule| RuleState::new(rule, now_ns));
        Ok(Some(Box::new(Self {
            table: RuleTable::new(&set.rules),
            states: states.collect(),
            default_action: set.default_action,
        })))
    }

    /// Judges a packet, and counts it.
    pub(crate) fn judge(
        &mut self,
        packet: &RulePacket,
        now_ns: u64,
        counters: &mut Counters,
    ) -> Verdict {
        let number = self.table.first_match(packet);
        let Some(state) = number.and_then(|number| self.states.get_mut(number)) else {
            return count(self.default_action, counters);
        };
        state.packets += 1;
        state.bytes += u64::from(packet.bytes);
        let is_within = match &mut state.bucket {
            Some(bucket) => !packet.is_counted || bucket.take(now_ns),
            None => false,
        };
        let action = if is_within {
            RuleAction::Allow
        } else {
            state.action
        };
        let verdict = count(action, counters);
        state.refused += u64::from(verdict != Verdict::Pass);
        verdict
    }

    /// The number of rules.
    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// The counts of all rules, in order.
    pub fn counts(&self) -> Vec<RuleCounts> {
        self.states.iter().map(RuleState::counts).collect()
    }

    /// The counts of rule `number`, from 0 on.
    pub(crate) fn counts_of(&self, number: usize) -> Option<RuleCounts> {
        self.states.get(number).map(RuleState::counts)
    }
}

/// The verdict for an action, which is counted. `Limit` here means that the limit is exceeded.
fn count(action: RuleAction, counters: &mut Counters) -> Verdict {
    match action {
        RuleAction::Allow => Verdict::Pass,
        RuleAction::Deny => {
            counters.rx_drop_rule += 1;
            Verdict::Drop
        }
        RuleAction::Limit { .. } => {
            counters.rx_drop_rule_limit += 1;
            Verdict::Drop
        }
        RuleAction::Reject => {
            counters.rx_drop_rule_reject += 1;
            Verdict::Reject
        }
    }
}
