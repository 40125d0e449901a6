//! Figure 4: frames a second through 1, 16, 64 and 254 virtual ports, as ratios to AF_XDP on the
//! NIC itself.

use std::fmt;
use std::path::Path;

use super::points;
use super::service::Service;
use super::side::{Counted, Ready};
use crate::frame::namespace::{DEVICE, Veth, VethOptions};
use crate::frame::turns::{self, Case};
use crate::frame::{Figure, Goal, Outcome, Process, Repeats, Series, jain, process};

/// Bytes of a frame without its checksum.
const FRAMES: [usize; 6] = [60, 128, 256, 512, 1024, 1514];
const FRAMES_QUICK: [usize; 2] = [60, 1514];
const PORTS: [u16; 4] = [1, 16, 64, 254];
const PORTS_QUICK: [u16; 2] = [1, 16];
/// Slots of the ring where there is one port, and the fewest of each ring where there are several.
const RING_SLOTS: (u16, u16) = (2_048, 64);

/// The way by which the server's end reaches the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// AF_XDP on the NIC.
    Direct,
    /// So many virtual ports.
    Ports(u16),
}

impl fmt::Display for Way {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => formatter.pad("AF_XDP on the NIC"),
            Self::Ports(1) => formatter.pad("1 virtual port"),
            Self::Ports(ports) => formatter.pad(&format!("{ports} virtual ports")),
        }
    }
}

impl turns::System for Way {
    fn is_ours(self) -> bool {
        true
    }
}

/// The direction of the frames, seen from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Receive,
    Send,
}

impl Direction {
    fn word(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Send => "send",
        }
    }
}

type Column = turns::Column<Way, Counted>;

/// Measures both directions, and judges their ratios and the fairness between ports.
pub fn measure(repeats: &Repeats, outcome: &mut Outcome) {
    let (frames, ports) = match repeats.quick {
        true => (&FRAMES_QUICK[..], &PORTS_QUICK[..]),
        false => (&FRAMES[..], &PORTS[..]),
    };
    let ways: Vec<Way> = std::iter::once(Way::Direct)
        .chain(ports.iter().map(|&ports| Way::Ports(ports)))
        .collect();
    let at = |&bytes: &usize| {
        let x = bytes as f64;
        ways.iter().map(move |&system| Case { system, x })
    };
    let cases: Vec<Case<Way>> = frames.iter().flat_map(at).collect();
    let bars = [
        (Direction::Receive, (0.7, 0.9)),
        (Direction::Send, (0.55, 0.7)),
    ];
    let mut fairness: Option<f64> = None;
    for (direction, bar) in bars {
        let study = (direction.word(), repeats.runs);
        let columns = turns::columns(study, &ways, &cases, outcome, |case| {
            run(direction, case.system, case.x as usize, repeats)
        });
        outcome.add(rates(direction, &columns));
        outcome.add(ratios(direction, &columns));
        judge(direction, bar, &columns, outcome);
        let even = least_even(&columns);
        fairness = fairness.into_iter().chain(even).min_by(f64::total_cmp);
    }
    let seen = fairness.map(|jain| (jain, "the least of all runs with several ports".to_owned()));
    let what = "Jain's index of frames between virtual ports";
    outcome.judge(Goal::at_least(what, (0.99, 0.999)), seen);
}

fn megaframes(counted: &Counted) -> f64 {
    counted.frames.iter().sum::<u64>() as f64 / counted.seconds / 1e6
}

fn rates(direction: Direction, columns: &[Column]) -> Figure {
    let series = columns.iter().map(|(way, column)| Series {
        system: way.to_string(),
        points: points(column, megaframes),
    });
    Figure {
        id: direction.word().to_owned(),
        title: format!("Frames that the server's side can {}", direction.word()),
        x: "bytes of a frame".to_owned(),
        y: "million frames per second".to_owned(),
        falls: false,
        compares: true,
        series: series.collect(),
    }
}

/// The rate of each run over the direct rate of the same round.
fn ratios(direction: Direction, columns: &[Column]) -> Figure {
    let direct = columns.first().map_or(&[][..], |(_, column)| &column[..]);
    let series = columns.iter().skip(1).map(|(way, column)| {
        let quotients = column.iter().filter_map(|(x, runs)| {
            let (_, beside) = direct.iter().find(|(other, _)| other == x)?;
            let pairs = runs.iter().zip(beside);
            let quotients = pairs.map(|(run, direct)| megaframes(run) / megaframes(direct));
            Some((*x, quotients.collect()))
        });
        let quotients: Vec<(f64, Vec<f64>)> = quotients.collect();
        Series {
            system: way.to_string(),
            points: points(&quotients, |quotient| *quotient),
        }
    });
    Figure {
        id: format!("{}-ratio", direction.word()),
        title: format!("The same over AF_XDP on the NIC, {}", direction.word()),
        x: "bytes of a frame".to_owned(),
        y: "ratio".to_owned(),
        falls: false,
        compares: false,
        series: series.collect(),
    }
}

