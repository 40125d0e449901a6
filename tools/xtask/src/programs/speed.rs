//! `cargo xtask bench programs`: unmodified servers on Millstream, compared with themselves on the
//! kernel.
//!
//! A round runs the server on the kernel, then on AF_XDP under `mill run`, each with a client on
//! the kernel across a veth. Then both ends run under `mill run` over memif. Each figure is the
//! median of the rounds. CPU time is that of server and client together.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{FAR, NEAR, World, inside};
use crate::run::{self, Watched};

const ROUNDS: usize = 3;
const SECONDS: &str = "2";
/// Clock ticks of `/proc` in a second (`USER_HZ`).
const TICKS: f64 = 100.0;

/// The stacks of server and client in a measurement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stacks {
    /// Both on the kernel.
    Kernel,
    /// The server runs on AF_XDP, the client on the kernel.
    Xdp,
    /// Both run on memif.
    Memif,
}

/// A server, its client, and the function that reads the rate from the client's output.
struct Case {
    name: &'static str,
    port: u16,
    server: &'static [&'static str],
    client: &'static [&'static str],
    rate: fn(&str, f64) -> Option<f64>,
    /// Least ratios to the kernel's rate: with AF_XDP, with memif.
    bars: [f64; 2],
}

const NGINX: &[&str] = &["nginx", "-c", "ROOT/speed.conf"];

const CASES: &[Case] = &[
    Case {
        name: "nginx, a connection per request",
        port: 8080,
        server: NGINX,
        client: &[
            "wrk",
            "-t1",
            "-c50",
            "-d",
            SECONDS,
            "-H",
            "Connection: close",
            "http://HOST:8080/index.html",
        ],
        rate: requests,
        bars: [1.9, 3.0],
    },
    Case {
        name: "nginx, keep-alive",
        port: 8080,
        server: NGINX,
        client: &[
            "wrk",
            "-t1",
            "-c50",
            "-d",
            SECONDS,
            "http://HOST:8080/index.html",
        ],
        rate: requests,
        bars: [1.3, 3.0],
    },
    Case {
        name: "redis GET, 50 clients",
        port: 6379,
        server: &[
            "redis-server",
            "--port",
            "6379",
            "--bind",
            "HOST",
            "--protected-mode",
            "no",
            "--save",
            "",
        ],
        client: &[
            "redis-benchmark",
            "-h",
            "HOST",
            "-t",
            "get",
            "-n",
            "100000",
            "-c",
            "50",
            "--csv",
        ],
        rate: redis_rate,
        bars: [1.5, 3.0],
    },
    Case {
        name: "memcached GET, 50 clients",
        port: 11211,
        server: &["memcached", "-u", "root", "-t", "1", "-l", "HOST"],
        client: &[
            "memcslap",
            "--servers=HOST",
            "--concurrency=50",
            "--execute-number=2000",
            "--test=get",
            "--initial-load=100",
        ],
        rate: gets,
        bars: [1.5, 3.0],
    },
];

