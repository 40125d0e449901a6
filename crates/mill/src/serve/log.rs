//! Log lines of the server: each has a stable name, and comes at most once a second with a count.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two lines of one name.
const INTERVAL: Duration = Duration::from_secs(1);

/// A line that is logged, and how often its cause came since it was logged last.
pub struct LogLine {
    /// The field `event`.
    pub name: &'static str,
    state: Mutex<State>,
}

struct State {
    logged: Option<Instant>,
    count: u64,
}

/// Accepting failed for want of descriptors or memory.
pub static ACCEPT_FAILED: LogLine = LogLine::new("accept_failed");
/// A document could not be read, and the client was answered 500.
pub static DOCUMENT_UNREADABLE: LogLine = LogLine::new("document_unreadable");
/// A document could not be read to its end, and the client was reset.
pub static DOCUMENT_CUT: LogLine = LogLine::new("document_cut");

/// All lines, for the page that lists them.
#[cfg(test)]
const ALL: [&LogLine; 3] = [&ACCEPT_FAILED, &DOCUMENT_UNREADABLE, &DOCUMENT_CUT];

impl LogLine {
    const fn new(name: &'static str) -> Self {
        let state = Mutex::new(State {
            logged: None,
            count: 0,
        });
        Self { name, state }
    }

    /// Counts, and logs unless this line was logged within the last second.
    pub fn warn(&self, why: fmt::Arguments<'_>) {
        if let Some(count) = self.due(Instant::now()) {
            tracing::warn!(target: "millstream", event = self.name, count, "{why}");
        }
    }

    fn due(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.count += 1;
        let is_recent = |at: Instant| now.saturating_duration_since(at) < INTERVAL;
        if state.logged.is_some_and(is_recent) {
            return None;
        }
        state.logged = Some(now);
        Some(std::mem::take(&mut state.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_comes_once_a_second_and_counts_what_it_left_out() {
        let line = LogLine::new("test");
        let begin = Instant::now();
        assert_eq!(line.due(begin), Some(1));
        assert_eq!(line.due(begin), None);
        assert_eq!(line.due(begin + INTERVAL / 2), None);
        assert_eq!(line.due(begin + INTERVAL), Some(3));
    }

    #[test]
    fn page_for_operators_lists_every_line() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating.md");
        let page = std::fs::read_to_string(page).unwrap();
        for line in ALL {
            assert!(page.contains(&format!("| `{}` | warn |", line.name)));
        }
    }
}
