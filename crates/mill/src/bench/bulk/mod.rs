//! `mill bench bulk`: long transfers, one flow and many, at several frame sizes, in both directions, and how evenly many downloads share.
//!
//! [`side`] is one end; it is the same code for Millstream and the kernel.

mod side;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use measure::cpu;
use serde::Deserialize;

use super::frame::namespace::{self, Veth, VethOptions};
use super::frame::{Claim, Figure, Outcome, Point, Process, Series, Spread, process, turns};
use crate::failure::Failure;
use side::Received;
pub use side::{SideOptions, side};

/// What a memif's buffer holds beside the IP packet.
const BUFFER_OVERHEAD_BYTES: usize = 18;
const SERVER_ADDRESS: &str = "10.92.0.2/24";
const CLIENT_ADDRESS: &str = "10.92.0.1/24";

/// Options of `mill bench bulk`.
#[derive(Args, Clone, Debug)]
pub struct BulkOptions {
    /// Seconds that are counted, per system and run
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub seconds: f64,
    /// Seconds before that, which are not
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub warm_up: f64,
    /// Runs of each system, taking turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Core of the server
    #[arg(long, value_name = "CPU", default_value_t = 0)]
    pub server_core: usize,
    /// Core of the client
    #[arg(long, value_name = "CPU", default_value_t = 1)]
    pub client_core: usize,
    /// Few points, short runs: to see that everything works
    #[arg(long)]
    pub quick: bool,
    /// Write the figures into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// A stack, a wire, and the bytes of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    /// Over memif with buffers for packets of so many bytes.
    Memif(usize),
    KernelVeth(usize),
    KernelLoopback,
    /// Both ends in one thread.
    Smoltcp(usize),
}

impl std::fmt::Display for System {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memif(mtu) => write!(formatter, "Millstream, memif, MTU {mtu}"),
            Self::KernelVeth(mtu) => {
                write!(formatter, "kernel, veth without TSO and GRO, MTU {mtu}")
            }
            Self::KernelLoopback => write!(formatter, "kernel, loopback"),
            Self::Smoltcp(mtu) => write!(formatter, "smoltcp, one thread, MTU {mtu}"),
        }
    }
}

/// The largest packet: IPv4's length field is the limit, the buffer's 64 KiB come next.
const LARGE: usize = 65_000;
const SMALL: [System; 3] = [
    System::KernelVeth(1500),
    System::Memif(1500),
    System::Smoltcp(1500),
];
const JUMBO: [System; 3] = [
    System::KernelVeth(9000),
    System::Memif(9000),
    System::Smoltcp(9000),
];
const LONG: [System; 2] = [System::KernelLoopback, System::Memif(LARGE)];

/// One run's numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    gbit_per_second: f64,
    receiver_s_per_gb: f64,
    sender_s_per_gb: f64,
    jain: f64,
}

/// A transfer to measure.
#[derive(Clone, Copy, Debug)]
struct Load {
    flows: usize,
    /// From the client to the server.
    up: bool,
    seconds: f64,
    warm_up: f64,
    cores: (usize, usize),
}

/// Measures, prints and writes.
pub fn bulk(options: &BulkOptions) -> Result<(), Failure> {
    let mut outcome = Outcome::new(
        "bulk",
        "One end writes as fast as it may, the other reads; whoever receives counts. Server and client are processes of their own, each pinned \
         to a core; smoltcp has both ends in one thread. Over veth neither side has segmentation or checksum offload. Over loopback the kernel computes no checksum.",
    );
    outcome.parameter(
        "seconds per run, after warm-up",
        format!("{}, {}", options.seconds, options.warm_up),
    );
    outcome.parameter("runs of each system", options.runs);
    outcome.parameter(
        "cores of server and client",
        format!("{}, {}", options.server_core, options.client_core),
    );
    let many: &[usize] = if options.quick {
        &[1]
    } else {
        &[1, 10, 100, 400]
    };
    for (id, title, systems) in [
        ("1500", "MTU 1500", &SMALL[..]),
        ("9000", "MTU 9000", &JUMBO[..]),
        ("large", "large frames", &LONG[..]),
    ] {
        study(options, &mut outcome, systems, (id, title), (many, false));
    }
    if !options.quick {
        study(
            options,
            &mut outcome,
            &SMALL[..2],
            ("up-1500", "MTU 1500, from client to server"),
            (&[1], true),
        );
        study(
            options,
            &mut outcome,
            &LONG,
            ("up-large", "large frames, from client to server"),
            (&[1], true),
        );
        study(
            options,
            &mut outcome,
            &SMALL[..2],
            ("jain", "8,192 downloads, MTU 1500"),
            (&[8_192], false),
        );
    }
    claims(&mut outcome);
    match &options.out {
        Some(directory) => outcome.write(directory).map_err(Failure::Run),
        None => {
            print!("{}", outcome.markdown());
            Ok(())
        }
    }
}

