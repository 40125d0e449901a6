//! `cargo xtask mutants`: small changes to the product that tests should notice.
//!
//! cargo-mutants lists the changes, and a seed draws some of them. They are built together, each
//! behind a switch ([`switch`]). Each is judged by the tests of its crate and of the crates above
//! ([`judge`]). A mutant that cannot be switched is built alone.

mod build;
mod equivalent;
mod judge;
mod list;
mod program;
mod report;
mod switch;
mod tree;
mod verdicts;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use build::{BuildFailure, CompileError};
use equivalent::Equivalents;
use judge::{Case, Judges};
use list::Mutant;
use report::{Fate, Tally};
use tree::Tree;
use verdicts::{Name, Verdicts};

use crate::cli::MutantOptions;
use crate::run;
use crate::setup::{self, Need};

/// Errors that a mutant causes in any build: types, names or operators do not fit. Such a mutant is
/// unviable.
const UNVIABLE_CODES: &[&str] = &[
    "E0277", "E0282", "E0283", "E0308", "E0369", "E0425", "E0433", "E0599", "E0600", "E0614",
];
/// Most builds until the switched tree compiles. The compiler reports errors in several passes.
const SWITCH_ROUNDS_MAX: usize = 12;
/// Most commits back in which a change is sought.
const COMMITS_MAX: usize = 20;

/// Size of the sample that `cargo xtask test` draws from the last change, and most minutes for
/// building and judging it.
const CHANGE_COUNT: usize = 40;
const CHANGE_MINUTES: u64 = 5;

/// Percent of the sample that must be noticed. It is less than the chore's bar: in a sample of
/// forty, chance alone leaves five or six survivors where tests notice nineteen in twenty.
const CHANGE_BAR: u32 = 85;
/// Least number of judged mutants for which the bar counts. With fewer, chance decides.
const CHANGE_JUDGED_MIN: u32 = 20;
/// Crates whose judges reach all of their code. `packetio` is left out: its tests need the kernel,
/// and such tests do not judge mutants.
const CHANGE_CRATES: [&str; 4] = ["wire", "tcp", "stack", "ring"];

/// The chore.
pub fn mutants(root: &Path, options: &MutantOptions) -> Result<bool, String> {
    let need = Need {
        mutants: true,
        ..Need::default()
    };
    setup::setup(root, &need)?;
    let tally = tally(root, options)?;
    tally.print(options.bar);
    Ok(tally.passes(options.bar))
}

/// The step of `cargo xtask test`. It draws the same mutants for the same commit.
pub fn of_change(root: &Path) -> Result<(), String> {
    let need = Need {
        mutants: true,
        ..Need::default()
    };
    setup::setup(root, &need)?;
    let began = Instant::now();
    let options = MutantOptions {
        crates: CHANGE_CRATES.map(str::to_owned).to_vec(),
        change: true,
        count: CHANGE_COUNT,
        minutes: CHANGE_MINUTES,
        switched_only: true,
        bar: CHANGE_BAR,
        ..MutantOptions::default()
    };
    let tally = tally(root, &options)?;
    tally.print(options.bar);
    // Mutants judged before the deadline are a sample too, since their order is random.
    let minutes = options.minutes;
    if began.elapsed() >= Duration::from_secs(60 * minutes) {
        let (judged, left) = (tally.judged(), tally.not_run());
        run::note_ignored([format!(
            "mutants: {judged} were judged within {minutes} minutes, and {left} were not"
        )]);
    }
    match tally.passes(options.bar) || tally.judged() < CHANGE_JUDGED_MIN {
        true => Ok(()),
        false => Err(tally.failure(options.bar)),
    }
}

