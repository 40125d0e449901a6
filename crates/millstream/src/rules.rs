//! Packet rules, and the way to write them in TOML.
//!
//! ```toml
//! rule_default = "deny"
//!
//! [[rule]]
//! name = "office"
//! source = "192.0.2.0/24"
//! protocol = "tcp"
//! destination_port = "8000-8999"
//!
//! [[rule]]
//! destination_port = 80
//! action = "limit"
//! per_second = 1000
//! burst = 200
//! ```
//!
//! The first rule that matches decides; `rule_default` (`allow` unless set) decides about the rest.
//! Rules are asked about segments of no known connection and about packets that are not TCP.
//!
//! | key | value |
//! |---|---|
//! | `name` | a name for reports |
//! | `source`, `destination` | a prefix such as `10.0.0.0/8` or `fd00::/8`, or an address |
//! | `protocol` | `tcp`, `udp`, `icmp` (both families), or a number |
//! | `source_port`, `destination_port` | a port, or a range `"8000-8999"` |
//! | `wire` | the number of the wire, from 1 on |
//! | `action` | `allow` (the default), `deny`, `reject` or `limit` |
//! | `per_second`, `burst` | of `limit`: packets on average and at once; a burst of one second by default |

use std::fmt;
use std::ops::Range;
use std::path::Path;

pub use stack::rules::counts::RuleStep;
pub use stack::rules::{Protocol, Rule, RuleAction, RuleCounts, RuleError, RuleFault, RuleSet};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use stack::limits::RULES_MAX;

/// The error of a rule file, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFileError {
    /// The line, from 1 on; 0: the file as a whole.
    pub line: usize,
    /// The cause, in one line.
    pub why: String,
}

impl RuleFileError {
    /// The error with the file's name: `FILE:LINE: CAUSE`.
    ///
    /// ```
    /// let error = millstream::rules::parse("rule_default = 3").unwrap_err();
    /// let line = error.in_file("rules.toml".as_ref());
    /// assert!(line.starts_with("rules.toml:1: rule_default: "));
    /// ```
    #[must_use]
    pub fn in_file(&self, file: &Path) -> String {
        match self.line {
            0 => format!("{}: {}", file.display(), self.why),
            line => format!("{}:{line}: {}", file.display(), self.why),
        }
    }
}

impl fmt::Display for RuleFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.why),
            line => write!(f, "line {line}: {}", self.why),
        }
    }
}

impl std::error::Error for RuleFileError {}

/// Reads a file of rules: `rule_default` and `[[rule]]` and nothing else.
///
/// # Errors
/// The line, and the cause.
///
/// ```
/// use millstream::rules::{RuleAction, parse};
/// let set = parse("rule_default = 'deny'\n[[rule]]\nsource = '10.0.0.0/8'\n").unwrap();
/// assert_eq!(set.default_action, RuleAction::Deny);
/// assert_eq!(set.rules[0].action, RuleAction::Allow);
/// let error = parse("[[rule]]\nsuorce = '10.0.0.0/8'\n").unwrap_err();
/// assert_eq!(error.to_string(), "line 2: suorce: there is no such key of a rule");
/// ```
pub fn parse(text: &str) -> Result<RuleSet, RuleFileError> {
    read(text, false)
}

/// Reads the rules of a file that also holds other settings. Ignores the other keys.
///
/// # Errors
/// The line, and the cause.
///
/// ```
/// let set = millstream::rules::parse_among("num_cores = 2\n[[rule]]\naction = 'deny'\n").unwrap();
/// assert_eq!(set.rules.len(), 1);
/// ```
pub fn parse_among(text: &str) -> Result<RuleSet, RuleFileError> {
    read(text, true)
}

/// Maps byte offsets in a text to lines.
#[derive(Clone, Copy)]
struct Lines<'t>(&'t str);

impl Lines<'_> {
    fn fail(self, span: Range<usize>, why: impl Into<String>) -> RuleFileError {
        let before = self.0.get(..span.start.min(self.0.len()));
        RuleFileError {
            line: 1 + before.unwrap_or_default().matches('\n').count(),
            why: why.into(),
        }
    }
}

fn read(text: &str, among_others: bool) -> Result<RuleSet, RuleFileError> {
    let lines = Lines(text);
    let table = DeTable::parse(text)
        .map_err(|error| lines.fail(error.span().unwrap_or(0..0), error.message()))?;
    let mut set = RuleSet::default();
    for (key, value) in table.get_ref() {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("rule_default", DeValue::String(word)) => {
                set.default_action = default_action(word)
                    .ok_or_else(|| lines.fail(value.span(), DEFAULTS.to_owned()))?;
            }
            ("rule_default", _) => return Err(lines.fail(key.span(), DEFAULTS.to_owned())),
            ("rule", DeValue::Array(rules)) => set.rules = all_rules(lines, rules)?,
            ("rule", _) => return Err(lines.fail(key.span(), "rule: write [[rule]]")),
            (_, _) if among_others => {}
            (other, _) => {
                let why =
                    format!("{other}: there is no such key; rules have rule_default, [[rule]]");
                return Err(lines.fail(key.span(), why));
            }
        }
    }
    Ok(set)
}

