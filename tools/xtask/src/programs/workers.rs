//! nginx with a master and two workers over `mux:`. Its workers have dropped their privileges and
//! are replaced under load. One of them is killed, and another program replaces the master.
//!
//! Owns a service on the near side, and the near side's address while it runs.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::{NEAR, World, inside, no_errors};
use crate::run::{self, Watched};

pub(super) const PORT: u16 = 8090;
/// Bits of HUP, QUIT, USR2, TERM and CHLD in a thread's mask: bit *n* - 1 is signal *n*.
const MASTER_SIGNALS: u64 = 1 | 1 << 2 | 1 << 11 | 1 << 14 | 1 << 16;

/// `mill mux` on the near side's interface, which has an address meanwhile.
pub(super) struct Service<'a> {
    world: &'a World,
    pub(super) socket: String,
    process: Watched,
}

impl<'a> Service<'a> {
    /// Starts nginx in the foreground with a configuration from the world's directory, and waits
    /// until it answers at `port`.
    pub(super) fn nginx(&self, configuration: &str, port: u16) -> Result<Watched, String> {
        let world = self.world;
        let mill = world.mill.display().to_string();
        let wire = format!("mux:{}", self.socket);
        let file = world.path(configuration);
        let program = ["nginx", "-c", &file, "-g", "daemon off;"];
        let line = [&[&mill, "run", "--wire", &wire, "--"], &program[..]].concat();
        let mut command = inside(&world.near, &line);
        let server = Watched::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        world.await_port(&world.far, NEAR, port)?;
        Ok(server)
    }

    pub(super) fn start(world: &'a World) -> Result<Self, String> {
        let address = format!("{NEAR}/24");
        let line = ["ip", "address", "add", &address, "dev", "v1"];
        run::output(&mut inside(&world.near, &line))?;
        // A veth accepts redirected frames only if its peer aggregates (GRO).
        run::output(&mut inside(
            &world.far,
            &["ethtool", "-K", "v0", "gro", "on"],
        ))?;
        let mill = world.mill.display().to_string();
        let socket = world.path("mux.sock");
        let line = [mill.as_str(), "mux", "v1", "--socket", &socket];
        let mut command = inside(&world.near, &line);
        let process = Watched::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        let service = Self {
            world,
            socket,
            process,
        };
        for _ in 0..super::TRIES {
            if service.ask("status").is_ok() {
                return Ok(service);
            }
            sleep(Duration::from_millis(100));
        }
        Err("`mill mux` does not answer".to_owned())
    }

    /// Process id of the service.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn ask(&self, question: &str) -> Result<String, String> {
        let mill = self.world.mill.display().to_string();
        let line = [mill.as_str(), "mux", question, "--socket", &self.socket];
        run::output(&mut inside(&self.world.near, &line))
    }

    /// Waits until no program has the port.
    pub(super) fn await_release(&self, port: u16) -> Result<(), String> {
        for _ in 0..super::TRIES {
            if !self.ask("ports")?.contains(&port.to_string()) {
                return Ok(());
            }
            sleep(Duration::from_millis(100));
        }
        Err("the port is still claimed".to_owned())
    }

    /// Number of contexts that have carried frames.
    fn busy_contexts(&self) -> Result<usize, String> {
        let said = self.ask("status")?;
        let contexts = said
            .lines()
            .filter(|line| line.trim_start().starts_with("context "));
        Ok(contexts.filter(|line| !line.contains(": 0 frames")).count())
    }
}

impl Drop for Service<'_> {
    fn drop(&mut self) {
        // A service that has ended leaves nothing to stop, and the namespaces are removed anyway.
        let _ = self.ask("stop");
        let line = ["ip", "address", "flush", "dev", "v1"];
        let _ = run::output(&mut inside(&self.world.near, &line));
        let _ = run::output(&mut inside(
            &self.world.far,
            &["ethtool", "-K", "v0", "gro", "off"],
        ));
    }
}

