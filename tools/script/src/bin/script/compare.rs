//! `cargo xtask script --compare`: the same scripts on our stack and on this machine's kernel, nothing expected of either; shows where they differ.
//!
//! What a kernel does in real time is not the same every time: its clock ticks, and other programs run. So a script that differs is played on it again; a
//! difference counts if it is there every time.

use std::sync::Mutex;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use script::{Machine, Options, Record, differences, random, states};

use super::{Failure, ScriptOptions, read};

/// How often a script is played on the kernel before it counts as different.
const PLAYS_MAX: usize = 3;
/// Tolerance of times, in ms.
const TOLERANCE_MS: u32 = 30;

/// A script and what to call it.
struct Subject {
    name: String,
    text: String,
}

/// How a comparison ended.
enum Verdict {
    /// The same, at this play.
    Same(usize),
    /// The differences of the first play, and both records.
    Differs(String),
    /// Not compared, and why.
    Left(String),
}

/// Compares all scripts, several at a time; prints a line for each file, and for each seed or cell that differs.
pub(super) fn compare(options: &ScriptOptions, is_verbose: bool) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        let why = "a network namespace of its own for the kernel needs root";
        return Err(Failure::Usage(why.to_owned()));
    }
    let subjects = Mutex::new(subjects(options)?.into_iter());
    let (verdicts, results) = mpsc::channel();
    let mut counts = [0; 4];
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            let (verdicts, subjects) = (verdicts.clone(), &subjects);
            scope.spawn(move || work(subjects, options, is_verbose, &verdicts));
        }
        drop(verdicts);
        for (subject, verdict) in results {
            let place = match &verdict {
                Verdict::Same(1) => 0,
                Verdict::Same(_) => 1,
                Verdict::Differs(_) => 2,
                Verdict::Left(_) => 3,
            };
            counts[place] += 1;
            let is_generated = options.random.is_some() || options.states;
            show(&subject, &verdict, is_generated);
        }
    });
    let [same, later, differ, left] = counts;
    println!(
        "{same} the same, {later} the same when played again, {differ} differ, {left} not compared"
    );
    match differ {
        0 => Ok(()),
        _ => Err(Failure::Reported),
    }
}

fn subjects(options: &ScriptOptions) -> Result<Vec<Subject>, Failure> {
    let mut found = Vec::new();
    for file in &options.files {
        found.push(Subject {
            name: file.display().to_string(),
            text: read(file)?,
        });
    }
    for seed in options.seed..options.seed + options.random.unwrap_or(0) {
        found.push(Subject {
            name: format!("seed {seed}"),
            text: match options.path {
                true => random::path::script(seed),
                false => random::script(seed),
            },
        });
    }
    if options.states {
        found.extend(states::cells().into_iter().map(|cell| Subject {
            name: cell.name,
            text: cell.text,
        }));
    }
    Ok(found)
}

fn work(
    subjects: &Mutex<impl Iterator<Item = Subject>>,
    options: &ScriptOptions,
    is_verbose: bool,
    verdicts: &Sender<(Subject, Verdict)>,
) {
    loop {
        let next = match subjects.lock() {
            Ok(mut subjects) => subjects.next(),
            Err(_) => None,
        };
        let Some(subject) = next else { return };
        let verdict = judge(&subject.text, options, is_verbose);
        if verdicts.send((subject, verdict)).is_err() {
            return;
        }
    }
}

fn judge(text: &str, options: &ScriptOptions, is_verbose: bool) -> Verdict {
    let tolerance_us = i64::from(options.tolerance.unwrap_or(TOLERANCE_MS)) * 1000;
    let how = |on| Options {
        on,
        record: true,
        echoes_what_left: options.path,
        options: options.options.clone(),
        defines: options.defines.iter().cloned().collect(),
        ..Options::default()
    };
    let ours = match script::run(text, &how(Machine::Stack)) {
        Ok(report) => report,
        Err(mismatch) => return Verdict::Left(format!("{mismatch}")),
    };
    if Duration::from_nanos(ours.elapsed_ns) > Duration::from_secs(options.longest) {
        return Verdict::Left(format!("takes {} s", ours.elapsed_ns / 1_000_000_000));
    }
    let mut first = None;
    for play in 1..=PLAYS_MAX {
        let kernel = match script::run(text, &how(Machine::Kernel)) {
            Ok(report) => report,
            Err(mismatch) => return Verdict::Left(format!("on the kernel: {mismatch}")),
        };
        let found = differences(
            ["ours", "kernel"],
            [&ours.record, &kernel.record],
            tolerance_us,
        );
        if found.is_empty() {
            return Verdict::Same(play);
        }
        first.get_or_insert_with(|| match is_verbose {
            true => in_full(text, &found, [&ours.record, &kernel.record]),
            false => found.join("\n"),
        });
    }
    Verdict::Differs(first.unwrap_or_default())
}

fn in_full(script: &str, found: &[String], [ours, kernel]: [&Record; 2]) -> String {
    format!(
        "{}\n--- script\n{script}--- ours\n{}--- kernel\n{}",
        found.join("\n"),
        ours.display(),
        kernel.display()
    )
}

fn show(subject: &Subject, verdict: &Verdict, is_generated: bool) {
    let name = &subject.name;
    match verdict {
        Verdict::Same(_) if is_generated => {}
        Verdict::Same(1) => println!("{name}: same"),
        Verdict::Same(play) => println!("{name}: same (play {play})"),
        Verdict::Differs(how) => println!("{name}: differs: {how}"),
        Verdict::Left(why) => println!("{name}: not compared: {why}"),
    }
}