const DEFAULTS: &str = "rule_default: expected \"allow\", \"deny\" or \"reject\"";

fn default_action(word: &str) -> Option<RuleAction> {
    match word {
        "allow" => Some(RuleAction::Allow),
        "deny" => Some(RuleAction::Deny),
        "reject" => Some(RuleAction::Reject),
        _ => None,
    }
}

fn all_rules(lines: Lines<'_>, rules: &[Spanned<DeValue<'_>>]) -> Result<Vec<Rule>, RuleFileError> {
    if let Some(beyond) = rules.get(RULES_MAX) {
        let error = RuleError::TooMany(rules.len());
        return Err(lines.fail(beyond.span(), error.to_string()));
    }
    let one = |rule: &Spanned<DeValue<'_>>| match rule.get_ref() {
        DeValue::Table(table) => one_rule(lines, table, rule.span()),
        _ => Err(lines.fail(rule.span(), "rule: write [[rule]]")),
    };
    rules.iter().map(one).collect()
}

/// Keys of a rule that together form its action.
#[derive(Default)]
struct ActionWords {
    action: Option<String>,
    per_second: Option<u32>,
    burst: Option<u32>,
}

fn one_rule(
    lines: Lines<'_>,
    table: &DeTable<'_>,
    span: Range<usize>,
) -> Result<Rule, RuleFileError> {
    let mut rule = Rule::default();
    let mut words = ActionWords::default();
    for (key, value) in table {
        set_key(&mut rule, &mut words, key.get_ref(), value.get_ref())
            .map_err(|why| lines.fail(key.span(), format!("{}: {why}", key.get_ref())))?;
    }
    rule.action = words
        .action()
        .map_err(|why| lines.fail(span.clone(), why))?;
    rule.check()
        .map_err(|fault| lines.fail(span, fault.to_string()))?;
    Ok(rule)
}

fn set_key(
    rule: &mut Rule,
    words: &mut ActionWords,
    key: &str,
    value: &DeValue<'_>,
) -> Result<(), String> {
    match key {
        "name" => rule.name = Some(text(value)?),
        "source" => rule.source = Some(parsed(value)?),
        "destination" => rule.destination = Some(parsed(value)?),
        "protocol" => rule.protocol = Some(protocol(value)?),
        "source_port" => rule.source_ports = Some(ports(value)?),
        "destination_port" => rule.destination_ports = Some(ports(value)?),
        "wire" => rule.wire = Some(number(value)?),
        "action" => words.action = Some(text(value)?),
        "per_second" => words.per_second = Some(number(value)?),
        "burst" => words.burst = Some(number(value)?),
        _ => return Err("there is no such key of a rule".to_owned()),
    }
    Ok(())
}

impl ActionWords {
    fn action(&self) -> Result<RuleAction, String> {
        let word = self.action.as_deref().unwrap_or("allow");
        if word == "limit" {
            let per_second = self
                .per_second
                .ok_or("limit: per_second is missing: how many packets?")?;
            return Ok(RuleAction::Limit {
                per_second,
                burst: self.burst.unwrap_or(per_second),
            });
        }
        if self.per_second.is_some() || self.burst.is_some() {
            return Err(format!(
                "{word}: per_second and burst are of action = \"limit\""
            ));
        }
        default_action(word)
            .ok_or_else(|| format!("action: `{word}` is none of allow, deny, reject, limit"))
    }
}

fn text(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        _ => Err("expected a text".to_owned()),
    }
}

fn number<N: TryFrom<i64>>(value: &DeValue<'_>) -> Result<N, String> {
    let DeValue::Integer(number) = value else {
        return Err("expected a number".to_owned());
    };
    let read = i64::from_str_radix(number.as_str(), number.radix());
    let fits = read.ok().and_then(|number| N::try_from(number).ok());
    fits.ok_or_else(|| format!("{number}: out of range"))
}

fn parsed<T: std::str::FromStr<Err: fmt::Display>>(value: &DeValue<'_>) -> Result<T, String> {
    let text = text(value)?;
    text.parse().map_err(|error| format!("`{text}`: {error}"))
}

fn protocol(value: &DeValue<'_>) -> Result<Protocol, String> {
    if let DeValue::Integer(_) = value {
        return number(value).map(Protocol::Number);
    }
    match text(value)?.as_str() {
        "tcp" => Ok(Protocol::Tcp),
        "udp" => Ok(Protocol::Udp),
        "icmp" => Ok(Protocol::Icmp),
        other => Err(format!("`{other}` is none of tcp, udp, icmp and no number")),
    }
}

fn ports(value: &DeValue<'_>) -> Result<(u16, u16), String> {
    if let DeValue::Integer(_) = value {
        let port = number(value)?;
        return Ok((port, port));
    }
    let text = text(value)?;
    let range = text.split_once('-').unwrap_or((&text, &text));
    let ends = (range.0.trim().parse(), range.1.trim().parse());
    match ends {
        (Ok(first), Ok(last)) => Ok((first, last)),
        _ => Err(format!("`{text}` is no port and no range FIRST-LAST")),
    }
}

#[cfg(test)]
mod tests;
