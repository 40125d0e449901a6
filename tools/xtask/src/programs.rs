//! `cargo xtask test --only programs`: Debian's programs, unchanged, under `mill run` over a veth.
//!
//! The other side is the kernel's stack. On the program's side the kernel has no address on the
//! wire, and the counters of `mill run --report` must show that Millstream carried the bytes. Owns
//! two namespaces and a directory. The variable `PROGRAMS` selects the checks whose names contain
//! its value.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::cleanup;
use crate::demo;
use crate::run::{self, Watched};

mod calls;
mod exits;
mod kills;
mod languages;
mod proxies;
pub(crate) mod soak;
mod spawned;
pub(crate) mod speed;
mod states;
mod turns;
mod wildcard;
mod wires;
mod workers;

const FAR: &str = "10.77.0.1";
const NEAR: &str = "10.77.0.2";
/// Length in bytes of the file that is served and fetched.
const FILE_BYTES: usize = 8 << 20;

type Check = fn(&World) -> Result<(), String>;

/// Programs, each with the words for its check in `docs/unmodified-programs.md`, and the check.
const CHECKS: &[(&str, &str, Check)] = &[
    ("curl", "a download of 8 MiB", |world| {
        world.fetch("curl", &["curl", "-sSo"])
    }),
    ("wget", "a download of 8 MiB", |world| {
        world.fetch("wget", &["wget", "-qO"])
    }),
    (
        "ab",
        "200 requests by 8 clients, without an error",
        |world| world.load_from("ab", &["ab", "-q", "-n200", "-c8"]),
    ),
    ("wrk", "a load by 4 clients, without an error", |world| {
        world.load_from("wrk", &["wrk", "-t1", "-c4", "-d1"])
    }),
    ("http.server", "python3: files, ended by INT", http_server),
    (
        "calls of a program",
        "`dup` and its kin, `close_range`, `syscall`, `splice`, `__*_chk`, `fork`, `exec`, \
         `posix_spawn`, signals, timers, pipes and eventfds beside sockets in one epoll: the same output as on \
         the kernel",
        calls::compared,
    ),
    (
        "calls in every state",
        "listening, connected, half closed, reset sockets and others: a sample of all calls with \
         good and bad arguments, the same output as on the kernel",
        states::compared,
    ),
    (
        "ends with unread data",
        "python3: 1 MiB that nobody has read when the process ends by `exit`, `_exit`, \
         `quick_exit` or `exit_group`: `wait` returns at once with its status, pipes, locks and \
         ports are free, and all of it arrives although another program starts",
        exits::unread,
    ),
    (
        "asyncio server",
        "python3: files, load by ab and wrk, ended by TERM",
        languages::asyncio,
    ),
    (
        "node server",
        "`http`: files, load by ab and wrk, ended by TERM",
        languages::node_server,
    ),
    (
        "node client",
        "8 downloads of 8 MiB over 4 connections",
        languages::node_client,
    ),
    (
        "Java NIO server",
        "one selector: files, load by ab and wrk, ended by TERM",
        languages::java,
    ),
    (
        "nginx",
        "`master_process off`: files by `sendfile`, load by ab and wrk, ended by QUIT",
        nginx,
    ),
    (
        "lighttpd",
        "files, load by ab and wrk, ended by INT",
        lighttpd,
    ),
    (
        "redis-server",
        "redis-benchmark with 20 clients, BGSAVE under load, ended by TERM",
        redis,
    ),
    (
        "memcached",
        "20 connections over four threads, libmemcached's memccapable, ended by TERM",
        memcached,
    ),
    (
        "iperf3 server",
        "8 streams in each direction",
        iperf3_server,
    ),
    (
        "iperf3 client",
        "8 streams in each direction",
        iperf3_client,
    ),
    (
        "nginx and curl over AF_XDP",
        "files in both directions, load by ab and wrk on a server of one process, ended by QUIT",
        wires::xdp,
    ),
    (
        "nginx with workers over AF_XDP",
        "`--workers`, a service for the program alone: a file, HUP under load without a reset \
         request, ended by QUIT, and the service with it",
        wires::workers,
    ),
    (
        "nginx, curl and ab over memif",
        "`mill run` on both ends: a file, a load without an error, ended by QUIT",
        wires::memif,
    ),
    (
        "memcached and memcslap over memif",
        "`mill run` on both ends: four threads of a server, 50 threads of a client that wait each \
         for an answer of its own",
        wires::threads,
    ),
    (
        "nginx with workers over mux",
        "a master and two workers: files, load by ab and wrk, HUP under load without a reset \
         request, a worker killed, ended by QUIT",
        workers::nginx,
    ),
    (
        "nginx on all addresses over mux",
        "`listen 80` as it stands, IPv4 and IPv6: files over the NIC and from this host, HUP under \
         load without a reset request, ended by QUIT",
        wildcard::nginx,
    ),
    (
        "nginx killed over mux",
        "`kill -9` of a worker, the service during a transfer, the master and its workers: the others \
         go on, and nothing is left in the end",
        kills::killed,
    ),
    (
        "nginx upgraded over mux",
        "USR2 and QUIT under load without a reset request",
        workers::upgrade,
    ),
    (
        "nginx as a daemon over mux",
        "in the background: files, load by ab and wrk, ended by QUIT",
        workers::daemon,
    ),
    (
        "spawned programs over mux",
        "python3: a listener that another program gets by posix_spawn, by vfork and exec, and by \
         fork, dup2 and exec, where it changes its root and user, or starts when a connection has \
         come",
        spawned::over_mux,
    ),
    (
        "spawned programs over packet",
        "python3: `accept` in a program without privilege that got a listener by fork, dup2 and \
         exec: `EBADF` and a log line, also for a listener on all addresses",
        spawned::refused,
    ),
    (
        "haproxy -Ws over mux",
        "in front of a server of the kernel's: two reloads by USR2 under load without a reset \
         request, ended by USR1",
        proxies::haproxy,
    ),
    (
        "apache2 over mux",
        "event MPM: files, USR1 under load without a reset request, ended by WINCH",
        proxies::apache,
    ),
    (
        "processes with a lock over mux",
        "python3: four processes take turns at a listener by `flock`, and a master watches them: each \
         of 120 connections is served, ended by TERM",
        turns::by_lock,
    ),
    (
        "php-fpm over mux",
        "`pm = ondemand`, up to three children: each of 120 requests is answered, ended by QUIT",
        turns::php_fpm,
    ),
];

