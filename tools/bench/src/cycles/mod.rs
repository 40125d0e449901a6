//! `cargo xtask bench cycles`: instructions of a transaction and of a segment, and where the
//! server's cycles go.
//!
//! Callgrind counts instructions over both ends in one thread, on a virtual clock and with a fixed
//! seed. Two runs that differ in nothing but the number of transactions are subtracted, so set-up
//! falls out. The counts do not depend on how busy the machine is, and are compared with a baseline
//! in the repository. Cycles are counted by the time-stamp counter ([`stages`]), in a `bench` that
//! was built for that.

mod callgrind;
mod ends;
mod preload;
mod stages;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::measure::Plan;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::frame::outcome::number;
use super::frame::{Figure, Goal, Outcome, Point, Series, Spread};
use callgrind::{Counted, Load};
use mill::failure::Failure;

/// Share by which instructions may rise above the baseline before the check fails.
const RISE_MAX: f64 = 0.02;
/// Functions that the profile shows.
const FUNCTIONS_SHOWN: usize = 30;
/// Transactions of the shorter run, for each connection: caches are warm and tables have reached
/// their size.
const TRANSACTIONS_FIRST: u64 = 8;
/// Transactions that the longer run has more than the shorter one.
const TRANSACTIONS_MORE: u64 = 3_000;

/// Options of `cargo xtask bench cycles`.
#[derive(Args, Clone, Debug)]
pub struct CyclesOptions {
    /// Compare with the baseline, and fail if any count is more than 2 % above it
    #[arg(long)]
    pub check: bool,
    /// Write the counts into the baseline
    #[arg(long, conflicts_with = "check")]
    pub update: bool,
    /// The baseline
    #[arg(long, value_name = "FILE", default_value = "tools/bench/cycles.json")]
    pub baseline: PathBuf,
    /// A `bench` that was built with the feature `stage-cycles`, to say where the server's cycles
    /// go
    #[arg(long, value_name = "FILE")]
    pub stages: Option<PathBuf>,
    /// Show the functions that take the most
    #[arg(long)]
    pub profile: bool,
    /// Only the first case
    #[arg(long)]
    pub quick: bool,
    /// Write the figures into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// A load whose instructions are counted.
struct Case {
    name: &'static str,
    connections: usize,
    messages: u64,
    response_bytes: usize,
    pairs: u64,
    /// The time at which a capture is on, as the `--capture` of `one-thread` names it.
    capture: Option<&'static str>,
    /// Packet rules of each server.
    rules: u32,
}

const CASES: &[Case] = &[
    Case {
        name: "one message per connection, 64 at once",
        connections: 64,
        messages: 1,
        response_bytes: 64,
        pairs: 1,
        capture: None,
        rules: 0,
    },
    Case {
        name: "one message per connection, 1,024 at once",
        connections: 1_024,
        messages: 1,
        response_bytes: 64,
        pairs: 1,
        capture: None,
        rules: 0,
    },
    Case {
        name: "one message per connection, 8 pairs of stacks, 64 at once on each",
        connections: 512,
        messages: 1,
        response_bytes: 64,
        pairs: 8,
        capture: None,
        rules: 0,
    },
    Case {
        name: "connections that stay, 64 at once",
        connections: 64,
        messages: 0,
        response_bytes: 64,
        pairs: 1,
        capture: None,
        rules: 0,
    },
    Case {
        name: "responses of 256 KiB, one connection",
        connections: 1,
        messages: 0,
        response_bytes: 256 * 1024,
        pairs: 1,
        capture: None,
        rules: 0,
    },
    Case {
        name: "one message per connection, 64 at once, after a capture",
        connections: 64,
        messages: 1,
        response_bytes: 64,
        pairs: 1,
        capture: Some("before"),
        rules: 0,
    },
    Case {
        name: "one message per connection, 64 at once, while captured",
        connections: 64,
        messages: 1,
        response_bytes: 64,
        pairs: 1,
        capture: Some("during"),
        rules: 0,
    },
    Case {
        name: "one message per connection, 64 at once, while beginnings, ends and samples are captured",
        connections: 64,
        messages: 1,
        response_bytes: 64,
        pairs: 1,
        capture: Some("filtered"),
        rules: 0,
    },
    Case {
        name: "one message per connection, 64 at once, one packet rule",
        connections: 64,
        messages: 1,
        response_bytes: 64,
        pairs: 1,
        capture: None,
        rules: 1,
    },
    Case {
        name: "one message per connection, 64 at once, 10,000 packet rules",
        connections: 64,
        messages: 1,
        response_bytes: 64,
        pairs: 1,
        capture: None,
        rules: 10_000,
    },
];

/// Instructions of one case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub per_transaction: f64,
    pub per_segment: f64,
    pub segments_per_transaction: f64,
}