/// Requests per second, from the output of wrk.
fn requests(said: &str, _: f64) -> Option<f64> {
    let line = said
        .lines()
        .find(|line| line.starts_with("Requests/sec:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Requests per second, from the output of redis-benchmark.
fn redis_rate(said: &str, _: f64) -> Option<f64> {
    let line = said.lines().find(|line| line.starts_with("\"GET\""))?;
    line.split(',').nth(1)?.trim_matches('"').parse().ok()
}

/// Requests per second of memcslap, which reports none. The time includes its start.
fn gets(_: &str, seconds: f64) -> Option<f64> {
    Some(50.0 * 2000.0 / seconds)
}

/// A measurement.
#[derive(Clone, Copy)]
struct Figure {
    rate: f64,
    /// CPU time of both ends for each request, µs.
    cpu_us: f64,
}

/// The chore.
pub(crate) fn speed(root: &Path) -> Result<bool, String> {
    run::run(run::cargo().args(["build", "--release", "-p", "preload", "-p", "mill"]))?;
    let mut world = World::new(root)?;
    world.mill = run::target(root).join("release/mill");
    let directory = world.directory.display();
    let configuration = format!(
        "daemon off; master_process off; pid {directory}/speed.pid; error_log stderr crit;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; keepalive_requests 1000000000;\n\
         server {{ listen {NEAR}:8080 backlog=4096; root {directory}; }} }}\n"
    );
    world.write("speed.conf", configuration.as_bytes())?;
    let gro = ["ethtool", "-K", "v0", "gro", "on"];
    run::output(&mut inside(&world.far, &gro))?;
    println!("| server | kernel/s | AF_XDP/s | ratio (bar) | CPU ratio | memif/s | ratio (bar) |");
    println!("|---|---|---|---|---|---|---|");
    let mut is_good = true;
    for case in CASES {
        is_good &= compare(&world, case)?;
    }
    Ok(is_good)
}

fn compare(world: &World, case: &Case) -> Result<bool, String> {
    let mut figures: [Vec<Figure>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (at, stacks) in [Stacks::Kernel, Stacks::Xdp, Stacks::Memif]
            .into_iter()
            .enumerate()
        {
            figures[at].push(measure(world, case, stacks)?);
        }
    }
    let [kernel, xdp, memif] = figures.map(|mut all| {
        all.sort_by(|one, other| one.rate.total_cmp(&other.rate));
        all[all.len() / 2]
    });
    let (ratio, far_ratio) = (xdp.rate / kernel.rate, memif.rate / kernel.rate);
    println!(
        "| {} | {:.0} | {:.0} | {ratio:.2} ({}) | {:.2} | {:.0} | {far_ratio:.2} ({}) |",
        case.name,
        kernel.rate,
        xdp.rate,
        case.bars[0],
        xdp.cpu_us / kernel.cpu_us,
        memif.rate,
        case.bars[1],
    );
    Ok(ratio >= case.bars[0] && far_ratio >= case.bars[1])
}

fn measure(world: &World, case: &Case, stacks: Stacks) -> Result<Figure, String> {
    let fill = |words: &[&str]| -> Vec<String> {
        let root = world.directory.display().to_string();
        let fill = |word: &&str| word.replace("HOST", NEAR).replace("ROOT", &root);
        words.iter().map(fill).collect()
    };
    let address = format!("{NEAR}/24");
    let line = ["ip", "address", "add", &address, "dev", "v1"];
    if stacks == Stacks::Kernel {
        run::output(&mut inside(&world.near, &line))?;
    }
    let before = children_ticks()?;
    let (server, client) = (fill(case.server), fill(case.client));
    let mut server = on(world, stacks, "server", NEAR, &server);
    let mut server = Watched::start(server.stdout(Stdio::null()).stderr(Stdio::null()))?;
    match stacks {
        // No client on the kernel reaches a memif server to probe it. Wait instead.
        Stacks::Memif => std::thread::sleep(Duration::from_millis(700)),
        _ => world.await_port(&world.far, NEAR, case.port)?,
    }
    let began = Instant::now();
    let said = run::output(&mut on(world, stacks, "client", FAR, &client))?;
    let seconds = began.elapsed().as_secs_f64();
    run::output(run::command("kill").args(["-TERM", &server.id().to_string()]))?;
    // The status tells of the signal, as expected.
    let _ = server.wait()?;
    if stacks == Stacks::Kernel {
        run::output(&mut inside(
            &world.near,
            &["ip", "address", "flush", "dev", "v1"],
        ))?;
    }
    let rate = (case.rate)(&said, seconds).ok_or(format!("{}: {said}", case.name))?;
    let cpu_seconds = (children_ticks()? - before) as f64 / TICKS;
    Ok(Figure {
        rate,
        cpu_us: cpu_seconds * 1e6 / (rate * seconds),
    })
}

/// A command that runs a program on its side of a wire.
fn on(world: &World, stacks: Stacks, role: &str, address: &str, program: &[String]) -> Command {
    let words: Vec<&str> = program.iter().map(String::as_str).collect();
    let is_server = role == "server";
    let namespace = if is_server { &world.near } else { &world.far };
    let wire = match (stacks, is_server) {
        (Stacks::Kernel, _) | (Stacks::Xdp, false) => return inside(namespace, &words),
        (Stacks::Xdp, true) => "xdp:v1".to_owned(),
        (Stacks::Memif, _) => format!("memif:{},role={role}", world.path("memif")),
    };
    let (mill, address) = (world.mill.display().to_string(), format!("{address}/24"));
    let mill = [
        mill.as_str(),
        "run",
        "--wire",
        &wire,
        "--addr",
        &address,
        "--",
    ];
    inside(namespace, &[&mill[..], &words].concat())
}

/// CPU time of all children that have ended, in ticks.
fn children_ticks() -> Result<u64, String> {
    let stat = fs::read_to_string("/proc/self/stat").map_err(|error| error.to_string())?;
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let words: Vec<&str> = behind.split_whitespace().collect();
    // `cutime` and `cstime` are fields 16 and 17 of the line. `words` begins with field 3.
    let field = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    match (field(13), field(14)) {
        (Some(user), Some(system)) => Ok(user + system),
        _ => Err("/proc/self/stat has no times of children".to_owned()),
    }
}