pub(super) fn signal(signal: &str, pid: &str) -> Result<(), String> {
    run::output(run::command("kill").args([signal, pid])).map(drop)
}

pub(super) fn workers_of(pid: &str) -> Result<Vec<String>, String> {
    let said = run::output(run::command("pgrep").args(["-P", pid]))?;
    Ok(said.lines().map(str::to_owned).collect())
}

/// Checks that signals go to the program's own thread, which is the first: other threads must block
/// them.
fn threads_take_no_signal(pid: &str) -> Result<(), String> {
    let said = run::output(run::command("sh").args([
        "-c",
        &format!("cd /proc/{pid}/task && grep -H ^SigBlk: [0-9]*/status"),
    ]))?;
    let first = format!("{pid}/");
    let others: Vec<&str> = said
        .lines()
        .filter(|line| !line.starts_with(&first))
        .collect();
    let takes = |line: &&&str| {
        let mask = line.split_whitespace().last().unwrap_or_default();
        let blocked = u64::from_str_radix(mask, 16).unwrap_or_default();
        blocked & MASTER_SIGNALS != MASTER_SIGNALS
    };
    match others.iter().find(takes) {
        Some(line) => Err(format!("a thread of the library takes signals: {line}")),
        None if others.is_empty() => Err("the library has no threads".to_owned()),
        None => Ok(()),
    }
}

/// Waits until the master has two workers, both new compared with `old`.
pub(super) fn await_workers(master: &str, old: &[String]) -> Result<(), String> {
    for _ in 0..super::TRIES {
        let now = workers_of(master).unwrap_or_default();
        if now.len() == 2 && !now.iter().any(|pid| old.contains(pid)) {
            return Ok(());
        }
        sleep(Duration::from_millis(100));
    }
    Err("there are not two new workers".to_owned())
}

pub(super) fn nginx(world: &World) -> Result<(), String> {
    let permissions = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&world.directory, permissions).map_err(|error| error.to_string())?;
    let service = Service::start(world)?;
    configure(world)?;
    let mut server = service.nginx("workers.conf", PORT)?;
    let master = server.id().to_string();
    world.is_served(PORT)?;
    world.load_on(PORT)?;
    match service.busy_contexts()? {
        2 => {}
        count => {
            return Err(format!(
                "{count} contexts carried frames, not the two workers'"
            ));
        }
    }
    threads_take_no_signal(&master)?;
    reload(world, &master)?;
    let killed = workers_of(&master)?;
    if let Some(pid) = killed.first() {
        signal("-KILL", pid)?;
    }
    await_workers(&master, &killed[..1])?;
    world.is_served(PORT)?;
    world.load_on(PORT)?;
    signal("-QUIT", &master)?;
    if !server.wait()? {
        return Err("QUIT did not end it with status 0".to_owned());
    }
    match service.ask("ports")?.contains(&PORT.to_string()) {
        true => Err("the port is still claimed".to_owned()),
        false => Ok(()),
    }
}

/// Writes the configuration of a master and two workers.
pub(super) fn configure(world: &World) -> Result<(), String> {
    let root = world.directory.display();
    let configuration = format!(
        "worker_processes 2; pid {root}/nginx.pid; error_log stderr;\n\
         events {{}}\n\
         http {{ access_log off; sendfile on;\n\
         server {{ listen {NEAR}:{PORT}; root {root}; }} }}\n"
    );
    world.write("workers.conf", configuration.as_bytes())
}

/// The master in the configuration's pid file, once it differs from `old` and has workers.
fn await_master(world: &World, old: &str) -> Result<String, String> {
    for _ in 0..super::TRIES {
        let read = std::fs::read_to_string(world.path("nginx.pid")).unwrap_or_default();
        let pid = read.trim();
        if !pid.is_empty() && pid != old && await_workers(pid, &[]).is_ok() {
            return Ok(pid.to_owned());
        }
        sleep(Duration::from_millis(100));
    }
    Err("there is no new master".to_owned())
}

