//! `cargo xtask bench bulk`: long transfers, one flow and many, at several frame sizes, in both
//! directions, and how evenly many downloads share.
//!
//! [`side`] is one end; it is the same code for Millstream and the kernel.

mod bursts;
mod interleaved;
mod offload;
pub mod one_thread;
mod paper;
mod run;
mod side;

use clap::Args;

use super::frame::turns::{self, Case};
use super::frame::{Figure, Goal, Outcome, Point, Repeats, Series, Spread, machine};
use crate::profile::attribution::{Received, Work};
use crate::published;
use mill::failure::Failure;
use mill::net::options::Acks;
pub use side::{SideOptions, side};

/// Options of `cargo xtask bench bulk`.
#[derive(Args, Clone, Debug)]
pub struct BulkOptions {
    /// Figures to measure: 7, 8, 9, 11, 12 and table1 of Menon and Zwaenepoel (USENIX ATC 2008),
    /// `interleaved`, `offload`, or the name of a study; all if none is named
    #[arg(long = "figure", value_name = "NAME", value_delimiter = ',')]
    pub figures: Vec<String>,
    #[command(flatten)]
    pub repeats: Repeats,
}

/// A stack, a wire, and the bytes of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    /// Millstream over memif with packets of so many bytes. The application's thread runs the
    /// stack.
    Memif(usize),
    /// The same with a thread for the stack, on the application's core.
    Dedicated(usize),
    /// As `Memif` at an MTU of 1500, with this limit of receive aggregation (in segments) and this
    /// treatment of ACKs.
    Aggregated(u16, Acks),
    /// The same in one thread, where the receiver takes a whole batch in each turn. Over memif, a
    /// receiver that is faster than its sender takes small batches.
    Saturated(u16, Acks),
    KernelVeth(usize),
    KernelLoopback,
    /// Both ends in one thread.
    Smoltcp(usize),
    /// Both ends in one process.
    Gvisor(usize),
    /// A Millstream sender whose flows interleave in bursts of so many segments (0: lengths from 2
    /// to 20), and this receiver.
    Interleaved(Wired, usize),
    /// A kernel client over veth with all offloads, and this server.
    Receiver(Receiver),
}

/// The server that a kernel client sends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiver {
    Kernel,
    Xdp,
    Packet,
}

impl Receiver {
    /// The `--wire` of this server, on `device` of a veth pair.
    fn wire(self, device: &str) -> String {
        match self {
            Self::Kernel => "kernel".to_owned(),
            Self::Xdp => format!("xdp:{device}"),
            Self::Packet => format!("packet:{device}"),
        }
    }
}

impl std::fmt::Display for Receiver {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Kernel => "kernel, veth",
            Self::Xdp => "Millstream on AF_XDP, veth",
            Self::Packet => "Millstream on a packet socket, veth",
        })
    }
}

/// The receiver of interleaved flows, and its wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wired {
    /// Millstream over memif.
    Memif(Merging),
    /// Millstream on AF_XDP over veth.
    Xdp(Merging),
    /// The kernel over veth, which merges what arrives (GRO) or does not.
    Kernel { merges: bool },
    /// Millstream in one thread with its sender, by batches of 256 frames.
    OneThread(Merging),
}

/// Receive aggregation and ACK offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merging {
    Off,
    On,
}

impl Merging {
    fn options(self) -> (u16, Acks) {
        match self {
            Self::Off => OFF,
            Self::On => ON,
        }
    }
}

impl Wired {
    /// Options of both ends.
    fn words(self) -> Vec<String> {
        let (limit, acks) = match self {
            Self::Memif(merging) | Self::Xdp(merging) | Self::OneThread(merging) => {
                merging.options()
            }
            Self::Kernel { .. } => ON,
        };
        let limit = limit.to_string();
        let words = ["--aggregation-max", &limit, "--acks", acks.name()];
        words.map(str::to_owned).to_vec()
    }
}

impl std::fmt::Display for Wired {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (stack, merging) = match self {
            Self::Memif(merging) => ("Millstream, memif", merging),
            Self::Xdp(merging) => ("Millstream, AF_XDP on veth", merging),
            Self::OneThread(merging) => ("Millstream, one thread", merging),
            Self::Kernel { merges: true } => return write!(formatter, "kernel, veth, GRO on"),
            Self::Kernel { merges: false } => return write!(formatter, "kernel, veth, GRO off"),
        };
        match merging {
            Merging::On => write!(formatter, "{stack}, aggregation and ACK offload"),
            Merging::Off => write!(formatter, "{stack}, neither"),
        }
    }
}

