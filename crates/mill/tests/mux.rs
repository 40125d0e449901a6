//! `mill mux`: servers of Millstream and of the kernel share one NIC and one address.
//!
//! The NIC is one end of a veth pair. Its peer, in a namespace of its own, is another host, on
//! which curl and ping run.

#[path = "mux/bulk.rs"]
mod bulk;
#[path = "mux/changes.rs"]
mod changes;
#[path = "mux/crowds.rs"]
mod crowds;
#[path = "mux/deaths.rs"]
mod deaths;
#[path = "mux/dhcp.rs"]
mod dhcp;
#[path = "mux/generic.rs"]
mod generic;
#[path = "mux/hostile.rs"]
mod hostile;
#[path = "mux/left.rs"]
mod left;
#[path = "mux/libmtcp.rs"]
mod libmtcp;
#[path = "mux/local.rs"]
mod local;
#[path = "mux/memif.rs"]
mod memif;
#[path = "mux/metrics.rs"]
mod metrics;
#[path = "mux/privileges.rs"]
mod privileges;
mod world;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use millstream::{Config, Runtime, TcpListener, TcpStream};
use world::download::Download;
use world::{CURL, World, noise};

const MILL: &str = env!("CARGO_BIN_EXE_mill");

/// Serializes the tests: all NICs of this process have the same name, and a service keeps its state
/// under the NIC's name.
static ONE: Mutex<()> = Mutex::new(());

/// The NIC's name, which is unique to this run of the tests.
fn nic() -> String {
    format!("right{}", std::process::id())
}

/// The directory of the files that outlive a service.
fn run_directory() -> PathBuf {
    Path::new("/run/millstream").join(nic())
}

/// Words of `setpriv` before a command of a user without privileges, in namespaces of its own for
/// users and networks.
const UNPRIVILEGED: [&str; 9] = [
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--no-new-privs",
    "unshare",
    "--user",
    "--net",
    "prlimit",
    "--memlock=0",
];

/// The user of these words.
const NOBODY: u32 = 65_534;

/// A program that is killed on drop.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A service on the NIC of a world.
struct Service {
    namespace: String,
    socket: String,
    /// File with the output of the world's services.
    log: PathBuf,
    program: Option<Program>,
}

impl Service {
    /// Starts a service. The NIC gets kernel addresses, and its peer accepts frames from XDP.
    fn start(world: &World, words: &[&str]) -> Self {
        let namespace = world.namespace("ours");
        let nic = nic();
        let link = ["-n", &namespace, "link", "set"];
        run(
            "ip",
            &[&link[..], &["right", "down", "name", &nic]].concat(),
        );
        run("ip", &[&link[..], &[&nic, "up"]].concat());
        for address in ["10.78.0.2/24", "fd78::2/64"] {
            let nodad = address.contains(':').then_some("nodad");
            let add = ["-n", &namespace, "addr", "add", address, "dev", &nic];
            run("ip", &add.into_iter().chain(nodad).collect::<Vec<_>>());
        }
        run("ip", &["-n", &namespace, "link", "set", "lo", "up"]);
        world.kernel(&["ethtool", "-K", "left", "gro", "on"]);
        let socket = world.directory.join("mux.sock");
        let socket = socket.to_str().unwrap().to_owned();
        let mut service = Self {
            namespace,
            socket,
            log: world.directory.join("mux.log"),
            program: None,
        };
        service.launch(words);
        service
    }

    fn launch(&mut self, words: &[&str]) {
        self.launch_with(words, &[]);
    }

