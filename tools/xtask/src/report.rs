//! Named, timed steps and the table at the end. Used by the chores that have more than one step.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::run;

/// The outcome of one step.
#[derive(Serialize)]
struct Step {
    name: &'static str,
    seconds: f64,
    failure: Option<String>,
}

impl Step {
    /// Lines of a failure beyond the one in the table.
    fn details(&self) -> Option<(&str, &str)> {
        let (_, further) = self.failure.as_ref()?.split_once('\n')?;
        Some((self.name, further))
    }
}

/// The steps so far.
#[derive(Default)]
pub struct Report {
    steps: Vec<Step>,
}

impl Report {
    /// Runs and times a step, and keeps its outcome. A failure does not stop the next step.
    pub fn step(&mut self, name: &'static str, body: impl FnOnce() -> Result<(), String>) {
        eprintln!("\n=== {name}");
        let start = Instant::now();
        let failure = body().err();
        if let Some(cause) = &failure {
            eprintln!("xtask: {name} failed: {cause}");
        }
        let seconds = start.elapsed().as_secs_f64();
        self.steps.push(Step {
            name,
            seconds,
            failure,
        });
    }

    /// Prints the table and the closing line. True: no step failed.
    pub fn finish(&self) -> bool {
        let width = self.steps.iter().map(|step| step.name.len()).max();
        let width = width.unwrap_or(0).max("step".len());
        println!("\n{:width$}  {:>9}  outcome", "step", "time");
        for step in &self.steps {
            let time = time_text(Duration::from_secs_f64(step.seconds));
            let outcome = match &step.failure {
                None => "passed".to_owned(),
                Some(cause) => format!("FAILED: {}", first_line(cause)),
            };
            println!("{:width$}  {time:>9}  {outcome}", step.name);
        }
        for (name, details) in self.steps.iter().filter_map(Step::details) {
            println!("\n{name}:\n{details}");
        }
        let failed = self.steps.iter().filter(|s| s.failure.is_some()).count();
        let ignored = run::take_ignored();
        for test in &ignored {
            println!("ignored: {test}");
        }
        let passed = self.steps.len() - failed;
        println!(
            "\n{passed} passed, {failed} failed; {} tests ignored",
            ignored.len()
        );
        failed == 0
    }

    /// Writes the steps as JSON.
    pub fn write_json(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(&self.steps)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        std::fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("")
}

fn time_text(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{}m {:02}s", time.as_secs() / 60, time.as_secs() % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_kept_and_the_next_step_runs() {
        let mut report = Report::default();
        report.step("one", || Err("broken\nin detail".to_owned()));
        report.step("two", || Ok(()));
        assert!(!report.finish());
        assert_eq!(report.steps.len(), 2);
        assert_eq!(report.steps[0].details(), Some(("one", "in detail")));
        assert_eq!(report.steps[1].details(), None);
    }

    #[test]
    fn times_are_short_to_read() {
        assert_eq!(time_text(Duration::from_millis(1_240)), "1.2 s");
        assert_eq!(time_text(Duration::from_secs(125)), "2m 05s");
    }
}
