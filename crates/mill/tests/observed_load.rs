//! A server under load while all tools observe it, and the same load without them.
//!
//! `cargo xtask stress observe` runs it for minutes and checks the throughput. Without
//! `OBSERVE_SECONDS` the slices are short, and only the health of tools and server is checked.

mod world;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use world::{OURS, Server, World};

const MILL: &str = env!("CARGO_BIN_EXE_mill");
/// Least throughput with all tools, as a share of that without.
const SHARE_MIN: f64 = 0.98;
/// Seconds of one slice of the long run, and of the short one.
const SLICE_SECONDS: [u64; 2] = [3, 1];
/// The tools that run during a slice. Each round reverses the order and is judged alone. Other load
/// that lasts longer than a round affects all slices alike, and the median excludes shorter load.
/// If there are more threads than CPUs, the tools also take CPU time from the server. Requests per
/// CPU time of the server show only the tools' cost to it.
const SLICES: [Tools; 3] = [Tools::None, Tools::Readers, Tools::All];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tools {
    None,
    /// `ss`, `top` and `metrics`, which look once a second, and a scrape once a second.
    Readers,
    /// Also a filtered capture of the first 96 bytes of each frame.
    All,
}

/// A program and its children, killed on drop.
struct Group(Child);

impl Group {
    fn new(script: &str) -> Self {
        let mut command = Command::new("bash");
        command.args(["-c", script]).process_group(0);
        command.stdout(Stdio::null());
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group may have ended already.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Starts tools that observe process `pid`.
fn switch_on(tools: Tools, pid: u32, world: &World) -> Vec<Group> {
    let directory = world.directory.display();
    let port = metrics_port(pid);
    let mut groups = Vec::new();
    if tools != Tools::None {
        groups.push(Group::new(&format!(
            "while :; do {MILL} ss -tani --pid {pid}; sleep 1; done"
        )));
        // `top` is live, as an operator has it, on a terminal of its own.
        groups.push(Group::new(&format!(
            "exec script -qfc 'stty rows 24 cols 80; exec {MILL} top --pid {pid}' /dev/null"
        )));
        let file = format!("{directory}/load.prom");
        groups.push(Group::new(&format!(
            "exec {MILL} metrics --interval 1 --textfile {file}"
        )));
        groups.push(Group::new(&format!(
            "exec {MILL} metrics --listen 127.0.0.1:{port}"
        )));
    }
    if tools == Tools::All {
        // The story of one of the load's connections, which are not there yet.
        groups.push(Group::new(&format!(
            "while :; do sleep 1; {MILL} trace --pid {pid} dst \
             $({MILL} ss -Htn --pid {pid} | awk '{{print $5; exit}}'); done"
        )));
        groups.push(Group::new(&format!(
            "exec {MILL} capture {pid} -s 96 -w {directory}/load.pcapng \
             'tcp[tcpflags] & (tcp-syn|tcp-fin|tcp-rst) != 0 or tcp[5] & 63 == 0'"
        )));
    }
    groups
}

/// Fetches the values as Prometheus does, from another host in the field; whether it got any.
fn scrape(port: u32) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port as u16))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page.contains("millstream_rx_frames_total{"))
}

/// Scrapes once a second for so many seconds; how many pages had values. The first attempt may come
/// before the port is open.
fn scrapes(port: u32, seconds: u64) -> usize {
    let looks = 0..seconds;
    let look = |_| {
        std::thread::sleep(Duration::from_millis(900));
        scrape(port).unwrap_or(false)
    };
    looks.map(look).filter(|had| *had).count()
}

/// The port of `mill metrics` for process `pid`.
fn metrics_port(pid: u32) -> u32 {
    20_000 + pid % 10_000
}

/// CPU time of a process so far, in ticks of the kernel's.
fn cpu_ticks(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The command in parentheses may contain anything. User and system time are fields 14 and 15.
    let (_, fields) = text.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2);
    ticks.map(|field| field.parse::<f64>().unwrap()).sum()
}

