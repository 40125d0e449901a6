//! Options that comparisons share: how long, how often and where everything is measured, and where
//! the figures go.

use std::path::PathBuf;

use clap::Args;

use super::{Outcome, machine, namespace, rivals};
use mill::failure::Failure;

/// Options of a comparison.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct Repeats {
    /// Seconds that are counted, per system and run
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    pub seconds: f64,
    /// Seconds of warm-up before that, which are not counted
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub warm_up: f64,
    /// Runs of each system, taking turns; the median is compared
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Core of the server
    #[arg(long, value_name = "CPU", default_value_t = 0)]
    pub server_core: usize,
    /// Core of the client
    #[arg(long, value_name = "CPU", default_value_t = 1)]
    pub client_core: usize,
    /// Few points, short runs: to see that everything works
    #[arg(long)]
    pub quick: bool,
    /// Write the figures into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl Default for Repeats {
    fn default() -> Self {
        Self {
            seconds: 3.0,
            warm_up: 1.0,
            runs: 3,
            server_core: 0,
            client_core: 1,
            quick: false,
            out: None,
        }
    }
}

impl Repeats {
    /// The options with the times and runs that `--quick` sets.
    pub fn settled(&self) -> Self {
        match self.quick {
            true => Self {
                seconds: 0.5,
                warm_up: 0.2,
                runs: 1,
                ..self.clone()
            },
            false => self.clone(),
        }
    }

    /// Says in `outcome` how it was measured.
    pub fn describe(&self, outcome: &mut Outcome) {
        outcome.parameter(
            "seconds per run, after warm-up",
            format!("{}, {}", self.seconds, self.warm_up),
        );
        outcome.parameter("runs of each system", self.runs);
        outcome.parameter(
            "cores of server and client",
            format!("{}, {}", self.server_core, self.client_core),
        );
        let words: Vec<String> = std::env::args().skip(1).collect();
        outcome.parameter("command", format!("cargo xtask bench {}", words.join(" ")));
        outcome.parameter("the kernel's settings", machine::kernel_settings());
        outcome.parameter("in its namespaces", namespace::settings());
        outcome.parameter("Millstream's settings", machine::own_settings());
        outcome.parameter("other systems", rivals::versions());
    }

    /// Writes `outcome` into the directory, or prints it if there is none. An outcome without a
    /// figure is an error, and so is one in which Millstream failed.
    pub fn deliver(&self, outcome: &mut Outcome) -> Result<(), Failure> {
        match &self.out {
            Some(directory) => outcome.write(directory).map_err(Failure::Run)?,
            None => print!("{}{}", outcome.markdown(), outcome.claims_markdown()),
        }
        let name = &outcome.name;
        if outcome.is_empty() {
            let notes = outcome.notes.join("; ");
            return Err(Failure::Run(format!(
                "{name}: nothing could be measured: {notes}"
            )));
        }
        match outcome.failures.is_empty() {
            true => Ok(()),
            false => Err(Failure::Run(format!(
                "{name}: {}",
                outcome.failures.join("; ")
            ))),
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (0.0..=3600.0).contains(number));
    number.ok_or_else(|| "no number of seconds from 0 to 3600".to_owned())
}