impl Cost {
    /// The part by which a long run exceeds a short one.
    fn between(short: &Counted, long: &Counted) -> Self {
        let transactions = (long.transactions - short.transactions) as f64;
        let segments = (long.segments - short.segments) as f64;
        let instructions = (long.instructions - short.instructions) as f64;
        Self {
            per_transaction: instructions / transactions,
            per_segment: instructions / segments,
            segments_per_transaction: segments / transactions,
        }
    }
}

type Costs = BTreeMap<String, Cost>;

/// Counts, compares, prints.
pub fn cycles(options: &CyclesOptions) -> Result<(), Failure> {
    let mut outcome = Outcome::new(
        "cycles",
        "Instructions are counted by callgrind: both ends of Millstream in one thread over an in-process link, fixed seed, virtual clock; the difference of two runs that \
         differ in the number of transactions only. Both stacks and both applications count. Cycles are the time-stamp counter's.",
    );
    let words: Vec<String> = std::env::args().skip(1).collect();
    outcome.parameter("command", format!("cargo xtask bench {}", words.join(" ")));
    outcome.parameter(
        "transactions counted",
        format!("{TRANSACTIONS_MORE}, of 256 KiB as many fewer as they are longer; before them {TRANSACTIONS_FIRST} for each connection"),
    );
    let cases = if options.quick { &CASES[..1] } else { CASES };
    let mut costs = Costs::new();
    for (index, case) in cases.iter().enumerate() {
        let (cost, functions) = measure(case).map_err(Failure::Run)?;
        eprintln!(
            "{}: {} instructions per transaction, {} per segment, {:.2} segments",
            case.name,
            number(cost.per_transaction.round()),
            number(cost.per_segment.round()),
            cost.segments_per_transaction
        );
        costs.insert(case.name.to_owned(), cost);
        if index == 0 {
            show(&functions, options.profile, &mut outcome);
        }
    }
    add_figures(&costs, &mut outcome);
    ends::measure(options.quick, &mut costs, &mut outcome).map_err(Failure::Run)?;
    preload::measure(&mut outcome).map_err(Failure::Run)?;
    if let Some(program) = &options.stages {
        stages::add(program, &mut outcome);
    }
    if options.update {
        write(&options.baseline, &costs).map_err(Failure::Usage)?;
    }
    match &options.out {
        Some(directory) => outcome.write(directory).map_err(Failure::Run)?,
        None => print!("{}", outcome.markdown()),
    }
    if options.check {
        let baseline = read(&options.baseline).map_err(Failure::Usage)?;
        return check(&costs, &baseline).map_err(Failure::Run);
    }
    Ok(())
}

/// Counts a case. The cost is the difference of a long run and a short one.
fn measure(case: &Case) -> Result<(Cost, Vec<(String, f64)>), String> {
    // A response of 256 KiB costs as much as many small ones, so fewer are counted.
    let weight = (case.response_bytes as u64 / 4_096).max(1);
    let run = |transactions: u64| {
        let plan = Plan {
            connections: case.connections,
            messages: case.messages,
            response_bytes: case.response_bytes,
            transactions,
            ..Plan::default()
        };
        let mut words = plan.words();
        words.extend(["--pairs".to_owned(), case.pairs.to_string()]);
        words.extend(case.capture.map(|time| format!("--capture={time}")));
        if case.rules > 0 {
            words.extend(["--rules".to_owned(), case.rules.to_string()]);
        }
        callgrind::count(&Load {
            command: &["one-thread", "--virtual-clock"],
            words: &words,
            within: None,
            variables: &[],
        })
    };
    let first = TRANSACTIONS_FIRST * case.connections as u64 / weight.min(8);
    let (short, long) = (run(first)?, run(first + TRANSACTIONS_MORE / weight)?);
    let transactions = (long.transactions - short.transactions) as f64;
    let cost = Cost::between(&short, &long);
    Ok((cost, by_function(&short, &long, transactions)))
}

/// Instructions of each function per transaction, the most first.
fn by_function(short: &Counted, long: &Counted, transactions: f64) -> Vec<(String, f64)> {
    let of = |name: &String| {
        let before = short.functions.get(name).copied().unwrap_or(0) as f64;
        (long.functions[name] as f64 - before) / transactions
    };
    let mut rows: Vec<_> = long
        .functions
        .keys()
        .map(|name| (name.clone(), of(name)))
        .collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    rows
}

fn show(functions: &[(String, f64)], print: bool, outcome: &mut Outcome) {
    let shown = &functions[..functions.len().min(FUNCTIONS_SHOWN)];
    if print {
        for (name, cost) in shown {
            eprintln!("{cost:9.1}  {name}");
        }
    }
    let series = shown.iter().map(|(name, cost)| single(name, *cost));
    outcome.figures.push(Figure {
        id: "functions".to_owned(),
        title: format!(
            "{}: the functions that take the most themselves",
            CASES[0].name
        ),
        x: "rank".to_owned(),
        y: "instructions per transaction".to_owned(),
        falls: true,
        compares: false,
        series: series.collect(),
    });
}

fn single(name: &str, value: f64) -> Series {
    Series {
        system: name.to_owned(),
        points: vec![Point {
            x: 1.0,
            y: Spread::of([value]),
        }],
    }
}

