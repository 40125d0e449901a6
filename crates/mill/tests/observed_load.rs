//! A server under load while all tools observe it, and the same load without them.
//!
//! `cargo xtask stress observe --seconds 3600` runs it for an hour and checks the throughput. With
//! `--each` the tools run one at a time. Without `OBSERVE_SECONDS` the slices are short, and only
//! the health of tools and server is checked.
//!
//! Where the load keeps all CPUs busy, tools take CPU time from server and client, whatever the
//! stack does. Requests for CPU time of the server show the stack's own loss.

mod world;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use world::{OURS, Server, World};

const MILL: &str = env!("CARGO_BIN_EXE_mill");
/// Least share, both of the throughput and of the requests for CPU time of the server.
const SHARE_MIN: f64 = 0.98;
/// Seconds of one slice of the long run, and of the short one.
const SLICE_SECONDS: [u64; 2] = [8, 1];
/// Time in which tools begin, before their slice is measured: they run for hours in the field.
const BEGINNING: Duration = Duration::from_millis(1_500);

/// A tool that observes the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    /// `ss`, begun anew each second, as `watch` does.
    Ss,
    /// `top`, live, on a terminal of its own.
    Top,
    /// `metrics` into a file, once a second.
    TextFile,
    /// `metrics` over HTTP, scraped once a second.
    Scrape,
    /// The story of a connection, followed live.
    Trace,
    /// A filtered capture of the first 96 bytes of each frame.
    Capture,
}

const READERS: &[Tool] = &[Tool::Ss, Tool::Top, Tool::TextFile, Tool::Scrape];
const ALL: &[Tool] = &[
    Tool::Ss,
    Tool::Top,
    Tool::TextFile,
    Tool::Scrape,
    Tool::Trace,
    Tool::Capture,
];
/// The tools of each slice. A round has one slice of each kind, every other round in reverse, and
/// is judged alone. Other load that lasts longer than a round affects all slices alike, and the
/// median excludes shorter load.
const SLICES: &[&[Tool]] = &[&[], READERS, ALL];
/// The slices with `OBSERVE_EACH`.
const SLICES_EACH: &[&[Tool]] = &[
    &[],
    &[Tool::Ss],
    &[Tool::Top],
    &[Tool::TextFile],
    &[Tool::Scrape],
    &[Tool::Trace],
    &[Tool::Capture],
];

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

/// Starts a tool that observes process `pid`.
fn switch_on(tool: Tool, pid: u32, world: &World) -> Group {
    let directory = world.directory.display();
    Group::new(&match tool {
        Tool::Ss => format!("while :; do {MILL} ss -tani --pid {pid}; sleep 1; done"),
        // `script` makes a session of its own for the terminal.
        Tool::Top => format!(
            "exec script -qfc 'stty rows 24 cols 80; exec {MILL} top --pid {pid}' /dev/null"
        ),
        Tool::TextFile => {
            format!("exec {MILL} metrics --pid {pid} --interval 1 --textfile {directory}/load.prom")
        }
        Tool::Scrape => {
            let port = metrics_port(pid);
            format!("exec {MILL} metrics --pid {pid} --listen 127.0.0.1:{port}")
        }
        // The connections of the load are not there yet, and end with it.
        Tool::Trace => format!(
            "while sleep 1; do peer=$({MILL} ss -Htn --pid {pid} | awk '{{print $5; exit}}'); \
             [ -z \"$peer\" ] || {MILL} trace --pid {pid} dst \"$peer\"; done"
        ),
        Tool::Capture => format!(
            "exec {MILL} capture {pid} -s 96 -w {directory}/load.pcapng \
             'tcp[tcpflags] & (tcp-syn|tcp-fin|tcp-rst) != 0 or tcp[5] & 63 == 0'"
        ),
    })
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

/// Numbers of `/proc/PID/stat` from the fourth field on. `None`: the process has ended.
fn stat(pid: u32) -> Option<Vec<u64>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command in parentheses may contain anything.
    let (_, fields) = text.rsplit_once(") ")?;
    let fields = fields.split_whitespace().skip(1);
    Some(
        fields
            .map(|field| field.parse().unwrap_or_default())
            .collect(),
    )
}

