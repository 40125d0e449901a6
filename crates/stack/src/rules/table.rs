//! Finds the first rule that matches a packet, in a time that hardly depends on the number of
//! rules.
//!
//! ```text
//!   source address ──▶ interval ──▶ node of the longest prefix that any rule names
//!                                     │ parent: the next shorter prefix ... up to "any source"
//!                                     ▼
//!   our port ──▶ interval of the node's ports ──▶ rules, in order, up to one that always matches
//! ```
//!
//! Each distinct source prefix is a node with its own rules. Prefixes nest, so they divide the
//! address space into intervals, each with one innermost node. IPv4 addresses are mapped into IPv6.
//! A node with more than [`RULES_UNSORTED_MAX`] rules divides them by our port in the same way. The
//! remaining conditions are compared rule by rule: destination, protocol, source ports, wire.
//!
//! A look-up takes a binary search over the address intervals, then one over the port intervals of
//! each enclosing prefix. Rules that differ only in the remaining conditions are compared one by
//! one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Range;

use wire::{Addr, protocol};

use crate::limits::{RULE_LISTS_MAX, RULES_UNSORTED_MAX};
use crate::network::addresses::IpCidr;
use crate::rules::packet::RulePacket;
use crate::rules::{Protocol, Rule};

/// Key of a packet without ports, above all ports.
const NO_PORT: u32 = 65_536;
/// Size of a port block, as a power of two: the intervals of 256 ports are found without a search.
const BLOCK_BITS: u32 = 8;
/// Number of blocks over all keys, plus one for the end of the last.
const BLOCKS: u32 = (NO_PORT >> BLOCK_BITS) + 2;
/// Index of the node for rules without a source.
const ROOT: u32 = 0;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct RuleTable {
    /// The conditions of each rule, by its number.
    conditions: Vec<Conditions>,
    /// First addresses of the address intervals, ascending; `innermost` holds the node of each.
    starts: Vec<u128>,
    innermost: Vec<u32>,
    nodes: Vec<Node>,
    /// For each port block of a sorted node: the first interval that begins behind the block's
    /// first port.
    port_blocks: Vec<u32>,
    /// First ports of the port intervals of sorted nodes, ascending; `port_lists` holds the rules
    /// of each.
    port_starts: Vec<u32>,
    port_lists: Vec<Range<u32>>,
    /// Numbers of rules, ascending within a list.
    lists: Vec<u16>,
}

/// A source prefix that some rules name.
#[derive(Clone, Debug)]
struct Node {
    /// The node of the next shorter prefix; [`ROOT`] is its own parent.
    parent: u32,
    /// Number of the node's first rule; [`u16::MAX`]: it has no rule.
    first: u16,
    /// First and last port key that the node's rules may match.
    keys: (u32, u32),
    rules: NodeRules,
}

#[derive(Clone, Debug)]
enum NodeRules {
    /// All rules in one list, a range of `lists`.
    Unsorted(Range<u32>),
    /// Rules divided by port: index of the first of [`BLOCKS`] entries in `port_blocks`.
    ByPort(u32),
}

/// The conditions of a rule, in the form of a packet's fields.
#[derive(Clone, Copy, Debug)]
struct Conditions {
    /// Family of the source prefix. The prefix itself is that of the rule's node.
    source_family: Option<IsV4>,
    destination: Prefix,
    protocol: Option<Protocol>,
    source_ports: (u16, u16),
    destination_ports: (u16, u16),
    has_ports: bool,
    port: Option<u8>,
}

/// An address prefix of one family: `::/0` and `0.0.0.0/0` differ, and neither matches the other
/// family.
#[derive(Clone, Copy, Debug)]
struct Prefix {
    bits: u128,
    mask: u128,
    family: Option<IsV4>,
}

type IsV4 = bool;

impl Prefix {
    fn new(cidr: Option<&IpCidr>) -> Self {
        let Some(cidr) = cidr else {
            return Self {
                bits: 0,
                mask: 0,
                family: None,
            };
        };
        let mask = mask(len_of(cidr));
        Self {
            bits: Addr::from(cidr.address()).bits() & mask,
            mask,
            family: Some(cidr.address().is_ipv4()),
        }
    }

    #[inline]
    fn contains(&self, address: Addr) -> bool {
        address.bits() & self.mask == self.bits
            && self.family.is_none_or(|is_v4| is_v4 == address.is_v4())
    }
}

/// Length of a prefix in the common 128-bit space.
fn len_of(cidr: &IpCidr) -> u8 {
    match cidr.address() {
        IpAddr::V4(_) => 96 + cidr.prefix_len(),
        IpAddr::V6(_) => cidr.prefix_len(),
    }
}

fn mask(len: u8) -> u128 {
    u128::MAX
        .checked_shl(128 - u32::from(len.min(128)))
        .unwrap_or(0)
}