fn add_figures(costs: &Costs, outcome: &mut Outcome) {
    for (id, y, reading) in [
        (
            "transaction",
            "instructions per transaction",
            (|cost| cost.per_transaction) as fn(&Cost) -> f64,
        ),
        ("segment", "instructions per segment", |cost| {
            cost.per_segment
        }),
    ] {
        outcome.add(Figure {
            id: id.to_owned(),
            title: y.to_owned(),
            x: "run".to_owned(),
            y: y.to_owned(),
            falls: true,
            compares: false,
            series: costs
                .iter()
                .map(|(name, cost)| single(name, reading(cost)))
                .collect(),
        });
    }
    let of = |case: &Case| costs.get(case.name).map(|cost| cost.per_transaction);
    let found = of(&CASES[0]).zip(of(&CASES[2]));
    let found = found.map(|(one, eight)| (eight / one, format!("{eight:.0} against {one:.0}")));
    let goal = Goal::at_most(
        "instructions of a transaction with 8 pairs of stacks in one thread against one pair",
        (1.02, 1.0),
    );
    outcome.judge(goal, found);
    let found = of(&CASES[0]).zip(of(&CASES[5]));
    let found = found.map(|(never, off)| (off / never, format!("{off:.0} against {never:.0}")));
    let goal = Goal::at_most(
        "instructions of a transaction with a capture switched off again against none ever",
        (1.002, 1.0),
    );
    outcome.judge(goal, found);
    let found = of(&CASES[0]).zip(of(&CASES[8]));
    let found = found.map(|(none, ruled)| (ruled / none, format!("{ruled:.0} against {none:.0}")));
    let goal = Goal::at_most(
        "instructions of a transaction with 10,000 packet rules against none",
        (1.03, 1.01),
    );
    outcome.judge(goal, found);
}

fn read(path: &Path) -> Result<Costs, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, costs: &Costs) -> Result<(), String> {
    let text = format!("{:#}\n", serde_json::json!(costs));
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Compares every count with the baseline, whose cases must all have been counted. The error names
/// counts that have risen too far, and cases whose load has changed.
fn check(costs: &Costs, baseline: &Costs) -> Result<(), String> {
    let mut wrong: Vec<String> = baseline
        .keys()
        .filter(|name| !costs.contains_key(*name))
        .map(|name| format!("{name}: in the baseline, and not counted"))
        .collect();
    for (name, cost) in costs {
        match baseline.get(name) {
            Some(base) => compare(name, cost, base, &mut wrong),
            None => wrong.push(format!(
                "{name}: not in the baseline; `--update` puts it there"
            )),
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("; ")),
    }
}

fn compare(name: &str, cost: &Cost, base: &Cost, wrong: &mut Vec<String>) {
    let counts = [
        ("transaction", cost.per_transaction, base.per_transaction),
        ("segment", cost.per_segment, base.per_segment),
    ];
    for (what, count, before) in counts {
        let rise = count / before - 1.0;
        let line = format!(
            "{name}: {count:.0} instructions per {what}, {before:.0} in the baseline: {:+.2} %",
            rise * 100.0
        );
        eprintln!("{line}");
        if rise > RISE_MAX {
            wrong.push(line);
        } else if rise < -RISE_MAX {
            eprintln!("  `cargo xtask bench cycles --update` keeps what was gained");
        }
    }
    let (segments, before) = (cost.segments_per_transaction, base.segments_per_transaction);
    if (segments / before - 1.0).abs() > RISE_MAX {
        wrong.push(format!(
            "{name}: {segments:.3} segments per transaction, {before:.3} in the baseline: another load; `--update` if it is meant"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(per_transaction: f64, segments_per_transaction: f64) -> Costs {
        let cost = Cost {
            per_transaction,
            per_segment: per_transaction / segments_per_transaction,
            segments_per_transaction,
        };
        Costs::from([("case".to_owned(), cost)])
    }

    fn costs(per_transaction: f64) -> Costs {
        load(per_transaction, 9.0)
    }

    #[test]
    fn two_percent_more_are_too_many_and_less_is_welcome() {
        assert!(check(&costs(10_190.0), &costs(10_000.0)).is_ok());
        assert!(check(&costs(5_000.0), &costs(10_000.0)).is_ok());
        let cause = check(&costs(10_210.0), &costs(10_000.0)).unwrap_err();
        assert!(cause.contains("+2.10 %"), "{cause}");
        assert!(check(&costs(1.0), &Costs::new()).is_err());
    }

    #[test]
    fn another_load_is_no_gain_and_a_case_that_is_gone_is_missed() {
        let cause = check(&load(7_000.0, 6.0), &costs(10_000.0)).unwrap_err();
        assert!(cause.contains("6.000 segments"), "{cause}");
        let cause = check(&load(10_000.0, 8.9), &costs(10_000.0));
        assert!(cause.is_ok(), "{cause:?}");
        assert!(check(&Costs::new(), &costs(1.0)).is_err());
    }
}