/// CPU time of a process so far, in ticks of the kernel's: fields 14 and 15.
fn cpu_ticks(pid: u32) -> f64 {
    let stat = stat(pid).expect("the server runs");
    (stat[10] + stat[11]) as f64
}

/// CPU time of tools and of their children, those that have ended included, in ticks. A child is
/// found by its parent, since `script` begins another session.
fn ticks_of(groups: &[Group]) -> f64 {
    let processes: Vec<(u32, Vec<u64>)> = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat(pid)?)))
        .collect();
    let mut ours: Vec<u32> = groups.iter().map(|group| group.0.id()).collect();
    let (mut at, mut ticks) = (0, 0);
    while at < ours.len() {
        let parent = ours[at];
        for (pid, stat) in &processes {
            if *pid == parent {
                // Its own time, and that of children which it has waited for.
                ticks += stat[10..14].iter().sum::<u64>();
            }
            if stat[0] == u64::from(parent) {
                ours.push(*pid);
            }
        }
        at += 1;
    }
    ticks as f64
}

/// Ticks of all CPUs since the start: those that they were idle, and all.
fn machine_ticks() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    let line = text.lines().next().unwrap();
    let fields = line.split_whitespace().skip(1);
    // Guests' time, the fields behind the eighth, is in the first two as well.
    let ticks: Vec<f64> = fields.take(8).map(|field| field.parse().unwrap()).collect();
    (ticks[3] + ticks[4], ticks.iter().sum())
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
#[derive(Clone, Copy, Default)]
struct Slice {
    /// Requests a second.
    rate: f64,
    /// Requests for a tick of the server's CPU time.
    per_tick: f64,
    /// Shares of the machine's CPU time: of the tools, and idle.
    tools: f64,
    idle: f64,
    /// Pages of values that were fetched.
    scraped: usize,
}

/// The load beside these tools. `None` where wrk is not installed.
fn slice(which: &[Tool], seconds: u64, server: &Server, world: &World) -> Option<Slice> {
    let begin = |tool: &Tool| switch_on(*tool, server.pid(), world);
    let mut tools: Vec<Group> = which.iter().map(begin).collect();
    std::thread::sleep(BEGINNING);
    let before = (cpu_ticks(server.pid()), ticks_of(&tools), machine_ticks());
    let port = metrics_port(server.pid());
    let scraping = which
        .contains(&Tool::Scrape)
        .then(|| std::thread::spawn(move || scrapes(port, seconds)));
    let rate = load(world, seconds);
    let (idle, all) = machine_ticks();
    let ticks = cpu_ticks(server.pid()) - before.0;
    let tool_ticks = ticks_of(&tools) - before.1;
    let scraped = scraping.map_or(0, |thread| thread.join().unwrap());
    let rate = rate?;
    for tool in &mut tools {
        let ended = tool.0.try_wait().unwrap();
        assert!(ended.is_none(), "one of {which:?} ended");
    }
    let (idle_before, all_before) = before.2;
    let all = (all - all_before).max(1.0);
    Some(Slice {
        rate,
        per_tick: rate * seconds as f64 / ticks.max(1.0),
        tools: tool_ticks / all,
        idle: (idle - idle_before) / all,
        scraped,
    })
}

/// One kind of slice over all rounds, beside the slices without tools of the same rounds.
#[derive(Default)]
struct Kind {
    throughput: Vec<f64>,
    /// Requests for the server's CPU time: the stack's own cost, whatever else the CPUs do.
    own: Vec<f64>,
    tools: Vec<f64>,
    idle: Vec<f64>,
}