/// Runs the checks of all programs.
pub fn check(root: &Path) -> Result<(), String> {
    if let Err(cause) = demo::must_be_root("programs") {
        run::note_ignored([cause]);
        return Ok(());
    }
    run::run(run::cargo().args(["build", "-p", "preload", "-p", "mill"]))?;
    let world = World::new(root)?;
    let mut failed = Vec::new();
    let wanted = std::env::var("PROGRAMS").unwrap_or_default();
    let chosen = CHECKS.iter().filter(|(name, _, _)| name.contains(&wanted));
    for (name, _, check) in chosen {
        match check(&world) {
            Ok(()) => println!("  {name}: works"),
            Err(cause) => failed.push(format!("{name}: {cause}")),
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(failed.join("\n")),
    }
}

/// Two namespaces with a veth between them, and a directory with the file.
struct World {
    far: String,
    near: String,
    directory: PathBuf,
    mill: PathBuf,
}

impl Drop for World {
    fn drop(&mut self) {
        for name in [&self.far, &self.near] {
            // A namespace that cannot be removed now is swept when the run ends.
            let _ = run::output(run::command("ip").args(["netns", "delete", name]));
        }
    }
}

impl World {
    fn new(root: &Path) -> Result<Self, String> {
        let pid = std::process::id();
        let world = Self {
            far: format!("mst-{pid}-far"),
            near: format!("mst-{pid}-near"),
            directory: cleanup::temporary_directory()?.join("programs"),
            mill: run::target(root).join("debug/mill"),
        };
        let lines = [
            format!("netns add {}", world.far),
            format!("netns add {}", world.near),
            format!(
                "link add v0 netns {} type veth peer name v1 netns {}",
                world.far, world.near
            ),
            format!("-n {} addr add {FAR}/24 dev v0", world.far),
            format!("-n {} link set v0 up", world.far),
            format!("-n {} link set lo up", world.far),
            format!("-n {} link set v1 up", world.near),
            format!("-n {} link set lo up", world.near),
        ];
        for line in lines {
            run::output(run::command("ip").args(line.split(' ')))?;
        }
        let offloads = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"];
        for (namespace, interface) in [(&world.far, "v0"), (&world.near, "v1")] {
            let mut ethtool = inside(namespace, &["ethtool", "-K", interface]);
            run::output(ethtool.args(offloads))?;
        }
        fs::create_dir_all(&world.directory).map_err(|error| error.to_string())?;
        let bytes: Vec<u8> = (0..FILE_BYTES).map(|at| ((at * at) >> 7) as u8).collect();
        world.write("file", &bytes)?;
        world.write("index.html", b"hello\n")?;
        Ok(world)
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        fs::write(self.path(name), bytes).map_err(|error| format!("{name}: {error}"))
    }

    /// A command that runs a program on the kernel's stack, on the far side.
    fn kernel(&self, program: &[&str]) -> Command {
        inside(&self.far, program)
    }

    /// A command that runs a program on Millstream.
    fn millstream(&self, program: &[&str]) -> Command {
        let mill = self.mill.display().to_string();
        let address = format!("{NEAR}/24");
        let report = self.path("report");
        let mut line = vec![
            mill.as_str(),
            "run",
            "--wire",
            "packet:v1",
            "--addr",
            &address,
        ];
        line.extend(["--report", &report, "--"]);
        line.extend(program);
        inside(&self.near, &line)
    }

    /// Starts a server on Millstream, and waits until its port answers.
    fn server(&self, port: u16, program: &[&str]) -> Result<Watched, String> {
        // Remove the counters of an earlier program, which would prove nothing.
        let _ = fs::remove_file(self.path("report"));
        let mut command = self.millstream(program);
        let server = Watched::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        self.await_port(&self.far, NEAR, port)?;
        Ok(server)
    }

    fn await_port(&self, from: &str, host: &str, port: u16) -> Result<(), String> {
        let line = format!("exec 3<>/dev/tcp/{host}/{port}");
        for _ in 0..TRIES {
            let tried = run::outcome(&mut inside(from, &["timeout", "1", "bash", "-c", &line]))?;
            if tried.status.success() {
                return Ok(());
            }
            sleep(Duration::from_millis(100));
        }
        Err(format!("{host}:{port} does not answer"))
    }

    /// Ends a server by its usual signal, and checks the counters.
    fn end(&self, mut server: Watched, signal: &str) -> Result<(), String> {
        let pid = server.id().to_string();
        run::output(run::command("kill").args([signal, &pid]))?;
        if !server.wait()? {
            return Err(format!("{signal} did not end it with status 0"));
        }
        self.must_have_carried("tx_bytes", 1)
    }

    fn must_have_carried(&self, counter: &str, bytes: usize) -> Result<(), String> {
        let report = fs::read_to_string(self.path("report"))
            .map_err(|error| format!("the counters: {error}"))?;
        let key = format!("{counter}: ");
        let value = report.split(&key).nth(1).unwrap_or("");
        let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
        match digits.parse::<usize>() {
            Ok(count) if count >= bytes => Ok(()),
            _ => Err(format!(
                "Millstream's {counter} is `{digits}`, less than {bytes}"
            )),
        }
    }

    fn must_be_same(&self, name: &str) -> Result<(), String> {
        let read = |name: &str| fs::read(self.path(name)).map_err(|error| error.to_string());
        match read(name)? == read("file")? {
            true => Ok(()),
            false => Err("the file that arrived is another one".to_owned()),
        }
    }

    /// Fetches the file from a server on Millstream, with a client on the kernel.
    fn is_served(&self, port: u16) -> Result<(), String> {
        let url = format!("http://{NEAR}:{port}/file");
        let copy = self.path("copy");
        run::output(&mut self.kernel(&["curl", "-sSm", "30", "-o", &copy, &url]))?;
        self.must_be_same("copy")
    }

    fn kernel_server(&self) -> Result<Watched, String> {
        let directory = self.directory.display().to_string();
        let mut command = self.kernel(&["python3", "-m", "http.server", "8000", "-d", &directory]);
        let server = Watched::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        self.await_port(&self.far, FAR, 8000)?;
        Ok(server)
    }

    /// Fetches the file with a client on Millstream.
    fn fetch(&self, name: &str, program: &[&str]) -> Result<(), String> {
        let _server = self.kernel_server()?;
        let copy = self.path(name);
        let url = format!("http://{FAR}:8000/file");
        run::output(&mut self.millstream(&[program, &[&copy, &url]].concat()))?;
        self.must_be_same(name)?;
        self.must_have_carried("rx_bytes", FILE_BYTES)
    }

    /// Loads a server from a client on Millstream, and accepts no error.
    fn load_from(&self, name: &str, program: &[&str]) -> Result<(), String> {
        let _server = self.kernel_server()?;
        let url = format!("http://{FAR}:8000/index.html");
        let said = run::output(&mut self.millstream(&[program, &[url.as_str()]].concat()))?;
        no_errors(name, &said)?;
        self.must_have_carried("rx_bytes", 1)
    }

    fn load_on(&self, port: u16) -> Result<(), String> {
        let url = format!("http://{NEAR}:{port}/index.html");
        let said = run::output(&mut self.kernel(&["ab", "-q", "-n1000", "-c20", &url]))?;
        no_errors("ab", &said)?;
        let said = run::output(&mut self.kernel(&["wrk", "-t1", "-c20", "-d1", &url]))?;
        no_errors("wrk", &said)
    }
}

const TRIES: u32 = 100;

fn inside(namespace: &str, program: &[&str]) -> Command {
    let mut command = run::command("ip");
    command.args(["netns", "exec", namespace]).args(program);
    command
}

fn no_errors(name: &str, said: &str) -> Result<(), String> {
    let is_good = match name {
        "ab" => said
            .lines()
            .any(|line| line.starts_with("Failed requests:") && line.ends_with(" 0")),
        _ => !said.contains("Socket errors") && !said.contains("Non-2xx"),
    };
    match is_good {
        true => Ok(()),
        false => Err(format!("{name} counts errors:\n{said}")),
    }
}

fn http_server(world: &World) -> Result<(), String> {
    let directory = world.directory.display().to_string();
    let line = ["python3", "-m", "http.server", "8001", "-d", &directory];
    let server = world.server(8001, &line)?;
    world.is_served(8001)?;
    world.end(server, "-INT")
}

fn nginx(world: &World) -> Result<(), String> {
    let root = world.directory.display();
    let configuration = format!(
        "daemon off; master_process off; pid {root}/nginx.pid; error_log stderr;\n\
         events {{}}\n\
         http {{ access_log off; sendfile on; server {{ listen 8080; root {root}; }} }}\n"
    );
    world.write("nginx.conf", configuration.as_bytes())?;
    let server = world.server(8080, &["nginx", "-c", &world.path("nginx.conf")])?;
    world.is_served(8080)?;
    world.load_on(8080)?;
    world.end(server, "-QUIT")
}

fn lighttpd(world: &World) -> Result<(), String> {
    let root = world.directory.display();
    let configuration = format!("server.document-root = \"{root}\"\nserver.port = 8082\n");
    world.write("lighttpd.conf", configuration.as_bytes())?;
    let server = world.server(
        8082,
        &["lighttpd", "-D", "-f", &world.path("lighttpd.conf")],
    )?;
    world.is_served(8082)?;
    world.load_on(8082)?;
    world.end(server, "-INT")
}

fn redis(world: &World) -> Result<(), String> {
    let directory = world.directory.display();
    let line = format!(
        "redis-server --port 6379 --bind 0.0.0.0 --protected-mode no --dir {directory} --save"
    );
    let line: Vec<&str> = line.split(' ').chain([""]).collect();
    let server = world.server(6379, &line)?;
    let line = format!("redis-benchmark -h {NEAR} -t get,set -n 5000 -c 20 -q");
    let line: Vec<&str> = line.split(' ').collect();
    let said = run::output(&mut world.kernel(&line))?;
    if said.contains("rror") {
        return Err(said);
    }
    redis_saves(world)?;
    world.end(server, "-TERM")
}

/// BGSAVE forks a child that inherits the sockets, while a load goes on.
fn redis_saves(world: &World) -> Result<(), String> {
    let line = format!("redis-benchmark -h {NEAR} -t set,get -n 60000 -c 20 -r 100000 -d 100 -q");
    let line: Vec<&str> = line.split(' ').collect();
    let mut load = Watched::start(world.kernel(&line).stdout(Stdio::null()))?;
    let ask = |words: &[&str]| {
        run::output(&mut world.kernel(&[&["redis-cli", "-h", NEAR][..], words].concat()))
    };
    ask(&[
        "config",
        "set",
        "dir",
        &world.directory.display().to_string(),
    ])?;
    ask(&["bgsave"])?;
    if !load.wait()? {
        return Err("redis-benchmark counts an error beside BGSAVE".to_owned());
    }
    for _ in 0..TRIES {
        let said = ask(&["info", "persistence"])?;
        if said.contains("rdb_bgsave_in_progress:0") {
            return match said.contains("rdb_last_bgsave_status:ok") && said.contains("rdb_saves:1")
            {
                true => Ok(()),
                false => Err(format!("BGSAVE failed:\n{said}")),
            };
        }
        sleep(Duration::from_millis(100));
    }
    Err("BGSAVE does not end".to_owned())
}

const MEMCACHED_CLIENT: &str = "\
import socket, sys
ends = [socket.create_connection((sys.argv[1], 11211), 10) for _ in range(20)]
def ask(end, line, last):
    end.sendall(line)
    got = b''
    while not got.endswith(last): got += end.recv(4096)
    return got
for i, end in enumerate(ends):
    assert ask(end, b'set k%d 0 0 5\\r\\nhel%02d\\r\\n' % (i, i), b'\\r\\n') == b'STORED\\r\\n'
for _ in range(50):
    for i, end in enumerate(ends):
        assert b'hel%02d' % i in ask(end, b'get k%d\\r\\n' % i, b'END\\r\\n')
";

fn memcached(world: &World) -> Result<(), String> {
    let line = "memcached -u root -t 4 -l 0.0.0.0";
    let line: Vec<&str> = line.split(' ').collect();
    let server = world.server(11211, &line)?;
    run::output(&mut world.kernel(&["python3", "-c", MEMCACHED_CLIENT, NEAR]))?;
    // memccapable tries every command of both protocols. Status 0 means that all answers were
    // right.
    run::output(&mut world.kernel(&["memccapable", "-h", NEAR]))?;
    world.end(server, "-TERM")
}

fn iperf3_server(world: &World) -> Result<(), String> {
    for options in [&["-P8"][..], &["-P8", "-R"]] {
        let mut command = world.millstream(&["iperf3", "-s", "-1"]);
        let mut server = Watched::start(command.stdout(Stdio::null()))?;
        // The server serves one connection, so a probe of its port would use that up. Wait instead.
        sleep(Duration::from_secs(1));
        let line = [&["iperf3", "-c", NEAR, "-t1"], options].concat();
        run::output(&mut world.kernel(&line))?;
        if !server.wait()? {
            return Err("the server counts an error".to_owned());
        }
        world.must_have_carried("tx_bytes", 1)?;
    }
    Ok(())
}

fn iperf3_client(world: &World) -> Result<(), String> {
    for options in [&["-P8"][..], &["-P8", "-R"]] {
        let mut command = world.kernel(&["iperf3", "-s", "-1"]);
        let _server = Watched::start(command.stdout(Stdio::null()))?;
        sleep(Duration::from_secs(1));
        let line = [&["iperf3", "-c", FAR, "-t1"], options].concat();
        run::output(&mut world.millstream(&line))?;
        world.must_have_carried("tx_bytes", 1)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::CHECKS;

    #[test]
    fn page_of_unmodified_programs_has_a_row_for_every_check() {
        let page = include_str!("../../../docs/unmodified-programs.md");
        for (name, what, _) in CHECKS {
            let row = format!("| {name} | {what} |");
            assert!(page.lines().any(|line| line == row), "missing: {row}");
        }
    }
}
