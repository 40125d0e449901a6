//! Losses in a namespace, as the kernel counts them: frames that its device dropped, and segments
//! that its stack dropped or sent again.

use std::collections::BTreeMap;
use std::process::Command;

use serde::Deserialize;

use super::namespace::DEVICE;

/// Files in which the kernel counts its stack's events, in lines of names and lines of numbers.
const STACK_FILES: [&str; 2] = ["/proc/net/snmp", "/proc/net/netstat"];

/// Events of the kernel's stack that drop a segment or a connection.
const DROPS: [&str; 7] = [
    "Tcp.InErrs",
    "TcpExt.ListenDrops",
    "TcpExt.PruneCalled",
    "TcpExt.RcvPruned",
    "TcpExt.TCPBacklogDrop",
    "TcpExt.TCPRcvQDrop",
    "TcpExt.TCPReqQFullDrop",
];

/// Events that follow from a loss.
const REPAIRS: [&str; 3] = [
    "Tcp.RetransSegs",
    "TcpExt.TCPSynRetrans",
    "TcpExt.TCPTimeouts",
];

/// The counters of a namespace at some moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drops {
    /// Frames that the device dropped or counted as errors, in both directions.
    pub device: u64,
    /// Counters of the kernel's stack, as `Table.Name`.
    pub stack: BTreeMap<String, u64>,
}

impl Drops {
    /// The drops of a namespace.
    pub fn of(namespace: &str) -> Result<Self, String> {
        let link = ["-n", namespace, "-s", "-j", "link", "show", "dev", DEVICE];
        let mut files = vec!["netns", "exec", namespace, "cat"];
        files.extend(STACK_FILES);
        Ok(Self {
            device: device_drops(&said(&link)?)?,
            stack: stack_counters(&said(&files)?),
        })
    }

    /// The drops since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let then = |name: &String| before.stack.get(name).copied().unwrap_or(0);
        let stack = self.stack.iter();
        let stack = stack.map(|(name, count)| (name.clone(), count.saturating_sub(then(name))));
        Self {
            device: self.device.saturating_sub(before.device),
            stack: stack.collect(),
        }
    }

    /// Segments and connections that the kernel's stack dropped.
    pub fn by_stack(&self) -> u64 {
        DROPS.iter().filter_map(|name| self.stack.get(*name)).sum()
    }

    /// Counters that tell of losses and are not zero.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = DROPS.into_iter().chain(REPAIRS);
        names.filter_map(|name| {
            let count = *self.stack.get(name)?;
            (count > 0).then_some((name, count))
        })
    }
}

fn said(words: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(words).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let cause = String::from_utf8_lossy(&output.stderr);
            Err(format!("ip {}: {}", words.join(" "), cause.trim()))
        }
    }
}

#[derive(Deserialize)]
struct Link {
    stats64: Stats,
}

#[derive(Deserialize)]
struct Stats {
    rx: Direction,
    tx: Direction,
}

#[derive(Deserialize)]
struct Direction {
    errors: u64,
    dropped: u64,
}

/// Drops and errors of all devices, from the output of `ip -s -j link show`.
fn device_drops(text: &str) -> Result<u64, String> {
    let links: Vec<Link> =
        serde_json::from_str(text).map_err(|error| format!("ip -s -j link: {error}"))?;
    let of = |direction: &Direction| direction.errors + direction.dropped;
    let links = links.iter().map(|link| &link.stats64);
    Ok(links.map(|stats| of(&stats.rx) + of(&stats.tx)).sum())
}

/// Pairs of lines: `Tcp: Name Name` and `Tcp: 1 2`. Values below zero are no counts.
fn stack_counters(text: &str) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some((table, names)), Some((_, values))) =
            (names.split_once(':'), values.split_once(':'))
        else {
            continue;
        };
        let pairs = names.split_whitespace().zip(values.split_whitespace());
        let counts = pairs.filter_map(|(name, value)| {
            let value = value.parse().ok()?;
            Some((format!("{table}.{name}"), value))
        });
        counters.extend(counts);
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: &str = "Tcp: RtoMin MaxConn RetransSegs InErrs\nTcp: 200 -1 5 1\n\
                          TcpExt: ListenDrops TCPTimeouts\nTcpExt: 7 3\n";

    #[test]
    fn counters_are_read_by_table_and_name() {
        let stack = stack_counters(TABLES);
        let after = Drops { device: 4, stack };
        assert_eq!(after.stack.get("Tcp.MaxConn"), None);
        assert_eq!(after.by_stack(), 8);
        let mut before = after.clone();
        before.device = 1;
        before.stack.insert("TcpExt.ListenDrops".to_owned(), 7);
        before.stack.insert("Tcp.RetransSegs".to_owned(), 2);
        let since = after.since(&before);
        assert_eq!((since.device, since.by_stack()), (3, 0));
        let rows: Vec<_> = since.rows().collect();
        assert_eq!(rows, [("Tcp.RetransSegs", 3)]);
    }

    #[test]
    fn device_drops_are_of_both_directions() {
        let link = r#"[{"ifname":"own","stats64":{
            "rx":{"bytes":1,"packets":9,"errors":1,"dropped":2,"over_errors":0},
            "tx":{"bytes":1,"packets":9,"errors":4,"dropped":8,"carrier_errors":0}}}]"#;
        assert_eq!(device_drops(link), Ok(15));
        assert!(device_drops("[{}]").is_err());
    }
}
