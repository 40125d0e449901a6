//! Named, timed steps and the table at the end. Used by the chores that have more than one step.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::run;

/// The outcome of one step.
#[derive(Serialize, Deserialize)]
struct Step {
    name: String,
    seconds: f64,
    /// CPU time of the step's processes, in seconds. A busy machine makes a step last longer, but
    /// hardly changes this.
    cpu_seconds: f64,
    failure: Option<String>,
    /// Tests of the step that could not run here, each with its reason.
    ignored: Vec<String>,
}

impl Step {
    /// Lines of a failure beyond the one in the table.
    fn details(&self) -> Option<(&str, &str)> {
        let (_, further) = self.failure.as_ref()?.split_once('\n')?;
        Some((&self.name, further))
    }
}

/// The steps so far.
#[derive(Default)]
pub struct Report {
    steps: Vec<Step>,
}

impl Report {
    /// Runs and times a step, and keeps its outcome. A failure does not stop the next step. True:
    /// the step passed.
    pub fn step(&mut self, name: &str, body: impl FnOnce() -> Result<(), String>) -> bool {
        eprintln!("\n=== {name}");
        let (start, cpu_start) = (Instant::now(), run::cpu_time_used());
        let failure = body().err();
        if let Some(cause) = &failure {
            eprintln!("xtask: {name} failed: {cause}");
        }
        let passed = failure.is_none();
        let cpu = run::cpu_time_used().saturating_sub(cpu_start);
        self.steps.push(Step {
            name: name.to_owned(),
            seconds: start.elapsed().as_secs_f64(),
            cpu_seconds: cpu.as_secs_f64(),
            failure,
            ignored: run::take_ignored(),
        });
        passed
    }

    /// Adds the steps that another process wrote by [`Report::write_json`].
    pub fn add_json(&mut self, path: &Path) -> Result<(), String> {
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| told(&error))?;
        let steps: Vec<Step> = serde_json::from_str(&text).map_err(|error| told(&error))?;
        self.steps.extend(steps);
        Ok(())
    }

    /// Prints the table and the closing line. True: no step failed.
    pub fn finish(&self) -> bool {
        let width = self.steps.iter().map(|step| step.name.len()).max();
        let width = width.unwrap_or(0).max("step".len());
        println!("\n{:width$}  {:>9}  {:>9}  outcome", "step", "time", "CPU");
        for step in &self.steps {
            let [time, cpu] = [step.seconds, step.cpu_seconds]
                .map(|seconds| time_text(Duration::from_secs_f64(seconds)));
            let outcome = match &step.failure {
                None => "passed".to_owned(),
                Some(cause) => format!("FAILED: {}", first_line(cause)),
            };
            println!("{:width$}  {time:>9}  {cpu:>9}  {outcome}", step.name);
        }
        for (name, details) in self.steps.iter().filter_map(Step::details) {
            println!("\n{name}:\n{details}");
        }
        let failed = self.steps.iter().filter(|s| s.failure.is_some()).count();
        let ignored: Vec<&String> = self.steps.iter().flat_map(|step| &step.ignored).collect();
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
        fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
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
    fn steps_of_another_process_keep_outcome_and_ignored_tests() {
        let mut other = Report::default();
        other.step("one", || {
            run::note_ignored(["a: needs root".to_owned()]);
            Err("broken".to_owned())
        });
        let path = std::env::temp_dir().join(format!("xtask-report-{}", std::process::id()));
        other.write_json(&path).unwrap();
        let mut report = Report::default();
        report.step("two", || Ok(()));
        report.add_json(&path).unwrap();
        fs::remove_file(path).unwrap();
        assert!(!report.finish());
        assert_eq!(report.steps[1].failure.as_deref(), Some("broken"));
        assert_eq!(report.steps[1].ignored, ["a: needs root"]);
    }

    #[test]
    fn times_are_short_to_read() {
        assert_eq!(time_text(Duration::from_millis(1_240)), "1.2 s");
        assert_eq!(time_text(Duration::from_secs(125)), "2m 05s");
    }
}
