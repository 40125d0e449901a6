//! All checks: pure functions from facts to findings, in the order in which they are printed.

mod host;
mod wire;

pub(super) use wire::xdp_program;

use super::Finding;
use super::facts::Facts;

/// Runs every check that the facts allow.
pub fn all(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![
        host::kernel(facts),
        host::capabilities(facts),
        host::memlock(facts),
        host::huge_pages(facts),
        host::numa(facts),
        host::governor(facts),
        host::clock(facts),
    ];
    if let Some(wire) = &facts.wire {
        findings.extend(wire::all(wire));
    }
    findings
}

/// The value after `key:` on the first line that begins with it, ignoring leading blanks.
pub(super) fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let rest = line.trim_start().strip_prefix(key)?;
        Some(rest.strip_prefix(':')?.trim())
    })
}

/// The number at the beginning of a value.
pub(super) fn number(text: &str, key: &str) -> Option<u64> {
    value(text, key)?.split_whitespace().next()?.parse().ok()
}