impl System {
    /// True if both ends share a process, so that the CPU time of each is unknown. Such systems are
    /// measured with one flow only.
    fn is_together(self) -> bool {
        matches!(self, Self::Smoltcp(_) | Self::Gvisor(_))
    }
}

impl turns::System for System {
    fn is_ours(self) -> bool {
        !matches!(
            self,
            Self::KernelVeth(_)
                | Self::KernelLoopback
                | Self::Smoltcp(_)
                | Self::Gvisor(_)
                | Self::Interleaved(Wired::Kernel { .. }, _)
                | Self::Receiver(Receiver::Kernel)
        )
    }
}

impl std::fmt::Display for System {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memif(mtu) => write!(formatter, "Millstream, memif, MTU {mtu}"),
            Self::Dedicated(mtu) => {
                write!(formatter, "Millstream, memif, dedicated, MTU {mtu}")
            }
            Self::Aggregated(limit, acks) => {
                let acks = acks.name();
                write!(
                    formatter,
                    "Millstream, aggregation {limit}, ACK offload {acks}"
                )
            }
            Self::Saturated(limit, acks) => {
                let acks = acks.name();
                write!(
                    formatter,
                    "Millstream, one thread, aggregation {limit}, ACK offload {acks}"
                )
            }
            Self::KernelVeth(mtu) => {
                write!(formatter, "kernel, veth without TSO and GRO, MTU {mtu}")
            }
            Self::KernelLoopback => write!(formatter, "kernel, loopback"),
            Self::Smoltcp(mtu) => write!(formatter, "smoltcp, one thread, MTU {mtu}"),
            Self::Gvisor(mtu) => write!(formatter, "gVisor netstack, one process, MTU {mtu}"),
            Self::Interleaved(wired, _) => wired.fmt(formatter),
            Self::Receiver(receiver) => receiver.fmt(formatter),
        }
    }
}

/// Downloads in the mTCP paper's measurement of fairness.
const CROWD: usize = 8_192;
/// Factor by which a run of so many downloads is longer than others.
const CROWD_TIMES: f64 = 4.0;
/// Bytes of the largest packet: less than IPv4's length field and a buffer of 64 KiB allow.
const LARGE: usize = 65_000;
const SMALL: [System; 5] = all(1500);
const JUMBO: [System; 5] = all(9000);

/// The kernel and Millstream, then other systems, all at one MTU.
const fn all(mtu: usize) -> [System; 5] {
    [
        System::KernelVeth(mtu),
        System::Memif(mtu),
        System::Dedicated(mtu),
        System::Smoltcp(mtu),
        System::Gvisor(mtu),
    ]
}

const LONG: [System; 2] = [System::KernelLoopback, System::Memif(LARGE)];

/// Limits of receive aggregation in segments, with a treatment of ACKs, by the figures of Menon and
/// Zwaenepoel (USENIX ATC 2008). They are figure 11's limits, and figure 7's cases with and without
/// each mechanism.
const LIMITS: [(u16, Acks); 9] = [
    OFF,
    (1, Acks::On),
    (2, Acks::On),
    (5, Acks::On),
    (10, Acks::On),
    ON,
    (40, Acks::On),
    (20, Acks::Off),
    (20, Acks::Merge),
];
const OFF: (u16, Acks) = (1, Acks::Off);
const ON: (u16, Acks) = (20, Acks::On);
/// Both mechanisms off, and both on, for figure 12's many flows.
const SWITCHED: [System; 2] = [
    System::Aggregated(OFF.0, OFF.1),
    System::Aggregated(ON.0, ON.1),
];

/// One run's numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    gbit_per_second: f64,
    /// CPU time of each end for a byte; none where both ends share a process.
    receiver_ns_per_byte: Option<f64>,
    sender_ns_per_byte: Option<f64>,
    jain: f64,
    /// Cycles that the receiver spends on a packet, by kind of work; none without sampling.
    parts: Option<[f64; PARTS]>,
}

/// Kinds of a receiver's work.
const PARTS: usize = <Received as Work>::ALL.len();

/// A transfer to measure.
#[derive(Clone, Copy, Debug)]
struct Load {
    flows: usize,
    /// From the client to the server.
    up: bool,
    seconds: f64,
    warm_up: f64,
    cores: (usize, usize),
    /// The receiver's work is sampled.
    is_sampled: bool,
}

