//! The process that runs the steps of `cargo xtask test` that compute, beside the steps that wait.
//!
//! The process is this program with the same choice of steps and `--beside`. Once the packages are
//! there, it takes the lowest priority, so tests that wait for the wire are hardly delayed. Its
//! output goes to a file and is printed when the steps of the caller are over, so that the two logs
//! do not mix. Called by [`crate::suite`].

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::cli::TestOptions;
use crate::report::Report;
use crate::run::{self, Watched};

/// The step down to the lowest priority (`nice`).
const NICE: i32 = 19;
/// Time between two looks at the output and at the process.
const POLL: Duration = Duration::from_millis(200);

/// The process and its files.
pub struct Beside {
    process: Watched,
    log: PathBuf,
    json: PathBuf,
}

impl Beside {
    /// Starts the process.
    pub fn start(root: &Path, options: &TestOptions) -> Result<Self, String> {
        let log = run::target(root).join("beside.log");
        let json = run::target(root).join("beside.json");
        let told = |error: io::Error| format!("{}: {error}", log.display());
        let output = File::create(&log).map_err(told)?;
        let errors = output.try_clone().map_err(told)?;
        // A report of an earlier run would hide that this one wrote none.
        let _ = fs::remove_file(&json);
        let program = std::env::current_exe().map_err(|error| format!("xtask: {error}"))?;
        let mut command = run::command(&program.to_string_lossy());
        command
            .args(arguments(options, &json))
            // The process makes a temporary directory of its own.
            .env("TMPDIR", std::env::temp_dir())
            .stdout(output)
            .stderr(errors);
        let process = Watched::start(&mut command)?;
        eprintln!("xtask: further steps run beside these; {}", log.display());
        Ok(Self { process, log, json })
    }

    /// Prints what the process printed and still prints until its end, and adds its steps.
    pub fn finish(mut self, report: &mut Report) {
        eprintln!("\n=== the steps beside");
        let printed = self.print_to_the_end();
        if let Err(cause) = printed.and_then(|()| report.add_json(&self.json)) {
            let log = self.log.display();
            report.step("beside", || Err(format!("no report, see {log}: {cause}")));
        }
    }

    fn print_to_the_end(&mut self) -> Result<(), String> {
        let told = |error: io::Error| format!("{}: {error}", self.log.display());
        let mut said = File::open(&self.log).map_err(told)?;
        loop {
            // Look at the process first, so that its last words are read after its end.
            let ended = self.process.try_wait()?;
            let mut text = Vec::new();
            said.read_to_end(&mut text).map_err(told)?;
            eprint!("{}", String::from_utf8_lossy(&text));
            match ended {
                Some(_) => return Ok(()),
                None => thread::sleep(POLL),
            }
        }
    }
}

/// The command line of the process.
pub fn arguments(options: &TestOptions, json: &Path) -> Vec<String> {
    let mut arguments = vec!["test".to_owned(), "--beside".to_owned()];
    let lists = [("--only", &options.only), ("--skip", &options.skip)];
    for (option, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
        arguments.extend([option.to_owned(), names.join(",")]);
    }
    let seconds = options.fuzz_seconds.to_string();
    arguments.extend(["--fuzz-seconds".to_owned(), seconds]);
    arguments.extend(["--json".to_owned(), json.display().to_string()]);
    arguments
}

/// Gives this process, and what it starts from now on, the lowest priority.
pub fn take_lowest_priority() -> Result<(), String> {
    let level = rustix::process::nice(NICE).map_err(|error| format!("nice {NICE}: {error}"))?;
    eprintln!("xtask: from here on with priority {level}");
    Ok(())
}
