//! Instructions of one end of a bulk transfer, per full segment. The receiver's depend on the limit
//! of aggregation and on the fate of its ACKs (figures 7 and 11 of Menon and Zwaenepoel, USENIX ATC
//! 2008). They also depend on the number of flows that interleave (their section 3.5).

use super::callgrind::{self, Counted, Load};
use super::{Cost, Costs};
use crate::frame::{Figure, Goal, Outcome, Point, Series, Spread};

/// Mebibytes of the shorter run: windows and buffers have reached their size.
const MEBIBYTES_FIRST: u64 = 4;
/// Mebibytes of the longer one.
const MEBIBYTES: u64 = 12;
/// Mebibytes of both runs where the receiver takes whole batches. The windows reach their size in
/// the shorter run, which takes 12 MiB.
const MEBIBYTES_IN_BATCHES: (u64, u64) = (32, 48);
/// Flows that interleave frame by frame.
const FLOWS: u16 = 64;
/// Frames of a batch of one flow, as `bulk-thread` lends them.
const BATCH_FRAMES: u16 = 256;
/// Limits of aggregation in figure 11, in segments.
const LIMITS: [u16; 6] = [1, 2, 5, 10, 20, 40];
/// Range of ACKs for each full segment: one for two. Not checked where one ACK stands for all.
const ACKS_PER_SEGMENT: std::ops::Range<f64> = 0.45..0.55;
/// Treatment of ACKs, with the name that figures use.
const ACKS: [(&str, &str); 3] = [
    ("off", "each ACK made alone"),
    ("on", "ACKs expanded from a template"),
    ("merge", "one ACK for all"),
];

/// Counts every case; with `quick` only one of the receiver's, and the sender's.
pub fn measure(quick: bool, costs: &mut Costs, outcome: &mut Outcome) -> Result<(), String> {
    let limits = if quick { &LIMITS[4..5] } else { &LIMITS[..] };
    let acks = if quick { &ACKS[1..2] } else { &ACKS[..] };
    let mut series = Vec::new();
    for (acks, named) in acks {
        let mut points = Vec::new();
        for &limit in limits {
            let options = [
                ("--aggregation-max", limit.to_string()),
                ("--acks", (*acks).to_owned()),
            ];
            let name = receiver(limit, acks);
            let cost = end("receiver", &name, (MEBIBYTES_FIRST, MEBIBYTES), &options)?;
            if *acks != "merge" {
                check_acks(&name, &cost)?;
            }
            points.push(Point {
                x: f64::from(limit),
                y: Spread::of([cost.per_transaction]),
            });
            costs.insert(name, cost);
        }
        series.push(Series {
            system: (*named).to_owned(),
            points,
        });
    }
    let sender = "bulk, MTU 1500, sender, a full segment";
    let cost = end("sender", sender, (MEBIBYTES_FIRST, MEBIBYTES), &[])?;
    check_acks(sender, &cost)?;
    costs.insert(sender.to_owned(), cost);
    if !quick {
        measure_interleaved(costs, outcome)?;
    }
    outcome.add(Figure {
        id: "receiver".to_owned(),
        title: "Receiver of bulk, MTU 1500, an ACK for every second segment".to_owned(),
        x: "limit of aggregation, in segments".to_owned(),
        y: "instructions per full segment".to_owned(),
        falls: true,
        compares: true,
        series,
    });
    let of = |limit, acks| costs.get(&receiver(limit, acks));
    let found = of(1, "off").zip(of(20, "on")).map(|(off, on)| {
        let (off, on) = (off.per_transaction, on.per_transaction);
        (
            off / on,
            format!("{off:.0} against {on:.0} per full segment"),
        )
    });
    let goal = Goal::at_least(
        "receive aggregation and ACK offload: receiver's instructions, off against on",
        (1.5, 2.0),
    );
    outcome.judge(goal.elsewhere("1.45 to 1.86 × by time (ATC'08)"), found);
    Ok(())
}

fn receiver(limit: u16, acks: &str) -> String {
    format!("bulk, MTU 1500, receiver, a full segment, aggregation {limit}, ACK offload {acks}")
}

/// Counts one flow, and many that interleave frame by frame, in batches of the same length.
fn measure_interleaved(costs: &mut Costs, outcome: &mut Outcome) -> Result<(), String> {
    let mut each = [0.0; 2];
    for (at, (flows, burst)) in [(1, BATCH_FRAMES), (FLOWS, 1)].into_iter().enumerate() {
        let flows_named = match flows {
            1 => "one flow".to_owned(),
            _ => format!("{flows} flows frame by frame"),
        };
        let name = format!(
            "bulk, MTU 1500, receiver, a full segment, {flows_named} in batches of {BATCH_FRAMES}"
        );
        let options = [
            ("--flows", flows.to_string()),
            ("--burst", burst.to_string()),
        ];
        let cost = end("receiver", &name, MEBIBYTES_IN_BATCHES, &options)?;
        check_acks(&name, &cost)?;
        each[at] = cost.per_transaction;
        costs.insert(name, cost);
    }
    let [one, many] = each;
    let goal = Goal::at_most(
        "receiver's instructions per full segment, 64 flows that interleave frame by frame against one",
        (1.15, 1.05),
    );
    let found = (many / one, format!("{many:.0} against {one:.0}"));
    outcome.judge(goal, Some(found));
    Ok(())
}

/// Counts two runs of these lengths in mebibytes. The cost is their difference.
fn end(
    side: &str,
    name: &str,
    (short, long): (u64, u64),
    options: &[(&str, String)],
) -> Result<Cost, String> {
    let run = |mebibytes: u64| {
        let length = ("--mebibytes", mebibytes.to_string());
        let mut words: Vec<String> = std::iter::once(&length)
            .chain(options)
            .flat_map(|(option, value)| [(*option).to_owned(), value.clone()])
            .collect();
        if options.iter().any(|(option, _)| *option == "--burst") {
            words.push("--count-uneven".to_owned());
        }
        callgrind::count(&Load {
            command: &["bulk-thread"],
            words: &words,
            within: Some(format!("*{side}_turn*")),
            variables: &[],
        })
    };
    let (short, long) = (run(short)?, run(long)?);
    check_evenness(name, &short, &long)?;
    let cost = Cost::between(&short, &long);
    eprintln!(
        "{name}: {:.0} instructions per full segment",
        cost.per_transaction
    );
    Ok(cost)
}

/// Checks that all bursts that are counted had the frames that the load asks for. A flow that waits
/// for its window sends in a row afterwards, and a row of frames is cheaper than frames that
/// interleave.
fn check_evenness(name: &str, short: &Counted, long: &Counted) -> Result<(), String> {
    match long.uneven_bursts - short.uneven_bursts {
        0 => Ok(()),
        bursts => Err(format!(
            "{name}: {bursts} bursts were longer or shorter, since flows waited for their windows"
        )),
    }
}

/// Checks that there was one ACK for two segments. Another share of ACKs would be another load.
fn check_acks(name: &str, cost: &Cost) -> Result<(), String> {
    let acks_per_segment = cost.segments_per_transaction - 1.0;
    if ACKS_PER_SEGMENT.contains(&acks_per_segment) {
        return Ok(());
    }
    Err(format!(
        "{name}: {acks_per_segment:.3} ACKs for each full segment; one for two is what is to be counted"
    ))
}
