//! The tests that judge a mutant, and their order.
//!
//! A run without a mutant measures every test and notes the mutants that it reaches. A test that
//! does not reach a mutant cannot notice it, and does not run. The test that noticed the mutant in
//! an earlier run comes first, then the others, quick ones before slow ones.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::build::{self, BuildFailure};
use super::program::{Outcome, Program, Switches};
use super::report::Fate;
use super::verdicts::Witness;

/// Test programs for each mutated crate, in the order in which they run. Quick ones that know the
/// crate best come first. None needs root, a kernel device or the clock. `CRATE` alone stands for
/// the unit tests.
const JUDGES: &[(&str, &[&str])] = &[
    (
        "wire",
        &[
            "wire",
            "wire/arbitrary_bytes",
            "wire/round_trip",
            "wire/dump_arp_nd",
            "wire/dump_icmp",
            "wire/dump_tcp",
            "script/scripts",
            "tcp",
            "tcp/conversations",
            "stack",
            "stack/conversations",
        ],
    ),
    (
        "tcp",
        &[
            "script/scripts",
            "tcp",
            "tcp/conversations",
            "tcp/passive",
            "tcp/bbr",
            "tcp/courses",
            "stack",
            "stack/conversations",
            "stack/connection_limits",
            "stack/faulty_links",
            "stack/courses",
            "world/worlds",
        ],
    ),
    (
        "stack",
        &[
            "stack",
            "stack/conversations",
            "stack/connection_limits",
            "stack/faulty_links",
            "stack/courses",
            "script/scripts",
            "world/worlds",
        ],
    ),
    (
        "ring",
        &[
            "ring",
            "ring/spsc",
            "ring/small",
            "ring/memory",
            "ring/checksum",
            "ring/byte_ring_rx",
            "ring/byte_ring_tx",
            "ring/threads",
            "stack/conversations",
            "script/scripts",
        ],
    ),
    (
        "packetio",
        &[
            "packetio",
            "packetio/memif_pair",
            "packetio/memif_hostile",
            "packetio/memif_starved",
            "packetio/pcap_tools",
            "stack/conversations",
        ],
    ),
];

/// Time from which a test counts as slow: it runs after the quick ones, alone.
const SLOW_MIN: Duration = Duration::from_millis(300);
/// The crates that may be mutated.
pub fn crates() -> Vec<String> {
    JUDGES.iter().map(|(name, _)| (*name).to_owned()).collect()
}

/// The test programs of all `crates`, each once, sorted by package.
fn programs_of(crates: &[String]) -> Vec<&'static str> {
    let mut names: Vec<&str> = JUDGES
        .iter()
        .filter(|(name, _)| crates.iter().any(|wanted| wanted == name))
        .flat_map(|(_, programs)| programs.iter().copied())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// A test, as measured by a run without a mutant.
#[derive(Clone, Default)]
struct Test {
    name: String,
    cpu: Duration,
    /// Mutants that the test reaches.
    reached: HashSet<usize>,
}

/// A program and its tests.
struct Judge {
    program: Program,
    tests: Vec<Test>,
    /// Mutants that are reached by a test that cannot be named.
    reached: HashSet<usize>,
    /// Time at which tests are ended.
    deadline: Instant,
}

/// Some tests of one program, which run together.
struct Group<'a> {
    judge: &'a Judge,
    tests: Vec<&'a Test>,
}

/// The test programs, built and measured.
pub struct Judges(Vec<Judge>);

/// A mutant before it is judged.
pub struct Case<'a> {
    pub package: &'a str,
    pub number: usize,
    /// Whether the mutant is in this build, behind its switch.
    pub is_switched: bool,
    /// The test that noticed it in an earlier run.
    pub witness: Option<&'a Witness>,
}

/// Builds the test programs that judge `crates`, until the deadline.
pub fn build(tree: &Path, crates: &[String], deadline: Instant) -> Result<Judges, BuildFailure> {
    let names = programs_of(crates);
    let programs = build::programs(tree, &names, deadline)?;
    let built = |name: &str| programs.iter().any(|program| program.name == name);
    if let Some(missing) = names.iter().find(|name| !built(name)) {
        let cause = format!("{missing}: no such test program");
        return Err(BuildFailure::Other(cause));
    }
    let judge = |program| Judge {
        program,
        tests: Vec::new(),
        reached: HashSet::new(),
        deadline,
    };
    Ok(Judges(programs.into_iter().map(judge).collect()))
}

