//! `cargo xtask script --compare`: plays each script on our stack and on this machine's kernel,
//! expects nothing of either, and shows where they differ.
//!
//! A kernel in real time does not behave the same way every time: its clock ticks, and other
//! programs run. A script that differs is therefore played on the kernel again, and a difference
//! counts only if every play shows it. The class of the difference is that of the first deviation
//! in the first play. A difference counts as a timer's if our stack does the same as the kernel
//! once its timers fire with ticks.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use script::{Difference, Machine, Options, Record, differences, random, states};

use super::{Failure, ScriptOptions, read};

/// The class of a difference that is only a timer's.
const TIMER: &str = "timers: the same once ours fire when a kernel's do";
/// Number of clock phases that are tried, and ms from one to the next. They cover the 256 ms
/// between the coarsest timers, which fire with every 64th tick of 4 ms.
const CLOCKS: u16 = 32;
const CLOCKS_APART_MS: u16 = 73;
/// Names of scripts that the table shows for each class.
const NAMES_MAX: usize = 12;
/// Plays on the kernel before a script counts as different.
const PLAYS_MAX: usize = 3;
/// Tolerance of times, in ms.
const TOLERANCE_MS: u32 = 30;

/// A script to be compared, and its name in the output.
struct Subject {
    name: String,
    text: String,
}

/// The result of a comparison.
enum Verdict {
    /// No difference in this play, counted from 1.
    Same(usize),
    /// The class of the first difference in the first play, and the text that shows all of them.
    Differs(String, String),
    /// Not compared, and the reason.
    Left(String),
}

/// Compares all scripts, several at a time. Prints a line for each file, and for each seed or cell
/// that differs or could not be compared.
pub(super) fn compare(options: &ScriptOptions, is_verbose: bool) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        let why = "a network namespace of its own for the kernel needs root";
        return Err(Failure::Usage(why.to_owned()));
    }
    let subjects = Mutex::new(subjects(options)?.into_iter());
    let (verdicts, results) = mpsc::channel();
    let mut counts = [0; 4];
    let mut classes: BTreeMap<String, Vec<String>> = BTreeMap::new();
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
                Verdict::Differs(class, _) => {
                    let names = classes.entry(class.clone()).or_default();
                    names.push(subject.name.clone());
                    2
                }
                Verdict::Left(_) => 3,
            };
            counts[place] += 1;
            let is_generated = options.random.is_some() || options.states;
            show(&subject, &verdict, is_generated);
        }
    });
    show_classes(classes);
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
    let how_to_play = |on| Options {
        on,
        record: true,
        echoes_what_left: options.path,
        options: options.options.clone(),
        defines: options.defines.iter().cloned().collect(),
        ..Options::default()
    };
    let ours = match script::run(text, &how_to_play(Machine::Stack)) {
        Ok(report) => report,
        Err(mismatch) => return Verdict::Left(format!("{mismatch}")),
    };
    if Duration::from_nanos(ours.elapsed_ns) > Duration::from_secs(options.longest) {
        return Verdict::Left(format!("takes {} s", ours.elapsed_ns / 1_000_000_000));
    }
    let mut first = None;
    let mut kernels = Vec::new();
    for play in 1..=PLAYS_MAX {
        let kernel = match script::run(text, &how_to_play(Machine::Kernel)) {
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
        first.get_or_insert_with(|| {
            let records = is_verbose.then_some([&ours.record, &kernel.record]);
            (found[0].class.clone(), in_full(text, &found, records))
        });
        kernels.push(kernel.record);
    }
    let (class, how) = first.unwrap_or_default();
    let is_timer = is_a_timer(&kernels, tolerance_us, |ticks_ms| {
        let ours = script::run(
            text,
            &Options {
                ticks_ms: Some(ticks_ms),
                ..how_to_play(Machine::Stack)
            },
        );
        ours.ok().map(|report| report.record)
    });
    match is_timer {
        true => Verdict::Differs(TIMER.to_owned(), format!("{TIMER}\n{how}")),
        false => Verdict::Differs(class, how),
    }
}

/// Whether our stack repeats one of the kernel's plays once our timers fire with a kernel's ticks.
fn is_a_timer(kernels: &[Record], tolerance_us: i64, ours: impl Fn(u16) -> Option<Record>) -> bool {
    let is_same = |ours: &Record, kernel: &Record| {
        differences(["ours", "kernel"], [ours, kernel], tolerance_us).is_empty()
    };
    (0..CLOCKS)
        .filter_map(|clock| ours(clock * CLOCKS_APART_MS))
        .any(|ours| kernels.iter().any(|kernel| is_same(&ours, kernel)))
}

fn in_full(script: &str, found: &[Difference], records: Option<[&Record; 2]>) -> String {
    let found = found
        .iter()
        .map(|one| format!("{}\n{}", one.class, one.text));
    let found: Vec<String> = found.collect();
    let found = found.join("\n");
    let Some([ours, kernel]) = records else {
        return found;
    };
    format!(
        "{found}\n--- script\n{script}--- ours\n{}--- kernel\n{}",
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
        Verdict::Differs(_, how) => println!("{name}: differs: {how}"),
        Verdict::Left(why) => println!("{name}: not compared: {why}"),
    }
}

/// Prints the classes, the largest first: how many scripts differ in each, and the names of some.
fn show_classes(classes: BTreeMap<String, Vec<String>>) {
    let mut classes: Vec<_> = classes.into_iter().collect();
    classes.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    for (class, mut names) in classes {
        let count = names.len();
        let more = if count > NAMES_MAX { ", …" } else { "" };
        names.truncate(NAMES_MAX);
        println!("{count:>5}  {class}  ({}{more})", names.join(", "));
    }
}
