//! Programs over wires other than `packet:` and `mux:`. AF_XDP has clients on the kernel, memif has
//! `mill run` on both ends, and workers on AF_XDP use a service that `mill run` starts.
//!
//! Owns nothing. The veth's far end accepts frames of AF_XDP only while it aggregates (GRO).

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::workers::{PORT as WORKERS_PORT, configure, load_across, signal};
use super::{FAR, FILE_BYTES, NEAR, TRIES, World, inside, no_errors};
use crate::run::{self, Watched};

const PORT: u16 = 8093;

/// A command that runs a program under `mill run` on a wire. Its counters go to the file `report`.
fn on_wire(
    world: &World,
    namespace: &str,
    (wire, address): (&str, &str),
    report: &str,
    program: &[&str],
) -> Command {
    let (mill, address) = (world.mill.display().to_string(), format!("{address}/24"));
    let report = world.path(report);
    let line = ["run", "--wire", wire, "--addr", &address, "--report"];
    let line = [&[mill.as_str()], &line[..], &[&report, "--"], program].concat();
    inside(namespace, &line)
}

/// Starts nginx, as one process, on a wire of the near side.
fn nginx(world: &World, wire: &str) -> Result<Watched, String> {
    let root = world.directory.display();
    let configuration = format!(
        "daemon off; master_process off; pid {root}/wires.pid; error_log stderr;\n\
         events {{}}\n\
         http {{ access_log off; sendfile on; server {{ listen {NEAR}:{PORT}; root {root}; }} }}\n"
    );
    world.write("wires.conf", configuration.as_bytes())?;
    let _ = fs::remove_file(world.path("report"));
    let file = world.path("wires.conf");
    let program = ["nginx", "-c", &file];
    let mut command = on_wire(world, &world.near, (wire, NEAR), "report", &program);
    Watched::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// Keeps the veth's far end aggregating until it is dropped.
struct Aggregating<'a>(&'a World);

impl<'a> Aggregating<'a> {
    fn start(world: &'a World) -> Result<Self, String> {
        let on = ["ethtool", "-K", "v0", "gro", "on"];
        run::output(&mut inside(&world.far, &on)).map(|_| Self(world))
    }
}

impl Drop for Aggregating<'_> {
    fn drop(&mut self) {
        // Failure is harmless, since the namespaces are removed anyway.
        let off = ["ethtool", "-K", "v0", "gro", "off"];
        let _ = run::output(&mut inside(&self.0.far, &off));
    }
}

/// Checks nginx over AF_XDP, and curl over AF_XDP with a server on the kernel.
pub(super) fn xdp(world: &World) -> Result<(), String> {
    let _aggregating = Aggregating::start(world)?;
    let server = nginx(world, "xdp:v1")?;
    world.await_port(&world.far, NEAR, PORT)?;
    world.is_served(PORT)?;
    world.load_on(PORT)?;
    world.end(server, "-QUIT")?;
    world.must_have_carried("tx_bytes", FILE_BYTES)?;
    let _origin = world.kernel_server()?;
    let (copy, url) = (world.path("copy"), format!("http://{FAR}:8000/file"));
    let program = ["curl", "-sSm", "30", "-o", &copy, &url];
    let wire = ("xdp:v1", NEAR);
    run::output(&mut on_wire(world, &world.near, wire, "report", &program))?;
    world.must_be_same("copy")?;
    world.must_have_carried("rx_bytes", FILE_BYTES)
}

/// Checks nginx over memif, with curl and then ab on the other end.
pub(super) fn memif(world: &World) -> Result<(), String> {
    let socket = world.path("memif");
    let wire = |role: &str| format!("memif:{socket},role={role}");
    let server = nginx(world, &wire("server"))?;
    let client = |program: &[&str]| {
        let wire = wire("client");
        run::output(&mut on_wire(
            world,
            &world.far,
            (&wire, FAR),
            "report.client",
            program,
        ))
    };
    let (copy, url) = (world.path("copy"), format!("http://{NEAR}:{PORT}"));
    let file = format!("{url}/file");
    // The server may not listen yet, so retry.
    let retries = ["--retry", "20", "--retry-connrefused", "--retry-delay", "1"];
    let program = [&["curl", "-sSm", "60", "-o", &copy][..], &retries, &[&file]].concat();
    client(&program)?;
    world.must_be_same("copy")?;
    let index = format!("{url}/index.html");
    let said = client(&["ab", "-q", "-n1000", "-c20", &index])?;
    no_errors("ab", &said)?;
    world.end(server, "-QUIT")?;
    world.must_have_carried("tx_bytes", FILE_BYTES)
}

/// Checks memcached over memif. The client's threads all wait at once, and each must wake when its
/// answer has come.
pub(super) fn threads(world: &World) -> Result<(), String> {
    let socket = world.path("memif.threads");
    let wire = |role: &str| format!("memif:{socket},role={role}");
    let _ = fs::remove_file(world.path("report"));
    let program = ["memcached", "-u", "root", "-t", "4", "-l", NEAR];
    let wire_near = wire("server");
    let mut command = on_wire(world, &world.near, (&wire_near, NEAR), "report", &program);
    let server = Watched::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    // No client on the kernel reaches the server to probe it. Wait instead.
    sleep(Duration::from_millis(1500));
    let host = format!("--servers={NEAR}");
    let load = ["timeout", "60", "memcslap", &host, "--test=get"];
    let crowd = ["--concurrency=50", "--execute-number=200"];
    let program = [&load[..], &crowd, &["--initial-load=100"]].concat();
    let wire_far = wire("client");
    let client = (wire_far.as_str(), FAR);
    run::output(&mut on_wire(
        world,
        &world.far,
        client,
        "report.client",
        &program,
    ))?;
    world.end(server, "-TERM")?;
    // Each answer contains a value.
    world.must_have_carried("tx_bytes", 50 * 200 * 100)
}

/// Checks nginx with a master and two workers on an interface, without `mill mux`.
pub(super) fn workers(world: &World) -> Result<(), String> {
    let address = format!("{NEAR}/24");
    let line = ["ip", "address", "add", &address, "dev", "v1"];
    run::output(&mut inside(&world.near, &line))?;
    let outcome = workers_at(world);
    let line = ["ip", "address", "flush", "dev", "v1"];
    run::output(&mut inside(&world.near, &line))?;
    outcome
}

fn workers_at(world: &World) -> Result<(), String> {
    let _aggregating = Aggregating::start(world)?;
    configure(world)?;
    let (mill, file) = (world.mill.display().to_string(), world.path("workers.conf"));
    let line = [
        "run",
        "--workers",
        "--wire",
        "xdp:v1",
        "--",
        "nginx",
        "-c",
        &file,
    ];
    let line = [&[mill.as_str()], &line[..], &["-g", "daemon off;"]].concat();
    let mut command = inside(&world.near, &line);
    let mut server = Watched::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    world.await_port(&world.far, NEAR, WORKERS_PORT)?;
    let master = server.id().to_string();
    world.is_served(WORKERS_PORT)?;
    load_across(world, WORKERS_PORT, 5000, || signal("-HUP", &master))?;
    signal("-QUIT", &master)?;
    if !server.wait()? {
        return Err("QUIT did not end it with status 0".to_owned());
    }
    let socket = format!("@millstream-run-{master}");
    for _ in 0..TRIES {
        let line = [mill.as_str(), "mux", "status", "--socket", &socket];
        if run::output(&mut inside(&world.near, &line)).is_err() {
            return Ok(());
        }
        sleep(Duration::from_millis(100));
    }
    Err("the service outlives the program".to_owned())
}