impl Judges {
    /// Runs the tests without a mutant; they must pass. `notes` is the file for the mutants that
    /// they reach. False: the deadline came first.
    pub fn prove(&mut self, notes: &Path) -> Result<bool, String> {
        for judge in &mut self.0 {
            if !judge.measure(notes)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes the measures of the same tests in another build.
    pub fn measured_by(&mut self, other: &Judges) {
        for judge in &mut self.0 {
            if let Some(same) = other.of(&judge.program.name) {
                judge.tests.clone_from(&same.tests);
                judge.reached.clone_from(&same.reached);
            }
        }
    }

    /// The fate of a mutant, as its tests decide.
    pub fn judge(&self, case: &Case<'_>) -> Result<Fate, String> {
        let switches = match case.is_switched {
            true => Switches::On(case.number),
            false => Switches::Off,
        };
        if let Some(fate) = self.witness_says(case, switches)? {
            return Ok(fate);
        }
        for group in self.groups(case) {
            match group.run(switches)? {
                Outcome::Passed => {}
                outcome => return Ok(fate_of(group.judge, outcome)),
            }
        }
        Ok(Fate::Survived)
    }

    fn witness_says(
        &self,
        case: &Case<'_>,
        switches: Switches<'_>,
    ) -> Result<Option<Fate>, String> {
        let Some(witness) = case.witness else {
            return Ok(None);
        };
        let Some(judge) = self.of(&witness.program) else {
            return Ok(None);
        };
        let Some(test) = judge.tests.iter().find(|test| test.name == witness.test) else {
            return Ok(None);
        };
        let group = Group {
            judge,
            tests: vec![test],
        };
        Ok(match group.run(switches)? {
            Outcome::Passed => None,
            outcome => Some(fate_of(judge, outcome)),
        })
    }

    /// The tests that could notice the mutant, in the order in which they run.
    fn groups(&self, case: &Case<'_>) -> Vec<Group<'_>> {
        let names = JUDGES.iter().find(|(name, _)| *name == case.package);
        let names = names.map_or(&[][..], |(_, names)| names);
        let mut groups = Vec::new();
        for judge in names.iter().filter_map(|name| self.of(name)) {
            let reaches = |test: &&Test| {
                !case.is_switched
                    || judge.reached.contains(&case.number)
                    || test.reached.contains(&case.number)
            };
            let tests = judge.tests.iter().filter(reaches);
            let (slow, quick): (Vec<_>, Vec<_>) = tests.partition(|test| test.cpu > SLOW_MIN);
            groups.push(Group {
                judge,
                tests: quick,
            });
            groups.extend(slow.into_iter().map(|test| Group {
                judge,
                tests: vec![test],
            }));
        }
        groups.retain(|group| !group.tests.is_empty());
        groups.sort_by_key(Group::cpu);
        groups
    }

    fn of(&self, name: &str) -> Option<&Judge> {
        self.0.iter().find(|judge| judge.program.name == name)
    }
}

impl Judge {
    /// Runs and measures every test. False: the deadline came first.
    fn measure(&mut self, notes: &Path) -> Result<bool, String> {
        let told = |error| format!("{}: {error}", notes.display());
        fs::write(notes, "").map_err(told)?;
        let mut tests = Vec::new();
        let ended = |name: &str, cpu| {
            tests.push(Test {
                name: name.to_owned(),
                cpu,
                reached: HashSet::new(),
            });
        };
        let switches = Switches::Noted(notes);
        let (deadline, unknown) = (self.deadline, |_: &str| None);
        match self.program.run(None, switches, deadline, unknown, ended)? {
            Outcome::Passed => {}
            Outcome::Late => return Ok(false),
            outcome => {
                let name = &self.program.name;
                return Err(format!("{name}: {outcome:?} without a mutant"));
            }
        }
        let text = fs::read_to_string(notes).map_err(told)?;
        let mut by_test: HashMap<&str, HashSet<usize>> = HashMap::new();
        for (number, test) in text.lines().filter_map(|line| line.split_once(' ')) {
            let number = number.parse().unwrap_or(usize::MAX);
            by_test.entry(test).or_default().insert(number);
        }
        for test in &mut tests {
            test.reached = by_test.remove(test.name.as_str()).unwrap_or_default();
        }
        // What is left was reached by threads that a test started, or on the main thread.
        self.reached = by_test.into_values().flatten().collect();
        self.tests = tests;
        Ok(true)
    }

    fn usual(&self, test: &str) -> Option<Duration> {
        let test = self.tests.iter().find(|other| other.name == test);
        test.map(|test| test.cpu)
    }
}

impl Group<'_> {
    fn cpu(&self) -> Duration {
        self.tests.iter().map(|test| test.cpu).sum()
    }

    fn run(&self, switches: Switches<'_>) -> Result<Outcome, String> {
        let names: Vec<&str> = self.tests.iter().map(|test| test.name.as_str()).collect();
        let is_all = names.len() == self.judge.tests.len();
        let chosen = (!is_all).then_some(names.as_slice());
        let usual = |test: &str| self.judge.usual(test);
        let deadline = self.judge.deadline;
        let program = &self.judge.program;
        program.run(chosen, switches, deadline, usual, |_, _| ())
    }
}

fn fate_of(judge: &Judge, outcome: Outcome) -> Fate {
    let witness = |test| Witness {
        program: judge.program.name.clone(),
        test,
    };
    match outcome {
        Outcome::Passed => Fate::Survived,
        Outcome::Failed(test) => Fate::Killed(witness(test)),
        Outcome::Hung(test) => Fate::TimedOut(witness(test)),
        Outcome::Late => Fate::NotRun,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks early what would otherwise fail only when a change needs the judge: its program
    /// exists.
    #[test]
    fn judges_are_test_programs_of_the_tree() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in programs_of(&crates()) {
            let (package, test) = name.split_once('/').unwrap_or((name, ""));
            let candidates = [
                format!("crates/{package}/tests/{test}.rs"),
                format!("crates/{package}/tests/{test}/main.rs"),
                format!("tools/{package}/tests/{test}.rs"),
                format!("tools/{package}/tests/{test}/main.rs"),
            ];
            let is_there = |path: &String| root.join(path).is_file();
            assert!(test.is_empty() || candidates.iter().any(is_there), "{name}");
        }
    }
}