/// Requests per second that wrk measures; `None` if it is not installed.
fn load(world: &World, seconds: u64) -> Option<f64> {
    let duration = format!("-d{seconds}s");
    let words = ["wrk", "-t1", "-c32", &duration, "http://10.78.0.2/a"];
    let output = world.command("kernel", &words).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let Some(line) = text.lines().find(|line| line.starts_with("Requests/sec:")) else {
        eprintln!("ignored: wrk: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    };
    assert!(!text.contains("Socket errors"), "{text}");
    let rate: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    assert!(rate > 0.0, "{text}");
    Some(rate)
}

/// The outcome of a slice.
struct Slice {
    /// Requests a second.
    rate: f64,
    /// Requests for a tick of the server's CPU time.
    per_tick: f64,
    /// Pages of values that were fetched.
    scraped: usize,
}

/// The load beside these tools. `None` where wrk is not installed.
fn slice(which: Tools, seconds: u64, server: &Server, world: &World) -> Option<Slice> {
    let mut tools = switch_on(which, server.pid(), world);
    let ticks = cpu_ticks(server.pid());
    let port = metrics_port(server.pid());
    let scraping =
        (which != Tools::None).then(|| std::thread::spawn(move || scrapes(port, seconds)));
    let rate = load(world, seconds);
    let scraped = scraping.map_or(0, |thread| thread.join().unwrap());
    let rate = rate?;
    let ticks = cpu_ticks(server.pid()) - ticks;
    for tool in &mut tools {
        let ended = tool.0.try_wait().unwrap();
        assert!(ended.is_none(), "one of {which:?} ended");
    }
    Some(Slice {
        rate,
        per_tick: rate * seconds as f64 / ticks.max(1.0),
        scraped,
    })
}

#[test]
fn load_beside_all_tools_keeps_its_throughput() {
    let Some(world) = World::new("looked") else {
        return;
    };
    let seconds = std::env::var("OBSERVE_SECONDS").ok();
    let seconds: Option<u64> = seconds.and_then(|seconds| seconds.parse().ok());
    let seconds_each = SLICE_SECONDS[usize::from(seconds.is_none())];
    let rounds = seconds
        .unwrap_or(0)
        .div_ceil(seconds_each * SLICES.len() as u64)
        .max(1);
    let document = world.write("site/a", &world::noise(4_000));
    let site = document.parent().unwrap();
    let words = [&["--wire", "xdp:right"][..], &OURS].concat();
    let server = world.serve("ours", site, &words);
    let mut scraped = 0;
    let mut sums = [0.0; SLICES.len()];
    let mut shares: [Vec<f64>; SLICES.len()] = Default::default();
    let mut thrift: [Vec<f64>; SLICES.len()] = Default::default();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..SLICES.len()).collect();
        order.rotate_left(round as usize % SLICES.len());
        if round % 2 == 1 {
            order.reverse();
        }
        let (mut rates, mut per_tick) = ([0.0; SLICES.len()], [0.0; SLICES.len()]);
        for at in order {
            let Some(slice) = slice(SLICES[at], seconds_each, &server, &world) else {
                return;
            };
            scraped += slice.scraped;
            per_tick[at] = slice.per_tick;
            sums[at] += slice.rate;
            rates[at] = slice.rate;
        }
        for (shares, rate) in shares.iter_mut().zip(rates) {
            shares.push(rate / rates[0]);
        }
        for (thrift, rate) in thrift.iter_mut().zip(per_tick) {
            thrift.push(rate / per_tick[0]);
        }
        eprintln!("round {round}: {rates:.0?} requests/s, {per_tick:.1?} for a tick of the server");
    }
    let rates = sums.map(|sum| (sum / rounds as f64).round());
    let [_, readers, all] = shares.map(quartiles);
    let [_, thrift_of_readers, thrift_of_all] = thrift.map(quartiles);
    eprintln!(
        "{rounds} rounds of {seconds_each} s: {} requests/s without tools, {} with ss, top and metrics, \
         {} with a capture too; shares of the same round, lower quartile, median and upper: \
         {readers:.4?} and {all:.4?}; requests for CPU time of the server, likewise: \
         {thrift_of_readers:.4?} and {thrift_of_all:.4?}",
        rates[0], rates[1], rates[2]
    );
    if seconds.is_some() {
        assert!(scraped > 0, "no page had values");
        assert!(all[1] >= SHARE_MIN, "{:.4} is below {SHARE_MIN}", all[1]);
    }
    server.stop();
}

/// The lower quartile, the median and the upper quartile.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}