impl Conditions {
    fn new(rule: &Rule) -> Self {
        let all = (0, u16::MAX);
        Self {
            source_family: Prefix::new(rule.source.as_ref()).family,
            destination: Prefix::new(rule.destination.as_ref()),
            protocol: rule.protocol,
            source_ports: rule.source_ports.unwrap_or(all),
            destination_ports: rule.destination_ports.unwrap_or(all),
            has_ports: rule.source_ports.is_some() || rule.destination_ports.is_some(),
            port: rule.wire.map(|wire| wire.saturating_sub(1)),
        }
    }

    /// True if the rule's remaining conditions match. The packet's source lies within the rule's
    /// node.
    #[inline]
    fn matches(&self, packet: &RulePacket) -> bool {
        self.source_family
            .is_none_or(|is_v4| is_v4 == packet.source.is_v4())
            && self.destination.contains(packet.destination)
            && self.protocol.is_none_or(|asked| speaks(asked, packet))
            && self.port.is_none_or(|port| port == packet.port)
            && match packet.ports {
                Some((source, destination)) => {
                    let (first, last) = self.source_ports;
                    let (low, high) = self.destination_ports;
                    (first..=last).contains(&source) && (low..=high).contains(&destination)
                }
                None => !self.has_ports,
            }
    }
}

#[inline]
fn speaks(asked: Protocol, packet: &RulePacket) -> bool {
    match asked {
        Protocol::Tcp => packet.protocol == protocol::TCP,
        Protocol::Udp => packet.protocol == protocol::UDP,
        Protocol::Icmp if packet.source.is_v4() => packet.protocol == protocol::ICMP,
        Protocol::Icmp => packet.protocol == protocol::ICMPV6,
        Protocol::Number(number) => packet.protocol == number,
    }
}

/// The keys of our port that a rule matches.
fn port_keys(rule: &Rule) -> Range<u32> {
    match rule.destination_ports {
        Some((first, last)) => u32::from(first)..u32::from(last) + 1,
        None => 0..NO_PORT + 1,
    }
}

/// The first and last port key that any of these rules matches.
fn keys_of(rules: &[Rule], numbers: &[u16]) -> (u32, u32) {
    let keys = numbers
        .iter()
        .map(|number| port_keys(&rules[usize::from(*number)]));
    keys.fold((NO_PORT, 0), |(first, last), keys| {
        (first.min(keys.start), last.max(keys.end - 1))
    })
}

/// True if the rule matches every packet of its node and ports, so that later rules are never
/// reached.
fn is_final(rule: &Rule) -> bool {
    rule.destination.is_none()
        && rule.protocol.is_none()
        && rule.source_ports.is_none()
        && rule.wire.is_none()
        // A prefix that contains addresses of the other family matches only a part of its node.
        && rule.source.is_none_or(|cidr| cidr.address().is_ipv4() || cidr.prefix_len() > 96)
}

impl RuleTable {
    /// Makes the table from checked rules, at most [`RULES_MAX`](crate::limits::RULES_MAX).
    pub fn new(rules: &[Rule]) -> Self {
        let mut table = Self {
            conditions: rules.iter().map(Conditions::new).collect(),
            starts: Vec::new(),
            innermost: Vec::new(),
            nodes: Vec::new(),
            port_blocks: Vec::new(),
            port_starts: Vec::new(),
            port_lists: Vec::new(),
            lists: Vec::new(),
        };
        // Prefixes sorted by first address, an outer prefix before inner ones.
        let mut prefixes: BTreeMap<(u128, u8), Vec<u16>> = BTreeMap::new();
        prefixes.entry((0, 0)).or_default();
        for (number, rule) in rules.iter().enumerate() {
            let len = rule.source.as_ref().map_or(0, len_of);
            let source = Prefix::new(rule.source.as_ref());
            let numbers = prefixes.entry((source.bits, len)).or_default();
            numbers.push(number as u16);
        }
        table.divide_addresses(prefixes.keys());
        for (at, numbers) in prefixes.values().enumerate() {
            let of_node = table.node_rules(rules, numbers);
            let node = &mut table.nodes[at];
            node.first = numbers.first().copied().unwrap_or(u16::MAX);
            node.keys = keys_of(rules, numbers);
            node.rules = of_node;
        }
        table
    }

