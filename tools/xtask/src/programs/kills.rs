//! `kill -9` of each process of nginx with workers over `mux:`, in turn: a worker, the service, the
//! master, the workers that it leaves, and the service again. Nothing may be left.
//!
//! Owns a veth, since the service keeps its files under the interface's name. Everything runs in
//! the host's mount namespace, where left-overs can be seen.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::workers::{await_workers, signal, workers_of};
use super::{TRIES, World};
use crate::run::{self, Watched};

const PORT: u16 = 8095;
const OWN: &str = "10.78.0.2";

/// The near side of the veth, and the paths at which something may be left.
struct Place<'a> {
    world: &'a World,
    interface: String,
    socket: String,
    /// Directory of the sockets of `mill ss`.
    observe: PathBuf,
}

pub(super) fn killed(world: &World) -> Result<(), String> {
    let place = Place::new(world)?;
    let service = place.service()?;
    let mut master = place.nginx()?;
    place.is_served()?;
    let pid = master.id().to_string();
    let old = workers_of(&pid)?;
    signal("-KILL", old.first().ok_or("nginx has no workers")?)?;
    await_workers(&pid, &old[..1])?;
    place.is_served()?;
    let mut slow = place.slow_transfer()?;
    kill(service)?;
    let service = place.service()?;
    if !slow.wait()? {
        return Err("a transfer broke off with the service".to_owned());
    }
    world.must_be_same("slow")?;
    place.is_served()?;
    let workers = workers_of(&pid)?;
    signal("-KILL", &pid)?;
    for worker in &workers {
        signal("-KILL", worker)?;
    }
    // The status tells of the signal, as expected.
    let _ = master.wait()?;
    place.until("the port is free again", |place| {
        Ok(!place.ask("ports")?.contains(&PORT.to_string()) && place.kernel_can_bind()?)
    })?;
    kill(service)?;
    let _service = place.service()?;
    place.ask("stop")?;
    place.until("nothing is left", |place| Ok(place.left()?.is_none()))
}

fn kill(mut process: Watched) -> Result<(), String> {
    signal("-KILL", &process.id().to_string())?;
    // The status tells of the signal, as expected.
    process.wait().map(drop)
}

impl<'a> Place<'a> {
    fn new(world: &'a World) -> Result<Self, String> {
        let interface = format!("k{}", std::process::id());
        let (far, near) = (&world.far, &world.near);
        for line in [
            format!("link add k0 netns {far} type veth peer name {interface} netns {near}"),
            format!("-n {far} addr add 10.78.0.1/24 dev k0"),
            format!("-n {near} addr add {OWN}/24 dev {interface}"),
            format!("-n {far} link set k0 up"),
            format!("-n {near} link set {interface} up"),
        ] {
            run::output(run::command("ip").args(line.split(' ')))?;
        }
        let offloads = ["tx", "off", "tso", "off", "gso", "off"];
        for (namespace, interface) in [(far, "k0"), (near, interface.as_str())] {
            let mut ethtool = super::inside(namespace, &["ethtool", "-K", interface]);
            run::output(ethtool.args(offloads))?;
        }
        // A veth takes redirected frames only if its peer aggregates.
        run::output(&mut super::inside(
            far,
            &["ethtool", "-K", "k0", "gro", "on"],
        ))?;
        let root = world.directory.display();
        let configuration = format!(
            "worker_processes 2; pid {root}/kills.pid; error_log stderr;\n\
             events {{}}\n\
             http {{ access_log off; server {{ listen {PORT}; root {root}; }} }}\n"
        );
        world.write("kills.conf", configuration.as_bytes())?;
        Ok(Self {
            world,
            interface,
            socket: world.path("kills.sock"),
            observe: world.directory.join("observe"),
        })
    }

