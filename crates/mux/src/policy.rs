//! The policy: which user may claim which port.
//!
//! Owns the rules. Root may claim any port. As in the kernel, other users may claim ports from
//! `ip_unprivileged_port_start` on; rules add ports. Called by the service for each claim.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// The kernel's setting of the lowest port that needs no privilege.
const UNPRIVILEGED_START: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

/// The credentials of the process at the other end of a connection, from the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The process id.
    pub pid: i32,
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
    /// The supplementary group ids.
    pub groups: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    User(u32),
    Group(u32),
}

/// An `--allow` rule: a user or group, and ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    subject: Subject,
    ports: Vec<RangeInclusive<u16>>,
}

impl FromStr for Rule {
    type Err = String;

    /// Parses `uid=1000:80,443`, `user=www-data:80`, `gid=33:8000-8099` or `group=web:80`.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("`{text}` is not like uid=1000:80,443 or group=web:80-89");
        let (subject, ports) = text.rsplit_once(':').ok_or_else(expected)?;
        let (kind, name) = subject.split_once('=').ok_or_else(expected)?;
        let subject = match kind {
            "uid" => Subject::User(name.parse().map_err(|_| expected())?),
            "gid" => Subject::Group(name.parse().map_err(|_| expected())?),
            "user" => Subject::User(id_of(name, "/etc/passwd")?),
            "group" => Subject::Group(id_of(name, "/etc/group")?),
            _ => return Err(expected()),
        };
        let ports = ports
            .split(',')
            .map(|range| parse_ports(range).ok_or_else(expected));
        let ports = ports.collect::<Result<_, _>>()?;
        Ok(Self { subject, ports })
    }
}

impl Rule {
    fn covers(&self, peer: &Peer, port: u16) -> bool {
        let is_subject = match self.subject {
            Subject::User(uid) => peer.uid == uid,
            Subject::Group(gid) => peer.gid == gid || peer.groups.contains(&gid),
        };
        is_subject && self.ports.iter().any(|range| range.contains(&port))
    }
}

/// Parses `80` or `8000-8099`; port 0 is invalid.
pub fn parse_ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first > 0 && first <= last).then_some(first..=last)
}

/// The id in the third field of the line whose first field is `name`.
fn id_of(name: &str, path: &str) -> Result<u32, String> {
    let lines = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let id = lines.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    });
    id.ok_or_else(|| format!("{path} has no `{name}`"))
}

/// The rules, and the lowest port that needs no privilege.
#[derive(Clone, Debug)]
pub struct Policy {
    unprivileged_start: u16,
    rules: Vec<Rule>,
}

impl Policy {
    /// The default policy with additional `rules`.
    pub fn new(rules: Vec<Rule>) -> Self {
        let setting = std::fs::read_to_string(UNPRIVILEGED_START).ok();
        let start = setting.and_then(|text| text.trim().parse().ok());
        Self {
            unprivileged_start: start.unwrap_or(1024),
            rules,
        }
    }

    /// True if `peer` may claim `port`.
    pub fn allows(&self, peer: &Peer, port: u16) -> bool {
        peer.uid == 0
            || port >= self.unprivileged_start
            || self.rules.iter().any(|rule| rule.covers(peer, port))
    }
}

#[cfg(test)]
mod tests;