    /// Makes a node for each prefix, and the intervals between their ends.
    fn divide_addresses<'p>(&mut self, prefixes: impl Iterator<Item = &'p (u128, u8)>) {
        // The prefixes that contain the current address: last address and node of each.
        let mut around: Vec<(u128, u32)> = Vec::new();
        for (node, &(first, len)) in prefixes.enumerate() {
            self.leave(&mut around, Some(first));
            let parent = around.last().map_or(ROOT, |&(_, parent)| parent);
            self.nodes.push(Node {
                parent,
                first: u16::MAX,
                keys: (0, NO_PORT),
                rules: NodeRules::Unsorted(0..0),
            });
            self.begin_interval(first, node as u32);
            around.push((first | !mask(len), node as u32));
        }
        self.leave(&mut around, None);
    }

    /// Closes the prefixes that end before `next`, or all if there is no `next`.
    fn leave(&mut self, around: &mut Vec<(u128, u32)>, next: Option<u128>) {
        while let Some((last, _)) = around.pop_if(|(last, _)| next.is_none_or(|next| *last < next))
        {
            if let (Some(first), Some(&(_, outer))) = (last.checked_add(1), around.last()) {
                self.begin_interval(first, outer);
            }
        }
    }

    /// Begins an interval at `first` whose innermost node is `node`.
    fn begin_interval(&mut self, first: u128, node: u32) {
        if self.starts.last() == Some(&first) {
            self.innermost.pop();
        } else {
            self.starts.push(first);
        }
        self.innermost.push(node);
    }

    /// Stores the rules of a node, divided by port if there are many. If the lists would exceed
    /// [`RULE_LISTS_MAX`], the rules stay in one list.
    fn node_rules(&mut self, rules: &[Rule], numbers: &[u16]) -> NodeRules {
        if numbers.len() > RULES_UNSORTED_MAX {
            let before = (self.port_starts.len(), self.lists.len());
            if let Some(sorted) = self.divide_ports(rules, numbers) {
                return sorted;
            }
            self.port_starts.truncate(before.0);
            self.port_lists.truncate(before.0);
            self.lists.truncate(before.1);
        }
        let list = self.add_list(numbers.iter().copied());
        NodeRules::Unsorted(list)
    }

    fn add_list(&mut self, numbers: impl Iterator<Item = u16>) -> Range<u32> {
        let begin = self.lists.len() as u32;
        self.lists.extend(numbers);
        begin..self.lists.len() as u32
    }

    fn divide_ports(&mut self, rules: &[Rule], numbers: &[u16]) -> Option<NodeRules> {
        let begin = self.port_starts.len();
        let mut changes: BTreeMap<u32, Vec<u16>> = BTreeMap::new();
        for &number in numbers {
            let keys = port_keys(&rules[usize::from(number)]);
            changes.entry(keys.start).or_default().push(number);
            changes.entry(keys.end).or_default().push(number);
        }
        changes.entry(0).or_default();
        let mut active = BTreeSet::new();
        for (start, numbers) in changes {
            for number in numbers {
                // The first event of a rule begins its range, the second ends it.
                if !active.insert(number) {
                    active.remove(&number);
                }
            }
            let mut is_over = false;
            let asked = active.iter().copied().take_while(|&number| {
                !std::mem::replace(&mut is_over, is_final(&rules[usize::from(number)]))
            });
            let list = self.add_list(asked.take(RULE_LISTS_MAX));
            if self.lists.len() > RULE_LISTS_MAX {
                return None;
            }
            self.port_starts.push(start);
            self.port_lists.push(list);
        }
        let blocks = self.port_blocks.len() as u32;
        let starts = &self.port_starts[begin..];
        self.port_blocks.extend((0..BLOCKS).map(|block| {
            let first_port = block << BLOCK_BITS;
            let behind = starts.partition_point(|start| *start <= first_port);
            (begin + behind) as u32
        }));
        Some(NodeRules::ByPort(blocks))
    }

    /// The number of the first rule that matches.
    pub fn first_match(&self, packet: &RulePacket) -> Option<usize> {
        let source = packet.source.bits();
        let behind = self.starts.partition_point(|start| *start <= source);
        let mut at = *self.innermost.get(behind.checked_sub(1)?)?;
        let key = packet.ports.map_or(NO_PORT, |(_, ours)| u32::from(ours));
        let mut best = u16::MAX;
        loop {
            let node = self.nodes.get(at as usize)?;
            if node.first < best && node.keys.0 <= key && key <= node.keys.1 {
                best = self.first_of_node(node, (packet, key), best);
            }
            if at == ROOT {
                return (best != u16::MAX).then_some(usize::from(best));
            }
            at = node.parent;
        }
    }

    /// The lower of `best` and the node's first matching rule.
    fn first_of_node(&self, node: &Node, (packet, key): (&RulePacket, u32), best: u16) -> u16 {
        let list = match &node.rules {
            NodeRules::Unsorted(list) => list,
            NodeRules::ByPort(blocks) => match self.port_list(*blocks, key) {
                Some(list) => list,
                None => return best,
            },
        };
        let list = self.lists.get(list.start as usize..list.end as usize);
        for &number in list.unwrap_or_default() {
            if number >= best {
                break;
            }
            let conditions = self.conditions.get(usize::from(number));
            if conditions.is_some_and(|conditions| conditions.matches(packet)) {
                return number;
            }
        }
        best
    }

    /// The list of a sorted node for a port: that of the last interval that begins at the port or
    /// before it.
    #[inline]
    fn port_list(&self, blocks: u32, key: u32) -> Option<&Range<u32>> {
        let at = (blocks + (key >> BLOCK_BITS)) as usize;
        let &[first, last] = self.port_blocks.get(at..at + 2)? else {
            return None;
        };
        let within = self.port_starts.get(first as usize..last as usize)?;
        let behind = first as usize + within.partition_point(|start| *start <= key);
        self.port_lists.get(behind.checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests;
