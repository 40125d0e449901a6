//! The filter language of iproute2's `ss`: states and an expression over addresses and ports.
//!
//! ```text
//! filter     := { state NAME | exclude NAME } [expression]
//! expression := term { (or | '|' | '||') term }
//! term       := factor { [and | '&' | '&&'] factor }
//! factor     := (not | '!') factor | '(' expression ')' | condition
//! condition  := (src | dst) [=|!=] HOST | (sport | dport) COMPARISON PORT | autobound
//! HOST       := [inet:|inet6:] (any | '*' | ADDRESS[/BITS] | NAME) [:PORT] | :PORT
//! ```
//!
//! Owns the syntax tree and its meaning; `parse` reads it.

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use millstream::survey::{FlowWord, FlowWords};

use super::states;

pub use self::parse::parse;

/// The wanted rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Bits of the named states; `None`: no state was named.
    pub states: Option<u16>,
    /// The condition on addresses and ports.
    pub expression: Expression,
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The local end: `src`, `sport`.
    Local,
    /// The peer's end: `dst`, `dport`.
    Remote,
}

/// The comparison of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A host with the length of a prefix, a port, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    pub address: Option<(IpAddr, u8)>,
    pub port: Option<u16>,
}

/// An expression of the language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// No condition.
    True,
    Host(Side, Host),
    Port(Side, Comparison, u16),
    /// The local port was chosen by the stack.
    AutoBound,
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
}

/// The range of ports that the kernel, and the stack, choose by themselves.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;

impl Filter {
    /// True if the flow is wanted; `states` are those that the options or the filter name.
    pub fn takes(&self, states: u16, flow: &FlowWords) -> bool {
        states & states::bit(flow.at(FlowWord::State)) != 0
            && self.expression.matches(flow.local(), flow.remote())
    }
}

impl Expression {
    /// True if the row with these ends is wanted.
    pub fn matches(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let end = |side: Side| match side {
            Side::Local => local,
            Side::Remote => remote,
        };
        match self {
            Self::True => true,
            Self::Host(side, host) => host.matches(end(*side)),
            Self::Port(side, comparison, port) => comparison.holds(end(*side).port(), *port),
            Self::AutoBound => EPHEMERAL.contains(&local.port()),
            Self::Not(inner) => !inner.matches(local, remote),
            Self::And(a, b) => a.matches(local, remote) && b.matches(local, remote),
            Self::Or(a, b) => a.matches(local, remote) || b.matches(local, remote),
        }
    }
}

impl Host {
    fn matches(&self, end: SocketAddr) -> bool {
        let is_in_subnet = self
            .address
            .is_none_or(|(address, bits)| has_prefix(end.ip(), address, bits));
        is_in_subnet && self.port.is_none_or(|port| port == end.port())
    }
}

/// True if the prefix contains the address. An IPv4 prefix also contains IPv4-mapped addresses, as
/// in iproute2.
fn has_prefix(address: IpAddr, prefix: IpAddr, bits: u8) -> bool {
    let (held, wanted, len) = match (address.to_canonical(), prefix) {
        (IpAddr::V4(held), IpAddr::V4(wanted)) => {
            (u128::from(held.to_bits()), u128::from(wanted.to_bits()), 32)
        }
        (IpAddr::V6(held), IpAddr::V6(wanted)) => (held.to_bits(), wanted.to_bits(), 128),
        _ => return false,
    };
    let loose = len - u32::from(bits).min(len);
    (held ^ wanted).checked_shr(loose).unwrap_or(0) == 0
}

impl Comparison {
    fn holds(self, held: u16, wanted: u16) -> bool {
        match self {
            Self::Equal => held == wanted,
            Self::NotEqual => held != wanted,
            Self::Less => held < wanted,
            Self::LessOrEqual => held <= wanted,
            Self::Greater => held > wanted,
            Self::GreaterOrEqual => held >= wanted,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some((IpAddr::V4(v4), bits)) => write!(f, "{v4}/{bits}")?,
            Some((IpAddr::V6(v6), bits)) => write!(f, "[{v6}]/{bits}")?,
            None => write!(f, "*")?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::True => Ok(()),
            Self::Host(Side::Local, host) => write!(f, "src {host}"),
            Self::Host(Side::Remote, host) => write!(f, "dst {host}"),
            Self::Port(side, comparison, port) => {
                let name = match side {
                    Side::Local => "sport",
                    Side::Remote => "dport",
                };
                write!(f, "{name} {} :{port}", comparison.text())
            }
            Self::AutoBound => write!(f, "autobound"),
            Self::Not(inner) => write!(f, "not ( {inner} )"),
            Self::And(a, b) => write!(f, "( {a} ) and ( {b} )"),
            Self::Or(a, b) => write!(f, "( {a} ) or ( {b} )"),
        }
    }
}
