//! Both ends of Millstream in one thread over an in-process link, by the clock or on a virtual one.
//!
//! This program is compared with smoltcp, and callgrind counts it ([`crate::cycles`]): on the
//! virtual clock, with its fixed seed, every run is the same.

use std::time::Duration;

use crate::measure::{Plan, Seen, Tally};
use clap::Args;
use millstream::{Clock, Config, Context, Crank, Limits, Runtime, VirtualClock};
use serde::{Deserialize, Serialize};

use super::millstream::{Client, Server};
use mill::failure::Failure;

const SERVER: &str = "10.9.0.1";
const CLIENT: &str = "10.9.0.2";
const SEED: [u64; 4] = [1, 2, 3, 4];
/// Time of one turn of both ends on a virtual clock.
const TURN_NS: u64 = 10_000;
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
    /// Say on stderr what each stack counted
    #[arg(long)]
    pub counters: bool,
}

/// The result that the program prints.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ran {
    #[serde(flatten)]
    pub seen: Seen,
    /// TCP segments that the servers and the clients sent.
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
        .map(|index| pair(index, clock.as_ref()))
        .collect::<Result<_, _>>()?;
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

fn pair(index: usize, clock: Option<&VirtualClock>) -> Result<Pair, Failure> {
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
