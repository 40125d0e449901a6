//! Packet rules: which peers may begin something with this stack, in the words of a configuration.
//!
//! Rules decide about segments of no known flow, and about packets that are not TCP. The first rule
//! that matches decides; [`RuleSet::default_action`] decides about the rest. Packets of a flow that
//! the stack knows are not asked about again, so an established connection costs nothing
//! (decision 0124).
//!
//! `judge` holds the rules of a running stack with their counters, `table` finds the first rule
//! that matches, and `packet` reads the fields that rules look at.

pub mod counts;
pub(crate) mod judge;
pub(crate) mod packet;
pub(crate) mod table;
mod token_bucket;

use std::net::IpAddr;

pub use self::judge::Judge;
use crate::limits::{PORTS_MAX, RULES_MAX};
use crate::network::addresses::IpCidr;

/// The protocol of the packets that a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP
    Tcp,
    /// UDP, which this stack refuses in any case: a rule decides whether the sender hears of it.
    Udp,
    /// ICMP over IPv4 and ICMPv6 over IPv6. Neighbour discovery and ICMP errors, which belong to
    /// connections, pass without being asked about.
    Icmp,
    /// Another protocol, by its IP number.
    Number(u8),
}

/// The decision of a rule about a packet that it matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleAction {
    /// The packet goes on as if there were no rules.
    #[default]
    Allow,
    /// The packet is dropped without an answer (`rx_drop_rule`).
    Deny,
    /// The packet is dropped, and its sender told (`rx_drop_rule_reject`): TCP by a reset, as from
    /// a port where nobody listens; UDP and other protocols by an ICMP error, "communication
    /// administratively prohibited"; ICMP not at all.
    Reject,
    /// SYNs, and packets that are not TCP, pass at most at this rate. Those above it are dropped
    /// without an answer (`rx_drop_rule_limit`). Other segments pass and are not counted against
    /// the rate, so that the last ACK of a handshake by cookie finds its way.
    Limit {
        /// Packets per second on average, at least 1.
        per_second: u32,
        /// Packets that may come at once, at least 1.
        burst: u32,
    },
}

/// One rule. It matches a packet that has all of what the rule names; a field that is `None`
/// matches everything.
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
    /// A name for reports.
    pub name: Option<String>,
    /// The prefix of the sender's address. A prefix of one family matches no packet of the other.
    pub source: Option<IpCidr>,
    /// The prefix of the address of ours.
    pub destination: Option<IpCidr>,
    /// The protocol. A rule that names ports and no protocol is for TCP and UDP.
    pub protocol: Option<Protocol>,
    /// The sender's ports, first and last.
    pub source_ports: Option<(u16, u16)>,
    /// Our ports, first and last.
    pub destination_ports: Option<(u16, u16)>,
    /// The wire by which the packet came, by its number from 1 on.
    pub wire: Option<u8>,
    /// The decision.
    pub action: RuleAction,
}

/// A list of rules in the order in which they are asked.
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
    /// The rules, [`RULES_MAX`] at most.
    pub rules: Vec<Rule>,
    /// The decision about packets that no rule matches. Not a limit.
    pub default_action: RuleAction,
}

/// A rule that cannot be obeyed, and its fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// One of the rules; `number` counts from 1.
    #[error("rule {number}: {fault}")]
    Rule {
        /// The rule's number.
        number: usize,
        /// The fault.
        fault: RuleFault,
    },
    /// More rules than [`RULES_MAX`].
    #[error("{0} rules: at most {RULES_MAX} are possible")]
    TooMany(usize),
    /// The default is a limit.
    #[error("the default action cannot be a limit: a last rule without conditions can")]
    DefaultLimit,
}

/// The fault of a single rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// Ports were named together with a protocol that has none.
    #[error("ports need the protocol tcp or udp")]
    PortsWithout,
    /// The first port of a range is above the last.
    #[error("ports {0}-{1}: the first is above the last")]
    Ports(u16, u16),
    /// Source and destination are of different families, so nothing could match.
    #[error("source and destination are of different families")]
    Families,
    /// A wire that no stack can have.
    #[error("wire {0}: wires have numbers from 1 to {PORTS_MAX}")]
    Wire(u8),
    /// A limit of nothing: `deny` is meant.
    #[error("a limit needs at least 1 per second and a burst of at least 1")]
    Limit,
}

impl Rule {
    /// Checks that the rule can match something and be obeyed.
    ///
    /// # Errors
    /// The fault.
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
    /// True if the set allows everything, and the stack need not ask it.
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
    /// Packets that it matched first. Those of a known flow are not asked about.
    pub packets: u64,
    /// Bytes of those packets, from the IP header on.
    pub bytes: u64,
    /// Packets among them that were not let in: denied, rejected, or above the limit.
    pub refused: u64,
}
