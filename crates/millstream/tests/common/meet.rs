//! Meetings: two hosts, Millstream and a kernel or two Millstreams, play scenarios over a wire.

#![allow(dead_code)] // each test file uses its part

use std::net::IpAddr;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use millstream::{Config, Context, Crank, Report, Runtime};

use super::lab::{KERNEL_V4, KERNEL_V6, Lab, OURS_V4, OURS_V6};
use super::net::{Gate, Kernel, Net, Ours, PATIENCE, Place};
use super::scenarios::Scenario;

/// The end that Millstream plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Server,
    Client,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

pub const BOTH_ROLES: [Role; 2] = [Role::Server, Role::Client];
pub const BOTH_FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// Millstream's settings in a lab: the defaults.
pub fn plain(wire: &str, crank: Crank) -> Config {
    let mut config = Config::new(wire.parse().unwrap_or_else(|e| panic!("{e}")));
    config
        .addresses
        .push(format!("{OURS_V4}/24").parse().expect("address"));
    config
        .addresses
        .push(format!("{OURS_V6}/64").parse().expect("address"));
    config.crank = crank;
    config
}

/// Opens Millstream in the lab and runs `f` with its context, on a new thread in the right
/// namespace.
pub fn with_ours<T: Send>(lab: &Lab, config: Config, f: impl FnOnce(&Context) -> T + Send) -> T {
    lab.home().inside(|| {
        let runtime = Runtime::new(config).unwrap_or_else(|e| panic!("{e}"));
        lab.opened();
        let context = runtime.context(0).expect("context");
        f(&context)
    })
}

/// A port that no other meeting of this process uses.
fn port() -> u16 {
    static NEXT: Mutex<u16> = Mutex::new(7_000);
    let mut next = NEXT.lock().unwrap_or_else(|e| e.into_inner());
    *next += 2;
    *next
}

/// The places of a meeting: Millstream's and the kernel's.
pub fn places(family: Family) -> (Place, Place) {
    let (ours, kernel) = match family {
        Family::V4 => (OURS_V4, KERNEL_V4),
        Family::V6 => (OURS_V6, KERNEL_V6),
    };
    let ours: IpAddr = ours.parse().expect("address");
    let kernel: IpAddr = kernel.parse().expect("address");
    let place = |own, peer, port| Place {
        own,
        peer,
        port,
        kernel_receive_buffer: None,
    };
    let port = port();
    (place(ours, kernel, port), place(kernel, ours, port))
}

/// Plays one scenario between Millstream (on this thread) and the lab's kernel (on another).
pub fn play(lab: &Lab, context: &Context, scenario: &Scenario, role: Role, family: Family) {
    play_with(lab, context, scenario, role, places(family));
}

pub fn play_with(
    lab: &Lab,
    context: &Context,
    scenario: &Scenario,
    role: Role,
    (ours, kernels): (Place, Place),
) {
    let begin = Instant::now();
    let gate = Gate::default();
    let (mine, theirs) = match role {
        Role::Server => (scenario.server, scenario.client),
        Role::Client => (scenario.client, scenario.server),
    };
    let label = format!("{} ({role:?}, {})", scenario.name, ours.own);
    println!("  {label} ...");
    thread::scope(|scope| {
        let kernel = scope.spawn(|| {
            lab.far().enter();
            theirs(&Kernel { place: kernels }, &gate);
        });
        let net = Ours {
            context,
            place: ours,
        };
        mine(&net as &dyn Net, &gate);
        // With the inline crank, turn the stack so that connections close while the other end
        // finishes.
        while !kernel.is_finished() {
            context.turn().unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        kernel
            .join()
            .unwrap_or_else(|_| panic!("{label}: the kernel's end"));
    });
    println!("  {label}: {:.2?}", begin.elapsed());
}

/// Waits until every socket, handshake and chunk was returned; TIME_WAIT entries may remain.
pub fn expect_all_returned(context: &Context) -> Report {
    let begin = Instant::now();
    loop {
        let report = context.report().expect("report");
        let usage = report.usage;
        let is_clean = usage.sockets == 0
            && usage.half_open == 0
            && usage.small_chunks == 0
            && usage.large_chunks == 0
            && usage.flows == usage.time_wait;
        if is_clean {
            return report;
        }
        // Over a bad wire, bytes written before a close may take long.
        if begin.elapsed() > PATIENCE {
            panic!("leaked: {usage:?}\n{report:#?}");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// A counter of the stack, of TCP or of the port, in a report.
pub fn counter(report: &Report, name: &str) -> u64 {
    report
        .stack
        .rows()
        .find(|row| row.0 == name)
        .map(|row| row.1)
        .or_else(|| report.port.value(name))
        .unwrap_or_else(|| panic!("no counter {name}"))
}

/// Checks that a good wire lost nothing and had no bad frames.
pub fn expect_nothing_dropped(report: &Report) {
    // The kernel's multicasts and other network chatter do not matter to TCP.
    let harmless = |name: &str| name.starts_with("rx_drop_icmp") || name == "rx_drop_other_mac";
    let rows = report
        .stack
        .rows()
        .chain(report.port.named().iter().copied());
    let dropped: Vec<_> = rows
        .filter(|(name, n)| name.contains("drop") && *n > 0 && !harmless(name))
        .collect();
    assert!(dropped.is_empty(), "{dropped:?}");
}
