//! The crowd: kernel clients over veth against `mill serve` on AF_XDP and against nginx on the
//! kernel, with up to thousands of connections at once (decision 0060).
//!
//! Both servers are programs as a user starts them, pinned to the server's core, and serve the same
//! document. The client is [`http`](super::http) for both. Drops of devices, port and stacks are
//! read before and after the run, so they include the warm-up.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::measure::{Seen, cpu, http, kernel};
use serde_json::Value;

use super::sides::{self, Run};
use super::system::System;
use crate::frame::drops::Drops;
use crate::frame::namespace::{self, Veth, VethOptions};
use crate::frame::{Process, process};
use crate::mux::service::Service;
use mill::limits::BACKLOG_DEFAULT;

const PORT: u16 = 80;
/// Most connections that nginx makes its table for when it starts.
const DESCRIPTORS_MAX: u64 = 131_072;
/// Longest time until a server listens.
const STARTING_TIME: Duration = Duration::from_secs(20);
/// Number of connections beyond which `mill serve` gets tables for twice as many, instead of its
/// default: the next connection comes before the last one has left.
const CONNECTIONS_BY_DEFAULT: usize = 8_192;
/// The port's counters of frames that were dropped before the stack saw them.
const PORT_DROPS: [&str; 3] = ["xdp_rx_dropped", "xdp_rx_ring_full", "xdp_rx_no_port"];
/// Parts of the names of counters that tell of losses.
const LOSSES: [&str; 11] = [
    "bad_",
    "cookie",
    "drop",
    "empty",
    "full",
    "invalid",
    "no_port",
    "overflow",
    "refused",
    "retransmi",
    "timeout",
];

/// Runs one system once.
pub fn run(system: System, run: &Run) -> Result<Seen, String> {
    let veth = Veth::new(VethOptions {
        mtu: 1500,
        kernel_server: system.is_kernel() || system.is_shared(),
        kernel_client: true,
        segmentation: run.wire.segmentation,
        is_shared: run.wire.is_shared,
        ..VethOptions::default()
    })?;
    let path = system.mux_path();
    let service = path.map(|path| Service::start(&veth, path)).transpose()?;
    let wire = match (&service, system) {
        (Some(service), _) => service.wire(),
        (None, System::KernelServe) => "kernel".to_owned(),
        (None, _) => system.wire(namespace::DEVICE),
    };
    let documents = Documents::new(run)?;
    let mut server = match system {
        System::Nginx => start_nginx(&veth, &documents, run),
        _ => start_mill(&veth, &documents, &wire, run),
    }
    .map_err(|cause| format!("server: {cause}"))?;
    let namespaces = [veth.server(), veth.client()];
    let look = || -> Result<Vec<Drops>, String> {
        let drops = namespaces.iter().map(|name| Drops::of(name));
        drops.collect()
    };
    let before = look()?;
    let mut seen = client(&veth, &server, run).map_err(|cause| format!("client: {cause}"))?;
    let after = look()?;
    let since: Vec<Drops> = after.iter().zip(&before).map(|(a, b)| a.since(b)).collect();
    let counters = server_counters(system, &mut server)?;
    server
        .finish()
        .map_err(|cause| format!("server: {cause}"))?;
    note(&mut seen, &since, &counters);
    sides::judged_by_answers(seen)
}

/// Adds the frames lost on the way to what the client saw.
fn note(seen: &mut Seen, since: &[Drops], counters: &[(String, u64)]) {
    seen.dropped_by_wire = since.iter().map(|drops| drops.device).sum();
    let by_port = counters.iter();
    let by_port = by_port.filter(|(name, _)| PORT_DROPS.contains(&name.as_str()));
    let by_port: u64 = by_port.map(|(_, count)| count).sum();
    seen.dropped_by_server = by_port + since.first().map_or(0, Drops::by_stack);
    for (side, drops) in ["server", "client"].into_iter().zip(since) {
        let rows = drops.rows();
        let named = rows.map(|(name, count)| (format!("{side} {name}"), count));
        seen.losses.extend(named);
    }
    let tells = |name: &str| LOSSES.iter().any(|part| name.contains(part));
    let told = counters.iter().filter(|(name, _)| tells(name));
    seen.losses.extend(told.cloned());
}

