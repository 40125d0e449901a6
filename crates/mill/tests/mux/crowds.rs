//! Many applications at once, and one that attacks through its rings.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use packetio::mux::message::VERSION;

use crate::world::{World, noise};
use crate::{MILL, ONE, Program, Service, curl, download_beside, is_veth, run_directory};

/// Number of applications; `cargo xtask stress mux` asks for 254.
fn applications() -> usize {
    let asked = std::env::var("MUX_APPLICATIONS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(8)
}

#[test]
fn all_virtual_ports_serve_and_killed_at_once_leave_nothing() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-many") else {
        return;
    };
    let body = noise(10_000);
    world.write("a/file", &body);
    let count = applications();
    let service = Service::start(&world, &["--ports", &count.to_string()]);
    let directory = world.directory.join("a");
    let port = |at: usize| (8100 + at).to_string();
    // Short rings, since the kernel pins their memory.
    let wire = format!("mux:{},ring=64", service.socket);
    let servers: Vec<Program> = (0..count)
        .map(|at| service.serve_on(&wire, &directory, &["--port", &port(at)]))
        .collect();
    for at in 0..count {
        let url = format!("http://10.78.0.2:{}/file", port(at));
        assert_eq!(curl(&world, &url), body, "{url}");
    }
    let late = Command::new(MILL)
        .args(["serve", directory.to_str().unwrap(), "--wire", &wire])
        .args(["--port", "9999"])
        .output()
        .unwrap();
    assert!(!late.status.success());
    let said = String::from_utf8_lossy(&late.stderr).into_owned();
    assert!(said.contains("busy"), "{said}");
    let ends = || {
        let netns = run_directory().join("netns");
        let output = Command::new("nsenter")
            .arg(format!("--net={}", netns.display()))
            .args(["ip", "-o", "link"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().filter(|line| line.contains(" near")).count()
    };
    assert_eq!(ends(), if is_veth() { count } else { 0 });
    // Signal all of them first, so that they die at the same time.
    let mut servers = servers;
    for server in &mut servers {
        server.0.kill().unwrap();
    }
    drop(servers);
    let until = Instant::now() + Duration::from_secs(60);
    while service.ask("status").contains("pid") || ends() > 0 {
        assert!(Instant::now() < until, "{}", service.ask("status"));
        std::thread::sleep(Duration::from_millis(50));
    }
    let pins = std::fs::read_dir(run_directory().join("bpf")).unwrap();
    let pins = pins.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_of_a_context = |pin: &String| {
        let kinds = ["link_near", "link_far", "ledger"];
        kinds.iter().any(|kind| pin.starts_with(kind))
    };
    let left: Vec<String> = pins.filter(is_of_a_context).collect();
    assert!(left.is_empty(), "{left:?}");
    // The kernel gets every port back.
    let bind = format!(
        "import socket\nfor port in range(8100, {}): socket.create_server((\"\", port)).close()",
        8100 + count
    );
    let bound = service.inside(&["python3", "-c", &bind]).status().unwrap();
    assert!(bound.success());
}

/// Opens a virtual port, fills its TX ring with random descriptors and its memory with random
/// bytes, takes completions, and never takes a frame. Prints the number of descriptors that the
/// kernel took.
const HOSTILE: &str = r#"
import fcntl, mmap, os, random, socket, struct, sys, time
random.seed(int(sys.argv[2]))
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
def send(kind, body, fds=()):
    socket.send_fds(s, [(struct.pack("HH", int(sys.argv[4]), kind) + body).ljust(128, b"\0")], fds)
def answer(kind):
    while True:
        message, fds, _, _ = socket.recv_fds(s, 128, 1)
        assert message, "disconnected"
        if struct.unpack_from("H", message, 2)[0] == kind:
            return fds
send(1, b"hostile".ljust(32, b"\0") + struct.pack("H", 1))
answer(2)
size = 4 << 20
file = os.memfd_create("m", os.MFD_ALLOW_SEALING)
os.ftruncate(file, size)
fcntl.fcntl(file, 1033, 1 | 2 | 4)
send(3, struct.pack("=HQIIIIII", 0, size, 2048, 0, 1024, 1024, 1024, 1024), [file])
x = socket.socket(44, socket.SOCK_RAW, 0, fileno=answer(4)[0])
memory = mmap.mmap(file, size)
offsets = struct.unpack("=16Q", x.getsockopt(283, 1, 128))
producer, consumer, descriptors = offsets[4:7]
ring = mmap.mmap(x.fileno(), descriptors + 1024 * 16, offset=0x80000000)
fill_producer, _, fill_descriptors = offsets[8:11]
fill = mmap.mmap(x.fileno(), fill_descriptors + 1024 * 8, offset=0x100000000)
for at in range(1024):
    struct.pack_into("=Q", fill, fill_descriptors + 8 * at, random.getrandbits(64))
struct.pack_into("=I", fill, fill_producer, 1024)
done_producer, done_consumer, done_descriptors = offsets[12:15]
done = mmap.mmap(x.fileno(), done_descriptors + 1024 * 8, offset=0x180000000)
print("ready", flush=True)
taken, end = 0, time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    at = random.randrange(size - 65536)
    memory[at:at + 4096] = random.randbytes(4096)
    for slot in range(1024):
        if random.random() < 0.5:
            address, length = random.randrange(0, size, 2048), random.randrange(14, 1600)
        else:
            address, length = random.getrandbits(64), random.getrandbits(32)
        options = random.choice((0, 0, 0, 1, 2, random.getrandbits(32)))
        struct.pack_into("=QII", ring, descriptors + 16 * slot, address, length, options)
    old, = struct.unpack_from("=I", ring, consumer)
    struct.pack_into("=I", ring, producer, (old + random.choice((1024, 64, 1, 5000))) & 0xffffffff)
    for _ in range(16):
        try:
            x.send(b"", socket.MSG_DONTWAIT)
        except OSError:
            pass
    # A full completion ring would stop it.
    finished, = struct.unpack_from("=I", done, done_producer)
    struct.pack_into("=I", done, done_consumer, finished)
    new, = struct.unpack_from("=I", ring, consumer)
    taken += (new - old) & 0xffffffff
print(taken, flush=True)
"#;

#[test]
fn neighbour_of_a_hostile_application_stays_exact() {
    // This hostile application uses AF_XDP; the tests of `memif` have one that uses a channel.
    if !is_veth() {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-hostile") else {
        return;
    };
    let service = Service::start(&world, &[]);
    let mut hostile = Command::new("python3");
    hostile
        .args(["-c", HOSTILE, &service.socket, "1", "3"])
        .arg(VERSION.to_string());
    let taken = download_beside(&world, &service, &mut hostile);
    assert!(taken > 0);
}

/// Rounds of a comparison.
const ROUNDS: usize = 5;

/// Runs a hostile application for the given seconds.
fn hostile(service: &Service, seed: usize, seconds: &str) -> Program {
    let mut command = Command::new("python3");
    command
        .args(["-c", HOSTILE, &service.socket, &seed.to_string(), seconds])
        .arg(VERSION.to_string())
        .stdout(Stdio::piped());
    let mut program = Program(command.spawn().unwrap());
    let mut ready = [0; 6];
    let out = program.0.stdout.as_mut().unwrap();
    out.read_exact(&mut ready).unwrap();
    assert_eq!(&ready, b"ready\n");
    program
}

/// An application gets its fair share if it gets as much beside a hostile one as beside one like
/// itself. The test compares times, so it runs only on request (`cargo xtask stress mux`).
/// `MUX_SHARE` is the least share, such as 0.9.
#[test]
fn neighbour_of_a_hostile_application_keeps_its_share() {
    let Some(least) = std::env::var("MUX_SHARE").ok() else {
        let _ = writeln!(
            std::io::stderr(),
            "ignored: compares times if MUX_SHARE is set"
        );
        return;
    };
    let least: f64 = least.parse().unwrap();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-share") else {
        return;
    };
    let body = noise(100_000_000);
    world.write("a/file", &body);
    let service = Service::start(&world, &[]);
    let directory = world.directory.join("a");
    let _ours = service.serve(&directory, &["--port", "8080"]);
    let _rivals = service.serve(&directory, &["--port", "8081"]);
    let seconds = || {
        let begin = Instant::now();
        assert!(curl(&world, "http://10.78.0.2:8080/file") == body);
        begin.elapsed().as_secs_f64()
    };
    let (mut beside_honest, mut beside_hostile) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // More repetitions than possible in the time; curl ends with its process.
        let often = format!("http://10.78.0.2:8081/file?[1-{}]", 1_000_000);
        let mut rival = world.command("kernel", &["curl", "-s", "-o", "/dev/null", &often]);
        let rival = Program(rival.spawn().unwrap());
        beside_honest.push(seconds());
        drop(rival);
        let hostile = hostile(&service, round, "60");
        beside_hostile.push(seconds());
        drop(hostile);
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2]
    };
    let share = median(&mut beside_honest) / median(&mut beside_hostile);
    println!("share {share:.2}: {beside_honest:.2?} s honest, {beside_hostile:.2?} s hostile");
    assert!(share >= least, "{share:.2}");
}