impl Kind {
    fn add(&mut self, slice: &Slice, without: &Slice) {
        self.throughput.push(slice.rate / without.rate);
        self.own.push(slice.per_tick / without.per_tick);
        self.tools.push(slice.tools);
        self.idle.push(slice.idle);
    }

    /// One line: what the stack pays, what the tools take, and what is left of the throughput.
    fn text(&self, tools: &[Tool]) -> String {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let taken_ms = quartiles(&self.tools)[1] * cpus as f64 * 1000.0;
        format!(
            "{tools:?}: throughput {:.4?} of that without, requests for CPU time of the server \
             {:.4?} (lower quartile, median, upper); tools take {taken_ms:.1} ms of CPU a second, \
             {:.2} % of {cpus} CPUs, which are idle for {:.1} %",
            quartiles(&self.throughput),
            quartiles(&self.own),
            quartiles(&self.tools)[1] * 100.0,
            quartiles(&self.idle)[1] * 100.0,
        )
    }

    /// Fails if the stack pays too much or the throughput is too low, and says what takes it.
    fn judge(&self, tools: &[Tool]) {
        let [own, throughput] = [&self.own, &self.throughput].map(|all| quartiles(all)[1]);
        let text = self.text(tools);
        assert!(own >= SHARE_MIN, "the stack itself pays for tools: {text}");
        // A tool that preempts one end of the load makes the other one wait as well.
        let explained = 2.0 * quartiles(&self.tools)[1];
        let cause = match 1.0 - throughput <= explained {
            true => "the CPUs have no time for the tools",
            false => "neither stack nor tools take it, but other load does",
        };
        assert!(throughput >= SHARE_MIN, "{cause}: {text}");
    }
}

#[test]
fn load_beside_all_tools_keeps_its_throughput() {
    let Some(world) = World::new("looked") else {
        return;
    };
    let seconds = std::env::var("OBSERVE_SECONDS").ok();
    let seconds: Option<u64> = seconds.and_then(|seconds| seconds.parse().ok());
    let slices = match std::env::var_os("OBSERVE_EACH") {
        Some(_) => SLICES_EACH,
        None => SLICES,
    };
    let seconds_each = SLICE_SECONDS[usize::from(seconds.is_none())];
    let rounds = seconds
        .unwrap_or(0)
        .div_ceil(seconds_each * slices.len() as u64)
        .max(1);
    let document = world.write("site/a", &world::noise(4_000));
    let site = document.parent().unwrap();
    let words = [&["--wire", "xdp:right"][..], &OURS].concat();
    let server = world.serve("ours", site, &words);
    let mut scraped = 0;
    let mut kinds: Vec<Kind> = slices.iter().map(|_| Kind::default()).collect();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..slices.len()).collect();
        order.rotate_left(round as usize % slices.len());
        if round % 2 == 1 {
            order.reverse();
        }
        let mut all = vec![Slice::default(); slices.len()];
        for at in order {
            let Some(slice) = slice(slices[at], seconds_each, &server, &world) else {
                return;
            };
            scraped += slice.scraped;
            all[at] = slice;
        }
        for (kind, slice) in kinds.iter_mut().zip(&all) {
            kind.add(slice, &all[0]);
        }
        let rates: Vec<f64> = all.iter().map(|slice| slice.rate.round()).collect();
        eprintln!("round {round}: {rates:?} requests a second");
    }
    eprintln!(
        "{rounds} rounds of {} slices of {seconds_each} s",
        slices.len()
    );
    for (tools, kind) in slices.iter().zip(&kinds).skip(1) {
        eprintln!("{}", kind.text(tools));
    }
    if seconds.is_some() {
        assert!(scraped > 0, "no page had values");
        for (tools, kind) in slices.iter().zip(&kinds).skip(1) {
            kind.judge(tools);
        }
    }
    server.stop();
}

/// The lower quartile, the median and the upper quartile.
fn quartiles(values: &[f64]) -> [f64; 3] {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}