/// The document of the plan's size, in a directory that goes away.
struct Documents(PathBuf);

impl Documents {
    fn new(run: &Run) -> Result<Self, String> {
        let name = format!("mst-{}-crowd", std::process::id());
        let documents = Self(std::env::temp_dir().join(name));
        let root = documents.root();
        let body = vec![b'm'; run.plan.response_bytes];
        let written = fs::create_dir_all(&root)
            .and_then(|()| fs::write(root.join(http::document(&run.plan)), body));
        written.map_err(|error| format!("{}: {error}", root.display()))?;
        Ok(documents)
    }

    fn root(&self) -> PathBuf {
        self.0.join("documents")
    }
}

impl Drop for Documents {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Starts a server in the server's namespace, on its core.
fn start(veth: &Veth, core: usize, program: &Path, words: &[String]) -> Result<Process, String> {
    let mut all = vec!["-c".to_owned(), core.to_string()];
    all.push(program.display().to_string());
    all.extend_from_slice(words);
    Process::start(Some(&veth.server()), "taskset".into(), &all)
}

fn start_mill(
    veth: &Veth,
    documents: &Documents,
    wire: &str,
    run: &Run,
) -> Result<Process, String> {
    let connections = run.plan.connections;
    let mut words = vec![
        "serve".to_owned(),
        documents.root().display().to_string(),
        format!("--wire={wire}"),
        format!("--addr={}/24", namespace::SERVER),
        format!("--port={PORT}"),
        format!("--backlog={}", BACKLOG_DEFAULT.max(connections)),
        "--json".to_owned(),
    ];
    if connections > CONNECTIONS_BY_DEFAULT {
        words.push(format!("--sockets-max={}", 2 * connections));
    }
    let program = process::ourselves()?;
    let mut server = start(veth, run.server_core, &program, &words)?;
    let ready: Value = server.says()?;
    match ready["event"] == "ready" {
        true => Ok(server),
        false => Err(format!("not ready: {ready}")),
    }
}

/// One process, no log, and nothing that closes a connection that stays or keeps a crowd out.
/// Open files are cached, and the kernel sends them.
fn nginx_settings(documents: &Documents, connections: usize, descriptors: u64) -> String {
    let root = documents.root();
    let pid = documents.0.join("nginx.pid");
    let backlog = BACKLOG_DEFAULT.max(connections);
    format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\nuser root;\n\
         pid {};\nerror_log stderr crit;\n\
         events {{ use epoll; multi_accept on; worker_connections {}; }}\n\
         http {{\n  access_log off;\n  default_type text/html;\n  sendfile on;\n  tcp_nodelay on;\n\
         \x20 keepalive_requests 1000000000;\n  keepalive_timeout 1h;\n\
         \x20 reset_timedout_connection off;\n\
         \x20 open_file_cache max=16 inactive=1h;\n  open_file_cache_valid 1h;\n\
         \x20 server {{ listen {PORT} backlog={backlog}; root {}; }}\n}}\n",
        pid.display(),
        descriptors.min(DESCRIPTORS_MAX),
        root.display(),
    )
}