/// Judges one virtual port by the frame size with the least ratio.
fn judge(direction: Direction, bar: (f64, f64), columns: &[Column], outcome: &mut Outcome) {
    let found = ratios(direction, columns);
    let name = Way::Ports(1).to_string();
    let one = found.series.iter().find(|series| series.system == name);
    let points = one.map_or(&[][..], |series| &series.points[..]);
    let worst = points
        .iter()
        .min_by(|a, b| a.y.median.total_cmp(&b.y.median));
    let worst = worst.map(|point| {
        let seen = format!(
            "{:.2} at {} bytes, the least of all sizes",
            point.y.median, point.x
        );
        (point.y.median, seen)
    });
    let what = format!(
        "one virtual port against AF_XDP on the NIC, {}",
        direction.word()
    );
    outcome.judge(Goal::at_least(what, bar), worst);
}

/// Jain's index of the least even run with several ports, as far as the sink tells them apart.
fn least_even(columns: &[Column]) -> Option<f64> {
    let several = columns
        .iter()
        .filter(|(way, _)| matches!(way, Way::Ports(ports) if *ports > 1));
    let runs = several.flat_map(|(_, column)| column.iter().flat_map(|(_, runs)| runs));
    let even = runs.map(|counted| {
        let shares: Vec<f64> = counted.frames.iter().map(|&count| count as f64).collect();
        jain(&shares)
    });
    even.min_by(f64::total_cmp)
}

/// Runs one case once.
fn run(direction: Direction, way: Way, bytes: usize, repeats: &Repeats) -> Result<Counted, String> {
    let veth = Veth::new(VethOptions {
        mtu: 1500,
        kernel_server: true,
        kernel_client: true,
        segmentation: false,
        is_shared: true,
        ..VethOptions::default()
    })?;
    let service = match way {
        Way::Direct => None,
        Way::Ports(_) => Some(Service::start(&veth, "veth")?),
    };
    let ports = match way {
        Way::Direct => 1,
        Way::Ports(ports) => ports,
    };
    let slots = (RING_SLOTS.0 / ports.next_power_of_two()).max(RING_SLOTS.1);
    let near = match &service {
        Some(service) => format!("{},ring={slots}", service.wire()),
        None => format!("xdp:{DEVICE},ring={slots}"),
    };
    let far = format!("xdp:{DEVICE},ring={}", RING_SLOTS.0);
    let (server, client) = (veth.server(), veth.client());
    let common = |role: &str, wire: &str, own: u16| {
        let mut words = vec![format!("--role={role}"), format!("--wire={wire}")];
        words.extend([format!("--ports={own}"), format!("--places={ports}")]);
        words.push(format!("--bytes={bytes}"));
        words.push(format!("--seconds={}", repeats.seconds));
        words.push(format!("--warm-up={}", repeats.warm_up));
        words.extend((direction == Direction::Receive).then(|| "--to-server".to_owned()));
        words
    };
    let cores = (repeats.server_core, repeats.client_core);
    let (mut sink, mut source) = match direction {
        Direction::Receive => {
            let mut sink = start(&server, cores.0, common("sink", &near, ports))?;
            let ready: Ready = said("sink", sink.says())?;
            let mut words = common("source", &far, 1);
            words.push(format!("--peer={}", ready.mac));
            (sink, start(&client, cores.1, words)?)
        }
        Direction::Send => {
            let mut sink = start(&client, cores.1, common("sink", &far, 1))?;
            let ready: Ready = said("sink", sink.says())?;
            let mut words = common("source", &near, ports);
            // The service lets frames leave only for next hops that the source has asked it for.
            words.extend(service.is_none().then(|| format!("--peer={}", ready.mac)));
            (sink, start(&server, cores.0, words)?)
        }
    };
    let _: Ready = said("source", source.says())?;
    let counted = said("sink", sink.says())?;
    said("source", source.leave())?;
    said("sink", sink.finish())?;
    Ok(counted)
}

fn said<T>(name: &str, what: Result<T, String>) -> Result<T, String> {
    what.map_err(|cause| format!("{name}: {cause}"))
}

fn start(namespace: &str, core: usize, words: Vec<String>) -> Result<Process, String> {
    let program = process::ourselves()?.display().to_string();
    let mut all = vec!["-c".to_owned(), core.to_string(), program];
    all.push("mux-side".to_owned());
    all.extend(words);
    Process::start(Some(namespace), Path::new("taskset").to_owned(), &all)
}