/// Checks USR2: another master gets the listeners by `exec`, and the old one ends.
pub(super) fn upgrade(world: &World) -> Result<(), String> {
    let service = Service::start(world)?;
    configure(world)?;
    let program = run::output(run::command("which").arg("nginx"))?;
    let (mill, socket) = (world.mill.display(), &service.socket);
    let (program, file) = (program.trim(), world.path("workers.conf"));
    // nginx accepts USR2 only after the process that started it has gone.
    let line =
        format!("{mill} run --wire mux:{socket} -- {program} -c {file} -g 'daemon off;' & sleep 1");
    let mut shell = inside(&world.near, &["sh", "-c", &line]);
    let shell = shell
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut group = Watched::start(shell)?;
    if !group.wait()? {
        return Err("the shell that starts nginx failed".to_owned());
    }
    let old = await_master(world, "")?;
    world.is_served(PORT)?;
    let mut new = String::new();
    load_across(world, PORT, 20_000, || {
        signal("-USR2", &old)?;
        new = await_master(world, &old)?;
        signal("-QUIT", &old)
    })?;
    for _ in 0..super::TRIES {
        if workers_of(&old).is_err() {
            break;
        }
        sleep(Duration::from_millis(100));
    }
    world.is_served(PORT)?;
    world.load_on(PORT)?;
    signal("-QUIT", &new)?;
    service.await_release(PORT)
}

/// Checks nginx that forks into the background, whose first process ends at once.
pub(super) fn daemon(world: &World) -> Result<(), String> {
    let service = Service::start(world)?;
    configure(world)?;
    let file = world.path("workers.conf");
    let (mill, wire) = (
        world.mill.display().to_string(),
        format!("mux:{}", service.socket),
    );
    let line = [
        mill.as_str(),
        "run",
        "--wire",
        &wire,
        "--",
        "nginx",
        "-c",
        &file,
        "-g",
        "daemon on;",
    ];
    // No pipe for the output: the background process would keep it open.
    let mut command = inside(&world.near, &line);
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut first = Watched::start(command.stderr(Stdio::null()))?;
    if !first.wait()? {
        return Err("the process that forks into the background failed".to_owned());
    }
    let master = await_master(world, "")?;
    world.await_port(&world.far, NEAR, PORT)?;
    world.is_served(PORT)?;
    world.load_on(PORT)?;
    signal("-QUIT", &master)?;
    service.await_release(PORT)
}

/// Checks HUP under load: a running transfer goes on, and no request is lost.
fn reload(world: &World, master: &str) -> Result<(), String> {
    let old = workers_of(master)?;
    let copy = world.path("slow");
    let file = format!("http://{NEAR}:{PORT}/file");
    let line = [
        "curl",
        "-sSm",
        "60",
        "--limit-rate",
        "2M",
        "-o",
        &copy,
        &file,
    ];
    let mut slow = Watched::start(&mut world.kernel(&line))?;
    load_across(world, PORT, 10_000, || signal("-HUP", master))?;
    if !slow.wait()? {
        return Err("a transfer broke off when the workers were replaced".to_owned());
    }
    world.must_be_same("slow")?;
    await_workers(master, &old)
}

/// Makes `event` happen while `ab` loads the server with short connections. Each request must be
/// answered. `-r` makes `ab` count failed requests instead of stopping.
pub(super) fn load_across(
    world: &World,
    port: u16,
    requests: u32,
    event: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let url = format!("http://{NEAR}:{port}/index.html");
    let (requests, at_once) = (format!("-n{requests}"), "-c20");
    let mut load: Command = world.kernel(&["ab", "-r", "-q", &requests, at_once, &url]);
    let load = std::thread::spawn(move || run::output(&mut load));
    sleep(Duration::from_millis(500));
    let done = event();
    let said = load
        .join()
        .map_err(|_| "ab's thread panicked".to_owned())??;
    done?;
    no_errors("ab", &said)
}