fn study(
    options: &BulkOptions,
    outcome: &mut Outcome,
    systems: &[System],
    (id, title): (&str, &str),
    (flows, up): (&[usize], bool),
) {
    let mut columns: Vec<Vec<(f64, Vec<Seen>)>> = systems.iter().map(|_| Vec::new()).collect();
    for &flows in flows {
        let load = Load {
            flows,
            up,
            seconds: if options.quick { 0.5 } else { options.seconds },
            warm_up: if options.quick { 0.2 } else { options.warm_up },
            cores: (options.server_core, options.client_core),
        };
        let rounds = if options.quick { 1 } else { options.runs };
        let mut notes = Vec::new();
        // smoltcp's two ends in one thread say nothing of many flows.
        let fits = |system: &System| flows == 1 || !matches!(system, System::Smoltcp(_));
        let chosen: Vec<System> = systems.iter().copied().filter(fits).collect();
        let found = turns::alternate(rounds, &chosen, &mut notes, |&system| run(system, load));
        for (system, runs) in chosen.iter().zip(found) {
            let place = systems.iter().position(|other| other == system);
            if let Some(column) = place.and_then(|place| columns.get_mut(place))
                && !runs.is_empty()
            {
                column.push((flows as f64, runs));
            }
        }
        outcome.notes.extend(
            notes
                .into_iter()
                .map(|note| format!("{title}, {flows} flows: {note}")),
        );
    }
    let mut add = |id: String, title: String, y: &str, falls: bool, reading: fn(&Seen) -> f64| {
        let series = systems.iter().zip(&columns).map(|(system, column)| Series {
            system: system.to_string(),
            points: column
                .iter()
                .map(|(x, runs)| Point {
                    x: *x,
                    y: Spread::of(runs.iter().map(reading)),
                })
                .collect(),
        });
        outcome.add(Figure {
            id,
            title,
            x: "flows".to_owned(),
            y: y.to_owned(),
            falls,
            compares: true,
            series: series.filter(|series| !series.points.is_empty()).collect(),
        });
    };
    add(
        id.to_owned(),
        format!("Bulk, {title}"),
        "Gbit/s",
        false,
        |seen| seen.gbit_per_second,
    );
    add(
        format!("{id}-receiver"),
        format!("Receiver's CPU, {title}"),
        "CPU seconds per GB",
        true,
        |seen| seen.receiver_s_per_gb,
    );
    add(
        format!("{id}-sender"),
        format!("Sender's CPU, {title}"),
        "CPU seconds per GB",
        true,
        |seen| seen.sender_s_per_gb,
    );
    if columns.iter().flatten().any(|(flows, _)| *flows > 1.0) {
        add(
            format!("{id}-jain"),
            format!("Jain's index, {title}"),
            "index",
            false,
            |seen| seen.jain,
        );
    }
}

/// The server's first line.
#[derive(Deserialize)]
struct Ready {
    address: SocketAddr,
}

/// Where a run happens.
struct Place {
    wires: (String, String),
    addresses: (String, String),
    veth: Option<Veth>,
    socket: Option<PathBuf>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
    }
}

fn run(system: System, load: Load) -> Result<Seen, String> {
    if let System::Smoltcp(mtu) = system {
        return smoltcp(mtu, load);
    }
    let place = place(system)?;
    let side = |role: &str, wire: &str, address: &str, core: usize, sends: bool| {
        let mut words: Vec<String> = [
            "bench",
            "bulk-side",
            "--role",
            role,
            "--wire",
            wire,
            "--addr",
            address,
        ]
        .map(str::to_owned)
        .to_vec();
        for (name, value) in [
            ("--core", core.to_string()),
            ("--flows", load.flows.to_string()),
            ("--seconds", load.seconds.to_string()),
            ("--warm-up", load.warm_up.to_string()),
        ] {
            words.extend([name.to_owned(), value]);
        }
        words.extend(sends.then(|| "--sends".to_owned()));
        words
    };
    let server_words = side(
        "server",
        &place.wires.0,
        &place.addresses.0,
        load.cores.0,
        !load.up,
    );
    let namespaces = place
        .veth
        .as_ref()
        .map(|veth| (veth.server(), veth.client()));
    let namespace = namespaces.as_ref().map(|both| both.0.as_str());
    let mut server = Process::mill(namespace, &server_words)?;
    let ready: Ready = server.says().map_err(|cause| format!("server: {cause}"))?;
    let mut words = side(
        "client",
        &place.wires.1,
        &place.addresses.1,
        load.cores.1,
        load.up,
    );
    words.extend(["--server".to_owned(), ready.address.to_string()]);
    let namespace = namespaces.as_ref().map(|both| both.1.as_str());
    let mut client = Process::mill(namespace, &words)?;
    let (receiver, sender) = match load.up {
        true => (&mut server, &mut client),
        false => (&mut client, &mut server),
    };
    receiver
        .line()
        .map_err(|cause| format!("receiver: {cause}"))?;
    let used = (cpu::time_ns(receiver.id()), cpu::time_ns(sender.id()));
    let received: Received = receiver
        .says()
        .map_err(|cause| format!("receiver: {cause}"))?;
    let receiver_ns = cpu::time_ns(receiver.id()).saturating_sub(used.0);
    let sender_ns = cpu::time_ns(sender.id()).saturating_sub(used.1);
    if received.bytes == 0 {
        return Err("nothing came".to_owned());
    }
    let gigabytes = received.bytes as f64 / 1e9;
    Ok(Seen {
        gbit_per_second: gigabytes * 8.0 / received.seconds,
        receiver_s_per_gb: receiver_ns as f64 / 1e9 / gigabytes,
        sender_s_per_gb: sender_ns as f64 / 1e9 / gigabytes,
        jain: received.jain,
    })
}

