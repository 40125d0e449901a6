//! The parser of filters: from words to a syntax tree.

use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};

use super::{Comparison, Expression, Filter, Host, Side};
use crate::limits::FILTER_DEPTH_MAX;
use crate::ss::{services, states};

/// Parses the words of a command line. The error is one line.
pub fn parse(words: &[String]) -> Result<Filter, String> {
    let text = words.join(" ");
    let mut parser = Parser {
        tokens: tokens(&text),
        at: 0,
        depth: 0,
    };
    let states = parser.states()?;
    let expression = match parser.peek() {
        None => Expression::True,
        Some(_) => parser.expression()?,
    };
    match parser.peek() {
        None => Ok(Filter { states, expression }),
        Some(token) => Err(format!("filter: `{token}` is not expected here")),
    }
}

/// Splits a text into words, parentheses and operators. Words may contain colons, dots and slashes.
fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '(' | ')' => 1,
            '&' | '|' | '=' | '!' | '<' | '>' => {
                let two = rest.get(..2).unwrap_or("");
                match two {
                    "&&" | "||" | "==" | "!=" | "<=" | ">=" => 2,
                    _ => 1,
                }
            }
            _ => {
                let is_end = |c: char| c.is_whitespace() || "()&|=!<>".contains(c);
                rest.find(is_end).unwrap_or(rest.len())
            }
        };
        let (token, behind) = rest.split_at(length);
        found.push(token);
        rest = behind.trim_start();
    }
    found
}

struct Parser<'a> {
    tokens: Vec<&'a str>,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'a str> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    /// Takes the next token if it is one of `wanted`; returns whether it was.
    fn take(&mut self, wanted: &[&str]) -> bool {
        let found = self.peek().is_some_and(|token| wanted.contains(&token));
        self.at += usize::from(found);
        found
    }

    /// Reads states in their order, as iproute2 does: an exclusion takes a state off those that the
    /// words before it name, off all states if it comes first.
    fn states(&mut self) -> Result<Option<u16>, String> {
        let mut wanted: Option<u16> = None;
        loop {
            let is_exclusion = match self.peek() {
                Some("state") => false,
                Some("exclude" | "excl") => true,
                _ => return Ok(wanted),
            };
            self.at += 1;
            let name = self.next().ok_or("filter: a state is missing")?;
            let bits = states::named(name).ok_or_else(|| format!("filter: no state `{name}`"))?;
            wanted = Some(match is_exclusion {
                true => wanted.unwrap_or(states::ALL) & !bits,
                false => wanted.unwrap_or(0) | bits,
            });
        }
    }

    fn expression(&mut self) -> Result<Expression, String> {
        let mut left = self.term()?;
        while self.take(&["or", "|", "||"]) {
            let right = self.term()?;
            left = Expression::Or(Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn term(&mut self) -> Result<Expression, String> {
        let mut left = self.factor()?;
        loop {
            let is_and = self.take(&["and", "&", "&&"]);
            let ends = matches!(self.peek(), None | Some(")" | "or" | "|" | "||"));
            if ends && !is_and {
                return Ok(left);
            }
            let right = self.factor()?;
            left = Expression::And(Box::new(left), Box::new(right));
        }
    }

    fn factor(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > FILTER_DEPTH_MAX {
            return Err(format!("filter: nested deeper than {FILTER_DEPTH_MAX}"));
        }
        let found = self.nested();
        self.depth -= 1;
        found
    }

    fn nested(&mut self) -> Result<Expression, String> {
        let Some(token) = self.next() else {
            return Err("filter: a condition is missing at the end".to_owned());
        };
        match token {
            "(" => {
                let inner = self.expression()?;
                match self.take(&[")"]) {
                    true => Ok(inner),
                    false => Err("filter: `)` is missing".to_owned()),
                }
            }
            "not" | "!" => Ok(Expression::Not(Box::new(self.factor()?))),
            "autobound" => Ok(Expression::AutoBound),
            "src" => self.host(Side::Local),
            "dst" => self.host(Side::Remote),
            "sport" => self.port(Side::Local),
            "dport" => self.port(Side::Remote),
            other => Err(format!(
                "filter: `{other}` is none of src, dst, sport, dport, autobound, not, ("
            )),
        }
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let comparison = match self.peek()? {
            "=" | "==" | "eq" => Comparison::Equal,
            "!=" | "ne" | "neq" => Comparison::NotEqual,
            "<" | "lt" => Comparison::Less,
            "<=" | "le" | "leq" => Comparison::LessOrEqual,
            ">" | "gt" => Comparison::Greater,
            ">=" | "ge" | "geq" => Comparison::GreaterOrEqual,
            _ => return None,
        };
        self.at += 1;
        Some(comparison)
    }

    fn host(&mut self, side: Side) -> Result<Expression, String> {
        let comparison = self.comparison().unwrap_or(Comparison::Equal);
        let text = self.next().ok_or("filter: an address is missing")?;
        // A name may have several addresses.
        let hosts = hosts(text)?.into_iter();
        let one_of = hosts.map(|host| Expression::Host(side, host));
        let condition = one_of.reduce(|a, b| Expression::Or(Box::new(a), Box::new(b)));
        let condition = condition.ok_or_else(|| format!("filter: `{text}` has no address"))?;
        match comparison {
            Comparison::Equal => Ok(condition),
            Comparison::NotEqual => Ok(Expression::Not(Box::new(condition))),
            _ => Err(format!(
                "filter: {text}: addresses are compared by = and !="
            )),
        }
    }

    fn port(&mut self, side: Side) -> Result<Expression, String> {
        let comparison = self.comparison().unwrap_or(Comparison::Equal);
        let text = self.next().ok_or("filter: a port is missing")?;
        let name = match text.split_once(':') {
            None => text,
            Some(("" | "*", name)) => name,
            // Taking the port alone would match what the caller has excluded.
            Some(_) => return Err(format!("filter: `{text}` is no port")),
        };
        let port = port(name)?;
        Ok(Expression::Port(side, comparison, port))
    }
}

fn port(text: &str) -> Result<u16, String> {
    let number = text.parse().ok();
    number
        .or_else(|| services::port_of(text))
        .ok_or_else(|| format!("filter: `{text}` is no port"))
}

/// `10.0.0.0/8:80`, `[fd00::1]/64:443`, `fd00::1`, `localhost:80`, `:http`, `*:80`, `any`. A name
/// is looked up and stands for all of its addresses.
fn hosts(text: &str) -> Result<Vec<Host>, String> {
    let families = [("inet:", Some(true)), ("inet6:", Some(false))];
    let family = families
        .iter()
        .find_map(|(family, is_v4)| Some((text.strip_prefix(family)?, *is_v4)));
    let (text, is_v4) = family.unwrap_or((text, None));
    let (host, behind) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, behind)) => (host, behind),
        // More than one colon without brackets is an IPv6 address without a port.
        None if text.matches(':').count() > 1 => match text.split_once('/') {
            Some((host, _)) => text.split_at(host.len()),
            None => (text, ""),
        },
        None => text.split_at(text.find(['/', ':']).unwrap_or(text.len())),
    };
    let (bits, wanted) = match behind.strip_prefix('/') {
        Some(rest) => match rest.split_once(':') {
            Some((bits, port)) => (Some(bits), Some(port)),
            None => (Some(rest), None),
        },
        None => (None, behind.strip_prefix(':')),
    };
    let port = match wanted {
        None | Some("*") => None,
        Some(wanted) => Some(port(wanted)?),
    };
    if host.is_empty() && wanted.is_none() {
        return Err(format!("filter: `{text}` names neither address nor port"));
    }
    let mut addresses = match host {
        "" | "*" | "any" | "all" => {
            return Ok(vec![Host {
                address: None,
                port,
            }]);
        }
        host if bits.is_none() && is_name(host) => look_up(host)?,
        host => vec![prefix(host, bits)?],
    };
    addresses.retain(|(ip, _)| is_v4.is_none_or(|is_v4| ip.is_ipv4() == is_v4));
    let host = |address| Host {
        address: Some(address),
        port,
    };
    Ok(addresses.into_iter().map(host).collect())
}