/// A figure: systems, numbers of flows, and a direction.
struct Study {
    id: &'static str,
    /// The number of the paper's figure that this one repeats.
    figure: Option<&'static str>,
    title: &'static str,
    systems: &'static [System],
    flows: &'static [usize],
    /// From the client to the server.
    up: bool,
    /// Left out of a quick measurement.
    is_long: bool,
}

/// Numbers of flows that show how evenly they share.
const MANY: &[usize] = &[1, 10, 100, 400];
/// Numbers of flows: one, and many.
const FEW: &[usize] = &[1, 100];

const STUDIES: &[Study] = &[
    Study {
        id: "1500",
        figure: None,
        title: "MTU 1500",
        systems: &SMALL,
        flows: MANY,
        up: false,
        is_long: false,
    },
    Study {
        id: "9000",
        figure: None,
        title: "MTU 9000",
        systems: &JUMBO,
        flows: MANY,
        up: false,
        is_long: false,
    },
    Study {
        id: "large",
        figure: None,
        title: "large frames",
        systems: &LONG,
        flows: MANY,
        up: false,
        is_long: false,
    },
    Study {
        id: "aggregation-flows",
        figure: Some("12"),
        title: "MTU 1500, aggregation and ACK offload, many flows (ATC'08, fig. 12)",
        systems: &SWITCHED,
        flows: &[1, 10, 50, 100, 200, 400],
        up: false,
        is_long: true,
    },
    Study {
        id: "up-1500",
        figure: None,
        title: "MTU 1500, from client to server",
        systems: &[SMALL[0], SMALL[1]],
        flows: FEW,
        up: true,
        is_long: true,
    },
    Study {
        id: "up-9000",
        figure: None,
        title: "MTU 9000, from client to server",
        systems: &[JUMBO[0], JUMBO[1]],
        flows: FEW,
        up: true,
        is_long: true,
    },
    Study {
        id: "up-large",
        figure: None,
        title: "large frames, from client to server",
        systems: &LONG,
        flows: &[1],
        up: true,
        is_long: true,
    },
    Study {
        id: "jain",
        figure: None,
        title: "8,192 downloads, MTU 1500 (mTCP, 5.2)",
        systems: &[SMALL[0], SMALL[1]],
        flows: &[CROWD],
        up: false,
        is_long: true,
    },
];

/// Measures, prints and writes.
pub fn bulk(options: &BulkOptions) -> Result<(), Failure> {
    let mut outcome = collect(options)?;
    options.repeats.settled().deliver(&mut outcome)
}

/// Measures the wanted figures.
pub fn collect(options: &BulkOptions) -> Result<Outcome, Failure> {
    options.check()?;
    let mut outcome = Outcome::new(
        "bulk",
        "One end writes as fast as it may, the other reads; whoever receives counts. From server to client unless the title says otherwise. Server and client are processes of their own, \
         each pinned to a core. smoltcp has both ends in one thread on one core, gVisor's netstack in one process on both cores, and what each end used is not told: what compares core with core is Millstream in one thread. The receiver's CPU is without the time in which it looked for more (inline); the \
         sender's is with it. Over veth neither side has segmentation or checksum offload, unless the title says otherwise. Over loopback the kernel computes no checksum.",
    );
    let repeats = options.repeats.settled();
    repeats.describe(&mut outcome);
    for study in STUDIES {
        let is_left_out = repeats.quick && study.is_long && options.figures.is_empty();
        if !is_left_out && options.wants(&[study.id, study.figure.unwrap_or(study.id)]) {
            measure(&repeats, &mut outcome, study);
        }
    }
    let title = "MTU 1500, one flow, receive aggregation and ACK offload (ATC'08, fig. 11)";
    if options.wants(&["11", "aggregation"]) {
        let figure = ("aggregation", title);
        aggregation(&repeats, &mut outcome, figure, System::Aggregated);
    }
    let title = "MTU 1500, one flow, a receiver that is never short of segments, in one thread";
    if options.wants(&["11", "saturated"]) {
        let figure = ("saturated", title);
        aggregation(&repeats, &mut outcome, figure, System::Saturated);
    }
    for own in paper::OWN {
        let is_left_out = repeats.quick && options.figures.is_empty();
        if !is_left_out && options.wants(&[own.name]) {
            (own.measure)(&repeats, &mut outcome);
        }
    }
    judge(&mut outcome);
    outcome.stated = published::lines(&outcome);
    Ok(outcome)
}

impl BulkOptions {
    /// True if a figure that has one of these names is wanted.
    fn wants(&self, names: &[&str]) -> bool {
        let is_named = |wanted: &String| names.contains(&wanted.as_str());
        self.figures.is_empty() || self.figures.iter().any(is_named)
    }

