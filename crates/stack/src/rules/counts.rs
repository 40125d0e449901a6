//! The counts of rules, and the request by which another process reads them step by step.
//!
//! ```text
//! question   number of the first rule (4 bytes)
//! answer     number to go on with (4), number of all rules (4), then for each rule
//!            packets (8)  bytes (8)  refused (8)  length of the name (1)  name
//! ```
//!
//! Numbers are little-endian. `mill rules` repeats the request until `next` equals the number of
//! all rules.

use crate::limits::RULE_NAME_BYTES_MAX;
use crate::rules::RuleCounts;
use crate::rules::judge::Judge;

/// Bytes of a rule's counts, without its name.
const ROW_BYTES: usize = 25;

/// The counts of some rules, as read from an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleStep {
    /// The counts, in the order of the rules.
    pub rows: Vec<RuleCounts>,
    /// Number of the next rule, for the next request.
    pub next: u32,
    /// Number of all rules.
    pub total: u32,
}

impl RuleStep {
    /// Decodes an answer; `None` if it is invalid.
    ///
    /// ```
    /// use stack::rules::counts::RuleStep;
    /// let answer = [3, 0, 0, 0, 3, 0, 0, 0];
    /// let step = RuleStep::read(&answer).unwrap();
    /// assert_eq!((step.rows.len(), step.next, step.total), (0, 3, 3));
    /// assert_eq!(RuleStep::read(&answer[1..]), None);
    /// ```
    #[must_use]
    pub fn read(answer: &[u8]) -> Option<Self> {
        let (next, answer) = answer.split_first_chunk::<4>()?;
        let (total, mut answer) = answer.split_first_chunk::<4>()?;
        let mut rows = Vec::new();
        while let Some((row, rest)) = answer.split_first_chunk::<ROW_BYTES>() {
            let word = |at: usize| {
                row[at..]
                    .first_chunk()
                    .map(|bytes| u64::from_le_bytes(*bytes))
            };
            let (name, rest) = rest.split_at_checked(usize::from(row[ROW_BYTES - 1]))?;
            let name = String::from_utf8_lossy(name).into_owned();
            rows.push(RuleCounts {
                name: (!name.is_empty()).then_some(name),
                packets: word(0)?,
                bytes: word(8)?,
                refused: word(16)?,
            });
            answer = rest;
        }
        answer.is_empty().then_some(Self {
            rows,
            next: u32::from_le_bytes(*next),
            total: u32::from_le_bytes(*total),
        })
    }
}

/// Answers a request with the counts of as many rules as `room` bytes hold. False: the request is
/// invalid.
pub(crate) fn answer(
    judge: Option<&Judge>,
    question: &[u8],
    room: usize,
    answer: &mut Vec<u8>,
) -> bool {
    let Ok(first) = question.try_into().map(u32::from_le_bytes) else {
        return false;
    };
    let total = judge.map_or(0, Judge::len) as u32;
    let mut rows = Vec::new();
    let mut next = first.min(total);
    while let Some(counts) = judge.and_then(|judge| judge.counts_of(next as usize)) {
        let name = cut(counts.name.as_deref().unwrap_or_default());
        if 8 + rows.len() + ROW_BYTES + name.len() > room {
            break;
        }
        for word in [counts.packets, counts.bytes, counts.refused] {
            rows.extend_from_slice(&word.to_le_bytes());
        }
        rows.push(name.len() as u8);
        rows.extend_from_slice(name.as_bytes());
        next += 1;
    }
    answer.extend_from_slice(&next.to_le_bytes());
    answer.extend_from_slice(&total.to_le_bytes());
    answer.extend_from_slice(&rows);
    true
}

/// The first [`RULE_NAME_BYTES_MAX`] bytes of a name, cut at a character's end.
fn cut(name: &str) -> &str {
    let end = (0..=RULE_NAME_BYTES_MAX).rev();
    let end = end
        .filter(|&end| name.is_char_boundary(end))
        .find(|&end| end <= name.len());
    &name[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Rule, RuleSet};

    #[test]
    fn rules_are_told_in_steps_that_fit() {
        let named = |at: usize| Rule {
            name: (at > 0).then(|| "ä".repeat(at)),
            ..Rule::default()
        };
        let set = RuleSet {
            rules: (0..100).map(named).collect(),
            ..RuleSet::default()
        };
        let judge = Judge::new(&set, 0).unwrap().unwrap();
        let (mut next, mut rows, mut steps) = (0_u32, Vec::new(), 0);
        while next < 100 {
            let mut bytes = Vec::new();
            assert!(answer(Some(&judge), &next.to_le_bytes(), 500, &mut bytes));
            assert!(bytes.len() <= 500);
            let step = RuleStep::read(&bytes).unwrap();
            assert_eq!(step.total, 100);
            assert!(step.next > next);
            (next, steps) = (step.next, steps + 1);
            rows.extend(step.rows);
        }
        assert!(steps > 10);
        let names: Vec<_> = rows.into_iter().map(|row| row.name).collect();
        assert_eq!(names[0], None);
        assert_eq!(names[10].as_deref(), Some(&*"ä".repeat(10)));
        assert_eq!(
            names[99].as_deref(),
            Some(&*"ä".repeat(31)),
            "cut at 63 bytes"
        );
    }

    #[test]
    fn nonsense_is_neither_answered_nor_read() {
        let mut bytes = Vec::new();
        assert!(!answer(None, &[1, 2, 3], 500, &mut bytes));
        assert!(answer(None, &[9; 4], 500, &mut bytes));
        assert_eq!(bytes, [0; 8]);
        for len in 8..8 + ROW_BYTES {
            assert_eq!(RuleStep::read(&vec![1; len]).is_some(), len == 8);
        }
    }
}