/// True if the word is a host's name, not an address.
fn is_name(host: &str) -> bool {
    let has_letter = host.contains(|one: char| one.is_ascii_alphabetic());
    has_letter && !host.contains(':')
}

/// All addresses of a name, as whole prefixes.
fn look_up(name: &str) -> Result<Vec<(IpAddr, u8)>, String> {
    let found = (name, 0)
        .to_socket_addrs()
        .map_err(|error| format!("filter: {name}: {error}"))?;
    let mut all: Vec<(IpAddr, u8)> = found
        .map(|end| (end.ip(), if end.is_ipv4() { 32 } else { 128 }))
        .collect();
    all.dedup();
    Ok(all)
}

/// An IPv4 address that leaves out its last bytes, as in `10/8`: they are zero.
fn shortened(host: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    for (at, part) in host.split('.').enumerate() {
        *octets.get_mut(at)? = part.parse().ok()?;
    }
    Some(octets.into())
}

/// The length of a prefix that is written as a mask: `255.255.0.0`.
fn mask_bits(mask: &str) -> Option<u8> {
    let mask = mask.parse::<Ipv4Addr>().ok()?.to_bits();
    let bits = mask.leading_ones();
    // Ones behind a zero are no mask.
    (bits + mask.trailing_zeros() >= 32).then_some(bits as u8)
}

fn prefix(host: &str, bits: Option<&str>) -> Result<(IpAddr, u8), String> {
    let address: IpAddr = (host.parse().ok())
        .or_else(|| shortened(host).map(IpAddr::V4))
        .ok_or_else(|| format!("filter: `{host}` is no address"))?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        None => Some(most),
        Some(bits) if address.is_ipv4() && bits.contains('.') => mask_bits(bits),
        Some(bits) => bits.parse().ok().filter(|bits| *bits <= most),
    };
    match bits {
        Some(bits) => Ok((address, bits)),
        None => Err(format!("filter: {host}: a prefix has 0 to {most} bits")),
    }
}
