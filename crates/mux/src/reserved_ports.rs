//! `ip_local_reserved_ports`: ports that the kernel does not choose for unbound sockets.
//!
//! Owns the entry for the range of leases, from [`ReservedPorts::add`] until its removal. An
//! administrator's entries stay, and so do those of services on other NICs, which may have the same
//! range. Called by the service at its start and its end.

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
    /// and did not remove (`left`). Services on other NICs have added `others`.
    ///
    /// # Errors
    /// One line if the setting cannot be read or written.
    pub fn add(
        range: &RangeInclusive<u16>,
        left: &[RangeInclusive<u16>],
        others: &[RangeInclusive<u16>],
    ) -> Result<Self, String> {
        let (ports, added) = read()?.with(range, left, others);
        write(&ports)?;
        Ok(Self { added })
    }

    /// The ports that this service added.
    pub fn added(&self) -> &[RangeInclusive<u16>] {
        &self.added
    }

    /// Removes the ports that were added, but for those that services on other NICs have, too.
    pub fn remove(self, others: &[RangeInclusive<u16>]) {
        let Ok(mut ports) = read() else {
            return;
        };
        ports.set_all(&self.added, false);
        ports.set_all(others, true);
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

    fn set_all(&mut self, ranges: &[RangeInclusive<u16>], on: bool) {
        for range in ranges {
            self.set(range, on);
        }
    }

    /// The set with `range` in place of the ranges `left`, and the part of `range` that is not the
    /// administrator's. Other services have added `others`, which stay.
    fn with(
        mut self,
        range: &RangeInclusive<u16>,
        left: &[RangeInclusive<u16>],
        others: &[RangeInclusive<u16>],
    ) -> (Self, Vec<RangeInclusive<u16>>) {
        self.set_all(left, false);
        self.set_all(others, false);
        let administrators = self.clone();
        self.set(range, true);
        let added = self.without(&administrators);
        self.set_all(others, true);
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
