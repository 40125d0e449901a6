//! Both ends of Millstream in one thread over an in-process link, by the clock or on a virtual one.
//!
//! This program is compared with smoltcp, and callgrind counts it ([`crate::cycles`]): on the
//! virtual clock, with its fixed seed, every run is the same.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use crate::measure::{Plan, Seen, Tally};
use clap::Args;
use millstream::rules::{Protocol, Rule, RuleAction, RuleSet};
use millstream::{Clock, Config, Context, Crank, IpCidr, Limits, Observe, Runtime, VirtualClock};
use observe::client::Client as Observer;
use observe::message::kind;
use observe::place;
use packetio::frame_filter::{Instruction, encode};
use serde::{Deserialize, Serialize};

use super::millstream::{Client, Server};
use mill::failure::Failure;

const SERVER: &str = "10.9.0.1";
const CLIENT: &str = "10.9.0.2";
const SEED: [u64; 4] = [1, 2, 3, 4];
/// Nanoseconds by which a turn of both ends advances a virtual clock.
const TURN_NS: u64 = 10_000;
/// Bytes that a capture keeps of each frame.
const CAPTURE_SNAP: u32 = 96;
/// A time longer than a capture goes on after a request.
const CAPTURE_OVER_NS: u64 = 4_000_000_000;
/// Connections for which tables are made, whatever the plan says. Runs with different numbers of
/// connections therefore differ in nothing else.
const CONNECTIONS_MAX: usize = 16_384;

/// Options of `cargo xtask bench one-thread`.
#[derive(Args, Clone, Debug)]
pub struct OneThreadOptions {
    #[command(flatten)]
    pub plan: Plan,
    /// Pairs of stacks that take turns, each with its share of the connections
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub pairs: u16,
    /// Let time pass by turns, not by the clock
    #[arg(long)]
    pub virtual_clock: bool,
    /// Capture from all stacks, by `mill capture`'s way
    #[arg(long, value_enum)]
    pub capture: Option<CaptureTime>,
    /// Packet rules of each server, none of which is for its clients but the last
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=32_768))]
    pub rules: u32,
    /// Say on stderr what each stack counted
    #[arg(long)]
    pub counters: bool,
}

/// The time at which a capture is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CaptureTime {
    /// Before the first transaction, and off again
    Before,
    /// All the time
    During,
    /// All the time, of segments with SYN, FIN or RST and of one other in 64
    Filtered,
}

/// The result that the program prints.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ran {
    #[serde(flatten)]
    pub seen: Seen,
    /// Frames that the stacks of both sides sent.
    pub segments: u64,
}

/// Two runtimes of one link.
struct Pair {
    contexts: [Context; 2],
    _runtimes: [Runtime; 2],
}

/// Runs the plan and prints what was seen.
pub fn one_thread(options: &OneThreadOptions) -> Result<(), Failure> {
    let clock = options
        .virtual_clock
        .then(|| VirtualClock::new(1_000_000_000));
    let count = usize::from(options.pairs);
    let plan = options.plan.share(count);
    let pairs: Vec<Pair> = (0..count)
        .map(|index| pair(index, clock.as_ref(), options))
        .collect::<Result<_, _>>()?;
    if let Some(time) = options.capture {
        let captured = capture(&pairs, time, clock.as_ref());
        captured.map_err(|error| Failure::Run(format!("capture: {error}")))?;
    }
    let ran =
        run(&pairs, &plan, clock.as_ref()).map_err(|error| Failure::Run(error.to_string()))?;
    if options.counters {
        say_counters(&pairs).map_err(|error| Failure::Run(error.to_string()))?;
    }
    println!("{}", serde_json::json!(ran));
    Ok(())
}

/// Prints the counters that are not zero, one stack after the other, servers first.
fn say_counters(pairs: &[Pair]) -> std::io::Result<()> {
    for context in pairs.iter().flat_map(|pair| &pair.contexts) {
        super::millstream::say_counters(context)?;
    }
    Ok(())
}

/// Directory of the agent's socket.
fn directory() -> PathBuf {
    std::env::temp_dir().join(format!("mst-{}-observed", std::process::id()))
}