    fn launch_with(&mut self, words: &[&str], variables: &[(&str, &str)]) {
        let _ = std::fs::remove_file(&self.socket);
        let child = self
            .inside(&[MILL, "mux", &nic(), "--socket", &self.socket])
            .args(words)
            .args(path_of(words))
            .envs(variables.iter().copied())
            .stderr(self.log())
            .spawn()
            .unwrap();
        self.program = Some(Program(child));
        let until = Instant::now() + Duration::from_secs(30);
        while !Path::new(&self.socket).exists() {
            assert!(Instant::now() < until, "the service does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its process: `nsenter` becomes the program that it runs.
    fn pid(&self) -> u32 {
        self.program.as_ref().unwrap().0.id()
    }

    fn log(&self) -> File {
        let mut options = File::options();
        options.create(true).append(true).open(&self.log).unwrap()
    }

    /// All output of the world's services.
    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// A command in the NIC's network namespace but in the common mount namespace, so that pins
    /// outlive the service.
    fn inside(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", self.namespace))
            .args(words)
            .stdin(Stdio::null());
        command
    }

    /// A server without privileges, in namespaces of its own for users and networks: it has no
    /// interface, and no user of the host's.
    fn serve(&self, directory: &Path, words: &[&str]) -> Program {
        self.serve_on(&format!("mux:{}", self.socket), directory, words)
    }

    fn serve_on(&self, wire: &str, directory: &Path, words: &[&str]) -> Program {
        self.serve_as(NOBODY, wire, directory, words)
    }

    /// A server of user `uid`, without capabilities.
    fn serve_as(&self, uid: u32, wire: &str, directory: &Path, words: &[&str]) -> Program {
        let mut command = Command::new("setpriv");
        command
            .args([format!("--reuid={uid}"), format!("--regid={uid}")])
            .args(&UNPRIVILEGED[2..])
            .args([MILL, "serve", directory.to_str().unwrap(), "--json"])
            .args(["--wire", wire])
            .args(words);
        ready(command)
    }

    /// A kernel server beside it.
    fn serve_by_kernel(&self, directory: &Path, port: &str) -> Program {
        let directory = directory.to_str().unwrap();
        let words = [MILL, "serve", directory, "--json", "--wire", "kernel"];
        let mut command = self.inside(&words);
        command.args(["--port", port]);
        ready(command)
    }

    /// Waits until an application of the previous service has come back.
    fn until_connected(&self) {
        let until = Instant::now() + Duration::from_secs(30);
        while !self.ask("status").contains("connected") {
            assert!(Instant::now() < until, "the application does not come back");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn ask(&self, question: &str) -> String {
        let output = self
            .inside(&[MILL, "mux", question, "--socket", &self.socket])
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let said = self.ask("stop");
        let Some(mut program) = self.program.take() else {
            return;
        };
        // The service answers first and then removes everything.
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until && matches!(program.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        match std::thread::panicking() {
            true => println!("mill mux stop: {said}\n{}", self.said()),
            false => assert!(!run_directory().exists(), "{said}"),
        }
    }
}

/// True if the tests run over veth pairs, the default. Two kinds of tests need pairs: connections
/// that outlive the service, and the rate in the bulk lane.
fn is_veth() -> bool {
    std::env::var("MUX_PATH").map_or(true, |path| path == "veth")
}

/// With `MUX_PATH=memif` all tests run over that path, except those with a path of their own or
/// `--local`.
fn path_of(words: &[&str]) -> Vec<String> {
    let is_free = !words.contains(&"--path");
    let path = std::env::var("MUX_PATH").ok().filter(|_| is_free);
    path.map_or(Vec::new(), |path| vec!["--path".to_owned(), path])
}

/// Starts a server and waits until it says that it is ready.
fn ready(mut command: Command) -> Program {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let program = Program(child);
    assert!(line.contains("\"ready\""), "{line}");
    // Keeps the pipe open for the server's last output.
    std::mem::forget(out);
    program
}

fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
}

fn curl(world: &World, url: &str) -> Vec<u8> {
    let output = world.kernel(&[&CURL[..], &[url]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{url}: {said}");
    output.stdout
}

#[test]
fn millstream_and_the_kernel_serve_at_the_same_address() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux") else {
        return;
    };
    let body = noise(300_000);
    world.write("a/file", &body);
    world.write("b/file", b"by the kernel");
    let service = Service::start(&world, &[]);
    let directory = |name: &str| world.directory.join(name);
    let _ours = service.serve(&directory("a"), &["--port", "8080"]);
    let _kernels = service.serve_by_kernel(&directory("b"), "8081");
    for _ in 0..3 {
        assert_eq!(curl(&world, "http://10.78.0.2:8080/file"), body);
        assert_eq!(curl(&world, "http://10.78.0.2:8081/file"), b"by the kernel");
    }
    assert_eq!(curl(&world, "http://[fd78::2]:8080/file"), body);
    for address in ["10.78.0.2", "fd78::2"] {
        let ping = world.kernel(&["ping", "-c", "1", "-W", "10", address]);
        assert!(ping.status.success(), "{ping:?}");
    }
    // No socket listens there, so the kernel refuses.
    let refused = world.kernel(&[&CURL[..], &["http://10.78.0.2:8082/"]].concat());
    assert_eq!(refused.status.code(), Some(7), "{refused:?}");
    // A second server of either kind does not get the port.
    let taken = service
        .inside(&[MILL, "serve", "/tmp", "--wire", "kernel", "--port", "8080"])
        .output()
        .unwrap();
    assert!(!taken.status.success(), "{taken:?}");
    let said = service.ask("status");
    assert!(said.contains("8080"), "{said}");
}

#[test]
fn client_without_privileges_downloads_from_another_host() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-get") else {
        return;
    };
    let body = noise(100_000);
    world.write("a/file", &body);
    let service = Service::start(&world, &[]);
    let server = world.serve(
        "kernel",
        &world.directory.join("a"),
        &["--wire", "kernel", "--port", "8000"],
    );
    let wire = format!("mux:{}", service.socket);
    let out = world.directory.join("out");
    std::fs::create_dir(&out).unwrap();
    run("chmod", &["777", out.to_str().unwrap()]);
    let file = out.join("file");
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args([MILL, "get", "http://10.78.0.1:8000/file", "--wire", &wire])
        .args(["--output", file.to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(std::fs::read(file).unwrap(), body);
    drop(server);
}

/// A crowd of clients in the kernel's namespace.
struct Crowd(Program);

impl Crowd {
    /// Reads a line of the program byte by byte, so that no byte stays in a buffer.
    fn line(&mut self) -> String {
        let out = self.0.0.stdout.as_mut().unwrap();
        let mut line = Vec::new();
        let mut byte = [0];
        while line.last() != Some(&b'\n') && out.read(&mut byte).unwrap() > 0 {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }
}

#[test]
fn connections_go_on_while_the_service_is_replaced() {
    if !is_veth() {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-again") else {
        return;
    };
    let body = noise(30_000);
    world.write("a/file", &body);
    let mut service = Service::start(&world, &[]);
    let _ours = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    assert_eq!(curl(&world, "http://10.78.0.2:8080/file"), body);
    // Killed without warning.
    service.program = None;
    for _ in 0..3 {
        assert_eq!(curl(&world, "http://10.78.0.2:8080/file"), body);
    }
    service.launch(&[]);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(curl(&world, "http://10.78.0.2:8080/file"), body);
    let said = service.ask("status");
    assert!(said.contains("8080"), "{said}");
}

/// A Python program that opens, uses and closes connections as its input says, one word per line.
const CLIENTS: &str = r#"
import socket, sys
kept = []
for line in sys.stdin:
    word, count = line.split()
    if word == "open":
        for _ in range(int(count)):
            kept.append(socket.create_connection(("10.78.0.2", 8080), 60))
    elif word == "echo":
        for one in kept:
            one.sendall(b"x")
        assert all(one.recv(1) == b"x" for one in kept)
    else:
        for one in kept:
            one.close()
        kept = []
    print("ready", flush=True)
"#;

impl Crowd {
    /// Starts clients that wait for commands.
    fn of_clients(world: &World) -> Self {
        let mut command = world.command("kernel", &["python3", "-c", CLIENTS]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(Program(command.spawn().unwrap()))
    }

    fn tell(&mut self, order: &str) {
        writeln!(self.0.0.stdin.as_mut().unwrap(), "{order}").unwrap();
    }

    fn open(&mut self, count: usize) {
        self.tell(&format!("open {count}"));
        assert_eq!(self.line(), "ready\n");
    }

    /// Echoes a byte of each client on its stream.
    fn echo(&mut self, streams: &mut [TcpStream]) {
        self.tell("echo 0");
        for stream in streams {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            stream.write_all(&byte).unwrap();
        }
        assert_eq!(self.line(), "ready\n");
    }
}

#[test]
fn systemd_is_told_when_the_service_is_ready_and_when_it_stops() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-notify") else {
        return;
    };
    let path = world.directory.join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let wait = Some(Duration::from_secs(30));
    manager.set_read_timeout(wait).unwrap();
    let next = || {
        let mut bytes = [0; 64];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut service = Service::start(&world, &[]);
    service.program = None;
    let variables = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    service.launch_with(&[], &variables);
    assert_eq!(next(), "READY=1");
    // The service answers from here on.
    assert!(service.ask("status").contains("up"));
    let second = service
        .inside(&[
            MILL,
            "mux",
            &nic(),
            "--socket",
            &format!("{}2", service.socket),
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        said.contains("another service shares this interface"),
        "{said}"
    );
    service.ask("stop");
    assert_eq!(next(), "STOPPING=1");
}

/// The library on a service's wire, in the test's own process.
fn runtime(service: &Service, contexts: usize) -> Runtime {
    let mut config = Config::new(format!("mux:{}", service.socket).parse().unwrap());
    config.contexts = contexts;
    Runtime::new(config).unwrap()
}

/// Accepts `count` connections in all from the listeners.
fn accepted(listeners: &[&TcpListener], count: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    let until = Instant::now() + Duration::from_secs(30);
    while streams.len() < count {
        for listener in listeners {
            listener.set_nonblocking(true);
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(false);
                streams.push(stream);
            }
        }
        assert!(Instant::now() < until, "{} of {count}", streams.len());
    }
    streams
}

const ANYWHERE: &str = "0.0.0.0:8080";

#[test]
fn connections_beyond_the_lease_get_more_ports() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-lease") else {
        return;
    };
    world.write("a/file", b"small");
    let service = Service::start(&world, &[]);
    let words = ["--wire", "kernel", "--port", "8000"];
    let _server = world.serve("kernel", &world.directory.join("a"), &words);
    let runtime = runtime(&service, 1);
    let context = runtime.context(0).unwrap();
    let target = "10.78.0.1:8000".parse().unwrap();
    // The first lease has 32 ports.
    let streams: Vec<TcpStream> = (0..150)
        .map(|_| TcpStream::connect(&context, target).unwrap())
        .collect();
    let said = service.ask("ports");
    assert!(said.matches("leased").count() >= 3, "{said}");
    drop(streams);
}

#[test]
fn claim_ends_with_its_listener_and_its_connections() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-claim") else {
        return;
    };
    let service = Service::start(&world, &[]);
    let runtime = runtime(&service, 1);
    let context = runtime.context(0).unwrap();
    let mut clients = Crowd::of_clients(&world);
    let listener = TcpListener::bind(&context, ANYWHERE.parse().unwrap()).unwrap();
    clients.open(1);
    let mut streams = accepted(&[&listener], 1);
    drop(listener);
    clients.echo(&mut streams);
    assert!(service.ask("ports").contains("0.0.0.0:8080"));
    clients.tell("close 0");
    assert_eq!(clients.line(), "ready\n");
    assert_eq!(streams[0].read(&mut [0]).unwrap(), 0);
    drop(streams);
    let until = Instant::now() + Duration::from_secs(30);
    while service.ask("ports").contains("0.0.0.0:8080") {
        assert!(Instant::now() < until, "the claim stays");
        std::thread::sleep(Duration::from_millis(50));
    }
    // Each side gets the port in turn.
    let words = [
        "python3",
        "-c",
        "import socket; socket.create_server((\"\", 8080))",
    ];
    assert!(service.inside(&words).status().unwrap().success());
    let listener = TcpListener::bind(&context, ANYWHERE.parse().unwrap()).unwrap();
    clients.open(1);
    clients.echo(&mut accepted(&[&listener], 1));
    assert!(!service.inside(&words).status().unwrap().success());
}

#[test]
fn flow_keeps_its_context_when_listeners_come_and_go() {
    flows_keep_their_contexts("mux-flows", &[]);
}

/// Listeners of three contexts come and go while their connections echo.
fn flows_keep_their_contexts(name: &str, words: &[&str]) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new(name) else {
        return;
    };
    let service = Service::start(&world, words);
    let runtime = runtime(&service, 3);
    let contexts: Vec<_> = (0..3).map(|at| runtime.context(at).unwrap()).collect();
    let listen = |at: usize| TcpListener::bind(&contexts[at], ANYWHERE.parse().unwrap()).unwrap();
    let mut clients = Crowd::of_clients(&world);
    let (first, second) = (listen(0), listen(1));
    clients.open(40);
    let mut streams = accepted(&[&first, &second], 40);
    clients.echo(&mut streams);
    drop(first);
    clients.echo(&mut streams);
    // New connections go to the remaining listener.
    clients.open(10);
    streams.extend(accepted(&[&second], 10));
    clients.echo(&mut streams);
    let third = listen(2);
    clients.open(40);
    let late = accepted(&[&second], 0).len();
    streams.extend(accepted(&[&second, &third], 40 - late));
    clients.echo(&mut streams);
    drop((second, third));
    clients.echo(&mut streams);
}

#[test]
fn changes_of_the_interface_reach_a_transfer() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-change") else {
        return;
    };
    let body = noise(3_000_000);
    world.write("a/file", &body);
    let service = Service::start(&world, &[]);
    let _ours = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    let ip = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        run("ip", &[&["-n", &service.namespace], &words[..]].concat());
    };
    let download = Download::start(&world, &["http://10.78.0.2:8080/file"]);
    let short = "http://10.78.0.3:8080/file";
    // A client two hops away, whom the service's host cannot answer yet.
    world.run_ip("kernel", "addr add 10.99.0.1/32 dev lo");
    let far = |seconds: &str| {
        let words = ["curl", "-sS", "--max-time", seconds];
        let far = ["--interface", "10.99.0.1", "http://10.78.0.2:8080/file"];
        world.kernel(&[&words[..], &far].concat())
    };
    assert!(!far("1").status.success());
    let nic = nic();
    for change in [
        &format!("link set {nic} mtu 1400"),
        &format!("addr add 10.78.0.3/24 dev {nic}"),
        "route add 10.99.0.0/24 via 10.78.0.1",
        &format!("link set {nic} mtu 1500"),
    ] {
        ip(change);
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(curl(&world, short), body);
    let by_the_route = far("60");
    assert!(by_the_route.stdout == body, "{by_the_route:?}");
    ip("route del 10.99.0.0/24 via 10.78.0.1");
    let until = Instant::now() + Duration::from_secs(30);
    while far("1").status.success() {
        assert!(Instant::now() < until, "the route stays");
    }
    ip(&format!("addr del 10.78.0.3/24 dev {nic}"));
    let until = Instant::now() + Duration::from_secs(30);
    while world
        .kernel(&["curl", "-sS", "--max-time", "1", short])
        .status
        .success()
    {
        assert!(Instant::now() < until, "the address stays");
    }
    assert!(download.body() == body);
}
