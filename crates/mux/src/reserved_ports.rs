//! `ip_local_reserved_ports`: ports that the kernel does not choose for unbound sockets.
//!
//! Owns the entry for the range of leases, from [`ReservedPorts::add`] until its removal. An
//! administrator's entries stay. Called by the service at its start and its end.

use std::ops::RangeInclusive;

use crate::policy::parse_ports;

/// The kernel's setting in the caller's network namespace.
const SETTING: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

/// The entry of one service.
#[derive(Debug)]
pub struct ReservedPorts {
    /// Ports that this service added.
    added: Vec<RangeInclusive<u16>>,
}

impl ReservedPorts {
    /// Adds a range to the setting, in place of the ports that the service before this one added
    /// and did not remove.
    ///
    /// # Errors
    /// One line if the setting cannot be read or written.
    pub fn add(range: &RangeInclusive<u16>, left: &[RangeInclusive<u16>]) -> Result<Self, String> {
        let (ports, added) = read()?.with(range, left);
        write(&ports)?;
        Ok(Self { added })
    }

    /// The ports that this service added.
    pub fn added(&self) -> &[RangeInclusive<u16>] {
        &self.added
    }

    /// Removes the ports that were added.
    pub fn remove(self) {
        let Ok(mut ports) = read() else {
            return;
        };
        for range in &self.added {
            ports.set(range, false);
        }
        // An error is ignored: it leaves the kernel a few ports short.
        let _ = write(&ports);
    }
}

/// A set of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ports(Vec<bool>);

impl Ports {
    fn parse(text: &str) -> Self {
        let mut ports = Self(vec![false; 1 << 16]);
        for range in text.trim().split(',').filter_map(parse_ports) {
            ports.set(&range, true);
        }
        ports
    }

    fn set(&mut self, range: &RangeInclusive<u16>, on: bool) {
        for port in range.clone() {
            self.0[usize::from(port)] = on;
        }
    }

    /// The set with `range` in place of the ranges `left`, and what is new in it beside others'
    /// ports.
    fn with(
        mut self,
        range: &RangeInclusive<u16>,
        left: &[RangeInclusive<u16>],
    ) -> (Self, Vec<RangeInclusive<u16>>) {
        left.iter().for_each(|old| self.set(old, false));
        let others = self.clone();
        self.set(range, true);
        let added = self.without(&others);
        (self, added)
    }

    fn without(&self, other: &Self) -> Vec<RangeInclusive<u16>> {
        let both = self.0.iter().zip(&other.0);
        Self(both.map(|(one, other)| *one && !*other).collect()).ranges()
    }

    fn ranges(&self) -> Vec<RangeInclusive<u16>> {
        let mut ranges: Vec<RangeInclusive<u16>> = Vec::new();
        for port in (0..=u16::MAX).filter(|port| self.0[usize::from(*port)]) {
            match ranges.last_mut() {
                Some(last) if last.end().checked_add(1) == Some(port) => {
                    *last = *last.start()..=port;
                }
                _ => ranges.push(port..=port),
            }
        }
        ranges
    }

    fn text(&self) -> String {
        let ranges = self.ranges();
        let parts: Vec<String> = ranges
            .iter()
            .map(|range| format!("{}-{}", range.start(), range.end()))
            .collect();
        parts.join(",")
    }
}

fn read() -> Result<Ports, String> {
    let text = std::fs::read_to_string(SETTING).map_err(|error| format!("{SETTING}: {error}"))?;
    Ok(Ports::parse(&text))
}

fn write(ports: &Ports) -> Result<(), String> {
    let text = format!("{}\n", ports.text());
    std::fs::write(SETTING, text).map_err(|error| format!("{SETTING}: {error}"))
}

#[cfg(test)]
mod tests;
