//! The demo's results: printed as they come and as a table at the end; as JSON on request.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;

/// The result of a step, or the reason for its failure.
pub type Outcome = Result<Saw, String>;

/// The result of a step: as a line of text, and as numbers for programs.
pub struct Saw {
    pub line: String,
    pub values: Value,
}

impl From<String> for Saw {
    fn from(line: String) -> Self {
        Self {
            line,
            values: Value::Null,
        }
    }
}

#[derive(Serialize)]
struct Step {
    name: &'static str,
    held: bool,
    saw: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    values: Value,
    seconds: f64,
}

#[derive(Serialize)]
pub struct Report {
    quick: bool,
    version: &'static str,
    kernel: String,
    steps: Vec<Step>,
}

impl Report {
    pub fn new(quick: bool) -> Self {
        let kernel = rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned();
        Self {
            quick,
            version: env!("CARGO_PKG_VERSION"),
            kernel,
            steps: Vec::new(),
        }
    }

    /// Runs a step and keeps its result.
    pub fn step(&mut self, name: &'static str, run: impl FnOnce() -> Outcome) {
        eprintln!("… {name}");
        let begin = Instant::now();
        let (held, saw, values) = match run() {
            Ok(Saw { line, values }) => (true, line, values),
            Err(cause) => (false, cause, Value::Null),
        };
        let seconds = begin.elapsed().as_secs_f64();
        eprintln!("{} {name}: {saw}", mark(held));
        self.steps.push(Step {
            name,
            held,
            saw,
            values,
            seconds,
        });
    }

    pub fn write_json(&self, path: &Path) -> std::io::Result<()> {
        let held = self.steps.iter().all(|step| step.held);
        let mut json = serde_json::to_value(self).map_err(std::io::Error::other)?;
        json["held"] = held.into();
        let json = serde_json::to_string_pretty(&json).map_err(std::io::Error::other)?;
        std::fs::write(path, json + "\n")
    }

    /// Prints the table. True if every step succeeded.
    pub fn finish(&self) -> bool {
        let width = self
            .steps
            .iter()
            .map(|step| step.name.len())
            .max()
            .unwrap_or(0);
        println!();
        for Step {
            name,
            held,
            saw,
            seconds,
            ..
        } in &self.steps
        {
            println!("{} {name:width$}  {seconds:6.1} s  {saw}", mark(*held));
        }
        let broken = self.steps.iter().filter(|step| !step.held).count();
        match broken {
            0 => println!("\nevery step held"),
            _ => println!("\n{broken} of {} steps did not hold", self.steps.len()),
        }
        broken == 0
    }
}

fn mark(held: bool) -> &'static str {
    if held { "ok  " } else { "FAIL" }
}