    /// Refuses names that no figure has.
    pub fn check(&self) -> Result<(), Failure> {
        let studies = STUDIES.iter().map(|study| study.id);
        let own = paper::OWN.iter().map(|own| own.name);
        let mut names: Vec<&str> = studies.chain(own).collect();
        names.extend(["11", "12", "aggregation", "saturated"]);
        match self
            .figures
            .iter()
            .find(|name| !names.contains(&name.as_str()))
        {
            None => Ok(()),
            Some(name) => Err(Failure::Usage(format!(
                "--figure {name}: not one of {}",
                names.join(", ")
            ))),
        }
    }
}

/// Values of x, each with its runs.
type Column = Vec<(f64, Vec<Seen>)>;

fn measure(repeats: &Repeats, outcome: &mut Outcome, study: &Study) {
    let quick = &study.flows[..1];
    let flows = if repeats.quick { quick } else { study.flows };
    let at = |flows: usize| {
        let fits = move |system: &System| flows == 1 || !system.is_together();
        let x = flows as f64;
        let chosen = study.systems.iter().copied().filter(fits);
        chosen.map(move |system| Case { system, x })
    };
    let cases: Vec<Case<System>> = flows.iter().flat_map(|&flows| at(flows)).collect();
    let rounds = (study.id, repeats.runs);
    let columns = turns::columns(rounds, study.systems, &cases, outcome, |case| {
        run::run(case.system, load(repeats, case.x as usize, study.up))
    });
    let named = columns
        .into_iter()
        .map(|(system, column)| (system.to_string(), column));
    let named: Vec<_> = named.collect();
    add_figures(outcome, (study.id, study.title), "flows", &named);
}

fn load(repeats: &Repeats, flows: usize, up: bool) -> Load {
    Load {
        flows,
        up,
        // Thousands of flows need longer before their shares say anything.
        seconds: match flows >= CROWD {
            true => repeats.seconds * CROWD_TIMES,
            false => repeats.seconds,
        },
        warm_up: repeats.warm_up,
        cores: (repeats.server_core, repeats.client_core),
        is_sampled: false,
    }
}

/// Measures one flow over the limit of aggregation, with a series for each treatment of ACKs.
/// `of_kind` makes the systems.
fn aggregation(
    repeats: &Repeats,
    outcome: &mut Outcome,
    named: (&str, &str),
    of_kind: fn(u16, Acks) -> System,
) {
    let limits = match repeats.quick {
        true => &[OFF, ON][..],
        false => &LIMITS[..],
    };
    let case = |&(limit, acks): &(u16, Acks)| Case {
        system: of_kind(limit, acks),
        x: f64::from(limit),
    };
    let cases: Vec<Case<System>> = limits.iter().map(case).collect();
    let systems: Vec<System> = cases.iter().map(|case| case.system).collect();
    let rounds = (named.0, repeats.runs);
    let found = turns::columns(rounds, &systems, &cases, outcome, |case| {
        run::run(case.system, load(repeats, 1, false))
    });
    let by_acks = [Acks::On, Acks::Off, Acks::Merge].map(|wanted| {
        let measured = limits.iter().zip(&found);
        let column = measured
            .filter(|((_, acks), _)| *acks == wanted)
            .flat_map(|(_, (_, runs))| runs.clone());
        (offloaded(wanted), column.collect())
    });
    let x = "limit of aggregation, in segments (1: off)";
    add_figures(outcome, named, x, &by_acks);
}

/// Name of the series with this treatment of ACKs.
fn offloaded(acks: Acks) -> String {
    match acks {
        Acks::On => "ACKs expanded from a template".to_owned(),
        Acks::Off => "each ACK made alone".to_owned(),
        Acks::Merge => "one ACK for all".to_owned(),
    }
}

/// A figure's presentation: the end of its name, the beginning of its title, its unit, whether less
/// is better, and how to read it.
struct Shown {
    end: &'static str,
    begin: &'static str,
    y: &'static str,
    falls: bool,
    reading: fn(&Seen) -> Option<f64>,
}

/// Unit of CPU time times the processor's clock.
const CYCLES: &str = "cycles per byte, at the processor's nominal rate";