/// Switches the capture of all stacks on, and off again if it is to be on before the plan only.
/// Stacks answer in their turns, so another thread asks meanwhile.
fn capture(pairs: &[Pair], time: CaptureTime, clock: Option<&VirtualClock>) -> std::io::Result<()> {
    let is_filtered = time == CaptureTime::Filtered;
    let asked = std::thread::spawn(move || ask(is_filtered));
    let turn_all = || -> std::io::Result<()> {
        for context in pairs.iter().flat_map(|pair| &pair.contexts) {
            context.turn()?;
        }
        Ok(())
    };
    while !asked.is_finished() {
        turn_all()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    let failed = || std::io::Error::other("the thread that asks has failed");
    asked.join().map_err(|_| failed())??;
    std::fs::remove_dir_all(directory())?;
    if let (CaptureTime::Before, Some(clock)) = (time, clock) {
        clock.advance_ns(CAPTURE_OVER_NS);
        turn_all()?;
    }
    Ok(())
}

/// `tcp[tcpflags] & (tcp-syn|tcp-fin|tcp-rst) != 0 or tcp[5] & 63 == 0`, as `tcpdump -y EN10MB
/// -ddd` compiles it: beginnings, ends, and one segment in 64.
const SAMPLED: [(u16, u8, u8, u32); 13] = [
    (40, 0, 0, 12),
    (21, 0, 10, 2_048),
    (48, 0, 0, 23),
    (21, 0, 8, 6),
    (40, 0, 0, 20),
    (69, 6, 0, 8_191),
    (177, 0, 0, 14),
    (80, 0, 0, 27),
    (69, 2, 0, 7),
    (80, 0, 0, 19),
    (69, 1, 0, 63),
    (6, 0, 0, 262_144),
    (6, 0, 0, 0),
];

fn instruction((code, then, otherwise, k): (u16, u8, u8, u32)) -> Instruction {
    Instruction {
        code,
        then,
        otherwise,
        k,
    }
}

/// Asks every stack for its log.
fn ask(is_filtered: bool) -> std::io::Result<()> {
    let path = place::socket_path(&directory(), std::process::id());
    let mut client = Observer::connect(&path)?;
    for context in client.statistics()?.contexts(&[]) {
        let mut body = CAPTURE_SNAP.to_le_bytes().to_vec();
        if is_filtered {
            body.push(0);
            body.extend(encode(&SAMPLED.map(instruction)));
        }
        client.ask(context.slot, kind::CAPTURE, &body)?;
    }
    Ok(())
}

/// Rules of the kinds that large sets are made of: subnets, hosts near the clients, ports, and
/// ports of subnets that nest around the clients. The last one lets the clients in.
fn rules(count: u32) -> Vec<Rule> {
    let port = |at: u32| 1_000 + (at % 60_000) as u16;
    let prefix = |bits: u32, len: u8| IpCidr::new(Ipv4Addr::from_bits(bits).into(), len).ok();
    let denied = (1..count).map(|at| Rule {
        source: match at % 4 {
            0 => prefix((at << 8) | (20 << 24), 24),
            1 => prefix((10 << 24) | (9 << 16) | (256 + at), 32),
            2 => None,
            _ => prefix((10 << 24) | (9 << 16), 8 + 4 * (at / 4 % 5) as u8),
        },
        destination_ports: (at % 4 > 1).then(|| (port(at), port(at) + 3)),
        protocol: (at % 3 == 0).then_some(Protocol::Tcp),
        action: RuleAction::Deny,
        ..Rule::default()
    });
    let last = Rule {
        source: prefix((10 << 24) | (9 << 16), 24),
        destination_ports: Some((7, 7)),
        ..Rule::default()
    };
    denied.chain((count > 0).then_some(last)).collect()
}

fn pair(
    index: usize,
    clock: Option<&VirtualClock>,
    options: &OneThreadOptions,
) -> Result<Pair, Failure> {
    let open = |address: &str| {
        let wire = format!("loopback:pair-{index}");
        let wire = wire
            .parse()
            .map_err(|error| Failure::Usage(format!("{error}")))?;
        let mut config = Config::new(wire);
        config.crank = Crank::Inline;
        let cidr = format!("{address}/24");
        let cidr = cidr
            .parse()
            .map_err(|error| Failure::Usage(format!("{error}")))?;
        config.addresses.push(cidr);
        config.limits = Limits::for_connections(CONNECTIONS_MAX);
        config.seed = Some(SEED);
        config.linger_ns = 0;
        if address == SERVER && options.rules > 0 {
            config.rules = RuleSet {
                rules: rules(options.rules),
                default_action: RuleAction::Deny,
            };
        }
        if options.capture.is_some() {
            config.observe = Observe::In(directory());
        }
        if let Some(clock) = clock {
            config.clock = Clock::Virtual(clock.clone());
        }
        Runtime::new(config).map_err(|error| Failure::Run(error.to_string()))
    };
    let runtimes = [open(SERVER)?, open(CLIENT)?];
    let context = |runtime: &Runtime| {
        let context = runtime.context(0);
        context.map_err(|error| Failure::Run(error.to_string()))
    };
    let contexts = [context(&runtimes[0])?, context(&runtimes[1])?];
    Ok(Pair {
        contexts,
        _runtimes: runtimes,
    })
}

fn run(pairs: &[Pair], plan: &Plan, clock: Option<&VirtualClock>) -> std::io::Result<Ran> {
    let address = std::net::SocketAddr::new(std::net::Ipv4Addr::new(10, 9, 0, 1).into(), 7);
    let mut sides = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let [here, there] = &pair.contexts;
        let server = Server::new(here, address, plan)?;
        let client = Client::new(there, address, plan, Tally::new(plan));
        sides.push((server, client));
    }
    let at_once = Some(Duration::ZERO);
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        for (server, client) in &mut sides {
            client.turn(at_once)?;
            server.turn(at_once)?;
            goes_on |= client.goes_on();
        }
        if let Some(clock) = clock {
            clock.advance_ns(TURN_NS);
        }
    }
    for (_, client) in &mut sides {
        client.leave();
    }
    let mut segments = 0;
    for context in pairs.iter().flat_map(|pair| &pair.contexts) {
        segments += context.report()?.stack.tx_frames;
    }
    let mut clients = sides.into_iter().map(|(_, client)| client.tally);
    let Some(mut whole) = clients.next() else {
        return Err(std::io::Error::other("no pair"));
    };
    for client in clients {
        whole.merge(&client);
    }
    Ok(Ran {
        seen: whole.seen(),
        segments,
    })
}