/// Draws mutants and judges them.
fn tally(root: &Path, options: &MutantOptions) -> Result<Tally, String> {
    let deadline = Instant::now() + Duration::from_secs(60 * options.minutes);
    let crates = chosen_crates(&options.crates)?;
    let all = list::list(root, &crates, None)?;
    let equivalents = Equivalents::read(root, &all)?;
    equivalents.verify(&all, &crates)?;
    let names = verdicts::names(&all, root)?;
    let pool = match options.change {
        false => all,
        true => changed(root, &crates)?,
    };
    let pool_len = pool.len();
    let mut drawn = list::draw(pool, options.count, options.seed);
    if let Some(text) = &options.only {
        drawn.retain(|mutant| mutant.name.contains(text));
    }
    println!(
        "{} of {pool_len} mutants, by seed {}",
        drawn.len(),
        options.seed
    );
    let mut fates = vec![Fate::NotRun; drawn.len()];
    for (fate, mutant) in fates.iter_mut().zip(&drawn) {
        if equivalents.contains(mutant) {
            *fate = Fate::Equivalent;
        }
    }
    let files = switched_files(&drawn);
    let tree = Tree::copy_of(root, &files)?;
    let file = run::target(root).join("mutants/verdicts.tsv");
    let verdicts = Verdicts::open(&file, tree.state()?)?;
    let names = drawn
        .iter()
        .map(|mutant| names.get(&mutant.name).cloned().unwrap_or_default());
    let names: Vec<Name> = names.collect();
    for (fate, name) in fates.iter_mut().zip(&names) {
        if let (Fate::NotRun, Some(known)) = (&fate, verdicts.known(name)) {
            *fate = known.clone();
        }
    }
    let run = Run {
        tree,
        drawn: &drawn,
        names,
        files,
        verdicts,
        deadline,
        jobs: options.jobs,
        switched_only: options.switched_only,
    };
    run.judge_all(&mut fates)?;
    Ok(Tally::of(&drawn, &fates))
}

/// The files with mutants, and the root files of their crates.
fn switched_files(drawn: &[Mutant]) -> BTreeSet<String> {
    let root = |mutant: &Mutant| format!("crates/{}/src/lib.rs", mutant.package);
    let files = drawn.iter().map(|mutant| mutant.file.clone());
    files.chain(drawn.iter().map(root)).collect()
}

fn chosen_crates(named: &[String]) -> Result<Vec<String>, String> {
    let known = judge::crates();
    if named.is_empty() {
        return Ok(known);
    }
    match named.iter().find(|name| !known.contains(name)) {
        None => Ok(named.to_vec()),
        Some(name) => Err(format!("crate {name}: not one of {}", known.join(", "))),
    }
}

/// Mutants of the last change to the product: of uncommitted lines, else of the newest commit with
/// any. A merge counts with everything that it brought.
fn changed(root: &Path, crates: &[String]) -> Result<Vec<Mutant>, String> {
    let git =
        |arguments: &[&str]| run::output(run::command("git").arg("-C").arg(root).args(arguments));
    let paths: Vec<String> = crates
        .iter()
        .map(|name| format!("crates/{name}/src"))
        .collect();
    let mut newer = Vec::new();
    for back in 0..=COMMITS_MAX {
        let base = format!("HEAD~{back}");
        if git(&["rev-parse", "--verify", "--quiet", &base]).is_err() {
            println!("no history before HEAD~{back}");
            break;
        }
        let mut arguments = vec![
            "diff",
            "--no-color",
            "--no-ext-diff",
            "--no-renames",
            &base,
            "--",
        ];
        arguments.extend(paths.iter().map(String::as_str));
        let diff = git(&arguments)?;
        if diff == newer_text(&newer) {
            continue;
        }
        newer = diff.clone().into_bytes();
        let file = run::target(root).join("mutants/change.diff");
        write(&file, &diff)?;
        let mutants = list::list(root, crates, Some(&file))?;
        if !mutants.is_empty() {
            println!("the change since {base}");
            return Ok(mutants);
        }
    }
    Ok(Vec::new())
}

fn newer_text(text: &[u8]) -> &str {
    std::str::from_utf8(text).unwrap_or_default()
}

fn write(path: &PathBuf, text: &str) -> Result<(), String> {
    let parent = path.parent().unwrap_or(path);
    std::fs::create_dir_all(parent)
        .and_then(|()| std::fs::write(path, text))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// A run of the chore, after the draw.
struct Run<'a> {
    tree: Tree,
    drawn: &'a [Mutant],
    /// Names of the drawn mutants, in their order.
    names: Vec<Name>,
    /// Files that [`switch`] rewrites.
    files: BTreeSet<String>,
    verdicts: Verdicts,
    deadline: Instant,
    jobs: usize,
    switched_only: bool,
}