    /// A command that runs a program in the near namespace, with the mounts of this process.
    fn near(&self, program: &[&str]) -> Command {
        let mut command = run::command("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", self.world.near))
            .args(program)
            .env("MILLSTREAM_OBSERVE", &self.observe);
        command
    }

    fn mill(&self, arguments: &[&str]) -> Command {
        let mill = self.world.mill.display().to_string();
        self.near(&[&[mill.as_str()], arguments].concat())
    }

    fn service(&self) -> Result<Watched, String> {
        let mut command = self.mill(&["mux", &self.interface, "--socket", &self.socket]);
        let service = Watched::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        self.until("the service answers", |place| {
            Ok(place.ask("status").is_ok())
        })?;
        Ok(service)
    }

    fn nginx(&self) -> Result<Watched, String> {
        let (wire, file) = (
            format!("mux:{}", self.socket),
            self.world.path("kills.conf"),
        );
        let line = [
            "run",
            "--wire",
            &wire,
            "--",
            "nginx",
            "-c",
            &file,
            "-g",
            "daemon off;",
        ];
        let mut command = self.mill(&line);
        let server = Watched::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        self.world.await_port(&self.world.far, OWN, PORT)?;
        let pid = server.id().to_string();
        await_workers(&pid, &[])?;
        Ok(server)
    }

    fn ask(&self, question: &str) -> Result<String, String> {
        run::output(&mut self.mill(&["mux", question, "--socket", &self.socket]))
    }

    /// Fetches the file with a client on the kernel. It retries, since a service that has just
    /// begun may not know the processes yet.
    fn is_served(&self) -> Result<(), String> {
        let (copy, url) = (self.world.path("copy"), format!("http://{OWN}:{PORT}/file"));
        let retries = ["--retry", "10", "--retry-all-errors", "--retry-delay", "1"];
        let line = [&["curl", "-sSm", "60", "-o", &copy][..], &retries, &[&url]].concat();
        run::output(&mut self.world.kernel(&line))?;
        self.world.must_be_same("copy")
    }

    /// Starts a transfer that takes some seconds.
    fn slow_transfer(&self) -> Result<Watched, String> {
        let (copy, url) = (self.world.path("slow"), format!("http://{OWN}:{PORT}/file"));
        let line = [
            "curl",
            "-sSm",
            "60",
            "--limit-rate",
            "2M",
            "-o",
            &copy,
            &url,
        ];
        let slow = Watched::start(&mut self.world.kernel(&line))?;
        sleep(Duration::from_millis(500));
        Ok(slow)
    }

    fn kernel_can_bind(&self) -> Result<bool, String> {
        let line = format!("import socket; socket.socket().bind(('', {PORT}))");
        let tried = run::outcome(&mut self.near(&["python3", "-c", &line]))?;
        Ok(tried.status.success())
    }

    /// A left-over of the service or of the programs, if there is any.
    fn left(&self) -> Result<Option<String>, String> {
        let run_dir = Path::new("/run/millstream").join(&self.interface);
        for path in [&run_dir, Path::new(&self.socket)] {
            if path.exists() {
                return Ok(Some(path.display().to_string()));
            }
        }
        let mounts =
            std::fs::read_to_string("/proc/self/mounts").map_err(|error| error.to_string())?;
        if let Some(mount) = mounts.lines().find(|line| line.contains(&self.interface)) {
            return Ok(Some(mount.to_owned()));
        }
        let links = run::output(&mut self.near(&["ip", "-o", "link", "show"]))?;
        if let Some(link) = links.lines().find(|line| line.contains("xdp")) {
            return Ok(Some(link.to_owned()));
        }
        // Any reader removes sockets that have no listener, so run one.
        run::output(&mut self.mill(&["ss"]))?;
        let mut sockets = std::fs::read_dir(&self.observe)
            .into_iter()
            .flatten()
            .flatten();
        let socket = sockets.find(|entry| entry.file_name().to_string_lossy().ends_with(".sock"));
        Ok(socket.map(|socket| socket.path().display().to_string()))
    }

    fn until(
        &self,
        what: &str,
        is_so: impl Fn(&Self) -> Result<bool, String>,
    ) -> Result<(), String> {
        for _ in 0..TRIES {
            if is_so(self)? {
                return Ok(());
            }
            sleep(Duration::from_millis(100));
        }
        let left = self.left().unwrap_or_default().unwrap_or_default();
        Err(format!("not within {TRIES} looks: {what}; left: {left}"))
    }
}
