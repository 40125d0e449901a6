//! Instructions of one end of a bulk transfer, per full segment. The receiver's depend on the limit
//! of aggregation and on the fate of its ACKs (figures 7 and 11 of Menon and Zwaenepoel, USENIX ATC
//! 2008).

use super::callgrind::{self, Load};
use super::{Cost, Costs};
use crate::frame::{Figure, Goal, Outcome, Point, Series, Spread};

/// Mebibytes of the shorter run: windows and buffers have reached their size.
const MEBIBYTES_FIRST: u64 = 4;
/// Mebibytes of the longer one.
const MEBIBYTES: u64 = 12;
/// The limits of figure 11.
const LIMITS: [u16; 6] = [1, 2, 5, 10, 20, 40];
/// ACKs for each full segment, unless one stands for all: one for two.
const ACKS_PER_SEGMENT: std::ops::Range<f64> = 0.45..0.55;
/// Treatment of ACKs, with the name that figures use.
const ACKS: [(&str, &str); 3] = [
    ("off", "each ACK made alone"),
    ("on", "ACKs expanded from a template"),
    ("merge", "one ACK for all"),
];

/// Counts every case, of which `quick` leaves one.
pub fn measure(quick: bool, costs: &mut Costs, outcome: &mut Outcome) -> Result<(), String> {
    let limits = if quick { &LIMITS[4..5] } else { &LIMITS[..] };
    let acks = if quick { &ACKS[1..2] } else { &ACKS[..] };
    let mut series = Vec::new();
    for (acks, named) in acks {
        let mut points = Vec::new();
        for &limit in limits {
            let cost = end("receiver", limit, acks)?;
            points.push(Point {
                x: f64::from(limit),
                y: Spread::of([cost.per_transaction]),
            });
            costs.insert(receiver(limit, acks), cost);
        }
        series.push(Series {
            system: (*named).to_owned(),
            points,
        });
    }
    costs.insert(
        "bulk, MTU 1500, sender, a full segment".to_owned(),
        end("sender", 20, "on")?,
    );
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

/// The difference of a long run and a short one.
fn end(side: &str, limit: u16, acks: &str) -> Result<Cost, String> {
    let run = |mebibytes: u64| {
        let options = [
            ("--mebibytes", mebibytes.to_string()),
            ("--aggregation-max", limit.to_string()),
            ("--acks", acks.to_owned()),
        ];
        let words: Vec<String> = options
            .into_iter()
            .flat_map(|(name, value)| [name.to_owned(), value])
            .collect();
        callgrind::count(&Load {
            command: &["bulk-thread"],
            words: &words,
            within: Some(format!("*{side}_turn*")),
        })
    };
    let (short, long) = (run(MEBIBYTES_FIRST)?, run(MEBIBYTES)?);
    let cost = Cost::between(&short, &long);
    // Without ACKs nothing would be said of what becomes of them.
    let acks_per_segment = cost.segments_per_transaction - 1.0;
    if acks != "merge" && !ACKS_PER_SEGMENT.contains(&acks_per_segment) {
        return Err(format!(
            "bulk, {side}, aggregation {limit}: {acks_per_segment:.3} ACKs for each full segment; one for two is what is to be counted"
        ));
    }
    eprintln!(
        "bulk, {side}, aggregation {limit}, ACK offload {acks}: {:.0} instructions per full segment",
        cost.per_transaction
    );
    Ok(cost)
}