impl Run<'_> {
    fn judge_all(&self, fates: &mut [Fate]) -> Result<(), String> {
        if !fates.contains(&Fate::NotRun) {
            return Ok(());
        }
        let crates: BTreeSet<_> = self.drawn.iter().map(|mutant| &mutant.package).collect();
        let crates: Vec<String> = crates.into_iter().cloned().collect();
        let Some(alone) = self.switch_all(&crates, fates)? else {
            return Ok(());
        };
        let mut judges = match judge::build(self.tree.root(), &crates, self.deadline) {
            Err(BuildFailure::Late) => return Ok(()),
            built => built.map_err(cause_of)?,
        };
        if !judges.prove(&self.tree.root().with_file_name("reaches"))? {
            return Ok(());
        }
        self.run_switched(&judges, fates, &alone)?;
        for number in alone {
            if self.switched_only || Instant::now() > self.deadline {
                break;
            }
            if fates[number] == Fate::NotRun {
                fates[number] = self.judge_alone(number, &judges)?;
                self.tell(number, &fates[number])?;
            }
        }
        Ok(())
    }

    /// Writes all mutants into the tree until it compiles. Mutants with a known fate are included,
    /// so that the build of an earlier run can be used again. Returns those that must be built
    /// alone; `None`: the deadline came first.
    fn switch_all(
        &self,
        crates: &[String],
        fates: &mut [Fate],
    ) -> Result<Option<BTreeSet<usize>>, String> {
        let all = 0..self.drawn.len();
        let (mut numbers, mut alone) = (Vec::new(), BTreeSet::new());
        for number in all.filter(|&number| fates[number] != Fate::Unviable) {
            match self.verdicts.is_alone(&self.names[number]) {
                true => _ = alone.insert(number),
                false => numbers.push(number),
            }
        }
        for _ in 0..SWITCH_ROUNDS_MAX {
            let mut by_file: BTreeMap<&str, Vec<switch::Numbered<'_>>> = BTreeMap::new();
            for file in &self.files {
                by_file.entry(file).or_default();
            }
            for &number in &numbers {
                let mutant = &self.drawn[number];
                by_file
                    .entry(&mutant.file)
                    .or_default()
                    .push((number, mutant));
            }
            let mut refused = BTreeSet::new();
            for (file, mutants) in by_file {
                refused.extend(self.write_switched(file, &mutants)?);
            }
            let outcome = build::check(self.tree.root(), crates, self.deadline);
            let errors = match &outcome {
                Ok(()) => &[][..],
                Err(BuildFailure::Refused(errors)) => errors,
                Err(BuildFailure::Late) => return Ok(None),
                Err(BuildFailure::Other(cause)) => return Err(cause.clone()),
            };
            if !errors.is_empty() {
                let (blamed, unviable) = self.blame(errors)?;
                refused.extend(blamed);
                for number in unviable {
                    numbers.retain(|&other| other != number);
                    fates[number] = Fate::Unviable;
                    self.tell(number, &fates[number])?;
                }
            }
            for &number in &refused {
                self.verdicts.note_alone(&self.names[number])?;
            }
            numbers.retain(|number| !refused.contains(number));
            alone.extend(refused);
            if errors.is_empty() {
                return Ok(Some(alone));
            }
        }
        Err(format!("does not compile after {SWITCH_ROUNDS_MAX} rounds"))
    }

    fn write_switched(
        &self,
        file: &str,
        mutants: &[switch::Numbered<'_>],
    ) -> Result<Vec<usize>, String> {
        let source = self.tree.source(file)?;
        let switched =
            switch::switch(&source, mutants).map_err(|cause| format!("{file}: {cause}"))?;
        let mut text = switched.text;
        if file.ends_with("/src/lib.rs") {
            text += switch::SWITCH;
        }
        self.tree.write(file, text.as_bytes())?;
        Ok(switched.left_out)
    }

    /// The mutants that cause the errors: first those to be built alone, then those that fit no
    /// build.
    fn blame(&self, errors: &[CompileError]) -> Result<(BTreeSet<usize>, BTreeSet<usize>), String> {
        let (mut refused, mut unviable) = (BTreeSet::new(), BTreeSet::new());
        for error in errors {
            for (file, range) in &error.places {
                let text = self.tree.text(file)?;
                let inner = switch::mutants_at(&text, range.clone()).first().copied();
                // An error in the code around a mutant may show it, for example a match that now
                // lacks an arm.
                let shown = inner.or_else(|| switch::mutant_in(&error.text));
                let near = shown.or_else(|| switch::mutant_near(&text, range.start));
                let Some(number) = near else { continue };
                match inner.is_some() && UNVIABLE_CODES.contains(&error.code.as_str()) {
                    true => unviable.insert(number),
                    false => refused.insert(number),
                };
            }
        }
        if refused.is_empty() && unviable.is_empty() {
            let texts: Vec<&str> = errors.iter().map(|error| error.text.as_str()).collect();
            return Err(format!(
                "errors that no mutant explains\n{}",
                texts.join("\n")
            ));
        }
        refused.retain(|number| !unviable.contains(number));
        Ok((refused, unviable))
    }

    /// Judges every mutant of this build.
    fn run_switched(
        &self,
        judges: &Judges,
        fates: &mut [Fate],
        alone: &BTreeSet<usize>,
    ) -> Result<(), String> {
        let numbers = numbers_of(fates, Fate::NotRun);
        let queue = Mutex::new(numbers.into_iter().filter(|number| !alone.contains(number)));
        let fates = Mutex::new(fates);
        let work = || -> Result<(), String> {
            while Instant::now() < self.deadline {
                let next = lock(&queue).next();
                let Some(number) = next else { break };
                let fate = judges.judge(&self.case(number, true))?;
                self.tell(number, &fate)?;
                lock(&fates)[number] = fate;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.jobs.max(1)).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|_| Err("a worker panicked".to_owned()))
            })
        })
    }

    fn case(&self, number: usize, is_switched: bool) -> Case<'_> {
        Case {
            package: &self.drawn[number].package,
            number,
            is_switched,
            witness: self.verdicts.witness(&self.names[number]),
        }
    }

    /// Builds one mutant without a switch, and judges it.
    fn judge_alone(&self, number: usize, measured: &Judges) -> Result<Fate, String> {
        let mutant = &self.drawn[number];
        let before = self.tree.text(&mutant.file)?;
        let mut text = switch::replace(&self.tree.source(&mutant.file)?, mutant);
        if mutant.file.ends_with("/src/lib.rs") {
            text += switch::SWITCH;
        }
        self.tree.write(&mutant.file, text.as_bytes())?;
        let package = std::slice::from_ref(&mutant.package);
        let fate = match build::check(self.tree.root(), package, self.deadline) {
            Err(BuildFailure::Refused(_)) => Fate::Unviable,
            Err(BuildFailure::Late) => Fate::NotRun,
            Err(failure) => return Err(cause_of(failure)),
            Ok(()) => match judge::build(self.tree.root(), package, self.deadline) {
                Ok(mut judges) => {
                    judges.measured_by(measured);
                    judges.judge(&self.case(number, false))?
                }
                Err(BuildFailure::Refused(_)) => Fate::Unviable,
                Err(BuildFailure::Late) => Fate::NotRun,
                Err(failure) => return Err(cause_of(failure)),
            },
        };
        self.tree.write(&mutant.file, before.as_bytes())?;
        Ok(fate)
    }

    fn tell(&self, number: usize, fate: &Fate) -> Result<(), String> {
        eprintln!("{number} {fate}: {}", self.drawn[number].name);
        self.verdicts.note(&self.names[number], fate)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn numbers_of(fates: &[Fate], wanted: Fate) -> Vec<usize> {
    let numbered = fates.iter().enumerate();
    numbered
        .filter(|(_, fate)| **fate == wanted)
        .map(|(n, _)| n)
        .collect()
}

fn cause_of(failure: BuildFailure) -> String {
    match failure {
        BuildFailure::Other(cause) => cause,
        BuildFailure::Late => "the build was not over in time".to_owned(),
        BuildFailure::Refused(errors) => {
            let texts: Vec<&str> = errors.iter().map(|error| error.text.as_str()).collect();
            texts.join("\n")
        }
    }
}
