//! Failures that test programs report, kept for the end of the log.
//!
//! Reads what libtest prints: the block from `failures:` to `test result:`, and the name of a test
//! in which a program died. It also reads cargo's line about a program that a signal ended.

use std::io::{BufRead, Write};

/// Most lines that are kept. A log of more failures has the others.
const KEPT_LINES_MAX: usize = 120;

/// The lines of a log that the end of a run repeats.
#[derive(Default)]
pub struct Noted {
    /// Lines about failures.
    pub failures: String,
    /// Tests that could not run here, one on a line with the reason.
    pub ignored: Vec<String>,
}

/// Passes everything on, and returns the lines to repeat at the end.
pub fn pass_on(from: impl BufRead, mut to: impl Write) -> Noted {
    let mut kept = Vec::new();
    let mut ignored = Vec::new();
    let mut is_within = false;
    for line in from.split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        // The tests go on even if the log is no longer read.
        let _ = writeln!(to, "{line}");
        is_within |= line == "failures:";
        is_within &= !line.starts_with("test result:");
        let is_telling = is_within || is_unfinished(&line) || is_cause_of_death(&line);
        if is_telling && kept.len() < KEPT_LINES_MAX {
            kept.push(line.clone().into_owned());
        }
        ignored.extend(ignored_test(&line));
    }
    Noted {
        failures: kept.join("\n"),
        ignored,
    }
}

/// A test that this machine or user cannot run: from libtest's line with a reason, or from the line
/// that a test prints past libtest's capture before it returns early.
fn ignored_test(line: &str) -> Option<String> {
    if let Some((_, said)) = line.split_once("ignored: ") {
        return Some(said.to_owned());
    }
    let (name, reason) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    Some(format!("{name}: {}", reason.trim_start_matches(", ")))
}

/// Whether a test has no outcome, since its program died in it.
fn is_unfinished(line: &str) -> bool {
    line.starts_with("test ") && line.trim_end().ends_with("...")
}

/// Whether this is cargo's line about a program that a signal ended.
fn is_cause_of_death(line: &str) -> bool {
    line.contains("process didn't exit successfully") && line.contains("(signal: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\npanicked at b.rs:1\n\n\
                       failures:\n    b\n\ntest result: FAILED. 1 passed\n\nrunning 2 tests\ntest c ... \nrunning 1 test\ntest d ... ok\n";

    #[test]
    fn failures_are_kept_and_all_is_passed_on() {
        let mut passed_on = Vec::new();
        let kept = pass_on(LOG.as_bytes(), &mut passed_on).failures;
        assert_eq!(String::from_utf8(passed_on).unwrap(), LOG);
        let block = "failures:\n\n---- b stdout ----\npanicked at b.rs:1\n\nfailures:\n    b\n\n";
        assert_eq!(kept, format!("{block}test c ... "));
    }

    #[test]
    fn program_ended_by_a_signal_is_kept_with_its_cause() {
        let cause =
            "  process didn't exit successfully: `t --test-threads=1` (signal: 11, SIGSEGV)";
        let log = format!(
            "error: test failed\n\nCaused by:\n{cause}\n{}",
            cause.replace("signal: 11, SIGSEGV", "exit status: 101")
        );
        assert_eq!(pass_on(log.as_bytes(), Vec::new()).failures, cause);
    }

    #[test]
    fn kept_lines_have_a_limit() {
        let log = "failures:\n".to_owned() + &"more\n".repeat(1_000);
        let kept = pass_on(log.as_bytes(), Vec::new()).failures;
        assert_eq!(kept.lines().count(), KEPT_LINES_MAX);
    }
    #[test]
    fn ignored_tests_are_kept_with_their_reasons() {
        let log = "test a ... ignored, needs root\ntest b ... ignored: tap: not root\nok\n\
                   ignored: needs root\ntest result: ok. 3 passed; 1 ignored; 0 measured\n";
        let noted = pass_on(log.as_bytes(), Vec::new());
        assert_eq!(
            noted.ignored,
            ["a: needs root", "tap: not root", "needs root"]
        );
    }
}
