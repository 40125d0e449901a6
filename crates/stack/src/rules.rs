//! Packet rules, in the terms of a configuration: which peers may open connections or send other
//! packets.
//!
//! Rules judge segments without a known flow, and packets that are not TCP. The first matching rule
//! decides, else [`RuleSet::default_action`]. Packets of known flows are not judged, so an
//! established connection costs nothing (decision 0124).
//!
//! `judge` holds the rules of a running stack with their counters, `table` finds the first matching
//! rule, and `packet` reads the fields that rules compare.

pub mod counts;
pub(crate) mod judge;
pub(crate) mod packet;
pub(crate) mod table;
mod token_bucket;

use std::net::IpAddr;

pub use self::judge::Judge;
use crate::limits::{PORTS_MAX, RULES_MAX};
use crate::network::addresses::IpCidr;

/// The protocol that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP
    Tcp,
    /// UDP. The stack refuses it in any case; a rule decides whether the sender is told.
    Udp,
    /// ICMP over IPv4 and ICMPv6 over IPv6. Neighbour discovery and ICMP errors, which concern
    /// existing connections, are not judged.
    Icmp,
    /// Another protocol, by its IP number.
    Number(u8),
}

/// Fate of a packet that a rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleAction {
    /// The packet is processed as if there were no rules.
    #[default]
    Allow,
    /// The packet is dropped without an answer (`rx_drop_rule`).
    Deny,
    /// The packet is dropped and its sender told (`rx_drop_rule_reject`). TCP is answered by a
    /// reset, as at a closed port; UDP and other protocols by the ICMP error "communication
    /// administratively prohibited"; ICMP not at all.
    Reject,
    /// SYNs, and packets that are not TCP, pass up to this rate. Further ones are dropped without
    /// an answer (`rx_drop_rule_limit`). Other segments pass and are not counted, so that the ACK
    /// of a SYN cookie arrives.
    Limit {
        /// Packets per second on average, at least 1.
        per_second: u32,
        /// Packets that may pass at once, at least 1.
        burst: u32,
    },
}

/// One rule. It matches packets that have everything that it names; a field of `None` matches all.
///
/// ```
/// use stack::rules::{Protocol, Rule, RuleAction};
/// let rule = Rule {
///     source: Some("203.0.113.0/24".parse().unwrap()),
///     protocol: Some(Protocol::Tcp),
///     destination_ports: Some((8_000, 8_999)),
///     action: RuleAction::Deny,
///     ..Rule::default()
/// };
/// assert_eq!(rule.check(), Ok(()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The rule's name in reports.
    pub name: Option<String>,
    /// Prefix of the sender's address. A prefix of one family matches no packet of the other.
    pub source: Option<IpCidr>,
    /// Prefix of our address.
    pub destination: Option<IpCidr>,
    /// The protocol; `None` with ports: TCP and UDP.
    pub protocol: Option<Protocol>,
    /// The sender's ports, first and last of a range.
    pub source_ports: Option<(u16, u16)>,
    /// Our ports, first and last of a range.
    pub destination_ports: Option<(u16, u16)>,
    /// Number of the wire on which the packet arrived, from 1 on.
    pub wire: Option<u8>,
    /// Fate of a matching packet.
    pub action: RuleAction,
}

/// A list of rules in the order of comparison.
///
/// ```
/// use stack::rules::{Rule, RuleAction, RuleSet};
/// let own = Rule {
///     source: Some("10.0.0.0/8".parse().unwrap()),
///     ..Rule::default()
/// };
/// let set = RuleSet { rules: vec![own], default_action: RuleAction::Deny };
/// assert_eq!(set.check(), Ok(()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    /// The rules, at most [`RULES_MAX`].
    pub rules: Vec<Rule>,
    /// Fate of packets that no rule matches; not `Limit`.
    pub default_action: RuleAction,
}

/// A rule that cannot be applied, and its fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// One rule has a fault.
    #[error("rule {number}: {fault}")]
    Rule {
        /// The rule's number, from 1 on.
        number: usize,
        /// The fault.
        fault: RuleFault,
    },
    /// There are more than [`RULES_MAX`] rules.
    #[error("{0} rules: at most {RULES_MAX} are possible")]
    TooMany(usize),
    /// The default action is a limit.
    #[error("the default action cannot be a limit: a last rule without conditions can")]
    DefaultLimit,
}

/// The fault of a single rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// The rule names ports and a protocol without ports.
    #[error("ports need the protocol tcp or udp")]
    PortsWithout,
    /// The first port of a range is above the last.
    #[error("ports {0}-{1}: the first is above the last")]
    Ports(u16, u16),
    /// Source and destination are of different families, so nothing can match.
    #[error("source and destination are of different families")]
    Families,
    /// The rule names a wire that no stack can have.
    #[error("wire {0}: wires have numbers from 1 to {PORTS_MAX}")]
    Wire(u8),
    /// The limit lets nothing pass; use `deny`.
    #[error("a limit needs at least 1 per second and a burst of at least 1")]
    Limit,
}

impl Rule {
    /// Checks that the rule can be applied and can match something.
    ///
    /// # Errors
    /// The rule's fault.
    pub fn check(&self) -> Result<(), RuleFault> {
        let has_ports = self.source_ports.is_some() || self.destination_ports.is_some();
        let takes_ports = matches!(
            self.protocol,
            None | Some(Protocol::Tcp | Protocol::Udp | Protocol::Number(6 | 17))
        );
        if has_ports && !takes_ports {
            return Err(RuleFault::PortsWithout);
        }
        let ranges = [self.source_ports, self.destination_ports];
        if let Some((first, last)) = ranges.into_iter().flatten().find(|(a, b)| a > b) {
            return Err(RuleFault::Ports(first, last));
        }
        let is_v4 = |cidr: &IpCidr| matches!(cidr.address(), IpAddr::V4(_));
        if let (Some(source), Some(destination)) = (&self.source, &self.destination)
            && is_v4(source) != is_v4(destination)
        {
            return Err(RuleFault::Families);
        }
        if let Some(wire) = self.wire
            && !(1..=PORTS_MAX).contains(&usize::from(wire))
        {
            return Err(RuleFault::Wire(wire));
        }
        match self.action {
            RuleAction::Limit { per_second, burst } if per_second == 0 || burst == 0 => {
                Err(RuleFault::Limit)
            }
            _ => Ok(()),
        }
    }
}

impl RuleSet {
    /// True if the set allows everything, so that the stack need not judge packets.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.rules.is_empty() && self.default_action == RuleAction::Allow
    }

    /// Checks all rules.
    ///
    /// # Errors
    /// [`RuleError`] names the rule and its fault.
    pub fn check(&self) -> Result<(), RuleError> {
        if self.rules.len() > RULES_MAX {
            return Err(RuleError::TooMany(self.rules.len()));
        }
        if matches!(self.default_action, RuleAction::Limit { .. }) {
            return Err(RuleError::DefaultLimit);
        }
        for (at, rule) in self.rules.iter().enumerate() {
            let number = at + 1;
            rule.check()
                .map_err(|fault| RuleError::Rule { number, fault })?;
        }
        Ok(())
    }
}

/// The counts of one rule, since the rules were set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCounts {
    /// The rule's name, if it has one.
    pub name: Option<String>,
    /// Packets for which this was the first matching rule. Packets of known flows are not judged.
    pub packets: u64,
    /// Bytes of those packets, from the IP header on.
    pub bytes: u64,
    /// Packets among them that were denied, rejected, or above the limit.
    pub refused: u64,
}