const SHOWN: [Shown; 4] = [
    Shown {
        end: "",
        begin: "Bulk",
        y: "Gbit/s",
        falls: false,
        reading: |seen| Some(seen.gbit_per_second),
    },
    Shown {
        end: "-receiver",
        begin: "Receiver's CPU",
        y: CYCLES,
        falls: true,
        reading: |seen| Some(seen.receiver_ns_per_byte? * machine::gigahertz()),
    },
    Shown {
        end: "-sender",
        begin: "Sender's CPU",
        y: CYCLES,
        falls: true,
        reading: |seen| Some(seen.sender_ns_per_byte? * machine::gigahertz()),
    },
    Shown {
        end: "-jain",
        begin: "Jain's index",
        y: "index",
        falls: false,
        reading: |seen| Some(seen.jain),
    },
];

fn add_figures(
    outcome: &mut Outcome,
    (id, title): (&str, &str),
    x: &str,
    columns: &[(String, Column)],
) {
    let several = x == "flows" && columns.iter().flat_map(|c| &c.1).any(|(x, _)| *x > 1.0);
    for shown in SHOWN {
        if shown.end == "-jain" && !several {
            continue;
        }
        let point = |(x, runs): &(f64, Vec<Seen>)| {
            let values: Vec<f64> = runs.iter().filter_map(shown.reading).collect();
            let y = Spread::of(values.iter().copied());
            (!values.is_empty()).then_some(Point { x: *x, y })
        };
        let series = columns.iter().map(|(name, column)| Series {
            system: name.clone(),
            points: column.iter().filter_map(point).collect(),
        });
        outcome.add(Figure {
            id: format!("{id}{}", shown.end),
            title: format!("{}, {title}", shown.begin),
            x: x.to_owned(),
            y: shown.y.to_owned(),
            falls: shown.falls,
            compares: true,
            series: series.collect(),
        });
    }
}

/// Judges the goals for long transfers.
fn judge(outcome: &mut Outcome) {
    let rows = [
        (
            "1500",
            SMALL[1],
            SMALL[0],
            Goal::at_least(
                "one flow, MTU 1500, over memif, × kernel over veth without TSO and GRO",
                (3.0, 5.0),
            )
            .elsewhere("F-Stack 23.6 and mTCP 9.5 Gbit/s, beside the kernel's 11 to 16"),
        ),
        (
            "1500",
            SMALL[1],
            SMALL[3],
            Goal::at_least(
                "one flow, MTU 1500, over memif, on two cores, × smoltcp on one",
                (1.2, 1.2),
            ),
        ),
        (
            "large",
            LONG[1],
            LONG[0],
            Goal::at_least(
                "one flow, large frames over memif, × kernel over loopback",
                (1.0, 1.5),
            ),
        ),
    ];
    for (figure, ours, theirs, goal) in rows {
        let read = |system: System| outcome.median(figure, &system.to_string(), 1.0);
        let found = read(ours).zip(read(theirs));
        let found = found.map(|(ours, theirs)| {
            let seen = format!("{ours:.1} against {theirs:.1} Gbit/s");
            (ours / theirs, seen)
        });
        outcome.judge(goal, found);
    }
    // The same ratio with both of Millstream's ends on one core, as smoltcp's are. The goal above
    // is for two processes.
    let alone = outcome.median("saturated", &offloaded(Acks::On), f64::from(ON.0));
    let found = alone.zip(outcome.median("1500", &SMALL[3].to_string(), 1.0));
    let goal = Goal::at_least(
        "one flow, MTU 1500, both ends in one thread, × smoltcp",
        (1.2, 1.2),
    );
    let seen = |(ours, theirs)| {
        (
            ours / theirs,
            format!("{ours:.1} against {theirs:.1} Gbit/s"),
        )
    };
    outcome.judge(goal, found.map(seen));
    let receiver = |acks, limit| outcome.median("saturated-receiver", &offloaded(acks), limit);
    let found = receiver(Acks::Off, 1.0).zip(receiver(Acks::On, 20.0));
    let found = found.map(|(off, on)| (off / on, format!("{off:.2} against {on:.2} cycles")));
    let goal = Goal::at_least(
        "receive aggregation and ACK offload: receiver's CPU per byte at MTU 1500, off against on",
        (1.5, 2.0),
    );
    outcome.judge(goal.elsewhere("1.45 to 1.86 × (ATC'08)"), found);
    let index = outcome.median("jain-jain", &SMALL[1].to_string(), CROWD as f64);
    let goal = Goal::at_least("Jain's index, 8,192 downloads", (0.999, 0.9999));
    outcome.judge(
        goal.elsewhere("Linux 0.973, mTCP 0.999 (mTCP's paper)"),
        index.map(|index| (index, SMALL[1].to_string())),
    );
}