fn start_nginx(veth: &Veth, documents: &Documents, run: &Run) -> Result<Process, String> {
    let settings = documents.0.join("nginx.conf");
    // The server inherits the limit.
    let descriptors = kernel::allow_descriptors(&run.plan);
    let text = nginx_settings(documents, run.plan.connections, descriptors);
    fs::write(&settings, text).map_err(|error| format!("{}: {error}", settings.display()))?;
    let words = ["-e", "stderr", "-c", &settings.display().to_string()].map(str::to_owned);
    let server = start(veth, run.server_core, Path::new("nginx"), &words)?;
    let until = Instant::now() + STARTING_TIME;
    while Instant::now() < until {
        if listens(server.id()) {
            return Ok(server);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err("nginx does not listen: is it installed? `cargo xtask bench` installs it".to_owned())
}

/// True if the process is nginx and a listener on [`PORT`] stands in its namespace.
fn listens(pid: u32) -> bool {
    // The process is in its starter's namespace until `ip` has moved it.
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    program.trim() == "nginx" && has_listener(&table)
}

/// The table's second column ends with the port, and the fourth is the state (0A: LISTEN).
fn has_listener(table: &str) -> bool {
    let port = format!(":{PORT:04X}");
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().take(4).collect();
        matches!(fields[..], [_, local, _, "0A"] if local.ends_with(&port))
    })
}

/// The client's run, with the CPU time that the server used in the time that counts.
fn client(veth: &Veth, server: &Process, run: &Run) -> Result<Seen, String> {
    let address = SocketAddr::new(
        namespace::SERVER
            .parse()
            .map_err(|_| "no address".to_owned())?,
        PORT,
    );
    let mut words = ["message-side", "--wire", "kernel", "--http"]
        .map(str::to_owned)
        .to_vec();
    words.extend(["--role", "client", "--core"].map(str::to_owned));
    words.push(run.client_core.to_string());
    words.push(format!("--server={address}"));
    words.extend(run.plan.words());
    let mut client = Process::ourselves(Some(&veth.client()), &words)?;
    // The first line is of idle connections, of which there are none, the second of the warm-up's
    // end.
    client.line()?;
    client.line()?;
    let used = || cpu::time_ns(server.id()).ok_or("the server's CPU time is not told".to_owned());
    let before = used()?;
    let mut seen: Seen = client.says()?;
    let cpu_ns = used()?.saturating_sub(before);
    seen.server_cpu_us = cpu_ns as f64 / 1e3 / seen.transactions.max(1) as f64;
    client.finish()?;
    Ok(seen)
}

/// Stops the server. `mill serve` says what its port and stack counted.
fn server_counters(system: System, server: &mut Process) -> Result<Vec<(String, u64)>, String> {
    server.stop()?;
    if system.is_kernel() {
        return Ok(Vec::new());
    }
    let stopped: Value = server.says().map_err(|cause| format!("server: {cause}"))?;
    let counters = stopped["stats"]["stack"].as_object();
    let counters = counters.ok_or_else(|| format!("server: no counters: {stopped}"))?;
    let counters = counters.iter();
    let counters = counters.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?)));
    Ok(counters.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_is_told_from_a_connection_and_from_another_port() {
        let table = |local: &str, state: &str| {
            format!("  sl  local_address rem_address   st\n   0: {local} 00000000:0000 {state} 0\n")
        };
        assert!(has_listener(&table("00000000:0050", "0A")));
        assert!(!has_listener(&table("00000000:0050", "01")));
        assert!(!has_listener(&table("00000000:1050", "0A")));
        assert!(!has_listener(""));
    }

    #[test]
    fn port_drops_and_the_kernels_are_told_apart() {
        let counters = [
            ("xdp_rx_ring_full", 5),
            ("xdp_rx_frames", 9),
            ("tcp_timeouts", 2),
        ];
        let counters = counters.map(|(name, count)| (name.to_owned(), count));
        let mut seen = Seen::default();
        let of = |device| Drops {
            device,
            ..Drops::default()
        };
        note(&mut seen, &[of(3), of(4)], &counters);
        assert_eq!((seen.dropped_by_wire, seen.dropped_by_server), (7, 5));
        let names: Vec<&str> = seen.losses.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["xdp_rx_ring_full", "tcp_timeouts"]);
    }
}