fn place(system: System) -> Result<Place, String> {
    let kernel = || "kernel".to_owned();
    let both = |server: &str, client: &str| (server.to_owned(), client.to_owned());
    match system {
        System::Memif(mtu) => {
            let path = std::env::temp_dir().join(format!("mst-{}-bulk.sock", std::process::id()));
            let buffer = mtu + BUFFER_OVERHEAD_BYTES;
            let wire = |role| format!("memif:{},role={role},buffer={buffer}", path.display());
            Ok(Place {
                wires: (wire("server"), wire("client")),
                addresses: both(SERVER_ADDRESS, CLIENT_ADDRESS),
                veth: None,
                socket: Some(path),
            })
        }
        System::KernelVeth(mtu) => {
            let veth = Veth::new(VethOptions {
                mtu,
                kernel_server: true,
                kernel_client: true,
                segmentation: false,
            })?;
            let (server, client) = (namespace::SERVER, namespace::CLIENT);
            Ok(Place {
                wires: (kernel(), kernel()),
                addresses: (format!("{server}/24"), format!("{client}/24")),
                veth: Some(veth),
                socket: None,
            })
        }
        System::KernelLoopback | System::Smoltcp(_) => Ok(Place {
            wires: (kernel(), kernel()),
            addresses: both("127.0.0.1/8", "127.0.0.1/8"),
            veth: None,
            socket: None,
        }),
    }
}

/// Both ends in one thread: its CPU time is the receiver's and the sender's in one.
fn smoltcp(mtu: usize, load: Load) -> Result<Seen, String> {
    let words = [
        "-c".to_owned(),
        load.cores.0.to_string(),
        process::beside("rivals")?.display().to_string(),
        "smoltcp-bulk".to_owned(),
        "--mtu".to_owned(),
        mtu.to_string(),
        "--seconds".to_owned(),
        load.seconds.to_string(),
    ];
    let mut both = Process::start(None, "taskset".into(), &words)?;
    let received: Received = both.says()?;
    let gigabytes = received.bytes as f64 / 1e9;
    Ok(Seen {
        gbit_per_second: gigabytes * 8.0 / received.seconds,
        receiver_s_per_gb: received.seconds / gigabytes,
        sender_s_per_gb: received.seconds / gigabytes,
        jain: 1.0,
    })
}

/// The rows of issue 4's table that are about bulk.
fn claims(outcome: &mut Outcome) {
    let rows = [
        (
            "one flow, MTU 1500, over memif, × kernel over veth without TSO and GRO",
            "1500",
            SMALL[1],
            SMALL[0],
            (3.0, 5.0),
        ),
        (
            "one flow, MTU 1500, over memif, × smoltcp",
            "1500",
            SMALL[1],
            SMALL[2],
            (1.2, 1.2),
        ),
        (
            "one flow, large frames over memif, × kernel over loopback",
            "large",
            LONG[1],
            LONG[0],
            (1.0, 1.5),
        ),
    ];
    for (measure, figure, ours, theirs, (bar, aim)) in rows {
        let read = |system: System| outcome.median(figure, &system.to_string(), 1.0);
        if let (Some(ours), Some(theirs)) = (read(ours), read(theirs)) {
            outcome.claim(Some(Claim {
                measure: measure.to_owned(),
                seen: format!("{ours:.1} against {theirs:.1} Gbit/s"),
                value: ours / theirs,
                bar,
                aim,
                at_most: false,
            }));
        }
    }
    let index = outcome.median("jain-jain", &SMALL[1].to_string(), 8_192.0);
    outcome.claim(index.map(|index| Claim {
        measure: "Jain's index, 8,192 downloads".to_owned(),
        seen: SMALL[1].to_string(),
        value: index,
        bar: 0.999,
        aim: 0.9999,
        at_most: false,
    }));
}
